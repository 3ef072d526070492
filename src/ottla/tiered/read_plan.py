"""Which remote segments to read for a range of offsets: one planner for brokers, tools and Spark.

It plans from a `RemoteLog` or from manifests. A slice of a segment ends where the lineage leaves
it, or where the next segment goes on; where the remote tier has no segment for an offset the plan
ends, so that no record is left out silently.

Source: RemoteLogManager.read, collectAbortedTransactions; KIP-405.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ottla.tiered.lineage import Lineage
from ottla.tiered.segment_metadata import SegmentMetadata


class SegmentSource(Protocol):
    """Finds readable segments: a `RemoteLog`, or a `ManifestState`."""

    def segment_for(self, epoch: int, offset: int) -> SegmentMetadata | None:
        """Return the readable segment that has an offset in a leader epoch, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSlice:
    """Read the records of one segment from `start_offset` to before `end_offset`.

    A batch may begin before the start; none reaches over the end.
    """

    segment: SegmentMetadata
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Slices in the order of offsets, without a gap; `end_offset`: the first offset not in them."""

    slices: tuple[ReadSlice, ...]
    end_offset: int


def slice_at(source: SegmentSource, lineage: Lineage, offset: int) -> ReadSlice | None:
    """Return what can be read from an offset on, in one segment; None = it is not remote."""
    segment = source.segment_for(lineage.epoch_of(offset), offset)
    if segment is None:
        return None
    end = lineage.shared_end(segment)
    if end < offset:
        return None
    return ReadSlice(segment=segment, start_offset=offset, end_offset=end + 1)


def slices_from(source: SegmentSource, lineage: Lineage, offset: int) -> Iterator[ReadSlice]:
    """Yield slices from an offset on, until the remote tier has no more."""
    while (found := slice_at(source, lineage, offset)) is not None:
        yield found
        offset = found.end_offset


def plan_reads(
    source: SegmentSource, lineage: Lineage, start_offset: int, end_offset: int
) -> ReadPlan:
    """Return the slices from `start_offset` to before `end_offset`, as far as they are remote.

    The caller has checked that `start_offset` is not below the log start offset.
    """
    slices: list[ReadSlice] = []
    reached = start_offset
    for each in slices_from(source, lineage, start_offset) if start_offset < end_offset else ():
        reached = min(each.end_offset, end_offset)
        slices.append(
            ReadSlice(segment=each.segment, start_offset=each.start_offset, end_offset=reached)
        )
        if reached == end_offset:
            break
    return ReadPlan(slices=tuple(slices), end_offset=reached)


def own_ranges(visible: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return which offsets [start, end) to read from each visible segment, so that none is twice.

    `visible`: start and end offset (inclusive) of each, as `lineage.visible_segments` has them.
    """
    ranges: list[tuple[int, int]] = []
    reached = 0
    for start, end in visible:
        assert end >= reached
        start = max(start, reached)
        reached = end + 1
        ranges.append((start, reached))
    return ranges


def transaction_indexes(
    source: SegmentSource, lineage: Lineage, offset: int
) -> Iterator[SegmentMetadata]:
    """Yield the segments whose transaction indexes have aborted records from an offset on.

    Abort markers, and so the entries, may be in later segments than the records. The caller stops
    at an entry that makes its search complete (`log.transaction_index.select`), and goes on with
    the local log's indexes where this ends.
    """
    for each in slices_from(source, lineage, offset):
        if not each.segment.txn_index_empty:
            yield each.segment
