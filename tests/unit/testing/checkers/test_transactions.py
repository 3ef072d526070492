"""Anomalies of read_committed reads are found in a history that has them, and in no other.

Method: one log with a committed and an aborted transaction, read in different ways.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import transactions as checkers
from ottla.testing.history.history import History, LogSeen, PowerLoss
from ottla.testing.history.topics import Promise
from ottla.testing.history.transactions import CommittedRead, TransactionSeen

TOPIC = Uuid(bytes(15) + b"\x07")
PARTITION = (TOPIC, 0)
VALUES = {0: b"plain", 1: b"aborted", 2: b"committed"}
"""Markers are at offsets 3 and 4."""


def history(*values: tuple[int, bytes], at_ms: int = 500, first: int = 0) -> History:
    seen = History(logs=[LogSeen(1, PARTITION, 0, 5, VALUES)])
    seen.transactions.ended += [
        TransactionSeen("t", PARTITION, (b"aborted",), committed=False, decided_ms=200),
        TransactionSeen("t", PARTITION, (b"committed",), committed=True, decided_ms=300),
        TransactionSeen("t", PARTITION, (b"open",), committed=True),
    ]
    seen.transactions.reads.append(CommittedRead("c", PARTITION, first, 5, values, 1, at_ms))
    return seen


def found(seen: History) -> tuple[int, int]:
    return (
        len(checkers.uncommitted_records_read(seen)),
        len(checkers.committed_records_left_out(seen)),
    )


def test_a_reader_gets_what_is_committed_and_nothing_else() -> None:
    assert found(history((0, b"plain"), (2, b"committed"))) == (0, 0)
    assert found(history((2, b"committed"), first=1)) == (0, 0)


def test_a_record_of_an_aborted_transaction_is_found() -> None:
    seen = history((0, b"plain"), (1, b"aborted"), (2, b"committed"))
    [witness] = checkers.uncommitted_records_read(seen)
    assert "an aborted transaction" in witness.text
    assert checkers.committed_records_left_out(seen) == []


@pytest.mark.parametrize("value", [(2, b"committed"), (2, b"open")])
def test_a_record_that_is_read_before_its_marker_is_found(value: tuple[int, bytes]) -> None:
    [witness] = checkers.uncommitted_records_read(history((0, b"plain"), value, at_ms=299))
    assert "an open transaction" in witness.text


def test_a_committed_record_that_was_left_out_is_found() -> None:
    assert found(history((0, b"plain"))) == (0, 1)
    assert found(history((2, b"committed"))) == (0, 1)


def test_records_that_may_be_lost_are_not_missed() -> None:
    seen = history((0, b"plain"))
    seen.promises[TOPIC] = Promise(weak=True)
    seen.losses.append(PowerLoss(1, 600))
    assert found(seen) == (0, 0)
