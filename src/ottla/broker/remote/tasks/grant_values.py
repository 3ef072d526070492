"""What is asked of a leader's grant task, and what it answers, as values: see `grant_task`."""

from dataclasses import dataclass

from ottla.base.errors import ApiError
from ottla.base.ids import Uuid
from ottla.tiered.copy_grants import NO_LIMIT
from ottla.tiered.segment_metadata import SegmentMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRequest:
    """Who asks for copies, and for how many.

    Fields: `holder`: a repeated request of it renews its grants, and returns them again.
            `segments_max`: 0 = only tell what is left. `until_offset`: the last offset that is
            asked for; -1 = no limit.
    """

    holder: Uuid
    lease_ms: int
    segments_max: int
    until_offset: int = NO_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedSegment:
    """A grant, with what its holder cannot compute from the segment's batches.

    `lease_ms`: how much longer it lives. `transaction_index`: None = the segment has none.
    """

    segment: SegmentMetadata
    lease_ms: int
    leader_epochs: bytes
    producer_snapshot: bytes
    transaction_index: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The response to a GrantRequest.

    Fields: `segments_left`, `bytes_left`: closed segments that can be copied now and are not
            finished, also those that are granted. `end_offset`: the last offset of these, or else
            of what is copied; -1 = nothing is.
    """

    leader_epoch: int
    tiered_epoch: int
    end_offset: int
    segments_left: int
    bytes_left: int
    granted: tuple[GrantedSegment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedCopy:
    """A copy whose objects are written. `failure`: they are not, and will not be."""

    segment_id: Uuid
    offset_index_bytes: int = 0
    time_index_bytes: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Copies that are committed, and the epochs of their grants."""

    leader_epoch: int
    tiered_epoch: int
    copies: tuple[CommittedCopy, ...]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Of one copy. `is_finished`: else it is kept until those before it are copied."""

    segment_id: Uuid
    error: ApiError | None = None
    is_finished: bool = False


Commits = tuple[CommitResult, ...]
