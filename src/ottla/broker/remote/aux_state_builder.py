"""Builds the state of a follower's log that begins behind records in remote storage.

Kafka calls it the remote log auxiliary state. The decisions are in `ottla.tiered.aux_state`; here
are the questions, in their order:

1. The leader: its log start and its local log start X.
2. The leader: the epoch of X - 1, which is that of X or the one before.
3. This broker's own remote log metadata: the segment with X - 1.
4. The leader, where the segment ends behind X - 1: has it all records of the segment?
5. The store: the segment's leader epochs, and the producers' state behind its end.
6. The leader, where its log starts before these leader epochs: the epochs before.

Nothing is changed by all this: the follower installs the result in one step, if it still follows
this leader in this epoch. A limited number are built at once. Every failure may pass, and the
follower tries again: a segment may be deleted meanwhile, and metadata may lag.

Source: KIP-405; Kafka's TierStateMachine.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.base.errors import ApiError
from ottla.base.ids import NO_EPOCH
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.remote.dialogue import Dialogue, Running, Slots, wait
from ottla.broker.remote.reads.range_reads import RangeReads, StoreFailed
from ottla.broker.remote.reads.remote_segments import RemoteLogs
from ottla.broker.remote.remote_metrics import RemoteMetrics, RemoteTopicMetrics
from ottla.broker.replication.remote_log_port import (
    AllLocal,
    AuxState,
    AuxStateFailed,
    AuxStateOutcome,
    LeaderLog,
    LeaderStarts,
    Problem,
)
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.epoch_cache import EpochEnd, EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_snapshot import decode_snapshot
from ottla.log.remote_prefix import RemotePrefix
from ottla.tiered.aux_state import (
    Beginning,
    add_earlier,
    begins_behind,
    cut_at_log_start,
    epoch_before,
    last_epoch,
    prefix_epochs,
    segment_before,
)
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata

T = TypeVar("T")

BUILDS_MAX: Final = 10
"""States that are built at once: after a disk was lost, thousands of partitions wait for one."""

BUILD_MS_MAX: Final = 60_000
"""How long one may take, without its wait for a slot."""

OBJECT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest checkpoint or snapshot that is read: of a million producers."""


_BUG: Final = AuxStateFailed(Problem.BUG)


class _Failed(Exception):
    """The state cannot be built now."""

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(problem.value)
        self.outcome = AuxStateFailed(problem, detail)


class Build:
    """A state that is being built: see the port."""

    __slots__ = ("_running",)

    def __init__(self, running: Running[AuxStateOutcome]) -> None:
        self._running = running

    @property
    def outcome(self) -> Pending[AuxStateOutcome]:
        """Return the promise of the state."""
        return self._running.outcome

    def cancel(self) -> None:
        """End it; harmless once it is over."""
        self._running.cancel()


class AuxStateBuilder:
    """See the module."""

    def __init__(
        self,
        reads: RangeReads,
        remote_logs: RemoteLogs,
        metrics: RemoteMetrics,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._reads = reads
        self._remote_logs = remote_logs
        self._metrics = metrics
        self._clock = clock
        self._timers = timers
        self._slots = Slots(BUILDS_MAX)

    def build(self, log: PartitionLog, leader: LeaderLog) -> Build:
        """Begin to build the state of a follower's log; `leader`: of its partition."""
        running: Running[AuxStateOutcome] = Running(
            self._steps(log, leader), self._timers, self._clock, on_bug=_BUG
        )
        counters = self._metrics.of_topic(log.topic)
        counters.build_aux_state_requests += 1
        running.outcome.then(partial(_count_error, counters))
        running.start()
        return Build(running)

    def _steps(self, log: PartitionLog, leader: LeaderLog) -> Dialogue[AuxStateOutcome]:
        yield from self._slots.acquire()
        try:
            inner: Running[AuxStateOutcome] = Running(
                self._build(log, leader), self._timers, self._clock, on_bug=_BUG
            )
            late = AuxStateFailed(Problem.TIMED_OUT)
            due_ms = self._clock.monotonic_ms() + BUILD_MS_MAX
            timer = self._timers.at(due_ms, lambda: inner.end(late))
            try:
                inner.start()
                return (yield from wait(inner.outcome))
            finally:
                timer.cancel()
                inner.cancel()
        finally:
            self._slots.release()

    def _build(self, log: PartitionLog, leader: LeaderLog) -> Dialogue[AuxStateOutcome]:
        try:
            self._remote_segments(log)  # Else the leader need not be asked.
            starts = yield from _answered(leader.starts())
            if starts.log_start_offset >= starts.local_log_start_offset:
                return AllLocal(starts.log_start_offset)
            beginning = yield from self._beginning(log, leader, starts)
            epochs = yield from self._epochs(leader, starts, beginning)
            producers = None
            if beginning.has_producers:
                producers = yield from self._producers(beginning.segment)
        except _Failed as failed:
            return failed.outcome
        prefix = RemotePrefix(
            log_start_offset=starts.log_start_offset, epochs=epochs, producers=producers
        )
        return AuxState(
            offset=beginning.offset, prefix=prefix, leader_start=starts.local_log_start_offset
        )

    def _remote_segments(self, log: PartitionLog) -> Sequence[SegmentMetadata]:
        remote = self._remote_logs(log.topic_id, log.partition)
        if remote is None:
            raise _Failed(Problem.NOT_READY)
        return remote.segments()

    def _beginning(
        self, log: PartitionLog, leader: LeaderLog, starts: LeaderStarts
    ) -> Dialogue[Beginning]:
        """Return where the follower's log begins."""
        start, epoch = starts.local_log_start_offset, starts.epoch
        if epoch == NO_EPOCH:
            raise _Failed(Problem.LEADER, f"it knows no leader epoch of offset {start}")
        if epoch > 0:
            earlier = yield from _answered(leader.epoch_end(epoch - 1))
            epoch = epoch_before(start, epoch, earlier)
        segment = segment_before(self._remote_segments(log), start, epoch)
        if segment is None:
            detail = f"offset {start - 1} in leader epoch {epoch}"
            raise _Failed(Problem.NO_SEGMENT, detail)
        last: EpochEnd | None = None
        if segment.end_offset >= start:
            last = yield from _answered(leader.epoch_end(last_epoch(segment)))
        return begins_behind(segment, start, epoch, last)

    def _epochs(
        self, leader: LeaderLog, starts: LeaderStarts, beginning: Beginning
    ) -> Dialogue[tuple[EpochEntry, ...]]:
        """Return the leader epochs from the log start to the beginning."""
        name = object_name(beginning.segment, ObjectKind.LEADER_EPOCHS)
        data = yield from self._read(name)
        try:
            entries = prefix_epochs(data, beginning)
        except MalformedFile as damage:
            raise _Failed(Problem.DAMAGED, f"{name}: {damage}") from None
        log_start = starts.log_start_offset
        is_complete = entries[0].start_offset <= log_start
        while not is_complete:
            earlier = yield from _answered(leader.epoch_end(entries[0].epoch - 1))
            added = add_earlier(entries, earlier, log_start=log_start, offset=beginning.offset)
            if added is None:
                raise _Failed(Problem.LEADER, "its log start has moved")
            entries, is_complete = added
        return cut_at_log_start(entries, log_start)

    def _producers(self, segment: SegmentMetadata) -> Dialogue[bytes]:
        """Return the content of a producer snapshot, which was checked."""
        name = object_name(segment, ObjectKind.PRODUCER_SNAPSHOT)
        data = yield from self._read(name)
        try:
            decode_snapshot(data)
        except MalformedFile as damage:
            raise _Failed(Problem.DAMAGED, f"{name}: {damage}") from None
        return data

    def _read(self, name: str) -> Dialogue[bytes]:
        try:
            return bytes((yield from self._reads.read(name, 0, OBJECT_BYTES_MAX)))
        except StoreFailed as failed:
            problem = Problem.MISSING if failed.is_missing else Problem.STORE
            raise _Failed(problem, str(failed)) from None


def _count_error(counters: RemoteTopicMetrics, outcome: AuxStateOutcome) -> None:
    counters.build_aux_state_errors += isinstance(outcome, AuxStateFailed)


def _answered(promise: Pending[T | ApiError]) -> Dialogue[T]:
    answer = yield from wait(promise)
    if isinstance(answer, ApiError):
        raise _Failed(Problem.LEADER, f"{answer.error.name}: {answer.message}")
    return answer
