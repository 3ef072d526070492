"""Requests that name brokers that are down are accepted, and completed once they are up.

Method: real controllers on a simulated ZooKeeper, brokers that are fakes; a tool's session writes
`/admin/reassign_partitions`, topics are created by the decider of CreateTopics.

Source: KafkaController.{processZkPartitionReassignment, onBrokerStartup},
ZkAdminManager.createTopics, Kafka 3.9.
"""

from collections.abc import Iterator

import pytest

from ottla.base.errors import Error
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.topics.create_topics import CreatedTopic, NewTopic, create_topics
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_reassignment

from .controller_harness import ControllerHarness


@pytest.fixture
def sim() -> Iterator[ControllerHarness]:
    """Brokers 1 to 3 of four; broker 4 is down."""
    made = ControllerHarness()
    made.start(1, 2, 3)
    yield made
    assert not any(node.failures for node in made.nodes.values())


def come_in_sync(sim: ControllerHarness, topic: str, *isr: int) -> None:
    """Have the leader propose in-sync replicas, by the decider of AlterPartition."""
    found = sim.image.topics.by_name(topic)
    assert found is not None
    partition = found.partitions[0]
    wanted = IsrChange(
        topic_id=found.id,
        partition_id=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((each, -1) for each in isr),
    )
    leader = sim.nodes[partition.leader]
    context = sim.controller.controller.context
    answers = sim.run_on(
        sim.controller,
        lambda image: alter_partition(
            image, [wanted], broker_id=leader.id, broker_epoch=leader.epoch, context=context
        ),
    )
    assert answers[0].error in (Error.NONE, Error.NEW_LEADER_ELECTED)
    sim.settle()


def reassign_by_request(sim: ControllerHarness, *replicas: int) -> Error:
    context = sim.controller.controller.context
    [answer] = sim.run_on(
        sim.controller,
        lambda image: alter_reassignments(
            image, [Target("t", 0, replicas)], may_change_factor=True, context=context
        ),
    )
    assert isinstance(answer.error, Error)
    return answer.error


def create(sim: ControllerHarness, *partitions: tuple[int, ...]) -> CreatedTopic:
    context = sim.controller.controller.context
    wanted = NewTopic(name="t", assignments=tuple(enumerate(partitions)))
    [answer] = sim.run_on(
        sim.controller,
        lambda image: create_topics(image, [wanted], validate_only=False, context=context),
    )
    assert isinstance(answer, CreatedTopic)
    sim.settle()
    return answer


# -- reassignments -----------------------------------------------------------------------------


def test_a_reassignment_to_a_broker_that_is_down_waits_for_it(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2))
    before = sim.partition("t").leader_epoch
    znode = encode_reassignment({("t", 0): (2, 4)})
    sim.put(paths.REASSIGN_PARTITIONS, znode)
    sim.until(lambda: sim.partition("t").adding_replicas == (4,))
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) == znode
    assert b'"adding_replicas":{"0":[4]}' in (sim.data(paths.topic("t")) or b"")
    moving = sim.partition("t")
    assert (moving.replicas, moving.removing_replicas) == ((2, 4, 1), (1,))
    assert (moving.leader, moving.leader_epoch) == (1, before + 1)
    for each in (1, 2):
        led = sim.nodes[each].led("t")
        assert (led.leader_epoch, led.adding_replicas) == (before + 1, (4,))

    sim.revive(4)
    sim.until(lambda: sim.nodes[4].led("t") is not None)
    assert sim.nodes[4].led("t").leader == 1
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) == znode, "it has yet to catch up"
    come_in_sync(sim, "t", 1, 2, 4)
    ended = sim.partition("t")
    assert (ended.replicas, ended.isr, ended.adding_replicas) == ((2, 4), (2, 4), ())
    assert sim.data(paths.REASSIGN_PARTITIONS) is None
    assert sim.nodes[1].stopped("t").delete_partition


def test_the_next_controller_goes_on_with_it(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    znode = encode_reassignment({("t", 0): (3, 4)})
    sim.put(paths.REASSIGN_PARTITIONS, znode)
    sim.until(lambda: sim.partition("t").adding_replicas == (4,))
    moving = sim.partition("t")
    sim.wait(sim.nodes[1].controller.stop())
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    assert sim.partition("t") == moving
    assert sim.data(paths.REASSIGN_PARTITIONS) == znode
    sim.revive(4)
    sim.until(lambda: sim.nodes[4].led("t") is not None)
    come_in_sync(sim, "t", 2, 3, 4)
    assert sim.partition("t").replicas == (3, 4)
    assert sim.data(paths.REASSIGN_PARTITIONS) is None


def test_a_request_may_keep_a_broker_that_is_down_and_add_none(sim: ControllerHarness) -> None:
    """Kafka's validateReplicas looks at those that are added."""
    sim.revive(4)
    sim.create("t", (1, 4))
    sim.nodes[4].kill()
    sim.until(lambda: 4 not in sim.image.brokers)
    sim.settle()
    before = sim.partition("t")
    assert before.isr == (1,)
    assert reassign_by_request(sim, 1, 9) is Error.INVALID_REPLICA_ASSIGNMENT
    assert sim.partition("t") == before
    assert reassign_by_request(sim, 4, 2) is Error.NONE
    moving = sim.partition("t")
    assert (moving.replicas, moving.adding_replicas) == ((4, 2, 1), (2,))
    come_in_sync(sim, "t", 1, 2)
    sim.revive(4)
    sim.until(lambda: 4 in sim.image.brokers)
    come_in_sync(sim, "t", 1, 2, 4)
    assert sim.partition("t").replicas == (4, 2)


def test_a_reassignment_that_adds_no_replica_begins_an_epoch_too(sim: ControllerHarness) -> None:
    sim.revive(4)
    sim.create("t", (1, 2, 4))
    sim.nodes[4].kill()
    sim.until(lambda: 4 not in sim.image.brokers)
    sim.settle()
    before = sim.partition("t").leader_epoch
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (1, 4)}))
    sim.until(lambda: sim.partition("t").removing_replicas == (2,))
    sim.settle()
    assert sim.partition("t").leader_epoch == before + 1
    assert sim.nodes[2].led("t").leader_epoch == before + 1
    assert sim.data(paths.REASSIGN_PARTITIONS) is not None


# -- new topics --------------------------------------------------------------------------------


def test_a_topic_is_created_with_a_replica_on_a_broker_that_is_down(sim: ControllerHarness) -> None:
    answer = create(sim, (4, 2, 3), (1, 2, 4))
    assert (answer.error, answer.partition_count) == (Error.NONE, 2)
    first, second = sim.partition("t", 0), sim.partition("t", 1)
    assert (first.replicas, first.isr, first.leader) == ((4, 2, 3), (2, 3), 2)
    assert (second.replicas, second.isr, second.leader) == ((1, 2, 4), (1, 2), 1)
    assert sim.nodes[3].led("t").leader == 2
    sim.revive(4)
    sim.until(lambda: sim.nodes[4].led("t", 1) is not None)
    come_in_sync(sim, "t", 2, 3, 4)
    assert sim.partition("t").isr == (2, 3, 4)


def test_a_partition_whose_replicas_are_all_down_gets_its_leader_later(
    sim: ControllerHarness,
) -> None:
    answer = create(sim, (4,), (2,))
    assert answer.error is Error.REQUEST_TIMED_OUT, "Kafka waits for its leader for nothing"
    assert "1 of its partitions, the first of them 0, have no replica" in (answer.message or "")
    assert sim.partition("t", 0).leader_epoch == -1
    assert sim.partition("t", 1).leader == 2
    assert sim.data(paths.topic("t")) is not None
    assert sim.data(paths.state("t", 0)) is None
    again = create(sim, (4,), (2,))
    assert again.error is Error.TOPIC_ALREADY_EXISTS
    sim.revive(4)
    sim.until(lambda: sim.partition("t", 0).leader == 4)
    sim.settle()
    assert (sim.partition("t", 0).isr, sim.partition("t", 0).leader_epoch) == ((4,), 0)
    assert sim.nodes[4].led("t").leader == 4


def test_validation_does_not_check_leaders(sim: ControllerHarness) -> None:
    context = sim.controller.controller.context
    wanted = NewTopic(name="t", assignments=((0, (4,)),))
    [answer] = sim.run_on(
        sim.controller,
        lambda image: create_topics(image, [wanted], validate_only=True, context=context),
    )
    assert (answer.error, answer.partition_count) == (Error.NONE, 1)
    assert not sim.has_topic("t")
