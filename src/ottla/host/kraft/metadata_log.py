"""The metadata log of a KRaft cluster behind the metadata port, for one controller.

Only the quorum's leader appends. The others replay what it appends and publish what is committed,
so that each can take over at once; what is appended but not committed when a leader resigns is
dropped or committed by the next leader, and its callers learn only that it is fenced.

The image is that of all records appended so far, so no decision waits for the flush of another.
Records are appended at once, they are flushed in a thread, and what is appended meanwhile shares
the next flush. Listeners are called, and appends answered, in the order of the log, when the high
watermark has passed them; a failed write ends the controller, and nothing uncommitted is ever
acknowledged.

Not done: registration of controllers (RegisterController): brokers find the controller from
          controller.quorum.voters or controller.quorum.bootstrap.servers.

Source: QuorumController, ActivationRecordsGenerator, DeferredEventQueue of Kafka; KIP-631,
KIP-835 (no-op records), KIP-630 (snapshots).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.base.limits import (
    DELETED_REPLICAS_PER_STEP_MAX,
    DELETIONS_PER_STEP_MAX,
    PARTITIONS_PER_REQUEST_MAX,
)
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Workers
from ottla.base.timers import Timer, Timers, aligned
from ottla.broker.ports import Listeners
from ottla.controller.metadata_port import Appended, Committed, Fenced
from ottla.controller.step import Step
from ottla.host.kraft.quorum_driver import WITHIN_A_STEP, QuorumDriver, QuorumLinks
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
class _Batch:
    """One appended batch. `is_committed`: False = it will not be, as far as this leader knows."""

    next_offset: int
    delta: ClusterDelta
    wall_ms: int
    size_bytes: int
    is_committed: Pending[bool] = field(default_factory=Pending)


class MetadataLog:
    """One member of the quorum. See `ottla.controller.metadata_port.MetadataPort`.

    Fields: `image`: with everything appended; the next decision is made on it. On another member
            than the leader, the committed one.
            `committed_image`: what readers and followers may see.
            `quorum`: answers the quorum's requests (`QuorumPort`).
            `records_appended`: by this member as the leader.
            `leaders_seen`: how often a controller became active.
    Hooks:  `on_elected`: this member leads this epoch. `on_resigned`: it leads no more; called
            before what is under way is answered. `on_failure`: the controller has failed.
    """

    is_pipelined = True

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
        on_elected: Callable[[int], None],
        on_resigned: Callable[[], None],
        on_failure: Callable[[str], None],
        idle_interval_ms: int = IDLE_INTERVAL_MS,
        snapshot_limits: SnapshotLimits | None = None,
        nodes: Callable[[], dict[int, Listeners]] = dict,
        links: QuorumLinks | None = None,
    ) -> None:
        self.node_id = node_id
        self.committed_image = EMPTY
        self._tail = EMPTY
        self._led_epoch = NO_EPOCH
        self.records_appended = 0
        self.leaders_seen = 0
        self._storage = storage
        self._bootstrap = tuple(bootstrap)
        self._clock = clock
        self._timers = timers
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._on_failure = on_failure
        self._idle_interval_ms = idle_interval_ms
        self._idle_timer: Timer | None = None
        self._queue: deque[_Batch] = deque()
        self._publishing: _Batch | None = None
        """A committed batch while listeners are called: it is not answered yet."""
        self._listeners: list[Callable[[ClusterDelta], None]] = []
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
        self.quorum = QuorumServer(
            self._driver, self._snapshotter.take, cluster_id=cluster_id, clock=clock, nodes=nodes
        )

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
        """Return the appended image while this member leads, else the committed one."""
        return self._tail if self.is_leading else self.committed_image

    @property
    def is_leading(self) -> bool:
        """Tell whether this member leads, and may append."""
        return self._led_epoch != NO_EPOCH

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

    def _resign(self) -> None:
        """Append no more. What is appended may be committed by the next leader, or not."""
        was_leading, self._led_epoch = self.is_leading, NO_EPOCH
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if was_leading:
            self._on_resigned()
        for batch in tuple(self._queue):
            batch.is_committed.complete(False)

    def _shut_down(self) -> None:
        self._resign()
        self._snapshotter.stop()
        self._drop_appended(lambda batch: True)

    def _drop_appended(self, is_removed: Callable[[_Batch], bool]) -> None:
        """Drop, from the newest on, what is no longer in the log."""
        while self._queue and is_removed(self._queue[-1]):
            self._queue.pop().is_committed.complete(False)
        self._tail = self._queue[-1].delta.image if self._queue else self.committed_image

    # -- appending -----------------------------------------------------------------------------

    def append(self, step: Step, epoch: int) -> Pending[Appended | ApiError]:
        """Append a step that was decided on `image`; answer once it, and all before, is committed.

        Raises: ApiError where it cannot be written.
        """
        if not self.is_leading or epoch != self._led_epoch:
            return completed(Fenced())
        if not self._may_append:
            # It is fenced once what is committed up to here was published and answered.
            raise ApiError(Error.NOT_CONTROLLER)
        batches = list(_batches_of(step))
        # A step without records may rest on what is not committed, or not answered, yet.
        last = self._queue[-1] if self._queue else self._publishing
        if not batches and last is None:
            return completed(Committed(()))
        # Before anything is queued: the runtime answers that nothing was written.
        assert not self._driver.is_stepping, WITHIN_A_STEP
        deltas = self._replayed(batches)
        for delta, (_records, values) in zip(deltas, batches, strict=True):
            last = self._enqueue(delta.image.position[0] + 1, delta, batch_bytes(values))
            self.records_appended += len(values)
            self._driver.propose(values)
            if not self._driver.alive:
                break
        assert last is not None
        return last.is_committed.map(
            lambda is_committed: Committed(deltas) if is_committed else Fenced()
        )

    @property
    def _may_append(self) -> bool:
        """Tell whether the quorum member leads, too: it learns of a newer epoch first."""
        return self._driver.node.is_leader

    def _replayed(self, batches: Sequence["RecordBatch"]) -> tuple[ClusterDelta, ...]:
        """Replay batches before any is written.

        A record that cannot be replayed must not get into the log, where it would fail every later
        start.
        """
        image, base_offset = self._tail, self._driver.node.log.end_offset
        deltas = []
        for records, _values in batches:
            base_offset += len(records)
            deltas.append(replay(image, records, offset=base_offset - 1, epoch=self.epoch))
            image = deltas[-1].image
        return tuple(deltas)

    def _enqueue(self, next_offset: int, delta: ClusterDelta, size_bytes: int) -> _Batch:
        batch = _Batch(next_offset, delta, self._clock.now_ms(), size_bytes)
        self._queue.append(batch)
        self._tail = delta.image
        return batch

    # -- readers -------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener` with each change from now on that is committed."""
        self._listeners.append(listener)

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
            self._resign()
            return
        log.info("controller %d leads epoch %d of the metadata quorum", leader_id, epoch)
        end_offset = self._driver.node.log.end_offset
        epoch_start = replay(self._tail, (), offset=end_offset - 1, epoch=epoch)
        self._enqueue(end_offset, epoch_start, 0)
        self._led_epoch = epoch
        self._on_elected(epoch)
        if METADATA_VERSION not in self._tail.features:
            log.info("writing %d bootstrap records", len(self._bootstrap))
            self._append_own(Step(self._bootstrap))
        self._arm_idle()

    def _append_own(self, step: Step) -> None:
        if self._may_append:
            self.append(step, self._led_epoch)

    def committed(self, offset: int) -> None:
        """Publish and answer, in the order of the log."""
        while self._queue and self._queue[0].next_offset <= offset:
            batch = self._publishing = self._queue.popleft()
            self.committed_image = batch.delta.image
            for listener in tuple(self._listeners):
                listener(batch.delta)
            self._snapshotter.committed(batch.size_bytes, batch.wall_ms)
            self._publishing = None
            batch.is_committed.complete(True)

    def fetched(self, data: bytes) -> None:
        """Replay what the leader appended, to be published once it is committed."""
        for each in decode_batches(self._storage, data):
            delta = replay_batches(self._tail, (each,), self._storage)
            self._enqueue(each.batch.next_offset, delta, each.batch.size_bytes)

    def truncated(self, offset: int) -> None:
        """Drop what the leader does not have; none of it was committed."""
        log.info("metadata log truncated to offset %d", offset)
        self._drop_appended(lambda batch: batch.next_offset > offset)
        if self._tail.position[0] + 1 < offset:
            self._load()  # What was loaded at the start is one change, and part of it is truncated.

    def snapshot_adopted(self, snapshot: OffsetAndEpoch, content: SnapshotContent) -> None:
        """Replace the state with a snapshot's."""
        log.info("loading metadata snapshot at offset %d, epoch %d", *snapshot)
        self._drop_appended(lambda batch: True)
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
            at_ms = aligned(self._clock.monotonic_ms(), self._idle_interval_ms)
            self._idle_timer = self._timers.at(at_ms, self._idle)

    def _idle(self) -> None:
        """Append a NoOpRecord when idle, so that the committed offset advances (KIP-835)."""
        if self.is_leading:
            self._append_own(Step((NoOpRecord(),)))
            self._arm_idle()


RecordBatch = tuple[Sequence[Record], tuple[bytes, ...]]
"""A batch's records, and their encodings."""


def _batches_of(step: Step) -> Iterator[RecordBatch]:
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


def _batch(records: Sequence[Record], values: tuple[bytes, ...]) -> RecordBatch:
    """Return a batch with at least one record type that Kafka knows; see `with_no_op`."""
    known = tuple(with_no_op(list(values)))
    added = len(known) - len(values)
    return (*(NoOpRecord() for _ in range(added)), *records), known
