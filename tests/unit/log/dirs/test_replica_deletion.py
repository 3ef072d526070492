"""A replica that is said to be removed never comes back, wherever it lay.

Method: two directories on a disk in memory, with workers that act at once and workers that wait;
after each removal the power goes and the node starts again, keeping every directory it still finds.
"""

import errno

import pytest

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.log import names
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dir import CHECKPOINTS
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.replica_deletion import Removed, remove_replicas
from ottla.log.names import PartitionDirKind
from ottla.testing.disk import Fault
from tests.unit.log.node import CONFIG, OTHER_ID, TOKEN, Node, create
from tests.unit.log.support import TOPIC_ID, InlineWorkers, QueuedWorkers, append, batch

T0 = (TOPIC_ID, 0)
WRITE = "write_atomic"


@pytest.fixture(params=[InlineWorkers, QueuedWorkers])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(request.param())


def remove(node: Node, dirs: LogDirs, *replicas: tuple[Uuid, int]) -> Removed:
    pending: Pending[Removed] = remove_replicas(dirs, replicas or (T0,))
    node.run()
    node.pass_ms(1)
    assert pending.done
    return pending.value


def filled(node: Node, dirs: LogDirs, partition: int = 0) -> None:
    log = create(dirs, partition=partition)
    append(log, batch(3))
    log.flush()
    node.run()


def restarted(node: Node) -> tuple[LogDirs, list[str]]:
    """Lose power and start; return the logs that are loaded and all other partition directories."""
    node.disk.crash()
    dirs, _ = node.start()
    found = [*node.disk.listdir("/d1"), *node.disk.listdir("/d2")]
    names = [name for name in found if name.startswith("t-")]
    return dirs, names


def test_an_open_log_is_removed_for_good(node: Node) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    assert remove(node, dirs) == {T0: None}
    assert dirs.get("t", 0) is None
    dirs, names = restarted(node)
    assert list(dirs.logs()) == []
    assert names == [f"t-0.{TOKEN}-delete"]
    node.pass_ms(1_000)
    assert not node.disk.exists(f"/d1/{names[0]}")


def test_a_stray_is_removed_by_its_id(node: Node) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    node.stop(dirs)
    dirs, found = node.start(lambda *_: Verdict.STRAY)
    assert found.strays == (f"t-0.{TOKEN}-stray",)
    assert remove(node, dirs) == {T0: None}
    _, names = restarted(node)
    assert names == [f"t-0.{TOKEN}-delete"]


def test_what_is_deleted_already_is_removed_durably(node: Node) -> None:
    """The rename of an ordinary deletion may not have reached the disk when it is asked about."""
    dirs, _ = node.start()
    filled(node, dirs)
    node.disk.sync_dir("/d1")
    dirs.delete("t", 0)
    assert remove(node, dirs) == {T0: None}
    dirs, names = restarted(node)
    assert list(dirs.logs()) == []
    assert names == [f"t-0.{TOKEN}-delete"]


def test_kafka_1397_what_is_not_here_counts_as_removed_and_so_does_a_second_request(
    node: Node,
) -> None:
    dirs, _ = node.start()
    assert remove(node, dirs) == {T0: None}
    filled(node, dirs)
    assert remove(node, dirs) == remove(node, dirs) == {T0: None}
    node.pass_ms(1_000)
    assert remove(node, dirs) == {T0: None}


def test_another_incarnation_and_another_partition_are_left_alone(node: Node) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    filled(node, dirs, partition=1)
    asked = ((OTHER_ID, 0), (TOPIC_ID, 7))
    assert remove(node, dirs, *asked) == dict.fromkeys(asked)
    assert [dirs.get("t", number) is not None for number in (0, 1)] == [True, True]


def test_a_new_topic_of_the_old_name_stays_while_the_old_one_s_stray_goes(node: Node) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    assert remove(node, dirs) == {T0: None}
    log = dirs.get("t", 0)
    assert log is not None
    assert log.topic_id == OTHER_ID
    _, names = restarted(node)
    assert [name for name in names if TOKEN in name] == [f"t-0.{TOKEN}-delete"]


def test_a_directory_without_a_topic_id_is_not_removed(node: Node) -> None:
    dirs, _ = node.start()
    node.disk.mkdir(f"/d1/t-0.{TOKEN}-stray")
    assert remove(node, dirs) == {T0: None}
    assert node.disk.exists(f"/d1/t-0.{TOKEN}-stray")


def test_files_and_other_directories_are_ignored(node: Node) -> None:
    """A core dump made every deletion fail for as long as it lay there."""
    dirs, _ = node.start()
    filled(node, dirs)
    node.disk.mkdir("/d1/lost+found")
    node.disk.write_atomic("/d1/core-1234", b"dump")
    node.disk.write_atomic("/d2/t-0", b"file")
    assert remove(node, dirs, T0, (OTHER_ID, 1234)) == {T0: None, (OTHER_ID, 1234): None}
    assert node.disk.read_bytes("/d1/core-1234") == b"dump"


def test_an_unreadable_directory_fails_only_replicas_not_found_elsewhere(
    node: Node,
) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    node.disk.mkdir("/d1/backup-0")
    node.disk.fail("read_bytes", errno.EACCES, path="/d1/backup-0", times=None)
    found = remove(node, dirs, T0, (OTHER_ID, 0), (OTHER_ID, 1))
    assert (found[T0], found[OTHER_ID, 1]) == (None, None)
    assert isinstance(found[OTHER_ID, 0], PermissionError)


@pytest.mark.parametrize("topic", ["t", "t" * 249])
@pytest.mark.parametrize(
    "kind", [PartitionDirKind.STRAY, PartitionDirKind.FUTURE, PartitionDirKind.LIVE]
)
def test_an_unreadable_directory_does_not_fail_topics_of_other_names(
    node: Node, topic: str, kind: PartitionDirKind
) -> None:
    """foo-0 on a disk that was not mounted held up the receipt of every topic's partition 0."""
    dirs, _ = node.start()
    name = names.partition_dir_name(topic, 0)
    if kind is not PartitionDirKind.LIVE:
        name = names.partition_dir_name_with_suffix(topic, 0, TOKEN, kind)
    node.disk.link(f"/d1/{name}", "/not-mounted/t-0")
    wanted = [(OTHER_ID, 0), (TOPIC_ID, 0), (OTHER_ID, 1)]
    topics = {OTHER_ID: topic, TOPIC_ID: "other"}
    pending = remove_replicas(dirs, wanted, topics)
    node.run()
    assert isinstance(pending.value.pop((OTHER_ID, 0)), FileNotFoundError)
    assert pending.value == {(TOPIC_ID, 0): None, (OTHER_ID, 1): None}
    pending = remove_replicas(dirs, wanted, {TOPIC_ID: "t" * 248})
    node.run()
    assert isinstance(pending.value[OTHER_ID, 0], FileNotFoundError), "whose name is not known"
    is_cut_alike = kind is not PartitionDirKind.LIVE and topic != "t"
    assert (pending.value[TOPIC_ID, 0] is not None) == is_cut_alike


def test_kafka_7313_what_may_lie_on_an_offline_directory_is_not_claimed(node: Node) -> None:
    """The same answer every time: after the first the marker of the lost log was gone, there."""
    dirs, _ = node.start()
    filled(node, dirs)
    log = create(dirs)
    filled(node, dirs, partition=1)  # On the other directory.
    dirs.fail(log, OSError(5, "broken"))
    dirs.delete("t", 0)
    for _ in range(2):
        assert isinstance(remove(node, dirs)[T0], OSError)
    assert remove(node, dirs, (TOPIC_ID, 1)) == {(TOPIC_ID, 1): None}


def test_a_replica_removed_from_an_online_directory_counts_whatever_another_one_holds(
    node: Node,
) -> None:
    """Also after its removal it is unknown whether the other log directory had a copy."""
    dirs, _ = node.start()
    filled(node, dirs)
    other = create(dirs, partition=1)
    dirs.delete("t", 0)
    dirs.fail(other, OSError(5, "broken"))
    for _ in range(2):
        assert remove(node, dirs) == {T0: None}
    node.pass_ms(1_000)
    assert isinstance(remove(node, dirs)[T0], OSError)


def test_what_came_back_and_is_lost_is_not_claimed_though_its_former_copy_left(
    node: Node,
) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    assert remove(node, dirs) == {T0: None}
    create(dirs, partition=1)
    log = create(dirs)
    assert log.directory == "/d2/t-0"
    dirs.fail(log, OSError(5, "broken"))
    dirs.delete("t", 0)
    assert isinstance(remove(node, dirs)[T0], OSError)


def test_replicas_renamed_before_the_start_are_known(node: Node) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    dirs.delete("t", 0)
    node.stop(dirs)
    dirs, _ = node.start()
    create(dirs, partition=1)
    dirs.fail(create(dirs, partition=2), OSError(5, "broken"))
    assert [each.path for each in dirs.offline_dirs] == ["/d2"]
    assert remove(node, dirs) == {T0: None}


def test_directories_that_wait_for_their_removal_are_not_read(node: Node) -> None:
    """A storm of deletions read the ids of all that had gone before, once a request."""
    dirs, _ = node.start()
    filled(node, dirs)
    filled(node, dirs, partition=2)
    assert remove(node, dirs) == {T0: None}
    unread = node.disk.fail("read_bytes", path="/d1/t-0.", times=None)
    assert remove(node, dirs, T0, (TOPIC_ID, 2)) == {T0: None, (TOPIC_ID, 2): None}
    assert unread.hits == 0


def test_a_node_without_a_working_directory_claims_nothing(node: Node) -> None:
    dirs, _ = node.start()
    for partition in (0, 1):
        dirs.fail(create(dirs, partition=partition), OSError(5, "broken"))
    assert isinstance(remove(node, dirs)[T0], OSError)


@pytest.mark.parametrize(
    ("operation", "path"),
    [("rename", "/d1/t-0"), ("sync_dir", "/d1"), ("listdir", "/d2")],
)
def test_a_disk_error_during_the_removal_is_the_result(
    node: Node, operation: str, path: str
) -> None:
    dirs, _ = node.start()
    filled(node, dirs)
    node.disk.faults.append(Fault(operation=operation, path=path, times=None))
    found = remove(node, dirs, T0, (TOPIC_ID, 9))
    elsewhere = operation == "listdir"
    assert (found[T0] is None) == elsewhere
    if operation != "rename":
        assert isinstance(found[TOPIC_ID, 9], OSError)


def traced(node: Node) -> list[tuple[str, str]]:
    """Return what is done to the disk from now on, as it comes: the operation and its path."""
    done: list[tuple[str, str]] = []
    node.disk.on_operation = lambda operation, path: done.append((operation, path))
    return done


@pytest.mark.parametrize("count", [1, 200])
def test_the_answer_comes_after_the_checkpoints_and_these_after_the_new_names(
    node: Node, count: int
) -> None:
    """With the answer a topic may take the name, and no start may take it for the one before."""
    dirs, _ = node.start()
    for partition in range(count):
        filled(node, dirs, partition)
    dirs.checkpoint()
    node.run()
    done = traced(node)
    ordered = remove_replicas(dirs, [(TOPIC_ID, partition) for partition in range(count)])
    ordered.then(lambda _: done.append(("answer", "")))
    for _ in range(10):
        node.pass_ms(1)
    assert set(ordered.value.values()) == {None}
    notified = done[: done.index(("answer", ""))]
    writes = [each for each in done if each[0] == "write_atomic"]
    concerned = ("/d1", "/d2")[:count]
    assert sorted(path for _, path in writes) == sorted(
        f"{path}/{name}" for path in concerned for name in CHECKPOINTS
    )
    assert set(writes) <= set(notified)
    for path in concerned:
        renamed = max(
            at for at, (what, on) in enumerate(notified) if what == "rename" and path in on
        )
        written = min(
            at for at, (what, on) in enumerate(notified) if (what, on[:3]) == (WRITE, path)
        )
        assert ("sync_dir", path) in notified[renamed:written]


def test_an_order_waits_for_checkpoints_that_are_being_written_already() -> None:
    """The metadata had the replica go a moment before, or the first answer was lost."""
    workers = QueuedWorkers()
    node = Node(workers)
    dirs, _ = node.start()
    filled(node, dirs)
    dirs.delete("t", 0)
    node.env.pass_ms(1)
    ordered = remove_replicas(dirs, [T0])
    done = traced(node)
    while not ordered.done:
        assert workers.run(1)
    assert [what for what, _ in done].count(WRITE) == len(CHECKPOINTS)
    node.pass_ms(10)
    assert [what for what, _ in done].count(WRITE) == len(CHECKPOINTS), "once is enough"


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_removed_replica_counts_though_a_checkpoint_cannot_be_written(
    node: Node, name: str
) -> None:
    """An error would be one until the disk is mended, and a deletion wait for it in vain."""
    dirs, _ = node.start()
    filled(node, dirs)
    filled(node, dirs, partition=1)
    filled(node, dirs, partition=2)
    log = create(dirs)
    log.advance_high_watermark(3)
    log.delete_records(2)
    dirs.checkpoint()
    node.run()
    node.disk.faults.append(Fault(operation=WRITE, path=f"/d1/{name}", times=None))
    assert remove(node, dirs) == {T0: None}
    assert [each.path for each in dirs.offline_dirs] == ["/d1"]
    assert isinstance(remove(node, dirs, (TOPIC_ID, 2))[TOPIC_ID, 2], OSError), "it lies there"
    node.disk.faults.clear()
    dirs, names = restarted(node)
    assert sorted(names) == [f"t-0.{TOKEN}-delete", "t-1", "t-2"]
    successor = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    append(successor, batch(1))
    dirs, _ = restarted(node)
    again = dirs.get("t", 0)
    assert again is None or (again.topic_id, again.log_start_offset) == (OTHER_ID, 0)


@pytest.mark.parametrize("times", [1, None], ids=["reported once", "reported always"])
def test_a_replica_that_may_come_back_is_not_reported_removed(
    node: Node, times: int | None
) -> None:
    """A disk reports an error once: a checkpoint write may get the one of the renames."""
    dirs, _ = node.start()
    filled(node, dirs)
    dirs.delete("t", 0)
    node.disk.faults.append(Fault(operation="sync_dir", path="/d1", times=times))
    node.env.pass_ms(1)
    assert isinstance(remove(node, dirs)[T0], OSError)


def test_a_replica_that_may_come_back_is_not_reported_removed_after_a_later_error() -> None:
    workers = QueuedWorkers()
    node = Node(workers)
    dirs, _ = node.start()
    filled(node, dirs)
    ordered = remove_replicas(dirs, [T0])
    node.run()
    assert not ordered.done
    node.disk.fail("sync_dir", path="/d1")
    node.pass_ms(1)
    assert isinstance(ordered.value[T0], OSError)


def test_what_goes_as_its_directory_fails_is_not_claimed_before_its_new_name_is_durable() -> None:
    """Another operation may have got the error of the rename, and this removal none."""
    workers = QueuedWorkers()
    node = Node(workers)
    dirs, _ = node.start()
    filled(node, dirs)
    filled(node, dirs, partition=1)
    filled(node, dirs, partition=2)
    ordered = remove_replicas(dirs, [T0])
    workers.run(2)
    dirs.fail(create(dirs, partition=2), OSError(5, "broken"))
    node.run()
    node.pass_ms(1)
    failure = ordered.value[T0]
    assert failure is not None
    assert failure not in [each.error for each in dirs.dirs], "that would be of what it never had"


def test_a_directory_whose_sync_has_failed_is_believed_no_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second fsync says that all is well, and writes nothing: the topic came back."""
    dirs, _ = node.start()
    notified: list[str] = []
    dirs.on_offline = lambda directory, logs: notified.append(directory.path)
    filled(node, dirs)
    filled(node, dirs, partition=1)
    node.disk.sync_dir("/d1")
    fault = node.disk.fail("sync_dir", path="/d1")
    sync_dir = node.disk.sync_dir
    monkeypatch.setattr(node.disk, "sync_dir", lambda path: None if fault.hits else sync_dir(path))
    for _ in range(2):
        assert isinstance(remove(node, dirs)[T0], OSError)
        assert notified == ["/d1"]
        node.pass_ms(1_000)
    assert dirs.get("t", 1) is not None
    monkeypatch.undo()
    dirs, names = restarted(node)
    assert "t-0" in names
    assert remove(node, dirs) == {T0: None}
    assert "t-0" not in restarted(node)[1]


def test_a_log_that_is_made_while_the_directories_are_searched_stays() -> None:
    """The partition came back to this node, by the metadata, between the search and its end."""
    workers = QueuedWorkers()
    node = Node(workers)
    dirs, _ = node.start()
    pending = remove_replicas(dirs, [T0])
    log = create(dirs)
    node.run()
    assert pending.value == {T0: None}
    assert dirs.get("t", 0) is log
    append(log, batch(1))


def test_mistakes_are_not_taken_for_broken_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(InlineWorkers())
    dirs, _ = node.start()

    def mistake(path: str) -> None:
        raise ZeroDivisionError(path)

    monkeypatch.setattr(node.disk, "sync_dir", mistake)
    with pytest.raises(ZeroDivisionError):
        remove(node, dirs)
