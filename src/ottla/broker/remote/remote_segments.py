"""Which remote segment has an offset, and how much of it belongs to this log's history.

A remote segment may hold records of another history: an unclean election can elect a replica that
lacks what the former leader had copied. The leader epochs tell: the segment's own, and those of the
log. A segment is read only as far as both agree.

Source: KIP-405; Kafka's RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.log.epoch_cache import EpochCache


class RemoteSegment(Protocol):
    """A segment in the object store, as far as reads use its metadata."""

    @property
    def segment_id(self) -> Uuid: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """Return the last offset, which is in the segment."""
        ...

    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Return (leader epoch, start offset), ascending."""
        ...

    @property
    def txn_index_empty(self) -> bool: ...


class RemoteSegments(Protocol):
    """The remote segments of one partition."""

    def segments(self) -> Sequence[RemoteSegment]:
        """Return all, readable or not, by start offset."""
        ...

    def segment_for(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the readable segment with the offset in that leader epoch."""
        ...


RemoteLogs = Callable[[Uuid, int], RemoteSegments | None]
"""The remote segments by topic id and partition; None = their metadata are not read yet."""

LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX = "log", "index", "timeindex", "txnindex"
"""Kinds of objects, by the end of their names."""

ObjectNames = Callable[[RemoteSegment, str], str]
"""The name of a segment's object of one kind."""


class History(NamedTuple):
    """The leader epochs and the end of the log that is read, by which segments are judged."""

    epochs: EpochCache
    log_end_offset: int


class Stretch(NamedTuple):
    """The offsets [start, end) of a segment, all of them of the log's history."""

    segment: RemoteSegment
    start: int
    end: int


def stretch_at(remote: RemoteSegments, history: History, offset: int) -> Stretch | None:
    """Return what can be read from `offset` on in one segment; None = no segment has it."""
    epoch = history.epochs.epoch_of(offset)
    if epoch == NO_EPOCH:
        return None
    segment = remote.segment_for(epoch, offset)
    if segment is None:
        return None
    end = _agreed_end(segment, history, offset)
    return Stretch(segment, offset, end) if end > offset else None


def stretches(
    remote: RemoteSegments, history: History, offset: int, until: int
) -> Iterator[Stretch]:
    """Yield what can be read of [offset, until), in order; offsets that no segment has are skipped.

    The segments may change between two steps.
    """
    while offset < until:
        found = stretch_at(remote, history, offset)
        if found is None:
            starts = (each.start_offset for each in remote.segments())
            offset = min((start for start in starts if offset < start), default=until)
            continue
        end = min(found.end, until)
        yield found._replace(end=end)
        offset = end


def _agreed_end(segment: RemoteSegment, history: History, offset: int) -> int:
    """Return the end of the offsets from `offset` on that are of the same epochs in both."""
    epochs, log_end_offset = history
    own = segment.epochs
    past = segment.end_offset + 1
    ends = [start for _, start in own[1:]] + [past]
    for (epoch, start), end in zip(own, ends, strict=True):
        if end <= offset:
            continue
        if start > offset and epochs.epoch_of(start) != epoch:
            return start
        known = epochs.end_offset(epoch, log_end_offset)
        if known.epoch != epoch:
            return max(start, offset)
        if known.end_offset != end:
            return min(known.end_offset, end)
    return past
