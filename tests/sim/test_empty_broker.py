"""Brokers come back with empty disks: no record is lost.

Method: a simulated cluster over ZooKeeper, one partition that lies on three brokers, records that
are acknowledged by all of them. A leader comes back while its previous session lives: requests of a
controller to the previous incarnation reach the new one, which must reject them. It would lead with
an empty log, and its followers would truncate theirs. Or all three fail in one moment: once the
first of them leads again, the others are not in sync with it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.metadata.topics import PartitionImage
from ottla.metadata.znodes import paths
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import alter_partition_reassignments as reassign_wire
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import produce as produce_wire

SESSION_MS = 9_000
RECORDS = 30


class Cluster:
    """Four brokers; `leader` leads the partition, `controller` has no replica of it."""

    def __init__(self, seed: int, min_isr: int = 2) -> None:
        config = {
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "min.insync.replicas": str(min_isr),
        }
        self.sim = sim = Sim(seed, brokers=4, zookeeper=True, config=config)
        self.port = sim.client_port("somebody")
        self.nodes = sim.nodes
        self.until(
            lambda: all(node.serves for node in self.nodes.values()) and len(sim.image.brokers) == 4
        )
        self.controller = controller_of(sim)
        self.replicas = tuple(each for each in sorted(self.nodes) if each != self.controller.id)
        self.leader = self.nodes[self.replicas[0]]
        self.create()
        for number in range(RECORDS):
            self.produce(b"value %d" % number)
        sim.run(1_000)

    def until(self, holds: Callable[[], bool]) -> None:
        self.sim.run_until(holds, limit_ms=60_000)

    def ask(self, node: int, request: object, version: int) -> Any:
        answer = self.port.send(node, request, version, 8_000)
        self.until(lambda: answer.done)
        return answer.value

    def create(self) -> None:
        placed = create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=self.replicas)
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000)
        self.ask(self.controller.id, request, 5)
        self.until(lambda: "t" in self.sim.image.topics)
        self.until(lambda: self.partition().leader == self.leader.id)
        self.sim.run(2_000)

    def partition(self) -> PartitionImage:
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        return topic.partitions[0]

    def produce(self, value: bytes) -> None:
        batch = encode_batch([(b"k", value, (), self.leader.clock.now_ms())])
        data = produce_wire.PartitionProduceData(index=0, records=batch)
        topic = produce_wire.TopicProduceData(name="t", partition_data=(data,))
        request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
        [topic_answer] = self.ask(self.leader.id, request, 9).responses
        [answer] = topic_answer.partition_responses
        assert answer.error_code == 0

    def registered(self, node: SimNode | None = None) -> int:
        """Return the epoch of a broker's registration, the leader's; -1 where there is none."""
        assert self.sim.zookeeper is not None
        found = self.sim.zookeeper.model.tree.nodes.get(paths.broker((node or self.leader).id))
        return -1 if found is None else found.czxid

    def come_back_empty(self) -> None:
        self.leader.crash(lose_unflushed=False)
        wipe(self.leader)
        self.sim.run(200)
        self.leader.restart()

    def fail_in_one_moment(self, *nodes: SimNode) -> None:
        """End processes and their sessions."""
        assert self.sim.zookeeper is not None
        model = self.sim.zookeeper.model
        for node in nodes:
            node.crash(lose_unflushed=False)
        for node in nodes:
            model.expire(model.tree.nodes[paths.broker(node.id)].ephemeral_owner)
        gone = {node.id for node in nodes}
        self.until(lambda: gone.isdisjoint(self.sim.image.broker_ids()))

    def lead_again(self, node: SimNode) -> None:
        """Start a broker, and wait until it leads the partition."""
        node.restart()
        self.until(lambda: self.partition().leader == node.id)
        self.leader = node

    def end_offsets(self) -> dict[int, int]:
        ends = {}
        for node in map(self.nodes.get, self.replicas):
            assert node is not None
            assert node.broker is not None
            log = node.broker.log_dirs.get("t", 0)
            assert log is not None
            ends[node.id] = log.log_end_offset
        return ends

    def check(self) -> None:
        """Wait until all is as before; nothing that was acknowledged may be missing."""
        self.sim.run(30_000)
        assert all(node.serves for node in self.nodes.values())
        assert set(self.partition().isr) >= set(self.replicas)
        assert self.end_offsets() == dict.fromkeys(self.replicas, RECORDS)
        assert self.sim.problems == []


def wipe(node: SimNode) -> None:
    for path in node.config.log_dirs:
        node.disk.rmtree(path)
        node.disk.mkdir(path)


@pytest.mark.parametrize("seed", [1, 2, 4])
@pytest.mark.parametrize("pause_ms", [0, 2_000])
def test_the_next_controller_still_counts_on_the_previous_incarnation(
    seed: int, pause_ms: int
) -> None:
    """It is elected while the session lives; it may sleep when the broker registers again."""
    cluster = Cluster(seed)
    sim, former = cluster.sim, cluster.registered()
    cluster.controller.crash(lose_unflushed=False)
    sim.run(SESSION_MS - 3_000)
    cluster.come_back_empty()
    cluster.until(lambda: controller_of(sim).id != cluster.controller.id)
    cluster.until(lambda: cluster.registered() != former)
    if pause_ms:
        successor = controller_of(sim)
        successor.pause()
        sim.run(pause_ms)
        successor.resume()
    sim.run(10_000)
    cluster.controller.restart()
    cluster.check()


@pytest.mark.parametrize("seed", [1, 8])
def test_the_controller_sends_a_change_to_the_previous_incarnation(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.come_back_empty()
    cluster.sim.run(1_500)
    wider = (*cluster.replicas, cluster.controller.id)
    moved = reassign_wire.ReassignablePartition(partition_index=0, replicas=wider)
    topic = reassign_wire.ReassignableTopic(name="t", partitions=(moved,))
    request = reassign_wire.AlterPartitionReassignmentsRequest(topics=(topic,))
    assert cluster.ask(cluster.controller.id, request, 0).error_code == 0
    cluster.sim.run(10_000)
    cluster.check()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_replica_that_failed_with_the_leader_and_is_back_empty_does_not_succeed_it(
    seed: int,
) -> None:
    """The leader dies before the other one has copied anything."""
    cluster = Cluster(seed)
    first, empty, second = map(cluster.nodes.__getitem__, cluster.replicas)
    cluster.fail_in_one_moment(first, empty, second)
    wipe(empty)
    cluster.lead_again(second)
    second.pause()
    empty.restart()
    cluster.until(lambda: cluster.registered(empty) != -1)
    cluster.fail_in_one_moment(second)
    cluster.sim.run(5_000)
    first.restart()
    second.restart()
    cluster.check()


@pytest.mark.parametrize("seed", [1, 2])
def test_acks_of_the_first_that_is_back_wait_for_none_that_failed_with_it(seed: int) -> None:
    cluster = Cluster(seed, min_isr=1)
    first, *others = map(cluster.nodes.__getitem__, cluster.replicas)
    cluster.fail_in_one_moment(first, *others)
    cluster.lead_again(others[-1])
    cluster.sim.run(500)
    cluster.produce(b"one more")
