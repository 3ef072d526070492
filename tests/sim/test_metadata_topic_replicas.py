"""`__remote_log_metadata` waits for as many brokers as it has replicas, and survives power loss.

Method: a simulated cluster of three brokers, of which two start after the first tiered topic was
created. With one replica a loss of power would take records that all brokers have read: their
images of the remote segments would differ for ever. Kafka requests the configured replication
factor, too, and retries. Then one that loses power as a whole.
"""

import pytest

from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC
from tests.sim.tiered_cluster import ONE_RECORD, TIERED, Cluster

TOPIC = "orders"


@pytest.mark.parametrize("zookeeper", [False, True])
def test_it_is_created_when_there_are_enough_brokers(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper, late=(2, 3))
    sim = cluster.sim
    cluster.create(TOPIC, [(1,)], TIERED | {"internal.segment.bytes": ONE_RECORD})
    cluster.produce(TOPIC, 4)
    sim.run(30_000)
    assert REMOTE_LOG_METADATA_TOPIC not in sim.image.topics
    assert not cluster.copied(TOPIC)
    sim.nodes[2].restart()
    sim.run(30_000)
    assert REMOTE_LOG_METADATA_TOPIC not in sim.image.topics
    sim.nodes[3].restart()
    cluster.until(lambda: REMOTE_LOG_METADATA_TOPIC in sim.image.topics)
    topic = sim.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
    assert topic is not None
    assert {len(each.replicas) for each in topic.partitions.values()} == {3}
    cluster.until(lambda: cluster.copied(TOPIC) == [0, 1, 2])
    assert cluster.read(TOPIC, 0) == [0, 1, 2, 3]


@pytest.mark.parametrize("zookeeper", [False, True])
def test_segments_are_known_after_all_brokers_lost_power(zookeeper: bool) -> None:
    """The topic's own records are flushed, and are deleted on local disks since they are remote."""
    cluster = Cluster(zookeeper=zookeeper)
    nodes = cluster.sim.nodes
    durable = {"flush.messages": "1", "min.insync.replicas": "2"}
    cluster.create(TOPIC, [(1, 2, 3)], TIERED | durable)
    cluster.produce(TOPIC, 6)
    cluster.until(lambda: cluster.copied(TOPIC) == [0, 1, 2, 3, 4])
    cluster.until(lambda: all(local_start(cluster, each) == 5 for each in (1, 2, 3)))
    for node in nodes.values():
        node.crash()
    cluster.sim.run(2_000)
    for node in nodes.values():
        node.restart()
    cluster.until(lambda: all(node.serves for node in nodes.values() if node.is_broker))
    cluster.leader(TOPIC)
    cluster.sim.run(30_000)
    assert cluster.read(TOPIC, 0) == [0, 1, 2, 3, 4, 5]


def local_start(cluster: Cluster, node_id: int) -> int:
    replica = cluster.replica(TOPIC, 0, node_id)
    assert replica is not None
    assert replica.log is not None
    return replica.log.local_log_start_offset
