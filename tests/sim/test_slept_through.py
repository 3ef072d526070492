"""A broker sleeps while its replica is moved away, the topic deleted, and its name taken again.

Method: a simulated cluster over ZooKeeper without other faults; requests of one client. Nobody has
to wait for the sleeper, and only the deletion ledger can tell it what happened.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.ids import Uuid
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import alter_partition_reassignments as reassign_wire
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire

SESSION_MS = 2_000


class Cluster:
    """Three brokers, of which one that is not the controller will sleep."""

    def __init__(self) -> None:
        config = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
        self.sim = Sim(1, combined=True, zookeeper=True, config=config)
        self.port = self.sim.client_port("somebody")
        nodes = self.sim.nodes.values()
        self.until(lambda: all(node.serves for node in nodes) and len(self.sim.image.brokers) == 3)
        controller = controller_of(self.sim).id
        self.sleeper, *_ = [node for node in nodes if node.id != controller]
        self.others = tuple(sorted(node.id for node in nodes if node is not self.sleeper))

    def until(self, holds: Callable[[], bool]) -> None:
        self.sim.run_until(holds, limit_ms=30_000)

    def ask(self, request: object, version: int) -> Any:
        answer = self.port.send(controller_of(self.sim).id, request, version, 4_000)
        self.until(lambda: answer.done)
        return answer.value

    def create(self, *brokers: int) -> Uuid:
        placed = create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
        )
        self.ask(create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000), 5)
        self.until(lambda: "t" in self.sim.image.topics)
        return self.sim.image.topics.id_of("t") or Uuid(bytes(16))

    def move(self, *brokers: int) -> None:
        moved = reassign_wire.ReassignablePartition(partition_index=0, replicas=brokers)
        topic = reassign_wire.ReassignableTopic(name="t", partitions=(moved,))
        self.ask(reassign_wire.AlterPartitionReassignmentsRequest(topics=(topic,)), 0)
        self.until(lambda: self.replicas() == brokers)

    def replicas(self) -> tuple[int, ...]:
        topic = self.sim.image.topics.by_name("t")
        return () if topic is None else topic.partitions[0].replicas

    def delete(self) -> None:
        self.ask(delete_wire.DeleteTopicsRequest(topic_names=("t",), timeout_ms=3_000), 5)
        self.until(lambda: "t" not in self.sim.image.topics)

    def topic_id_at_sleeper(self) -> Uuid | None:
        broker = self.sleeper.broker
        assert broker is not None
        return broker.image.topics.id_of("t")


def test_it_finds_the_next_topic_of_the_name() -> None:
    """It rejects that, deletes the old replica, and must get LeaderAndIsr again."""
    cluster = Cluster()
    old_id = cluster.create(cluster.sleeper.id, cluster.others[0])
    cluster.until(lambda: cluster.topic_id_at_sleeper() == old_id)
    cluster.sleeper.pause()
    cluster.until(lambda: len(cluster.sim.image.brokers) == 2)
    cluster.move(*cluster.others)
    cluster.delete()
    new_id = cluster.create(*cluster.others)
    assert cluster.topic_id_at_sleeper() == old_id
    cluster.sleeper.resume()
    cluster.until(lambda: cluster.topic_id_at_sleeper() == new_id)
    broker = cluster.sleeper.broker
    assert broker is not None
    assert broker.log_dirs.get("t", 0) is None
    assert cluster.sim.problems == []


def test_a_topic_that_it_held_nothing_of_is_let_go() -> None:
    cluster = Cluster()
    old_id = cluster.create(*cluster.others)
    cluster.until(lambda: cluster.topic_id_at_sleeper() == old_id)
    cluster.sleeper.pause()
    cluster.until(lambda: len(cluster.sim.image.brokers) == 2)
    cluster.delete()
    cluster.sleeper.resume()
    cluster.until(lambda: cluster.topic_id_at_sleeper() is None)
    assert cluster.sim.problems == []
