"""A fetch that arrives late says nothing of what the follower has now.

Method: a simulated cluster without other faults, and one partition, to which nothing is appended
during the story: followers' fetches skip it in their sessions. The test sends the late fetch.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.metadata.image import PartitionImage
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.watch.observations import PartitionSet
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import produce as produce_wire

LAG_MS = 3_000
CONFIG = {"replica.lag.time.max.ms": str(LAG_MS), "auto.leader.rebalance.enable": "false"}
RECORDS = 3


class Cluster:
    """Four brokers; the first three are the replicas, and the first one leads."""

    def __init__(self, *, zookeeper: bool) -> None:
        config = CONFIG | ({"zookeeper.session.timeout.ms": "4000"} if zookeeper else {})
        self.sim = sim = Sim(1, brokers=4, zookeeper=zookeeper, config=config)
        self.port = sim.client_port("somebody")
        self.brokers = [node for node in sim.nodes.values() if node.is_broker]
        self.until(
            lambda: all(node.serves for node in self.brokers) and len(sim.image.brokers) == 4
        )
        self.leader, self.follower, self.other, _ = self.brokers
        self.create()
        for _ in range(RECORDS):
            self.produce()
        sim.run(2_000)
        self.states: list[PartitionImage] = []
        sim.observe(self.observe)

    def observe(self, observation: object) -> None:
        if isinstance(observation, PartitionSet) and observation.topic == "t":
            self.states.append(observation.state)

    def until(self, holds: Callable[[], bool], limit_ms: int = 30_000) -> None:
        self.sim.run_until(holds, limit_ms=limit_ms)

    def ask(self, node: SimNode, request: object, version: int) -> Any:
        answer = self.port.send(node.id, request, version, 8_000)
        self.until(lambda: answer.done)
        return answer.value

    def create(self) -> None:
        replicas = tuple(node.id for node in (self.leader, self.follower, self.other))
        placed = create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        [created] = self.ask(self.leader, request, 5).topics
        assert created.error_code == 0
        self.sim.run(2_000)

    def produce(self) -> None:
        batch = encode_batch([(None, b"value", (), self.leader.clock.now_ms())])
        data = produce_wire.PartitionProduceData(index=0, records=batch)
        topic = produce_wire.TopicProduceData(name="t", partition_data=(data,))
        request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
        [answer] = self.ask(self.leader, request, 9).responses[0].partition_responses
        assert answer.error_code == 0

    @property
    def state(self) -> PartitionImage:
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        return topic.partitions[0]

    def epoch_of(self, node: SimNode) -> int:
        return self.sim.image.brokers[node.id].epoch

    def restart(self, node: SimNode) -> None:
        """Kill a broker, and start it when the controller has noticed."""
        node.crash(lose_unflushed=False)
        self.until(lambda: node.id not in self.state.isr)
        node.restart()
        self.until(lambda: node.serves)

    def late_fetch(self, *, broker_epoch: int, offset: int) -> Error:
        """Fetch as the follower did before it had a session; return the error."""
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        wanted = fetch_wire.FetchPartition(
            partition=0,
            current_leader_epoch=self.state.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=0 if offset else -1,
            log_start_offset=0,
            partition_max_bytes=1_000_000,
        )
        request = fetch_wire.FetchRequest(
            replica_state=fetch_wire.ReplicaState(
                replica_id=self.follower.id, replica_epoch=broker_epoch
            ),
            max_wait_ms=0,
            min_bytes=1,
            session_epoch=0,
            topics=(fetch_wire.FetchTopic(topic_id=topic.id, partitions=(wanted,)),),
        )
        [answer] = self.ask(self.leader, request, 17).responses[0].partitions
        return Error(answer.error_code)


def in_sync(cluster: Cluster) -> set[int]:
    return set(cluster.state.isr)


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_fetch_of_a_former_process_does_not_keep_others_out_of_the_isr(zookeeper: bool) -> None:
    """Over ZooKeeper the leader proposed each next ISR with the former process's broker epoch."""
    cluster = Cluster(zookeeper=zookeeper)
    everybody = set(cluster.state.replicas)
    former_epoch = cluster.epoch_of(cluster.follower)
    cluster.restart(cluster.follower)
    cluster.until(lambda: in_sync(cluster) == everybody)
    cluster.sim.run(2_000)
    assert cluster.epoch_of(cluster.follower) > former_epoch
    found = cluster.late_fetch(broker_epoch=former_epoch, offset=RECORDS)

    cluster.restart(cluster.other)
    cluster.until(lambda: in_sync(cluster) == everybody, limit_ms=10_000)
    assert found is Error.NOT_LEADER_OR_FOLLOWER
    assert cluster.state.leader == cluster.leader.id


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_fetch_of_the_same_process_does_not_make_the_follower_lag(zookeeper: bool) -> None:
    """Its offset is an old one, and the follower's next fetches skipped the partition."""
    cluster = Cluster(zookeeper=zookeeper)
    found = cluster.late_fetch(broker_epoch=cluster.epoch_of(cluster.follower), offset=1)
    assert found is Error.NONE
    cluster.sim.run(3 * LAG_MS)
    assert cluster.states == []
    assert in_sync(cluster) == set(cluster.state.replicas)
