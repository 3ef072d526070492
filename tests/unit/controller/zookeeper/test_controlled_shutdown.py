"""A broker asks to go (ControlledShutdown): what it gives up, what it must keep, what is refused.

Method: a cluster, the request, the image after it. The names of Kafka's
PartitionLeaderElectionAlgorithmsTest stand where its cases are about controlled shutdowns.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.elections.leader_rebalance import balance, elect_leaders
from ottla.controller.keys import PartitionKey
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Reassigned, Target, alter_reassignments
from ottla.controller.step import Decision
from ottla.controller.zookeeper.controlled_shutdown import controlled_shutdown
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.image import ClusterImage
from tests.unit.controller.builders import after, context
from tests.unit.controller.model_brokers import (
    CONFIG,
    Ids,
    a_broker,
    change,
    cluster_image,
    led,
    never_led,
    of,
    topic,
    topic_id,
)

T0 = PartitionKey("t", 0)


def asked(image: ClusterImage, broker_id: int) -> tuple[ClusterImage, tuple[PartitionKey, ...]]:
    """Return the image after a broker's request, and what it leads still."""
    epoch = image.brokers[broker_id].epoch
    decided = controlled_shutdown(image, CONFIG, broker_id, epoch)
    assert not decided.step.atomic
    return after(image, decided), decided.reply


def state(image: ClusterImage, partition_id: int = 0) -> tuple[int, Ids, int]:
    partition = of(image, "t", partition_id)
    return partition.leader, partition.isr, partition.leader_epoch


def reassigned(image: ClusterImage, replicas: Ids | None) -> Decision[tuple[Reassigned, ...]]:
    """Have the partition of t move, or stay; in ZooKeeper mode."""
    decided = alter_reassignments(
        image,
        [Target("t", 0, replicas)],
        may_change_factor=True,
        context=replace(context(), mode=ZOOKEEPER_MODE),
    )
    assert [each.error for each in decided.reply] == [Error.NONE]
    return decided


def test_controlled_shutdown_partition_leader_election() -> None:
    image, remaining = asked(cluster_image([2, 4], topic("t", led([2, 4]))), 2)
    assert state(image) == (4, (4,), 4)
    assert remaining == ()
    assert image.brokers[2].in_controlled_shutdown


def test_controlled_shutdown_partition_leader_election_last_isr_shutting_down() -> None:
    image, remaining = asked(cluster_image([2, 4], topic("t", led([2, 4], [2]))), 2)
    assert state(image) == (2, (2,), 3)
    assert remaining == (T0,)
    assert image.brokers[2].in_controlled_shutdown


def test_controlled_shutdown_partition_leader_election_all_isr_simultaneously_shutdown() -> None:
    leaving = a_broker(4, in_controlled_shutdown=True)
    image, remaining = asked(cluster_image([2, leaving], topic("t", led([2, 4]))), 2)
    assert state(image) == (2, (2, 4), 3)
    assert remaining == (T0,)


def test_all_that_leave_are_out_of_the_isr_that_a_leader_leaves_behind() -> None:
    leaving = a_broker(3, in_controlled_shutdown=True)
    image, remaining = asked(cluster_image([1, 2, leaving], topic("t", led([1, 3, 2]))), 1)
    assert state(image) == (2, (2,), 4)
    assert remaining == ()


def test_a_follower_leaves_the_isr_and_the_leader_leads_on() -> None:
    image, remaining = asked(cluster_image([1, 2, 3], topic("t", led([1, 2, 3]))), 2)
    assert state(image) == (1, (1, 3), 3)
    assert remaining == ()


def test_a_follower_of_a_leader_that_must_stay_leaves_it_leading() -> None:
    leaving = a_broker(1, in_controlled_shutdown=True)
    image, remaining = asked(cluster_image([leaving, 2], topic("t", led([1, 2]))), 2)
    assert state(image) == (1, (1,), 3)
    assert remaining == ()


def test_partitions_with_one_replica_stay_and_are_not_counted() -> None:
    image, remaining = asked(cluster_image([1, 2], topic("t", led([1]))), 1)
    assert state(image) == (1, (1,), 3)
    assert remaining == ()


def test_nobody_is_elected_who_may_lack_records() -> None:
    """Not even where the topic allows it: the one that has them is still there."""
    unclean = context({"unclean.leader.election.enable": "true"}).config
    image = cluster_image([1, 2], topic("t", led([1, 2], [1])))
    decided = controlled_shutdown(image, unclean, 1, 101)
    assert state(after(image, decided)) == (1, (1,), 3)
    assert decided.reply == (T0,)


def test_what_nobody_leads_is_left_as_it_is() -> None:
    image = cluster_image([1, 2], topic("t", never_led(1, 2), led([2, 3], [3, 2], NO_LEADER)))
    left, remaining = asked(image, 2)
    assert left.topics == image.topics
    assert remaining == ()


def test_topics_that_are_being_deleted_stay_and_are_not_counted() -> None:
    image = cluster_image([1, 2], topic("t", led([1, 2])))
    goes = DeletionImage(topic_id=topic_id("t"), name="t", policy=Policy.CLASSIC, asked_ms=1)
    begun = [header_record(goes), replicas_record(topic_id("t"), 2, STARTED, [0])]
    image = change(image, begun).image
    left, remaining = asked(image, 1)
    assert left.topics == image.topics
    assert remaining == ()


def test_a_broker_retries_until_others_are_in_sync() -> None:
    image, remaining = asked(cluster_image([1, 2], topic("t", led([1, 2], [1]))), 1)
    assert remaining == (T0,)
    again, remaining = asked(image, 1)
    assert again.topics == image.topics
    assert remaining == (T0,)
    wanted = IsrChange(
        topic_id=topic_id("t"),
        partition_id=0,
        leader_epoch=3,
        partition_epoch=7,
        isr=((1, 101), (2, -1)),
    )
    decided = alter_partition(again, [wanted], broker_id=1, broker_epoch=101, context=context())
    assert [each.error for each in decided.reply] == [Error.NONE]
    caught_up = after(again, decided)
    assert state(caught_up) == (1, (1, 2), 3)
    gone, remaining = asked(caught_up, 1)
    assert state(gone) == (2, (2,), 4)
    assert remaining == ()


def test_nobody_joins_an_isr_while_it_is_on_its_way_out() -> None:
    leaving = a_broker(2, in_controlled_shutdown=True)
    image = cluster_image([1, leaving], topic("t", led([1, 2], [1])))
    wanted = IsrChange(
        topic_id=topic_id("t"),
        partition_id=0,
        leader_epoch=3,
        partition_epoch=7,
        isr=((1, 101), (2, -1)),
    )
    decided = alter_partition(image, [wanted], broker_id=1, broker_epoch=101, context=context())
    assert [each.error for each in decided.reply] == [Error.INELIGIBLE_REPLICA]


def test_a_leader_that_must_stay_is_not_replaced_by_nobody() -> None:
    """Not by the automatic rebalance, nor an election on request: no other replica is in sync."""
    image, _ = asked(cluster_image([1, 2], topic("t", led([1, 2], [2], 2))), 2)
    assert balance(image, CONFIG).step.records == ()
    decided = elect_leaders(image, [("t", 0)], election_type=0, context=context())
    assert [each.error for each in decided.reply] == [Error.PREFERRED_LEADER_NOT_AVAILABLE]
    assert state(after(image, decided)) == (2, (2,), 3)
    caught_up = cluster_image(
        [1, a_broker(2, in_controlled_shutdown=True)], topic("t", led([1, 2], leader=2))
    )
    assert state(after(caught_up, balance(caught_up, CONFIG))) == (1, (1, 2), 4)


def test_a_leader_that_must_stay_leads_a_reassigned_partition() -> None:
    image, remaining = asked(cluster_image([1, 2, 3], topic("t", led([1, 2], [1]))), 1)
    assert remaining == (T0,)
    moved = after(image, reassigned(image, (3, 2)))
    assert state(moved) == (1, (1,), 4)
    assert state(after(moved, reassigned(moved, None))) == (1, (1,), 5)


def test_that_it_leaves_is_noted_last() -> None:
    """Whoever finds half of it written, finds the rest to do."""
    image = cluster_image([1, 2], topic("t", *[led([1, 2])] * 10))
    records = controlled_shutdown(image, CONFIG, 1, 101).step.records
    half = change(image, records[:5]).image
    assert half.brokers[1].active
    assert len(controlled_shutdown(half, CONFIG, 1, 101).step.records) == 6


@pytest.mark.parametrize(
    ("broker_id", "epoch", "error"),
    [
        (3, 103, Error.BROKER_NOT_AVAILABLE),
        (1, 100, Error.STALE_BROKER_EPOCH),
        (1, 101, None),
        (1, 102, None),  # KAFKA-9839: its registration will be observed.
        (1, -1, None),
    ],
)
def test_which_processes_may_shut_down(broker_id: int, epoch: int, error: Error | None) -> None:
    image = cluster_image([1, 2])
    if error is None:
        assert controlled_shutdown(image, CONFIG, broker_id, epoch).reply == ()
        return
    with pytest.raises(ApiError) as refusal:
        controlled_shutdown(image, CONFIG, broker_id, epoch)
    assert refusal.value.error is error
