"""Where a follower begins whose next records its leader has in remote storage only, and with what.

The leader's local log starts at some offset; what is before is in remote segments. A segment has,
beside its records, the leader epochs from the log's beginning to its end, and the producers' state
behind its end (Kafka: the auxiliary state). With these a follower begins at once where the local
log of its leader does.

    leader      log start .................... local start X ................ end
    segments    [        ][        ][   holds X - 1   ]
    follower                                           begins here

Leaders roll segments at different offsets, so the segment may end behind X - 1. Then the follower
begins behind the segment's end, if the leader has all records of the segment: the producers' state
is that of this offset, and the records between are in remote storage. If it does not, because a
replica without them was elected (unclean), the follower begins at X without the producers' state:
that of the segment has producers whose records are gone, and would take a retry for a duplicate.

Source: KIP-405; Kafka's TierStateMachine.buildRemoteLogAuxState.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.base.ids import NO_EPOCH
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.epoch_cache import EpochCache, EpochEnd, EpochEntry
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState, epoch_ranges


class Beginning(NamedTuple):
    """Where a follower begins: behind `segment`, or within it.

    Fields: `offset`: of its first local record; `last_epoch`: of the record before;
            `has_producers`: the segment's producers' state is that of this offset.
    """

    segment: SegmentMetadata
    offset: int
    last_epoch: int
    has_producers: bool


def epoch_before(start: int, epoch: int, earlier: EpochEnd) -> int:
    """Return the leader epoch of the offset before `start`, which has `epoch` itself.

    `earlier`: the leader's result for the epoch before: its largest that is smaller than `epoch`.
    """
    is_earlier = earlier.epoch != NO_EPOCH and earlier.end_offset >= start
    return earlier.epoch if is_earlier else epoch


def segment_before(
    segments: Iterable[SegmentMetadata], start: int, epoch: int
) -> SegmentMetadata | None:
    """Return the readable segment with the record before `start`, of this epoch; None = no such.

    Of several the one that ends first, next to `start`; of those the one that begins first.
    """
    offset = start - 1
    found: SegmentMetadata | None = None
    for each in segments:
        if not each.start_offset <= offset <= each.end_offset:
            continue
        if each.state is not SegmentState.COPY_FINISHED:
            continue
        if not any(
            own == epoch and first <= offset <= last for own, first, last in epoch_ranges(each)
        ):
            continue
        if found is None or each.end_offset < found.end_offset:
            found = each
    return found


def last_epoch(segment: SegmentMetadata) -> int:
    """Return the leader epoch of a segment's last record."""
    return segment.epochs[-1][0]


def begins_behind(
    segment: SegmentMetadata, start: int, epoch: int, last: EpochEnd | None
) -> Beginning:
    """Return where a follower begins whose leader's local log starts at `start`.

    `segment`: has the record before, of `epoch`; `last`: the leader's result for the epoch of the
    segment's last record, not needed where the segment ends right before `start`.
    """
    end = segment.end_offset + 1
    if end == start:
        return Beginning(segment, start, epoch, has_producers=True)
    assert last is not None
    if last.epoch == last_epoch(segment) and last.end_offset >= end:
        return Beginning(segment, end, last.epoch, has_producers=True)
    return Beginning(segment, start, epoch, has_producers=False)


def prefix_epochs(data: bytes, beginning: Beginning) -> tuple[EpochEntry, ...]:
    """Return the leader epochs before a beginning, from the segment's leader epoch checkpoint.

    The first one starts where the log started when the segment was copied.

    Raises: MalformedFile where it is damaged, or is not that of the segment.
    """
    cache = EpochCache.decode(data)
    segment, offset = beginning.segment, beginning.offset
    cache.truncate_from_end(offset)
    own = tuple(tuple(entry) for entry in cache.between(segment.start_offset, offset))
    expected = tuple(each for each in segment.epochs if each[1] < offset)
    if own != expected or cache.latest_epoch != beginning.last_epoch:
        raise MalformedFile(f"the leader epochs of a segment are {own}, expected {expected}")
    return cache.entries


def cut_at_log_start(entries: Sequence[EpochEntry], log_start: int) -> tuple[EpochEntry, ...]:
    """Return the entries from the log start on; the first one begins there, or later."""
    cache = EpochCache(entries)
    cache.truncate_from_start(log_start)
    return cache.entries


class Earlier(NamedTuple):
    """Leader epochs whose first one may begin later than it did, until `is_complete`."""

    entries: tuple[EpochEntry, ...]
    is_complete: bool


def add_earlier(
    entries: Sequence[EpochEntry], earlier: EpochEnd, *, log_start: int, offset: int
) -> Earlier | None:
    """Return the leader epochs before `offset`, with one more before the first, if there is one.

    A segment's checkpoint begins where its leader's log did, and the log of the present leader may
    begin before. `earlier`: its result for the epoch before that of the first entry, which begins
    where that one ends. None = that cannot be: the leader's log start has moved.
    """
    first, rest = entries[0], entries[1:]
    until = rest[0].start_offset if rest else offset
    if earlier.epoch == NO_EPOCH or earlier.end_offset <= log_start:
        return Earlier((EpochEntry(first.epoch, log_start), *rest), is_complete=True)
    if earlier.epoch >= first.epoch or earlier.end_offset >= until:
        return None
    added = EpochEntry(earlier.epoch, log_start)
    return Earlier((added, EpochEntry(first.epoch, earlier.end_offset), *rest), is_complete=False)
