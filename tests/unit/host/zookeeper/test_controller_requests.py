"""Requests of operators by znode are processed, and their znodes are deleted then.

Method: real controllers on a simulated ZooKeeper; a tool's session writes and reads.
"""

import json

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.controller.elections.elections import Rules
from ottla.controller.elections.partition_change import PartitionTarget, build_change
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_preferred_election, encode_reassignment

from .controller_harness import ControllerHarness


@pytest.fixture
def sim() -> ControllerHarness:
    made = ControllerHarness()
    made.start(1, 2, 3)
    return made


def set_isr(sim: ControllerHarness, topic: str, isr: tuple[int, ...], number: int = 0) -> None:
    """Have the leader of a partition report its in-sync replicas, as AlterPartition does."""

    def decide(image: ClusterImage) -> Decision[None]:
        found = image.topics.by_name(topic)
        assert found is not None
        rules = Rules(image, sim.controller.controller.context.config)
        record = build_change(
            found.id,
            number,
            found.partitions[number],
            PartitionTarget(isr=isr),
            rules.change_context(topic),
        )
        assert isinstance(record, PartitionChangeRecord)
        return Decision(Step((record,)), None)

    assert sim.run_on(sim.controller, decide) is None


# -- reassignments -----------------------------------------------------------------------------


def test_a_reassignment_begins_and_its_znode_goes_with_its_end(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2))
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (2, 3)}))
    sim.until(lambda: sim.partition("t").adding_replicas == (3,))
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) is not None
    assert sim.nodes[3].led("t").is_new
    set_isr(sim, "t", (1, 2, 3))
    sim.settle()
    assert sim.partition("t").replicas == (2, 3)
    assert sim.data(paths.REASSIGN_PARTITIONS) is None
    assert sim.nodes[1].stopped("t").delete_partition


def test_what_ended_is_struck_out_one_by_one(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2), (1, 2))
    wanted = {("t", 0): (2, 3), ("t", 1): (1, 3)}
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment(wanted))
    sim.until(lambda: sim.partition("t", 1).adding_replicas == (3,))
    set_isr(sim, "t", (1, 2, 3))
    sim.settle()
    left = json.loads(sim.data(paths.REASSIGN_PARTITIONS) or b"{}")["partitions"]
    assert left == [{"topic": "t", "partition": 1, "replicas": [1, 3]}]
    set_isr(sim, "t", (1, 2, 3), number=1)
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) is None


def test_what_cannot_be_done_is_dropped(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2))
    wanted = {("nobody", 0): (1,), ("t", 7): (1,), ("t", 0): (1, 1)}
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment(wanted))
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) is None
    assert sim.partition("t").replicas == (1, 2)


def test_a_request_that_nobody_can_read_is_removed(sim: ControllerHarness) -> None:
    sim.put(paths.REASSIGN_PARTITIONS, b"{garbage")
    sim.put(paths.PREFERRED_ELECTION, b"[]")
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) is None
    assert sim.data(paths.PREFERRED_ELECTION) is None


def test_a_second_request_after_the_first_is_not_missed(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2))
    for replicas in ((2, 1), (1, 2), (2, 1)):
        sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): replicas}))
        sim.until(lambda: sim.data(paths.REASSIGN_PARTITIONS) is None)
        assert sim.partition("t").replicas == replicas


def test_a_new_controller_goes_on_with_a_reassignment(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (3, 1)}))
    sim.until(lambda: sim.partition("t").adding_replicas == (1,))
    sim.wait(sim.nodes[1].controller.stop())
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) is not None
    set_isr(sim, "t", (2, 3, 1))
    sim.settle()
    assert sim.partition("t").replicas == (3, 1)
    assert sim.data(paths.REASSIGN_PARTITIONS) is None


def test_a_request_written_while_nobody_rules_is_taken_up(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[1].kill()
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (3, 2)}))
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    assert sim.partition("t").replicas == (3, 2)
    assert sim.data(paths.REASSIGN_PARTITIONS) is None


# -- elections ---------------------------------------------------------------------------------


def test_a_preferred_election_is_held_and_its_znode_goes(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2))
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (2, 1)}))
    sim.until(lambda: sim.partition("t").replicas == (2, 1))
    assert sim.partition("t").leader == 1
    sim.put(paths.PREFERRED_ELECTION, encode_preferred_election([("t", 0), ("nobody", 0)]))
    sim.until(lambda: sim.partition("t").leader == 2)
    sim.settle()
    assert sim.data(paths.PREFERRED_ELECTION) is None
    assert sim.nodes[1].led("t").leader == 2


# -- deletions ---------------------------------------------------------------------------------


def test_a_marked_topic_is_deleted_marker_last(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2), (2, 3))
    sim.write_marker("t")
    sim.until(lambda: sim.data(paths.marker("t")) is None)
    sim.settle()
    assert sim.data(paths.topic("t")) is None
    assert sim.data(paths.config((2, "t"))) is None
    for broker_id, number in ((1, 0), (2, 0), (2, 1), (3, 1)):
        assert sim.nodes[broker_id].stopped("t", number).delete_partition
    assert sim.nodes[1].knows("t").leader == -2
    assert not sim.has_topic("t")
    [receipt] = sim.image.deletions.receipts()
    assert receipt.name == "t"


def test_the_marker_of_an_unknown_topic_is_erased(sim: ControllerHarness) -> None:
    sim.write_marker("nobody")
    sim.until(lambda: sim.data(paths.marker("nobody")) is None)


def test_kafka_3175_disabled_deletion_erases_markers() -> None:
    sim = ControllerHarness(delete_topic_enable="false")
    sim.start(1, 2)
    sim.create("t", (1, 2))
    sim.write_marker("t")
    sim.until(lambda: sim.data(paths.marker("t")) is None)
    sim.settle()
    assert sim.data(paths.topic("t")) is not None
    assert sim.nodes[1].stopped("t") is None


def test_a_dead_broker_holds_a_deletion_up_until_it_is_back(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").isr == (2,))
    sim.write_marker("t")
    sim.settle()
    assert sim.nodes[2].stopped("t").delete_partition
    assert sim.data(paths.marker("t")) is not None
    sim.start(3)
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    assert sim.data(paths.marker("t")) is None


def test_kafka_1681_a_new_controller_finishes_a_deletion(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").isr == (2,))
    sim.write_marker("t")
    sim.settle()
    sim.wait(sim.nodes[1].controller.stop())
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    sim.start(3)
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    assert sim.data(paths.marker("t")) is None


def test_a_replica_that_failed_is_tried_again_by_itself(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[3].deletion_errors["t", 0] = Error.KAFKA_STORAGE_ERROR
    sim.write_marker("t")
    sim.run(3_000)
    assert sim.data(paths.topic("t")) is not None
    sim.nodes[3].deletion_errors.clear()
    sim.until(lambda: sim.data(paths.topic("t")) is None)


def test_a_reassignment_holds_a_deletion_up(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2))
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (1, 3)}))
    sim.until(lambda: sim.partition("t").adding_replicas == (3,))
    sim.write_marker("t")
    sim.settle()
    assert sim.nodes[1].stopped("t") is None
    set_isr(sim, "t", (1, 2, 3))
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    assert sim.data(paths.REASSIGN_PARTITIONS) is None


def test_kafka_6650_a_topic_that_is_gone_in_part_is_deleted(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3), (2, 3))
    for broker_id in (1, 2, 3):
        sim.nodes[broker_id].kill()
    sim.until(lambda: not sim.names(paths.BROKER_IDS))
    sim.delete(paths.partition("t", 0))
    sim.write_marker("t")
    sim.start(1, 2, 3)
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    assert sim.data(paths.marker("t")) is None


def test_kafka_6612_partitions_that_a_tool_adds_to_a_marked_topic_go_with_it(
    sim: ControllerHarness,
) -> None:
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").isr == (2,))
    sim.write_marker("t")
    sim.settle()
    sim.put_topic("t", [(2, 3), (1, 2)], sim.image.topics.id_of("t"))
    sim.settle()
    sim.start(3)
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    assert sim.nodes[1].led("t", 1) is None


def test_partitions_that_a_tool_adds_to_the_offsets_topic_are_logged(
    sim: ControllerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A request is refused; these exist, and groups hash to other partitions by their number."""
    sim.create(OFFSETS_TOPIC, (1, 2))
    sim.put_topic(OFFSETS_TOPIC, [(1, 2), (2, 3), (3, 1)], sim.image.topics.id_of(OFFSETS_TOPIC))
    sim.settle()
    assert sim.nodes[3].led(OFFSETS_TOPIC, 2) is not None
    logged = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert logged == [
        f"topic {OFFSETS_TOPIC} has 3 partitions instead of 1: groups that belong to another"
        " partition now do not find their committed offsets"
    ]


def test_a_topic_is_made_again_after_its_deletion(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    before = sim.image.topics.id_of("t")
    sim.write_marker("t")
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    sim.create("t", (2, 3))
    assert sim.image.topics.id_of("t") not in (None, before)
    assert sim.nodes[2].led("t").is_new
