"""A partition whose log cannot be made, for its name is taken, is led by a replica that has one.

Method: a simulated cluster, in both modes; on one broker's disk there is a link of the partition's
name to a disk that is not mounted. That broker is named first, and so is to lead.
"""

import pytest

from ottla.base.errors import Error
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import produce as produce_wire

FIRST, SECOND = 2, 3


def leader_of(sim: Sim) -> int:
    topic = sim.image.topics.by_name("t")
    return -1 if topic is None else topic.partitions[0].leader


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_healthy_replica_leads_instead(zookeeper: bool) -> None:
    """Every produce failed with KAFKA_STORAGE_ERROR for as long as the first broker lived."""
    sim = Sim(1, zookeeper=zookeeper, config={"min.insync.replicas": "1"})
    port = sim.client("somebody")
    nodes = sim.nodes
    sim.run_until(
        lambda: len(sim.image.brokers) == 3 and all(each.serves for each in nodes.values()),
        limit_ms=60_000,
    )
    [folder] = nodes[FIRST].config.log_dirs
    nodes[FIRST].disk.link(f"{folder}/t-0", "/not-mounted/t-0")
    placed = create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=(FIRST, SECOND))
    topic = create_wire.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
    )
    asked = port.send(
        1, create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000), 5, 8_000
    )
    sim.run_until(lambda: asked.done, limit_ms=60_000)
    sim.run_until(lambda: leader_of(sim) == SECOND, limit_ms=60_000)
    batch = encode_batch([(b"k", b"value", (), nodes[SECOND].clock.now_ms())])
    data = produce_wire.PartitionProduceData(index=0, records=batch)
    produced = produce_wire.TopicProduceData(name="t", partition_data=(data,))
    request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(produced,))
    sim.run(2_000)
    answer = port.send(SECOND, request, 9, 8_000)
    sim.run_until(lambda: answer.done, limit_ms=60_000)
    assert answer.value.responses[0].partition_responses[0].error_code == Error.NONE
