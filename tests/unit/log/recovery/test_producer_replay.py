"""The producer state from files: which snapshot is taken, what is replayed after it.

Method: snapshots that tell by their content that they were used.
"""

import pytest

from ottla.log.producers.producer_state import ProducerEntry, ProducerState
from ottla.log.recovery.producer_replay import (
    Extent,
    estimate_append_times,
    list_snapshots,
    prune_snapshots,
    rebuild_producers,
    remove_stray_snapshots,
    replay_batch,
    store_producers_before,
    write_snapshot,
)
from ottla.records.batch import parse_header
from ottla.records.control import ControlType, Marker, build_control
from ottla.testing.disk import MemoryDisk
from tests.unit.log.support import produced


def prepared() -> tuple[MemoryDisk, list[Extent]]:
    """Producer 1 writes offsets 0 to 9 in two segments; snapshot n knows producer 100 + n."""
    disk = MemoryDisk()
    disk.mkdir("/d")
    extents: list[Extent] = []
    for base in (0, 5):
        data = b"".join(
            bytes(produced(1, 0, offset, base_offset=offset)) for offset in range(base, base + 5)
        )
        disk.write_atomic(f"/d/{base:020d}.log", data)
        extents.append(Extent(base, len(data)))
    for offset in (2, 5, 8):
        entry = ProducerEntry(100 + offset, 0)
        write_snapshot(disk, "/d", offset, ProducerState("t-0", [entry]))
    return disk, extents


@pytest.mark.parametrize(
    ("end", "marker", "last"),
    [(1, None, 0), (2, 102, None), (4, 102, 3), (5, 105, None), (7, 105, 6), (10, 108, 9)],
)
def test_the_newest_snapshot_not_beyond_the_end(
    end: int, marker: int | None, last: int | None
) -> None:
    disk, extents = prepared()
    state = rebuild_producers(disk, "/d", "t-0", extents, end)
    known = set(state.entries) - {1}
    assert known == ({marker} if marker else set())
    assert (state.entries[1].last_offset if 1 in state.entries else None) == last


def test_a_damaged_snapshot_is_logged_and_removed_and_an_older_one_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, extents = prepared()
    disk.corrupt(f"/d/{8:020d}.snapshot", 10, b"\xff")
    disk.corrupt(f"/d/{5:020d}.snapshot", 10, b"\xff")
    state = rebuild_producers(disk, "/d", "t-0", extents, 10)
    assert set(state.entries) == {1, 102}
    assert list_snapshots(disk, "/d") == [2]
    assert [each.message.partition(";")[0] for each in caplog.records] == [
        f"t-0: {offset:020d}.snapshot is damaged (a producer snapshot's CRC does not match)"
        for offset in (8, 5)
    ]


def test_producers_of_deleted_records_are_lost_with_the_last_snapshot_and_that_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, extents = prepared()
    disk.corrupt(f"/d/{8:020d}.snapshot", 10, b"\xff")
    assert set(rebuild_producers(disk, "/d", "t-0", extents[1:], 10).entries) == {1, 105}
    assert "are not known" not in caplog.text
    disk.corrupt(f"/d/{5:020d}.snapshot", 10, b"\xff")
    assert set(rebuild_producers(disk, "/d", "t-0", extents[1:], 10).entries) == {1}
    assert "t-0: the producers before offset 5 are not known: no snapshot" in caplog.text


def test_a_snapshot_from_before_the_first_segment_is_not_used() -> None:
    """It is not known what its producers wrote in between."""
    disk, extents = prepared()
    disk.corrupt(f"/d/{5:020d}.snapshot", 10, b"\xff")
    state = rebuild_producers(disk, "/d", "t-0", extents[1:], 7)
    assert set(state.entries) == {1}
    assert rebuild_producers(disk, "/d", "t-0", [], 5).entries == {}


def test_the_producers_of_segments_that_are_to_be_removed_are_stored() -> None:
    disk, extents = prepared()
    disk.remove(f"/d/{5:020d}.snapshot")
    store_producers_before(disk, "/d", "t-0", extents[:1], 5)
    state = rebuild_producers(disk, "/d", "t-0", extents[1:], 5)
    assert set(state.entries) == {1, 102}
    assert state.entries[1].last_offset == 4


def test_a_snapshot_that_is_there_is_made_durable() -> None:
    disk, extents = prepared()
    acts: list[tuple[str, str]] = []
    disk.on_operation = lambda act, path: acts.append((act, path))
    store_producers_before(disk, "/d", "t-0", extents[:1], 5)
    assert acts[-2:] == [("sync", f"/d/{5:020d}.snapshot"), ("sync_dir", "/d")]
    assert set(rebuild_producers(disk, "/d", "t-0", extents[1:], 5).entries) == {105}


def test_segments_of_a_former_log_tell_nothing_of_the_producers() -> None:
    disk, extents = prepared()
    store_producers_before(disk, "/d", "t-0", extents[:1], 6)
    assert list_snapshots(disk, "/d") == [2, 5, 8]
    store_producers_before(disk, "/d", "t-0", [extents[0], Extent(6, 0)], 7)
    assert list_snapshots(disk, "/d") == [2, 5, 8]


def test_damaged_segments_tell_nothing_of_the_producers(caplog: pytest.LogCaptureFixture) -> None:
    disk, extents = prepared()
    disk.remove(f"/d/{5:020d}.snapshot")
    disk.corrupt(f"/d/{0:020d}.log", extents[0].size - 1, b"\xff")
    store_producers_before(disk, "/d", "t-0", extents[:1], 5)
    assert list_snapshots(disk, "/d") == [2, 8]
    assert "t-0: the producers before offset 5 are not known" in caplog.text


def test_snapshots_beyond_the_end_are_pruned() -> None:
    disk, _ = prepared()
    assert prune_snapshots(disk, "/d", 5) == [2, 5]
    assert list_snapshots(disk, "/d") == [2, 5]


@pytest.mark.parametrize(
    ("end", "left"), [(10, [5, 8]), (7, [5]), (4, [2]), (1, [])], ids=lambda value: str(value)
)
def test_of_the_snapshots_within_segments_the_latest_is_left(end: int, left: list[int]) -> None:
    disk, extents = prepared()
    assert remove_stray_snapshots(disk, "/d", extents, end) == left
    assert list_snapshots(disk, "/d") == left


def test_damaged_batches_end_the_replay() -> None:
    disk, extents = prepared()
    disk.corrupt(f"/d/{5:020d}.log", 16, b"\x09")
    state = rebuild_producers(disk, "/d", "t-0", extents, 10)
    assert set(state.entries) == {108}


def test_producers_are_dated_by_the_segment_that_their_last_batch_is_in() -> None:
    """For a deleted batch the first segment's time counts, for a marker alone the last one's."""
    now = [10]
    disk = MemoryDisk(now_ms=lambda: now[0])
    disk.mkdir("/d")
    for base in (5, 8, 20):
        disk.write_atomic(f"/d/{base:020d}.log", b"x")
        now[0] += 10
    state = ProducerState("t-0")
    for producer, offset in ((1, 3), (2, 7), (3, 8), (4, 19), (5, 20)):
        state.appended(parse_header(produced(producer, 0, 0, base_offset=offset)))
    state.appended(parse_header(produced(6, 0, 0, base_offset=9)), 7)
    marker = parse_header(produced(7, 0, -1, base_offset=9))
    state.marker_appended(marker, Marker(True, 0), 0)
    estimate_append_times(disk, "/d", [Extent(base, 1) for base in (5, 8, 20)], state, 25)
    dated = {producer: entry.appended_ms for producer, entry in state.entries.items()}
    assert dated == {1: 10, 2: 10, 3: 20, 4: 20, 5: 25, 6: 7, 7: 25}


def test_control_batches_that_are_no_markers_are_ignored() -> None:
    state = ProducerState("t-0")
    data = build_control(ControlType.LEADER_CHANGE, b"", timestamp=0)
    assert replay_batch(state, parse_header(data)._replace(producer_id=5), data, 0) is None
    assert not state.entries
