"""Segments in order: which one holds an offset, and taking some away.

Method: lists of empty segments at given offsets.
"""

from ottla.log.file_cache import FileCache
from ottla.log.segment import Segment
from ottla.log.segment_list import SegmentList
from ottla.testing.disk import MemoryDisk


def segment(base: int) -> Segment:
    return Segment(FileCache(MemoryDisk(), 1), "/d", base, size=0, created_ms=0)


def segments(*bases: int) -> SegmentList:
    return SegmentList([segment(base) for base in bases])


def bases(found: SegmentList | list[Segment]) -> list[int]:
    return [item.base_offset for item in found]


def test_the_segment_of_an_offset() -> None:
    found = segments(5, 10, 20)
    for offset, index in ((0, 0), (5, 0), (9, 0), (10, 1), (19, 1), (20, 2), (99, 2)):
        assert found.floor(offset) == index
    assert [found.end_of(index, 33) for index in range(3)] == [10, 20, 33]
    assert found.first.base_offset == 5
    assert found.active.base_offset == found[2].base_offset == 20


def test_adding_and_taking() -> None:
    found = segments(5)
    for base in (10, 20, 30):
        found.add(segment(base))
    assert bases(found.take_first(2)) == [5, 10]
    assert found.floor(20) == 0
    assert bases(found.take_above(20)) == [30]
    assert found.active.base_offset == 20
    assert bases(found.take_above(3)) == []
    assert bases(found.replace_all(segment(3))) == [20]
    assert (len(found), found.active.base_offset, found.floor(99)) == (1, 3, 0)
