"""Partitions that are assigned and nobody ever led: how they get a leader, and how not.

Method: partitions as tools write them. The names of Kafka's PartitionStateMachineTest
stand where its cases are about such partitions.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import (
    elect_after_failover,
    elect_after_unfencing,
    elect_uncleanly,
    remove_from_isrs,
)
from ottla.controller.elections.leader_rebalance import balance, elect_leaders
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING
from tests.unit.controller.builders import after, context
from tests.unit.controller.model_brokers import (
    CONFIG,
    a_broker,
    change,
    cluster_image,
    led,
    never_led,
    of,
    topic,
    topic_id,
)

ID = topic_id("t")
UNCLEAN = context({"unclean.leader.election.enable": "true"})


def test_new_partition_to_online_partition_transition() -> None:
    """The first of the assigned that is alive leads, all that are alive are in sync."""
    image = cluster_image([2, 3], topic("t", never_led(1, 3, 2), led([2])))
    step = bring_online(image, CONFIG)
    assert not step.atomic
    image = after(image, step)
    assert of(image) == replace(
        never_led(1, 3, 2), leader=3, isr=(3, 2), leader_epoch=0, partition_epoch=0
    )
    assert of(image, "t", 1) == led([2])
    assert bring_online(image, CONFIG).records == ()


def test_the_epochs_of_a_topic_that_a_tool_made_begin_above_its_predecessor_s() -> None:
    image = cluster_image([1], topic("t", never_led(1)))
    former = DeletionImage(
        topic_id=topic_id("former"), name="t", policy=Policy.CLASSIC, asked_ms=5, leader_epoch=6
    )
    image = replace(image, deletions=image.deletions.with_deletion(former))
    assert of(after(image, bring_online(image, CONFIG))).leader_epoch == 7


def test_a_new_partition_without_a_live_replica_stays_new_until_there_is_one() -> None:
    image = cluster_image([1], topic("t", never_led(2, 3), never_led(1)))
    image = after(image, bring_online(image, CONFIG))
    assert of(image) == never_led(2, 3)
    assert of(image, "t", 1).leader == 1
    image = replace(image, brokers=image.brokers.set(3, a_broker(3)))
    image = after(image, bring_online(image, CONFIG))
    assert (of(image).leader, of(image).isr) == (3, (3,))


def test_a_shutting_down_broker_or_a_lost_directory_does_not_lead_a_new_partition() -> None:
    lost = replace(
        never_led(1, 2, 3), directories=(DIRECTORY_MIGRATING, DIRECTORY_LOST, DIRECTORY_MIGRATING)
    )
    image = cluster_image([a_broker(1, in_controlled_shutdown=True), 2, 3], topic("t", lost))
    image = after(image, bring_online(image, CONFIG))
    assert (of(image).leader, of(image).isr) == (3, (3,))


def test_a_new_partition_whose_topic_is_being_deleted_gets_no_leader() -> None:
    image = cluster_image([1], topic("t", never_led(1)))
    asked = DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=1)
    begins = [header_record(asked), replicas_record(ID, 1, STARTED, [0])]
    assert bring_online(change(image, begins).image, CONFIG).records == ()


@pytest.mark.parametrize("given", [context(), UNCLEAN])
def test_no_election_makes_a_first_leader(given: DecisionContext) -> None:
    """It would write leader epoch 0 over nothing, with an ISR that nobody knows to be one."""
    config = given.config
    image = cluster_image([1, 2], topic("t", never_led(1, 2)))
    assert elect_after_failover(image, config).records == ()
    assert list(remove_from_isrs(image, config, 1)) == []
    assert list(elect_after_unfencing(image, config, 1)) == []
    assert elect_uncleanly(image, config).step.records == ()
    assert balance(image, config).step.records == ()
    for kind, error in (
        (0, Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (1, Error.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        decided = elect_leaders(image, [("t", 0)], election_type=kind, context=given)
        assert decided.step.records == ()
        assert [each.error for each in decided.reply] == [error]


def test_nobody_changes_the_isr_of_a_new_partition() -> None:
    image = cluster_image([1, 2], topic("t", never_led(1, 2)))
    wanted = IsrChange(
        topic_id=ID, partition_id=0, leader_epoch=NO_EPOCH, partition_epoch=NO_EPOCH, isr=((1, -1),)
    )
    decided = alter_partition(image, [wanted], broker_id=1, broker_epoch=101, context=context())
    assert decided.step.records == ()
    assert decided.reply[0].error is Error.INVALID_REQUEST


def test_a_new_partition_moves_at_once_and_then_comes_online() -> None:
    """Where all that it was assigned to are gone, that is the way to bring it online."""
    image = cluster_image([3, 4], topic("t", never_led(1, 2)))
    decided = alter_reassignments(
        image, [Target("t", 0, (4, 3))], may_change_factor=True, context=context()
    )
    assert [each.error for each in decided.reply] == [Error.NONE]
    image = after(image, decided)
    assert of(image) == never_led(4, 3)
    image = after(image, bring_online(image, CONFIG))
    assert (of(image).leader, of(image).isr) == (4, (4, 3))
    assert of(image).adding_replicas == of(image).removing_replicas == ()


def test_there_is_no_move_of_a_new_partition_to_cancel() -> None:
    image = cluster_image([1, 2], topic("t", never_led(1, 2)))
    decided = alter_reassignments(
        image, [Target("t", 0, None)], may_change_factor=True, context=context()
    )
    assert [each.error for each in decided.reply] == [Error.NO_REASSIGNMENT_IN_PROGRESS]
    assert of(image).leader == NO_LEADER
