"""What happens to a quorum member. Times are inputs: `now_ms` monotonic, `wall_ms` for people.

`token` is whatever the host finds a parked request by. Source: KIP-595, KIP-630.
"""

from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.raft.values import BatchSpan, OffsetAndEpoch, ReplicaKey

NO_WATERMARK = -1

ANY_SERIAL = -1
"""Whatever question is open; who asks one at a time need not number them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The stored state is loaded; time begins."""

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The moment has come that `Ready.wake_at_ms` asked for, or any other."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """The leader's own state machine has records for one batch; only a leader may be told."""

    values: tuple[bytes, ...]
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """All records before `end_offset`, the last of them of `epoch` or older, are durable."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequestReceived:
    """A replica wants the records after what it has. Parked until `deadline_ms` at most."""

    token: int
    replica: ReplicaKey
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    now_ms: int
    wall_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAbandoned:
    """The connection that a parked fetch came in on is closed."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequestReceived:
    """A replica wants a piece of a snapshot."""

    token: int
    leader_epoch: int
    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStored:
    """A snapshot of this member's own making is durable."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """Records before this snapshot, and older snapshots, are to go."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseReceived:
    """A peer answered our fetch. Of `diverging`, `snapshot` and `batches` one is set at most.

    Fields: `data`: the bytes of `batches`, whose checksums the host has checked.
            `high_watermark`: -1 = the leader does not know it yet.
    """

    error: Error
    leader_id: int
    leader_epoch: int
    now_ms: int
    high_watermark: int = NO_WATERMARK
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    batches: tuple[BatchSpan, ...] = ()
    data: bytes | memoryview = b""
    serial: int = ANY_SERIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResponseReceived:
    """A peer answered with a piece of a snapshot, `size` bytes in all."""

    error: Error
    leader_id: int
    leader_epoch: int
    now_ms: int
    snapshot: OffsetAndEpoch
    size: int = 0
    position: int = 0
    data: bytes | memoryview = b""
    serial: int = ANY_SERIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailed:
    """Our fetch, of records or of a snapshot, got no answer, or one that made no sense."""

    now_ms: int
    serial: int = ANY_SERIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequestReceived:
    """A candidate wants this member's vote in `epoch`, or with `pre_vote` its word for it."""

    token: int
    candidate: ReplicaKey
    epoch: int
    log_end: OffsetAndEpoch
    pre_vote: bool
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponseReceived:
    """A voter answered; `epoch` and `pre_vote` are the question's, `leader_epoch` its own."""

    voter_id: int
    epoch: int
    pre_vote: bool
    error: Error
    granted: bool
    leader_id: int
    leader_epoch: int
    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteFailed:
    """A voter's answer to this question will not come."""

    voter_id: int
    epoch: int
    pre_vote: bool
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpochRequestReceived:
    """A member says that it leads an epoch."""

    token: int
    leader_id: int
    leader_epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEpochRequestReceived:
    """A member says that it leads its epoch no more, and who had better follow it."""

    token: int
    leader_id: int
    leader_epoch: int
    successors: tuple[int, ...]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResponseReceived:
    """A voter that was told of this member's epoch says what it knows."""

    error: Error
    leader_id: int
    leader_epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resign:
    """The host wants this member to lead no more: it shuts down."""


Event = (
    Start
    | Tick
    | Propose
    | Flushed
    | FetchRequestReceived
    | FetchAbandoned
    | SnapshotRequestReceived
    | SnapshotStored
    | CleanUp
    | FetchResponseReceived
    | SnapshotResponseReceived
    | FetchFailed
    | VoteRequestReceived
    | VoteResponseReceived
    | VoteFailed
    | BeginEpochRequestReceived
    | EndEpochRequestReceived
    | EpochResponseReceived
    | Resign
)
