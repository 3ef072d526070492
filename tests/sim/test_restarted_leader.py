"""A restarted leader serves no fetches before it has received LeaderAndIsr.

Method: a simulated cluster over ZooKeeper, one partition with three replicas, and a controller
that has none of them. ZooKeeper's answers to the controller are held from the election on that the
restart causes, so that no broker learns of it. High watermarks are checkpointed so rarely that the
restart puts the leader's back to 0, while a consumer of its epoch asks it on.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.broker.partition import Partition
from ottla.metadata.znodes import paths
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.testing.sim.zookeeper.zookeeper import Written
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import produce as produce_wire

CONFIG = {
    "zookeeper.session.timeout.ms": "9000",
    "min.insync.replicas": "2",
    "replica.high.watermark.checkpoint.interval.ms": "600000",
}
RECORDS = 20


class Cluster:
    """Four brokers; `leader` leads the partition, `controller` has no replica of it."""

    def __init__(self, seed: int) -> None:
        self.sim = sim = Sim(seed, brokers=4, zookeeper=True, config=CONFIG)
        self.port = sim.client_port("somebody")
        self.until(
            lambda: all(node.serves for node in sim.nodes.values()) and len(sim.image.brokers) == 4
        )
        self.controller = controller_of(sim)
        self.replicas = tuple(each for each in sorted(sim.nodes) if each != self.controller.id)
        self.leader = sim.nodes[self.replicas[0]]
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
        self.until(lambda: self.found(self.leader.id) is not None)
        self.sim.run(2_000)

    def found(self, node_id: int) -> Partition | None:
        """Return a broker's replica, as it knows it."""
        broker = self.sim.nodes[node_id].broker
        hosted = () if broker is None else broker.replicas.hosted()
        return next((each for each in hosted if each.topic == "t"), None)

    def produce(self, value: bytes) -> None:
        batch = encode_batch([(b"k", value, (), self.leader.clock.now_ms())])
        data = produce_wire.PartitionProduceData(index=0, records=batch)
        topic = produce_wire.TopicProduceData(name="t", partition_data=(data,))
        request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
        [topic_answer] = self.ask(self.leader.id, request, 9).responses
        [answer] = topic_answer.partition_responses
        assert answer.error_code == 0

    def fetch(self, node: int, *, epoch: int, offset: int) -> fetch_wire.PartitionData:
        """Ask as a consumer of a leader epoch does."""
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        wanted = fetch_wire.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=1_000_000,
        )
        request = fetch_wire.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1_000_000,
            topics=(fetch_wire.FetchTopic(topic_id=topic.id, partitions=(wanted,)),),
        )
        [topic_answer] = self.ask(node, request, 13).responses
        [answer] = topic_answer.partitions
        return answer

    def restart_without_election(self, epoch: int) -> None:
        """Restart the leader; it learns that there is no leader in `epoch`, and nothing more.

        The election is written; the controller does not get the response, and sends no requests.
        """
        assert self.sim.zookeeper is not None
        model, controller = self.sim.zookeeper.model, self.controller.id

        def written(transaction: Written) -> None:
            if any(each.path == paths.state("t", 0) for each in transaction.operations):
                # Not within the transaction, and before its answer can have arrived.
                self.sim.scheduler.after(0, lambda: model.hold_answers(controller))

        model.observe(written)
        self.leader.crash(lose_unflushed=False)
        self.sim.run(200)
        self.leader.restart()

        def was_told() -> bool:
            replica = self.found(self.leader.id)
            return replica is not None and (replica.leader, replica.leader_epoch) == (-1, epoch)

        self.until(was_told)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_its_consumers_do_not_see_the_high_watermark_fall(seed: int) -> None:
    cluster = Cluster(seed)
    sim, leader = cluster.sim, cluster.leader.id
    replica = cluster.found(leader)
    assert replica is not None
    epoch = replica.leader_epoch
    before = cluster.fetch(leader, epoch=epoch, offset=0)
    assert (before.error_code, before.high_watermark) == (Error.NONE, RECORDS)

    cluster.restart_without_election(epoch)
    for offset in (0, RECORDS):
        fetched = cluster.fetch(leader, epoch=epoch, offset=offset)
        assert fetched.error_code == Error.NOT_LEADER_OR_FOLLOWER
    replica = cluster.found(leader)
    assert replica is not None
    assert (replica.leader, replica.leader_epoch) == (-1, epoch), "an election came between"
    assert replica.high_watermark < RECORDS, "nothing could have fallen"

    assert sim.zookeeper is not None
    sim.zookeeper.model.heal_all()
    sim.run(20_000)
    topic = sim.image.topics.by_name("t")
    assert topic is not None
    elected = topic.partitions[0]
    assert elected.leader_epoch > epoch
    assert set(elected.isr) == set(cluster.replicas)
    after = cluster.fetch(elected.leader, epoch=elected.leader_epoch, offset=RECORDS)
    assert (after.error_code, after.high_watermark) == (Error.NONE, RECORDS)
    assert sim.problems == []
