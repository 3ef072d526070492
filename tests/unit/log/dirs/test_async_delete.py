"""Deleted partition directories: their removal, and their entries in the checkpoints.

Method: two directories on a disk in memory, with workers that wait until the test lets them run.
"""

import errno

import pytest

from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.log import names
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.replica_deletion import remove_replicas
from ottla.log.partition_log import PartitionLog
from tests.unit.log.node import CONFIG, OTHER_ID, TOKEN, Node, create
from tests.unit.log.support import TOPIC_ID, QueuedWorkers, append, batch


@pytest.fixture
def workers() -> QueuedWorkers:
    return QueuedWorkers()


@pytest.fixture
def node(workers: QueuedWorkers) -> Node:
    return Node(workers)


def leaving(node: Node) -> list[str]:
    found = [*node.disk.listdir("/d1"), *node.disk.listdir("/d2")]
    return [name for name in found if name.endswith("-delete")]


def test_a_log_directory_removes_one_partition_directory_at_a_time(
    node: Node, workers: QueuedWorkers
) -> None:
    """A thousand at once would hold all threads, and every flush would wait behind them."""
    dirs, _ = node.start()
    for partition in range(8):
        create(dirs, partition=partition)
    for partition in range(8):
        dirs.delete("t", partition)
    node.pass_ms(1)
    node.env.pass_ms(999)
    for left in (6, 4, 2, 0):
        assert len(workers.queue) == 2, "one for each directory"
        workers.run(2)
        assert len(leaving(node)) == left
    assert not workers.queue


def test_directories_that_are_due_later_are_removed_too(node: Node) -> None:
    dirs, _ = node.start()
    for partition in range(4):
        create(dirs, partition=partition)
        dirs.delete("t", partition)
        node.pass_ms(400)
    assert len(leaving(node)) == 2
    node.pass_ms(1_000)
    assert leaving(node) == []


def test_an_offline_directory_removes_nothing_until_the_next_start(node: Node) -> None:
    """The others go on; the next start takes up what is left."""
    dirs, _ = node.start()
    for partition in range(6):
        create(dirs, partition=partition)
    for partition in range(6):
        dirs.delete("t", partition)
    fault = node.disk.fail("rmtree", path="/d1", times=None)
    node.pass_ms(1_000)
    assert fault.hits == 1
    assert [directory.path for directory in dirs.offline_dirs] == ["/d1"]
    assert len(leaving(node)) == 3
    node.disk.faults.clear()
    node.disk.kill()
    node.start()
    node.pass_ms(1_000)
    assert leaving(node) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTDIR, errno.EACCES, errno.EROFS])
def test_a_name_that_cannot_be_changed_is_tried_once(node: Node, number: int) -> None:
    """Where a file stood in the directory's place the broker tried name after name for ever."""
    dirs, _ = node.start()
    create(dirs)
    fault = node.disk.fail("rename", number, times=5)
    with pytest.raises(OSError) as refusal:
        dirs.delete("t", 0)
    assert (refusal.value.errno, fault.hits) == (number, 1)


def test_a_replica_deleted_twice_gets_another_directory_name(
    node: Node,
) -> None:
    """A worker had emptied it and was about to remove it: a rename replaces an empty directory."""
    dirs, _ = node.start()
    create(dirs)
    dirs.delete("t", 0)
    node.env.pass_ms(1_000)
    append(create(dirs), batch())
    (emptied,) = leaving(node)
    for name in node.disk.listdir(f"/d1/{emptied}"):
        node.disk.remove(f"/d1/{emptied}/{name}")
    dirs.delete("t", 0)
    assert len(leaving(node)) == 2
    assert node.disk.listdir(f"/d1/{emptied}") == []
    node.run()
    (left,) = leaving(node)
    assert dirs.dirs[0].deleting == {(TOPIC_ID, 0): {left}}
    node.pass_ms(1_000)
    assert leaving(node) == []
    assert [(each.is_online, each.deleting) for each in dirs.dirs] == [(True, {}), (True, {})]


def test_a_removal_that_a_crash_cut_short_is_taken_up(node: Node) -> None:
    dirs, _ = node.start()
    append(create(dirs), batch())
    dirs.delete("t", 0)
    # What the crash left of it may have lost its topic id first.
    node.disk.remove(f"/d1/t-0.{TOKEN}-delete/{names.PARTITION_METADATA}")
    node.disk.kill()
    _, found = node.start(lambda *_: Verdict.STRAY)
    assert found.strays == ()
    node.pass_ms(1_000)
    assert leaving(node) == []


def test_an_older_stray_is_removed_once_its_topic_is_deleted(node: Node) -> None:
    """Its topic was unknown when it became a stray; a known deletion is evidence."""
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.stop(dirs)
    dirs, _ = node.start(lambda *_: Verdict.STRAY)
    node.stop(dirs)
    _, found = node.start(lambda *_: Verdict.KEEP)
    assert found.strays == (f"t-0.{TOKEN}-stray",)
    node.disk.kill()
    _, found = node.start(lambda *_: Verdict.DELETE)
    assert found.strays == ()
    node.pass_ms(1_000)
    assert [name for name in node.disk.listdir("/d1") if name.startswith("t-")] == []


# --- very many at once --------------------------------------------------------------------

MANY = 3 * LOGS_PER_STEP_MAX


def crowded(node: Node) -> LogDirs:
    """Return directories of which very many logs were deleted this moment."""
    dirs, _ = node.start()
    for partition in range(MANY):
        create(dirs, partition=partition)
    for partition in range(MANY):
        assert dirs.delete("t", partition)
    return dirs


def test_very_many_logs_go_a_step_at_a_time_and_are_not_found_from_the_first_moment(
    node: Node,
) -> None:
    dirs = crowded(node)
    assert list(dirs.logs()) == []
    settled = dirs.renames_done()
    for step in (1, 2, 3):
        assert len(leaving(node)) == step * LOGS_PER_STEP_MAX
        assert settled.done == (step == 3)
        node.pass_ms(1)
    node.pass_ms(1_000)
    assert leaving(node) == []
    for directory in dirs.dirs:
        assert directory.stale_entries == {}
        assert node.disk.read_bytes(f"{directory.path}/{names.LOG_STARTS}") == b"0\n0\n"


def test_who_needs_a_name_that_is_still_to_go_has_it_go_first(node: Node) -> None:
    dirs = crowded(node)
    last = MANY - 1
    log = dirs.get_or_create("t", OTHER_ID, last, CONFIG)
    append(log, batch(3))
    node.pass_ms(10)
    assert dirs.get("t", last) is log
    assert not log.failed
    node.disk.kill()
    dirs, found = node.start(lambda _topic, _partition, found: _keep(found == OTHER_ID))
    assert [each.log_end_offset for each in found.logs] == [3]


def test_the_same_replica_that_comes_back_is_in_one_directory_only(node: Node) -> None:
    """A start refuses a partition that is in two."""
    dirs = crowded(node)
    for partition in range(MANY - 1, 0, -2):
        create(dirs, partition=partition)
    node.disk.kill()
    _, found = node.start()
    assert found.problem is None


def test_an_order_is_answered_once_all_names_are_changed(node: Node) -> None:
    dirs = crowded(node)
    replicas = [(TOPIC_ID, partition) for partition in range(MANY)]
    ordered = remove_replicas(dirs, replicas)
    node.run()
    assert not ordered.done
    node.pass_ms(1)
    node.pass_ms(1)
    assert ordered.value == dict.fromkeys(replicas)
    node.disk.crash()
    _, found = node.start()
    assert found.logs == ()


def test_a_disk_error_in_a_later_step_takes_the_directory_offline(node: Node) -> None:
    dirs = crowded(node)
    notified: list[str] = []
    dirs.on_offline = lambda directory, logs: notified.append(directory.path)
    ordered = remove_replicas(dirs, [(TOPIC_ID, partition) for partition in range(MANY)])
    node.disk.fail("rename", path="/d1/", times=None)
    for _ in range(3):
        node.pass_ms(1)
    assert notified == ["/d1"]
    for (_, partition), failure in ordered.value.items():
        on_lost_disk = partition % 2 == 0 and partition >= LOGS_PER_STEP_MAX
        assert dirs.offline_topic_ids("t", partition) == ({TOPIC_ID} if on_lost_disk else set())
        if on_lost_disk:
            assert isinstance(failure, OSError)
    assert ordered.value[TOPIC_ID, MANY - 1] is None


def test_a_stop_waits_for_no_step(node: Node) -> None:
    dirs = crowded(node)
    node.stop(dirs)
    assert len(leaving(node)) == MANY
    assert node.disk.open_files == 0
    _, found = node.start()
    assert found.logs == ()


def test_a_stop_gives_no_directory_back_that_is_still_written_to(
    node: Node, workers: QueuedWorkers
) -> None:
    """The next process has its lock by then, and would find checkpoints of this one's."""
    dirs, _ = node.start()
    create(dirs)
    dirs.delete("t", 0)
    node.env.pass_ms(1)
    slow = workers.queue.popleft()
    stopped = dirs.shutdown(5)
    workers.run()
    assert not stopped.done
    workers.queue.append(slow)
    workers.run()
    assert stopped.done
    dirs, found = node.start()
    assert [each.was_clean for each in dirs.dirs] == [True, True]
    assert found.logs == ()


# --- what the checkpoints say of former logs ---------------------------------------------


def long_lived(node: Node) -> LogDirs:
    """Return directories with a log of which each checkpoint has something to say."""
    dirs, _ = node.start()
    log = create(dirs)
    for _ in range(10):
        append(log, batch(5, size=40))
    log.flush()
    node.run()
    log.advance_high_watermark(50)
    log.delete_records(40)
    log.offsets.clean_offset = 45
    dirs.checkpoint()
    node.run()
    return dirs


def young(log: PartitionLog | None) -> tuple[int, int, int, int]:
    assert log is not None
    return log.log_start_offset, log.high_watermark, log.log_end_offset, log.clean_offset


@pytest.mark.parametrize("steps", range(8))
def test_a_topic_of_the_old_name_takes_over_nothing_though_a_crash_comes_at_once(
    node: Node, workers: QueuedWorkers, steps: int
) -> None:
    """Its ancestor's start offset emptied it, its ancestor's high watermark exposed it.

    `steps`: how many pieces of background work are done before the process is killed.
    """
    dirs = long_lived(node)
    dirs.delete("t", 0)
    log = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    append(log, batch(3))
    log.advance_high_watermark(1)
    node.env.pass_ms(1)
    workers.run(steps)
    node.disk.kill()
    workers.queue.clear()
    dirs, _ = node.start(lambda _topic, _partition, found: _keep(found == OTHER_ID))
    start, high, end, clean = young(dirs.get("t", 0))
    assert (start, end, clean) == (0, 3, 0)
    assert high <= 1


def _keep(wanted: bool) -> Verdict:
    return Verdict.KEEP if wanted else Verdict.STRAY


def test_stale_entries_when_a_start_finds_the_old_directory(
    node: Node, workers: QueuedWorkers
) -> None:
    dirs = long_lived(node)
    node.disk.kill()
    dirs, _ = node.start(lambda *_: Verdict.DELETE)
    # What that start wrote is lost, as where it is killed before it could write.
    stale = b"0\n1\nt 0 40\n"
    for name in (names.LOG_STARTS, names.HIGH_WATERMARKS, names.RECOVERY_POINTS):
        assert b"t 0" not in node.disk.read_bytes(f"/d1/{name}")
        node.disk.write_atomic(f"/d1/{name}", stale)
    dirs.dirs[0].mark_entries_stale(("t", 0))
    append(dirs.get_or_create("t", OTHER_ID, 0, CONFIG), batch(3))
    node.disk.kill()
    dirs, _ = node.start()
    assert young(dirs.get("t", 0)) == (0, 0, 3, 0)


def test_the_stale_marker_is_removed_once_the_checkpoints_are_rewritten(node: Node) -> None:
    """Else records that were deleted from the new log came back with each start."""
    dirs = long_lived(node)
    dirs.delete("t", 0)
    log = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    append(log, batch(3))
    assert node.disk.exists(f"/d1/t-0/{names.STALE_CHECKPOINTS}")
    node.pass_ms(1)
    assert not node.disk.exists(f"/d1/t-0/{names.STALE_CHECKPOINTS}")
    log.advance_high_watermark(3)
    log.delete_records(2)
    dirs.checkpoint()
    node.run()
    node.disk.kill()
    dirs, _ = node.start()
    assert young(dirs.get("t", 0)) == (2, 3, 3, 0)


def test_a_start_that_finds_a_stale_marker_rewrites_the_checkpoints(
    node: Node, workers: QueuedWorkers
) -> None:
    dirs = long_lived(node)
    dirs.delete("t", 0)
    append(dirs.get_or_create("t", OTHER_ID, 0, CONFIG), batch(3))
    node.disk.kill()
    workers.queue.clear()
    dirs, _ = node.start(lambda _topic, _partition, found: _keep(found == OTHER_ID))
    assert not node.disk.exists(f"/d1/t-0/{names.STALE_CHECKPOINTS}")
    assert node.disk.read_bytes(f"/d1/{names.LOG_STARTS}") == b"0\n1\nt 0 0\n"


def test_a_name_given_up_twice_has_its_checkpoints_rewritten_twice(
    node: Node, workers: QueuedWorkers
) -> None:
    dirs = long_lived(node)
    dirs.delete("t", 0)
    append(dirs.get_or_create("t", OTHER_ID, 0, CONFIG), batch(3))
    node.env.pass_ms(1)
    workers.run(1)  # The new names are durable, and what is to be written is settled.
    dirs.delete("t", 0)
    log = create(dirs)
    workers.run(4)
    assert node.disk.exists(f"{log.directory}/{names.STALE_CHECKPOINTS}")
    node.pass_ms(1)
    assert not node.disk.exists(f"{log.directory}/{names.STALE_CHECKPOINTS}")
    assert dirs.dirs[0].stale_entries == {}


def test_a_name_that_was_never_given_up_needs_no_mark(node: Node) -> None:
    dirs, _ = node.start()
    assert not node.disk.exists(f"{create(dirs).directory}/{names.STALE_CHECKPOINTS}")


def test_a_clean_stop_right_after_leaves_no_mark(node: Node) -> None:
    dirs = long_lived(node)
    dirs.delete("t", 0)
    log = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    append(log, batch(3))
    log.advance_high_watermark(3)
    log.delete_records(1)
    node.stop(dirs)
    dirs, _ = node.start()
    assert young(dirs.get("t", 0)) == (1, 3, 3, 0)


def test_a_mark_that_cannot_be_taken_away_is_a_broken_disk(node: Node) -> None:
    dirs = long_lived(node)
    dirs.delete("t", 0)
    dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    node.disk.fail("remove", errno.EIO, path=names.STALE_CHECKPOINTS)
    node.pass_ms(1)
    assert [directory.path for directory in dirs.offline_dirs] == ["/d1"]
