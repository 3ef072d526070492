"""What remote reads need of a partition's remote segments, and the slices of them to read.

Which segment has an offset, and how much of it is of the log's lineage, is decided in
`ottla.tiered.read_plan`. Unlike a plan, a read goes on behind offsets that no segment has.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from ottla.base.ids import Uuid
from ottla.tiered.lineage import Lineage
from ottla.tiered.read_plan import ReadSlice, SegmentSource, slice_at
from ottla.tiered.segment_metadata import SegmentMetadata


class RemoteSegments(SegmentSource, Protocol):
    """The remote segments of one partition."""

    def segments(self) -> Sequence[SegmentMetadata]:
        """Return all, readable or not, by start offset."""
        ...


RemoteLogs = Callable[[Uuid, int], RemoteSegments | None]
"""The remote segments by topic id and partition; None = their metadata are not read yet."""


def slices(
    remote: RemoteSegments, lineage: Lineage, offset: int, until: int
) -> Iterator[ReadSlice]:
    """Yield what can be read of [offset, until), in order; offsets that no segment has are skipped.

    The segments may change between two steps.
    """
    while offset < until:
        found = slice_at(remote, lineage, offset)
        if found is None:
            starts = (each.start_offset for each in remote.segments())
            offset = min((start for start in starts if offset < start), default=until)
            continue
        end = min(found.end_offset, until)
        yield replace(found, end_offset=end)
        offset = end
