"""`__remote_log_metadata` waits for as many brokers as it has replicas.

Method: a simulated cluster of three brokers, of which two start after the first tiered topic was
created. With one replica a loss of power would take records that all brokers have read: their
images of the remote segments would differ for ever. Kafka requests the configured replication
factor, too, and retries.
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
