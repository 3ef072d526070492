"""Metrics of a real cluster over a real ZooKeeper: the gauges tell what was done to it.

Method: three brokers of which one is killed, topics that it hosts are deleted, the controller is
killed, and all come back; a broker, then a controller, sleeps through the end of its session.
Texts are read strictly.
"""

import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from ottla.testing.zookeeper_server import ZooKeeperServer
from tests.exposition import Scrape, documented

from .operating import PATIENCE_SECONDS, until

pytestmark = pytest.mark.cluster

CONTROLLER = "kafka_controller_kafka_controller"
ELECTIONS = "kafka_controller_controller_stats_leader_elections_total"
QUEUE = "kafka_controller_controller_channel_manager_queue_size"
SENT = "kafka_controller_controller_channel_manager_request_queue_time_seconds_count"
SESSION = "kafka_server_session_expire_listener"
LATENCY = "kafka_server_zookeeper_client_metrics_zookeeper_request_latency_seconds"

CLUSTER = ("active_controller", "active_broker", "global_topic", "global_partition")
TROUBLE = ("offline_partitions", "preferred_replica_imbalance")
DELETIONS = (
    "topics_to_delete",
    "replicas_to_delete",
    "topics_ineligible_to_delete",
    "replicas_ineligible_to_delete",
)


class Watched:
    """A cluster and what its nodes say of themselves."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def scrape(self, node: int) -> Scrape:
        address = f"http://{self.cluster.metrics_address(node)}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return Scrape(answer.read().decode())

    def counts(self, node: int, names: tuple[str, ...]) -> tuple[float, ...]:
        found = self.scrape(node)
        return tuple(found.value(f"{CONTROLLER}_{name}_count") for name in names)

    def ruling(self) -> list[int]:
        """Return the nodes that say that they are the controller."""
        alive = [each.id for each in self.cluster.nodes if self.cluster.state(each.id) == "running"]
        return [each for each in alive if self.counts(each, CLUSTER)[0] == 1]

    def create(self, *topics: NewTopic) -> None:
        for future in self.admin.create_topics(list(topics)).values():
            future.result(PATIENCE_SECONDS)
        for topic in topics:
            self.cluster.wait_in_sync(topic.topic, PATIENCE_SECONDS)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name], operation_timeout=30)[name].result(PATIENCE_SECONDS)


@pytest.fixture
def watched(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Watched]:
    config = {
        "zookeeper.session.timeout.ms": "2000",
        "auto.leader.rebalance.enable": "false",
    }
    connect = f"{zookeeper.connect}{chroot}-metrics"
    with Cluster(3, zookeeper=connect, config=config, metrics=True, remote_storage=True) as cluster:
        yield Watched(cluster)


def test_dead_brokers_and_deletions_that_wait_for_them(watched: Watched) -> None:
    cluster = watched.cluster
    (first,) = watched.ruling()
    dead, other = (each.id for each in cluster.brokers if each.id != first)
    assert first == cluster.controller
    watched.create(
        NewTopic("kept", 2, replica_assignment=[[dead, other, first], [other, first, dead]]),
        NewTopic("alone", 1, replica_assignment=[[dead]]),
        NewTopic("going", 2, replica_assignment=[[dead, first], [first, dead]]),
    )
    assert watched.counts(first, CLUSTER) == (1, 3, 3, 5)
    assert watched.counts(first, (*TROUBLE, *DELETIONS)) == (0,) * 6
    assert watched.counts(other, (*CLUSTER, *TROUBLE, *DELETIONS)) == (0,) * 10
    assert watched.scrape(first).value(ELECTIONS) == 0

    cluster.kill(dead)
    until(lambda: watched.counts(first, CLUSTER)[1] == 2, "the end of its session")
    until(lambda: watched.counts(first, TROUBLE) == (1, 3), "the death in the gauges")
    found = watched.scrape(first)
    assert found.value(ELECTIONS) == 2
    assert {dict(each)["broker_id"] for each in found.labels(QUEUE)} == {str(first), str(other)}
    assert found.value(SENT, broker_id=str(other)) > 0

    watched.delete("going")
    until(lambda: watched.counts(first, DELETIONS) == (1, 2, 1, 2), "the deletion that waits")
    assert watched.counts(first, TROUBLE) == (1, 2), "nobody moves leaders of what is to go"
    watched.delete("alone")
    until(lambda: watched.counts(first, DELETIONS) == (2, 3, 2, 3), "both deletions")
    assert watched.counts(first, (*CLUSTER, *TROUBLE)) == (1, 2, 3, 5, 0, 1)

    cluster.kill(first)
    until(lambda: watched.ruling() == [other], "another controller")
    until(lambda: watched.counts(other, CLUSTER) == (1, 1, 3, 5), "one broker left")
    until(lambda: watched.counts(other, DELETIONS) == (2, 3, 2, 3), "what was left")
    assert watched.scrape(other).value(f"{CONTROLLER}_new_active_controllers_total") == 2

    cluster.start(first)
    cluster.start(dead)
    cluster.wait_ready(PATIENCE_SECONDS)
    until(lambda: watched.counts(other, CLUSTER) == (1, 3, 1, 2), "the end of the deletions")
    until(lambda: watched.counts(other, DELETIONS) == (0, 0, 0, 0), "their receipts")
    assert watched.ruling() == [other]
    assert watched.scrape(other).value(f"{CONTROLLER}_controller_state") == 0


def test_the_session_of_a_broker_that_slept(watched: Watched) -> None:
    cluster = watched.cluster
    (first,) = watched.ruling()
    sleeper = next(each.id for each in cluster.brokers if each.id != first)
    found = watched.scrape(sleeper)
    assert set(found.families) == documented(besides="KRaft mode")
    assert found.labels(f"{SESSION}_session_state") == {frozenset({("state", "connected")})}
    assert found.value(f"{SESSION}_zookeeper_sync_connects_total") == 1
    assert found.value(f"{SESSION}_zookeeper_expires_total") == 0
    asked = found.value(f"{LATENCY}_count")
    assert asked > 0

    cluster.pause(sleeper)
    until(lambda: watched.counts(first, CLUSTER)[1] == 2, "the end of the session")
    cluster.resume(sleeper)
    until(lambda: watched.counts(first, CLUSTER)[1] == 3, "the broker again")
    found = watched.scrape(sleeper)
    assert found.labels(f"{SESSION}_session_state") == {frozenset({("state", "connected")})}
    assert found.value(f"{SESSION}_zookeeper_expires_total") == 1
    assert found.value(f"{SESSION}_zookeeper_disconnects_total") >= 1
    assert found.value(f"{SESSION}_zookeeper_sync_connects_total") >= 2
    assert found.value(f"{LATENCY}_count") > asked
    assert watched.scrape(first).value(f"{SESSION}_zookeeper_expires_total") == 0


def test_a_controller_that_slept_says_so_no_more(watched: Watched) -> None:
    cluster = watched.cluster
    (first,) = watched.ruling()
    cluster.pause(first)
    until(lambda: len(watched.ruling()) == 1, "another controller")
    (second,) = watched.ruling()
    cluster.resume(first)
    until(lambda: watched.ruling() == [second], "the end of the first one's term")
    until(lambda: watched.counts(second, CLUSTER)[1] == 3, "the broker again")
    assert watched.counts(first, (*CLUSTER, *TROUBLE, *DELETIONS)) == (0,) * 10
