"""One partition's log: append, read, look up, flush, truncate.

A log belongs to the loop. Its work there is bounded: the one write of an append, a few renames,
small files without a sync. What can block runs in `LogPorts.workers`; failures are passed to
`LogPorts.on_failure`, which takes the log's directory offline.

Source: UnifiedLog, LocalLog.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, Error
from ottla.base.ids import EPOCH_MAX, NO_OFFSET, Uuid
from ottla.base.pending import Pending
from ottla.log import appending, maintenance, names, truncation
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import CheckpointLimits, lowest, remove_limits
from ottla.log.epoch_cache import EpochCache, EpochEnd
from ottla.log.file_cache import Handle
from ottla.log.flushing import Flusher, FlushJob
from ottla.log.log_ports import LogPorts
from ottla.log.producer_state import Origin, ProducerEntry, ProducerState
from ottla.log.recovery.log_loader import LoadedLog, LoadedSegment
from ottla.log.recovery.producer_replay import write_snapshot
from ottla.log.results import NOTHING, AppendInfo, ReadResult, UnexpectedOffset
from ottla.log.segment import Segment, new_segment
from ottla.log.segment_list import SegmentList
from ottla.log.slices import FileSlice
from ottla.log.timestamp_search import TimestampSearch
from ottla.log.transaction_index import AbortedTransaction, select
from ottla.log.validation import (
    Allowance,
    Examined,
    Writable,
    api_error,
    check_batches,
    check_plain,
    expanded_bytes_max,
    finish,
)
from ottla.records.batch import HEADER_SIZE
from ottla.records.errors import RecordsError

if TYPE_CHECKING:
    from ottla.log.cleaner.cleaner_swap import Swap

__all__ = ["AppendInfo", "LogPorts", "PartitionLog", "ReadResult", "UnexpectedOffset"]


class PartitionLog:
    """See the module. Made by `log_dirs`, or by `opening.open_log` for a log by itself.

    Fields: `recovery_point`: everything below it survives a crash; `failed`: the disk failed
            beneath the log, which refuses everything from then on (KAFKA_STORAGE_ERROR);
            `clean_offset`: below it, compaction left no key twice; `truncation_count`: how often
            the log was truncated (a truncation ends a cleaning in progress);
            `truncation_unflushed`: it was truncated since the last flush, so nothing may be
            appended before the next one; `limits`: upper bounds for the log's checkpoint entries,
            until the checkpoints are written again.
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
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.limits: dict[int, CheckpointLimits] = dict(loaded.limits)
        self._limits_number = max(self.limits, default=0)
        limits = lowest(self.limits.values())
        clean_offset = min(clean_offset, limits.clean_offset)
        self.clean_offset = clean_offset if clean_offset <= self.log_end_offset else 0
        self.truncation_count = 0
        self.truncation_unflushed = False
        self.epochs: EpochCache = loaded.epochs
        self.producers: ProducerState = loaded.producers
        self.snapshots: list[int] = loaded.snapshots
        self.size_bytes = sum(segment.size for segment in self.segments)
        high_watermark = min(high_watermark, limits.high_watermark, self.log_end_offset)
        self.high_watermark = max(self.log_start_offset, high_watermark)
        self.producers.replicated_to(self.high_watermark)
        self.last_flush_ms = ports.clock.now_ms()
        self.names_changed = True
        """Whether names in the directory are not durable yet, as before the first flush."""
        self._begins_durably = not loaded.is_new
        """Whether the first segment's name is durable."""
        self.delayed_deletions = 0
        """Segment deletions that wait for `file.delete.delay.ms`."""
        self.unsynced_handles: list[Handle] = []
        self.swap: Swap | None = None
        """The swap of cleaned segments in progress."""
        self._flusher = Flusher()

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
                return appending.append_checked(self, [batch], leader_epoch, now_ms, origin)
            data = data.data
        if config.is_plain and origin == "client":
            plain = check_plain(data, config, now_ms, self.name, allowance)
            if plain is not None:
                return appending.append_plain(self, plain, leader_epoch, now_ms)
        batches = check_batches(
            data, config, now_ms=now_ms, origin=origin, log_name=self.name, allowance=allowance
        )
        return appending.append_checked(self, batches, leader_epoch, now_ms, origin)

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
        return appending.append_replicated(self, data, now_ms, leader_epoch)

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

        Raises: ApiError (OFFSET_OUT_OF_RANGE) where `offset` is not in [log start, log end];
                OSError.
        """
        self.check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.name} is not within "
                f"[{self.log_start_offset}, {self.log_end_offset}].",
            )
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
        `after`; None = there is no such segment. Raises: ApiError, OSError.
        """
        self.check_usable()
        limit = expanded_bytes_max(self.config)
        for segment in self.segments:
            if segment.base_offset > after and segment.max_timestamp.timestamp >= timestamp:
                return segment.search_timestamp(timestamp, self.log_start_offset, limit)
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
        maintenance.advance_log_start(self, target)
        return self.log_start_offset

    def truncate_to(self, offset: int) -> bool:
        """Remove the batches that reach `offset`; return whether there were any.

        Syncs on the caller's thread, and so may the next append: see `truncate_in_background`.
        Raises: ApiError, OSError.
        """
        self.check_usable()
        return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the next record gets `offset`. Syncs. Raises: ApiError, OSError."""
        self.check_usable()
        truncation.start_at(self, offset)

    def truncate_in_background(
        self, offset: int, is_wanted: Callable[[], bool]
    ) -> truncation.Truncated:
        """Do as `truncate_to` and make it durable, with all syncs in workers.

        `is_wanted` is called right before the log is truncated, which may be later. Nothing may be
        appended before the promise has completed. Raises: ApiError.
        """
        self.check_usable()
        return truncation.truncate_in_background(self, offset, is_wanted)

    def truncate_fully_in_background(
        self, offset: int, is_wanted: Callable[[], bool]
    ) -> truncation.Truncated:
        """Do as `truncate_fully_and_start_at`, as `truncate_in_background` does."""
        self.check_usable()
        return truncation.truncate_fully_in_background(self, offset, is_wanted)

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

    def expire_segments(self, now_ms: int) -> list[maintenance.ExpiredSegment]:
        """Move the log start behind the segments that retention expires; return these.

        Their files are deleted by `delete_expired_segments`. Raises: OSError.
        """
        self.check_usable()
        return maintenance.expire_segments(self, now_ms)

    @property
    def has_expired_segments(self) -> bool:
        """Whether segments lie wholly below the log start, by retention or DeleteRecords."""
        return maintenance.expired_count(self, self.log_start_offset) > 0

    def delete_expired_segments(self, durable_start: int) -> int:
        """Delete the segments wholly below `durable_start`, the checkpointed log start.

        Return how many. Raises: OSError.
        """
        self.check_usable()
        return maintenance.delete_expired_segments(self, durable_start)

    # --- flush and end -------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Return whether something has been unflushed for `flush.ms`."""
        unflushed = self.log_end_offset > self.recovery_point
        return unflushed and now_ms - self.last_flush_ms >= self.config.flush_ms

    def flush(self, *, include_active: bool = True) -> Pending[OSError | None]:
        """Make what was appended so far durable, in a worker; None = done.

        A failure takes the log offline and is passed to `LogPorts.on_failure`, too.
        """
        return self._flusher.flush(self, include_active=include_active)

    def flush_job(self, *, include_active: bool = True) -> FlushJob:
        """Return a flush to run in a worker; the caller then calls `release` and `flushed`.

        It includes what a flush in progress covers, which may end later. Raises: OSError.
        """
        self.check_usable()
        return maintenance.prepare_flush(
            self, include_active=include_active, under_way=self._flusher.job
        )

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
