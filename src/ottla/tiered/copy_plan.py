"""Which local segments a leader copies next, and where a new leader begins.

Segments are copied in the order of their offsets, and each is copied once it is rolled and below
the last stable offset: no record of it is above the high watermark or of an open transaction.

Source: RemoteLogManager.RLMCopyTask; KIP-405; KAFKA-15241, KAFKA-15351, KAFKA-20732.
"""

from collections.abc import Sequence

from ottla.base.ids import NO_OFFSET
from ottla.log.segment_files import LocalSegment
from ottla.tiered.lineage import Lineage, visible_segments
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import epoch_ranges


def copied_offset(remote: RemoteLog, lineage: Lineage) -> int:
    """Return the last offset of this lineage that is in the remote tier; -1 = none is.

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

    `copied` is `copied_offset`: with -1 instead, a log that was copied would count twice.
    """
    return sum(segment.size_bytes for segment in local if segment.base_offset > copied)


def elected_log_start(
    remote: RemoteLog, lineage: Lineage, *, log_start: int, local_log_start: int
) -> int:
    """Return where a new leader's log begins: the first offset from `log_start` on that it can
    read, in the remote tier or locally.

    Its own log start may be behind: the former leader advanced it, deleted segments, and failed.
    """
    if local_log_start <= log_start:
        return log_start
    for segment, end in visible_segments(remote.segments(), lineage):
        if end >= log_start:
            first = epoch_ranges(segment)[0][1]
            return max(log_start, min(first, local_log_start))
    return local_log_start
