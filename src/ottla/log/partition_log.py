"""One partition's log: append, read, look up, truncate, expire, flush.

A log belongs to the loop. Its work there is bounded: the one write of an append, a few renames,
small files without a sync. What can block runs in `LogPorts.workers`; failures are passed to
`LogPorts.on_failure`, which takes the log's directory offline.

Each of its parts owns its state:

| part | state |
|---|---|
| `local_log` | the segments, their end, which names and small files are not durable |
| `log_offsets` | log start, local log start, high watermark, clean offset, highest remote offset |
| `epoch_cache` | the leader epochs |
| `producer_state_manager` | the producers and their snapshots |
| `flushing` | the recovery point, the flush in progress |
| `log_truncation` | what a truncation has made durable, and what the checkpoints must have first |
| `log_retention` | which segments are to stay although they are below the local log start |

Append. Batches of one segment are written with one call. The state in memory changes only after the
write, so a failed write leaves it unchanged.

Source: UnifiedLog.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ids import EPOCH_MAX, Uuid
from ottla.base.ports import as_failure, is_shortage
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import CheckpointLimits, lowest
from ottla.log.disk_ports import DiskPorts
from ottla.log.epoch_cache import EpochCache, EpochEnd
from ottla.log.file_cache import OutOfDescriptors
from ottla.log.flushing import Flushed, FlushJob, LogFlusher
from ottla.log.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.log.indexes.timestamp_search import TimestampSearch
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.log.local_log import LocalLog
from ottla.log.log_offsets import LogOffsets
from ottla.log.log_retention import LogRetention
from ottla.log.log_truncation import LogTruncation
from ottla.log.producers.producer_state import Origin, ProducerEntry, ProducerState
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.recovery.log_loader import LoadedLog
from ottla.log.remote_prefix import RemotePrefix, Truncated
from ottla.log.results import NOTHING, AppendInfo, ReadResult, UnexpectedOffset
from ottla.log.retention import ExpiredSegment
from ottla.log.segment import Segment
from ottla.log.segment_files import LocalSegment, SegmentFiles
from ottla.log.segment_list import SegmentList
from ottla.log.validation import (
    Allowance,
    Examined,
    NewBatch,
    Writable,
    check_batches,
    check_follower_batches,
    check_plain,
    finish,
)
from ottla.records.batch import LOG_OVERHEAD, BatchHeader, restamp
from ottla.records.control import Marker

__all__ = ["AppendInfo", "LogPorts", "PartitionLog", "ReadResult", "UnexpectedOffset"]


def ignore(log: "PartitionLog") -> None:
    """Do nothing: for logs without checkpoints."""


def ignore_failure(log: "PartitionLog", error: OSError) -> None:
    """Do nothing: for logs whose owner asks for every flush itself."""


@dataclass(slots=True, kw_only=True)
class LogPorts(DiskPorts):
    """The ports and callbacks that all logs of a node share.

    Fields: `on_failure`: called when a worker's disk operation failed; `on_truncated`: called when
            a truncation requires the log's checkpoints to be rewritten; `on_rolled`: called when a
            segment is sealed and another one is active.
    """

    on_failure: Callable[["PartitionLog", OSError], None] = ignore_failure
    on_truncated: Callable[["PartitionLog"], None] = ignore
    on_rolled: Callable[["PartitionLog"], None] = ignore


class PartitionLog:
    """See the module. Made by `log_dirs`, or by `opening.open_log` for a log by itself."""

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
        self.topic = topic
        self.partition = partition
        self.name = names.partition_dir_name(topic, partition)
        self.topic_id = topic_id
        end = loaded.log_end_offset
        self.local = LocalLog(
            ports,
            directory,
            self.name,
            config,
            loaded.segments,
            log_end_offset=end,
            begins_durably=not loaded.is_new,
        )
        limits = lowest(loaded.limits.values())
        clean_offset = min(clean_offset, limits.clean_offset)
        self.offsets = LogOffsets(
            log_start_offset=loaded.log_start_offset,
            local_log_start_offset=loaded.local_log_start_offset,
            high_watermark=min(high_watermark, limits.high_watermark, end),
            clean_offset=clean_offset if clean_offset <= end else 0,
            had_remote_prefix=loaded.local_start_checkpointed,
        )
        self.epochs: EpochCache = loaded.epochs
        self.producer_manager = ProducerStateManager(
            ports.disk, self.local, loaded.producers, loaded.snapshots
        )
        self.producers.replicated_to(self.high_watermark)
        self.flusher = LogFlusher(ports, self.local, self.epochs, loaded.recovery_point)
        self.truncation = LogTruncation(
            ports,
            local=self.local,
            offsets=self.offsets,
            epochs=self.epochs,
            producers=self.producer_manager,
            flusher=self.flusher,
            limits=loaded.limits,
        )
        self.retention = LogRetention(
            ports.disk,
            local=self.local,
            offsets=self.offsets,
            epochs=self.epochs,
            producers=self.producer_manager,
            flusher=self.flusher,
        )

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"

    # --- the parts' state -----------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self.local.config

    @property
    def directory(self) -> str:
        return self.local.directory

    @property
    def failed(self) -> bool:
        """The disk failed beneath the log: it refuses everything (KAFKA_STORAGE_ERROR)."""
        return self.local.failed

    @property
    def segments(self) -> SegmentList:
        return self.local.segments

    @property
    def size_bytes(self) -> int:
        return self.local.size_bytes

    @property
    def log_end_offset(self) -> int:
        return self.local.log_end_offset

    @property
    def log_start_offset(self) -> int:
        """Of the partition, over both tiers."""
        return self.offsets.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """Above the log start while records are in remote storage only."""
        return self.offsets.local_log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.offsets.high_watermark

    @property
    def highest_remote_offset(self) -> int:
        """The last offset known to be in remote storage; -1 = none."""
        return self.offsets.highest_remote_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it survives a crash."""
        return self.flusher.recovery_point

    @property
    def clean_offset(self) -> int:
        """Below it, compaction left no key twice."""
        return self.offsets.clean_offset

    @property
    def truncation_count(self) -> int:
        """How often it was truncated, which ends what was begun before, as a cleaning."""
        return self.flusher.truncation_count

    @property
    def producers(self) -> ProducerState:
        return self.producer_manager.state

    @property
    def limits(self) -> Mapping[int, CheckpointLimits]:
        """Upper bounds for its checkpoint entries, until the checkpoints are written again."""
        return self.truncation.limit_files.limits

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers may read."""
        first = self.producers.first_unstable_offset
        high = self.high_watermark
        return high if first is None or first > high else first

    @property
    def flush_due(self) -> bool:
        """Whether `flush.messages` records are unflushed."""
        local = self.local
        return local.log_end_offset - self.flusher.recovery_point >= local.config.flush_messages

    @property
    def has_remote_prefix(self) -> bool:
        """Whether records are in remote storage only."""
        return self.offsets.has_remote_prefix

    @property
    def checkpointed_local_start(self) -> int | None:
        """The local log start to checkpoint; None = no entry."""
        if not self.has_remote_prefix or not self.offsets.is_log_start_stored:
            return None
        return None if self.truncation.beginning.is_installing else self.local_log_start_offset

    @property
    def is_incomplete(self) -> bool:
        """Whether it begins with a remote prefix that is not durable yet: the next start may remove
        it. Nothing may be appended, and no leader may hear of its end."""
        return self.truncation.beginning.is_incomplete

    @property
    def latest_epoch(self) -> int:
        """The last leader epoch in the log; -1 = none."""
        return self.epochs.latest_epoch

    def reconfigure(self, config: LogConfig) -> None:
        """Apply a change of the topic's configuration."""
        self.local.config = config

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, to the log's end at most; return whether it moved."""
        offset = min(offset, self.local.log_end_offset)
        if offset <= self.offsets.high_watermark:
            return False
        self.offsets.high_watermark = offset
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
        config = self.local.config
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
        local = self.local
        end, size_before = local.log_end_offset, local.size_bytes
        new = check_follower_batches(data, end, leader_epoch, self.name)
        self._write(new, now_ms)
        return AppendInfo(
            new[0].header.base_offset if new else end,
            local.log_end_offset - 1,
            -1,
            self.offsets.log_start_offset,
            False,
            sum([batch.header.record_count for batch in new]),
            local.size_bytes - size_before,
            self.flush_due,
        )

    def _append_plain(self, batch: NewBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append one checked batch of a client: the hot path."""
        data, header, _ = batch
        if header.producer_id >= 0:
            duplicate = self._check_producer(header, None, "client")
            if duplicate is not None:
                return duplicate
        local = self.local
        offset = local.log_end_offset
        restamp(data, 0, base_offset=offset, leader_epoch=leader_epoch)
        last_offset = offset + header.last_offset_delta
        timestamp = header.max_timestamp
        size = header.batch_length + LOG_OVERHEAD
        config = local.config
        if not local.segments.active.fits(last_offset, timestamp, size, config, now_ms):
            self.roll(now_ms)
        local.append_one(data, last_offset, timestamp, size)
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, offset)
        if header.producer_id >= 0:
            self.producers.appended(header._replace(base_offset=offset), now_ms)
        return AppendInfo(
            offset,
            last_offset,
            -1,
            self.offsets.log_start_offset,
            False,
            header.record_count,
            size,
            last_offset + 1 - self.flusher.recovery_point >= config.flush_messages,
        )

    def _append_checked(
        self,
        batches: Sequence[NewBatch],
        leader_epoch: int,
        now_ms: int,
        origin: Origin,
    ) -> AppendInfo:
        """Append batches that `check_batches` returned."""
        offset = first = self.local.log_end_offset
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
            self.offsets.log_start_offset,
            False,
            count,
            size,
            self.flush_due,
        )

    def _check_producer(
        self, header: BatchHeader, marker: tuple[Marker, int] | None, origin: Origin
    ) -> AppendInfo | None:
        """Return the result for a batch that the log already has; None = append it.

        Raises: ApiError.
        """
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
            self.offsets.log_start_offset,
            True,
            header.record_count,
            header.size_in_bytes,
            self.flush_due,
        )

    def _write(self, batches: Sequence[NewBatch], now_ms: int) -> None:
        """Append batches, rolling where needed, with one write for each segment."""
        while batches:
            self._maybe_roll(batches[0].header, now_ms)
            count = self.local.fitting(batches, now_ms) if len(batches) > 1 else 1
            self._write_run(batches[:count], now_ms)
            batches = batches[count:]

    def _write_run(self, run: Sequence[NewBatch], now_ms: int) -> None:
        end, epochs = self.local.log_end_offset, self.epochs
        for batch in run:
            if batch.marker is not None and not batch.marker[0].committed:
                self.segments.active.open_aborted()  # While the batch can still be refused.
        self.local.append_run(run)
        for batch in run:
            header = batch.header
            if header.partition_leader_epoch > epochs.latest_epoch:
                # At the log's end, not the batch's base offset: compaction may have removed earlier
                # batches of the epoch on the leader, and a lagging replica may have others there.
                epochs.assign(header.partition_leader_epoch, end)
            end = header.next_offset
            if header.producer_id >= 0:
                self._note_producer(batch, now_ms)

    def _note_producer(self, batch: NewBatch, now_ms: int) -> None:
        if not batch.header.is_control:
            self.producers.appended(batch.header, now_ms)
        elif batch.marker is not None:
            done = self.producers.marker_appended(batch.header, *batch.marker, now_ms)
            if done is not None and done.aborted:
                stable = self.producers.stable_after(done)
                try:
                    self.segments.active.add_aborted(AbortedTransaction(*done[:3], stable))
                except OutOfDescriptors as shortage:
                    # The batch is in the log already: nobody may read it without this entry.
                    raise as_failure(shortage) from shortage

    def _maybe_roll(self, header: BatchHeader, now_ms: int) -> None:
        """Roll if the next batch does not fit into the active segment. Raises: OSError."""
        local = self.local
        if not local.segments.active.fits(
            header.last_offset, header.max_timestamp, header.size_in_bytes, local.config, now_ms
        ):
            self.roll(now_ms, header)

    def roll(self, now_ms: int, first: BatchHeader | None = None) -> None:
        """Seal the active segment, unless it is empty, and create another.

        It begins at the end of the last batch, also before a gap in the offsets: recovery takes a
        gap between segments for lost records. The log's end may be behind the gap: a truncation
        ended there. `first`: the batch that comes next; if it would be too far from there, the
        segment begins with it. Raises: OSError.
        """
        active = self.segments.active
        base = self.local.log_end_offset if active.batches_end is None else active.batches_end
        if first is not None and first.last_offset - base > RELATIVE_OFFSET_MAX:
            base = first.base_offset
        if base <= active.base_offset:
            return
        self.local.seal_active()
        self.producer_manager.take_snapshot(base)
        self.local.add_segment(base, now_ms)
        self.flusher.rolled(base)
        self.flush(include_active=False)
        self.ports.on_rolled(self)

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
        local = self.local
        local.check_usable()
        if not self.offsets.local_log_start_offset <= offset <= local.log_end_offset:
            raise self.offset_error(offset)
        if offset >= upper_bound:
            return NOTHING
        return local.read(
            offset,
            max_bytes=max_bytes,
            upper_bound=upper_bound,
            at_least_one=at_least_one,
            with_empty=with_empty,
        )

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

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start, end).

        Raises: OSError; DamagedLog, where a transaction index is damaged.
        """
        return self.local.aborted_transactions(start_offset, end_offset)

    def search_timestamp(self, timestamp: int, start_offset: int = 0) -> TimestampSearch | None:
        """Return a search for the first record with this timestamp or a later one, in one segment.

        It covers the first segment that may have such a record from `start_offset` on; None = there
        is no such segment. Where it finds nothing the next search begins at its `end_offset`: the
        cleaner may have merged the segment with the next ones meanwhile. Records in remote storage
        only are not searched.

        Raises: ApiError, OSError.
        """
        self.check_usable()
        start_offset = max(start_offset, self.local_log_start_offset)
        return self.local.search_timestamp(timestamp, start_offset)

    def search_max_timestamp(self) -> TimestampSearch | None:
        """Return a search for the first record with the largest timestamp; None = there is none.

        Raises: ApiError, OSError.
        """
        self.check_usable()
        return self.local.search_max_timestamp()

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

    # --- truncation: see `log_truncation` -------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove the batches that reach `offset`; return whether there were any.

        Syncs on the caller's thread, and so may the next append: see `truncate_in_background`.
        Raises: ApiError, OSError.
        """
        self.check_usable()
        return self.truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int, prefix: RemotePrefix | None = None) -> None:
        """Remove everything; the next record gets `offset`. Syncs.

        `prefix`: what the log has in remote storage before that; None = nothing. It is durable once
        the checkpoints are. Raises: ApiError, OSError, MalformedFile.
        """
        self.check_usable()
        self.truncation.start_at(self, offset, prefix)

    def truncate_in_background(self, offset: int, is_wanted: Callable[[], bool]) -> Truncated:
        """Do as `truncate_to` and make it durable, with all syncs in workers.

        `is_wanted` is called right before the log is truncated, which may be later. Nothing may be
        appended before the promise has completed. Raises: ApiError.
        """
        self.check_usable()
        return self.truncation.truncate_in_background(self, offset, is_wanted)

    def truncate_fully_in_background(
        self, offset: int, is_wanted: Callable[[], bool], prefix: RemotePrefix | None = None
    ) -> Truncated:
        """Do as `truncate_fully_and_start_at`, as `truncate_in_background` does.

        The promise completes when the remote prefix is durable, too. Raises: ApiError,
        MalformedFile.
        """
        self.check_usable()
        return self.truncation.start_in_background(self, offset, is_wanted, prefix)

    # --- remote storage ------------------------------------------------------------------

    def remote_copied_to(self, offset: int) -> None:
        """Note that everything up to `offset`, inclusive, is in remote storage.

        It is about the records here: what this log does not have yet is not counted.
        """
        self.offsets.remote_copied_to(min(offset, self.log_end_offset - 1))

    def reset_remote(self) -> None:
        """Forget what is in remote storage, until it is known again: with a new leader epoch, or
        after the local copy was moved (KAFKA-16711)."""
        self.offsets.highest_remote_offset = -1

    def local_segments(self) -> list[LocalSegment]:
        """Return the segments here, the active one last."""
        return self.local.local_segments()

    def segment_files(self, base_offset: int) -> SegmentFiles | None:
        """Return the files of a sealed segment, to be copied; None = there is no such segment, or
        a swap is still renaming files of the log, which was compacted before.

        Raises: ApiError, OSError.
        """
        self.check_usable()
        truncation_count = self.truncation_count
        return self.local.segment_files(
            base_offset,
            epochs=self.epochs,
            snapshots=self.producer_manager.snapshots,
            is_same_log=lambda: self.truncation_count == truncation_count,
        )

    # --- retention: see `log_retention` ---------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Move the log start forward to `offset`, -1 = to the high watermark; return it.

        The segments below are deleted with the next retention check.

        Raises: ApiError (OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
        """
        self.check_usable()
        return self.retention.delete_records(offset)

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start forward, over both tiers; return whether it moved.

        In memory: it is durable with the next checkpoint. Remote segments below may be deleted
        then, local ones are with the next retention check.

        Raises: ApiError (OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
        """
        self.check_usable()
        return self.retention.advance_log_start(offset)

    def expire_segments(self, now_ms: int) -> list[ExpiredSegment]:
        """Move the log start behind the segments that retention expires; return these.

        With remote storage the local log start is moved. The files are deleted by
        `delete_expired_segments`. Raises: OSError.
        """
        self.check_usable()
        return self.retention.expire_segments(self, now_ms)

    @property
    def has_expired_segments(self) -> bool:
        """Whether segments lie wholly below the local log start."""
        return self.retention.has_expired_segments

    def delete_expired_segments(self, durable_start: int) -> int:
        """Delete the segments wholly below `durable_start`, the checkpointed local log start, or
        log start of a log without a remote prefix.

        Return how many. The files are renamed one by one, and a power loss may undo any of the
        renames. Without a durable log start recovery would take a gap among the segments for lost
        records. Raises: OSError.
        """
        self.check_usable()
        if self.truncation.may_be_limited:
            return 0  # Limits lower the checkpointed log start; they are removed soon.
        return self.retention.delete_expired_segments(self, durable_start)

    # --- flush and end -------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Return whether something has been unflushed for `flush.ms`."""
        return self.flusher.needs_flush(now_ms)

    def flush(self, *, include_active: bool = True) -> Flushed:
        """Make what was appended so far durable, in a worker; None = done.

        Without the active segment: what was appended up to its start. A failure takes the log
        offline and is passed to `LogPorts.on_failure`, too.
        """
        return self.flusher.flush(self, include_active=include_active)

    def flushed(self, job: FlushJob) -> None:
        """Move the recovery point: `job` has run."""
        if self.flusher.flushed(job):
            self.truncation.flushed(self)

    def flush_now(self) -> None:
        """Flush on the caller's thread, for logs without a loop. Raises: OSError."""
        self.flusher.flush_now(self)

    def prepare_close(self) -> FlushJob:
        """Write indexes and producer snapshot for the next start; return the last flush.

        Raises: OSError.
        """
        self.segments.active.write_indexes(final=True)
        snapshots = self.producer_manager.snapshots
        if not snapshots or snapshots[-1] < self.log_end_offset:
            self.producer_manager.take_snapshot(self.log_end_offset)
        return self.flusher.last_job()

    def close_flushed(self) -> None:
        """Close the files after the last flush."""
        self.close()
        self.flusher.closed()

    def close(self) -> None:
        """Close the files without a flush."""
        self.local.failed = True
        self.truncation.beginning.complete(self.local.offline_error())
        self.local.close()

    def fail(self) -> None:
        """Take the log offline: its disk failed."""
        self.close()

    def disk_failed(self, error: OSError) -> None:
        """Take the log offline, and report why. The want of a descriptor is no failure."""
        if is_shortage(error):
            return
        self.fail()
        self.ports.on_failure(self, error)

    def request_checkpoints(self) -> None:
        """Have the log's checkpoints rewritten soon."""
        self.ports.on_truncated(self)

    def delete_segments(self, segments: Iterable[Segment]) -> None:
        """Delete the files of segments: see `LocalLog.delete_segments`. Raises: OSError."""
        self.local.delete_segments(segments, lambda error: self.ports.on_failure(self, error))

    def moved(self, directory: str) -> None:
        """Take over the new path of a renamed directory, for every open file (KAFKA-5099)."""
        self.local.moved(directory)

    def _check_appendable(self) -> None:
        self.local.check_usable()
        if self.truncation.beginning.is_incomplete:
            # After a crash the next start would remove it, with all that was appended.
            raise ApiError(
                Error.KAFKA_STORAGE_ERROR,
                f"The log of {self.name} begins with records in remote storage, which is not "
                "durable yet.",
            )
        if self.flusher.truncation_unflushed:
            # A caller that has not waited for the flush of its truncation waits here.
            self.flush_now()

    def check_usable(self) -> None:
        """Raise ApiError (KAFKA_STORAGE_ERROR) once the log has failed or is closed."""
        self.local.check_usable()
