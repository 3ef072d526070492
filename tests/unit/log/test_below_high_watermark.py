"""A log that recovery leaves shorter than its checkpointed high watermark was not lost in silence.

Method: two directories on a disk in memory, whose notes say that nothing was lost in this boot;
bytes are flipped in a log between two lives.
"""

import errno

from ottla.log import names
from ottla.log.dirs.checkpoints import decode_running
from tests.unit.log.node import Node, create
from tests.unit.log.support import QueuedWorkers, append, produced

RECORDS, HIGH_WATERMARK = 6, 4


def left_behind(node: Node, *, clean: bool) -> list[int]:
    """Write a log whose high watermark is checkpointed; return where its batches begin."""
    dirs, _ = node.start()
    dirs.note_running(7, "monday")
    log = create(dirs)
    positions = []
    for number in range(RECORDS):
        positions.append(log.segments.active.size)
        append(log, produced(1, 0, number, size=10))
    log.advance_high_watermark(HIGH_WATERMARK)
    if clean:
        node.stop(dirs)
    else:
        dirs.checkpoint()
        node.run()
        node.disk.kill()
    assert len(log.segments) == 1
    return positions


def damage(node: Node, position: int) -> None:
    file = node.disk.open(f"/d1/t-0/{names.segment_name(0, names.LOG)}")
    file.write_at(position, b"?")
    file.close()


def noted(node: Node) -> list[int]:
    found = []
    for path in ("/d1", "/d2"):
        note = f"{path}/{names.RUNNING}"
        data = node.disk.read_bytes(note) if node.disk.exists(note) else b""
        found.append(decode_running(data, "monday"))
    return found


def test_a_cut_below_the_checkpointed_high_watermark_makes_the_shutdown_unclean() -> None:
    for clean in (False, True):
        node = Node()
        positions = left_behind(node, clean=clean)
        damage(node, positions[HIGH_WATERMARK - 1] + 30)
        if clean:  # What is looked at of a clean log is its headers.
            damage(node, positions[HIGH_WATERMARK - 1] + 16)
        dirs, _ = node.start()
        log = dirs.get("t", 0)
        assert log is not None
        assert log.log_end_offset == HIGH_WATERMARK - 1
        assert dirs.below_high_watermark == ["t-0"]
        assert noted(node) == [-1, 7]


def test_a_cut_above_it_is_a_torn_end() -> None:
    node = Node()
    positions = left_behind(node, clean=False)
    damage(node, positions[HIGH_WATERMARK] + 30)
    dirs, _ = node.start()
    log = dirs.get("t", 0)
    assert log is not None
    assert log.log_end_offset == HIGH_WATERMARK
    assert dirs.below_high_watermark == []
    assert noted(node) == [7, 7]


def test_a_log_whose_files_are_gone_lacks_everything() -> None:
    node = Node()
    left_behind(node, clean=False)
    for name in node.disk.listdir("/d1/t-0"):
        if name.startswith("0000"):
            node.disk.remove(f"/d1/t-0/{name}")
    dirs, _ = node.start()
    assert dirs.below_high_watermark == ["t-0"]


def test_the_next_start_finds_it_again_where_this_one_died_at_once() -> None:
    """The checkpoint shows the loss, and is not rewritten before the loss is reported."""
    node = Node(QueuedWorkers())
    positions = left_behind(node, clean=False)
    damage(node, positions[2] + 30)
    for _ in range(3):
        dirs, _ = node.start()
        assert dirs.below_high_watermark == ["t-0"]
        dirs.release()
        node.disk.kill()


def test_a_note_under_way_when_a_log_is_found_lacking_does_not_vouch_for_it() -> None:
    node = Node(QueuedWorkers())
    dirs, _ = node.start()
    directory = dirs.dirs[0]
    dirs.note_running(7, "monday")
    directory.note_below_high_watermark("t-0")
    node.run()
    assert noted(node) == [-1, 7]
    # A registration that has said so is vouched for again.
    dirs.note_running(8, "monday")
    node.run()
    assert noted(node) == [8, 8]


def test_a_note_that_cannot_be_removed_is_emptied() -> None:
    """The process may be started again in the same boot, when the disk takes writes again."""
    node = Node()
    dirs, _ = node.start()
    log = create(dirs)
    dirs.note_running(7, "monday")
    node.disk.fail("remove", path=names.RUNNING)
    dirs.fail(log, OSError(errno.EIO, "fsync"))
    assert noted(node) == [-1, -1]


def test_a_sync_that_fails_at_the_stop_takes_the_note() -> None:
    """No process is killed and no directory is offline: only `.ottla_running` shows this run."""
    node = Node()
    dirs, _ = node.start()
    log = create(dirs)
    dirs.note_running(7, "monday")
    append(log, produced(1, 0, 0, size=10))
    node.disk.fail("sync", path="/d1/t-0/")
    node.stop(dirs)
    assert not node.disk.exists(f"/d1/{names.CLEAN_SHUTDOWN}")
    assert node.disk.exists(f"/d2/{names.CLEAN_SHUTDOWN}")
    assert noted(node) == [-1, -1]
