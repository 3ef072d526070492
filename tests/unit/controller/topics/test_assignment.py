"""New partitions have a leader in sync, and hand-made ones are checked before they are believed.

Method: lists of replicas against one image; the deciders' tests see the same rules from outside.
"""

from dataclasses import replace

import pytest
from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.topics.assignment import RegistrationCheck, assign, assign_manually
from ottla.metadata.brokers import record_of
from ottla.metadata.deletions import NOT_FINISHED, DeletionImage, Policy
from ottla.metadata.topics import TopicImage, topic_records

from ..builders import CountingDice, advance, after, broker, cluster, context, uuid

IMAGE = cluster(broker(1), broker(2, fenced=True), broker(3))


def test_placed_partitions_are_led_from_the_start() -> None:
    found = assign(IMAGE, "t", first=0, count=4, replication_factor=1, dice=CountingDice())
    assert [part.leader for part in found] == [1, 3, 1, 3]
    assert all(part.isr == part.replicas == (part.leader,) for part in found)
    assert found[0].directories == (uuid("dir-1"),)


def test_by_hand() -> None:
    [found] = assign_manually(IMAGE, "t", [[3]], first=7, replication_factor=1)
    assert (found.replicas, found.leader) == ((3,), 3)


@pytest.mark.parametrize(
    ("replicas", "expected", "error", "text"),
    [
        ([], None, Error.INVALID_REPLICA_ASSIGNMENT, "empty"),
        ([4], None, Error.INVALID_REPLICA_ASSIGNMENT, "broker 4"),
        ([1, 1], None, Error.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        ([1, 3], 1, Error.INVALID_REPLICA_ASSIGNMENT, "others have 1"),
        ([2], None, Error.INVALID_REPLICA_ASSIGNMENT, "partition 7 are fenced"),
    ],
)
def test_refusals(replicas: list[int], expected: int | None, error: Error, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        assign_manually(IMAGE, "t", [replicas], first=7, replication_factor=expected)
    assert caught.value.error is error
    assert text in caught.value.message


def test_brokers_that_are_down_are_taken_where_only_live_ones_are_registered() -> None:
    """As Kafka's ZkAdminManager: the live replicas are in sync, the others join later."""
    none = RegistrationCheck.NONE
    [found] = assign_manually(IMAGE, "t", [[9, 3, 1]], first=0, check=none)
    assert (found.replicas, found.isr, found.leader) == ((9, 3, 1), (3, 1), 3)
    assert (found.leader_epoch, found.partition_epoch) == (0, 0)


@pytest.mark.parametrize("replicas", [(9,), (9, 2)], ids=["all down", "down and fenced"])
def test_a_partition_without_an_active_replica_waits_for_one(replicas: tuple[int, ...]) -> None:
    none = RegistrationCheck.NONE
    [found] = assign_manually(IMAGE, "t", [replicas], first=0, check=none)
    assert (found.replicas, found.isr, found.leader) == (replicas, (), -1)
    assert (found.leader_epoch, found.partition_epoch) == (-1, -1), "nobody ever led it"
    topic = TopicImage(name="t", id=uuid("t"), partitions=Map({0: found}))
    waiting = advance(IMAGE, topic_records(topic))
    assert after(waiting, bring_online(waiting, context().config)) == waiting
    started = advance(waiting, [record_of(broker(9))])
    started = after(started, bring_online(started, context().config))
    led = started.topics.by_name("t")
    assert led is not None
    assert (led.partitions[0].leader, led.partitions[0].isr) == (9, (9,))
    assert (led.partitions[0].leader_epoch, led.partitions[0].partition_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("replicas", "expected", "text"),
    [
        ([], None, "empty"),
        ([9, 9], None, "more than once"),
        ([9, 1], 1, "others have 1"),
        ([-1, 1], None, "broker id -1"),
    ],
)
def test_what_is_refused_whoever_is_registered(
    replicas: list[int], expected: int | None, text: str
) -> None:
    none = RegistrationCheck.NONE
    with pytest.raises(ApiError) as caught:
        assign_manually(IMAGE, "t", [replicas], first=0, replication_factor=expected, check=none)
    assert caught.value.error is Error.INVALID_REPLICA_ASSIGNMENT
    assert text in caught.value.message


def test_several_replicas_begin_with_those_in_sync_that_are_active() -> None:
    [placed] = assign(IMAGE, "t", first=0, count=1, replication_factor=3, dice=CountingDice())
    assert (placed.replicas, placed.isr, placed.leader) == ((1, 3, 2), (1, 3), 1)
    assert placed.directories == tuple(map(uuid, ("dir-1", "dir-3", "dir-2")))
    [by_hand] = assign_manually(IMAGE, "t", [[2, 3, 1]], first=0)
    assert (by_hand.replicas, by_hand.isr, by_hand.leader) == ((2, 3, 1), (3, 1), 3)


def test_epochs_begin_above_those_of_all_former_topics_of_the_name() -> None:
    """A producer that lived through the deletion believed in the dead topic's leader for ever."""
    ended = [
        DeletionImage(
            topic_id=uuid(name + str(epoch)),
            name=name,
            policy=Policy.AT_ONCE,
            asked_ms=5,
            finished_ms=finished_ms,
            leader_epoch=epoch,
        )
        for name, epoch, finished_ms in (("t", 7, 1), ("t", 3, NOT_FINISHED), ("u", 30, 2))
    ]
    deletions = IMAGE.deletions
    for each in ended:
        deletions = deletions.with_deletion(each)
    image = replace(IMAGE, deletions=deletions)
    [placed] = assign(image, "t", first=0, count=1, replication_factor=1, dice=CountingDice())
    [by_hand] = assign_manually(image, "t", [[3]], first=0)
    [other] = assign_manually(image, "v", [[3]], first=0)
    assert [each.leader_epoch for each in (placed, by_hand, other)] == [8, 8, 0]
    without = replace(IMAGE, deletions=deletions.without(ended[0].topic_id))
    [again] = assign_manually(without, "t", [[3]], first=0)
    assert again.leader_epoch == 4


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(ApiError) as caught:
        assign(IMAGE, "t", first=0, count=1, replication_factor=4, dice=CountingDice())
    assert caught.value.error is Error.INVALID_REPLICATION_FACTOR
    assert "only 3 broker(s)" in caught.value.message
