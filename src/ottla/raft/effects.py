"""What the host does for a quorum member, in the order given; each ends before the next begins.

Long ones (`FlushLog`, every `Send…`) are only started, and end with an event. A failed effect ends
the member: it must do nothing that depends on a write which may not have happened.
"""

from dataclasses import dataclass, field

from ottla.base.errors import Error
from ottla.raft.election import ElectionState
from ottla.raft.log_view import Verdict
from ottla.raft.values import OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreElection:
    """Make this durable before anything that follows."""

    state: ElectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendLeaderChange:
    """Append the control record that opens an epoch."""

    base_offset: int
    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRecords:
    """Append these records as one batch."""

    base_offset: int
    epoch: int
    values: tuple[bytes, ...]
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFetched:
    """Append the leader's batches as they are."""

    data: bytes | memoryview
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateLog:
    """Remove the records from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLog:
    """Make all records before `end_offset` durable; ends with `Flushed`."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceHighWatermark:
    """All records before `offset` are committed."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """The known leader has changed; -1 = none is known."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondToFetch:
    """Respond to a Fetch: an error, a verdict on the replica's log, or the records [start, end).

    Fields: `verdict`: None where there is an error. `start == end`: nothing new.
    """

    token: int
    error: Error
    leader_id: int
    leader_epoch: int
    high_watermark: int
    verdict: Verdict | None = None
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondToFetchSnapshot:
    """Respond to a FetchSnapshot: with the error, else with the requested chunk."""

    token: int
    error: Error
    leader_id: int
    leader_epoch: int
    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFetch:
    """Send Fetch to the leader; with -1 to the voter after the one tried last.

    `serial`: the response must carry it; a response to an older request is ignored.
    """

    leader_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFetchSnapshot:
    """Send FetchSnapshot to the leader, for the chunk at `position`."""

    leader_id: int
    leader_epoch: int
    snapshot: OffsetAndEpoch
    position: int
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendVote:
    """Send Vote to a voter.

    Fields: `log_end`: the end of this candidate's log, which the voter compares with its own.
    """

    voter_id: int
    epoch: int
    pre_vote: bool
    log_end: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBeginEpoch:
    """Send BeginQuorumEpoch: this member leads `epoch`."""

    voter_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEndEpoch:
    """Send EndQuorumEpoch: this member resigns in `epoch`. `successors`: the best one first."""

    voter_id: int
    epoch: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondToVote:
    """Respond to a Vote."""

    token: int
    error: Error
    granted: bool
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondToEpoch:
    """Respond to a BeginQuorumEpoch or EndQuorumEpoch."""

    token: int
    error: Error
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshot:
    """Write a chunk of a fetched snapshot; position 0 begins a new file."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptSnapshot:
    """The fetched snapshot is complete: make it durable, then restart the log at its end."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePrefix:
    """Remove whole segments before this snapshot, and the snapshots older than it."""

    snapshot: OffsetAndEpoch


Effect = (
    StoreElection
    | AppendLeaderChange
    | AppendRecords
    | AppendFetched
    | TruncateLog
    | FlushLog
    | AdvanceHighWatermark
    | LeaderChanged
    | RespondToFetch
    | RespondToFetchSnapshot
    | SendFetch
    | SendFetchSnapshot
    | SendVote
    | SendBeginEpoch
    | SendEndEpoch
    | RespondToVote
    | RespondToEpoch
    | WriteSnapshot
    | AdoptSnapshot
    | DeletePrefix
)


@dataclass(frozen=True, slots=True)
class Ready:
    """The result of a step: `effects` in order, and when to tick next (monotonic; None = never)."""

    effects: tuple[Effect, ...]
    wake_at_ms: int | None
