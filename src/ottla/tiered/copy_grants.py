"""Copies that a leader has others do: which segments it grants, and which of them it may finish.

A segment's copy is granted for a lease. Whoever has the grant writes the segment's objects and
commits the copy; the leader alone writes the metadata. Copies are finished in the order of their
offsets, without a gap, so a commit that comes before that of an earlier segment is kept.

    granted --commit--> kept --the segments before it are copied--> finished
       +---lease over, failure, objects missing--> given up: a failed copy, as one of the leader

Pure.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.base.ids import Uuid
from ottla.log.segment_files import LocalSegment
from ottla.tiered.segment_metadata import SegmentMetadata

NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyGrant:
    """A granted copy.

    Fields: `holder`: who asked, by an id of its own: a repeated request of it gets this grant
            again. `granted_ms`, `until_ms`: of the lease, monotonic. `is_kept`: committed, and
            waits for the segments before it; its lease counts no more.
    """

    segment: SegmentMetadata
    holder: Uuid
    granted_ms: int
    until_ms: int
    is_kept: bool = False

    def is_over(self, now_ms: int) -> bool:
        """Tell whether the lease has ended without a commit."""
        return not self.is_kept and self.until_ms <= now_ms


def lease_until_ms(*, asked_ms: int, granted_ms: int, now_ms: int, lives_ms_max: int) -> int:
    """Return the end of a lease that is granted, or renewed, now.

    `lives_ms_max`: how long any copy of the segment may take. Every leader counts on it that no
    write of the copy can be executed later, so no renewal goes beyond it.
    """
    assert asked_ms > 0
    return min(now_ms + asked_ms, granted_ms + lives_ms_max)


def segments_to_grant(
    planned: Sequence[LocalSegment],
    taken: Collection[int],
    *,
    log_start: int,
    until_offset: int,
    most: int,
) -> list[LocalSegment]:
    """Return the segments to grant next, in the order of their offsets.

    `planned`: those that are to be copied, see `copy_plan.next_segments`; `taken`: the base offsets
    of those whose copy is in progress. `until_offset`: the last offset that is asked for.
    None is granted behind one whose first offsets nobody can fetch, as the log start lies within
    it: the leader copies that one itself.
    """
    found: list[LocalSegment] = []
    for each in planned:
        is_asked_for = until_offset == NO_LIMIT or each.end_offset - 1 <= until_offset
        if len(found) == most or not is_asked_for:
            break
        if each.base_offset in taken:
            continue
        if each.base_offset < log_start:
            break
        found.append(each)
    return found


def may_copy_itself(planned: Sequence[LocalSegment], grants: Collection[CopyGrant]) -> bool:
    """Tell whether a leader copies the next segment itself.

    Not while somebody holds a grant: copies abut, and its own would only be in the way. Where all
    that are left wait for an earlier segment, it is this leader's turn.
    """
    if not all(each.is_kept for each in grants):
        return False
    granted = {each.segment.start_offset for each in grants}
    return bool(planned) and planned[0].base_offset not in granted


def first_to_finish(grants: Iterable[CopyGrant], copied_end: int) -> CopyGrant | None:
    """Return the kept copy that is to be finished next; None = none is, or one before it lacks.

    `copied_end`: the offset behind what is copied, or where the log starts if that is later.
    """
    kept = [each for each in grants if each.is_kept and each.segment.start_offset <= copied_end]
    return min(kept, key=lambda each: each.segment.start_offset, default=None)


def next_end_ms(grants: Iterable[CopyGrant]) -> int | None:
    """Return when the next lease ends; None = none does."""
    return min((each.until_ms for each in grants if not each.is_kept), default=None)
