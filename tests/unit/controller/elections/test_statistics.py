"""Elections are counted as they are committed, and the unclean ones among them.

Method: a topic's partition goes through hand-written records; the counts are compared.
"""

from dataclasses import replace

from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.controller.elections.partition_change import RECOVERY_UNCHANGED
from ottla.controller.elections.statistics import ElectionStatistics
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from ottla.metadata.topics import RECOVERING

TOPIC = Uuid(bytes(15) + b"\x07")


def counts(*records: Record) -> tuple[int, int]:
    """Return (elections, unclean ones) after records, each committed by itself."""
    found = ElectionStatistics()
    made = replay(EMPTY, [TopicRecord(name="t", topic_id=TOPIC)], offset=0, epoch=1)
    image = made.image
    for offset, record in enumerate(records, 1):
        delta = replay(image, [record], offset=offset, epoch=1)
        found.observe(delta)
        image = delta.image
    return found.elections, found.unclean_elections


def made(*, isr: tuple[int, ...] = (1, 2), elr: tuple[int, ...] | None = None) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2, 3),
        isr=isr,
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        eligible_leader_replicas=elr,
    )


def led_by(
    leader: int, isr: tuple[int, ...] | None = None, recovery: int = RECOVERY_UNCHANGED
) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC, leader=leader, isr=isr, leader_recovery_state=recovery
    )


def test_a_new_partition_is_no_election() -> None:
    assert counts(made()) == (0, 0)


def test_each_new_leader_counts_once() -> None:
    assert counts(made(), led_by(2), led_by(1)) == (2, 0)


def test_losing_the_leader_is_none_and_getting_one_back_is() -> None:
    assert counts(made(), led_by(-1)) == (0, 0)
    assert counts(made(), led_by(-1), led_by(1)) == (1, 0)


def test_a_bump_of_the_epoch_under_the_same_leader_is_none() -> None:
    assert counts(made(), led_by(1)) == (0, 0)


def test_a_leader_from_outside_is_unclean_and_an_eligible_one_is_not() -> None:
    assert counts(made(), led_by(3, isr=(3,), recovery=RECOVERING)) == (1, 1)
    assert counts(made(isr=(), elr=(3,)), led_by(3, isr=(3,))) == (1, 0)


def test_a_newcomer_that_leads_at_the_end_of_a_reassignment_is_in_sync() -> None:
    assert counts(made(), led_by(3, isr=(3,))) == (1, 0)


def test_the_first_leader_of_a_partition_that_was_listed_without_one_is_no_election() -> None:
    listed = replace(
        made(isr=()), leader=NO_LEADER, leader_epoch=NO_EPOCH, partition_epoch=NO_EPOCH
    )
    assert counts(listed, made(isr=(1,)), led_by(2, isr=(1, 2))) == (1, 0)
