"""Persistent znodes that an operator has removed hold up nothing, and are created again.

Method: real controllers on a simulated ZooKeeper; a tool's session removes a znode with all below
it, as people do to get rid of all deletion markers. Then the controller decides, and tools write
below it.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.zookeeper import Create, Operation
from ottla.controller.deletion.delete_topics import TopicReference, delete_topics
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.metadata.configs import ResourceType
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.notifications import encode_config_change, encode_log_dir_event

from .controller_harness import ControllerHarness

TOPIC_CONFIGS = f"{paths.CONFIGS}/topics"


@pytest.fixture
def sim() -> ControllerHarness:
    made = ControllerHarness()
    made.start(1, 2, 3)
    made.create("t", (1, 2))
    made.create("u", (1, 2))
    return made


def remove(sim: ControllerHarness, path: str) -> None:
    """Have a tool remove a znode and all below it."""
    for each in sorted(sim.model.tree.nodes, reverse=True):
        if each == path or each.startswith(f"{path}/"):
            sim.delete(each)
    sim.settle()


def delete(sim: ControllerHarness, name: str) -> Error:
    node = sim.controller
    [deleted] = sim.run_on(
        node,
        lambda image: delete_topics(
            image,
            [TopicReference(name)],
            context=node.controller.context,
            wall_ms=1,
            queue=True,
        ),
    )
    error: Error = deleted.error
    return error


def configure(sim: ControllerHarness, name: str) -> Any:
    node = sim.controller
    alteration = Alteration((ResourceType.TOPIC, name), (("retention.ms", 0, "7"),))
    [altered] = sim.run_on(
        node,
        lambda image: alter_configs(
            image,
            [alteration],
            incremental=True,
            validate_only=False,
            context=node.controller.context,
        ),
    )
    return altered.error


@pytest.mark.parametrize(
    "removed", [paths.DELETE_TOPICS, "/admin", paths.DELETIONS, "/ottla", TOPIC_CONFIGS]
)
def test_topics_are_deleted_without_the_parents_of_what_that_writes(
    sim: ControllerHarness, removed: str
) -> None:
    remove(sim, removed)
    assert delete(sim, "t") is Error.NONE
    sim.until(lambda: not sim.has_topic("t"))
    sim.write_marker("u")
    sim.until(lambda: not sim.has_topic("u"))


@pytest.mark.parametrize("removed", [TOPIC_CONFIGS, paths.CONFIG_CHANGES, paths.CONFIGS])
def test_topics_are_configured_without_them(sim: ControllerHarness, removed: str) -> None:
    remove(sim, removed)
    assert configure(sim, "t") is Error.NONE
    assert dict(sim.image.configs.of(ResourceType.TOPIC, "t")) == {"retention.ms": "7"}
    assert len(sim.names(paths.CONFIG_CHANGES)) == 1


def configure_by_tool(sim: ControllerHarness, value: str, *before: Operation) -> None:
    """Write the config of t as a tool does, with its notification, and wait for its image."""
    resource = int(ResourceType.TOPIC), "t"
    sim.put(paths.config(resource), encode_config({"retention.ms": value}))
    notification = encode_config_change(resource)
    sim.write(*before, Create(paths.CONFIG_CHANGE, notification, sequential=True))
    sim.settle()
    assert dict(sim.image.configs.of(*resource)) == {"retention.ms": value}


def test_config_changes_of_tools_are_taken_after_it(sim: ControllerHarness) -> None:
    """Their numbers begin again at 0."""
    configure_by_tool(sim, "1")
    configure_by_tool(sim, "2")
    remove(sim, paths.CONFIG_CHANGES)
    configure_by_tool(sim, "3")
    # It is gone and there again between two readings.
    configure_by_tool(sim, "4", *sim.replace_parent(paths.CONFIG_CHANGES))


def test_producer_ids_go_on_where_they_were(sim: ControllerHarness) -> None:
    broker_epoch = sim.image.brokers[2].epoch

    def allocate() -> Any:
        return sim.run_on(
            sim.controller,
            lambda image: allocate_producer_ids(image, broker_id=2, broker_epoch=broker_epoch),
        )

    first, length = allocate()
    remove(sim, paths.PRODUCER_IDS)
    assert allocate() == (first + length, length)


def test_topics_and_brokers_are_seen_that_come_after_it(sim: ControllerHarness) -> None:
    remove(sim, "/brokers")
    assert (sim.image.broker_ids(), sim.image.topics.names()) == ([], [])
    for broker_id in (2, 3):
        sim.nodes[broker_id].expire()
    sim.until(lambda: sim.image.broker_ids() == [2, 3])
    sim.create("v", (2, 3))


def test_notifications_are_taken_after_it(sim: ControllerHarness) -> None:
    remove(sim, paths.LOG_DIR_EVENTS)
    count = len(sim.nodes[2].requests)
    event = Create(paths.LOG_DIR_EVENT, encode_log_dir_event(2), sequential=True)
    sim.write(event)
    sim.until(lambda: len(sim.nodes[2].requests) > count)
    sim.settle()
    assert sim.names(paths.LOG_DIR_EVENTS) == []
