"""A directory that cannot be renamed or removed does not take its log directory offline.

Method: two log directories on a disk in memory with errors for single directories, with workers
that act at once and workers that wait; time is moved by hand.
"""

import errno

import pytest

from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.log.dirs.async_delete import REMOVE_RETRY_MS, REMOVE_RETRY_MS_MAX
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs, NameTaken
from ottla.log.dirs.replica_deletion import Removed, remove_replicas
from ottla.log.dirs.undeletable_dirs import DIRECTORY_SPECIFIC_ERRNOS, UndeletableDir
from tests.unit.log.node import CONFIG, OTHER_ID, TOKEN, Node, create
from tests.unit.log.support import TOPIC_ID, InlineWorkers, QueuedWorkers, append, batch

T0 = (TOPIC_ID, 0)
DELETED = f"/d1/t-0.{TOKEN}-delete"
REFUSED = sorted(DIRECTORY_SPECIFIC_ERRNOS)
OF_THE_DISK = (errno.EIO, errno.EROFS, errno.ENOSPC)


@pytest.fixture(params=[InlineWorkers, QueuedWorkers])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(request.param())


def filled(node: Node) -> LogDirs:
    """Return directories with a log in each, t-0 in the first."""
    dirs, _ = node.start()
    for partition in (0, 1, 2):
        log = create(dirs, partition=partition)
        append(log, batch(3))
        log.flush()
    node.run()
    assert log.directory == "/d1/t-2"
    return dirs


def remove(node: Node, dirs: LogDirs, *numbers: int) -> Removed:
    pending = remove_replicas(dirs, [(TOPIC_ID, each) for each in numbers], {TOPIC_ID: "t"})
    node.run()
    node.pass_ms(1)
    return pending.value


def offline(dirs: LogDirs) -> list[str]:
    return [directory.path for directory in dirs.offline_dirs]


# --- that cannot be removed ------------------------------------------------------------------


@pytest.mark.parametrize("number", [*REFUSED, errno.EMFILE])
def test_one_that_cannot_be_removed_is_tried_again_ever_more_seldom(
    node: Node, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of root's in it took the log directory offline, also after each start."""
    dirs = filled(node)
    fault = node.disk.fail("rmtree", number, path=DELETED, times=None)
    assert remove(node, dirs, 0, 2) == {T0: None, (TOPIC_ID, 2): None}
    node.pass_ms(1_000)
    assert (offline(dirs), fault.hits) == ([], 1)
    assert not node.disk.exists(f"/d1/t-2.{TOKEN}-delete"), "it waits for no other"
    for tries, pause_ms in ((2, REMOVE_RETRY_MS), (3, 2 * REMOVE_RETRY_MS)):
        node.pass_ms(pause_ms - 1)
        assert fault.hits == tries - 1
        node.pass_ms(1)
        assert fault.hits == tries
    assert remove(node, dirs, 0) == {T0: None}, "it is gone for everybody"
    warnings = [each for each in caplog.messages if each.startswith("Removing ")]
    assert len(warnings) == 1
    node.disk.faults.clear()
    node.pass_ms(4 * REMOVE_RETRY_MS)
    assert not node.disk.exists(DELETED)
    assert dirs.dirs[0].deleting == {}


def test_the_pauses_have_an_end(node: Node) -> None:
    dirs = filled(node)
    fault = node.disk.fail("rmtree", errno.EACCES, path=DELETED, times=None)
    dirs.delete("t", 0)
    node.pass_ms(1_000)
    for _ in range(20):
        tries = fault.hits
        node.pass_ms(REMOVE_RETRY_MS_MAX)
        assert fault.hits > tries


def test_one_that_cannot_be_removed_is_tried_again_by_the_next_start(node: Node) -> None:
    dirs = filled(node)
    fault = node.disk.fail("rmtree", errno.EBUSY, path=DELETED, times=None)
    dirs.delete("t", 0)
    node.pass_ms(1_000)
    node.stop(dirs)
    dirs, found = node.start()
    node.pass_ms(1_000)
    assert (len(found.logs), offline(dirs), fault.hits) == (2, [], 2)


@pytest.mark.parametrize("number", OF_THE_DISK)
def test_a_disk_that_fails_under_a_removal_is_offline(node: Node, number: int) -> None:
    dirs = filled(node)
    node.disk.fail("rmtree", number, path=DELETED)
    dirs.delete("t", 0)
    node.pass_ms(1_000)
    assert offline(dirs) == ["/d1"]
    assert isinstance(remove(node, dirs, 0)[T0], OSError), "its name may be back"


def test_what_a_worker_removed_from_a_disk_that_failed_meanwhile_may_be_back() -> None:
    """Neither its new name nor its end may be durable: only a start knows."""
    workers = QueuedWorkers()
    node = Node(workers)
    dirs = filled(node)
    dirs.delete("t", 0)
    node.env.pass_ms(1_000)
    dirs.dirs[0].fail(OSError(errno.EIO, "broken"))
    workers.run()
    assert not node.disk.exists(DELETED)
    assert set(dirs.dirs[0].deleting) == {T0}


# --- that cannot be moved --------------------------------------------------------------------

RENAMED = sorted(DIRECTORY_SPECIFIC_ERRNOS - {errno.ENOTEMPTY, errno.EEXIST})
"""The other two say of a rename that the new name is taken."""


@pytest.mark.parametrize("number", RENAMED)
def test_a_replica_that_cannot_be_renamed_fails_alone(node: Node, number: int) -> None:
    """A mount point in a log directory took that offline, once its topic was deleted."""
    dirs = filled(node)
    node.disk.fail("rename", number, path="/d1/t-0", times=None)
    for _ in range(2):
        found = remove(node, dirs, 0, 2)
        assert isinstance(found[T0], UndeletableDir)
        assert found[TOPIC_ID, 2] is None
    assert ([log.name for log in dirs.logs()], offline(dirs)) == (["t-1"], [])
    with pytest.raises(NameTaken):
        dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    node.disk.faults.clear()
    assert remove(node, dirs, 0) == {T0: None}
    assert dirs.get_or_create("t", OTHER_ID, 0, CONFIG).log_end_offset == 0
    node.disk.crash()
    _, result = node.start(lambda *_: Verdict.KEEP)
    assert TOPIC_ID not in {log.topic_id for log in result.logs if log.partition == 0}


def test_nor_do_its_files_stay_open(node: Node) -> None:
    dirs = filled(node)
    retired: list[str] = []
    dirs.on_log_removed = lambda log: retired.append(log.name)
    node.disk.fail("rename", errno.EBUSY, path="/d1/t-0", times=None)
    with pytest.raises(UndeletableDir):
        dirs.delete("t", 0)
    assert (retired, dirs.get("t", 0), dirs.offline_topic_ids("t", 0)) == (["t-0"], None, set())
    node.stop(dirs)
    assert node.disk.open_files == 0


@pytest.mark.parametrize("verdict", [Verdict.STRAY, Verdict.DELETE])
@pytest.mark.parametrize("number", RENAMED)
def test_a_start_leaves_what_it_cannot_move(node: Node, number: int, verdict: Verdict) -> None:
    """With a single log directory the node could not start any more."""
    node.stop(filled(node))
    fault = node.disk.fail("rename", number, path="/d1/t-0", times=None)
    dirs, found = node.start(lambda _topic, each, _id: Verdict.KEEP if each else verdict)
    assert (offline(dirs), fault.hits) == ([], 1)
    assert sorted(log.name for log in found.logs) == ["t-1", "t-2"]
    assert [error.filename for error in found.unusable] == ["/d1/t-0"]
    with pytest.raises(NameTaken):
        create(dirs)
    assert isinstance(remove(node, dirs, 0)[T0], UndeletableDir)
    node.disk.faults.clear()
    assert remove(node, dirs, 0) == {T0: None}
    node.pass_ms(1_000)
    assert not node.disk.exists(DELETED)


def test_a_stray_that_cannot_be_moved_stays_one(node: Node) -> None:
    node.stop(filled(node))
    dirs, _ = node.start(lambda _topic, each, _id: Verdict.KEEP if each else Verdict.STRAY)
    node.stop(dirs)
    stray = f"t-0.{TOKEN}-stray"
    node.disk.fail("rename", errno.EPERM, path=stray, times=None)
    dirs, found = node.start(lambda _topic, each, _id: Verdict.KEEP if each else Verdict.DELETE)
    assert (found.strays, offline(dirs)) == ((stray,), [])
    assert isinstance(remove(node, dirs, 0)[T0], UndeletableDir)
    assert create(dirs, partition=0).log_end_offset == 0, "the name itself is free"
    node.disk.faults.clear()
    assert remove(node, dirs, 0) == {T0: None}


def test_a_former_log_that_cannot_be_moved_refuses_the_new_one_alone(node: Node) -> None:
    dirs = filled(node)
    node.disk.fail("rename", errno.EACCES, path="/d1/t-0", times=None)
    for _ in range(2):
        with pytest.raises(UndeletableDir):
            dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
        node.pass_ms(1_000)
    assert offline(dirs) == []


def test_one_of_very_many_that_cannot_be_renamed_fails_alone(node: Node) -> None:
    """They are renamed in later steps, when the caller cannot get an error any more."""
    many = 2 * LOGS_PER_STEP_MAX
    dirs, _ = node.start()
    for partition in range(many):
        create(dirs, partition=partition)
    node.disk.fail("rename", errno.EACCES, path=f"/t-{many - 2}", times=None)
    pending = remove_replicas(dirs, [(TOPIC_ID, each) for each in range(many)])
    for _ in range(3):
        node.pass_ms(1)
    failed = [number for (_, number), error in pending.value.items() if error is not None]
    assert (failed, offline(dirs)) == ([many - 2], [])


@pytest.mark.parametrize("lies_as", ["log", "stray"])
@pytest.mark.parametrize("number", OF_THE_DISK)
def test_a_disk_that_fails_under_a_rename_is_offline(node: Node, number: int, lies_as: str) -> None:
    dirs = filled(node)
    if lies_as == "stray":
        dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    node.disk.fail("rename", number, path="/d1/t-0")
    for _ in range(2):
        assert isinstance(remove(node, dirs, 0)[T0], OSError)
        assert offline(dirs) == ["/d1"]
        assert TOPIC_ID in dirs.offline_topic_ids("t", 0)
