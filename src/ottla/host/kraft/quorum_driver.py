"""Runs a quorum member: events into `RaftNode`, its effects onto disk, timers and peers.

Effects run in order, each to its end. The listener is called after the whole step, so that it may
propose in turn. A failed effect ends the member at once and for good: no response, vote or
acknowledgement may rest on a write that may not have happened. So does a listener that raises: its
state would lack a committed record.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.base.ports import Clock, Dice
from ottla.base.timers import Timer, Timers
from ottla.host.kraft.quorum_storage import MetadataDamaged, QuorumStorage
from ottla.log.file_cache import OutOfDescriptors
from ottla.raft.batches import records_batch
from ottla.raft.control import leader_change_batch
from ottla.raft.effects import (
    AdoptSnapshot,
    AdvanceHighWatermark,
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    DeletePrefix,
    Effect,
    FlushLog,
    LeaderChanged,
    RespondToEpoch,
    RespondToFetch,
    RespondToFetchSnapshot,
    RespondToVote,
    SendBeginEpoch,
    SendEndEpoch,
    SendFetch,
    SendFetchSnapshot,
    SendVote,
    StoreElection,
    TruncateLog,
    WriteSnapshot,
)
from ottla.raft.events import Event, Flushed, Propose, Resign, Start, Tick
from ottla.raft.node import RaftNode
from ottla.raft.snapshots import SnapshotContent
from ottla.raft.timing import QuorumTiming
from ottla.raft.values import OffsetAndEpoch, ReplicaKey

log = logging.getLogger(__name__)


WITHIN_A_STEP = "proposed within a step: the batch would wait for its end and have no offset yet"


class QuorumListener(Protocol):
    """The state machine over the log. All calls come on the loop, between steps, in order.

    After an exception only `failed` is called.
    """

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """The leader has changed; -1 = unknown."""
        ...

    def fetched(self, data: bytes) -> None:
        """Batches of the leader were appended; they may not be committed."""
        ...

    def truncated(self, offset: int) -> None:
        """The log was truncated to `offset`; what followed was never committed."""
        ...

    def snapshot_adopted(self, snapshot: OffsetAndEpoch, content: SnapshotContent) -> None:
        """A snapshot has replaced the log before it."""
        ...

    def committed(self, offset: int) -> None:
        """All before `offset` is committed."""
        ...

    def failed(self, reason: str) -> None:
        """This member has failed."""
        ...


class Peers(Protocol):
    """Sends requests to other members. Each ends in at most one event, and never raises."""

    def send_fetch(self, effect: SendFetch, on_event: Callable[[Event], None]) -> None:
        """Send Fetch."""
        ...

    def send_fetch_snapshot(
        self, effect: SendFetchSnapshot, on_event: Callable[[Event], None]
    ) -> None:
        """Send FetchSnapshot for a piece of a snapshot."""
        ...

    def send_vote(self, effect: SendVote, on_event: Callable[[Event], None]) -> None:
        """Send Vote to a voter."""
        ...

    def send_begin_epoch(self, effect: SendBeginEpoch, on_event: Callable[[Event], None]) -> None:
        """Send BeginQuorumEpoch to a voter; no response, no event."""
        ...

    def send_end_epoch(self, effect: SendEndEpoch, on_event: Callable[[Event], None]) -> None:
        """Send EndQuorumEpoch to a voter; no response, no event."""
        ...


Answer = RespondToFetch | RespondToFetchSnapshot | RespondToVote | RespondToEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumLinks:
    """What a member needs where there are others: channels, randomness and timeouts."""

    peers: Peers | None = None
    dice: Dice | None = None
    timing: QuorumTiming | None = None


class QuorumDriver:
    """One running member. `answer` is called with raft's answers to requests of replicas."""

    def __init__(
        self,
        *,
        local: ReplicaKey,
        voters: tuple[int, ...],
        storage: QuorumStorage,
        clock: Clock,
        timers: Timers,
        listener: QuorumListener,
        links: QuorumLinks | None = None,
    ) -> None:
        links = links or QuorumLinks()
        self.storage = storage
        self.node = RaftNode(
            local=local,
            voters=voters,
            stored=storage.load_election(),
            log=storage.view(),
            dice=links.dice,
            timing=links.timing,
        )
        self.answer: Callable[[Answer], None] = _unexpected_answer
        self.alive = True
        self.load_errors = 0
        """How often the listener failed to load what the log has."""
        self._clock = clock
        self._timers = timers
        self._listener = listener
        self._peers = links.peers
        self._inbox: deque[Event] = deque()
        self._notifications: deque[Callable[[], None]] = deque()
        self._stepping = False
        self._is_notifying = False
        self._flushing = False
        self._timer: Timer | None = None
        storage.on_failure(self._disk_failed)
        self._handlers: dict[type, Callable[[Any], None]] = {
            StoreElection: lambda effect: storage.store_election(effect.state),
            AppendLeaderChange: self._append_leader_change,
            AppendRecords: self._append_records,
            AppendFetched: self._append_fetched,
            TruncateLog: self._truncate,
            FlushLog: self._flush,
            AdvanceHighWatermark: self._commit,
            LeaderChanged: self._notify_leader,
            RespondToFetch: lambda effect: self.answer(effect),
            RespondToFetchSnapshot: lambda effect: self.answer(effect),
            RespondToVote: lambda effect: self.answer(effect),
            RespondToEpoch: lambda effect: self.answer(effect),
            SendFetch: lambda effect: self._required_peers.send_fetch(effect, self.step),
            SendFetchSnapshot: lambda effect: self._required_peers.send_fetch_snapshot(
                effect, self.step
            ),
            SendVote: lambda effect: self._required_peers.send_vote(effect, self.step),
            SendBeginEpoch: lambda effect: self._required_peers.send_begin_epoch(effect, self.step),
            SendEndEpoch: lambda effect: self._required_peers.send_end_epoch(effect, self.step),
            WriteSnapshot: self._write_snapshot,
            AdoptSnapshot: self._adopt_snapshot,
            DeletePrefix: lambda effect: storage.delete_before(effect.snapshot),
        }

    @property
    def is_stepping(self) -> bool:
        """Tell whether a step is under way: whatever its effects call must not propose."""
        return self._stepping

    def start(self) -> None:
        """Begin: become a candidate, or fetch."""
        self.step(Start(now_ms=self._clock.monotonic_ms(), wall_ms=self._clock.now_ms()))

    def propose(self, values: tuple[bytes, ...]) -> int:
        """Append one batch; return the offset after it. Only for a leader, and between steps."""
        assert not self._stepping, WITHIN_A_STEP
        assert self.node.is_leader
        self.step(Propose(values=values, wall_ms=self._clock.now_ms()))
        return self.node.log.end_offset

    def stop(self) -> None:
        """Resign, flush and end; the outcome of a flush under way is ignored."""
        if self.alive:
            self.step(Resign())
        alive = self.alive
        self._end()
        if alive:
            self._seal()
        self.storage.close()

    def _seal(self) -> None:
        try:
            self.storage.seal()
        except (OSError, OutOfDescriptors) as error:
            log.error("flushing the metadata log at shutdown failed: %s", error)

    def _end(self) -> None:
        self.alive = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- steps ---------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Process an event, run its effects, call the listener."""
        if not self.alive:
            return
        self._inbox.append(event)
        if self._stepping:
            return  # From within an effect: the loop below processes it.
        self._stepping = True
        try:
            self._run_inbox()
        except Exception as error:
            log.exception("the metadata quorum member failed")
            self._fail(_text(error))
        finally:
            self._stepping = False
        self._notify()

    def _run_inbox(self) -> None:
        wake_at_ms = None
        while self._inbox:
            ready = self.node.step(self._inbox.popleft())
            for effect in ready.effects:
                self._run(effect)
                if not self.alive:
                    return
            wake_at_ms = ready.wake_at_ms
        self._wake_at(wake_at_ms)

    def _run(self, effect: Effect) -> None:
        self._handlers[type(effect)](effect)

    def _notify(self) -> None:
        if self._is_notifying or self._stepping:
            return
        self._is_notifying = True
        try:
            while self._notifications:
                notification = self._notifications.popleft()
                try:
                    notification()
                except Exception as error:
                    self._cannot_load(error)
        finally:
            self._is_notifying = False

    def _cannot_load(self, error: Exception) -> None:
        """End: nothing that follows may reach the listener, nor may this member vote."""
        log.exception("loading the metadata log failed; the quorum member stops")
        self.load_errors += 1
        if self.alive:
            self._notifications.clear()
            self._fail(str(error) if isinstance(error, MetadataDamaged) else _text(error))

    def _fail(self, reason: str) -> None:
        if not self.alive:
            return
        self._end()
        self._inbox.clear()
        self._notifications.append(lambda: self._listener.failed(reason))

    def _wake_at(self, at_ms: int | None) -> None:
        self._timer = self._timers.move(self._timer, at_ms, self._tick)

    def _tick(self) -> None:
        self.step(Tick(now_ms=self._clock.monotonic_ms()))

    # -- effects -------------------------------------------------------------------------------

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        self.storage.log.append(
            leader_change_batch(
                base_offset=effect.base_offset,
                epoch=effect.epoch,
                leader_id=effect.leader_id,
                voters=effect.voters,
                granting_voters=effect.granting_voters,
                timestamp=effect.wall_ms,
            )
        )

    def _append_records(self, effect: AppendRecords) -> None:
        self.storage.log.append(
            records_batch(
                effect.values,
                base_offset=effect.base_offset,
                epoch=effect.epoch,
                timestamp=effect.wall_ms,
            )
        )

    def _append_fetched(self, effect: AppendFetched) -> None:
        data = bytes(effect.data)
        self.storage.log.append(data)
        assert self.storage.log.end_offset == effect.next_offset
        self._notifications.append(lambda: self._listener.fetched(data))

    def _truncate(self, effect: TruncateLog) -> None:
        self.storage.truncate_to(effect.offset)
        self._notifications.append(lambda: self._listener.truncated(effect.offset))

    def _flush(self, effect: FlushLog) -> None:
        assert not self._flushing
        assert self.storage.log.end_offset == effect.end_offset
        self._flushing = True
        self.storage.log.flush().then(lambda error: self._flushed(effect, error))

    def _flushed(self, effect: FlushLog, error: OSError | None) -> None:
        self._flushing = False
        if error is None and self.alive:
            try:
                self.storage.flushed(effect.end_offset)
            except OSError as failure:
                error = failure
        if error is not None:
            self._disk_failed(error)
            return
        self.step(Flushed(end_offset=effect.end_offset, epoch=effect.epoch))

    def _disk_failed(self, error: OSError) -> None:
        # After a failed sync the state of the disk is unknown: it cannot be retried.
        if self.alive:
            log.error("flushing the metadata log failed", exc_info=error)
            self._fail(_text(error))
            self._notify()

    def _commit(self, effect: AdvanceHighWatermark) -> None:
        self._notifications.append(lambda: self._listener.committed(effect.offset))

    def _notify_leader(self, effect: LeaderChanged) -> None:
        self._notifications.append(
            lambda: self._listener.leader_changed(effect.leader_id, effect.epoch)
        )

    @property
    def _required_peers(self) -> Peers:
        assert self._peers is not None, "the only voter of a quorum sends no requests"
        return self._peers

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        self.storage.write_snapshot_piece(effect.snapshot, effect.position, effect.data)

    def _adopt_snapshot(self, effect: AdoptSnapshot) -> None:
        content = self.storage.adopt_snapshot(effect.snapshot)
        self._notifications.append(
            lambda: self._listener.snapshot_adopted(effect.snapshot, content)
        )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _unexpected_answer(effect: Answer) -> None:
    raise AssertionError(f"an answer without a request: {effect}")
