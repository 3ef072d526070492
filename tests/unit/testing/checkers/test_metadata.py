"""Each anomaly of metadata is found in a history that has it, and in no other.

Method: histories of a few lines, one that keeps the promise and one that breaks it.
"""

from dataclasses import dataclass

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import metadata as checkers
from ottla.testing.history.history import (
    Committed,
    History,
    ImageSeen,
    PartitionSeen,
    TopicAcknowledged,
)

PARTITION = (Uuid(bytes(15) + b"\x09"), 0)


# -- metadata lost or reordered ----------------------------------------------------------------


def test_nodes_that_agree_on_every_offset_are_well() -> None:
    entries = [
        Committed(1, 1, 0, 1, "a"),
        Committed(1, 1, 1, 1, "b"),
        Committed(2, 1, 1, 1, "b"),  # It began with a snapshot.
        Committed(1, 2, 0, 1, "a"),  # Another incarnation reads again.
    ]
    assert checkers.metadata_lost_or_reordered(History(metadata=entries)) == []


def test_an_offset_with_two_records_is_found() -> None:
    entries = [Committed(1, 1, 0, 1, "a"), Committed(2, 1, 0, 2, "z", 40)]
    found = checkers.metadata_lost_or_reordered(History(metadata=entries))
    assert [witness.at_ms for witness in found] == [40]


def test_an_incarnation_that_goes_back_is_found() -> None:
    entries = [Committed(1, 1, 5, 2, "a"), Committed(1, 1, 4, 2, "b")]
    assert len(checkers.metadata_lost_or_reordered(History(metadata=entries))) == 1


def test_an_epoch_that_goes_back_is_found() -> None:
    entries = [Committed(1, 1, 5, 2, "a"), Committed(1, 1, 6, 1, "b")]
    assert len(checkers.metadata_lost_or_reordered(History(metadata=entries))) == 1


# -- acknowledged topic lost -------------------------------------------------------------------

CREATED = TopicAcknowledged(PARTITION[0], "t", at_ms=5)
DELETED = TopicAcknowledged(PARTITION[0], "t", is_deletion=True, at_ms=6)


def topics_lost(
    topics: list[TopicAcknowledged], *, there: bool, deleted: bool = False
) -> list[int]:
    history = History(topics_acknowledged=topics, topics={PARTITION[0]} if there else set())
    history.deleted = {PARTITION[0]} if deleted else set()
    return [witness.at_ms for witness in checkers.acknowledged_topics_lost(history)]


def test_a_created_topic_is_there_and_a_deleted_one_is_not() -> None:
    assert topics_lost([CREATED], there=True) == []
    assert topics_lost([CREATED, DELETED], there=False, deleted=True) == []
    assert topics_lost([CREATED], there=False, deleted=True) == [], "the deletion may be done"


def test_a_created_topic_that_is_gone_is_found() -> None:
    assert topics_lost([CREATED], there=False) == [5]


def test_a_deleted_topic_that_is_there_is_found() -> None:
    assert topics_lost([CREATED, DELETED], there=True, deleted=True) == [6]


def test_without_the_final_topics_there_are_no_witnesses() -> None:
    assert checkers.acknowledged_topics_lost(History(topics_acknowledged=[CREATED])) == []


# -- images that differ ------------------------------------------------------------------------


def test_images_are_compared_at_one_offset() -> None:
    images = [ImageSeen(1, 5, "x"), ImageSeen(2, 5, "x"), ImageSeen(2, 6, "y")]
    assert checkers.images_that_differ(History(images=images)) == []


def test_two_images_at_one_offset_are_found() -> None:
    images = [ImageSeen(1, 5, "x"), ImageSeen(2, 5, "y", 30)]
    found = checkers.images_that_differ(History(images=images))
    assert [witness.at_ms for witness in found] == [30]


# -- partition rules ---------------------------------------------------------------------------


@dataclass(slots=True)
class Story:
    """A partition that changes, one committed record after another."""

    states: list[PartitionSeen]

    def then(self, **changes: object) -> "Story":
        last = self.states[-1]
        epochs = {"partition_epoch": last.partition_epoch + 1, "offset": last.offset + 1}
        self.states.append(last._replace(**(epochs | changes)))
        return self

    def broken(self) -> list[str]:
        history = History(partitions=self.states)
        return [witness.text for witness in checkers.partition_rules_broken(history)]


def story() -> Story:
    return Story([PartitionSeen(PARTITION, 10, (1, 2, 3), (1, 2), 1, 0, 0)])


def test_a_leader_from_the_in_sync_replicas_is_well() -> None:
    moved = story().then(isr=(2,), leader=2, leader_epoch=1).then(isr=(2, 3))
    assert moved.broken() == []


def test_a_leader_from_outside_is_found() -> None:
    (reason,) = story().then(isr=(3,), leader=3, leader_epoch=1).broken()
    assert "led by 3, which was not in sync: (1, 2)" in reason


def test_a_leader_outside_its_own_in_sync_replicas_is_found() -> None:
    (reason,) = story().then(isr=(1,), leader=2, leader_epoch=1).broken()
    assert "led by 2, outside its in-sync replicas (1,)" in reason


def test_an_unclean_election_that_was_asked_for_is_well() -> None:
    unclean = story().then(isr=(3,), leader=3, leader_epoch=1, unclean=True)
    assert unclean.broken() == []


def test_an_eligible_leader_replica_may_lead() -> None:
    back = story().then(isr=(), elr=(1, 2), leader=-1, leader_epoch=1)
    assert back.then(isr=(2,), elr=(1,), leader=2, leader_epoch=2).broken() == []


def test_the_last_known_leader_may_lead_where_nobody_is_eligible() -> None:
    lost = story().then(isr=(), elr=(), last_known=(1,), leader=-1, leader_epoch=1)
    assert lost.then(isr=(1,), last_known=(), leader=1, leader_epoch=2).broken() == []


def test_the_last_known_leader_may_not_pass_over_an_eligible_one() -> None:
    down = story().then(isr=(), elr=(2,), last_known=(1,), leader=-1, leader_epoch=1)
    assert len(down.then(isr=(1,), leader=1, leader_epoch=2).broken()) == 1


def test_the_last_known_leader_may_lead_once_the_eligible_one_has_lost_data() -> None:
    down = story().then(isr=(), elr=(2,), last_known=(1,), leader=-1, leader_epoch=1)
    assert down.then(isr=(1,), elr=(), leader=1, leader_epoch=2).broken() == []


def test_a_partition_with_no_complete_replica_is_found() -> None:
    (reason,) = story().then(isr=(), leader=-1, leader_epoch=1).broken()
    assert "no replica known to be complete" in reason


def test_a_reassignment_may_end_with_a_new_leader() -> None:
    ended = story().then(replicas=(2, 3), isr=(2, 3), leader=3, leader_epoch=1)
    assert ended.broken() == []


def test_a_broker_that_joins_while_it_is_fenced_is_found() -> None:
    (reason,) = story().then(isr=(1, 2, 3), inactive=(2, 3)).broken()
    assert "in sync at [3], who are not active" in reason


def test_a_broker_that_is_fenced_while_it_is_in_sync_is_well() -> None:
    assert story().then(inactive=(2,)).then(isr=(1, 2, 3), inactive=(2,)).broken() == []


def test_a_broker_may_be_elected_just_before_it_is_unfenced() -> None:
    down = story().then(isr=(), elr=(2,), leader=-1, leader_epoch=1)
    assert down.then(isr=(2,), elr=(), leader=2, leader_epoch=2, inactive=(2,)).broken() == []


def test_a_replica_that_goes_within_a_leader_epoch_is_found() -> None:
    (reason,) = story().then(replicas=(1, 2)).broken()
    assert "without its replicas [3], in the same leader epoch" in reason
    assert story().then(replicas=(1, 2), leader_epoch=1).then(replicas=(2, 1)).broken() == []


def test_in_sync_replicas_are_replicas() -> None:
    assert len(story().then(isr=(1, 2, 9)).broken()) == 1


@pytest.mark.parametrize("changes", [{"partition_epoch": 0}, {"leader_epoch": -1}, {"leader": 2}])
def test_epochs_only_grow(changes: dict[str, int]) -> None:
    assert len(story().then(**changes).broken()) == 1
