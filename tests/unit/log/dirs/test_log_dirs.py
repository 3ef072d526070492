"""A broker's log directories from start to end, and in failure.

Method: two directories on a disk in memory; every story is told with workers that act at once and
with workers that wait. Kafka's bugs with log directories each have a test that names them.
"""

import errno
from typing import Any

import pytest

from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.log import names
from ottla.log.dirs.async_delete import REMOVE_RETRY_MS
from ottla.log.dirs.checkpoints import decode_clean_shutdown
from ottla.log.dirs.log_dir import LogDir
from ottla.log.dirs.log_dirs import DirectoryRefused, LoadResult, LogDirs, NameTaken
from ottla.log.dirs.replica_deletion import remove_replicas
from ottla.log.partition_log import PartitionLog
from tests.unit.log.node import CONFIG, IDS, OTHER_ID, TOKEN, Node, create
from tests.unit.log.support import (
    TOPIC_ID,
    InlineWorkers,
    QueuedWorkers,
    append,
    batch,
    produced,
    values,
)


@pytest.fixture(params=[InlineWorkers, QueuedWorkers])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(request.param())


def test_new_logs_go_where_there_are_fewest(node: Node) -> None:
    dirs, found = node.start()
    assert found == LoadResult((), ())
    logs = [create(dirs, partition=partition) for partition in range(5)]
    assert [log.directory for log in logs] == [
        "/d1/t-0",
        "/d2/t-1",
        "/d1/t-2",
        "/d2/t-3",
        "/d1/t-4",
    ]
    assert create(dirs, partition=3) is logs[3] is dirs.get("t", 3)
    assert dirs.get("t", 9) is None
    assert dirs.directory_of(logs[1]) is dirs.dirs[1]
    assert dirs.directory_ids == IDS
    wanted = dirs.get_or_create("t", TOPIC_ID, 9, CONFIG, directory_id=IDS[0])
    assert wanted.directory == "/d1/t-9"


def test_a_clean_shutdown_and_start(node: Node) -> None:
    dirs, _ = node.start()
    logs = [create(dirs, partition=partition) for partition in range(3)]
    for log in logs:
        for number in range(10):
            append(log, produced(1, 0, number, size=50))
        log.advance_high_watermark(8)
    node.stop(dirs)
    assert node.disk.open_files == 0
    node.disk.crash()
    dirs, found = node.start()
    assert [directory.was_clean for directory in dirs.dirs] == [True, True]
    assert [directory.previous_epoch for directory in dirs.dirs] == [5, 5]
    assert [log.name for log in found.logs] == ["t-0", "t-2", "t-1"]
    for log in found.logs:
        assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (10, 8, 10)
        assert len(values(log)) == 10
    assert sorted(node.asked) == [("t", partition, TOPIC_ID) for partition in range(3)]


def test_a_crash_is_no_clean_shutdown_even_after_one(node: Node) -> None:
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.stop(dirs)
    dirs, _ = node.start()
    log = dirs.get("t", 0)
    assert log is not None
    append(log, batch())
    log.flush()
    node.run()
    append(log, batch())
    node.disk.crash()
    dirs, found = node.start()
    assert not dirs.dirs[0].was_clean
    assert [log.log_end_offset for log in found.logs] == [2]


def test_a_log_keeps_its_topic_id_if_it_was_never_flushed_before_a_crash(node: Node) -> None:
    """A kill, a flush in the next life, a power loss: the log was a stray's, without its id."""
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.disk.kill()
    dirs, _ = node.start()
    log = dirs.get("t", 0)
    assert log is not None
    log.flush()
    node.run()
    node.disk.crash()
    dirs, found = node.start()
    assert (found.strays, [log.log_end_offset for log in found.logs]) == ((), [1])


def test_the_recovery_point_spares_what_was_flushed(node: Node) -> None:
    dirs, _ = node.start()
    log = create(dirs)
    for _ in range(20):
        append(log, batch(size=100))
    log.flush()
    node.run()
    log.advance_high_watermark(20)
    log.delete_records(3)
    dirs.checkpoint()
    node.run()
    node.disk.kill()
    read: list[str] = []
    node.disk.on_operation = lambda operation, path: (
        read.append(path) if operation == "read_at" and path.endswith(".log") else None
    )
    _, found = node.start()
    node.disk.on_operation = None
    (log,) = found.logs
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 20, 20)
    assert {path.rpartition("/")[2] for path in read} == {
        f"{log.segments.active.base_offset:020d}.log"
    }


def test_deleted_logs_are_gone_at_once_and_their_directories_later(node: Node) -> None:
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch())
    assert dirs.delete("t", 0)
    assert dirs.get("t", 0) is None
    assert log.failed
    assert f"t-0.{TOKEN}-delete" in node.disk.listdir("/d1")
    again = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    assert again.log_end_offset == 0
    assert not dirs.delete("unknown", 0)
    node.pass_ms(999)
    assert f"t-0.{TOKEN}-delete" in node.disk.listdir("/d1")
    node.pass_ms(1)
    assert [name for name in node.disk.listdir("/d1") if name.startswith("t-")] == ["t-0"]
    assert node.disk.exists("/d1/t-0/partition.metadata")


def test_a_replica_that_comes_and_goes_twice(node: Node) -> None:
    dirs, _ = node.start()
    for _ in range(3):
        create(dirs)
        dirs.delete("t", 0)
    assert len([name for name in node.disk.listdir("/d1") if name.endswith("-delete")]) == 3
    node.pass_ms(1_000)
    assert not [name for name in node.disk.listdir("/d1") if name.startswith("t-")]


def test_deletions_left_by_a_crash_are_finished(node: Node) -> None:
    dirs, _ = node.start()
    create(dirs)
    dirs.delete("t", 0)
    node.disk.kill()
    _, found = node.start()
    assert found == LoadResult((), ())
    node.pass_ms(1_000)
    assert not [name for name in node.disk.listdir("/d1") if name.startswith("t-")]


@pytest.mark.parametrize("count", [40, 200])
def test_checkpoints_are_rewritten_once_for_many_deletions(node: Node, count: int) -> None:
    """KAFKA-10002, KAFKA-13815. However many steps they go in: each step wrote them all again."""
    dirs, _ = node.start()
    for partition in range(count):
        create(dirs, partition=partition)
    writes: list[str] = []
    node.disk.on_operation = lambda operation, path: (
        writes.append(path) if operation == "write_atomic" else None
    )
    for partition in range(count):
        dirs.delete("t", partition)
    for _ in range(10):
        node.pass_ms(1)
    assert sorted(writes) == [
        f"/d{number}/{name}"
        for number in (1, 2)
        for name in (
            "cleaner-offset-checkpoint",
            "log-start-offset-checkpoint",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
        )
    ]
    assert node.disk.read_bytes("/d1/recovery-point-offset-checkpoint") == b"0\n0\n"


def test_deleting_during_a_flush_takes_no_directory_offline() -> None:
    """KAFKA-15391, KAFKA-13403, KAFKA-5099."""
    workers = QueuedWorkers()
    node = Node(workers)
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch(), epoch=4)
    flushed = log.flush()
    dirs.delete("t", 0)
    fresh = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    node.disk.rmtree(f"/d1/t-0.{TOKEN}-delete")
    node.pass_ms(2_000)
    assert flushed.done
    assert len(dirs.online_dirs) == 2
    assert fresh.epochs.entries == ()
    assert not node.disk.exists("/d1/t-0/leader-epoch-checkpoint")


def test_a_vanished_directory_counts_as_deleted(node: Node) -> None:
    dirs, _ = node.start()
    create(dirs)
    node.disk.rmtree("/d1/t-0")
    assert dirs.delete("t", 0)
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2


def test_a_second_node_is_refused(node: Node) -> None:
    node.start()
    with pytest.raises(DirectoryRefused, match="lock"):
        node.start()


def test_a_refusal_gives_the_locks_back(node: Node) -> None:
    dirs = LogDirs(node.disk, node.env.workers, node.env.clock, node.env.timers, ["/d1", "/d2"])
    with pytest.raises(DirectoryRefused):
        dirs.acquire(node_id=2, cluster_id="c")
    dirs.acquire(node_id=1, cluster_id="c")


# --- failure ----------------------------------------------------------------------------


def test_a_failed_flush_takes_its_directory_and_no_other(node: Node) -> None:
    dirs, _ = node.start()
    lost = [create(dirs, partition=partition) for partition in (0, 1, 2)]
    notified: list[tuple[LogDir, list[PartitionLog]]] = []
    dirs.on_offline = lambda directory, logs: notified.append((directory, logs))
    for log in lost:
        append(log, batch())
    node.disk.fail("sync", path="/d1")
    lost[0].flush()
    node.run()
    assert [(directory.path, logs) for directory, logs in notified] == [("/d1", [lost[0], lost[2]])]
    assert [log.failed for log in lost] == [True, False, True]
    assert [directory.path for directory in dirs.online_dirs] == ["/d2"]
    assert isinstance(dirs.offline_dirs[0].error, OSError)
    assert [log.name for log in dirs.logs()] == ["t-1"]
    assert dirs.directory_ids == (IDS[1],)
    assert create(dirs, partition=4).directory == "/d2/t-4"
    append(lost[1], batch())


def test_a_note_under_way_when_its_directory_fails_does_not_vouch_for_it() -> None:
    workers = QueuedWorkers()
    node = Node(workers)
    dirs, _ = node.start()
    log = create(dirs)
    dirs.note_running(7, "monday")
    dirs.fail(log, OSError(errno.EIO, "broken"))
    workers.run()
    assert not any(node.disk.exists(f"{path}/{names.RUNNING}") for path in ("/d1", "/d2"))
    dirs.note_running(8, "monday")
    workers.run()
    assert not node.disk.exists(f"/d2/{names.RUNNING}")


def test_fail_returns_the_lost_logs_without_a_callback(node: Node) -> None:
    dirs, _ = node.start()
    logs = [create(dirs, partition=partition) for partition in (0, 1, 2)]
    dirs.on_offline = lambda directory, lost: pytest.fail("told twice")
    lost = dirs.fail(logs[2], OSError(errno.EIO, "broken"))
    assert lost == [logs[0], logs[2]]
    assert dirs.fail(logs[2], OSError(errno.EIO, "broken")) == [logs[2]]


def test_a_log_that_cannot_be_made_takes_its_directory_along(node: Node) -> None:
    """A full disk let a replica be without a log, and its broker serve, until a restart."""
    dirs, _ = node.start()
    kept = create(dirs)
    notified: list[LogDir] = []
    dirs.on_offline = lambda directory, logs: notified.append(directory)
    node.disk.fail("append", errno.ENOSPC, path="/d2")
    with pytest.raises(OSError):
        create(dirs, partition=1)
    assert notified == [], "the caller is applying a metadata update"
    node.pass_ms(0)
    assert [directory.path for directory in notified] == ["/d2"]
    assert create(dirs, partition=2).directory == "/d1/t-2"
    append(kept, batch())


@pytest.mark.parametrize("turn_is_over", [False, True])
def test_a_log_whose_creation_failed_midway_is_not_created_elsewhere(
    node: Node, turn_is_over: bool
) -> None:
    """The next start, with the directory mended, found two copies and refused to go on."""
    dirs, _ = node.start()
    for partition in (1, 2):
        create(dirs, partition=partition)
    node.disk.fail("open", errno.EIO, path="/d1/t-0/0000")
    with pytest.raises(OSError):
        create(dirs)
    if turn_is_over:
        node.pass_ms(0)
    node.disk.faults.clear()
    with pytest.raises(OSError, match="offline"):
        create(dirs)
    node.pass_ms(0)
    removed = remove_replicas(dirs, [(TOPIC_ID, 0)], {TOPIC_ID: "t"})
    node.run()
    assert isinstance(removed.value[TOPIC_ID, 0], OSError)
    node.disk.kill()
    _, found = node.start()
    assert found.problem is None


def test_a_log_that_a_power_loss_may_bring_back_is_created_in_the_same_directory() -> None:
    """Elsewhere, the start after the power loss found two copies and refused to go on."""
    node = Node(QueuedWorkers())
    dirs, _ = node.start()
    log = create(dirs)
    create(dirs, partition=1)
    append(log, batch(3))
    create(dirs, partition=3)
    dirs.delete("t", 1)
    node.pass_ms(1_000)
    dirs.delete("t", 0)
    dirs.get_or_create("u", OTHER_ID, 0, CONFIG, directory_id=IDS[0])
    assert create(dirs).directory == "/d1/t-0"
    node.disk.crash()
    _, found = node.start()
    assert found.problem is None


def test_an_offline_partition_is_not_created_elsewhere(node: Node) -> None:
    """KAFKA-16157 and KAFKA-16234, both ways: by id, not by name; and only what was there."""
    dirs, _ = node.start()
    log = create(dirs)
    dirs.fail(log, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="offline"):
        create(dirs)
    assert dirs.get_or_create("t", OTHER_ID, 0, CONFIG).directory == "/d2/t-0"
    assert create(dirs, partition=1).directory == "/d2/t-1"
    with pytest.raises(OSError, match="may be on an offline directory"):
        dirs.get_or_create("t", TOPIC_ID, 2, CONFIG, is_new=False)
    with pytest.raises(OSError, match="offline"):
        dirs.get_or_create("t", TOPIC_ID, 2, CONFIG, directory_id=IDS[0])


def test_an_offline_partition_that_is_reassigned_away_and_back_is_not_created_elsewhere(
    node: Node,
) -> None:
    """The next start, with the directory mended, found two copies and refused to go on."""
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch(3))
    dirs.fail(log, OSError(errno.EIO, "broken"))
    assert not dirs.delete("t", 0)
    with pytest.raises(OSError, match="offline"):
        create(dirs)
    node.disk.kill()
    _, found = node.start()
    assert found.problem is None
    assert [(log.directory, log.log_end_offset) for log in found.logs] == [("/d1/t-0", 3)]


@pytest.mark.parametrize("notified", [{"is_new": False}, {"directory_id": IDS[0]}])
def test_a_partition_that_a_start_could_not_find_is_not_created_elsewhere(
    node: Node, notified: dict[str, Any]
) -> None:
    dirs, _ = node.start()
    create(dirs)
    node.stop(dirs)
    node.disk.fail("listdir", path="/d1", times=None)
    dirs, _ = node.start()
    for how in (notified, {}):
        with pytest.raises(OSError, match="offline"):
            dirs.get_or_create("t", TOPIC_ID, 0, CONFIG, **how)
        dirs.delete("t", 0)
    assert dirs.get_or_create("t", OTHER_ID, 0, CONFIG).directory == "/d2/t-0"
    assert dirs.offline_topic_ids("t", 0) == {TOPIC_ID}


def test_a_directory_that_cannot_be_read_at_start_is_offline(node: Node) -> None:
    dirs, _ = node.start()
    create(dirs)
    create(dirs, partition=1)
    node.stop(dirs)
    node.disk.fail("listdir", path="/d1/t-0", times=None)
    dirs, found = node.start()
    assert [log.name for log in found.logs] == ["t-1"]
    assert [directory.path for directory in dirs.offline_dirs] == ["/d1"]
    with pytest.raises(OSError):
        create(dirs)


def test_no_directory_at_all(node: Node) -> None:
    node.disk.fail("read_bytes", path="meta.properties", times=None)
    with pytest.raises(OSError):
        node.start()


def test_all_directories_lost(node: Node) -> None:
    dirs, _ = node.start()
    for partition in (0, 1):
        dirs.fail(create(dirs, partition=partition), OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="all log directories are offline"):
        create(dirs, partition=7)
    node.stop(dirs)


def test_many_logs_are_closed_a_few_at_a_time() -> None:
    """Else the files of all would be open at once, beyond what a process may have."""
    node = Node(QueuedWorkers())
    dirs, _ = node.start(open_files_max=20)
    for number in range(500):
        append(create(dirs, partition=number), batch())
    node.disk.open_files_max = node.disk.open_files
    node.stop(dirs)
    assert node.disk.open_files_max <= 20 + 1, "a snapshot is written beside the cache"
    dirs, found = node.start()
    assert [directory.was_clean for directory in dirs.dirs] == [True, True]
    assert {log.log_end_offset for log in found.logs} == {1}


def test_a_log_with_many_unflushed_segments_is_flushed_in_parts_and_then_closed() -> None:
    node = Node(QueuedWorkers())
    dirs, _ = node.start(open_files_max=20)
    log = create(dirs)
    for _ in range(40):
        append(log, batch(size=300))
    assert len(log.segments) > 10
    node.disk.open_files_max = node.disk.open_files
    node.stop(dirs)
    assert node.disk.open_files_max <= 20 + 1
    assert node.disk.open_files == 0
    node.disk.crash()
    dirs, found = node.start()
    assert [directory.was_clean for directory in dirs.dirs] == [True, True]
    assert [log.log_end_offset for log in found.logs] == [40]
    assert len(values(found.logs[0])) == 40


def test_a_shortage_of_descriptors_takes_no_directory_offline(node: Node) -> None:
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch())
    node.disk.fail("write_atomic", errno.EMFILE)
    dirs.checkpoint_recovery_points()
    assert dirs.fail(log, OSError(errno.ENFILE, "none left")) == []
    node.disk.fail("rmtree", errno.EMFILE)
    dirs.delete("t", 0)
    node.pass_ms(1_000)
    assert dirs.online_dirs == dirs.dirs
    node.pass_ms(REMOVE_RETRY_MS)
    assert not [name for name in node.disk.listdir("/d1") if name.startswith("t-0")]


def test_a_directory_that_cannot_be_loaded_for_want_of_a_descriptor_is_offline(node: Node) -> None:
    """Its logs would else count as absent, and be created again."""
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.stop(dirs)
    node.disk.fail("listdir", errno.EMFILE, path="/d1")
    dirs, _ = node.start()
    assert [directory.path for directory in dirs.offline_dirs] == ["/d1"]
    with pytest.raises(OSError, match="may be on an offline directory"):
        dirs.get_or_create("t", TOPIC_ID, 0, CONFIG, is_new=False)


def test_a_directory_that_fails_at_the_end_is_not_clean(node: Node) -> None:
    dirs, _ = node.start()
    for partition in (0, 1):
        append(create(dirs, partition=partition), batch())
    node.disk.fail("sync", path="/d1")
    node.stop(dirs)
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")
    assert decode_clean_shutdown(node.disk.read_bytes("/d2/.kafka_cleanshutdown")) == -1
    assert node.disk.open_files == 0
    dirs, found = node.start()
    assert [directory.was_clean for directory in dirs.dirs] == [False, True]
    assert {log.name: log.log_end_offset for log in found.logs} == {"t-0": 1, "t-1": 1}


def test_a_directory_that_fails_while_its_logs_are_closed_ends_the_shutdown() -> None:
    """A checkpoint was being written as the broker began to stop, and its disk was full."""
    node = Node(QueuedWorkers())
    dirs, _ = node.start()
    for number in range(4 * LOGS_PER_STEP_MAX):
        append(create(dirs, partition=number), batch())
    node.run()
    node.disk.fail("write_atomic", path="/d1/")
    dirs.checkpoint_recovery_points()
    node.stop(dirs)
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")
    assert node.disk.exists("/d2/.kafka_cleanshutdown")
    assert node.disk.open_files == 0
    dirs, found = node.start()
    assert [directory.was_clean for directory in dirs.dirs] == [False, True]
    assert {log.log_end_offset for log in found.logs} == {1}


@pytest.mark.parametrize("operation", ["append", "write_at", "open", "write_atomic"])
def test_a_failure_to_prepare_the_end_is_not_clean_either(node: Node, operation: str) -> None:
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.disk.fail(operation, path="/d1/")
    node.stop(dirs)
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")
    assert node.disk.exists("/d2/.kafka_cleanshutdown")


def test_a_failed_removal_of_a_deleted_log_is_a_broken_disk(node: Node) -> None:
    dirs, _ = node.start()
    create(dirs)
    dirs.delete("t", 0)
    node.disk.fail("rmtree")
    node.pass_ms(1_000)
    assert [directory.path for directory in dirs.offline_dirs] == ["/d1"]


def test_a_failed_rename_is_the_callers_to_handle(node: Node) -> None:
    dirs, _ = node.start()
    log = create(dirs)
    node.disk.fail("rename")
    with pytest.raises(OSError):
        dirs.delete("t", 0)
    assert dirs.fail(log, OSError(errno.EIO, "broken")) == [log]


def test_a_truncation_writes_the_checkpoints(node: Node) -> None:
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch(3))
    append(log, batch(3))
    log.flush()
    node.run()
    dirs.checkpoint_recovery_points()
    node.run()
    assert node.disk.read_bytes("/d1/recovery-point-offset-checkpoint") == b"0\n1\nt 0 5\n"
    log.truncate_to(3)
    node.pass_ms(1)
    assert node.disk.read_bytes("/d1/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"


def test_each_checkpoint_by_itself(node: Node) -> None:
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch(3))
    log.advance_high_watermark(2)
    log.delete_records(1)
    for write, name, content in (
        (dirs.checkpoint_log_starts, "log-start-offset-checkpoint", b"0\n1\nt 0 1\n"),
        (dirs.checkpoint_high_watermarks, "replication-offset-checkpoint", b"0\n1\nt 0 2\n"),
        (dirs.checkpoint_recovery_points, "recovery-point-offset-checkpoint", b"0\n1\nt 0 0\n"),
    ):
        write()
        node.run()
        assert node.disk.read_bytes(f"/d1/{name}") == content


def test_a_log_that_is_held_back_is_out_of_use_until_the_next_start(node: Node) -> None:
    """Its directory keeps its name and checkpoint entries; the log directory stays online."""
    dirs, _ = node.start()
    for partition in range(3):
        append(create(dirs, partition=partition), batch())
    log = dirs.get("t", 0)
    assert log is not None
    log.flush()
    node.run()
    log.advance_high_watermark(1)
    dirs.take_log_offline(log, OSError(errno.EBADMSG, "damaged", log.directory))
    assert (dirs.get("t", 0), log.failed, len(dirs.online_dirs)) == (None, True, 2)
    with pytest.raises(NameTaken, match="damaged"):
        create(dirs)
    node.stop(dirs)
    dirs, found = node.start()
    assert len(found.logs) == 3
    log = dirs.get("t", 0)
    assert log is not None
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (1, 1, 0)
    was_clean = {each.path: each.was_clean for each in dirs.dirs}
    assert was_clean == {"/d1": False, "/d2": True}  # It was not flushed at the end.


def test_a_log_that_is_held_back_can_be_deleted(node: Node) -> None:
    dirs, _ = node.start()
    log = create(dirs)
    dirs.take_log_offline(log, OSError(errno.EBADMSG, "damaged", log.directory))
    removed = remove_replicas(dirs, [(TOPIC_ID, 0)], {TOPIC_ID: "t"})
    node.run()
    node.pass_ms(100)
    assert removed.value == {(TOPIC_ID, 0): None}
    node.pass_ms(1_000)
    assert not [name for name in node.disk.listdir("/d1") if name.startswith("t-")]
    assert create(dirs).log_end_offset == 0


def test_a_log_that_is_deleted_while_others_are_closed_does_not_stop_the_end() -> None:
    workers = QueuedWorkers()
    node = Node(workers)
    dirs, _ = node.start()
    for number in range(40):
        append(create(dirs, partition=number), batch())
    workers.run()
    stopped = dirs.shutdown()
    dirs.delete("t", 39)
    while workers.queue:
        workers.run()
        node.pass_ms(1_000)
    assert stopped.done
