"""One of three brokers has a full disk, or comes back with an empty one: nobody else is told.

Method: three replicas under load (`fault_load.py`). A full disk is a limit on the size of the
process's files, as in test_disk_full.py. An empty one is a directory that was removed and formatted
again while the broker was dead. In the end all three replicas have every record once and in order.
"""

import shutil

import psutil
import pytest

from ottla.testing import Cluster

from . import stored
from .clients import eventually
from .conftest import Kind, NewCluster, kinds, new_replicated_topic
from .fault_rounds import QUICK_SESSIONS, Scene, under_load
from .ottla_command import ottla

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.forms(1),
    pytest.mark.drawn(1),
]

PARTITIONS = 4
VALUE_BYTES = 2_000
ROOM_BYTES = 100_000


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_FSIZE"), reason="limits of a process need Linux")
@kinds(Kind.COMBINED, Kind.ZOOKEEPER)
def test_a_full_disk_on_one_of_three_brokers(kind: Kind, new_cluster: NewCluster) -> None:
    with new_cluster(kind, config=QUICK_SESSIONS) as cluster:
        topic = new_replicated_topic(cluster, "full", PARTITIONS)
        with under_load(cluster, topic, PARTITIONS, VALUE_BYTES) as scene:
            victim = scene.leader(0)
            fill_up(cluster, topic, victim)
            eventually(lambda: cluster.state(victim), lambda s: s == "dead", what="the node's end")
            scene.watch.fault(victim, is_final=True)
            assert "all log directories have failed" in cluster.logs(victim)
            scene.leader(0, besides=victim)
            scene.load.wait_progress()
            scene.start(victim)  # With room again.
            cluster.wait_ready()
            cluster.wait_in_sync(topic)
            scene.load.wait_progress()


def fill_up(cluster: Cluster, topic: str, node: int) -> None:
    """Let no file of a node grow by more than ROOM_BYTES from now on."""
    sizes = [
        path.stat().st_size
        for partition in range(PARTITIONS)
        for path in stored.segments(cluster, topic, partition, node)
    ]
    limit = max(sizes) + ROOM_BYTES
    psutil.Process(cluster.pid(node)).rlimit(psutil.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.parametrize("is_bounced", [False, True], ids=["given up", "bounced"])
@kinds(Kind.SEPARATE, Kind.ZOOKEEPER)
def test_a_broker_comes_back_empty(kind: Kind, is_bounced: bool, new_cluster: NewCluster) -> None:
    """Bounced: it is back before its session is over, and was in sync when it died (KIP-966)."""
    with new_cluster(kind, controllers=1, config=QUICK_SESSIONS) as cluster:
        topic = new_replicated_topic(cluster, "empty", PARTITIONS)
        with under_load(cluster, topic, PARTITIONS) as scene:
            victim = scene.leader(0)
            scene.kill(victim)
            if not is_bounced:
                scene.leader(0, besides=victim)
                scene.load.wait_progress()
            wipe(cluster, victim)
            scene.start(victim)
            cluster.wait_ready()
            cluster.wait_in_sync(topic)
            survivors_can_go(scene, victim)


def wipe(cluster: Cluster, node: int) -> None:
    """Give a dead node an empty directory, formatted where it must be."""
    directory = cluster.data_dir(node)
    if cluster.zookeeper_connect is not None:
        shutil.rmtree(directory)
        return
    notified = (directory / "meta.properties").read_text()
    (cluster_id,) = [
        line.partition("=")[2] for line in notified.splitlines() if line.startswith("cluster.id=")
    ]
    shutil.rmtree(directory)
    properties = directory.parent / "node.properties"
    ran = ottla("storage", "format", "--cluster-id", cluster_id, "--config", str(properties))
    assert ran.code == 0, ran.err


def survivors_can_go(scene: Scene, newcomer: int) -> None:
    """Let each of the others die in turn: what the newcomer copied must be all there is."""
    for plan in scene.cluster.brokers:
        if plan.id != newcomer:
            scene.kill(plan.id)
            scene.load.wait_progress()
            scene.start(plan.id)
            scene.cluster.wait_ready()
            scene.cluster.wait_in_sync(scene.load.topic)
