"""A controller: decides on the appended image, answers once the records are committed.

Only the quorum's leader is active. The others replay what it appends and publish what is
committed, so that each can take over at once; what is appended but not committed when a leader
resigns is dropped or committed by the next leader, and its callers get NOT_CONTROLLER.

One decision is made at a time, on the loop, on the image of all records appended so far; so none
waits for the flush of another. Records are appended to the metadata log at once, they are flushed
in a thread, and what is appended meanwhile shares the next flush. Replies and effects come in the
order of the decisions, when the high watermark has passed them; a failed write ends the
controller, and nothing uncommitted is ever acknowledged.

Not done: registration of controllers (RegisterController): brokers find the controller from
          controller.quorum.voters or controller.quorum.bootstrap.servers.

Source: QuorumController, ActivationRecordsGenerator, DeferredEventQueue of Kafka; KIP-631,
KIP-835 (no-op records), KIP-630 (snapshots).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.base.limits import (
    DELETED_REPLICAS_PER_STEP_MAX,
    DELETIONS_PER_STEP_MAX,
    PARTITIONS_PER_REQUEST_MAX,
)
from ottla.base.metrics import latency_ms
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Workers
from ottla.base.timers import Timer, Timers
from ottla.broker.ports import Listeners
from ottla.controller.statistics import ElectionStatistics
from ottla.controller.step import Decision, Step
from ottla.host.kraft.quorum_driver import QuorumDriver, QuorumLinks
from ottla.host.kraft.quorum_replay import decode_batches, image_of, load_image, replay_batches
from ottla.host.kraft.quorum_server import QuorumServer
from ottla.host.kraft.quorum_snapshots import SnapshotLimits, Snapshotter
from ottla.host.kraft.quorum_storage import READ_BYTES_MAX, QuorumStorage
from ottla.metadata.delta import ClusterDelta, delta_between, replay
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import NoOpRecord, Record, encode_record, with_no_op
from ottla.raft.batches import batch_bytes
from ottla.raft.node import RaftNode
from ottla.raft.snapshots import SnapshotContent
from ottla.raft.values import OffsetAndEpoch, ReplicaKey

log = logging.getLogger(__name__)

R = TypeVar("R")

RECORDS_PER_STEP_MAX = 40_000
"""The most records of one atomic step: a request's 10,000 partitions with their topics and configs.
Kafka stops at 10,000 records, and so refuses ten topics of 1,000 partitions in one request."""

assert RECORDS_PER_STEP_MAX >= 2 * PARTITIONS_PER_REQUEST_MAX
assert RECORDS_PER_STEP_MAX >= 2 * (2 * DELETIONS_PER_STEP_MAX + DELETED_REPLICAS_PER_STEP_MAX)

BATCH_BYTES_MAX = READ_BYTES_MAX // 2
"""Encoded records of one batch; a follower must be able to fetch it whole."""

IDLE_INTERVAL_MS = 500
"""metadata.max.idle.interval.ms"""


@dataclass(slots=True)
class _Appended:
    """One appended batch. `outcome`: None = committed, else why it will not be."""

    next_offset: int
    delta: ClusterDelta
    wall_ms: int
    monotonic_ms: int
    size_bytes: int
    outcome: Pending[ApiError | None] = field(default_factory=Pending)


class ControllerRuntime:
    """One controller. See `ottla.broker.api.base.ControllerPort`.

    Fields: `image`: with everything appended; the next decision is made on it.
            `committed_image`: what readers and followers may see.
            `quorum`: answers the quorum's requests (`QuorumPort`).
            `records_appended`, `commit_latency`: of this controller's own decisions.
            `statistics`: of what was committed since the start; `leaders_seen`: how often a
            controller became active.
    Hooks:  `on_active`: the first record of this epoch is committed; `on_effect`: a decision's
            effect is due; `on_failure`: the controller has failed.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        voters: tuple[int, ...],
        storage: QuorumStorage,
        bootstrap: Sequence[Record],
        clock: Clock,
        timers: Timers,
        workers: Workers,
        on_failure: Callable[[str], None],
        on_active: Callable[[], None] = lambda: None,
        on_inactive: Callable[[], None] = lambda: None,
        on_effect: Callable[[Any], None] = lambda effect: None,
        idle_interval_ms: int = IDLE_INTERVAL_MS,
        snapshot_limits: SnapshotLimits | None = None,
        nodes: Callable[[], dict[int, Listeners]] = dict,
        links: QuorumLinks | None = None,
    ) -> None:
        self.node_id = node_id
        self.committed_image = EMPTY
        self._tail = EMPTY
        self.active = False
        self.records_appended = 0
        self.commit_latency = latency_ms()
        self.statistics = ElectionStatistics()
        self.leaders_seen = 0
        self._storage = storage
        self._bootstrap = tuple(bootstrap)
        self._clock = clock
        self._timers = timers
        self._on_failure = on_failure
        self._on_active = on_active
        self._on_inactive = on_inactive
        self._on_effect = on_effect
        self._idle_interval_ms = idle_interval_ms
        self._idle_timer: Timer | None = None
        self._queue: deque[_Appended] = deque()
        self._subscribers: list[Callable[[ClusterDelta], None]] = []
        self._leader_listeners: list[Callable[[int, int], None]] = []
        self._driver = QuorumDriver(
            local=ReplicaKey(node_id),
            voters=voters,
            storage=storage,
            clock=clock,
            timers=timers,
            listener=self,
            links=links,
        )
        assert self._driver.node.is_voter, "a controller is one of the quorum's voters"
        self._snapshotter = Snapshotter(
            self._driver,
            lambda: self.committed_image,
            clock=clock,
            timers=timers,
            workers=workers,
            limits=snapshot_limits or SnapshotLimits(),
        )
        self.quorum = QuorumServer(self._driver, cluster_id=cluster_id, clock=clock, nodes=nodes)

    # -- lifecycle -----------------------------------------------------------------------------

    def start(self) -> None:
        """Load the log, join the quorum; alone, lead it. Raises: MetadataDamaged, OSError."""
        self._load()
        self._snapshotter.start()
        self._driver.start()

    def _load(self) -> None:
        """Replay the log, none of which is known to be committed."""
        image = load_image(self._storage)
        if image.position != self._tail.position:
            delta = delta_between(self._tail, image)
            self._enqueue(self._storage.log.end_offset, delta, 0)

    def stop(self) -> None:
        """Resign: waiting callers get NOT_CONTROLLER."""
        self._driver.stop()
        self._shut_down()

    @property
    def image(self) -> ClusterImage:
        """Return the appended image while this controller is active, else the committed one."""
        return self._tail if self.active else self.committed_image

    @property
    def epoch(self) -> int:
        """Return the leader epoch."""
        return self._driver.node.epoch

    @property
    def leader_id(self) -> int:
        """Return the quorum's leader; -1 = unknown."""
        return self._driver.node.leader_id

    @property
    def load_errors(self) -> int:
        """Return how often metadata could not be loaded, which ends the controller."""
        return self._driver.load_errors

    @property
    def raft(self) -> RaftNode:
        """Return the quorum member, for metrics and tests."""
        return self._driver.node

    def _deactivate(self) -> None:
        """Stop deciding. What is appended may be committed by the next leader, or not."""
        was_active, self.active = self.active, False
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for appended in tuple(self._queue):
            appended.outcome.complete(ApiError(Error.NOT_CONTROLLER))
        if was_active:
            self._on_inactive()

    def _shut_down(self) -> None:
        self._deactivate()
        self._snapshotter.stop()
        self._drop_appended(lambda appended: True)

    def _drop_appended(self, is_removed: Callable[[_Appended], bool]) -> None:
        """Drop, from the newest on, what is no longer in the log."""
        while self._queue and is_removed(self._queue[-1]):
            self._queue.pop().outcome.complete(ApiError(Error.NOT_CONTROLLER))
        self._tail = self._queue[-1].delta.image if self._queue else self.committed_image

    # -- decisions -----------------------------------------------------------------------------

    def run(
        self, decide: Callable[[ClusterImage], Decision[R]], *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Decide now; answer when the decision's records, and those before it, are committed."""
        answer: Pending[R | ApiError] = Pending()
        if not self.active or not self._driver.node.is_leader:
            answer.complete(ApiError(Error.NOT_CONTROLLER))
        elif deadline_ms is not None and self._clock.monotonic_ms() >= deadline_ms:
            answer.complete(ApiError(Error.REQUEST_TIMED_OUT))
        else:
            self._run(decide, answer)
        return answer

    def _run(
        self, decide: Callable[[ClusterImage], Decision[R]], answer: Pending[R | ApiError]
    ) -> None:
        try:
            decision = decide(self._tail)
            appended = self._append(decision.step)
        except ApiError as error:
            answer.complete(error)
            return
        except Exception:
            log.exception("controller operation failed; nothing was written")
            answer.complete(ApiError(Error.UNKNOWN_SERVER_ERROR))
            return

        def decided(error: ApiError | None) -> None:
            if error is not None:
                _guarded(answer.complete, error)
                return
            for effect in decision.step.effects:
                _guarded(self._on_effect, effect)
            _guarded(answer.complete, decision.reply)

        if appended is None and self._queue:
            # It wrote nothing, but may rest on what is not committed yet.
            appended = self._queue[-1]
        if appended is None:
            decided(None)
        else:
            appended.outcome.then(decided)

    def run_step(self, decide: Callable[[ClusterImage], Step]) -> Pending[ApiError | None]:
        """Decide without a request: the work of timers."""
        return self.run(lambda image: Decision(decide(image), None))

    def _append(self, step: Step) -> _Appended | None:
        """Append a step's records; return its last batch, None without records."""
        batches = list(_batches_of(step))
        if not batches:
            return None
        # All is replayed before anything is written: a record that cannot be replayed must not
        # get into the log, where it would fail every later start.
        image, base_offset = self._tail, self._driver.node.log.end_offset
        deltas = []
        for records, _values in batches:
            base_offset += len(records)
            deltas.append(replay(image, records, offset=base_offset - 1, epoch=self.epoch))
            image = deltas[-1].image
        for delta, (_records, values) in zip(deltas, batches, strict=True):
            appended = self._enqueue(delta.image.position[0] + 1, delta, batch_bytes(values))
            self.records_appended += len(values)
            self._driver.propose(values)
            if not self._driver.alive:
                break
        return appended

    def _enqueue(self, next_offset: int, delta: ClusterDelta, size_bytes: int) -> _Appended:
        clock = self._clock
        appended = _Appended(next_offset, delta, clock.now_ms(), clock.monotonic_ms(), size_bytes)
        self._queue.append(appended)
        self._tail = delta.image
        return appended

    # -- readers -------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener` with the committed state, then with each change to it."""
        if self.committed_image.position != EMPTY.position:
            listener(delta_between(EMPTY, self.committed_image))
        self._subscribers.append(listener)

    def unsubscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Remove a listener of `subscribe`."""
        self._subscribers.remove(listener)

    def on_leader(self, listener: Callable[[int, int], None]) -> None:
        """Call `listener` with leader and epoch, now and with each change; -1 = no leader."""
        listener(self.leader_id, self.epoch)
        self._leader_listeners.append(listener)

    # -- QuorumListener ------------------------------------------------------------------------

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Become active, or inactive."""
        self.leaders_seen += leader_id != NO_LEADER
        for listener in tuple(self._leader_listeners):
            listener(leader_id, epoch)
        if leader_id != self.node_id:
            self._deactivate()
            return
        log.info("controller %d leads epoch %d of the metadata quorum", leader_id, epoch)
        end_offset = self._driver.node.log.end_offset
        epoch_start = replay(self._tail, (), offset=end_offset - 1, epoch=epoch)
        first = self._enqueue(end_offset, epoch_start, 0)
        self.active = True
        if METADATA_VERSION not in self._tail.features:
            log.info("writing %d bootstrap records", len(self._bootstrap))
            self.run_step(lambda image: Step(self._bootstrap))
        first.outcome.then(self._on_epoch_start)
        self._arm_idle()

    def _on_epoch_start(self, error: ApiError | None) -> None:
        if error is None:
            _guarded(lambda _none: self._on_active(), None)

    def committed(self, offset: int) -> None:
        """Publish and answer, in the order of the decisions."""
        while self._queue and self._queue[0].next_offset <= offset:
            appended = self._queue.popleft()
            self.committed_image = appended.delta.image
            self.statistics.observe(appended.delta)
            if appended.size_bytes:
                elapsed_ms = self._clock.monotonic_ms() - appended.monotonic_ms
                self.commit_latency.observe(elapsed_ms)
            for subscriber in tuple(self._subscribers):
                _guarded(subscriber, appended.delta)
            self._snapshotter.committed(appended.size_bytes, appended.wall_ms)
            appended.outcome.complete(None)

    def fetched(self, data: bytes) -> None:
        """Replay what the leader appended, to be published once it is committed."""
        for each in decode_batches(self._storage, data):
            delta = replay_batches(self._tail, (each,), self._storage)
            self._enqueue(each.batch.next_offset, delta, each.batch.size_bytes)

    def truncated(self, offset: int) -> None:
        """Drop what the leader does not have; none of it was committed."""
        log.info("metadata log truncated to offset %d", offset)
        self._drop_appended(lambda appended: appended.next_offset > offset)
        if self._tail.position[0] + 1 < offset:
            self._load()  # What was loaded at the start is one change, and part of it is truncated.

    def snapshot_adopted(self, snapshot: OffsetAndEpoch, content: SnapshotContent) -> None:
        """Replace the state with a snapshot's."""
        log.info("loading metadata snapshot at offset %d, epoch %d", *snapshot)
        self._drop_appended(lambda appended: True)
        delta = delta_between(self._tail, image_of(snapshot, content, self._storage))
        self._enqueue(snapshot.offset, delta, 0)

    def failed(self, reason: str) -> None:
        """Stop; nothing uncommitted is acknowledged."""
        log.critical("controller %d failed: %s; stopping", self.node_id, reason)
        self._shut_down()
        self._on_failure(reason)

    # -- time ----------------------------------------------------------------------------------

    def _arm_idle(self) -> None:
        if self._idle_interval_ms > 0:
            at_ms = self._clock.monotonic_ms() + self._idle_interval_ms
            self._idle_timer = self._timers.at(at_ms, self._idle)

    def _idle(self) -> None:
        """Append a NoOpRecord when idle, so that the committed offset advances (KIP-835)."""
        if self.active:
            self.run_step(lambda image: Step((NoOpRecord(),)))
            self._arm_idle()


Batch = tuple[Sequence[Record], tuple[bytes, ...]]
"""A batch's records, and their encodings."""


def _batches_of(step: Step) -> Iterator[Batch]:
    """Yield a step's records as batches, with their encodings: one if it is atomic.

    Raises: ApiError where an atomic step is too large.
    """
    values = tuple(encode_record(record) for record in step.records)
    if step.atomic:
        size = batch_bytes(values)
        if len(values) > RECORDS_PER_STEP_MAX or size > BATCH_BYTES_MAX:
            raise ApiError(
                Error.POLICY_VIOLATION,
                f"the operation needs {len(values)} records of {size} bytes at once, more than "
                f"the {RECORDS_PER_STEP_MAX} records or {BATCH_BYTES_MAX} bytes that may be",
            )
        if values:
            yield _batch(step.records, values)
        return
    start = size = 0
    for index, value in enumerate(values):
        too_many = index - start >= RECORDS_PER_STEP_MAX
        if index > start and (too_many or size + len(value) > BATCH_BYTES_MAX):
            yield _batch(step.records[start:index], values[start:index])
            start, size = index, 0
        size += len(value)
    if start < len(values):
        yield _batch(step.records[start:], values[start:])


def _batch(records: Sequence[Record], values: tuple[bytes, ...]) -> Batch:
    """Return a batch with at least one record type that Kafka knows; see `with_no_op`."""
    known = tuple(with_no_op(list(values)))
    added = len(known) - len(values)
    return (*(NoOpRecord() for _ in range(added)), *records), known


def _guarded(call: Callable[[Any], object], value: Any) -> None:
    """Call a listener; log its exception."""
    try:
        call(value)
    except Exception:
        log.exception("a controller listener failed")
