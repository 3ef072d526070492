"""A leader's view of the replicas' progress, and the high watermark that follows from it.

Source: Kafka's LeaderState; KIP-595, KIP-836 (the two timestamps of DescribeQuorum).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ottla.raft.values import ReplicaKey

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this long is no longer listed."""

UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """How far one replica has come. Wall-clock milliseconds; -1 = unknown."""

    key: ReplicaKey
    end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    leader_end_at_fetch: int = UNKNOWN

    def fetched(self, *, offset: int, leader_end: int, wall_ms: int) -> "ReplicaProgress":
        """Return the progress after a fetch of the records from `offset` on."""
        caught_up_ms = self.last_caught_up_ms
        if offset >= leader_end:
            caught_up_ms = max(caught_up_ms, wall_ms)
        elif self.leader_end_at_fetch >= 0 and offset >= self.leader_end_at_fetch:
            # It has everything up to the log's end at its previous fetch, so it was caught up then.
            caught_up_ms = max(caught_up_ms, self.last_fetch_ms)
        return replace(
            self,
            end_offset=offset,
            last_fetch_ms=max(wall_ms, self.last_fetch_ms),
            last_caught_up_ms=caught_up_ms,
            leader_end_at_fetch=leader_end,
        )


class LeaderProgress:
    """Replica progress in one epoch. Voters are known from the start, observers when they fetch."""

    def __init__(self, *, local_id: int, voters: Iterable[int], epoch_start_offset: int) -> None:
        self.local_id = local_id
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark: int | None = None
        self.voters = {voter: ReplicaProgress(key=ReplicaKey(voter)) for voter in sorted(voters)}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        assert local_id in self.voters

    def flushed_to(self, end_offset: int) -> None:
        """Set the leader's own end offset: its records are durable up to it."""
        own = self.voters[self.local_id]
        self.voters[self.local_id] = replace(own, end_offset=max(own.end_offset, end_offset))

    def fetched(self, key: ReplicaKey, *, offset: int, leader_end: int, wall_ms: int) -> None:
        """Note a fetch; a voter that fetches from `offset` has all records before it, durably."""
        if key.id < 0 or key.id == self.local_id:
            return
        if key.id in self.voters:
            old = replace(self.voters[key.id], key=key)
            self.voters[key.id] = old.fetched(offset=offset, leader_end=leader_end, wall_ms=wall_ms)
            return
        old = self.observers.get(key, ReplicaProgress(key=key))
        self.observers[key] = old.fetched(offset=offset, leader_end=leader_end, wall_ms=wall_ms)

    def advance(self) -> int | None:
        """Return the new high watermark, or None where it stays.

        A majority's offset counts only beyond the first record of the leader's own epoch: records
        of older epochs could still be overwritten by another leader (Raft paper, 5.4.2).
        """
        ends = sorted((voter.end_offset for voter in self.voters.values()), reverse=True)
        majority = ends[len(ends) // 2]
        if majority <= self.epoch_start_offset:
            return None
        if self.high_watermark is not None and majority <= self.high_watermark:
            return None
        self.high_watermark = majority
        return majority

    def live_observers(self, wall_ms: int) -> tuple[ReplicaProgress, ...]:
        """Return the observers that fetched recently; drop the others."""
        self.observers = {
            key: progress
            for key, progress in sorted(self.observers.items())
            if wall_ms - progress.last_fetch_ms < OBSERVER_SESSION_MS
        }
        return tuple(self.observers.values())
