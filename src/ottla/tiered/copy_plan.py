"""Which local segments a leader copies next, and where a new leader begins.

Segments are copied in the order of their offsets, and each is copied once it is rolled and below
the last stable offset: no record of it is above the high watermark or of an open transaction.

Source: RemoteLogManager.RLMCopyTask; KIP-405; KAFKA-15241, KAFKA-15351, KAFKA-20732.
"""

from collections.abc import Sequence

from ottla.base.ids import NO_OFFSET
from ottla.log.segment_files import LocalSegment
from ottla.tiered.lineage import Lineage, visible_segments
from ottla.tiered.read_plan import slices_from
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import NO_FLOOR, epoch_ranges


def copied_offset(
    remote: RemoteLog, lineage: Lineage, *, local_log_start: int, known: int = NO_OFFSET
) -> int:
    """Return the last offset up to which the remote tier has all records of this lineage.

    `known`: an earlier result, from which it is counted on; without one it is counted from the
    offset before the local log start, or from that itself where the one before is not remote. -1 =
    neither is. The result may be used to delete local records, so it ends at the first offset that
    is not readable: what is remote behind a gap does not count.
    """
    # What is before the first leader epoch has no records: the log was compacted once.
    start = max(local_log_start, known + 1, lineage.start_of(lineage.first_epoch))
    for begin in (start - 1, start):
        copied = NO_OFFSET
        for each in slices_from(remote, lineage, begin):
            copied = each.end_offset - 1
        if copied != NO_OFFSET:
            return copied
    return known


def highest_copied_offset(remote: RemoteLog, lineage: Lineage) -> int:
    """Return the last offset of this lineage that is in the remote tier; -1 = none is. There may
    be gaps before it, so nothing is deleted locally on account of it.

    Segments that deleted since are not counted, and of a segment that reaches behind the end of
    its leader epoch only the records that the log still has.
    """
    for epoch in reversed(lineage.epochs):
        highest = remote.highest_offset(epoch)
        if highest >= 0:
            return min(highest, lineage.end_of(epoch) - 1)
    return NO_OFFSET


def next_segments(
    local: Sequence[LocalSegment], *, copied: int, log_start: int, last_stable: int
) -> list[LocalSegment]:
    """Return the local segments to copy now, in this order, without a gap between them.

    The first may have offsets that are copied already: leaders roll at different offsets. The
    active segment is never among them.
    """
    begin = max(copied + 1, log_start)
    found: list[LocalSegment] = []
    for segment in local:
        if segment.is_active or segment.end_offset > last_stable:
            break
        if segment.end_offset > begin and segment.end_offset > segment.base_offset:
            found.append(segment)
    return found


def local_only_bytes(local: Sequence[LocalSegment], *, copied: int) -> int:
    """Return the bytes of local segments that are not in the remote tier, for the log's size.

    `copied` is `highest_copied_offset`: with -1 instead, a log that was copied would count twice.
    """
    return sum(segment.size_bytes for segment in local if segment.base_offset > copied)


def elected_log_start(
    remote: RemoteLog, lineage: Lineage, *, log_start: int, local_log_start: int
) -> int:
    """Return where a new leader's log begins: the first offset from `log_start` on that it can
    read, in the remote tier or locally.

    Its own log start may be behind: the former leader advanced it, deleted segments, and failed.

    Where remote segments were once given up, those that are copied since may end before the local
    log start: this replica was away, and does not have the records between them yet. It will not
    get them as the leader, so the log begins behind the gap.
    """
    if local_log_start <= log_start:
        return log_start
    start = local_log_start
    for segment, end in reversed(visible_segments(remote.segments(), lineage)):
        has_gap = end + 1 < start and remote.floor > NO_FLOOR
        if has_gap or end < log_start:
            break
        start = min(start, epoch_ranges(segment)[0][1])
    return max(log_start, start)
