"""The time index: 12-byte entries of strictly growing timestamps.

Method: bytes by hand; lookups in memory and in the file against a plain search, for any entries.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.indexes import time_index
from ottla.log.indexes.time_index import TimeIndex, TimestampOffset
from ottla.testing.disk import MemoryDisk, MemoryFile

OFFERED = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), max_size=40).map(
    lambda pairs: list(zip((pair[0] for pair in pairs), sorted(pair[1] for pair in pairs)))  # noqa: B905
)


def new_file() -> MemoryFile:
    disk = MemoryDisk()
    disk.mkdir("/d")
    return disk.open("/d/timeindex", create=True)


def index_of(offered: list[tuple[int, int]], base: int = 1000) -> TimeIndex:
    index = TimeIndex(base, 10 << 20)
    for timestamp, offset in offered:
        index.maybe_append(timestamp, base + offset)
    return index


def taken(offered: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The entries that grow: a plain description of the rule."""
    entries: list[tuple[int, int]] = []
    for entry in offered:
        if not entries or entry[0] > entries[-1][0]:
            entries.append(entry)
    return entries


def test_bytes() -> None:
    file = new_file()
    index_of([(1, 2), (0x0102030405060708, 2**31 - 1)]).write(file)
    assert file.read_at(0, 100) == bytes.fromhex(
        "0000000000000001 00000002 0102030405060708 7fffffff"
    )


def test_timestamps_that_do_not_grow_are_passed_over() -> None:
    index = index_of([(5, 1), (5, 2), (4, 3), (6, 4)])
    assert len(index) == 2
    assert index.last == TimestampOffset(6, 1004)


def test_no_timestamp_is_no_entry() -> None:
    index = index_of([(-1, 3)])
    assert len(index) == 0
    assert index.last == TimestampOffset(-1, 1000)


def test_full_leaves_room_for_the_last_entry() -> None:
    index = TimeIndex(0, 36)
    index.maybe_append(1, 1)
    assert not index.is_full
    index.maybe_append(2, 2)
    assert index.is_full
    index.maybe_append(3, 3)
    assert len(index) == 3


@given(OFFERED, st.integers(-1, 51))
def test_lookups_agree_with_a_plain_search(offered: list[tuple[int, int]], target: int) -> None:
    index = index_of(offered)
    file = new_file()
    index.write(file)
    entries = taken(offered)
    below = [entry for entry in entries if entry[0] <= target]
    expected = (below[-1][0], 1000 + below[-1][1]) if below else (-1, 1000)
    assert index.lookup(target) == expected
    assert time_index.search(file, 1000, target) == expected
    assert time_index.last_entry(file, 1000) == index.last


@given(OFFERED, st.integers(0, 401))
def test_truncation_and_rewriting(offered: list[tuple[int, int]], target: int) -> None:
    index = index_of(offered)
    file = new_file()
    index.write(file)
    index.truncate_to(1000 + target)
    kept = [entry for entry in taken(offered) if entry[1] < target]
    assert len(index) == len(kept)
    index.maybe_append(99, 1000 + 401)
    index.write(file)
    assert TimeIndex.load(file.read_at(0, 10_000), 1000, 800).last == TimestampOffset(99, 1401)
    assert file.size() == 12 * (len(kept) + 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 11,
        bytes.fromhex("0000000000000005 00000001 0000000000000005 00000002"),
        bytes.fromhex("0000000000000005 00000002 0000000000000006 00000001"),
        bytes.fromhex("0000000000000005 00000002 0000000000000000 00000000"),
        bytes.fromhex("0000000000000005 ffffffff"),
    ],
)
def test_corruption(data: bytes) -> None:
    with pytest.raises(ValueError, match="time index"):
        TimeIndex.load(data, 0, 800)
