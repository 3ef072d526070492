"""The events of a quorum member. Times are inputs: `now_ms` monotonic, `wall_ms` wall clock.

`token` identifies a request that the host has not answered yet. Source: KIP-595, KIP-630.
"""

from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.raft.values import BatchSpan, OffsetAndEpoch, ReplicaKey

NO_WATERMARK = -1

ANY_SERIAL = -1
"""Matches any open request, for a host that has one at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The stored state is loaded; the member starts."""

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The time `Ready.wake_at_ms` has come, or any other."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """The leader's own state machine has records for one batch. Only a leader accepts it."""

    values: tuple[bytes, ...]
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """All records before `end_offset`, the last of them of `epoch` or older, are durable."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequestReceived:
    """A replica sent Fetch. It is delayed until `deadline_ms` at most."""

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
    """The connection of a delayed fetch is closed."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequestReceived:
    """A replica sent FetchSnapshot."""

    token: int
    replica: ReplicaKey
    leader_epoch: int
    snapshot: OffsetAndEpoch
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStored:
    """A snapshot written by this member is durable."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """Records before this snapshot, and older snapshots, are to be deleted."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseReceived:
    """The response to a Fetch. Of `diverging`, `snapshot` and `batches` one is set at most.

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
    """The response to a FetchSnapshot: a chunk of a snapshot of `size` bytes.

    Fields: `error`: the leader's; CORRUPT_MESSAGE where the whole snapshot is damaged, which the
            host checks with the last chunk.
    """

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
    """A Fetch or FetchSnapshot got no response, or an invalid one."""

    now_ms: int
    serial: int = ANY_SERIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequestReceived:
    """A candidate sent Vote, or with `pre_vote` a pre-vote."""

    token: int
    candidate: ReplicaKey
    epoch: int
    log_end: OffsetAndEpoch
    pre_vote: bool
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponseReceived:
    """The response to a Vote; `epoch` and `pre_vote` are those of the request."""

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
    """A Vote request failed: no response will come."""

    voter_id: int
    epoch: int
    pre_vote: bool
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpochRequestReceived:
    """A member sent BeginQuorumEpoch: it leads the epoch."""

    token: int
    leader_id: int
    leader_epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEpochRequestReceived:
    """A member sent EndQuorumEpoch: it resigned; `successors`: preferred ones, the best first."""

    token: int
    leader_id: int
    leader_epoch: int
    successors: tuple[int, ...]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResponseReceived:
    """The response to a BeginQuorumEpoch or EndQuorumEpoch."""

    error: Error
    leader_id: int
    leader_epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resign:
    """The node shuts down: this member must not lead any more."""


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
