"""Nodes stop, die, freeze and come back: nothing acknowledged is lost, and nobody is told so.

Method: three brokers, with a controller or over ZooKeeper, under a workload (`workload.py`) with
acks=all. Each test does one thing to nodes, waits until acknowledgements flow again on every
partition, then checks all that was ever acknowledged, record by record. Processes die here, not
machines: what a killed broker wrote is in the page cache. Some of the stories are played, drawn by
the commit; `make soak` plays them all.
"""

import random

import pytest

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.testing import Cluster
from ottla.testing.readiness import known_brokers

from .clients import Closing, client_of, eventually
from .conftest import BROKERS, all_nodes, has_own_controller, known, new_name, new_topic
from .workload import Workload

pytestmark = [pytest.mark.timeout(300), pytest.mark.forms(1)]  # More than a workload's patience.

story = pytest.mark.drawn(3)
"""What one run plays a part of; the simulator plays such things at every moment."""

PARTITIONS = 6


@pytest.fixture
def load(request: pytest.FixtureRequest, trio: Cluster) -> Workload:
    return Workload(trio, new_topic(trio.bootstrap, request.node.name, PARTITIONS), PARTITIONS)


@story
def test_brokers_restart_in_order_one_after_the_other(trio: Cluster, load: Workload) -> None:
    with load:
        for node in BROKERS:
            trio.restart(node)
            load.wait_progress()
    load.check()


@story
def test_brokers_are_killed_one_after_the_other(trio: Cluster, load: Workload) -> None:
    with load:
        for node in BROKERS:
            trio.kill(node)
            trio.start(node)
            load.wait_progress()
    load.check()


@story
def test_the_controller_restarts_in_order(trio: Cluster, load: Workload) -> None:
    with load:
        trio.restart(trio.wait_controller())
        load.wait_progress()
    load.check()
    assert can_create_a_topic(trio)


@story
def test_the_controller_is_killed(trio: Cluster, load: Workload) -> None:
    with load:
        for _ in range(3):
            controller = trio.wait_controller()
            trio.kill(controller)
            if has_own_controller(trio):
                load.wait_progress()  # Brokers need it for nothing that clients wait for.
            trio.start(controller)
            load.wait_progress()
        trio.wait_ready()
    load.check()
    assert can_create_a_topic(trio)


@story
@pytest.mark.parametrize("step", [1, -1], ids=["brokers first", "brokers last"])
def test_all_nodes_are_killed(step: int, trio: Cluster, load: Workload) -> None:
    with load:
        for node in all_nodes(trio):
            trio.kill(node)
        for node in all_nodes(trio)[::step]:
            trio.start(node)
        trio.wait_ready()
        load.wait_progress()
    load.check()


@story
def test_all_nodes_restart_in_order(trio: Cluster, load: Workload) -> None:
    with load:
        trio.stop()
        for node in reversed(all_nodes(trio)):
            trio.start(node)
        trio.wait_ready()
        load.wait_progress()
    load.check()


@story
def test_a_frozen_broker_is_fenced_and_returns(trio: Cluster, load: Workload) -> None:
    (other_port,) = [node.port for node in trio.brokers if node.id == 3]
    with load:
        trio.pause(1)
        eventually(
            lambda: known_brokers(other_port), lambda found: found == {2, 3}, what="the fencing"
        )
        trio.resume(1)
        trio.wait_ready()
        load.wait_progress()
    load.check()


@story
def test_a_frozen_controller_stops_no_data(trio: Cluster, load: Workload) -> None:
    with load:
        controller = trio.wait_controller()
        trio.pause(controller)
        if has_own_controller(trio):
            for _ in range(3):
                load.wait_progress()
        else:
            trio.wait_controller(besides=controller)
        trio.resume(controller)
        trio.wait_ready()
        load.wait_progress()
    load.check()
    assert can_create_a_topic(trio)


@story
def test_a_frozen_broker_and_a_killed_controller(trio: Cluster, load: Workload) -> None:
    with load:
        controller = trio.wait_controller()
        frozen = next(each for each in BROKERS if each != controller)
        trio.pause(frozen)
        trio.kill(controller)
        trio.start(controller)
        trio.resume(frozen)
        trio.wait_ready()
        load.wait_progress()
    load.check()


@story
def test_random_kills(trio: Cluster, load: Workload) -> None:
    """Several nodes at once, a restart cut short by the next kill."""
    dice = random.Random(7)
    with load:
        for _ in range(8):
            nodes = dice.sample(all_nodes(trio), dice.randint(1, 3))
            for node in nodes:
                trio.kill(node)
            for node in nodes:
                trio.start(node)
        trio.wait_ready()
        load.wait_progress()
    load.check()


def test_topics_survive_with_their_ids_and_configurations(trio: Cluster) -> None:
    topic = new_topic(trio.bootstrap, "survivor", 3, retention_ms="1234567")
    before = topic_id(trio, topic)
    for node in all_nodes(trio):
        trio.kill(node)
    for node in all_nodes(trio):
        trio.start(node)
    trio.wait_ready()
    assert topic_id(trio, topic) == before
    with Closing(client_of("confluent").admin(trio.bootstrap)) as admin:
        assert admin.topic_config(topic)["retention.ms"] == "1234567"
        assert admin.partitions(topic) == [0, 1, 2]


def can_create_a_topic(cluster: Cluster) -> bool:
    """Tell whether metadata can be changed: the controller decides and all brokers hear of it."""
    name = new_name("after")
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.create_topic(name)
        return eventually(lambda: known(admin, name), within=30, what="the topic to be known")


def topic_id(cluster: Cluster, topic: str) -> bytes:
    """Return a topic's id from broker 1, once that knows the topic."""

    def asked() -> bytes | None:
        with ClusterClient(ClientConfig(bootstrap=cluster.address(1))) as client:
            found = {each.name: bytes(each.topic_id) for each in client.topics()}
        return found.get(topic)

    found = eventually(asked, within=30, what=f"broker 1 to know {topic}")
    assert found is not None
    return found
