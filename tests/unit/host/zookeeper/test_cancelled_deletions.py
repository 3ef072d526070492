"""Removing a marker before the deletion has begun cancels it, also over controller changes.

Method: real controllers on a simulated ZooKeeper; a tool's session writes and removes markers. What
is true with one controller is true when another one takes over in between.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.base.zookeeper import Create, Delete
from ottla.controller.deletion.delete_topics import TopicReference, delete_topics
from ottla.controller.step import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_reassignment
from ottla.metadata.znodes.topic import Assignment, encode_topic

from .controller_harness import ControllerHarness, Node
from .test_controller_requests import set_isr

HOUR_MS = 3_600_000


@pytest.fixture
def sim() -> ControllerHarness:
    made = ControllerHarness()
    made.start(1, 2, 3)
    return made


def kill_all(sim: ControllerHarness) -> None:
    """Have no controller."""
    for broker_id in (1, 2, 3):
        sim.nodes[broker_id].kill()
    sim.until(lambda: not sim.names(paths.BROKER_IDS))


def revive_all(sim: ControllerHarness) -> None:
    """Have all brokers up again, and one of them rule."""
    for broker_id in (1, 2, 3):
        sim.revive(broker_id)
    sim.until(lambda: bool(sim.active_controllers()))
    sim.run(5_000)


def fail_over(sim: ControllerHarness) -> None:
    """Have another controller rule."""
    sim.wait(sim.controller.controller.stop())
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()


def asking(node: Node) -> Callable[[ClusterImage], Decision[Any]]:
    """Return what DeleteTopics asks of a node's controller, for the topic that there is now."""
    context = node.controller.context
    topic_id = node.controller.image.topics.id_of("t")
    assert topic_id is not None
    wanted = [TopicReference(topic_id=topic_id)]
    return lambda image: delete_topics(image, wanted, context=context, wall_ms=5, queue=True)


def is_kept(sim: ControllerHarness, name: str = "t") -> bool:
    """Tell whether a topic exists, is not queued, and no broker was sent its deletion."""
    is_there = sim.data(paths.topic(name)) is not None and sim.data(paths.marker(name)) is None
    requests = [sim.nodes[each].stopped(name) for each in (1, 2, 3)]
    is_ordered = any(each is not None and each.delete_partition for each in requests)
    return is_there and not sim.image.is_queued_for_deletion(name) and not is_ordered


# -- called off --------------------------------------------------------------------------------


def halt_deletion(sim: ControllerHarness) -> None:
    """Have a deletion wait for a reassignment."""
    sim.create("t", (2, 3))
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (2, 1)}))
    sim.until(lambda: sim.partition("t").adding_replicas == (1,))
    sim.write_marker("t")
    sim.settle()
    assert sim.image.is_queued_for_deletion("t")


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_halted_deletion_is_cancelled_at_once(sim: ControllerHarness, fails_over: bool) -> None:
    halt_deletion(sim)
    sim.delete(paths.marker("t"))
    sim.settle()
    assert len(sim.image.deletions) == 0
    if fails_over:
        fail_over(sim)
    set_isr(sim, "t", (2, 3, 1))
    sim.run(HOUR_MS)
    assert sim.partition("t").replicas == (2, 1)
    assert sim.data(paths.topic("t")) is not None
    assert not sim.image.is_queued_for_deletion("t")


def test_a_halted_deletion_keeps_others_markers(sim: ControllerHarness) -> None:
    halt_deletion(sim)
    sim.create("other", (1, 2))
    sim.write_marker("other")
    sim.until(lambda: sim.data(paths.topic("other")) is None)
    assert sim.image.is_queued_for_deletion("t")


def test_removing_a_marker_just_before_the_deletion_begins_cancels_it(
    sim: ControllerHarness,
) -> None:
    sim.create("t", (2, 3))
    sim.write_marker("t")
    while not sim.names(paths.DELETIONS):
        sim.scheduler.run_until(sim.scheduler.now_us + 100)
    # It is queued, which the controller sees before the removal of the marker.
    process = sim.controller.client.process
    process.paused = True
    sim.delete(paths.marker("t"))
    sim.scheduler.resume(process)
    sim.settle()
    assert is_kept(sim)
    assert len(sim.image.deletions) == 0


def test_a_cancelled_deletion_can_be_requested_again(sim: ControllerHarness) -> None:
    halt_deletion(sim)
    sim.delete(paths.marker("t"))
    sim.settle()
    sim.write_marker("t")
    sim.settle()
    assert sim.image.is_queued_for_deletion("t")
    set_isr(sim, "t", (2, 3, 1))
    sim.until(lambda: sim.data(paths.topic("t")) is None)


def test_a_deletion_that_has_begun_goes_on_without_its_marker(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").isr == (2,))
    sim.write_marker("t")
    sim.settle()
    sim.delete(paths.marker("t"))
    sim.settle()
    sim.start(3)
    sim.until(lambda: sim.data(paths.topic("t")) is None)


def test_removing_a_marker_while_there_is_no_controller_cancels_the_deletion(
    sim: ControllerHarness,
) -> None:
    sim.create("t", (2, 3))

    sim.controller.controller.run(asking(sim.controller))
    # The controller dies between its first write and its second.
    while sim.data(paths.marker("t")) is None:
        sim.scheduler.run_until(sim.scheduler.now_us + 100)
    kill_all(sim)
    sim.delete(paths.marker("t"))
    revive_all(sim)
    assert is_kept(sim)
    assert len(sim.image.deletions) == 0


def test_a_deletion_that_is_removed_from_the_ledger_leaves_no_partition_without_a_leader(
    sim: ControllerHarness,
) -> None:
    """Partitions that a tool adds to a deleted topic get no leader until it is removed."""
    sim.create("t", (2, 3))
    sim.nodes[3].deletion_errors["t", 0] = Error.FENCED_LEADER_EPOCH
    sim.write_marker("t")
    sim.settle()
    topic_id = sim.image.topics.id_of("t")
    assert topic_id is not None
    assert sim.image.deletions.is_being_deleted(topic_id)
    sim.delete(paths.marker("t"))
    grown = [(0, Assignment((2, 3))), (1, Assignment((1, 2)))]
    sim.put(paths.topic("t"), encode_topic(grown, topic_id))
    sim.settle()
    assert sim.partition("t", 1).leader == NO_LEADER
    sim.delete(paths.deletion(topic_id))
    # The controller finds out when it writes down that the last replica is gone.
    sim.nodes[3].deletion_errors.clear()
    sim.until(lambda: not sim.image.is_queued_for_deletion("t"))
    sim.settle()
    assert sim.partition("t", 1).leader == 1


# -- other topics of the name ------------------------------------------------------------------


def create_again(sim: ControllerHarness, name: str) -> None:
    """Remove a topic's znodes by hand and make another one of its name in the same moment."""
    below = (paths.state(name, 0), paths.partition(name, 0), paths.partitions(name))
    sim.write(
        *map(Delete, (*below, paths.topic(name))),
        Create(paths.topic(name), encode_topic([(0, Assignment((1, 2)))], None)),
    )
    sim.settle()


def half_deleted(sim: ControllerHarness) -> None:
    """Have a deletion wait for a broker that is down."""
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").isr == (2,))
    sim.write_marker("t")
    sim.settle()


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_marker_does_not_delete_a_topic_that_is_created_later(
    sim: ControllerHarness, fails_over: bool
) -> None:
    sim.create("other", (1, 2))
    half_deleted(sim)
    if fails_over:
        sim.nodes[1].kill()
        sim.nodes[2].kill()
        sim.until(lambda: not sim.names(paths.BROKER_IDS))
    create_again(sim, "t")
    if fails_over:
        revive_all(sim)
    assert sim.data(paths.marker("t")) is None
    [receipt] = sim.image.deletions.receipts()
    assert receipt.topic_id != sim.image.topics.id_of("t")
    # Another topic's marker has all of them looked at.
    sim.write_marker("other")
    sim.until(lambda: sim.data(paths.topic("other")) is None)
    sim.run(HOUR_MS)
    assert sim.data(paths.topic("t")) is not None
    assert not sim.image.is_queued_for_deletion("t")


def test_the_topic_that_was_created_later_can_be_deleted(sim: ControllerHarness) -> None:
    half_deleted(sim)
    create_again(sim, "t")
    sim.write_marker("t")
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    sim.settle()
    assert len(sim.image.deletions.receipts()) == 2


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_topic_that_is_not_in_the_image_yet_is_not_deleted(
    sim: ControllerHarness, has_begun: bool
) -> None:
    sim.create("t", (1, 2))
    node = sim.controller
    if has_begun:
        sim.net.cut.add(2)
        sim.write_marker("t")
        sim.settle()
    node.client.process.paused = True
    create_again(sim, "t")
    # Its first write ends the deletion, or queues it.
    if has_begun:
        sim.net.cut.clear()
    else:
        node.controller.run(asking(node))
    sim.scheduler.resume(node.client.process)
    sim.run(30_000)
    assert sim.data(paths.topic("t")) is not None
    assert sim.data(paths.marker("t")) is None
    assert not sim.image.is_queued_for_deletion("t")
