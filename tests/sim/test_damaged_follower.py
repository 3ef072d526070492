"""A former leader's log is damaged where it is to be cut to agree with the new leader's.

Method: a simulated cluster, in both modes. The leader appends what no follower fetches, hangs until
another one leads, and finds damage on its disk when it goes on. It once retried for ever.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.metadata.topics import DIRECTORY_LOST
from ottla.records.batch import iter_headers
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import produce as produce_wire

OTHERS, LEADER = (1, 3), 2
COMMITTED, LENGTH_AT = 6, 8


class Cluster:
    """Three brokers and a partition of which some have a replica, the leader first."""

    def __init__(self, *others: int, zookeeper: bool) -> None:
        self.sim = Sim(1, zookeeper=zookeeper, config={"min.insync.replicas": "2"})
        self.port = self.sim.client_port("somebody")
        self.nodes: Any = self.sim.nodes
        self.until(lambda: all(node.serves for node in self.nodes.values()))
        self.until(lambda: len(self.sim.image.brokers) == 3)
        placed = create_wire.CreatableReplicaAssignment(
            partition_index=0, broker_ids=(LEADER, *others)
        )
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000)
        made = self.port.send(1, request, 5, 8_000)
        self.until(lambda: made.done)
        self.until(lambda: "t" in self.sim.image.topics and self.state.leader == LEADER)
        self.sim.run(2_000)

    def until(self, holds: Any) -> None:
        self.sim.run_until(holds, limit_ms=60_000)

    @property
    def state(self) -> Any:
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        return topic.partitions[0]

    def partition(self, node: int) -> Any:
        return self.nodes[node].broker.replicas.partition("t", 0)

    def produce(self, node: int, count: int, acks: int = -1) -> None:
        for number in range(count):
            batch = encode_batch([(b"k", b"%d" % number, (), self.nodes[node].clock.now_ms())])
            data = produce_wire.PartitionProduceData(index=0, records=batch)
            topic = produce_wire.TopicProduceData(name="t", partition_data=(data,))
            request = produce_wire.ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=(topic,))
            answer = self.port.send(node, request, 9, 8_000)
            self.until(lambda answer=answer: answer.done)
            result = answer.value.responses[0].partition_responses[0]
            assert result.error_code == Error.NONE

    def part_ways(self) -> None:
        """Let the leader have three records more than anybody, damage it, and elect another."""
        self.produce(LEADER, COMMITTED)
        sim, node = self.sim, self.nodes[LEADER]
        ways = {(LEADER, other) for other in OTHERS}
        sim.net.cut |= ways | {(other, leader) for leader, other in ways}
        self.produce(LEADER, 3, acks=1)
        node.pause()
        self.until(lambda: self.state.leader in OTHERS)
        sim.net.cut.clear()
        self.produce_anew()
        [log_dir] = node.config.log_dirs
        path = f"{log_dir}/t-0/{0:020d}.log"
        for position, header in list(iter_headers(node.disk.read_bytes(path))):
            if header.base_offset >= COMMITTED - 2:
                node.disk.corrupt(path, position + LENGTH_AT, b"\xff\xff\xff\xff")
        node.resume()

    def produce_anew(self) -> None:
        """Let the new leader write its epoch into its log."""
        self.sim.run(3_000)
        self.produce(self.state.leader, 1, acks=1)


def test_out_of_sync_it_is_copied_again_from_the_damage_on() -> None:
    cluster = Cluster(*OTHERS, zookeeper=False)
    cluster.part_ways()
    cluster.until(lambda: LEADER in cluster.state.isr)
    cluster.sim.run(1_000)
    [first, *others] = [
        cluster.nodes[node].disk.read_bytes(
            f"{cluster.nodes[node].config.log_dirs[0]}/t-0/{0:020d}.log"
        )
        for node in (LEADER, *OTHERS)
    ]
    assert others == [first, first]
    assert [header.base_offset for _, header in iter_headers(first)] == list(range(COMMITTED + 1))
    assert cluster.nodes[LEADER].broker.replicas.damaged.count == 1


@pytest.mark.parametrize(
    ("others", "zookeeper"), [((3,), False), (OTHERS, True)], ids=["eligible", "zookeeper"]
)
def test_where_somebody_may_count_on_it_it_is_offline(
    others: tuple[int, ...], zookeeper: bool
) -> None:
    """By the minimum of two a replica that left one in-sync replica behind may be elected."""
    cluster = Cluster(*others, zookeeper=zookeeper)
    cluster.part_ways()
    cluster.until(lambda: cluster.partition(LEADER).log is None)
    other = cluster.nodes[3].broker
    cluster.until(
        lambda: other.image.topics.by_name("t").partitions[0].directory(LEADER) == DIRECTORY_LOST
    )
    cluster.sim.run(10_000)
    assert LEADER not in cluster.state.isr
    assert cluster.state.leader in others
    assert cluster.nodes[LEADER].broker.replicas.damaged.count == 1
