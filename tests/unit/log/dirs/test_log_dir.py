"""One log directory: who may use it, how it was left, and its checkpoint writes.

Method: directories prepared by hand; workers that wait, to see writes overtake each other.
"""

import pytest

from ottla.base.ids import parse_uuid
from ottla.log import names
from ottla.log.dirs.checkpoints import read_offsets
from ottla.log.dirs.log_dir import ALL_CHECKPOINTS, CoalescedWrite, DirectoryRefused, LogDir
from ottla.log.dirs.meta_properties import MetaProperties, encode_meta_properties
from ottla.testing.disk import MemoryDisk
from tests.unit.log.support import InlineWorkers, QueuedWorkers

DIRECTORY_ID = parse_uuid("vPrf8GOdSvuGKTXo8bVbuQ")
MINE = encode_meta_properties(
    MetaProperties(cluster_id="mine", node_id=1, directory_id=DIRECTORY_ID)
)


def directory(
    disk: MemoryDisk, failures: list[OSError] | None = None, path: str = "/logs"
) -> LogDir:
    return LogDir(
        disk,
        InlineWorkers(),
        path,
        lambda _, error: failures.append(error) if failures is not None else None,
    )


def formatted() -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("/logs")
    disk.sync_dir("/")
    disk.write_atomic("/logs/meta.properties", MINE)
    return disk


def test_a_directory_has_one_user_at_a_time() -> None:
    disk = formatted()
    first = directory(disk)
    first.acquire(node_id=1, cluster_id="mine")
    assert first.directory_id == DIRECTORY_ID
    with pytest.raises(DirectoryRefused, match=r"Failed to acquire lock on file \.lock in /logs"):
        directory(disk).acquire(node_id=1, cluster_id="mine")
    first.release()
    first.release()
    directory(disk).acquire(node_id=1, cluster_id=None)


def test_another_nodes_directory_is_refused_and_not_kept_locked() -> None:
    disk = formatted()
    with pytest.raises(DirectoryRefused, match=r"Invalid cluster\.id"):
        directory(disk).acquire(node_id=1, cluster_id="other")
    with pytest.raises(DirectoryRefused, match="Stored node id 1"):
        directory(disk).acquire(node_id=2, cluster_id="mine")
    directory(disk).acquire(node_id=1, cluster_id="mine")


def test_a_new_directory_is_made_durably() -> None:
    disk = MemoryDisk()
    found = directory(disk, path="/new/logs")
    found.acquire(node_id=1, cluster_id="mine")
    disk.crash()
    assert disk.is_dir("/new/logs")
    assert found.directory_id == bytes(16)


def test_unreadable_properties_are_a_broken_disk() -> None:
    disk = formatted()
    disk.write_atomic("/logs/meta.properties", b"version=9\n")
    with pytest.raises(OSError, match="version 9"):
        directory(disk).acquire(node_id=1, cluster_id="mine")


def test_the_clean_marker_counts_once() -> None:
    disk = formatted()
    directory(disk).write_clean_shutdown_file(77)
    assert disk.read_bytes("/logs/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":77}'
    disk.crash()
    first = directory(disk)
    first.take_clean_shutdown_file()
    assert (first.was_clean, first.previous_epoch) == (True, 77)
    disk.crash()
    second = directory(disk)
    second.take_clean_shutdown_file()
    assert (second.was_clean, second.previous_epoch) == (False, -1)


def test_checkpoints_of_an_offline_directory_are_not_written() -> None:
    disk = formatted()
    found = directory(disk)
    found.error = OSError("broken")
    assert found.checkpoint(names.RECOVERY_POINTS).value is found.error
    assert "recovery-point-offset-checkpoint" not in disk.listdir("/logs")


def test_a_failed_checkpoint_is_reported() -> None:
    disk = formatted()
    failures: list[OSError] = []
    disk.fail("write_atomic")
    found = directory(disk, failures)
    assert isinstance(found.checkpoint(names.LOG_STARTS).value, OSError)
    assert len(failures) == 1


def test_unchanged_high_watermarks_are_not_written_again() -> None:
    disk = formatted()
    found = directory(disk)
    path = f"/logs/{names.HIGH_WATERMARKS}"
    entries = {("orders", 0): 7}
    found.unusable["orders-0"] = OSError("not mounted")
    found.keep_entries({name: dict(entries) for name in ALL_CHECKPOINTS})
    assert found.checkpoint(names.HIGH_WATERMARKS).done
    assert read_offsets(disk, path) == entries
    disk.remove(path)  # To see whether it is written.
    assert found.checkpoint(names.HIGH_WATERMARKS).done
    assert not disk.exists(path)
    found.keep_entries({name: {("orders", 0): 8} for name in ALL_CHECKPOINTS})
    assert found.checkpoint(names.HIGH_WATERMARKS).done
    assert read_offsets(disk, path) == {("orders", 0): 8}


def test_high_watermarks_whose_write_failed_are_written_again() -> None:
    disk, workers = formatted(), QueuedWorkers()
    found = LogDir(disk, workers, "/logs", lambda directory, error: None)
    disk.fail("write_atomic", times=1)
    first = found.checkpoint(names.HIGH_WATERMARKS)
    workers.run()
    assert isinstance(first.value, OSError)
    second = found.checkpoint(names.HIGH_WATERMARKS)
    workers.run()
    assert second.value is None
    assert disk.exists(f"/logs/{names.HIGH_WATERMARKS}")


def test_writes_of_one_file_are_ordered_and_coalesced() -> None:
    disk, workers = formatted(), QueuedWorkers()
    write = CoalescedWrite(disk, workers, "/logs/a", lambda error: None, lambda: None)
    first = write.write(lambda: b"1")
    others = [write.write(lambda number=number: b"%d" % number) for number in range(2, 6)]
    assert len(workers.queue) == 1
    workers.run(1)
    assert first.value is None
    assert not others[0].done
    assert disk.read_bytes("/logs/a") == b"1"
    assert len(workers.queue) == 1
    workers.run()
    assert disk.read_bytes("/logs/a") == b"5"
    assert [other.value for other in others] == [None] * 4


def test_a_write_after_a_failed_one_is_tried() -> None:
    disk, workers = formatted(), QueuedWorkers()
    failures: list[OSError] = []
    write = CoalescedWrite(disk, workers, "/logs/a", failures.append, lambda: None)
    disk.fail("write_atomic")
    first, second = write.write(lambda: b"1"), write.write(lambda: b"2")
    workers.run()
    assert isinstance(first.value, OSError)
    assert second.value is None
    assert len(failures) == 1
    assert disk.read_bytes("/logs/a") == b"2"


def test_what_waits_to_be_written_is_not_once_the_directory_is_offline() -> None:
    """Its logs are unknown by then: the file would have said of none where they start."""
    disk, workers = formatted(), QueuedWorkers()
    refusals: list[OSError] = []
    write = CoalescedWrite(
        disk, workers, "/logs/a", refusals.append, lambda: refusals[0] if refusals else None
    )
    first, second = write.write(lambda: b"1"), write.write(lambda: b"2")
    refusals.append(OSError(5, "another file of it could not be written"))
    workers.run()
    assert (first.value, second.value) == (None, refusals[0])
    assert disk.read_bytes("/logs/a") == b"1"
