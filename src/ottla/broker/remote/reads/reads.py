"""Reads of the remote tier for consumers: begun, kept between attempts, bounded and cancelled.

A fetch below the local log start begins a read and waits. What the read brings is kept for the
connection that asked, until its fetch is attempted again, here or in its next request; so several
partitions of one fetch are read at once, and no read is repeated because a wait was too short. A
connection has at most one read of a partition. A read is dropped with its connection, when the
connection asks for another offset of the partition, and `KEPT_MS` after its end.

Errors, chosen by what clients do with them (Java, librdkafka, kafka-python, aiokafka):

- KAFKA_STORAGE_ERROR: the store failed, after all retries. All of them retry it, without the
  application's knowledge. Kafka answers UNKNOWN_SERVER_ERROR, which kafka-python raises and
  librdkafka passes on to the application.
- REPLICA_NOT_AVAILABLE: no metadata yet, or no segment has the offset. Retried likewise. Never
  OFFSET_OUT_OF_RANGE, by which consumers would skip records, unless the log start has moved.
- None, and no records, while a quota or a limit is used up.
- CORRUPT_MESSAGE: the segment is damaged, as for a damaged local log.

Source: KIP-405; Kafka's RemoteLogReader, DelayedRemoteFetch; KIP-956 (quota); KIP-1075
(ListOffsets).
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_OFFSET, Uuid
from ottla.base.object_store import ObjectStore
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.broker.fetch.remote_port import Found, RemoteData, RemoteFetch
from ottla.broker.produce.batch_work import BatchWork
from ottla.broker.remote.copy_quota import UNLIMITED, TokenBucket
from ottla.broker.remote.dialogue import Dialogue, Running, Slots
from ottla.broker.remote.reads.chunk_cache import CHUNK_BYTES, CHUNK_CACHE_BYTES_MAX, ChunkCache
from ottla.broker.remote.reads.index_cache import INDEX_CACHE_BYTES_MAX, IndexCache
from ottla.broker.remote.reads.log_limit import LogLimit
from ottla.broker.remote.reads.range_reads import (
    BACKOFF_MS,
    CALL_MS,
    CALLS_MAX,
    RangeReads,
    StoreFailed,
)
from ottla.broker.remote.reads.remote_segments import RemoteLogs, RemoteSegments, slices
from ottla.broker.remote.reads.remote_transactions import Aborted, aborted_transactions
from ottla.broker.remote.reads.segment_reader import Batches, SegmentReader
from ottla.broker.remote.reads.turn_budget import TurnBudget
from ottla.broker.remote.remote_metrics import RemoteMetrics
from ottla.log.partition_log import PartitionLog
from ottla.log.validation import expanded_bytes_max
from ottla.records.errors import RecordsError
from ottla.tiered.lineage import Lineage

logger = logging.getLogger(__name__)

LOOKS_MAX = 4
"""How often a read looks for its segment: it may have been deleted meanwhile, or the metadata may
lag behind the log."""

KEPT_MS = 30_000
"""How long what a read has brought is kept for its connection, which may not ask for it."""


LOOKUP_BACKOFF_MS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReadLimits:
    """Limits of a broker's remote reads.

    Fields: `reads_max`: reads under way (remote.log.reader.threads plus
            remote.log.reader.max.pending.tasks); `calls_max`: calls to the store at once;
            `bytes_max`: of all reads' results, asked for or ready; `read_bytes_max`: of one read;
            `fetch_max_wait_ms`: remote.fetch.max.wait.ms; `list_offsets_timeout_ms`:
            remote.list.offsets.request.timeout.ms; `index_cache_bytes_max`: in memory;
            `bytes_per_second`, `window_seconds`: remote.log.manager.fetch.max.bytes.per.second and
            the time over which that is averaged. `chunk_bytes` and `window_seconds` do not change.
    """

    reads_max: int = 110
    calls_max: int = CALLS_MAX
    call_ms: int = CALL_MS
    bytes_max: int = 64 * 1024 * 1024
    read_bytes_max: int = 4 * 1024 * 1024
    chunk_bytes: int = CHUNK_BYTES
    chunk_cache_bytes_max: int = CHUNK_CACHE_BYTES_MAX
    index_cache_bytes_max: int = INDEX_CACHE_BYTES_MAX
    fetch_max_wait_ms: int = 500
    list_offsets_timeout_ms: int = 30_000
    bytes_per_second: int = UNLIMITED
    window_seconds: int = 11


PartitionKey = tuple[Uuid, int]


class _Missing(Exception):
    """No remote segment that is known has the offset."""


class _Read:
    """A read of one partition for one connection.

    Fields: `reserved`: bytes that count for it; `ends`: where each batch that it brought ends;
            `began_ms`: monotonic.
    """

    __slots__ = ("began_ms", "ends", "key", "on_ended", "reserved", "running", "timer", "wanted")

    def __init__(
        self, key: PartitionKey, wanted: RemoteFetch, reserved: int, began_ms: int
    ) -> None:
        self.key = key
        self.began_ms = began_ms
        self.wanted = wanted
        self.reserved = reserved
        self.ends: Sequence[int] = ()
        self.on_ended: Callable[[], object] = lambda: None
        self.running: Running[RemoteData | Error] | None = None
        self.timer: Timer | None = None


class _Owner:
    """A connection's reads, and where its sequential readers will read on."""

    __slots__ = ("next_offsets", "on_closed", "reads")

    def __init__(self, on_closed: Callable[[None], None]) -> None:
        self.on_closed = on_closed
        self.reads: dict[PartitionKey, _Read] = {}
        self.next_offsets: dict[PartitionKey, int] = {}


class RemoteReader:
    """The remote reads of a broker.

    Fields: `under_way`: reads that have not ended; `reserved_bytes`: of all reads; `refused`:
            reads that the limits did not allow; `throttled`: by the quota; `requests`, `errors`,
            `bytes_read`: reads begun, failed, and the bytes that they returned; `lookups_expired`:
            lookups of timestamps that took too long.
    """

    def __init__(
        self,
        store: ObjectStore,
        remote_logs: RemoteLogs,
        clock: Clock,
        timers: Timers,
        limits: RemoteReadLimits | None = None,
        metrics: RemoteMetrics | None = None,
    ) -> None:
        self.limits = limits = RemoteReadLimits() if limits is None else limits
        self.metrics = RemoteMetrics() if metrics is None else metrics
        self.quota = TokenBucket(
            clock, per_second=limits.bytes_per_second, window_seconds=limits.window_seconds
        )
        self.ranges = RangeReads(
            store, clock, timers, calls_max=limits.calls_max, call_ms=limits.call_ms
        )
        self.chunks = ChunkCache(
            self.ranges, bytes_max=limits.chunk_cache_bytes_max, chunk_bytes=limits.chunk_bytes
        )
        self.indexes = IndexCache(self.ranges, bytes_max=limits.index_cache_bytes_max)
        self.budget = TurnBudget(timers, clock)
        self._segments = SegmentReader(self.chunks, self.indexes, self.budget)
        self._remote_logs = remote_logs
        self._clock = clock
        self._timers = timers
        self._owners: dict[Pending[None], _Owner] = {}
        self._lookups: dict[Running[Found], PartitionKey] = {}
        self._unreadable: set[Uuid] = set()
        self._is_closed = False
        self._lookup_slots = Slots(limits.calls_max)
        self._failures = LogLimit(clock)
        self.under_way = 0
        self.reserved_bytes = 0
        self.refused = 0
        self.requests = 0
        self.errors = 0
        self.bytes_read = 0
        self.throttled = 0
        self.lookups_expired = 0

    def change_limits(self, limits: RemoteReadLimits) -> None:
        """Apply other limits; reads under way go on."""
        if limits == self.limits:
            return
        if limits.bytes_per_second != self.limits.bytes_per_second:
            self.quota.change_rate(limits.bytes_per_second)
        self.limits = limits
        self.ranges.resize(limits.calls_max)
        self.chunks.kept.resize(limits.chunk_cache_bytes_max)
        self.indexes.kept.resize(limits.index_cache_bytes_max)
        self._lookup_slots.resize(limits.calls_max)

    # -- Fetch -------------------------------------------------------------------------------------

    @property
    def max_wait_ms(self) -> int:
        """Return how long a fetch waits for its remote reads: remote.fetch.max.wait.ms."""
        return self.limits.fetch_max_wait_ms

    @property
    def list_offsets_timeout_ms(self) -> int:
        """Return how long ListOffsets waits where the request does not say (before v10)."""
        return self.limits.list_offsets_timeout_ms

    def is_reading(self, owner: Pending[None]) -> bool:
        """Tell whether any read of a connection is under way."""
        mine = self._owners.get(owner)
        return mine is not None and any(_is_open(read) for read in mine.reads.values())

    def read(
        self, wanted: RemoteFetch, owner: Pending[None], on_ended: Callable[[], object]
    ) -> RemoteData | Error | None:
        """Return what a read of `wanted` brought; None = later. See the port."""
        if owner.done or self._is_closed:
            return None  # Nothing would cancel the read.
        if wanted.log.topic_id in self._unreadable:
            return _unreadable(wanted.log, wanted.offset)
        mine = self._owners.get(owner)
        if mine is None:
            mine = self._owners[owner] = _Owner(partial(self._closed, owner))
            owner.then(mine.on_closed)
        key = (wanted.log.topic_id, wanted.log.partition)
        read = mine.reads.get(key)
        if read is not None and _is_other(read.wanted, wanted):
            self._drop(mine, read)
            read = None
        if read is None:
            read = self._begin(mine, key, wanted)
            if read is None:
                return None
        assert read.running is not None
        if not read.running.outcome.done:
            read.on_ended = on_ended
            return None
        outcome = read.running.outcome.value
        self._drop(mine, read)
        return outcome if isinstance(outcome, Error) else _fitting(outcome, read.ends, wanted)

    def fail(self, topic_id: Uuid, partition: int, error: Error) -> None:
        """End all reads and lookups of a partition with an error.

        It was deleted, or is led by another broker now. What a read has brought is dropped.
        """
        key = (topic_id, partition)
        for mine in tuple(self._owners.values()):
            read = mine.reads.get(key)
            if read is None:
                continue
            if read.running is not None and not read.running.outcome.done:
                read.running.end(error)
            else:
                self._drop(mine, read)
        for lookup in [each for each, its in self._lookups.items() if its == key]:
            lookup.end(ApiError(error))

    def set_readable(self, topic_id: Uuid, *, readable: bool) -> None:
        """Note whether the tiering state of a topic allows reads; fail those that it forbids.

        The error is retriable: the partition's log start moves to the local one soon, and only
        then is an offset below it out of range. Earlier a consumer would be reset to an offset that
        cannot be read either.
        """
        if readable:
            self._unreadable.discard(topic_id)
            return
        self._unreadable.add(topic_id)
        keys = {key for mine in self._owners.values() for key in mine.reads}
        for key in sorted(keys | set(self._lookups.values())):
            if key[0] == topic_id:
                self.fail(*key, Error.REPLICA_NOT_AVAILABLE)

    def close(self) -> None:
        """Cancel everything: the broker shuts down. No read begins from now on."""
        self._is_closed = True
        for owner, mine in tuple(self._owners.items()):
            owner.forget(mine.on_closed)
            self._closed(owner)
        for lookup in tuple(self._lookups):
            lookup.end(ApiError(Error.REPLICA_NOT_AVAILABLE))
        self.ranges.close()

    def _begin(self, mine: _Owner, key: PartitionKey, wanted: RemoteFetch) -> _Read | None:
        limits = self.limits
        room = max(0, min(wanted.max_bytes, limits.read_bytes_max))
        if self.under_way >= limits.reads_max or not self._may_reserve(room):
            self.refused += 1
            return None
        if wait_ms := self.quota.wait_ms():
            self.throttled += 1
            self.metrics.fetch_throttle_time.observe(wait_ms)
            return None
        wanted = wanted._replace(max_bytes=room)
        is_sequential = mine.next_offsets.get(key) == wanted.offset
        read = mine.reads[key] = _Read(key, wanted, room, self._clock.monotonic_ms())
        self.reserved_bytes += room
        self.quota.spend(room)
        self.under_way += 1
        self.requests += 1
        self.metrics.of_topic(wanted.log.topic).fetch_requests += 1
        steps = self._steps(mine, read, is_sequential)
        read.running = Running(steps, self._timers, self._clock, on_bug=Error.UNKNOWN_SERVER_ERROR)
        read.running.outcome.then(partial(self._ended, mine, read))
        read.running.start()
        return read

    def _may_reserve(self, count: int) -> bool:
        return not self.reserved_bytes or self.reserved_bytes + count <= self.limits.bytes_max

    def _reserve(self, read: _Read, count: int) -> bool:
        """Let a read return `count` bytes; one alone may return any batch, however large."""
        more = count - read.reserved
        if self.reserved_bytes > read.reserved and not self._may_reserve(more):
            return False
        read.reserved += more
        self.reserved_bytes += more
        return True

    def _ended(self, mine: _Owner, read: _Read, outcome: RemoteData | Error) -> None:
        self.under_way -= 1
        now_ms = self._clock.monotonic_ms()
        read.timer = self._timers.at(now_ms + KEPT_MS, partial(self._drop, mine, read))
        metrics = self.metrics.of_topic(read.wanted.log.topic)
        self.metrics.read_time.observe(now_ms - read.began_ms)
        size = 0
        if isinstance(outcome, Error):
            self.errors += 1
            metrics.fetch_errors += 1
            self.reserved_bytes -= read.reserved
            read.reserved = 0
        else:
            size = len(outcome.data)
            self.bytes_read += size
            metrics.fetched_bytes += size
        self.quota.spend(size - read.wanted.max_bytes)
        read.on_ended()

    def _drop(self, mine: _Owner, read: _Read) -> None:
        """Forget a read; one that is under way is cancelled."""
        if mine.reads.get(read.key) is not read:
            return
        del mine.reads[read.key]
        self.reserved_bytes -= read.reserved
        if read.timer is not None:
            read.timer.cancel()
        if _is_open(read):
            self.under_way -= 1
            self.quota.spend(-read.wanted.max_bytes)
            assert read.running is not None
            read.running.cancel()

    def _closed(self, owner: Pending[None], _none: None = None) -> None:
        mine = self._owners.pop(owner, None)
        for read in tuple(mine.reads.values()) if mine is not None else ():
            assert mine is not None
            self._drop(mine, read)

    # -- One read ----------------------------------------------------------------------------------

    def _steps(
        self, mine: _Owner, read: _Read, is_sequential: bool
    ) -> Dialogue[RemoteData | Error]:
        """Read, and look again where the segment has vanished or is not known yet."""
        wanted = read.wanted
        log, offset = wanted.log, wanted.offset
        error, reason = Error.REPLICA_NOT_AVAILABLE, "no remote segment has it"
        for look in range(LOOKS_MAX):
            if look:
                yield BACKOFF_MS << look
            if offset < log.log_start_offset:
                return Error.OFFSET_OUT_OF_RANGE
            try:
                remote = self._remote_logs(*read.key)
                if remote is None:
                    reason = "the remote log metadata are not read yet"
                    continue
                return (yield from self._read_on(mine, read, remote, is_sequential))
            except _Missing:
                error, reason = Error.REPLICA_NOT_AVAILABLE, "no remote segment has it"
            except StoreFailed as failed:
                error, reason = Error.KAFKA_STORAGE_ERROR, str(failed)
                if not failed.is_missing:
                    break
            except RecordsError as damage:
                if error is Error.CORRUPT_MESSAGE:
                    break
                error, reason = Error.CORRUPT_MESSAGE, str(damage)
            except (OSError, ApiError) as failure:
                error, reason = Error.KAFKA_STORAGE_ERROR, str(failure)
                break
        others = self._failures.admit()
        if others is not None:
            logger.warning(
                "Remote read of %s at offset %d failed: %s; answering %s%s",
                log.name,
                offset,
                reason,
                error.name,
                others,
            )
        return error

    def _read_on(
        self, mine: _Owner, read: _Read, remote: RemoteSegments, is_sequential: bool
    ) -> Dialogue[RemoteData]:
        """Return the batches of the first segment that has any from the offset on."""
        log, offset, max_bytes, at_least_one, committed_only, upper_bound = read.wanted
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        until = min(log.local_log_start_offset, upper_bound)
        batches: Batches | None = None
        is_known = offset >= until
        for each in slices(remote, lineage, offset, until):
            if each.start_offset != offset and not is_known:
                raise _Missing
            is_known = True
            try:
                batches = yield from self._segments.read(
                    each,
                    max_bytes=max_bytes,
                    at_least_one=at_least_one,
                    reserve=partial(self._reserve, read),
                )
            except RecordsError:
                self._segments.forget(each.segment)
                raise
            if batches is not None:
                break
        if not is_known:
            raise _Missing
        if batches is None:
            is_visible = until == log.local_log_start_offset
            return RemoteData(b"", local_offset=until if is_visible else NO_OFFSET)
        end = batches.next_offset
        mine.next_offsets[read.key] = end
        read.ends = batches.ends
        if is_sequential:
            self._segments.read_ahead(each.segment, batches.position)
        aborted: Aborted | None = () if committed_only else None
        if committed_only and batches.is_transactional:
            aborted = yield from aborted_transactions(self._segments, remote, log, offset, end)
            if offset < log.log_start_offset:
                raise _Missing  # What has expired meanwhile was not searched.
        return RemoteData(batches.data, aborted)

    # -- ListOffsets -------------------------------------------------------------------------------

    def find_timestamp(
        self,
        log: PartitionLog,
        timestamp: int,
        *,
        work: BatchWork,
        deadline_ms: int,
        closed: Pending[None],
    ) -> Pending[Found]:
        """Return the promise of the first remote record from `timestamp` on. See the port."""
        if self._is_closed or log.topic_id in self._unreadable:
            return completed(ApiError(Error.REPLICA_NOT_AVAILABLE))
        failed = ApiError(Error.UNKNOWN_SERVER_ERROR)
        lookup = self._lookup(log, timestamp, work)
        running: Running[Found] = Running(lookup, self._timers, self._clock, on_bug=failed)

        def expire() -> None:
            self.lookups_expired += 1
            running.end(ApiError(Error.REQUEST_TIMED_OUT, "the remote lookup took too long"))

        timer = self._timers.at(deadline_ms, expire)

        def ended(_found: Found) -> None:
            timer.cancel()
            closed.forget(gone)
            del self._lookups[running]

        def gone(_none: None) -> None:
            running.cancel()
            timer.cancel()
            self._lookups.pop(running, None)

        self._lookups[running] = (log.topic_id, log.partition)
        running.outcome.then(ended)
        closed.then(gone)
        running.start()
        return running.outcome

    def _lookup(self, log: PartitionLog, timestamp: int, work: BatchWork) -> Dialogue[Found]:
        """Search, in turn: lookups are as many as a request has partitions."""
        yield from self._lookup_slots.acquire()
        try:
            return (yield from self._search(log, timestamp, work))
        finally:
            self._lookup_slots.release()

    def _search(self, log: PartitionLog, timestamp: int, work: BatchWork) -> Dialogue[Found]:
        """Search the segments in order; look again where one has vanished, until the deadline."""
        wait_ms = BACKOFF_MS
        is_damaged = False
        while True:
            try:
                remote = self._remote_logs(log.topic_id, log.partition)
                if remote is not None:
                    return (yield from self._search_in(remote, log, timestamp, work))
            except StoreFailed as failed:
                if not failed.is_missing:
                    return self._lookup_failed(log, timestamp, Error.KAFKA_STORAGE_ERROR, failed)
            except RecordsError as damage:
                if is_damaged:
                    return self._lookup_failed(log, timestamp, Error.CORRUPT_MESSAGE, damage)
                is_damaged = True
            yield wait_ms
            wait_ms = min(2 * wait_ms, LOOKUP_BACKOFF_MS_MAX)

    def _search_in(
        self, remote: RemoteSegments, log: PartitionLog, timestamp: int, work: BatchWork
    ) -> Dialogue[Found]:
        lineage = Lineage(log.epochs.entries, log.log_end_offset)
        limit = expanded_bytes_max(log.config)
        start, until = log.log_start_offset, log.local_log_start_offset
        for each in slices(remote, lineage, start, until):
            if each.segment.max_timestamp_ms < timestamp:
                continue
            try:
                found = yield from self._segments.find_timestamp(each, timestamp, work, limit)
            except RecordsError:
                self._segments.forget(each.segment)
                raise
            if found is not None:
                return found
        return None

    def _lookup_failed(
        self, log: PartitionLog, timestamp: int, error: Error, reason: Exception
    ) -> ApiError:
        others = self._failures.admit()
        if others is not None:
            logger.warning(
                "Remote lookup of timestamp %d in %s failed: %s; answering %s%s",
                timestamp,
                log.name,
                reason,
                error.name,
                others,
            )
        return ApiError(error)


def _is_open(read: _Read) -> bool:
    return read.running is not None and not read.running.outcome.done


def _is_other(read: RemoteFetch, wanted: RemoteFetch) -> bool:
    return (
        read.log is not wanted.log
        or read.offset != wanted.offset
        or read.committed_only != wanted.committed_only
    )


def _unreadable(log: PartitionLog, offset: int) -> Error:
    if offset < log.log_start_offset:
        return Error.OFFSET_OUT_OF_RANGE
    return Error.REPLICA_NOT_AVAILABLE


def _fitting(found: RemoteData, ends: Sequence[int], wanted: RemoteFetch) -> RemoteData:
    """Return as many whole batches as the fetch has room for now."""
    room = wanted.max_bytes
    if len(found.data) <= room:
        return found
    count = bisect_right(ends, room)
    if count == 0 and wanted.at_least_one:
        count = 1
    return found._replace(data=found.data[: ends[count - 1]] if count else b"")
