"""One partition's log: append, read, look up, truncate, expire, flush.

A log belongs to the loop. Its work there is bounded: the one write of an append, a few renames,
small files without a sync. What can block runs in `LogPorts.workers`; failures are passed to
`LogPorts.on_failure`, which takes the log's directory offline.

Append. Batches of one segment are written with one call. The state in memory changes only after the
write, so a failed write leaves it unchanged.

Truncation, in an order that survives a power loss:

1. Limits for the log's checkpoint entries are made durable (`checkpoint_limits`). From the base
   offset of the cut segment on nothing is trusted: until step 3 has ended the disk may have that
   segment's old pages, its new ones, or a mix.
2. The segments above are deleted and the last one is cut. This need not be durable, since recovery
   reads all of it.
3. A flush makes the truncated log durable. Nothing is appended before: old pages between new ones,
   or an old segment behind them, could look like a log that never existed.

`truncate_to` and `truncate_fully_and_start_at` do steps 1 and 2 on the caller's thread and leave 3
to a flush in a worker; an append before its end flushes first itself. `truncate_in_background` does
step 1 in a worker, too.

Retention has two steps: the log start moves, in memory, and readers see nothing below it any more;
the files are deleted once the log start is durable, in a checkpoint or as a metadata snapshot. With
remote storage it is the local log start that moves: see `remote_prefix`.

Flush. A log has one `FlushJob` in progress; later requests share the next one (group commit).

Source: UnifiedLog, LocalLog, LogManager.truncateTo.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import EPOCH_MAX, NO_OFFSET, Uuid
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import CheckpointLimits, lowest, remove_limits, write_limits
from ottla.log.earlier_segments import EarlierSegment, EarlierSegments
from ottla.log.epoch_cache import EpochCache, EpochEnd, EpochEntry
from ottla.log.file_cache import FileCache, FileSlice, Handle
from ottla.log.flushing import Flushed, FlushJob
from ottla.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.log.producer_snapshot import decode_snapshot
from ottla.log.producer_state import Origin, ProducerEntry, ProducerState
from ottla.log.recovery.log_loader import LoadedLog, LoadedSegment
from ottla.log.recovery.producer_replay import (
    Extent,
    prune_snapshots,
    rebuild_producers,
    write_snapshot,
)
from ottla.log.recovery.scan import marker_of
from ottla.log.remote_prefix import RemotePrefix
from ottla.log.results import NOTHING, AppendInfo, DamagedLog, ReadResult, UnexpectedOffset
from ottla.log.retention import ExpiredSegment, Reason, SegmentFacts, expired, expired_locally
from ottla.log.segment import DamagedBatch, Segment, new_segment
from ottla.log.segment_files import LocalSegment, SegmentFiles, files_of
from ottla.log.segment_list import SegmentList
from ottla.log.timestamp_search import TimestampSearch
from ottla.log.transaction_index import AbortedTransaction, select
from ottla.log.validation import (
    Allowance,
    Examined,
    NewBatch,
    Writable,
    api_error,
    check_batches,
    check_plain,
    expanded_bytes_max,
    finish,
)
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    check_crc,
    iter_headers,
    restamp,
)
from ottla.records.control import Marker
from ottla.records.errors import RecordsError

__all__ = ["AppendInfo", "LogPorts", "PartitionLog", "ReadResult", "UnexpectedOffset"]

Truncated = Pending[OSError | ApiError | None]


def ignore(log: "PartitionLog") -> None:
    """Do nothing: for logs without checkpoints."""


def ignore_failure(log: "PartitionLog", error: OSError) -> None:
    """Do nothing: for logs whose owner asks for every flush itself."""


@dataclass(slots=True, kw_only=True)
class LogPorts:
    """The ports and callbacks that all logs of a node share.

    Fields: `on_failure`: called when a worker's disk operation failed; `has_checkpoints`: the
            recovery points and log starts of these logs are checkpointed, and a start uses them;
            `on_truncated`: called when a truncation requires the log's checkpoints to be rewritten;
            `on_rolled`: called when a segment is sealed and another one is active;
            `jitter_ms(bound)`: an integer of [0, bound].
    """

    disk: Disk
    files: FileCache
    workers: Workers
    timers: Timers
    clock: Clock
    on_failure: Callable[["PartitionLog", OSError], None] = ignore_failure
    has_checkpoints: bool = True
    on_truncated: Callable[["PartitionLog"], None] = ignore
    on_rolled: Callable[["PartitionLog"], None] = ignore
    jitter_ms: Callable[[int], int] = field(default=lambda bound: 0)


class MarkerFile(Enum):
    """The file that says that a log is incomplete: see `remote_prefix`."""

    NONE = "the log is complete"
    WRITING = "a worker writes it"
    THERE = "it is durable"
    REMOVED = "it may come back after a power loss"


class SegmentSwap(Protocol):
    """A swap of cleaned segments, as far as its log has to know it."""

    @property
    def is_replaced(self) -> bool: ...

    def settle(self) -> None: ...


class PartitionLog:
    """See the module. Made by `log_dirs`, or by `opening.open_log` for a log by itself.

    Fields: `log_start_offset`: of the partition, over both tiers; `local_log_start_offset`: where
            the local log starts, above the former while records are in remote storage only;
            `highest_remote_offset`: the last offset known to be in remote storage, -1 = none;
            `recovery_point`: everything below it survives a crash; `failed`: the disk failed
            beneath the log, which refuses everything from then on (KAFKA_STORAGE_ERROR);
            `clean_offset`: below it, compaction left no key twice; `truncation_count`: how often
            the log was truncated (a truncation ends a cleaning in progress);
            `truncation_unflushed`: it was truncated since the last flush, so nothing may be
            appended before the next one; `is_log_start_stored`: the log start checkpoint has a
            value of this log, where its remote prefix may begin (kept only while it has one);
            `limits`: upper bounds for the log's checkpoint entries, until the checkpoints are
            written again; `prepends`: segments below the local log start are to stay, or it has
            moved back to them and is not checkpointed yet.
    """

    def __init__(
        self,
        ports: LogPorts,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid,
        config: LogConfig,
        loaded: LoadedLog,
        high_watermark: int = 0,
        clean_offset: int = 0,
    ) -> None:
        self.ports = ports
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = names.partition_dir_name(topic, partition)
        self.topic_id = topic_id
        self.config = config
        self.failed = False
        self.segments = SegmentList([_segment(ports, directory, each) for each in loaded.segments])
        self.segments.active.jitter_ms = ports.jitter_ms(config.segment_jitter_ms)
        self.log_start_offset = loaded.log_start_offset
        self.local_log_start_offset = loaded.local_log_start_offset
        self.highest_remote_offset = -1
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.limits: dict[int, CheckpointLimits] = dict(loaded.limits)
        self._limits_number = max(self.limits, default=0)
        limits = lowest(self.limits.values())
        clean_offset = min(clean_offset, limits.clean_offset)
        self.clean_offset = clean_offset if clean_offset <= self.log_end_offset else 0
        self.truncation_count, self.truncation_unflushed = 0, False
        self.epochs: EpochCache = loaded.epochs
        self.producers: ProducerState = loaded.producers
        self.snapshots: list[int] = loaded.snapshots
        self.size_bytes = sum(segment.size for segment in self.segments)
        high_watermark = min(high_watermark, limits.high_watermark, self.log_end_offset)
        # What is in remote storage only was committed, however old the checkpoint is (KAFKA-16452).
        self.high_watermark = max(self.local_log_start_offset, high_watermark)
        self.producers.replicated_to(self.high_watermark)
        self.last_flush_ms = ports.clock.now_ms()
        self.names_changed = True
        """Whether names in the directory are not durable yet, as before the first flush."""
        self._begins_durably = not loaded.is_new
        """Whether the first segment's name is durable."""
        self.delayed_deletions = 0
        """Segment deletions that wait for `file.delete.delay.ms`."""
        self.unsynced_handles: list[Handle] = []
        self.is_log_start_stored = self.has_remote_prefix
        self._had_remote_prefix = loaded.local_start_checkpointed
        self._installing = self.prepends = False
        """Whether the log began with a remote prefix whose epochs are not durable yet."""
        self._marker = MarkerFile.NONE
        self._prefix_waiting: list[Truncated] = []
        self.swap: SegmentSwap | None = None
        """The swap of cleaned segments in progress."""
        self._flush_job: FlushJob | None = None
        self._flush_waiting: list[tuple[Flushed, bool]] = []

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers may read."""
        first = self.producers.first_unstable_offset
        high = self.high_watermark
        return high if first is None or first > high else first

    @property
    def flush_due(self) -> bool:
        """Whether `flush.messages` records are unflushed."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point to checkpoint: a segment's end only once it is sealed and durable.

        A start trusts the segments that end there. The active one may be sealed at any time, which
        completes its indexes, and a power loss may come before the next flush.
        """
        point = self.recovery_point
        is_open_end = self.segments.active.base_offset < point == self.log_end_offset
        return point - 1 if is_open_end else point

    @property
    def has_remote_prefix(self) -> bool:
        """Whether records are in remote storage only."""
        return self.local_log_start_offset > self.log_start_offset

    @property
    def checkpointed_local_start(self) -> int | None:
        """The local log start to checkpoint; None = no entry."""
        if not self.has_remote_prefix or not self.is_log_start_stored or self._installing:
            return None
        return self.local_log_start_offset

    @property
    def awaits_checkpoints(self) -> bool:
        """Whether limits are to be removed, or a remote prefix is to become durable."""
        awaits = self.limits or self._prefix_waiting or self.is_incomplete
        return bool(awaits) and not self._installing

    @property
    def is_incomplete(self) -> bool:
        """Whether it begins with a remote prefix that is not durable yet: the next start may remove
        it. Nothing may be appended, and no leader may hear of its end."""
        return self._marker is not MarkerFile.NONE

    @property
    def latest_epoch(self) -> int:
        """The last leader epoch in the log; -1 = none."""
        return self.epochs.latest_epoch

    def reconfigure(self, config: LogConfig) -> None:
        """Apply a change of the topic's configuration."""
        self.config = config

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, to the log's end at most; return whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.replicated_to(offset)
        return True

    # --- append --------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: bytes | Writable | Examined,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = "client",
        allowance: Allowance | None = None,
    ) -> AppendInfo:
        """Check batches, give them offsets and append them.

        `data` is changed in place where it is writable, else copied. A batch that was examined
        before is not examined again, unless the configuration has changed since.

        Raises: ApiError for invalid batches; OSError where the disk fails: then the batch of the
                failed write, and those behind it, are not in the log; TooHeavy where checking the
                batch takes more than `allowance`: it is to be examined in a worker.
        """
        self._check_appendable()
        config = self.config
        if isinstance(data, Examined):
            if data.config == config:
                batch = finish(data, config, now_ms)
                return self._append_checked([batch], leader_epoch, now_ms, origin)
            data = data.data
        if config.is_plain and origin == "client":
            plain = check_plain(data, config, now_ms, self.name, allowance)
            if plain is not None:
                return self._append_plain(plain, leader_epoch, now_ms)
        batches = check_batches(
            data, config, now_ms=now_ms, origin=origin, log_name=self.name, allowance=allowance
        )
        return self._append_checked(batches, leader_epoch, now_ms, origin)

    def append_as_follower(
        self, data: bytes | Writable, *, now_ms: int, leader_epoch: int = EPOCH_MAX
    ) -> AppendInfo:
        """Append batches at the offsets and epochs that their leader gave them.

        A batch cut by the end of `data`, as fetches return it, is left out. So is everything from
        the first batch of an epoch after `leader_epoch` on: the fetch was sent in that epoch.

        Raises: ApiError where a batch is damaged; UnexpectedOffset where the first batch is below
                the log's end, or offsets decrease; OSError.
        """
        self._check_appendable()
        new: list[NewBatch] = []
        expected = self.log_end_offset
        count = 0
        view = memoryview(data)
        try:
            for start, header in iter_headers(view, allow_partial=True):
                check_crc(view, start, header)
                if header.base_offset < expected:
                    raise UnexpectedOffset(
                        f"{self.name}: expected a batch at offset {expected} or above, "
                        f"got {header.base_offset}"
                    )
                if header.partition_leader_epoch > leader_epoch:
                    break  # Appending it would hide that the logs diverge here (KAFKA-18723).
                expected = header.next_offset
                count += header.record_count
                body = view[start : start + header.size_in_bytes]
                new.append(NewBatch(body, header, _marker_in(body, header)))
        except RecordsError as error:
            raise api_error(error) from None
        size = sum(batch.header.size_in_bytes for batch in new)
        self._write(new, now_ms)
        return AppendInfo(
            new[0].header.base_offset if new else self.log_end_offset,
            self.log_end_offset - 1,
            -1,
            self.log_start_offset,
            False,
            count,
            size,
            self.log_end_offset - self.recovery_point >= self.config.flush_messages,
        )

    def _append_plain(self, batch: NewBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append one checked batch of a client: the hot path."""
        data, header, _ = batch
        if header.producer_id >= 0:
            duplicate = self._check_producer(header, None, "client")
            if duplicate is not None:
                return duplicate
        offset = self.log_end_offset
        restamp(data, 0, base_offset=offset, leader_epoch=leader_epoch)
        last_offset = offset + header.last_offset_delta
        timestamp = header.max_timestamp
        size = header.batch_length + LOG_OVERHEAD
        config = self.config
        segment = self.segments.active
        if not segment.fits(last_offset, timestamp, size, config, now_ms):
            self.roll(now_ms, offset)
            segment = self.segments.active
        try:
            segment.append_one(data, last_offset, timestamp, size, config.index_interval_bytes)
        except OSError:
            self._append_failed(segment)
            raise
        self.size_bytes += size
        self.log_end_offset = end = last_offset + 1
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, offset)
        if header.producer_id >= 0:
            self.producers.appended(header._replace(base_offset=offset), now_ms)
        flush_due = end - self.recovery_point >= config.flush_messages
        return AppendInfo(
            offset,
            last_offset,
            -1,
            self.log_start_offset,
            False,
            header.record_count,
            size,
            flush_due,
        )

    def _append_checked(
        self,
        batches: Sequence[NewBatch],
        leader_epoch: int,
        now_ms: int,
        origin: Origin,
    ) -> AppendInfo:
        """Append batches that `check_batches` returned."""
        offset = first = self.log_end_offset
        new: list[NewBatch] = []
        count = size = 0
        for batch in batches:
            header = batch.header
            if header.producer_id >= 0:
                duplicate = self._check_producer(header, batch.marker, origin)
                if duplicate is not None:
                    return duplicate
            restamp(batch.data, 0, base_offset=offset, leader_epoch=leader_epoch)
            header = header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
            new.append(NewBatch(batch.data, header, batch.marker))
            offset = header.next_offset
            count += header.record_count
            size += header.size_in_bytes
        self._write(new, now_ms)
        return AppendInfo(
            first,
            offset - 1,
            now_ms if self.config.log_append_time else -1,
            self.log_start_offset,
            False,
            count,
            size,
            offset - self.recovery_point >= self.config.flush_messages,
        )

    def _check_producer(
        self, header: BatchHeader, marker: tuple[Marker, int] | None, origin: Origin
    ) -> AppendInfo | None:
        if marker is not None:
            self.producers.check_marker(header, marker[0])
            return None
        found = self.producers.check(header, origin)
        if found is None:
            return None
        return AppendInfo(
            found.first_offset,
            found.last_offset,
            found.timestamp if self.config.log_append_time else -1,
            self.log_start_offset,
            True,
            header.record_count,
            header.size_in_bytes,
            self.log_end_offset - self.recovery_point >= self.config.flush_messages,
        )

    def _write(self, batches: Sequence[NewBatch], now_ms: int) -> None:
        """Append batches, rolling where needed, with one write for each segment."""
        start = 0
        while start < len(batches):
            segment = self._segment_for(batches[start].header, now_ms)
            end = start + 1
            size = batches[start].header.size_in_bytes
            while end < len(batches):
                header = batches[end].header
                more = header.size_in_bytes
                if not segment.fits(
                    header.last_offset, header.max_timestamp, more, self.config, now_ms, size
                ):
                    break
                size += more
                end += 1
            self._write_run(segment, batches[start:end], now_ms)
            start = end

    def _write_run(self, segment: Segment, run: Sequence[NewBatch], now_ms: int) -> None:
        before = segment.size
        headers = [batch.header for batch in run]
        try:
            segment.append([batch.data for batch in run], headers, self.config.index_interval_bytes)
        except OSError:
            self._append_failed(segment)
            raise
        self.size_bytes += segment.size - before
        for batch in run:
            header = batch.header
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                # At the log's end, not the batch's base offset: compaction may have removed earlier
                # batches of the epoch on the leader, and a lagging replica may have others there.
                self.epochs.assign(header.partition_leader_epoch, self.log_end_offset)
            self.log_end_offset = header.next_offset
            if header.producer_id >= 0:
                self._note_producer(segment, batch, now_ms)

    def _append_failed(self, segment: Segment) -> None:
        try:
            segment.truncate_torn_append()
        except OSError:
            self.failed = True

    def _note_producer(self, segment: Segment, batch: NewBatch, now_ms: int) -> None:
        if not batch.header.is_control:
            self.producers.appended(batch.header, now_ms)
        elif batch.marker is not None:
            done = self.producers.marker_appended(batch.header, *batch.marker, now_ms)
            if done is not None and done.aborted:
                stable = self.producers.stable_after(done)
                segment.add_aborted(AbortedTransaction(*done[:3], stable))

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        size = header.size_in_bytes
        if not self.segments.active.fits(
            header.last_offset, header.max_timestamp, size, self.config, now_ms
        ):
            # At the log's end, also before a gap in the offsets: recovery takes a gap between
            # segments for lost records.
            is_near = header.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
            self.roll(now_ms, self.log_end_offset if is_near else header.base_offset)
        return self.segments.active

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Seal the active segment, unless it is empty, and create another. Raises: OSError."""
        active = self.segments.active
        base = self.log_end_offset if base_offset is None else base_offset
        if base <= active.base_offset:
            return
        if not self._begins_durably:
            # Once for each log. A power loss could take the first of two segments, and the rest
            # would look like a log whose first segment was deleted by retention.
            self.ports.disk.sync_dir(self.directory)
            self._begins_durably = True
        active.seal()
        self.take_snapshot(base)
        segment = new_segment(self.ports.files, self.directory, base, self.config, now_ms)
        segment.jitter_ms = self.ports.jitter_ms(self.config.segment_jitter_ms)
        self.segments.add(segment)
        self.names_changed = True
        # The sealed segment is not durable: its indexes have just been completed.
        self.recovery_point = min(self.recovery_point, base - 1)
        self.flush(include_active=False)
        self.ports.on_rolled(self)

    def take_snapshot(self, offset: int) -> None:
        """Write the producer state as of `offset`; the next flush syncs it. Raises: OSError."""
        path = write_snapshot(self.ports.disk, self.directory, offset, self.producers)
        self.unsynced_handles.append(self.ports.files.handle(path))
        self.names_changed = True
        if offset not in self.snapshots:
            self.snapshots.append(offset)

    # --- read ----------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        upper_bound: int,
        at_least_one: bool = False,
        with_empty: bool = False,
    ) -> ReadResult:
        """Return batches of one segment, from the one with `offset` on.

        Batches that reach `upper_bound` are left out. The last batch may be cut, as in Kafka. The
        first one is never cut: if it exceeds `max_bytes` nothing is returned without
        `at_least_one`. The result does not begin with batches that compaction has emptied, unless
        `with_empty` is set or nothing else follows: librdkafka does not advance past a response
        that has nothing else.

        Raises: ApiError (OFFSET_OUT_OF_RANGE) where `offset` is not in [log start, log end], or
                (OFFSET_MOVED_TO_TIERED_STORAGE) where it is below the local log start; OSError.
        """
        self.check_usable()
        if not self.local_log_start_offset <= offset <= self.log_end_offset:
            raise self.offset_error(offset)
        if offset >= upper_bound:
            return NOTHING
        emptied: tuple[Segment, int, int] | None = None
        try:
            for index in range(self.segments.floor(offset), len(self.segments)):
                segment = self.segments[index]
                if segment.base_offset >= upper_bound:
                    break
                found = segment.position_of(offset)
                if found is None:
                    continue  # The segment's last offsets were compacted away.
                end = self._end_position(index, upper_bound)
                if found.position >= end:
                    break
                if found.size == HEADER_SIZE and not with_empty:
                    emptied = emptied or (segment, found.position, end - found.position)
                    found = segment.first_non_empty(found.position, end)
                    if found is None:
                        continue
                limit = max_bytes
                if found.size > max_bytes:
                    if not at_least_one:
                        return ReadResult((), 0, True)
                    limit = found.size
                length = min(end - found.position, limit)
                return ReadResult((FileSlice(segment.log, found.position, length),), length)
        except RecordsError as error:
            raise api_error(error) from None
        if emptied is None or (max_bytes < HEADER_SIZE and not at_least_one):
            return NOTHING
        segment, position, size = emptied
        length = min(size, max(max_bytes, HEADER_SIZE))
        return ReadResult((FileSlice(segment.log, position, length),), length)

    def offset_error(self, offset: int) -> ApiError:
        """Return why there is no local record at `offset`, and never will be."""
        if self.log_start_offset <= offset < self.local_log_start_offset:
            return ApiError(
                Error.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"Offset {offset} of {self.name} is in remote storage only: the local log starts "
                f"at {self.local_log_start_offset}.",
            )
        return ApiError(
            Error.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {self.name} is not within "
            f"[{self.log_start_offset}, {self.log_end_offset}].",
        )

    def _end_position(self, index: int, upper_bound: int) -> int:
        segment = self.segments[index]
        if upper_bound >= self.segments.end_of(index, self.log_end_offset):
            return segment.size
        found = segment.position_of(upper_bound)
        return segment.size if found is None else found.position

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start, end). Raises: OSError."""
        found: list[AbortedTransaction] = []
        for index in range(self.segments.floor(start_offset), len(self.segments)):
            some, complete = select(self.segments[index].aborted(), start_offset, end_offset)
            found += some
            if complete:
                break
        return found

    def search_timestamp(self, timestamp: int, after: int = NO_OFFSET) -> TimestampSearch | None:
        """Return a search for the first record with this timestamp or a later one, in one segment.

        It covers the first segment that may have such a record, behind the one with base offset
        `after`; None = there is no such segment. Records in remote storage only are not searched.

        Raises: ApiError, OSError.
        """
        self.check_usable()
        limit = expanded_bytes_max(self.config)
        for segment in self.segments:
            if segment.base_offset > after and segment.max_timestamp.timestamp >= timestamp:
                return segment.search_timestamp(timestamp, self.local_log_start_offset, limit)
        return None

    def search_max_timestamp(self) -> TimestampSearch | None:
        """Return a search for the first record with the largest timestamp; None = there is none.

        Raises: ApiError, OSError.
        """
        self.check_usable()
        largest = max(self.segments, key=lambda segment: segment.max_timestamp.timestamp)
        timestamp = largest.max_timestamp.timestamp
        if timestamp < 0:
            return None
        limit = expanded_bytes_max(self.config)
        return largest.search_timestamp(timestamp, largest.base_offset, limit)

    # --- leader epochs and producers -----------------------------------------------------

    def assign_epoch(self, epoch: int) -> None:
        """Add `epoch` at the log's end: this replica became the leader in it."""
        self.epochs.assign(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of an offset; -1 = unknown."""
        return self.epochs.epoch_of(offset)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Return an epoch's end offset: see `EpochCache.end_offset`."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def producer_states(self) -> list[ProducerEntry]:
        """Return the producers by ascending id, not to be changed."""
        entries = self.producers.entries
        return [entries[producer_id] for producer_id in sorted(entries)]

    def expire_producers(self, now_ms: int) -> int:
        """Remove producers that were idle for `producer.id.expiration.ms`; return how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # --- truncation ----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove the batches that reach `offset`; return whether there were any.

        Syncs on the caller's thread, and so may the next append: see `truncate_in_background`.
        Raises: ApiError, OSError.
        """
        self.check_usable()
        return self._truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, prefix: RemotePrefix | None = None) -> None:
        """Remove everything; the next record gets `offset`. Syncs.

        `prefix`: what the log has in remote storage before that; None = nothing. It is durable once
        the checkpoints are. Raises: ApiError, OSError, MalformedFile.
        """
        self.check_usable()
        self._start_at(offset, prefix)

    def truncate_in_background(self, offset: int, is_wanted: Callable[[], bool]) -> Truncated:
        """Do as `truncate_to` and make it durable, with all syncs in workers.

        `is_wanted` is called right before the log is truncated, which may be later. Nothing may be
        appended before the promise has completed. Raises: ApiError.
        """
        self.check_usable()
        if offset < self.segments.first.base_offset:
            return self._truncate_in_background(
                self._limits_of_start(offset),
                partial(self._truncate_to, offset),
                is_wanted,
            )
        if offset >= self.log_end_offset:
            return self._truncate_in_background(None, partial(self._truncate_to, offset), is_wanted)
        limits = self._limits_to(offset)
        return self._truncate_in_background(limits, partial(self._truncate_to, offset), is_wanted)

    def truncate_fully_in_background(
        self, offset: int, is_wanted: Callable[[], bool], prefix: RemotePrefix | None = None
    ) -> Truncated:
        """Do as `truncate_fully_and_start_at`, as `truncate_in_background` does.

        The promise completes when the remote prefix is durable, too. Raises: ApiError,
        MalformedFile.
        """
        self.check_usable()
        _check_prefix(prefix)
        limits = self._limits_of_start(offset)
        start = partial(self._start_at, offset, prefix)
        marks = prefix is not None and prefix.epochs is not None
        return self._truncate_in_background(limits, start, is_wanted, marks=marks)

    def _truncate_to(self, offset: int) -> bool:
        if offset >= self.log_end_offset:
            # An epoch that begins at the end is one in which this replica was the leader and wrote
            # nothing. If it stayed it would be compared with the leader's again and again.
            self.epochs.truncate_from_end(self.log_end_offset)
            return self._drop_deleted()
        if offset < self.segments.first.base_offset:
            self._start_at(offset, self._own_prefix(offset))
            return True
        self._check_cut(offset)
        limits = self._limits_to(offset)
        self._store_limits(limits)
        self._begin_truncation(limits)
        gone = self.segments.take_above(offset)
        if gone:
            # From the end: a process that is killed here must not leave a gap.
            self.delete_segments(reversed(gone))
        active = self.segments.active
        active.activate(self.config)
        # A batch may begin below the log start; the log start does not move back.
        end = active.truncate_to(offset)
        self.log_end_offset = max(end, min(offset, self.log_start_offset))
        self._apply_new_end()
        if not self._drop_deleted():
            self.flush()
        return True

    def _drop_deleted(self) -> bool:
        """Start an empty log if all remaining records are below the log start; return whether.

        The epoch cache has no entries for records below the log start. So records that come next
        may be of older epochs than these, and recovery would refuse them as decreasing.
        """
        has_records = self.log_end_offset > self.log_start_offset
        if has_records or not self.size_bytes or self.epochs.entries:
            return False
        self._start_at(self.log_end_offset)
        return True

    def _check_cut(self, offset: int) -> None:
        """Check that the log can be cut there, before anything changes. Raises: DamagedLog."""
        try:
            self.segments[self.segments.floor(offset)].cut_at(offset)
        except DamagedBatch as damage:
            raise DamagedLog(str(damage), path=damage.path, good_end=damage.good_end) from None

    def _own_prefix(self, offset: int) -> RemotePrefix:
        """Return the remote prefix of a truncation to below all local records."""
        return RemotePrefix(log_start_offset=min(self.log_start_offset, offset))

    def _start_at(self, offset: int, prefix: RemotePrefix | None = None) -> None:
        """Remove everything and start an empty log at `offset`. Raises: OSError, MalformedFile."""
        producers = _check_prefix(prefix)
        prefix = prefix or RemotePrefix(log_start_offset=offset)
        limits = self._limits_of_start(offset)
        self._store_limits(limits)
        self._begin_truncation(limits)
        if prefix.epochs is not None and self._marker is not MarkerFile.THERE:
            self._write_marker()
            self._marker = MarkerFile.THERE
        self.delete_segments(reversed(list(self.segments)))
        self.snapshots = prune_snapshots(self.ports.disk, self.directory, -1)
        # Before the new segment is created: a power loss might keep its name and bring an old
        # segment, or the producers of an old snapshot, back beside it.
        self.ports.disk.sync_dir(self.directory)
        self._limit_starts(limits, offset, prefix)
        now_ms = self.ports.clock.now_ms()
        segment = new_segment(self.ports.files, self.directory, offset, self.config, now_ms)
        self.segments.replace_all(segment)
        self.log_end_offset = self.local_log_start_offset = self.high_watermark = offset
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)
        self.clean_offset = min(self.clean_offset, offset)
        self.size_bytes = 0
        self.producers = ProducerState(self.name, producers)
        if prefix.log_start_offset >= offset:
            self.log_start_offset = offset
            self.epochs.clear()
            self._installing = self.is_log_start_stored = False
        else:
            self._begin_with(prefix, offset, now_ms)
        self.flush()

    def _write_marker(self) -> None:
        """Have a start remove the log, until it is complete. Blocks. Raises: OSError."""
        self.ports.disk.write_atomic(f"{self.directory}/{names.INCOMPLETE}", b"")

    def _begin_with(self, prefix: RemotePrefix, offset: int, now_ms: int) -> None:
        """Take over a remote prefix that ends at `offset`, of an empty log. Raises: OSError."""
        assert self.ports.has_checkpoints
        self._had_remote_prefix = True
        self.log_start_offset = prefix.log_start_offset
        if prefix.epochs is not None:
            self.epochs.clear()
            self.epochs.prepend(prefix.epochs)
            self._installing, self.is_log_start_stored = True, False
        self.epochs.truncate_from_end(offset)
        self.epochs.truncate_from_start(prefix.log_start_offset)
        if prefix.producers is not None:
            self.producers.fill_append_times(lambda _: now_ms)
            self.take_snapshot(offset)

    def _begin_truncation(self, limits: CheckpointLimits) -> None:
        """End swaps, flushes and cleanings of the log's old content. Raises: OSError."""
        while self.swap is not None:  # The end of one may begin the next one.
            self.swap.settle()
        self.truncation_count += 1
        self.recovery_point = limits.recovery_point
        self.truncation_unflushed = self.names_changed = True
        if self.limits or self._prefix_waiting or self.is_incomplete:
            self.ports.on_truncated(self)

    def _apply_new_end(self) -> None:
        end = self.log_end_offset
        self.clean_offset = min(self.clean_offset, end)
        self.size_bytes = sum(segment.size for segment in self.segments)
        self.epochs.truncate_from_end(end)
        self.high_watermark = min(self.high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.local_log_start_offset = min(self.local_log_start_offset, end)
        # What comes next may differ from what is in remote storage (KAFKA-15241).
        self.highest_remote_offset = min(self.highest_remote_offset, end - 1)
        disk = self.ports.disk
        extents = [Extent(segment.base_offset, segment.size) for segment in self.segments]
        before = self.producers.entries
        self.producers = rebuild_producers(disk, self.directory, self.name, extents, end)
        # Afterwards: rebuilding removes snapshots that are damaged.
        self.snapshots = prune_snapshots(disk, self.directory, end)
        self.producers.fill_append_times(lambda entry: _appended_ms(before.get(entry.producer_id)))
        self.producers.replicated_to(self.high_watermark)

    def _truncate_in_background(
        self,
        limits: CheckpointLimits | None,
        shorten: Callable[[], object],
        is_wanted: Callable[[], bool],
        *,
        marks: bool = False,
    ) -> Truncated:
        """Write the limits in a worker, truncate the log on the loop, flush it in a worker.

        `marks`: the worker writes the marker of an incomplete log, too. `is_wanted` is called
        before the second step: the truncation may be obsolete by then. The promise completes when
        the truncated log is durable, or will not be truncated. A disk error takes the log offline
        and is passed to `LogPorts.on_failure`, too.
        """
        done: Truncated = Pending()

        def limited(result: BaseException | None) -> None:
            if isinstance(result, OSError):
                if not self.failed:  # Else its directory may be another log's, or deleted.
                    self.fail()
                    self.ports.on_failure(self, result)
                done.complete(result)
            elif result is not None:
                raise result
            else:
                if new is not None:
                    self.limits[number] = new
                if marks:
                    self._marker = MarkerFile.THERE
                proceed()

        def proceed() -> None:
            if self.failed:
                done.complete(None)
                return
            if not is_wanted():
                # To remove the limits, and the marker, which are not needed.
                self.ports.on_truncated(self)
                done.complete(None)
                return
            try:
                shorten()
            except (OSError, ApiError) as error:
                done.complete(error)
                return
            if self.is_incomplete:
                self._prefix_waiting.append(done)
            if self.truncation_unflushed:
                self.flush().then(flushed)
            else:
                flushed(None)

        def flushed(error: OSError | None) -> None:
            if error is not None or done not in self._prefix_waiting:
                done.complete(error)  # Else it completes with the checkpoints.

        new = None if limits is None or self._is_limited(limits) else limits
        marks = marks and self._marker is not MarkerFile.THERE
        if new is None and not marks:
            proceed()
            return done
        number = self.next_limits_number()
        if marks:
            self._marker = MarkerFile.WRITING
        self.ports.workers.submit(partial(self._write_limits, number, new, marks), limited)
        return done

    def _write_limits(self, number: int, limits: CheckpointLimits | None, marks: bool) -> None:
        """Write what must be durable before a truncation. Blocks. Raises: OSError."""
        if limits is not None:
            write_limits(self.ports.disk, self.directory, number, limits)
        if marks:
            self._write_marker()

    def _limits_to(self, offset: int) -> CheckpointLimits:
        base = self.segments[self.segments.floor(offset)].base_offset
        return CheckpointLimits(
            recovery_point=min(self.recovery_point, base),
            log_start_offset=min(self.log_start_offset, offset),
            # If `offset` is within a batch, the end is not known yet.
            high_watermark=self.high_watermark if self.high_watermark <= offset else base,
            clean_offset=self.clean_offset if self.clean_offset <= offset else base,
            local_log_start_offset=(
                min(self.local_log_start_offset, offset) if self.has_remote_prefix else 0
            ),
        )

    def _limits_of_start(self, offset: int) -> CheckpointLimits:
        # Until the flush any of the old segments may come back.
        limits = CheckpointLimits(
            recovery_point=min(self.recovery_point, self.segments.first.base_offset, offset),
            log_start_offset=min(self.log_start_offset, offset),
            high_watermark=offset,
            clean_offset=min(self.clean_offset, offset),
        )
        if not self.has_remote_prefix:
            return limits
        # Both starts hold for the old segments, also if the log is not truncated after all.
        return limits._replace(
            log_start_offset=self.log_start_offset,
            local_log_start_offset=self.local_log_start_offset,
        )

    def _limit_starts(self, limits: CheckpointLimits, offset: int, prefix: RemotePrefix) -> None:
        """Limit both starts for a new beginning at `offset`: no old segment can come back.

        Raises: OSError.
        """
        is_own = prefix.epochs is None and prefix.log_start_offset < offset
        keeps_prefix = self.has_remote_prefix and is_own
        limits = limits._replace(
            log_start_offset=min(self.log_start_offset, prefix.log_start_offset, offset),
            local_log_start_offset=(
                min(self.local_log_start_offset, offset) if keeps_prefix else 0
            ),
        )
        if not self._is_limited(limits):
            self._store_limits(limits)
            self.ports.on_truncated(self)

    def _is_limited(self, limits: CheckpointLimits) -> bool:
        """Return whether no checkpoint entry, however old, exceeds the limits."""
        if not self.ports.has_checkpoints:
            return True
        checkpointed = CheckpointLimits(
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            clean_offset=self.clean_offset,
            local_log_start_offset=(self.local_log_start_offset if self._had_remote_prefix else 0),
        )
        lowered = lowest((checkpointed, *self.limits.values()))
        return all(now <= most for now, most in zip(lowered, limits, strict=True))

    def _store_limits(self, limits: CheckpointLimits) -> None:
        if not self._is_limited(limits):
            number = self.next_limits_number()
            write_limits(self.ports.disk, self.directory, number, limits)
            self.limits[number] = limits

    def next_limits_number(self) -> int:
        """Return a number that no limits file in the directory has."""
        self._limits_number += 1
        return self._limits_number

    def checkpointed(self, numbers: Iterable[int], truncation_count: int) -> None:
        """Remove limits that were known when the checkpoints, now durable, were written.

        `truncation_count`: the log's at that time. Raises: OSError.
        """
        if self.truncation_count != truncation_count:
            return  # A truncation since may rely on them, and has checkpoints written itself.
        for number in numbers:
            if self.limits.pop(number, None) is not None:
                remove_limits(self.ports.disk, self.directory, number)

    def checkpoints_durable(self, truncation_count: int) -> bool:
        """Complete what waited for durable checkpoints, and for the durable end of the limits.

        Return whether the caller has to sync the directory, and to call `beginning_durable`: the
        log was incomplete. `truncation_count`: the log's when they were written. Raises: OSError.
        """
        if self.truncation_count != truncation_count or self.limits or self._installing:
            return False
        if self._marker is MarkerFile.NONE:
            self._complete_prefixes(None)
            return False
        if self._marker is MarkerFile.WRITING:
            return False
        # Not before the limits are gone for good: they deny the log its remote prefix.
        self.ports.disk.remove(f"{self.directory}/{names.INCOMPLETE}")
        self._marker = MarkerFile.REMOVED
        return True

    def beginning_durable(self, truncation_count: int) -> None:
        """Note that the log is complete, durably. `truncation_count`: as `checkpoints_durable`."""
        if self.truncation_count == truncation_count and self._marker is MarkerFile.REMOVED:
            self._marker = MarkerFile.NONE
            self._complete_prefixes(None)

    def _complete_prefixes(self, error: OSError | None) -> None:
        waiting, self._prefix_waiting = self._prefix_waiting, []
        for done in waiting:
            done.complete(error)

    # --- remote storage ------------------------------------------------------------------

    def remote_copied_to(self, offset: int) -> None:
        """Note that everything up to `offset`, inclusive, is in remote storage.

        It is about the records here: what this log does not have yet is not counted.
        """
        offset = min(offset, self.log_end_offset - 1)
        self.highest_remote_offset = max(self.highest_remote_offset, offset)

    def reset_remote(self) -> None:
        """Forget what is in remote storage, until it is known again: with a new leader epoch, or
        after the local copy was moved (KAFKA-16711)."""
        self.highest_remote_offset = -1

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start forward, over both tiers; return whether it moved.

        In memory: it is durable with the next checkpoint. Remote segments below may be deleted
        then, local ones are with the next retention check.

        Raises: ApiError (OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
        """
        self.check_usable()
        if offset > self.high_watermark:
            raise ApiError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Cannot move the log start of {self.name} to {offset}: the high watermark "
                f"is {self.high_watermark}.",
            )
        return self._advance_log_start(offset)

    def restore_log_start(self, offset: int, epochs: Iterable[EpochEntry] = ()) -> bool:
        """Set the log start that a new leader found in remote storage; return whether it moved.

        Forward it is `advance_log_start`. Backward only for a log without a remote prefix, which
        gets one: its replica did not know of it, as after the loss of its checkpoints
        (KAFKA-15351). The caller has made sure that the records from `offset` on are in remote
        storage, in the lineage of this log, and were not deleted by DeleteRecords. `epochs`: the
        leader epochs of the remote log; those before this log's own are added.

        Raises: ApiError as `advance_log_start`.
        """
        if offset >= self.log_start_offset or self.has_remote_prefix:
            return self.advance_log_start(offset)
        self.check_usable()
        self.epochs.prepend(epochs)
        self.epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self._had_remote_prefix = True
        self.is_log_start_stored = False
        return True

    def earlier_segments(self) -> EarlierSegments | None:
        """Return the writer of the records that are in remote storage only, from the log start on.

        None = the local files have them: they are expired by the local retention, not deleted yet.
        """
        self.check_usable()
        start, end = self.log_start_offset, self.segments.first.base_offset
        if start >= end:
            return None
        return EarlierSegments(
            self.ports.disk,
            self.directory,
            self.name,
            self.config,
            start=start,
            end=end,
            epochs=self.epochs.entries,
        )

    def prepend_segments(self, earlier: Sequence[EarlierSegment]) -> None:
        """Take over what `earlier_segments` wrote, below the local log start. Nothing below it is
        deleted from now on, until `lower_local_start`. Raises: ApiError, OSError.
        """
        self.check_usable()
        disk = self.ports.disk
        made: list[Segment] = []
        for each in earlier:
            segment = Segment(
                self.ports.files,
                self.directory,
                each.base_offset,
                size=each.size,
                created_ms=self.ports.clock.now_ms(),
                max_timestamp=each.max_timestamp,
            )
            for suffix in each.suffixes:
                disk.rename(segment.path(suffix) + names.CLEANED, segment.path(suffix))
            made.append(segment)
        self.prepends = True
        if made:
            self.segments.put_first(made)
            self.size_bytes += sum(segment.size for segment in made)

    def lower_local_start(self, truncation_count: int) -> bool:
        """Move the local log start back to the first segment, whose name is durable; return whether
        that was possible. `truncation_count`: the log's when the segments were prepended.

        `prepends` stays until `local_start_stored`: the checkpoint has to be written.
        """
        if self.failed or self.truncation_count != truncation_count:
            self.prepends = False
            return False
        first = max(self.segments.first.base_offset, self.log_start_offset)
        self.local_log_start_offset = min(self.local_log_start_offset, first)
        return True

    def local_start_stored(self) -> None:
        """Note that the checkpoint has the local log start."""
        self.prepends = False

    def local_segments(self) -> list[LocalSegment]:
        """Return the segments here, the active one last."""
        return [
            LocalSegment(
                base_offset=segment.base_offset,
                end_offset=self.segments.end_of(index, self.log_end_offset),
                size_bytes=segment.size,
                is_active=segment.is_active,
            )
            for index, segment in enumerate(self.segments)
        ]

    def segment_files(self, base_offset: int) -> SegmentFiles | None:
        """Return the files of a sealed segment, to be copied; None = there is no such segment.

        Raises: ApiError, OSError.
        """
        self.check_usable()
        index = self.segments.floor(base_offset)
        segment = self.segments[index]
        if segment.base_offset != base_offset or segment.is_active:
            return None
        truncation_count, directory = self.truncation_count, self.directory

        def is_intact() -> bool:
            if self.failed or self.directory != directory:
                return False
            if self.truncation_count != truncation_count:
                return False
            at = self.segments[self.segments.floor(base_offset)]
            return at is segment or at.base_offset > base_offset

        return files_of(
            self.ports.disk,
            segment,
            self.segments.end_of(index, self.log_end_offset),
            epochs=self.epochs,
            snapshots=self.snapshots,
            earlier=[
                Extent(self.segments[each].base_offset, self.segments[each].size)
                for each in range(index + 1)
            ],
            is_intact=is_intact,
        )

    # --- retention -----------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Move the log start forward to `offset`, -1 = to the high watermark; return it.

        The segments below are deleted with the next retention check.

        Raises: ApiError (OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
        """
        self.check_usable()
        target = self.high_watermark if offset == NO_OFFSET else offset
        if not 0 <= target <= self.high_watermark:
            raise ApiError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Cannot move the log start of {self.name} to {target}: the high watermark "
                f"is {self.high_watermark}.",
            )
        self._advance_log_start(target)
        return self.log_start_offset

    def _advance_log_start(self, offset: int) -> bool:
        """Move the log start forward, in memory; it is checkpointed later."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.epochs.truncate_from_start(offset)
        self.producers.replicated_to(offset)
        return True

    def expire_segments(self, now_ms: int) -> list[ExpiredSegment]:
        """Move the log start behind the segments that retention expires; return these.

        With remote storage the local log start is moved. The files are deleted by
        `delete_expired_segments`. Raises: OSError.
        """
        self.check_usable()
        if self.config.remote_storage or self.has_remote_prefix:
            return self._expire_locally(now_ms)
        reasons = expired(
            self._segment_facts(now_ms),
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        count = len(reasons)
        if not count:
            return []
        if count == len(self.segments):
            self.roll(now_ms)
        self._advance_log_start(self.segments[count].base_offset)
        return self._expired_segments(reasons)

    def _expire_locally(self, now_ms: int) -> list[ExpiredSegment]:
        """Move the local log start behind the copied segments that local retention expires."""
        expiry = expired_locally(
            self._segment_facts(now_ms),
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            local_log_start_offset=self.local_log_start_offset,
            high_watermark=self.high_watermark,
            copied_to=self.highest_remote_offset + 1,
        )
        reasons = expiry.reasons
        start = self.segments[len(reasons)].base_offset
        if start > self.local_log_start_offset:
            if start <= self.recovery_point:
                self.local_log_start_offset = start
                self._had_remote_prefix = True
            else:
                # The leader epochs of what is deleted must be durable in their file. As sealed
                # segments are flushed at once, this is only so after an unclean shutdown.
                reasons = reasons[: self._expired_count(self.local_log_start_offset)]
                self.flush(include_active=False)
        if expiry.rolls:
            self.roll(now_ms)
        return self._expired_segments(reasons)

    def _expired_segments(self, reasons: Iterable[Reason]) -> list[ExpiredSegment]:
        return [
            ExpiredSegment(self.segments[index].base_offset, self.segments[index].size, reason)
            for index, reason in enumerate(reasons)
        ]

    @property
    def has_expired_segments(self) -> bool:
        """Whether segments lie wholly below the local log start, as DeleteRecords leaves them,
        too."""
        return self._expired_count(self.local_log_start_offset) > 0

    def delete_expired_segments(self, durable_start: int) -> int:
        """Delete the segments wholly below `durable_start`, the checkpointed local log start, or
        log start of a log without a remote prefix.

        Return how many. The files are renamed one by one, and a power loss may undo any of the
        renames. Without a durable log start recovery would take a gap among the segments for lost
        records. Raises: OSError.
        """
        self.check_usable()
        count = self._expired_count(min(durable_start, self.local_log_start_offset))
        if self.limits or not count:
            return 0  # Limits lower the checkpointed log start; they are removed soon.
        gone = self.segments.take_first(count)
        self.size_bytes -= sum(segment.size for segment in gone)
        self.delete_segments(gone)
        self._delete_snapshots(below=self.segments.first.base_offset)
        return count

    def _expired_count(self, start: int) -> int:
        """Return how many segments are wholly below an offset; never the active one."""
        count = 0
        if self.prepends:
            return count
        while count + 1 < len(self.segments) and self.segments[count + 1].base_offset <= start:
            count += 1
        return count

    def _segment_facts(self, now_ms: int) -> list[SegmentFacts]:
        """Return the segments' facts for retention; a largest timestamp is read once and kept."""
        facts: list[SegmentFacts] = []
        config = self.config
        needs_time = config.deletes and config.retention_ms >= 0
        if config.remote_storage:
            needs_time = config.local_retention_ms >= 0
        for index, segment in enumerate(self.segments):
            end = self.segments.end_of(index, self.log_end_offset)
            newest = 0
            if needs_time and end <= self.high_watermark:
                newest = self._newest_ms(segment)
                if config.remote_storage and newest > now_ms:
                    # It would never leave the local disk (KAFKA-20609).
                    newest = self.ports.disk.modified_ms(segment.path(names.LOG))
            facts.append(
                SegmentFacts(segment.base_offset, end, segment.size, newest, segment.is_active)
            )
        return facts

    def _newest_ms(self, segment: Segment) -> int:
        timestamp = segment.max_timestamp.timestamp
        if timestamp >= 0:
            return timestamp
        # Records without timestamps age with their file.
        return self.ports.disk.modified_ms(segment.path(names.LOG))

    def delete_segments(self, segments: Iterable[Segment]) -> None:
        """Rename the segments' files to `.deleted`, and remove them after `file.delete.delay.ms`.

        Readers can go on: the files stay open while pinned. Raises: OSError.
        """
        disk = self.ports.disk
        renamed: list[str] = []
        for segment in segments:
            for suffix in names.SEGMENT_SUFFIXES:
                path = segment.path(suffix)
                try:
                    disk.rename(path, path + names.DELETED)
                except FileNotFoundError:
                    continue
                renamed.append(path + names.DELETED)
            segment.moved(segment.directory, names.DELETED)
            segment.close()

        def remove() -> None:
            for path in renamed:
                disk.remove(path)

        def removed(result: BaseException | None) -> None:
            if isinstance(result, OSError):
                self.ports.on_failure(self, result)
            elif result is not None:
                raise result

        def delay_over() -> None:
            self.delayed_deletions -= 1
            self.ports.workers.submit(remove, removed)

        self.delayed_deletions += 1
        due_ms = self.ports.clock.monotonic_ms() + self.config.file_delete_delay_ms
        self.ports.timers.at(due_ms, delay_over)

    def _delete_snapshots(self, *, below: int) -> None:
        for offset in [offset for offset in self.snapshots if offset < below]:
            self.ports.disk.remove(f"{self.directory}/{names.segment_name(offset, names.SNAPSHOT)}")
            self.snapshots.remove(offset)

    # --- flush and end -------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Return whether something has been unflushed for `flush.ms`."""
        unflushed = self.log_end_offset > self.recovery_point
        return unflushed and now_ms - self.last_flush_ms >= self.config.flush_ms

    @property
    def is_flushing(self) -> bool:
        """Whether a flush in a worker is in progress."""
        return self._flush_job is not None

    def flush(self, *, include_active: bool = True) -> Flushed:
        """Make what was appended so far durable, in a worker; None = done.

        Without the active segment: what was appended up to its start. A failure takes the log
        offline and is passed to `LogPorts.on_failure`, too.
        """
        if self.failed:
            return completed(self._offline())
        done: Flushed = Pending()
        self._flush_waiting.append((done, include_active))
        if self._flush_job is None:
            self._start_flush()
        return done

    def _start_flush(self) -> None:
        waiting, self._flush_waiting = self._flush_waiting, []
        everything = any(include_active for _, include_active in waiting)
        try:
            job = self._flush_job = self.flush_job(include_active=everything)
        except OSError as error:
            self._flush_ended(None, error, waiting)
            return
        self.ports.workers.submit(job.run, lambda result: self._flush_ended(job, result, waiting))

    def _flush_ended(
        self,
        job: FlushJob | None,
        result: BaseException | None,
        waiting: list[tuple[Flushed, bool]],
    ) -> None:
        self._flush_job = None
        if job is not None:
            job.release(failed=result is not None)
        error = result if isinstance(result, OSError) else None
        if error is not None:
            # No retry: after a failed fsync its pages may be gone from the page cache.
            self.fail()
            self.ports.on_failure(self, error)
        elif result is not None:
            raise result
        elif job is not None and not self.failed:
            self.flushed(job)
        if self.failed:
            waiting, self._flush_waiting = waiting + self._flush_waiting, []
            error = error or self._offline()
        for done, _ in waiting:
            done.complete(error)
        if self._flush_waiting and self._flush_job is None:
            self._start_flush()

    def _offline(self) -> OSError:
        return OSError(errno.EIO, "the log is offline", self.directory)

    def flush_job(self, *, include_active: bool = True) -> FlushJob:
        """Return a flush to run in a worker; the caller then calls `release` and `flushed`.

        It includes what a flush in progress covers, which may end later. Raises: OSError.
        """
        self.check_usable()
        under_way = self._flush_job
        active = self.segments.active
        job = FlushJob(
            disk=self.ports.disk,
            offset=self.log_end_offset if include_active else active.base_offset,
            truncation_count=self.truncation_count,
            with_active=include_active,
            active_base=active.base_offset,
        )
        if under_way is not None:
            self.names_changed = self.names_changed or bool(under_way.directories)
            self.epochs.dirty = self.epochs.dirty or bool(under_way.renames)
        try:
            for handle in under_way.handles if under_way is not None else ():
                handle.pin()
                job.handles.append(handle)
            if include_active:
                active.write_indexes()
            for segment in self.segments:
                if segment.unsynced and (include_active or segment is not active):
                    pinned = segment.pin_files()
                    job.handles += pinned
                    segment.unsynced = False
                    job.segments.append(segment)
            for handle in self.unsynced_handles:
                try:
                    handle.pin()
                except FileNotFoundError:
                    continue  # A snapshot that retention has removed since.
                job.handles.append(handle)
            if self.epochs.dirty:
                self._add_epochs(job)
        except OSError:
            job.release(failed=True)
            raise
        job.files = [handle.file() for handle in job.handles]
        for handle in self.unsynced_handles:
            handle.close()  # With the last pin.
        self.unsynced_handles.clear()
        if self.names_changed or job.renames:
            parent = self.directory.rpartition("/")[0]
            job.directories = [self.directory, parent]
            self.names_changed = False
        return job

    def _add_epochs(self, job: FlushJob) -> None:
        path = f"{self.directory}/{names.LEADER_EPOCHS}"
        file = self.ports.disk.open(path + names.TEMPORARY, create=True)
        job.own_files.append(file)
        file.truncate(0)
        file.append([self.epochs.encode()])
        job.renames.append((path + names.TEMPORARY, path))
        self.epochs.dirty = False

    def flushed(self, job: FlushJob) -> None:
        """Move the recovery point: `job` has run."""
        self.last_flush_ms = self.ports.clock.now_ms()
        if job.directories:
            self._begins_durably = True
        if job.truncation_count != self.truncation_count:
            return  # The log was truncated, and what was appended since was not synced.
        point = min(job.offset, self.log_end_offset)
        if job.active_base < point <= self.segments.active.base_offset:
            point -= 1  # The segment that ends there may have been sealed after the job began.
        self.recovery_point = max(self.recovery_point, point)
        if job.with_active:
            self.truncation_unflushed = False
            if self._installing:
                self._installing = False
                self.ports.on_truncated(self)

    def flush_now(self) -> None:
        """Flush on the caller's thread, for logs without a loop. Raises: OSError."""
        job = self.flush_job()
        try:
            job.run()
        except OSError:
            # No retry: after a failed fsync its pages may be gone from the page cache.
            job.release(failed=True)
            self.fail()
            raise
        job.release(failed=False)
        self.flushed(job)

    def prepare_close(self) -> FlushJob:
        """Write indexes and producer snapshot for the next start; return the last flush.

        Raises: OSError.
        """
        self.segments.active.write_indexes(final=True)
        if not self.snapshots or self.snapshots[-1] < self.log_end_offset:
            self.take_snapshot(self.log_end_offset)
        return self.flush_job()

    def close(self) -> None:
        """Close the files without a flush."""
        self.failed = True
        self._complete_prefixes(self._offline())
        for item in (*self.segments, *self.unsynced_handles):
            with contextlib.suppress(OSError):
                item.close()
        self.unsynced_handles.clear()

    def fail(self) -> None:
        """Take the log offline: its disk failed."""
        self.close()

    def moved(self, directory: str) -> None:
        """Take over the new path of a renamed directory, for every open file (KAFKA-5099)."""
        self.directory = directory
        for segment in self.segments:
            segment.moved(directory)

    def _check_appendable(self) -> None:
        self.check_usable()
        if self.is_incomplete:
            # After a crash the next start would remove it, with all that was appended.
            raise ApiError(
                Error.KAFKA_STORAGE_ERROR,
                f"The log of {self.name} begins with records in remote storage, which is not "
                "durable yet.",
            )
        if self.truncation_unflushed:
            # A caller that has not waited for the flush of its truncation waits here.
            self.flush_now()

    def check_usable(self) -> None:
        """Raise ApiError (KAFKA_STORAGE_ERROR) once the log has failed or is closed."""
        if self.failed:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, f"The log of {self.name} is offline.")


def _segment(ports: LogPorts, directory: str, found: LoadedSegment) -> Segment:
    segment = Segment(
        ports.files,
        directory,
        found.base_offset,
        size=found.size,
        created_ms=ports.clock.now_ms(),
        offset_index=found.offset_index,
        time_index=found.time_index,
        max_timestamp=found.max_timestamp,
    )
    segment.unsynced = found.scanned
    return segment


def _check_prefix(prefix: RemotePrefix | None) -> list[ProducerEntry]:
    """Return the producers at the end of a remote prefix. Raises: MalformedFile."""
    if prefix is None or prefix.producers is None:
        return []
    return decode_snapshot(prefix.producers)


def _marker_in(body: memoryview, header: BatchHeader) -> tuple[Marker, int] | None:
    if header.is_control and header.producer_id >= 0:
        return marker_of(body, 0, header)
    return None


def _appended_ms(former: ProducerEntry | None) -> int | None:
    # A producer's remaining batches were appended before the truncated ones.
    return None if former is None else former.appended_ms
