"""A log directory belongs to the first broker that starts with it.

Method: a disk in memory.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.timers import Timers
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.zookeeper.node_dirs import ZooKeeperNodeDirs, open_zookeeper_node_dirs
from ottla.metadata.node_config import NodeConfig
from ottla.testing.disk import MemoryDisk

from ...broker.harness import FakeWorkers
from ..harness import Workers

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


class Clock:
    """Time stands still."""

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


def opened(
    disk: MemoryDisk, broker_id: int = 1, node_dirs: str = "/a,/b", workers: Any = None
) -> ZooKeeperNodeDirs:
    config = NodeConfig.parse(
        {"broker.id": str(broker_id), "zookeeper.connect": "zk:1", "log.dirs": node_dirs}
    )
    ports = SimpleNamespace(
        disk=disk, workers=workers or FakeWorkers(), clock=Clock(), timers=Timers(), dice=None
    )
    return open_zookeeper_node_dirs(config, cast(Any, ports))


def test_the_first_start_writes_the_owner_into_every_log_directory() -> None:
    disk = MemoryDisk()
    node_dirs = opened(disk)
    node_dirs.adopt(CLUSTER)
    assert node_dirs.cluster_id == CLUSTER
    for path in ("/a", "/b"):
        message = disk.read_bytes(f"{path}/meta.properties")
        assert message == f"#\nbroker.id=1\ncluster.id={CLUSTER}\nversion=0\n".encode()


def test_the_next_start_finds_its_directories_and_adopts_a_new_one() -> None:
    disk = MemoryDisk()
    first = opened(disk, node_dirs="/a")
    first.adopt(CLUSTER)
    first.close()
    opened(disk).adopt(CLUSTER)
    assert disk.exists("/b/meta.properties")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version=0\nbroker.id=1\ncluster.id=other\n", "trying to join the wrong cluster"),
        (b"version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "formatted for KRaft mode"),
    ],
)
def test_a_directory_of_another_cluster_is_refused(content: bytes, reason: str) -> None:
    disk = MemoryDisk()
    disk.mkdir("/a")
    disk.write_atomic("/a/meta.properties", content)
    with pytest.raises(StartError, match=reason):
        opened(disk, node_dirs="/a").adopt(CLUSTER)


def test_a_directory_of_another_broker_is_refused() -> None:
    disk = MemoryDisk()
    first = opened(disk)
    first.adopt(CLUSTER)
    first.close()
    with pytest.raises(StartError, match="Stored node id 1 doesn't match"):
        opened(disk, broker_id=2)


def test_the_last_session_is_stored_over_a_kill() -> None:
    disk = MemoryDisk()
    first = opened(disk)
    assert first.previous_sessions == ()
    assert first.store_session(-0x1000_0000_0001).done
    first.close()
    disk.crash()
    assert set(opened(disk).previous_sessions) == {-0x1000_0000_0001}


def test_the_last_session_is_stored_where_another_log_directory_fails() -> None:
    disk = MemoryDisk()
    first = opened(disk)
    disk.fail("write_atomic", path="/a/")
    assert first.store_session(7).done
    first.close()
    assert set(opened(disk).previous_sessions) == {7}


def test_of_two_sessions_in_quick_succession_the_later_is_stored() -> None:
    """Two workers wrote the same temporary file, and the earlier session's could come last."""
    disk, workers = MemoryDisk(), Workers()
    first = opened(disk, workers=workers)
    stored = [first.store_session(session) for session in (7, 8)]
    workers.waiting.reverse()
    workers.run()
    assert [each.done for each in stored] == [True, True]
    first.close()
    assert set(opened(disk).previous_sessions) == {8}


def test_an_unreadable_session_file_is_ignored() -> None:
    disk = MemoryDisk()
    disk.mkdir("/a")
    disk.write_atomic("/a/.ottla_zookeeper_session", b"what?")
    assert opened(disk).previous_sessions == ()
