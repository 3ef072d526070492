"""Moves to a broker that is down, and topics on it, wait for it and end when it is back.

Method: three brokers on a real ZooKeeper, one of them killed; a tool's znode asks for the move, an
administrator for the topics, and clients, znodes and disks show what comes of it.
"""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.metadata.znodes import paths
from ottla.testing import Cluster
from ottla.testing.zookeeper_server import ZooKeeperServer

from .operating import PATIENCE_SECONDS, Operator, operating, until

pytestmark = pytest.mark.cluster

CONFIG = {
    "zookeeper.session.timeout.ms": "2000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "500",
}


@pytest.fixture(scope="module")
def operator(zookeeper: ZooKeeperServer) -> Iterator[Operator]:
    """A cluster for both tests; each leaves it with all brokers up."""
    with (
        Cluster(3, zookeeper=f"{zookeeper.connect}/down", config=CONFIG) as cluster,
        operating(cluster) as made,
    ):
        yield made


def kill(operator: Operator, broker_id: int) -> None:
    operator.cluster.kill(broker_id)
    until(lambda: operator.stat(paths.broker(broker_id)) is None, "the end of its session")
    # Only then has the controller seen it.
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    until(
        lambda: broker_id not in admin.list_topics(timeout=PATIENCE_SECONDS).brokers,
        "the metadata without it",
    )


def test_a_move_to_a_broker_that_is_down_ends_when_it_is_back(operator: Operator) -> None:
    dead, other = operator.others()
    leader = operator.controller()
    operator.place("moved", {0: [leader, other]})
    assert operator.produce("moved") is None
    epoch = operator.json(paths.state("moved", 0))["leader_epoch"]
    kill(operator, dead)
    try:
        entry = {"topic": "moved", "partition": 0, "replicas": [leader, dead]}
        wanted = {"version": 1, "partitions": [entry]}
        operator.write(paths.REASSIGN_PARTITIONS, wanted)
        until(
            lambda: operator.json(paths.topic("moved")).get("adding_replicas") == {"0": [dead]},
            "the reassignment",
        )
        assert operator.json(paths.topic("moved"))["removing_replicas"] == {"0": [other]}
        until(lambda: operator.json(paths.state("moved", 0))["leader_epoch"] == epoch + 1)
        # Clients are served in the new epoch: the replicas have got their LeaderAndIsr.
        assert operator.produce("moved") is None
        assert operator.json(paths.REASSIGN_PARTITIONS)["partitions"] == wanted["partitions"]
    finally:
        operator.cluster.start(dead)
    until(lambda: operator.stat(paths.REASSIGN_PARTITIONS) is None, "the end of the move")
    found = operator.json(paths.topic("moved"))
    assert found["partitions"] == {"0": [leader, dead]}
    assert found["adding_replicas"] == found["removing_replicas"] == {}
    assert sorted(operator.json(paths.state("moved", 0))["isr"]) == sorted([leader, dead])
    until(lambda: not (operator.cluster.data_dir(other) / "moved-0").exists(), "the removal")
    assert operator.consume("moved") == 2
    operator.cluster.wait_ready()


def test_topics_are_created_with_replicas_on_a_broker_that_is_down(operator: Operator) -> None:
    dead, other = operator.others()
    leader = operator.controller()
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    kill(operator, dead)
    try:
        wanted = [
            NewTopic("partly", 1, replica_assignment=[[dead, leader, other]]),
            NewTopic("wholly", 1, replica_assignment=[[dead]]),
        ]
        made = admin.create_topics(wanted)
        made["partly"].result(PATIENCE_SECONDS)
        with pytest.raises(KafkaException) as refusal:
            made["wholly"].result(PATIENCE_SECONDS)
        assert refusal.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
        state = operator.json(paths.state("partly", 0))
        assert (state["leader"], state["isr"]) == (leader, [leader, other])
        assert operator.produce("partly") is None
        assert json.loads(operator.text(paths.topic("wholly")))["partitions"] == {"0": [dead]}
        assert operator.stat(paths.state("wholly", 0)) is None
    finally:
        operator.cluster.start(dead)
    operator.cluster.wait_in_sync("partly", PATIENCE_SECONDS)
    assert sorted(operator.json(paths.state("partly", 0))["isr"]) == sorted([dead, leader, other])
    until(lambda: operator.stat(paths.state("wholly", 0)) is not None, "a leader")
    assert operator.json(paths.state("wholly", 0))["leader"] == dead
    operator.cluster.wait_in_sync("wholly", PATIENCE_SECONDS)
    assert operator.produce("wholly") is None
    assert [operator.consume(each) for each in ("partly", "wholly")] == [1, 1]
    operator.cluster.wait_ready()
