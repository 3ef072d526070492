"""Reads for fetch requests: how much of which partition, now or after a wait.

A fetch that does not find enough waits in a purgatory under its partitions. The bytes appended to
them are counted, and once they are enough the whole fetch is read again. Consumers read up to the
high watermark, followers up to the log's end: an append wakes followers' fetches; their next fetch
moves the high watermark, and that wakes consumers' fetches.

What a consumer wants below the local log start is read from the remote tier. Such a read is begun
and wakes the fetch when it has ended; what it brought is kept until the next attempt. Followers
never read the remote tier: they get OFFSET_MOVED_TO_TIERED_STORAGE.

Source: Kafka's ReplicaManager.readFromLog, DelayedFetch, DelayedRemoteFetch; KIP-74 (fetch sizes),
KIP-392, KIP-405.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.limits import COPIED_BYTES_MAX
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers, aligned
from ottla.base.turns import Steps, at_once
from ottla.broker.fetch.fetch_sessions import Fetching, FetchPartition, FetchSession
from ottla.broker.fetch.read_replica import Selector
from ottla.broker.fetch.reading import PartitionRead, divergence
from ottla.broker.fetch.remote_port import (
    REMOTE_BYTES_PER_FETCH_MAX,
    RemoteData,
    RemoteFetch,
    RemoteReads,
)
from ottla.broker.partition import Partition
from ottla.broker.purgatory import DelayedOperation, Purgatory
from ottla.broker.replication.idle_session_partitions import activate, watch
from ottla.log.file_cache import SliceCopy

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

WATERMARK_DELAY_MS = 10
"""How long a follower's delayed fetch waits for records before it returns with a new high watermark
or log start alone: under load these come with the next records, at no extra request."""

_MOVED = Error.OFFSET_MOVED_TO_TIERED_STORAGE
_NONE = Error.NONE

PARTITIONS_PER_STEP = 64
"""Partitions that a large fetch reads between two points where it may yield."""

Reads = list[tuple[FetchPartition, PartitionRead]]


NO_WAIT = -1
"""As `max_wait_ms`: the fetch does not wait for remote reads either."""


class FetchLimits(NamedTuple):
    """How much a fetch wants, and how long it waits.

    `closed` completes when the connection closes, to which remote reads belong; None = the fetch
    cannot read the remote tier.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed_only: bool
    replica_id: int = -1
    replica_epoch: int = -1
    anywhere: bool = False
    """Whether the consumer may read from a follower, and be sent to one: Fetch v11 and later."""
    rack: str = ""
    listener_name: str = ""
    closed: Pending[None] | None = None


class ReplicaManagerPort(Protocol):
    """The replica manager, as far as fetches use it."""

    def partition_for(self, requested: FetchPartition) -> Partition:
        """Return the partition that a fetch names; raise ApiError."""
        ...

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        """Take the partition's log directory offline."""
        ...

    def follower_moved(self, partition: Partition) -> None:
        """Wake what waits for a follower: the high or low watermark may have moved."""
        ...

    def log_unreadable(self, partition: Partition, offset: int, refusal: ApiError) -> None:
        """Note that a fetch failed, perhaps for damage on the disk."""
        ...


class FetchReader:
    """Reads for fetch requests, and keeps those that wait in a purgatory.

    `select` returns a consumer's preferred read replica; None = always this one. `remote`: the
    remote tier; None = this broker has none.
    """

    def __init__(
        self,
        replica_manager: ReplicaManagerPort,
        clock: Clock,
        timers: Timers,
        select: Selector | None = None,
        remote: RemoteReads | None = None,
    ) -> None:
        self._replica_manager = replica_manager
        self._clock = clock
        self._select = select
        self.remote = remote
        self.remote_expires = 0
        """Fetches that waited for remote reads until their deadline."""
        self.consumer_purgatory = Purgatory(timers)
        self.follower_purgatory = Purgatory(timers)

    @property
    def count(self) -> int:
        """Return how many fetches wait."""
        return self.consumer_purgatory.count + self.follower_purgatory.count

    def fetch(
        self, fetching: Fetching, limits: FetchLimits, closed: Pending[None]
    ) -> Reads | Pending[Reads]:
        """Do all steps of `fetch_in_steps` now."""
        return at_once(self.fetch_in_steps(fetching, limits, closed))

    def fetch_in_steps(
        self, fetching: Fetching, limits: FetchLimits, closed: Pending[None]
    ) -> Steps[Reads | Pending[Reads]]:
        """Read what is there, or wait up to `max_wait_ms` for `min_bytes`.

        An error or a diverging log in any partition is answered at once. `closed` completes when
        the connection closes: then the request is dropped.
        """
        if limits.replica_id >= 0:
            return (yield from self._fetch_for_follower(fetching, limits, closed))
        reads, size, urgent = yield from self._read_large(fetching, limits, None)
        if size >= limits.min_bytes or urgent or not fetching.partitions:
            return reads
        wait_ms = limits.max_wait_ms
        if self.remote is not None and wait_ms != NO_WAIT and self.remote.is_reading(closed):
            wait_ms = max(wait_ms, self.remote.max_wait_ms)
        if wait_ms <= 0:
            return reads
        self.discard(reads)
        return _DelayedFetch(self, fetching, limits).add(
            self._keys(fetching),
            self._clock.monotonic_ms() + wait_ms,
            limits.min_bytes - size,
            closed,
        )

    def _fetch_for_follower(
        self, fetching: Fetching, limits: FetchLimits, closed: Pending[None]
    ) -> Steps[Reads | Pending[Reads]]:
        """Note how far the follower is, then answer it as any other fetch.

        What waited for this follower is woken last: its next append must find this fetch waiting.
        """
        moved: list[Partition] = []
        now_ms = self._clock.monotonic_ms()
        session = _session_of(fetching)
        if session is not None:
            session.fetched_by((limits.replica_id, limits.replica_epoch), now_ms)
        try:
            reads, size, urgent = yield from self._read_large(fetching, limits, moved)
            wait_ms = limits.max_wait_ms
            if size >= limits.min_bytes or urgent or wait_ms <= 0 or not fetching.partitions:
                return reads
            self.discard(reads, for_follower=True)
            waiting = _DelayedFetch(self, fetching, limits)
            keys = self._keys(fetching) if session is None else (session,)
            deadline_ms = aligned(now_ms, wait_ms)
            pending = waiting.add(keys, deadline_ms, limits.min_bytes - size, closed)
            if reads and session is not None:
                waiting.hasten(now_ms + WATERMARK_DELAY_MS)
            return pending
        finally:
            for partition in moved:
                self._replica_manager.follower_moved(partition)

    def hasten_follower_fetches(self, partition: Partition) -> None:
        """Answer followers' delayed fetches soon: a watermark or the log start has moved."""
        sessions = activate(partition)
        if self.follower_purgatory.count:
            deadline_ms = self._clock.monotonic_ms() + WATERMARK_DELAY_MS
            for key in (*sessions, partition):
                self.follower_purgatory.hasten(key, deadline_ms)

    def wake_followers(self, grown: Sequence[tuple[Partition, int]]) -> None:
        """Wake followers' fetches after appends of so many bytes to each partition.

        All partitions are activated before any fetch is tried again, or it would return only some.
        """
        woken = [(key, size) for part, size in grown for key in (*activate(part), part)]
        if self.follower_purgatory.count:
            for key, size in woken:
                self.follower_purgatory.wake(key, size)

    def wake_each(self, partitions: Sequence[Partition]) -> None:
        """Wake all fetches of partitions that changed in another way than by appends."""
        self.consumer_purgatory.wake_each(partitions)
        roused = [activate(partition) for partition in partitions]
        if self.follower_purgatory.count:
            self.follower_purgatory.wake_each((*chain.from_iterable(roused), *partitions))

    def read(self, fetching: Fetching, limits: FetchLimits) -> tuple[Reads, int, bool]:
        """Read all partitions in order; return them, their bytes, and whether any is urgent.

        In a session, unchanged partitions are left out. The first batch found is returned whatever
        its size (KIP-74), or a consumer could never get past a large one.
        """
        return at_once(self._read_all(fetching, limits, None))

    def _read_large(
        self, fetching: Fetching, limits: FetchLimits, moved: list[Partition] | None
    ) -> Steps[tuple[Reads, int, bool]]:
        """Read in steps; where that took time and found too little, read once more at once.

        An append between two steps has woken no fetch, since this one was not waiting yet.
        """
        began_ms = self._clock.monotonic_ms()
        reads, size, urgent = yield from self._read_all(fetching, limits, moved)
        if size >= limits.min_bytes or urgent or self._clock.monotonic_ms() == began_ms:
            return reads, size, urgent
        if len(fetching.partitions) < PARTITIONS_PER_STEP:
            return reads, size, urgent
        self.discard(reads, for_follower=limits.replica_id >= 0)
        return self.read(fetching, limits)

    def _read_all(
        self, fetching: Fetching, limits: FetchLimits, moved: list[Partition] | None
    ) -> Steps[tuple[Reads, int, bool]]:
        reads: Reads = []
        try:
            if limits.replica_id >= 0:
                return (yield from self._read_for_follower(fetching, limits, reads, moved))
            return (yield from self._read(fetching, limits, reads))
        except BaseException:
            _release(reads)
            raise

    def _read(
        self, fetching: Fetching, limits: FetchLimits, reads: Reads
    ) -> Steps[tuple[Reads, int, bool]]:
        total, left, urgent = 0, limits.max_bytes, False
        committed_only, anywhere = limits.committed_only, limits.anywhere
        partition_for, skip_idle = self._replica_manager.partition_for, fetching.incremental
        select = self._select if limits.rack and anywhere else None
        for number, requested in enumerate(tuple(fetching.partitions.values()), 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield
            try:
                partition = partition_for(requested)
                partition.metrics.is_used = True
                if select is not None and partition.is_leader:
                    offset = requested.fetch_offset
                    node = select(partition, offset, limits.rack, limits.listener_name)
                    if node >= 0:
                        reads.append((requested, partition.positions(requested, node)))
                        urgent = True
                        continue
                if skip_idle and _is_idle(partition, requested, committed_only):
                    continue
                room = requested.max_bytes
                found = partition.read(
                    requested, room if room < left else left, total == 0, committed_only, anywhere
                )
            except ApiError as refusal:
                if refusal.error is _MOVED:
                    allowed = min(requested.max_bytes, left, REMOTE_BYTES_PER_FETCH_MAX - total)
                    found = self._read_remote(requested, allowed, total == 0, limits)
                    urgent = urgent or found.size > 0 or found.error is not _NONE
                else:
                    found, urgent = self._refused(requested, refusal), True
            except OSError as error:
                self._replica_manager.storage_failed(partition, error)
                found, urgent = self._failure(requested, Error.KAFKA_STORAGE_ERROR), True
            reads.append((requested, found))
            size = found.size
            if size:
                partition.metrics.bytes_out += size
                total += size
                left = _left(left - size, total, found)
                urgent = urgent or type(found.records[0]) is SliceCopy
            elif found.diverging is not None:
                urgent = True
        return reads, total, urgent

    def _read_remote(
        self, requested: FetchPartition, max_bytes: int, at_least_one: bool, limits: FetchLimits
    ) -> PartitionRead:
        """Return what a remote read brought; begin one where there is none, and return nothing.

        `max_bytes` may be negative: local data took the room of remote ones.
        """
        partition = self._replica_manager.partition_for(requested)
        log, remote, closed = partition.log, self.remote, limits.closed
        assert log is not None
        if remote is None or closed is None:
            return self._failure(requested, Error.REPLICA_NOT_AVAILABLE)
        stable, high_watermark = log.last_stable_offset, log.high_watermark
        nothing = PartitionRead(_NONE, high_watermark, stable, log.log_start_offset)
        if limits.committed_only:
            nothing = nothing._replace(aborted=())
        if max_bytes <= 0 and not at_least_one:
            return nothing
        wanted = RemoteFetch(
            log,
            requested.fetch_offset,
            max(max_bytes, 0),
            at_least_one,
            limits.committed_only,
            stable if limits.committed_only else high_watermark,
        )
        found = remote.read(wanted, closed, partial(self.consumer_purgatory.wake, partition))
        if found is None:
            return nothing
        if isinstance(found, Error):
            return self._failure(requested, found)
        if found.local_offset >= 0:
            return self._read_behind(partition, found, wanted) or nothing
        if not found.data:
            return nothing
        return nothing._replace(records=(found.data,), size=len(found.data), aborted=found.aborted)

    def _read_behind(
        self, partition: Partition, found: RemoteData, wanted: RemoteFetch
    ) -> PartitionRead | None:
        """Read the local log where compaction has left no remote record behind the offset."""
        behind = FetchPartition(
            partition.topic,
            partition.topic_id,
            partition.partition_id,
            found.local_offset,
            wanted.max_bytes,
        )
        try:
            return partition.read(
                behind, wanted.max_bytes, wanted.at_least_one, wanted.committed_only, True
            )
        except ApiError as refusal:
            if refusal.error is Error.CORRUPT_MESSAGE:
                return self._refused(behind, refusal)
            return None  # Moved meanwhile: the next attempt reads the remote tier again.
        except OSError as error:
            self._replica_manager.storage_failed(partition, error)
            return self._failure(behind, Error.KAFKA_STORAGE_ERROR)

    def _read_for_follower(
        self,
        fetching: Fetching,
        limits: FetchLimits,
        reads: Reads,
        moved: list[Partition] | None,
    ) -> Steps[tuple[Reads, int, bool]]:
        """Read up to the log's end. `moved`: collects the partitions whose watermarks the fetch
        moved; None = the fetch was noted before."""
        total, left, urgent = 0, limits.max_bytes, False
        partition_for, session = self._replica_manager.partition_for, _session_of(fetching)
        node, node_epoch = limits.replica_id, limits.replica_epoch
        active = None if session is None else session.active
        wanted = tuple((fetching.partitions if active is None else active).values())
        for number, requested in enumerate(wanted, 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield
            try:
                partition = partition_for(requested)
                if session is not None and requested.watched is not partition:
                    watch(partition, session, requested)
                follower = partition.follower(requested, node, node_epoch)
                log = partition.log
                assert log is not None
                diverging = (
                    divergence(requested, log) if requested.last_fetched_epoch >= 0 else None
                )
                if diverging is not None:
                    found = partition.positions(requested)._replace(diverging=diverging)
                    urgent = True
                else:
                    _check_offset(requested, log)
                    if moved is not None:
                        if partition.note_fetch(follower, requested, node_epoch):
                            moved.append(partition)
                        if follower.session is not session:
                            follower.session = session
                            activate(partition, node=node)
                    if session is not None and _has_all(requested, log):
                        if (
                            active is not None
                            and node in partition.isr
                            and follower.session is session
                        ):
                            active.pop(requested.key, None)
                        continue
                    room = requested.max_bytes if requested.max_bytes < left else left
                    found = partition.read_to_end(requested, room, total == 0)
            except ApiError as refusal:
                found, urgent = self._refused(requested, refusal), True
            except OSError as error:
                self._replica_manager.storage_failed(partition, error)
                found, urgent = self._failure(requested, Error.KAFKA_STORAGE_ERROR), True
            reads.append((requested, found))
            size = found.size
            if size:
                partition.metrics.replication_bytes_out += size
                total += size
                left = _left(left - size, total, found)
                urgent = urgent or type(found.records[0]) is SliceCopy
        return reads, total, urgent

    def discard(self, reads: Reads, *, for_follower: bool = False) -> None:
        """Release reads that will not be sent, and uncount them."""
        for requested, found in reads:
            if found.size:
                with suppress(ApiError):  # It may have been deleted since it was read, in steps.
                    metrics = self._replica_manager.partition_for(requested).metrics
                    if for_follower:
                        metrics.replication_bytes_out -= found.size
                    else:
                        metrics.bytes_out -= found.size
        _release(reads)

    def _refused(self, requested: FetchPartition, refusal: ApiError) -> PartitionRead:
        if refusal.error is Error.CORRUPT_MESSAGE:
            partition = self._replica_manager.partition_for(requested)
            self._replica_manager.log_unreadable(partition, requested.fetch_offset, refusal)
        return self._failure(requested, refusal.error)

    def _failure(self, requested: FetchPartition, error: Error) -> PartitionRead:
        with suppress(ApiError):  # A partition that is not hosted has no counters.
            self._replica_manager.partition_for(requested).metrics.failed_fetches += 1
        return PartitionRead(error)

    def _keys(self, fetching: Fetching) -> list[Partition]:
        return [
            self._replica_manager.partition_for(requested)
            for requested in fetching.partitions.values()
        ]


class _DelayedFetch:
    """A waiting fetch: reads again when woken, and returns what there is at its deadline."""

    __slots__ = ("_fetching", "_limits", "_operation", "_reader", "pending")

    def __init__(
        self,
        fetch_reader: FetchReader,
        fetching: Fetching,
        limits: FetchLimits,
    ) -> None:
        self._reader = fetch_reader
        self._fetching = fetching
        self._limits = limits
        self._operation: DelayedOperation | None = None
        self.pending: Pending[Reads] = Pending()

    def add(
        self, keys: Sequence[Hashable], deadline_ms: int, wanted_bytes: int, closed: Pending[None]
    ) -> Pending[Reads]:
        fetch_reader = self._reader
        purgatory = (
            fetch_reader.follower_purgatory
            if self._limits.replica_id >= 0
            else fetch_reader.consumer_purgatory
        )
        self._operation = purgatory.add(
            keys,
            attempt=self._attempt,
            expire=self._expire,
            deadline_ms=deadline_ms,
            wanted_bytes=wanted_bytes,
            closed=closed,
        )
        return self.pending

    def hasten(self, deadline_ms: int) -> None:
        """Bring the deadline forward."""
        assert self._operation is not None
        self._operation.hasten(deadline_ms)

    def _attempt(self) -> bool:
        reads, size, urgent = self._reader.read(self._fetching, self._limits)
        if size >= self._limits.min_bytes or urgent:
            self.pending.complete(reads)
            return True
        self._reader.discard(reads, for_follower=self._limits.replica_id >= 0)
        assert self._operation is not None
        self._operation.wanted_bytes = self._limits.min_bytes - size
        return False

    def _expire(self) -> None:
        remote, closed = self._reader.remote, self._limits.closed
        if remote is not None and closed is not None and remote.is_reading(closed):
            self._reader.remote_expires += 1
        self.pending.complete(self._reader.read(self._fetching, self._limits)[0])


def _is_idle(partition: Partition, requested: FetchPartition, committed_only: bool) -> bool:
    """Tell whether a read would return nothing new to a session's fetcher."""
    log = partition.log
    if log is None or requested.last_fetched_epoch >= 0 or partition.leader != partition.node_id:
        return False
    if requested.current_leader_epoch not in (-1, partition.leader_epoch):
        return False
    high_watermark = log.high_watermark
    end = log.last_stable_offset if committed_only else high_watermark
    return (
        requested.fetch_offset == end
        and high_watermark == requested.sent_high_watermark
        and log.log_start_offset == requested.sent_log_start
    )


def _session_of(fetching: Fetching) -> FetchSession | None:
    """Return a follower's session; None for other fetches."""
    session = fetching.session
    return None if session is None or session.active is None else session


def _has_all(requested: FetchPartition, log: "PartitionLog") -> bool:
    """Tell whether a read would return nothing new to a follower in a session."""
    return (
        requested.fetch_offset == log.log_end_offset
        and requested.sent_high_watermark == log.high_watermark
        and requested.sent_log_start == log.log_start_offset
    )


def _check_offset(requested: FetchPartition, log: "PartitionLog") -> None:
    """Raise ApiError before an offset without a local record is taken for the follower's log end.

    It is OFFSET_MOVED_TO_TIERED_STORAGE where the record is in remote storage only.
    """
    if not log.local_log_start_offset <= requested.fetch_offset <= log.log_end_offset:
        raise log.offset_error(requested.fetch_offset)


def _left(left: int, total: int, found: PartitionRead) -> int:
    """Return the bytes left for a response after a read.

    Once it has copies, which are in memory, it gets few: the next one begins with the others. It is
    sent at once, as it may never have the bytes that were asked for.
    """
    if type(found.records[0]) is SliceCopy:
        left = min(left, COPIED_BYTES_MAX - total)
    return left if left > 0 else 0


def _release(reads: Reads) -> None:
    for _, found in reads:
        if found.records:
            found.release()
