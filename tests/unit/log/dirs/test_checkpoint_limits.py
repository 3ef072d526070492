"""The files that limit checkpoints: what is read of them, and when a directory removes them."""

import pytest

from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.dirs.checkpoint_limits import (
    DAMAGED,
    NO_LIMITS,
    CheckpointLimits,
    LimitFiles,
    limits_number,
    limits_of_cut,
    limits_of_start,
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


# --- what a truncation limits -----------------------------------------------------------

ENTRIES = CheckpointLimits(
    recovery_point=50, log_start_offset=10, high_watermark=60, clean_offset=40
)
TIERED = ENTRIES._replace(local_log_start_offset=30)


def test_a_cut_trusts_nothing_from_the_base_offset_of_its_segment_on() -> None:
    """Of the cut segment the disk may have old pages, new ones or a mix, also below the cut."""
    assert limits_of_cut(ENTRIES, 35, 32) == CheckpointLimits(32, 10, 32, 32)
    assert limits_of_cut(ENTRIES, 45, 42) == CheckpointLimits(42, 10, 42, 40)
    assert limits_of_cut(ENTRIES, 70, 65) == CheckpointLimits(50, 10, 60, 40)


def test_only_a_remote_prefix_limits_the_local_log_start() -> None:
    assert limits_of_cut(ENTRIES, 35, 32).local_log_start_offset == 0
    assert limits_of_cut(TIERED, 35, 32).local_log_start_offset == 30
    assert limits_of_cut(TIERED, 20, 20).local_log_start_offset == 20


def test_of_a_log_that_starts_anew_any_old_segment_may_come_back() -> None:
    assert limits_of_start(ENTRIES, 100, 10) == CheckpointLimits(10, 10, 100, 40)
    assert limits_of_start(ENTRIES, 5, 10) == CheckpointLimits(5, 5, 5, 5)


def test_both_starts_of_a_remote_prefix_hold_until_the_old_segments_are_gone() -> None:
    """The truncation may not happen after all."""
    assert limits_of_start(TIERED, 5, 30) == CheckpointLimits(5, 10, 5, 5, 30)


def test_limits_are_enough_if_every_entry_is_below_one_of_them() -> None:
    disk = Environment().disk
    disk.mkdir(DIRECTORY)
    files = LimitFiles(disk, {})
    limits = CheckpointLimits(32, 10, 32, 32)
    assert not files.are_enough(ENTRIES, limits)
    files.store(DIRECTORY, limits)
    assert files.are_enough(ENTRIES, limits)
    assert not files.are_enough(ENTRIES, limits._replace(recovery_point=31))
    assert files.are_enough(TIERED, limits)  # They say that there is no remote prefix.
    assert not LimitFiles(disk, {}).are_enough(TIERED, ENTRIES)
    assert read_limits(disk, DIRECTORY) == files.limits


def test_limits_files_are_numbered_on_and_removed_by_number() -> None:
    disk = Environment().disk
    disk.mkdir(DIRECTORY)
    write_limits(disk, DIRECTORY, 7, FIRST)
    files = LimitFiles(disk, read_limits(disk, DIRECTORY))
    files.store(DIRECTORY, SECOND)
    assert read_limits(disk, DIRECTORY) == {7: FIRST, 8: SECOND}
    files.remove(DIRECTORY, [7, 6])
    assert read_limits(disk, DIRECTORY) == files.limits == {8: SECOND}
    assert files.next_number() == 9


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
        log.flusher.recovery_point = 0
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
