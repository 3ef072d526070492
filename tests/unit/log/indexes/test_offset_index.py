"""The offset index: 8-byte entries, lookups, growth of its file.

Method: bytes by hand; lookups in memory and in the file against a plain search, for any entries.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.indexes import offset_index
from ottla.log.indexes.offset_index import OffsetIndex, OffsetPosition
from ottla.testing.disk import MemoryDisk, MemoryFile

ENTRIES = st.tuples(
    st.sets(st.integers(0, 400), max_size=40), st.sets(st.integers(0, 2**31 - 1), max_size=40)
).map(lambda both: list(zip(sorted(both[0]), sorted(both[1]), strict=False)))


def new_file() -> MemoryFile:
    disk = MemoryDisk()
    disk.mkdir("/d")
    return disk.open("/d/index", create=True)


def index_of(entries: list[tuple[int, int]], base: int = 1000) -> OffsetIndex:
    index = OffsetIndex(base, 10 << 20)
    for offset, position in entries:
        index.append(base + offset, position)
    return index


def test_bytes() -> None:
    file = new_file()
    index = index_of([(5, 0x0102), (2**31 - 1, 2**31 - 1)])
    index.write(file)
    assert file.read_at(0, 100) == bytes.fromhex("0000000500000102 7fffffff7fffffff")


def test_only_new_entries_are_written_and_stale_ones_cut() -> None:
    file = new_file()
    file.append((b"stale bytes of a former life",))
    index = index_of([(1, 10), (2, 20), (3, 30)])
    index.write(file)
    index.append(1004, 40)
    index.write(file)
    assert OffsetIndex.load(file.read_at(0, 1000), 1000, 800).last == OffsetPosition(1004, 40)
    index.truncate_to(1003)
    index.append(1007, 70)
    index.write(file)
    loaded = OffsetIndex.load(file.read_at(0, 1000), 1000, 800)
    assert [loaded.lookup(offset) for offset in (1002, 1006, 1007)] == [
        (1002, 20),
        (1002, 20),
        (1007, 70),
    ]
    assert file.size() == 24


def test_write_after_truncation_rewrites_the_changed_entries() -> None:
    file = new_file()
    index = index_of([(1, 10), (2, 20)])
    index.write(file)
    index.truncate_to(1002)
    index.append(1002, 15)
    index.write(file)
    assert file.read_at(0, 100) == bytes.fromhex("000000010000000a 000000020000000f")


def test_full() -> None:
    index = OffsetIndex(0, 20)
    assert not index.is_full
    index.append(1, 1)
    index.append(2, 2)
    assert index.is_full


@given(ENTRIES, st.integers(-1, 401))
def test_lookups_agree_with_a_plain_search(entries: list[tuple[int, int]], target: int) -> None:
    index = index_of(entries)
    file = new_file()
    index.write(file)
    below = [entry for entry in entries if entry[0] <= target]
    expected = (1000 + below[-1][0], below[-1][1]) if below else (1000, 0)
    assert index.lookup(1000 + target) == expected
    assert offset_index.search(file, 1000, 1000 + target) == expected
    last = (1000 + entries[-1][0], entries[-1][1]) if entries else (1000, 0)
    assert offset_index.last_entry(file, 1000) == index.last == last


@given(ENTRIES, st.integers(0, 401))
def test_truncation_drops_what_reaches_the_offset(
    entries: list[tuple[int, int]], target: int
) -> None:
    index = index_of(entries)
    index.truncate_to(1000 + target)
    assert len(index) == len([entry for entry in entries if entry[0] < target])
    file = new_file()
    index.write(file)
    assert OffsetIndex.load(file.read_at(0, 10_000), 1000, 800).last == index.last


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        bytes.fromhex("0000000500000102 0000000500000103"),
        bytes.fromhex("0000000500000102 0000000600000102"),
        bytes.fromhex("ffffffff00000102"),
        bytes.fromhex("0000000500000102 0000000000000000"),
    ],
)
def test_corruption(data: bytes) -> None:
    with pytest.raises(ValueError, match="offset index"):
        OffsetIndex.load(data, 0, 800)
