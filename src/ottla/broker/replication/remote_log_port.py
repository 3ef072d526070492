"""What a follower needs of remote storage: `ottla.broker.remote.aux_state_builder` implements it.

A broker without tiered storage has none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.log.epoch_cache import EpochEnd
from ottla.log.partition_log import PartitionLog
from ottla.log.remote_prefix import RemotePrefix


class LeaderStarts(NamedTuple):
    """Where the leader's log starts, over both tiers and locally; `epoch`: of the local start."""

    log_start_offset: int
    local_log_start_offset: int
    epoch: int


class LeaderLog(Protocol):
    """Requests to the leader of one partition, in one leader epoch, about its log."""

    def starts(self) -> Pending[LeaderStarts | ApiError]:
        """Request both starts (ListOffsets)."""
        ...

    def epoch_end(self, epoch: int) -> Pending[EpochEnd | ApiError]:
        """Request the end of the largest epoch up to this one (OffsetForLeaderEpoch)."""
        ...


class Problem(Enum):
    """Why the state of a log could not be built; the values are logged. All may pass."""

    NOT_READY = "the remote log metadata are not read yet"
    LEADER = "a request to the leader failed"
    NO_SEGMENT = "no readable remote segment ends where the local log of the leader starts"
    MISSING = "an object of the remote segment is missing"
    STORE = "the object store failed"
    DAMAGED = "an object of the remote segment is damaged"
    TIMED_OUT = "it took too long"
    BUG = "an internal error"


@dataclass(frozen=True, slots=True)
class AuxStateFailed:
    """The state could not be built, for now."""

    problem: Problem
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.problem.value}: {self.detail}" if self.detail else self.problem.value


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxState:
    """How a follower's log begins behind records in remote storage.

    Fields: `offset`: of its first local record; `prefix`: what the log has before; `leader_start`:
            the leader's local log start.
    """

    offset: int
    prefix: RemotePrefix
    leader_start: int


AuxStateOutcome = AuxState | AuxStateFailed | None
"""None = the leader has all its records on local disk: nothing is to be built."""


class AuxStateBuild(Protocol):
    """A state that is being built. `outcome` stays open when it is cancelled."""

    @property
    def outcome(self) -> Pending[AuxStateOutcome]:
        """Return the promise of the state."""
        ...

    def cancel(self) -> None:
        """End it; harmless once it is over."""
        ...


AuxStates = Callable[[PartitionLog, LeaderLog], AuxStateBuild]
"""Begins to build the state of a follower's log; the log itself is not changed."""
