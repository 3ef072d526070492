"""A new controller learns from the znodes which replicas are other processes than those meant.

Method: states and registrations with the zxids of their order.
"""

from immutables import Map

from ottla.base.zookeeper import Stat, ZnodeData
from ottla.metadata.znodes.load import Snapshot
from ottla.metadata.znodes.partition_state import StateZnode, encode_state
from ottla.metadata.znodes.restarted_replicas import restarted_replicas


def stat(czxid: int, mzxid: int) -> Stat:
    return Stat(czxid, mzxid, version=0, cversion=0, ephemeral_owner=0, created_ms=0, modified_ms=0)


def registered(czxid: int) -> ZnodeData:
    return ZnodeData(b"", stat(czxid, czxid))


def state(
    written: int, leader: int, isr: tuple[int, ...], broker_epochs: dict[int, int] | None = None
) -> ZnodeData:
    znode = StateZnode(
        leader=leader,
        leader_epoch=3,
        controller_epoch=1,
        isr=isr,
        broker_epochs=None if broker_epochs is None else Map(broker_epochs),
    )
    return ZnodeData(encode_state(znode), stat(1, written))


def test_a_registration_after_the_state_is_a_restart() -> None:
    snapshot = Snapshot(
        brokers={1: registered(50), 2: registered(20), 3: registered(90), 4: None},
        states={
            ("t", 0): state(60, 1, (1, 2)),  # Written when both were there.
            ("t", 1): state(40, 1, (1, 2)),  # The leader came back.
            ("t", 2): state(40, 2, (2, 1, 4)),  # A follower did.
            ("t", 3): state(10, -1, (2, 3)),  # Those that were in sync before nobody led did.
            ("t", 4): state(10, 4, (4,)),  # Is not there: that is another matter.
            ("t", 5): None,
            ("t", 6): ZnodeData(b"no JSON", stat(1, 1)),
        },
    )
    assert restarted_replicas(snapshot) == {
        ("t", 1): frozenset({1}),
        ("t", 2): frozenset({1}),
        ("t", 3): frozenset({2, 3}),
    }


def test_a_state_about_a_previous_process_may_be_written_after_the_registration() -> None:
    snapshot = Snapshot(
        brokers={1: registered(50), 2: registered(20), 3: None},
        states={
            ("t", 0): state(60, 1, (1, 2), {1: 50, 2: 20}),
            ("t", 1): state(60, 1, (1, 2), {1: 40, 2: 20}),  # The leader was another process.
            ("t", 2): state(60, 2, (2, 1), {1: 40, 2: 20}),  # A follower was.
            ("t", 3): state(60, 1, (1,), {}),  # It was not known to be registered.
            ("t", 4): state(60, 3, (3,), {3: 30}),
        },
    )
    assert restarted_replicas(snapshot) == {
        ("t", 1): frozenset({1}),
        ("t", 2): frozenset({1}),
        ("t", 3): frozenset({1}),
    }
