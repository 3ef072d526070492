"""Elections on request and at the end of a reassignment: the leaders, and the requests.

Method: an image as over ZooKeeper, one request to the deciders, the image and the requests after
it. The cases are those of Kafka's PartitionLeaderElectionAlgorithmsTest (assignment 2, 4) that are
not about brokers' deaths or shutdowns (see test_broker_changes and test_controlled_shutdown).
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.controller.elections.leader_rebalance import balance, elect_leaders
from ottla.controller.keys import PartitionKey
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.step import Step
from ottla.metadata.deletions import DeletionImage, Policy, header_record
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import PartitionImage
from tests.unit.controller.builders import context
from tests.unit.controller.model_brokers import (
    Ids,
    a_broker,
    change,
    cluster_image,
    kinds,
    leads,
    led,
    metadata,
    of,
    requests_of,
    stops,
    topic,
    topic_id,
)

T0 = PartitionKey("t", 0)
ID = topic_id("t")
CONTEXT = context()


def written(image: ClusterImage, step: Step) -> ClusterDelta:
    return change(image, step.records)


# -- preferred leaders -------------------------------------------------------------------------

PREFERRED: list[tuple[Ids, Ids, int, Error]] = [
    # ISR, who lives, the leader after it, the answer. The assignment is 2, 4 and 4 leads.
    ((2, 4), (2, 4), 2, Error.NONE),
    ((2, 4), (4,), 4, Error.PREFERRED_LEADER_NOT_AVAILABLE),
    ((4,), (2, 4), 4, Error.PREFERRED_LEADER_NOT_AVAILABLE),
]


@pytest.mark.parametrize(("isr", "live", "leader", "error"), PREFERRED)
def test_preferred_replica_partition_leader_election(
    isr: Ids, live: Ids, leader: int, error: Error
) -> None:
    image = cluster_image([*live, 5], topic("t", led([2, 4], isr, 4)))
    decided = elect_leaders(image, [("t", 0)], election_type=0, context=CONTEXT)
    assert [each.error for each in decided.reply] == [error]
    delta = written(image, decided.step)
    assert (of(delta.image).leader, of(delta.image).isr) == (leader, isr)
    requests = requests_of(delta)
    if error is not Error.NONE:
        assert requests == []
        return
    # All replicas get LeaderAndIsr.
    assert {key: each.leader for key, each in leads(requests).items()} == {(2, T0): 2, (4, T0): 2}
    assert set(metadata(requests)) == {2, 4, 5}


@pytest.mark.parametrize("isr", [(2,), (4,), (2, 4)])
def test_preferred_replica_partition_leader_election_where_nobody_lives(isr: Ids) -> None:
    image = cluster_image([5], topic("t", led([2, 4], isr, NO_LEADER)))
    decided = elect_leaders(image, [("t", 0)], election_type=0, context=CONTEXT)
    assert decided.step.records == ()
    assert [each.error for each in decided.reply] == [Error.PREFERRED_LEADER_NOT_AVAILABLE]


def test_kafka_1558_a_topic_that_goes_does_not_suppress_the_elections_of_others() -> None:
    image = cluster_image(
        [1, 2], topic("t", led([1, 2], leader=2)), topic("u", led([1, 2], leader=2))
    )
    asked = DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=1)
    image = change(image, [header_record(asked)]).image
    named = elect_leaders(image, [("t", 0), ("u", 0)], election_type=0, context=CONTEXT)
    assert [each.error for each in named.reply] == [Error.INVALID_TOPIC_EXCEPTION, Error.NONE]
    everywhere = elect_leaders(image, None, election_type=0, context=CONTEXT)
    assert [each.topic for each in everywhere.reply] == ["u"]
    by_itself = balance(image, CONTEXT.config)
    for step in (named.step, everywhere.step, by_itself.step):
        after = written(image, step).image
        assert (of(after).leader, of(after, "u").leader) == (2, 1)


# -- reassignments -----------------------------------------------------------------------------


def moving(isr: Ids) -> PartitionImage:
    """Return a partition that moves from 1 to 2 and 4, while 1 leads."""
    return led([2, 4, 1], isr, 1, adding_replicas=(2, 4), removing_replicas=(1,))


def in_sync(image: ClusterImage, *isr: int) -> tuple[Error, ClusterDelta]:
    partition = of(image)
    leader = image.brokers[partition.leader]
    wanted = IsrChange(
        topic_id=ID,
        partition_id=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((each, -1) for each in isr),
    )
    decided = alter_partition(
        image, [wanted], broker_id=leader.id, broker_epoch=leader.epoch, context=CONTEXT
    )
    return decided.reply[0].error, written(image, decided.step)


def test_reassign_partition_leader_election() -> None:
    """The leader's ISR with all targets ends the reassignment, and its own leadership."""
    error, delta = in_sync(cluster_image([1, 2, 4], topic("t", moving((1, 2)))), 1, 2, 4)
    assert error is Error.NEW_LEADER_ELECTED
    assert (of(delta.image).leader, of(delta.image).isr) == (2, (2, 4))
    requests = requests_of(delta)
    assert kinds(requests) == [
        (1, "metadata"),
        (1, "stop"),
        (2, "lead"),
        (2, "metadata"),
        (4, "lead"),
        (4, "metadata"),
    ]
    assert stops(requests) == {(1, T0): (of(delta.image).leader_epoch, True)}


def test_reassign_partition_leader_election_before_all_targets_are_in_sync() -> None:
    """A target that joins is sent by UpdateMetadata alone: no replica's role has changed."""
    error, delta = in_sync(cluster_image([1, 2, 4], topic("t", moving((1,)))), 1, 2)
    assert error is Error.NONE
    assert (of(delta.image).leader, of(delta.image).isr) == (1, (1, 2))
    assert kinds(requests_of(delta)) == [(1, "metadata"), (2, "metadata"), (4, "metadata")]


def test_reassign_partition_leader_election_with_no_live_isr() -> None:
    """What only drops a replica ends at once; who is on its way out does not take over."""
    leaving = a_broker(2, in_controlled_shutdown=True)
    image = cluster_image([1, leaving], topic("t", led([1, 2])))
    decided = alter_reassignments(
        image, [Target("t", 0, (2,))], may_change_factor=True, context=CONTEXT
    )
    delta = written(image, decided.step)
    assert (of(delta.image).replicas, of(delta.image).leader) == ((2,), NO_LEADER)
    requests = requests_of(delta)
    assert set(leads(requests)) == {(2, T0)}
    assert stops(requests) == {(1, T0): (4, True)}


def test_reassign_partition_leader_election_with_empty_isr() -> None:
    """Nobody is known to have the records, so the move stands still and nobody leads."""
    image = cluster_image([1, 2], topic("t", led([1, 2], (), NO_LEADER)))
    decided = alter_reassignments(
        image, [Target("t", 0, (2,))], may_change_factor=True, context=CONTEXT
    )
    after = of(written(image, decided.step).image)
    assert (after.leader, after.isr, after.removing_replicas) == (NO_LEADER, (), (1,))


def test_a_move_to_brokers_that_are_not_there_is_refused() -> None:
    image = cluster_image([1], topic("t", led([1, 2], [1])))
    decided = alter_reassignments(
        image, [Target("t", 0, (2,))], may_change_factor=True, context=CONTEXT
    )
    assert [each.error for each in decided.reply] == [Error.INVALID_REPLICA_ASSIGNMENT]
    assert decided.step.records == ()


def test_a_cancelled_move_stops_and_deletes_what_was_added() -> None:
    image = cluster_image([1, 2, 4], topic("t", moving((1, 2))))
    decided = alter_reassignments(
        image, [Target("t", 0, None)], may_change_factor=True, context=CONTEXT
    )
    assert [each.error for each in decided.reply] == [Error.NONE]
    delta = written(image, decided.step)
    assert (of(delta.image).replicas, of(delta.image).isr) == ((1,), (1,))
    requests = requests_of(delta)
    assert stops(requests) == {(2, T0): (4, True), (4, T0): (4, True)}
    assert set(leads(requests)) == {(1, T0)}
