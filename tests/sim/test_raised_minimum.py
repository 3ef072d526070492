"""min.insync.replicas is raised while a follower is on its way out of the in-sync replicas.

Method: a simulated cluster without other faults. The leader's fetches of the metadata log get lost
for a while, its other requests do not: so it has the answer to AlterPartition before it has the
configuration that was changed before. Then it dies, and the controller may elect who left, which
by the new minimum is an eligible leader replica.
"""

from typing import Any

from ottla.base.errors import Error
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.testing.sim.net import Pipe
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import incremental_alter_configs as configs_wire
from ottla.wire.messages import produce as produce_wire

from .replaced import replaced

OTHER, LEADER, FOLLOWER = 1, 2, 3
FETCH = 1
CONFIG = {"min.insync.replicas": "1", "replica.lag.time.max.ms": "2000"}


class Cluster:
    """Three brokers and a partition that two of them have."""

    def __init__(self) -> None:
        self.sim = Sim(1, config=CONFIG)
        self.port = self.sim.client_port("somebody")
        self.sim.run_until(
            lambda: len(self.sim.image.brokers) == 3 and all(n.serves for n in self.nodes.values()),
            limit_ms=60_000,
        )
        placed = create_wire.CreatableReplicaAssignment(
            partition_index=0, broker_ids=(LEADER, FOLLOWER)
        )
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
        )
        self.ask(OTHER, create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000), 5)
        self.sim.run(1_000)
        assert self.state.leader == LEADER

    @property
    def nodes(self) -> Any:
        return self.sim.nodes

    @property
    def state(self) -> Any:
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        return topic.partitions[0]

    def ask(self, node: int, request: object, version: int) -> Any:
        answer = self.port.send(node, request, version, 8_000)
        self.sim.run_until(lambda: answer.done, limit_ms=60_000)
        return answer.value

    def raise_minimum(self) -> None:
        change = configs_wire.AlterableConfig(
            name="min.insync.replicas", config_operation=0, value="2"
        )
        topic = configs_wire.AlterConfigsResource(
            resource_type=2, resource_name="t", configs=(change,)
        )
        answer = self.ask(
            OTHER,
            configs_wire.IncrementalAlterConfigsRequest(resources=(topic,), validate_only=False),
            1,
        )
        assert answer.responses[0].error_code == Error.NONE

    def produce(self, value: bytes) -> Any:
        batch = encode_batch([(b"k", value, (), self.nodes[LEADER].clock.now_ms())])
        data = produce_wire.PartitionProduceData(index=0, records=batch)
        topic = produce_wire.TopicProduceData(name="t", partition_data=(data,))
        request = produce_wire.ProduceRequest(acks=-1, timeout_ms=6_000, topic_data=(topic,))
        return self.port.send(LEADER, request, 9, 8_000)


def is_acknowledged(produced: Any) -> bool:
    if not produced.done:
        return False
    return bool(produced.value.responses[0].partition_responses[0].error_code == Error.NONE)


def test_nothing_is_acknowledged_by_the_smaller_set_and_the_former_minimum() -> None:
    cluster = Cluster()
    sim, nodes = cluster.sim, cluster.nodes
    before = cluster.produce(b"before")
    sim.run(1_000)
    assert is_acknowledged(before)
    arrived = Pipe._arrived
    lost: list[int] = []

    def arrives(pipe: Pipe, frame: bytes) -> None:
        """Lose what the leader asks a controller for: its metadata."""
        key = int.from_bytes(frame[4:6], "big")
        if pipe.source == LEADER and pipe.listener.place not in (OTHER, FOLLOWER) and key == FETCH:
            lost.append(sim.now_ms)
        else:
            arrived(pipe, frame)

    with replaced(Pipe, "_arrived", arrives):
        sim.run(2_000)  # The last fetch that had arrived is answered by then.
        cluster.raise_minimum()
        sim.net.cut |= {(LEADER, FOLLOWER), (FOLLOWER, LEADER)}
        after = cluster.produce(b"after")
        sim.run_until(lambda: cluster.state.isr == (LEADER,), limit_ms=6_000)
        assert cluster.state.elr == (FOLLOWER,)
        sim.run(500)
        leader = nodes[LEADER].broker.replicas.partition("t", 0)
        assert leader.min_insync_replicas == 1
        assert lost
        acknowledged = is_acknowledged(after)
        nodes[LEADER].crash(lose_unflushed=False)
    sim.run_until(lambda: cluster.state.leader == FOLLOWER, limit_ms=30_000)
    sim.run(1_000)
    kept = nodes[FOLLOWER].broker.replicas.partition("t", 0).log.log_end_offset
    assert (acknowledged, kept) == (False, 1)
