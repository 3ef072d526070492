"""Symbolic links to other disks, and foreign directories, in a log directory.

Method: links on a disk in memory to where a disk is mounted, bare or gone; directories that may not
be read; with workers that act at once and with workers that wait.
"""

import errno

import pytest

from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs, NameTaken
from ottla.log.dirs.replica_deletion import Removed, remove_replicas
from tests.unit.log.node import CONFIG, OTHER_ID, TOKEN, Node, create
from tests.unit.log.support import TOPIC_ID, InlineWorkers, QueuedWorkers, append, batch

T0 = (TOPIC_ID, 0)
ZEROS = "0" * 32
FIRST = "00000000000000000000.log"


@pytest.fixture(params=[InlineWorkers, QueuedWorkers])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(request.param())


def mount(node: Node, *, mounted: bool = True) -> None:
    """Put the other disk where the link leads, or take it away from there."""
    if mounted:
        node.disk.rmtree("/mnt")
    node.disk.rename(*(("/shelf", "/mnt") if mounted else ("/mnt", "/shelf")))
    if not mounted:
        node.disk.mkdir("/mnt")


def linked(node: Node, target: str = "/mnt/t-0") -> None:
    """Leave a log of three records whose directory is a link, with no process running."""
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch(3))
    log.flush()
    node.run()
    log.advance_high_watermark(3)
    log.delete_records(1)
    node.stop(dirs)
    node.disk.mkdir("/mnt")
    node.disk.rename("/d1/t-0", target)
    node.disk.link("/d1/t-0", target)


def remove(node: Node, dirs: LogDirs) -> Removed:
    pending = remove_replicas(dirs, [T0])
    node.run()
    node.pass_ms(1)
    return pending.value


@pytest.mark.parametrize("target", ["/mnt", "/mnt/t-0"], ids=["bare", "nowhere"])
@pytest.mark.parametrize("verdict", [Verdict.KEEP, Verdict.STRAY, Verdict.DELETE])
def test_a_disk_that_is_mounted_late_keeps_its_records(
    node: Node, target: str, verdict: Verdict
) -> None:
    """The bare mount point was taken for an empty directory, and emptied once it was mounted."""
    linked(node, target)
    mount(node, mounted=False)
    node.disk.mkdir("/mnt/lost+found")
    dirs, found = node.start(lambda *_: verdict)
    assert (found.logs, found.strays) == ((), ())
    assert [error.filename for error in found.unusable] == ["/d1/t-0"]
    mount(node)
    node.pass_ms(1_000_000)
    assert node.disk.size(f"{target}/{FIRST}") > 0
    node.stop(dirs)
    _, found = node.start()
    assert [(log.log_start_offset, log.log_end_offset) for log in found.logs] == [(1, 3)]
    assert found.unusable == ()


@pytest.mark.parametrize("target", ["/mnt", "/mnt/t-0"], ids=["bare", "nowhere"])
def test_no_second_copy_is_created_while_the_first_may_be_on_an_unmounted_disk(
    node: Node, target: str
) -> None:
    linked(node, target)
    mount(node, mounted=False)
    dirs, _ = node.start()
    for directory in dirs.dirs:
        with pytest.raises(NameTaken):
            dirs.get_or_create("t", TOPIC_ID, 0, CONFIG, directory_id=directory.directory_id)
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2
    assert create(dirs, partition=1).log_end_offset == 0
    assert node.disk.is_link("/d1/t-0")


@pytest.mark.parametrize("target", ["/mnt", "/mnt/t-0"], ids=["bare", "nowhere"])
def test_a_replica_that_may_be_on_an_unmounted_disk_is_not_reported_removed(
    node: Node, target: str
) -> None:
    linked(node, target)
    mount(node, mounted=False)
    dirs, _ = node.start()
    assert isinstance(remove(node, dirs)[T0], FileNotFoundError)
    mount(node)
    assert remove(node, dirs) == {T0: None}
    # The name is free, though the start did not know whose it was.
    log = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    dirs.checkpoint()
    node.pass_ms(1_000)
    assert node.disk.read_bytes(f"/d1/{names.LOG_STARTS}").endswith(b"\nt 0 0\n")
    assert (log.directory, node.disk.listdir(target)) == ("/d1/t-0", [])


def test_of_a_linked_disk_only_the_logs_own_files_are_removed(node: Node) -> None:
    """Its root's lost+found took the log directory offline, also after each start."""
    linked(node, "/mnt")
    node.disk.mkdir("/mnt/lost+found")
    node.disk.write_atomic("/mnt/notes.txt", b"people's")
    node.disk.write_atomic(f"/mnt/{FIRST}.deleted", b"")
    dirs, _ = node.start()
    assert remove(node, dirs) == {T0: None}
    node.disk.mkdir("/mnt/00000000000000000007.log")
    kept = node.disk.fail("remove", errno.EACCES, path=".timeindex")
    node.pass_ms(1_000)
    assert kept.hits == 1
    assert len(dirs.online_dirs) == 2
    assert [name for name in node.disk.listdir("/d1") if name.startswith("t-0")] == []
    left = ["00000000000000000000.timeindex", "00000000000000000007.log", "lost+found", "notes.txt"]
    assert node.disk.listdir("/mnt") == left


def test_a_link_goes_though_the_disk_that_it_leads_to_was_taken_away(node: Node) -> None:
    linked(node)
    dirs, _ = node.start()
    dirs.delete("t", 0)
    mount(node, mounted=False)
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2
    assert not node.disk.is_link(f"/d1/t-0.{TOKEN}-delete")
    assert node.disk.listdir("/mnt") == []


def test_a_link_that_was_to_go_waits_for_its_disk(node: Node) -> None:
    """Else the bytes of a deleted topic would lie there for good."""
    linked(node)
    dirs, _ = node.start()
    dirs.delete("t", 0)
    node.stop(dirs)
    node.env.timers = Timers()
    mount(node, mounted=False)
    dirs, found = node.start()
    node.pass_ms(1_000)
    assert len(found.unusable) == 1
    node.stop(dirs)
    mount(node)
    node.start()
    node.pass_ms(1_000)
    assert node.disk.listdir("/mnt/t-0") == []
    assert [name for name in node.disk.listdir("/d1") if name.startswith("t-0")] == []


@pytest.mark.parametrize("is_link", [True, False], ids=["link", "directory"])
@pytest.mark.parametrize("taken", ["directory", "link", "dangling link"])
def test_a_name_that_is_taken_by_a_link_or_directory_is_skipped(
    node: Node, taken: str, is_link: bool
) -> None:
    """A linked log could not be deleted, or took the place of another link."""
    if is_link:
        linked(node)
    dirs, _ = node.start()
    create(dirs)
    name = f"/d1/t-0.{TOKEN}-delete"
    if taken == "directory":
        node.disk.mkdir(f"{name}/below")
    else:
        node.disk.mkdir("/other")
        node.disk.link(name, "/other" if taken == "link" else "/nowhere")
    assert remove(node, dirs) == {T0: None}
    assert len([each for each in node.disk.listdir("/d1") if each.endswith("-delete")]) == 2
    assert node.disk.is_link(name) == (taken != "directory")


def test_a_log_is_checked_after_a_crash_though_its_disk_was_not_mounted_at_the_next_start(
    node: Node,
) -> None:
    """The clean stop of the life in between did not mean that log."""
    linked(node)
    node.start()
    file = node.disk.open(f"/mnt/t-0/{FIRST}")
    file.append((b"torn",))
    file.close()
    node.disk.kill()
    mount(node, mounted=False)
    dirs, _ = node.start()
    node.stop(dirs)
    mount(node)
    size = node.disk.size(f"/mnt/t-0/{FIRST}")
    dirs, found = node.start()
    assert [log.log_end_offset for log in found.logs] == [3]
    assert node.disk.size(f"/mnt/t-0/{FIRST}") == size - len(b"torn")
    assert [directory.was_clean for directory in dirs.dirs] == [False, True]


def test_a_clean_stop_stays_one_for_a_log_whose_disk_is_not_mounted(node: Node) -> None:
    linked(node)
    mount(node, mounted=False)
    for _ in range(2):
        dirs, _found = node.start()
        assert [directory.was_clean for directory in dirs.dirs] == [True, True]
        node.stop(dirs)


def test_a_linked_log_whose_id_is_damaged_is_a_stray_like_any_other(node: Node) -> None:
    linked(node)
    node.disk.write_atomic(f"/mnt/t-0/{names.PARTITION_METADATA}", b"")
    dirs, found = node.start()
    assert found.strays == (f"t-0.{ZEROS}-stray",)
    assert create(dirs).log_end_offset == 0
    assert node.disk.size(f"/mnt/t-0/{FIRST}") > 0


def test_what_was_empty_at_the_start_stays_if_anything_has_come_into_it(node: Node) -> None:
    node.disk.mkdir("/d1/t-0")
    dirs, found = node.start()
    assert found.strays == ()
    stray = f"t-0.{ZEROS}-stray"
    node.disk.write_atomic(f"/d1/{stray}/{FIRST}", bytes(batch()))
    node.pass_ms(1_000)
    assert dirs.dirs[0].strays == {stray}
    assert dirs.dirs[0].deleting == {}
    node.stop(dirs)
    _, found = node.start()
    node.pass_ms(1_000)
    assert found.strays == (stray,)
    assert node.disk.size(f"/d1/{stray}/{FIRST}") > 0


def test_the_same_where_the_node_dies_before_it_looks_again(node: Node) -> None:
    node.disk.mkdir("/d1/t-0")
    node.start()
    stray = f"t-0.{ZEROS}-stray"
    node.disk.write_atomic(f"/d1/{stray}/{FIRST}", bytes(batch()))
    node.disk.kill()
    node.env.timers = Timers()
    _, found = node.start()
    node.pass_ms(1_000_000)
    assert found.strays == (stray,)
    assert node.disk.size(f"/d1/{stray}/{FIRST}") > 0


def test_what_was_empty_at_the_start_may_have_gone_since(node: Node) -> None:
    node.disk.mkdir("/d1/t-0")
    dirs, _ = node.start()
    node.disk.rmtree(f"/d1/t-0.{ZEROS}-stray")
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2
    assert [each.strays for each in dirs.dirs] == [set(), set()]


# --- foreign directories -------------------------------------------------------------------


def test_an_unreadable_directory_is_left_alone(node: Node) -> None:
    """It took the log directory offline at each start, with all its logs."""
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.stop(dirs)
    node.disk.mkdir("/d1/backup-2024")
    for operation in ("read_bytes", "exists"):
        node.disk.fail(operation, errno.EACCES, path="/d1/backup-2024/", times=None)
    dirs, found = node.start()
    assert [log.name for log in found.logs] == ["t-0"]
    assert [(type(error), error.filename) for error in found.unusable] == [
        (PermissionError, "/d1/backup-2024")
    ]
    with pytest.raises(NameTaken):
        create(dirs, "backup", 2024)
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2
    assert node.disk.exists("/d1/backup-2024")
    node.stop(dirs)
    dirs, _ = node.start()
    assert [directory.was_clean for directory in dirs.dirs] == [True, True]


@pytest.mark.parametrize("operation", ["listdir", "read_bytes"])
def test_one_that_is_not_a_log_s_and_not_for_all_to_read_is_a_stray(
    node: Node, operation: str
) -> None:
    node.disk.mkdir("/d1/backup-2024")
    node.disk.write_atomic("/d1/backup-2024/partition.metadata", b"")
    node.disk.fail(operation, errno.EACCES, path="/d1/backup-2024", skip=operation == "read_bytes")
    dirs, found = node.start()
    assert found.strays == (f"backup-2024.{ZEROS}-stray",)
    assert len(dirs.online_dirs) == 2


def test_one_with_a_link_that_leads_nowhere_is_a_stray(node: Node) -> None:
    node.disk.mkdir("/d1/backup-2024")
    node.disk.link(f"/d1/backup-2024/{FIRST}", "/nowhere")
    dirs, found = node.start()
    assert found.strays == (f"backup-2024.{ZEROS}-stray",)
    assert len(dirs.online_dirs) == 2


@pytest.mark.parametrize("operation", ["listdir", "read_bytes"])
def test_an_unreadable_log_directory_is_offline(node: Node, operation: str) -> None:
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.stop(dirs)
    path = "/d1" if operation == "listdir" else "/d1/."
    node.disk.fail(operation, errno.EACCES, path=path, times=None)
    dirs, found = node.start()
    assert found.logs == ()
    assert [directory.path for directory in dirs.offline_dirs] == ["/d1"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ELOOP])
def test_an_error_of_a_linked_disk_does_not_take_the_log_directory_offline(
    node: Node, number: int
) -> None:
    linked(node)
    for operation in ("read_bytes", "exists"):
        node.disk.fail(operation, number, path="/d1/t-0/")
    dirs, found = node.start()
    assert [error.errno for error in found.unusable] == [number]
    assert len(dirs.online_dirs) == 2


def test_an_error_of_a_disk_that_was_linked_meanwhile_refuses_that_log_alone(node: Node) -> None:
    dirs, _ = node.start()
    node.disk.link("/d1/t-0", "/mnt/t-0")
    for operation in ("read_bytes", "exists"):
        node.disk.fail(operation, path="/d1/t-0", times=None)
    with pytest.raises(NameTaken):
        create(dirs)
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2


def test_an_io_error_in_a_partition_directory_takes_the_log_directory_offline(node: Node) -> None:
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.stop(dirs)
    node.disk.fail("read_bytes", errno.EIO, path="/d1/t-0/")
    dirs, _ = node.start()
    assert [directory.path for directory in dirs.offline_dirs] == ["/d1"]


def test_a_file_in_a_log_s_place_refuses_that_log_alone(node: Node) -> None:
    """It took the log directory offline."""
    dirs, _ = node.start()
    node.disk.write_atomic("/d1/t-0", b"notes")
    with pytest.raises(NameTaken):
        create(dirs)
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2
    assert node.disk.read_bytes("/d1/t-0") == b"notes"


def test_a_link_that_leads_nowhere_refuses_that_log_alone(node: Node) -> None:
    dirs, _ = node.start()
    node.disk.link("/d1/t-0", "/nowhere")
    with pytest.raises(NameTaken):
        create(dirs)
    node.pass_ms(1_000)
    assert len(dirs.online_dirs) == 2
    assert node.disk.is_link("/d1/t-0")
