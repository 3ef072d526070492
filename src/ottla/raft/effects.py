"""What a quorum member wants done, in the order given; each is done before the next begins.

The host runs them one after another. What takes long (`FlushLog`, every `Ask…`) is only begun
and answers with an event. An effect that fails ends the member: it must do nothing that rests
on a write which may not have happened.
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
    """Make all records before `end_offset` durable; `Flushed` says when."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceHighWatermark:
    """All records before `offset` are committed, for ever."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """Who leads has changed; -1 = nobody is known to."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondToFetch:
    """Answer a replica: an error, a verdict on its log, or the records of [start, end).

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
    """Answer a replica that asked for a piece of a snapshot; without an error, it may have it."""

    token: int
    error: Error
    leader_id: int
    leader_epoch: int
    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFetch:
    """Ask the leader, or with -1 the voter after the one asked last, for records from here on.

    `serial`: the answer must carry it; an answer to an older question is ignored.
    """

    leader_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFetchSnapshot:
    """Ask the leader for the piece of a snapshot that begins at `position`."""

    leader_id: int
    leader_epoch: int
    snapshot: OffsetAndEpoch
    position: int
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendVote:
    """Ask a voter for its vote in `epoch`, or with `pre_vote` whether it would give it.

    Fields: `log_end`: the end of this candidate's log, which the voter compares with its own.
    """

    voter_id: int
    epoch: int
    pre_vote: bool
    log_end: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBeginEpoch:
    """Tell a voter that this member leads `epoch`."""

    voter_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEndEpoch:
    """Tell a voter that this member leads `epoch` no more. `successors`: the best one first."""

    voter_id: int
    epoch: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondToVote:
    """Answer a candidate."""

    token: int
    error: Error
    granted: bool
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondToEpoch:
    """Answer a leader that begins or ends its epoch."""

    token: int
    error: Error
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshot:
    """Write a piece of a fetched snapshot; position 0 begins a new file."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptSnapshot:
    """The fetched snapshot is whole: make it durable, then start the log anew at its end."""

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
    """One step's outcome: `effects` in order, and when to tick next (monotonic; None = never)."""

    effects: tuple[Effect, ...]
    wake_at_ms: int | None
