"""A damaged checkpoint is never passed over: it is logged, and nothing acknowledged is lost by it.

Method: a broker's two log directories on a disk in memory, stopped or killed; one checkpoint of
the first is damaged before the next start.
"""

import pytest

from ottla.log import names
from ottla.log.dirs.checkpoints import decode_running, encode_checkpoint
from ottla.log.dirs.damaged_checkpoints import CONSEQUENCES
from ottla.log.dirs.log_dir import ALL_CHECKPOINTS
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.partition_log import PartitionLog
from tests.unit.log.node import CONFIG, Node, create
from tests.unit.log.support import TOPIC_ID, append, produced, values

RECORDS, LOG_START = 12, 2
BOOT = "monday"
NEEDED = (names.LOG_STARTS, names.LOCAL_LOG_STARTS)


def left_behind(*, clean: bool) -> Node:
    """Return a node with a log of several segments that starts at 2, all of it committed."""
    node = Node()
    dirs, _ = node.start()
    dirs.note_running(7, BOOT)
    log = create(dirs)
    for number in range(RECORDS):
        append(log, produced(1, 0, number, size=10))
    log.advance_high_watermark(RECORDS)
    log.delete_records(LOG_START)
    assert len(log.segments) > 1
    log.flush()
    if clean:
        node.stop(dirs)
    else:
        dirs.checkpoint()
        node.disk.kill()
    return node


def damage(node: Node, name: str) -> str:
    """Damage a checkpoint of the first log directory; return its path."""
    path = f"/d1/{name}"
    node.disk.write_atomic(path, b"0\n1\nt 0 2\0\n")
    return path


def log_of(dirs: LogDirs) -> PartitionLog:
    log = dirs.get("t", 0)
    assert log is not None
    return log


def epochs(node: Node) -> list[int]:
    """Return the broker epoch of each log directory since which it has lost nothing."""
    found = [f"{path}/{names.RUNNING}" for path in ("/d1", "/d2")]
    return [
        decode_running(node.disk.read_bytes(path), BOOT) if node.disk.exists(path) else -1
        for path in found
    ]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelname == "ERROR"]


def test_each_checkpoint_has_a_consequence() -> None:
    assert CONSEQUENCES.keys() == set(ALL_CHECKPOINTS)


@pytest.mark.parametrize("name", ALL_CHECKPOINTS)
@pytest.mark.parametrize("clean", [True, False])
def test_damage_is_logged_with_its_reason_and_counted(
    name: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node = left_behind(clean=clean)
    path = damage(node, name)
    dirs, _ = node.start()
    (line,) = errors(caplog)
    assert line.startswith(f"{path} is damaged (an offset checkpoint's entry is no number: ")
    assert line.endswith(CONSEQUENCES[name])
    assert dirs.damaged_checkpoints == 1


@pytest.mark.parametrize(
    "entries",
    [("t 0 -5",), (f"t 0 {2**63}",), ("t -1 2",), (f"t {2**31} 2",), ("t 0 2", "t 0 9")],
    ids=["negative", "too large", "no partition", "no partition either", "two"],
)
def test_an_impossible_entry_is_damage(
    entries: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    node = left_behind(clean=True)
    node.disk.write_atomic(f"/d1/{names.LOG_STARTS}", encode_checkpoint(entries))
    dirs, _ = node.start()
    assert [each.path for each in dirs.offline_dirs] == ["/d1"]
    assert f"{entries[-1]})" in errors(caplog)[0]


@pytest.mark.parametrize("name", ALL_CHECKPOINTS)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_missing_or_empty_checkpoint_is_not_damaged(
    name: str, is_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node = left_behind(clean=False)
    node.disk.remove(f"/d1/{name}")
    if is_there:
        node.disk.write_atomic(f"/d1/{name}", b"")
    dirs, _ = node.start()
    assert log_of(dirs).log_end_offset == RECORDS
    assert dirs.below_high_watermark == []
    assert errors(caplog) == []


@pytest.mark.parametrize("name", [names.RECOVERY_POINTS, names.CLEANER_OFFSETS])
def test_without_recovery_points_or_cleaner_offsets_more_is_read(name: str) -> None:
    node = left_behind(clean=False)
    damage(node, name)
    read: list[str] = []
    node.disk.on_operation = lambda act, path: read.append(path) if act == "read_at" else None
    dirs, _ = node.start()
    node.disk.on_operation = None
    log = log_of(dirs)
    first = log.segments[0].path(names.LOG)
    assert (first in read) == (name == names.RECOVERY_POINTS)
    assert [offset for offset, _ in values(log)] == list(range(LOG_START, RECORDS))
    assert (log.clean_offset, dirs.below_high_watermark) == (0, [])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_without_high_watermarks_only_a_clean_shutdown_shows_that_nothing_was_lost(
    clean: bool, lost: bool
) -> None:
    node = left_behind(clean=clean)
    damage(node, names.HIGH_WATERMARKS)
    if lost:
        *_, last = sorted(each for each in node.disk.listdir("/d1/t-0") if each.endswith(".log"))
        file = node.disk.open(f"/d1/t-0/{last}")
        file.truncate(file.size() - 1)
        file.close()
    before = epochs(node)
    dirs, _ = node.start()
    assert log_of(dirs).log_end_offset == RECORDS - lost
    if clean and not lost:
        assert (dirs.below_high_watermark, epochs(node)) == ([], before)
    else:
        assert (dirs.below_high_watermark, epochs(node)) == (["t-0"], [-1, before[1]])


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("clean", [True, False])
def test_without_log_starts_the_log_directory_is_offline_until_they_are_repaired(
    name: str, clean: bool
) -> None:
    node = left_behind(clean=clean)
    path = f"/d1/{name}"
    sound = node.disk.read_bytes(path) if node.disk.exists(path) else b""
    damage(node, name)
    damaged = node.disk.read_bytes(path)
    dirs, found = node.start()
    assert found.logs == ()
    assert [each.path for each in dirs.online_dirs] == ["/d2"]
    with pytest.raises(OSError, match="is offline"):
        dirs.get_or_create("t", TOPIC_ID, 0, CONFIG, is_new=False)
    with pytest.raises(OSError, match="is offline"):  # Its id shows that it is there.
        create(dirs)
    node.pass_ms(100_000)
    node.stop(dirs)
    assert node.disk.read_bytes(path) == damaged
    node.disk.write_atomic(path, sound)
    dirs, _ = node.start()
    assert dirs.dirs[0].was_clean == clean
    log = log_of(dirs)
    assert [offset for offset, _ in values(log)] == list(range(LOG_START, RECORDS))
    assert (log.log_start_offset, dirs.below_high_watermark) == (LOG_START, [])
