"""The leader's disk damages a record that is to be copied to remote storage.

Method: a simulated cluster, in both modes. A bit flips in an inactive segment of the leader; the
two followers have the segment intact. It once was copied as it was, and then all replicas deleted
theirs.
"""

import logging

import pytest

from tests.sim.tiered_cluster import PLAIN, Cluster

TOPIC = "orders"
LEADER, OTHERS = 1, (2, 3)
DAMAGED = 2


def flip_a_bit(cluster: Cluster) -> None:
    path = f"{cluster.log(TOPIC).directory}/{DAMAGED:020d}.log"
    disk = cluster.leader(TOPIC).disk
    data = disk.read_bytes(path)
    disk.corrupt(path, len(data) - 20, bytes([data[-20] ^ 1]))


def local_starts(cluster: Cluster) -> list[int]:
    found = []
    for node in (LEADER, *OTHERS):
        replica = cluster.replica(TOPIC, 0, node)
        assert replica is not None
        assert replica.log is not None
        found.append(replica.log.local_log_start_offset)
    return found


@pytest.mark.parametrize("zookeeper", [False, True])
def test_the_intact_replicas_keep_it_and_copy_it_once_they_lead(
    zookeeper: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    sim = cluster.sim
    cluster.create(TOPIC, [(LEADER, *OTHERS)], PLAIN | {"min.insync.replicas": "2"})
    cluster.produce(TOPIC, 6)
    sim.run(3_000)
    assert cluster.leader(TOPIC).id == LEADER
    flip_a_bit(cluster)
    cluster.configure(TOPIC, remote_storage_enable="true", local_retention_bytes="1")
    cluster.until(lambda: cluster.copied(TOPIC) == list(range(DAMAGED)))
    sim.run(60_000)
    assert cluster.copied(TOPIC) == list(range(DAMAGED))
    assert local_starts(cluster) == [DAMAGED] * 3
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [each for each in errors if "is damaged at or after offset 2" in each] == errors[:1]
    core = sim.nodes[LEADER].broker
    assert core is not None
    assert core.replicas.damaged.count == 1

    sim.nodes[LEADER].crash(lose_unflushed=False)
    cluster.until(lambda: cluster.leads(TOPIC) is not None)
    cluster.until(lambda: cluster.copied(TOPIC) == [0, 1, 2, 3, 4])
    sim.nodes[LEADER].restart()
    cluster.until(lambda: cluster.replica(TOPIC, 0, LEADER) is not None)
    cluster.until(lambda: local_starts(cluster) == [5] * 3)
    assert cluster.read(TOPIC, 0) == [0, 1, 2, 3, 4, 5]
