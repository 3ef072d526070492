"""The check that only who rules writes finds zombies, and takes nobody else for one.

Method: short histories as the logs would tell them.
"""

import pytest

from .transactions import Reign, Transaction, Write, check_only_rulers_write, reigns

STATE = "/c/brokers/topics/t/partitions/0/state"
FIRST, SECOND = 11, 22


def elected(zxid: int, session: int, epoch: int) -> Transaction:
    controller = Write("/c/controller", b'{"version":2,"brokerid":%d}' % (session // 11))
    return Transaction(zxid, session, (controller, Write("/c/controller_epoch", b"%d" % epoch)))


def state(zxid: int, session: int, epoch: int) -> Transaction:
    return Transaction(zxid, session, (Write(STATE, b'{"controller_epoch":%d}' % epoch),))


def test_each_ruler_may_write_in_its_time() -> None:
    history = [
        Transaction(1, FIRST, (Write("/c/latest_producer_id_block", b""),)),
        elected(2, FIRST, 1),
        state(3, FIRST, 1),
        elected(4, SECOND, 2),
        state(5, SECOND, 2),
        Transaction(6, FIRST, is_refused=True),
        Transaction(7, FIRST, (Write("/c/brokers/ids/1", b"{}"),)),
        Transaction(8, SECOND, (Write(STATE, None),)),
        # Another cluster's, on the same servers.
        Transaction(9, 33, (Write("/d/brokers/topics/t", b"{}"),)),
    ]
    assert check_only_rulers_write(history, "/c") == 3
    assert reigns(history, "/c") == [Reign(1, FIRST, 2, 1), Reign(2, SECOND, 4, 2)]


@pytest.mark.parametrize(
    "write",
    [
        state(5, FIRST, 1),
        state(5, SECOND, 1),
        Transaction(5, FIRST, (Write(STATE, None),)),
        Transaction(5, FIRST, (Write("/c/config/topics/t", b"{}"),)),
        elected(5, FIRST, 2),
    ],
    ids=["late", "under the old epoch", "deletes", "configures", "of the same epoch"],
)
def test_a_zombie_s_write_is_found(write: Transaction) -> None:
    with pytest.raises(AssertionError):
        check_only_rulers_write([elected(2, FIRST, 1), elected(4, SECOND, 2), write], "/c")


def test_nobody_writes_before_the_first_election() -> None:
    with pytest.raises(AssertionError, match="before the first election"):
        check_only_rulers_write([state(1, FIRST, 1)], "/c")
