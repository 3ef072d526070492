"""A partition whose log cannot be made, for its name is taken, is led by a replica that has one.

Method: a simulated cluster, in both modes; on one broker's disk there is a link of the partition's
name to a disk that is not mounted, or the file that says whose the records are is damaged while
the broker is down. That broker is named first, and so is to lead.
"""

import pytest

from ottla.base.errors import Error
from ottla.metadata.image import PartitionImage
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.testing.sim.sim import SimClientPort
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import produce as produce_wire

FIRST, SECOND = 2, 3


def state_of(sim: Sim) -> PartitionImage | None:
    topic = sim.image.topics.by_name("t")
    return None if topic is None else topic.partitions[0]


def leader_of(sim: Sim) -> int:
    state = state_of(sim)
    return -1 if state is None else state.leader


def started(*, zookeeper: bool) -> tuple[Sim, SimClientPort]:
    """Return three brokers that serve, and a client."""
    sim = Sim(1, zookeeper=zookeeper, config={"min.insync.replicas": "1"})
    port = sim.client_port("somebody")
    sim.run_until(
        lambda: len(sim.image.brokers) == 3 and all(each.serves for each in sim.nodes.values()),
        limit_ms=60_000,
    )
    return sim, port


def create(sim: Sim, port: SimClientPort) -> None:
    """Create a topic of one partition that the first broker is to lead."""
    placed = create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=(FIRST, SECOND))
    topic = create_wire.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
    )
    pending = port.send(
        1, create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000), 5, 8_000
    )
    sim.run_until(lambda: pending.done, limit_ms=60_000)


def produce(sim: Sim, port: SimClientPort, node: int) -> int:
    """Append a record; return the error code."""
    batch = encode_batch([(b"k", b"value", (), sim.nodes[node].clock.now_ms())])
    data = produce_wire.PartitionProduceData(index=0, records=batch)
    produced = produce_wire.TopicProduceData(name="t", partition_data=(data,))
    request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(produced,))
    answer = port.send(node, request, 9, 8_000)
    sim.run_until(lambda: answer.done, limit_ms=60_000)
    code: int = answer.value.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_healthy_replica_leads_instead(zookeeper: bool) -> None:
    """Every produce failed with KAFKA_STORAGE_ERROR for as long as the first broker lived."""
    sim, port = started(zookeeper=zookeeper)
    [log_dir] = sim.nodes[FIRST].config.log_dirs
    sim.nodes[FIRST].disk.link(f"{log_dir}/t-0", "/not-mounted/t-0")
    create(sim, port)
    sim.run_until(lambda: leader_of(sim) == SECOND, limit_ms=60_000)
    sim.run(2_000)
    assert produce(sim, port, SECOND) == Error.NONE


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_replica_whose_metadata_file_is_damaged_stays_offline(zookeeper: bool) -> None:
    """Its records were set aside at the start, and an empty log was made in their place."""
    sim, port = started(zookeeper=zookeeper)
    node = sim.nodes[FIRST]
    [log_dir] = node.config.log_dirs
    path = f"{log_dir}/t-0/partition.metadata"
    create(sim, port)
    sim.run_until(lambda: leader_of(sim) == FIRST, limit_ms=60_000)
    sim.run(2_000)
    assert produce(sim, port, FIRST) == Error.NONE
    node.stop()
    sim.run_until(lambda: not node.alive, limit_ms=60_000)
    node.disk.write_atomic(path, b"garbage")
    before = node.disk.listdir(f"{log_dir}/t-0")
    node.restart()
    sim.run_until(lambda: node.serves, limit_ms=60_000)
    sim.run(40_000)  # Longer than the new leader waits for one that was in sync.
    assert (leader_of(sim), node.disk.listdir(f"{log_dir}/t-0")) == (SECOND, before)
    assert node.disk.read_bytes(path) == b"garbage"
    state = state_of(sim)
    assert state is not None
    assert state.isr == (SECOND,)
    assert node.broker is not None
    assert node.broker.replicas.partition("t", 0).log is None
    assert produce(sim, port, SECOND) == Error.NONE
    assert produce(sim, port, FIRST) in (Error.KAFKA_STORAGE_ERROR, Error.NOT_LEADER_OR_FOLLOWER)
