"""A log's segments in the order of their base offsets; the last one is active."""

from bisect import bisect_right
from collections.abc import Iterator

from ottla.log.segment import Segment


class SegmentList:
    """Never empty while its log is open."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        assert self._bases == sorted(set(self._bases))
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    def floor(self, offset: int) -> int:
        """Return the index of the segment that holds `offset`; 0 for one before all."""
        if offset >= self.active.base_offset:
            return len(self._bases) - 1
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_of(self, index: int, log_end_offset: int) -> int:
        """Return the offset behind the segment at `index`."""
        next_index = index + 1
        return self._bases[next_index] if next_index < len(self._bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        """Add a segment at the end; it becomes the active one."""
        assert segment.base_offset > self._bases[-1]
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def put_first(self, segments: list[Segment]) -> None:
        """Put sealed segments before the first one."""
        bases = [segment.base_offset for segment in segments]
        assert bases == sorted(set(bases))
        assert bases[-1] < self._bases[0]
        self._segments[:0] = segments
        self._bases[:0] = bases

    def take_first(self, count: int) -> list[Segment]:
        """Remove and return the first `count` segments; at least one is left."""
        assert 0 <= count < len(self._segments)
        taken = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        return taken

    def take_above(self, offset: int) -> list[Segment]:
        """Remove and return the segments that start above `offset`, but for the first."""
        keep = max(1, bisect_right(self._bases, offset))
        taken = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        self.active = self._segments[-1]
        return taken

    def replace(self, index: int, count: int, segment: Segment) -> list[Segment]:
        """Replace `count` segments from `index` on with one sealed segment; return the old ones."""
        taken = self._segments[index : index + count]
        assert len(taken) == count
        assert taken[-1] is not self.active
        assert segment.base_offset == taken[0].base_offset
        self._segments[index : index + count] = [segment]
        self._bases[index : index + count] = [segment.base_offset]
        return taken

    def replace_all(self, segment: Segment) -> list[Segment]:
        """Replace all segments with one; return the old ones."""
        taken = self._segments
        self._segments = [segment]
        self._bases = [segment.base_offset]
        self.active = segment
        return taken
