"""The files that limit checkpoints: what is read of them, and when a directory removes them."""

import pytest

from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.dirs.checkpoint_limits import (
    DAMAGED,
    NO_LIMITS,
    CheckpointLimits,
    limits_number,
    lowest,
    read_limits,
    remove_limits,
    write_limits,
)
from ottla.log.dirs.dir_loading import is_log_file
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.partition_log import PartitionLog
from tests.unit.log.node import Node, create
from tests.unit.log.support import DIRECTORY, Environment, QueuedWorkers, append, batch, values

FIRST = CheckpointLimits(5, 4, 3, 2)
SECOND = CheckpointLimits(1, 9, 9, 9)


def test_what_is_written_is_read() -> None:
    disk = Environment().disk
    disk.mkdir(DIRECTORY)
    disk.sync_dir("/data")
    write_limits(disk, DIRECTORY, 1, FIRST)
    write_limits(disk, DIRECTORY, 12, SECOND)
    disk.crash()
    assert read_limits(disk, DIRECTORY) == {1: FIRST, 12: SECOND}
    remove_limits(disk, DIRECTORY, 1)
    assert read_limits(disk, DIRECTORY) == {12: SECOND}


def test_of_several_the_lowest_counts() -> None:
    assert lowest([FIRST, SECOND]) == CheckpointLimits(1, 4, 3, 2)
    assert lowest([]) == NO_LIMITS


def test_of_a_damaged_one_the_recovery_point_is_zero() -> None:
    disk = Environment().disk
    disk.mkdir(DIRECTORY)
    for data in (b"", b"\0" * 40, b"[]", b'{"recovery_point":"x"}', b"\xff"):
        disk.write_atomic(f"{DIRECTORY}/{names.TRUNCATION}-3", data)
        assert read_limits(disk, DIRECTORY) == {3: DAMAGED}


def test_only_files_of_that_name_are_limits() -> None:
    assert limits_number(".ottla_truncation-7") == 7
    for name in (".ottla_truncation", ".ottla_truncation-", ".ottla_truncation-7.tmp", "t-7"):
        assert limits_number(name) is None
    assert is_log_file(".ottla_truncation-7")


# --- in a log directory -----------------------------------------------------------------


def filled(node: Node) -> tuple[LogDirs, PartitionLog]:
    dirs, _ = node.start()
    log = create(dirs)
    for _ in range(10):
        append(log, batch(size=60))
    log.flush()
    node.run()
    dirs.checkpoint()
    node.run()
    return dirs, log


def files(node: Node) -> list[str]:
    return [name for name in node.disk.listdir("/d1/t-0") if limits_number(name) is not None]


def recovery_point(node: Node) -> bytes:
    return node.disk.read_bytes(f"/d1/{names.RECOVERY_POINTS}")


def test_the_next_checkpoints_make_them_superfluous() -> None:
    node = Node(QueuedWorkers())
    _, log = filled(node)
    assert b"t 0 9\n" in recovery_point(node)
    log.truncate_to(3)
    assert len(files(node)) == 1
    node.pass_ms(0)
    assert files(node) == []
    assert b"t 0 2\n" in recovery_point(node)
    node.disk.crash()
    assert files(node) == [], "that it is gone is durable, too"


def test_a_checkpoint_that_was_begun_before_leaves_them() -> None:
    node = Node(QueuedWorkers())
    dirs, log = filled(node)
    written = dirs.directory_of(log).checkpoint_all()  # type: ignore[union-attr]
    log.truncate_to(3)
    node.run()
    assert written.done
    assert b"t 0 9\n" in recovery_point(node)
    assert len(files(node)) == 1


def test_a_start_applies_the_limits_and_rewrites_the_checkpoints() -> None:
    node = Node(QueuedWorkers())
    _, log = filled(node)
    log.truncate_to(3)
    append(log, batch([b"new"]), epoch=1)
    node.disk.kill()
    assert isinstance(node.env.workers, QueuedWorkers)
    node.env.workers.queue.clear()
    node.env.timers = Timers()  # Those of the process that died.
    again, _ = node.start()
    found = again.get("t", 0)
    assert found is not None
    assert (found.log_end_offset, values(found)[-1]) == (4, (3, b"new"))
    assert found.recovery_point < 3
    node.pass_ms(0)
    assert files(node) == []
    assert f"t 0 {found.recovery_point}\n".encode() in recovery_point(node)


def test_a_clean_shutdown_leaves_no_limits() -> None:
    node = Node(QueuedWorkers())
    dirs, log = filled(node)
    log.truncate_to(3)
    node.stop(dirs)
    assert files(node) == []


@pytest.mark.parametrize("killed_before", [False, True])
def test_a_log_that_was_truncated_below_its_high_watermark_lacks_nothing(
    killed_before: bool,
) -> None:
    """Only an unclean election brings that about: this broker has lost nothing.

    After a kill the recovery point may be below the cut already, the high watermark is not.
    """
    node = Node(QueuedWorkers())
    dirs, log = filled(node)
    log.advance_high_watermark(8)
    dirs.checkpoint()
    node.run()
    if killed_before:
        log = restarted(node)
        log.recovery_point = 0
    log.truncate_to(3)
    assert restarted(node).high_watermark <= 3


def restarted(node: Node) -> PartitionLog:
    """Return the log after a kill; its broker lacks nothing."""
    node.disk.kill()
    assert isinstance(node.env.workers, QueuedWorkers)
    node.env.workers.queue.clear()
    node.env.timers = Timers()
    again, _ = node.start()
    assert again.below_high_watermark == []
    found = again.get("t", 0)
    assert found is not None
    return found
