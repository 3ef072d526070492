"""What both indexes of a segment have in common: entries, and a file that may be cut while read.

Method: both classes over a file in memory. Lookups, truncation and corrupt files are tested with
each of them, in `test_offset_index` and `test_time_index`.
"""

from struct import Struct

import pytest

from ottla.log.indexes.offset_index import OffsetIndex
from ottla.log.indexes.sparse_index import RELATIVE_OFFSET_MAX, last_of_file, search_file
from ottla.log.indexes.time_index import TimeIndex
from ottla.testing.disk import MemoryDisk, MemoryFile

ENTRY = Struct(">ii")


def file_of(*pairs: tuple[int, int]) -> MemoryFile:
    disk = MemoryDisk()
    disk.mkdir("/d")
    file = disk.open("/d/index", create=True)
    file.append([ENTRY.pack(*pair) for pair in pairs])
    return file


def test_entries_are_relative_and_in_order() -> None:
    offsets, times = OffsetIndex(100, 800), TimeIndex(100, 800)
    offsets.append(103, 40)
    offsets.append(107, 90)
    times.maybe_append(5_000, 103)
    times.maybe_append(6_000, 103)
    assert offsets.entries() == [(3, 40), (7, 90)]
    assert times.entries() == [(5_000, 3), (6_000, 3)]


@pytest.mark.parametrize("offset", [99, 100 + RELATIVE_OFFSET_MAX + 1])
def test_an_offset_must_fit_the_entry(offset: int) -> None:
    with pytest.raises(AssertionError):
        OffsetIndex(100, 800).append(offset, 40)
    with pytest.raises(AssertionError):
        TimeIndex(100, 800).maybe_append(5_000, offset)


@pytest.mark.parametrize("key", range(10))
def test_a_search_in_a_file_that_is_cut_meanwhile(key: int) -> None:
    """The size was read before: what is gone by then counts as above the key."""

    class Cut(MemoryFile):
        def size(self) -> int:
            return 8 * ENTRY.size

    pairs = [(1, 10), (4, 20), (6, 30)]
    cut = file_of(*pairs)
    cut.__class__ = Cut
    expected = max((pair for pair in pairs if pair[0] <= key), default=None)
    assert search_file(cut, ENTRY, key) == expected


def test_the_last_entry_of_a_file() -> None:
    assert last_of_file(file_of(), ENTRY) is None
    assert last_of_file(file_of((1, 10), (4, 20)), ENTRY) == (4, 20)
