"""Topics of a cluster over ZooKeeper are deleted as KAFKA-330 wants, and the ledger says so.

Method: three real brokers and a real ZooKeeper; topics are deleted while all are alive, while a
broker is down, and while the controller dies; what is left is looked for in ZooKeeper and on the
brokers' disks. Each test has a topic of its own.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from ottla.metadata.deletions import DeletionImage, DeletionState, Reason
from ottla.metadata.deletions_json import decode_deletion
from ottla.testing import Cluster
from tests.cluster.stored import directories_below

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(3)]

PATIENCE_SECONDS = 60.0
LEDGER = "/ottla/deletions"


class Deleting:
    """A cluster of three brokers, and what its disks and ZooKeeper hold."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.zookeeper_connect is not None
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.client = KazooClient(cluster.zookeeper_connect)
        self.client.start()

    def create(self, name: str) -> None:
        """Create a topic of three partitions that all brokers hold, with records in it."""
        self.admin.create_topics([NewTopic(name, 3, 3)])[name].result(PATIENCE_SECONDS)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        for number in range(30):
            producer.produce(name, b"record", partition=number % 3)
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert len(self.directories(name)) == 9

    def delete(self, name: str) -> None:
        """Delete a topic; the answer means that nobody serves it any more."""
        self.admin.delete_topics([name], operation_timeout=30)[name].result(PATIENCE_SECONDS)

    def directories(self, name: str) -> list[Path]:
        """Return the directories of a topic's logs on all brokers, but for those renamed away."""
        nodes = [self.cluster.data_dir(plan.id) for plan in self.cluster.brokers]
        found = [each for node in nodes for each in directories_below(node, f"{name}-*")]
        return [each for each in found if not each.name.endswith("-delete")]

    def is_there(self, name: str) -> bool:
        """Tell whether ZooKeeper knows anything of a topic but what is in the ledger."""
        parents = ("/brokers/topics", "/config/topics", "/admin/delete_topics")
        return any(self.client.exists(f"{parent}/{name}") for parent in parents)

    def entry(self, name: str) -> DeletionImage:
        """Return the ledger's entry of a topic."""
        read = (self.client.get(f"{LEDGER}/{each}")[0] for each in self.client.get_children(LEDGER))
        [found] = [each for each in map(decode_deletion, read) if each.name == name]
        return found

    def wait_until_gone(self, name: str) -> None:
        """Wait for the end of a deletion; nothing is left, and the receipt says so."""
        until(lambda: not self.is_there(name))
        until(lambda: self.entry(name).is_finished)
        assert self.directories(name) == []
        assert self.entry(name).count(DeletionState.SUCCESSFUL) == 9


def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become so."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def deleting() -> Iterator[Deleting]:
    """A cluster for all tests of this file; each leaves it with all brokers up."""
    quick = {"zookeeper.session.timeout.ms": "2000"}
    with Cluster(brokers=3, zookeeper=True, config=quick) as cluster:
        made = Deleting(cluster)
        yield made
        made.client.stop()
        made.client.close()


def test_all_replicas_alive_and_the_name_is_free_again(deleting: Deleting) -> None:
    deleting.create("alive")
    deleting.delete("alive")
    deleting.wait_until_gone("alive")
    deleting.create("alive")


def test_a_marker_of_another_tool_is_honoured(deleting: Deleting) -> None:
    deleting.create("marked")
    deleting.client.create("/admin/delete_topics/marked", b"")
    deleting.wait_until_gone("marked")


def test_halts_for_a_dead_follower_and_resumes_when_it_is_back(deleting: Deleting) -> None:
    deleting.create("halted")
    follower = next(
        plan.id for plan in deleting.cluster.brokers if plan.id != deleting.cluster.controller
    )
    deleting.cluster.kill(follower)
    until(lambda: not deleting.client.exists(f"/brokers/ids/{follower}"))
    deleting.delete("halted")
    until(lambda: deleting.entry("halted").count(DeletionState.SUCCESSFUL) == 6)
    assert [
        (broker_id, standing.reason, numbers)
        for broker_id, standing, numbers in deleting.entry("halted").rows()
        if standing.state is DeletionState.INELIGIBLE
    ] == [(follower, Reason.BROKER_DOWN, (0, 1, 2))]
    assert deleting.is_there("halted")
    with pytest.raises(KafkaException, match="marked for deletion"):
        deleting.admin.create_topics([NewTopic("halted", 1, 1)])["halted"].result(PATIENCE_SECONDS)
    deleting.cluster.start(follower)
    deleting.wait_until_gone("halted")


def test_a_broker_that_confirmed_and_restarts_makes_no_empty_log(deleting: Deleting) -> None:
    deleting.create("restarted")
    first = deleting.cluster.wait_controller()
    dead, restarted = (plan.id for plan in deleting.cluster.brokers if plan.id != first)
    deleting.cluster.kill(dead)
    until(lambda: not deleting.client.exists(f"/brokers/ids/{dead}"))
    deleting.delete("restarted")
    until(lambda: deleting.entry("restarted").count(DeletionState.SUCCESSFUL) == 6)
    deleting.cluster.restart(restarted)
    assert {each.parent for each in deleting.directories("restarted")} == {
        deleting.cluster.data_dir(dead)
    }
    deleting.cluster.start(dead)
    deleting.wait_until_gone("restarted")


def test_halts_and_is_resumed_by_the_next_controller(deleting: Deleting) -> None:
    deleting.create("failover")
    first = deleting.cluster.wait_controller()
    follower = next(plan.id for plan in deleting.cluster.brokers if plan.id != first)
    deleting.cluster.kill(follower)
    until(lambda: not deleting.client.exists(f"/brokers/ids/{follower}"))
    deleting.delete("failover")
    deleting.cluster.kill(first)
    deleting.cluster.wait_controller(besides=first)
    assert deleting.is_there("failover")
    deleting.cluster.start(first)
    deleting.cluster.start(follower)
    deleting.wait_until_gone("failover")
