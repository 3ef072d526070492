"""Logs with one rule subtly broken: an index that is off by one, a step that is durable too late.

Like `fault_variants` they are to be found by the standard mix of the simulator, by a checker of
promises: see `standard_mix`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ottla.broker.partition import Partition
from ottla.broker.replication import follower_rules
from ottla.log import log_retention
from ottla.log.cleaner import cleaner_rewrite
from ottla.log.cleaner import log_cleaner as cleaner
from ottla.log.cleaner.cleaner_filter import BatchFilter
from ottla.log.cleaner.cleaner_swap import Swap
from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.epoch_cache import EpochCache
from ottla.log.flushing import LogFlusher
from ottla.log.indexes.offset_index import OffsetIndex
from ottla.log.indexes.sparse_index import SparseIndex
from ottla.log.indexes.time_index import TimeIndex
from ottla.log.local_log import LocalLog
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_state import ProducerState
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.recovery.log_loader import _Loader
from ottla.log.segment import Segment

from .replaced import replaced
from .rule import variant

# -- what stands beside the batches ------------------------------------------------------------


@contextmanager
def indexes_the_offset_behind_a_batch() -> Iterator[None]:
    """An entry of the offset index names the first offset of the next batch."""
    append = OffsetIndex.append

    def late(self: OffsetIndex, offset: int, position: int) -> None:
        append(self, offset + 1, position)

    with replaced(OffsetIndex, "append", late):
        yield


@contextmanager
def keeps_times_of_what_it_cut_off() -> Iterator[None]:
    """A truncation leaves the time index as it was."""
    truncate = SparseIndex.truncate_to

    def truncate_offsets(self: SparseIndex, offset: int) -> None:
        if not isinstance(self, TimeIndex):
            truncate(self, offset)

    with replaced(SparseIndex, "truncate_to", truncate_offsets):
        yield


@contextmanager
def seals_segments_without_their_largest_timestamp() -> Iterator[None]:
    """The time index of a sealed segment ends before its end."""
    write = Segment.write_indexes

    def short(self: Segment, *, final: bool = False) -> None:
        write(self)

    with replaced(Segment, "write_indexes", short):
        yield


@contextmanager
def begins_epochs_one_late() -> Iterator[None]:
    """A leader epoch is said to begin with its second record."""
    assign = EpochCache.assign

    def late(self: EpochCache, epoch: int, start_offset: int) -> None:
        assign(self, epoch, start_offset + (epoch > self.latest_epoch))

    with replaced(EpochCache, "assign", late):
        yield


@contextmanager
def recovers_epochs_one_late() -> Iterator[None]:
    """The same, where recovery reads the batches."""
    assign, scan = EpochCache.assign, _Loader._scan
    scanning = False

    def late(self: EpochCache, epoch: int, start_offset: int) -> None:
        assign(self, epoch, start_offset + scanning)

    def noted(self: _Loader, *given: Any) -> Any:
        nonlocal scanning
        scanning = True
        try:
            return scan(self, *given)
        finally:
            scanning = False

    with replaced(EpochCache, "assign", late), replaced(_Loader, "_scan", noted):
        yield


@contextmanager
def forgets_to_store_epochs_that_are_cut_off() -> Iterator[None]:
    """The file keeps the leader epochs of records that a truncation took."""
    truncate = EpochCache.truncate_from_end

    def silent(self: EpochCache, end_offset: int) -> None:
        dirty = self.dirty
        truncate(self, end_offset)
        self.dirty = dirty

    with replaced(EpochCache, "truncate_from_end", silent):
        yield


@contextmanager
def keeps_producers_of_what_it_cut_off() -> Iterator[None]:
    """After a truncation the log still knows the producers' batches that are gone."""
    rebuild = ProducerStateManager.rebuild

    def keeping(self: ProducerStateManager, high_watermark: int) -> None:
        before = self.state
        rebuild(self, high_watermark)
        self.state = before

    with replaced(ProducerStateManager, "rebuild", keeping):
        yield


@contextmanager
def notes_batches_one_early() -> Iterator[None]:
    """A producer's last batch is remembered one offset before its place."""
    appended = ProducerState.appended

    def early(self: ProducerState, header: Any, now_ms: int | None = None) -> None:
        appended(self, header._replace(base_offset=header.base_offset - 1), now_ms)

    with replaced(ProducerState, "appended", early):
        yield


@contextmanager
def recovers_no_producers() -> Iterator[None]:
    """A start knows no producers but those of the batches that it reads."""

    def none(self: _Loader, end: int) -> ProducerState:
        return ProducerState(self.log_name)

    with replaced(_Loader, "_producers_at", none):
        yield


# -- truncation --------------------------------------------------------------------------------


@contextmanager
def cuts_one_record_more() -> Iterator[None]:
    """A follower cuts its last common record off, too."""
    truncation_offset = follower_rules.truncation_offset

    def shorter(log: PartitionLog, epoch: int, end_offset: int) -> int:
        return max(log.log_start_offset, truncation_offset(log, epoch, end_offset) - 1)

    with replaced(follower_rules, "truncation_offset", shorter):
        yield


@contextmanager
def keeps_the_first_record_that_differs() -> Iterator[None]:
    """A follower keeps one record more than it has in common with its leader."""
    truncation_offset = follower_rules.truncation_offset

    def longer(log: PartitionLog, epoch: int, end_offset: int) -> int:
        return min(log.log_end_offset, truncation_offset(log, epoch, end_offset) + 1)

    with replaced(follower_rules, "truncation_offset", longer):
        yield


@contextmanager
def keeps_what_cannot_be_compared() -> Iterator[None]:
    """A follower keeps the records below its leader's log start, whatever the leader had there."""
    with replaced(follower_rules, "starts_anew", lambda log, leader_start, end_offset: False):
        yield


@contextmanager
def follows_high_watermarks_back() -> Iterator[None]:
    """A replica takes any high watermark of its leader, also a lower one."""

    def follow(self: PartitionLog, offset: int) -> bool:
        offset = min(offset, self.log_end_offset)
        moved, self.offsets.high_watermark = offset != self.high_watermark, offset
        self.producers.replicated_to(offset)
        return moved

    with replaced(PartitionLog, "advance_high_watermark", follow):
        yield


# -- flushes -----------------------------------------------------------------------------------


@contextmanager
def flushes_one_record_late() -> Iterator[None]:
    """With flush.messages one record more than that may be unflushed."""
    prepare = LogConfig.__post_init__

    def late(self: LogConfig) -> None:
        prepare(self)
        if self.flush_messages < INT64_MAX:
            object.__setattr__(self, "flush_messages", self.flush_messages + 1)

    with replaced(LogConfig, "__post_init__", late):
        yield


@contextmanager
def commits_before_its_flush() -> Iterator[None]:
    """With flush.messages consumers may read what the leader has not flushed."""
    append = Partition.append

    def eager(self: Partition, *given: Any) -> Any:
        info = append(self, *given)
        if self.alone and self.log is not None:
            self.log.advance_high_watermark(self.log.log_end_offset)
        return info

    with replaced(Partition, "append", eager):
        yield


@contextmanager
def trusts_what_was_sealed_after_its_flush() -> Iterator[None]:
    """The recovery point says that a sealed segment is durable before its indexes are."""
    roll = PartitionLog.roll

    def trusting(self: PartitionLog, now_ms: int, base_offset: int | None = None) -> None:
        before = self.recovery_point
        roll(self, now_ms, base_offset)
        self.flusher.recovery_point = max(before, self.recovery_point)

    point = property(lambda self: self.recovery_point)
    with (
        replaced(LogFlusher, "checkpointed_recovery_point", point),
        replaced(PartitionLog, "roll", trusting),
    ):
        yield


# -- retention and DeleteRecords ---------------------------------------------------------------


@contextmanager
def expires_a_segment_too_many_by_size() -> Iterator[None]:
    """A segment goes that would leave less than retention.bytes."""
    expired = log_retention.expired

    def eager(segments: Any, config: LogConfig, **rest: Any) -> Any:
        if config.retention_bytes > 0 and segments:
            least = max(0, config.retention_bytes - segments[0].size + 1)
            config = replace(config, retention_bytes=least)
        return expired(segments, config, **rest)

    with replaced(log_retention, "expired", eager):
        yield


@contextmanager
def expires_segments_by_their_first_record() -> Iterator[None]:
    """A segment goes when its oldest record is older than retention.ms."""

    def oldest(self: LocalLog, segment: Segment) -> int:
        return segment.first_batch_ms()

    with replaced(LocalLog, "newest_ms", oldest):
        yield


@contextmanager
def keeps_a_segment_more_than_retention_bytes() -> Iterator[None]:
    """A segment stays without which there still is retention.bytes."""
    expired = log_retention.expired

    def shy(segments: Any, config: LogConfig, **rest: Any) -> Any:
        if config.retention_bytes >= 0 and segments:
            more = config.retention_bytes + segments[0].size
            config = replace(config, retention_bytes=more)
        return expired(segments, config, **rest)

    with replaced(log_retention, "expired", shy):
        yield


@contextmanager
def keeps_the_last_segment_that_has_expired() -> Iterator[None]:
    """A retention check ends one segment early."""
    expired = log_retention.expired

    def shy(*given: Any, **named: Any) -> Any:
        return expired(*given, **named)[:-1]

    with replaced(log_retention, "expired", shy):
        yield


@contextmanager
def deletes_segments_before_the_log_start_is_durable() -> Iterator[None]:
    """Expired segments' files go at once."""
    expire = PartitionLog.expire_segments

    def at_once(self: PartitionLog, now_ms: int) -> Any:
        found = expire(self, now_ms)
        self.delete_expired_segments(self.log_start_offset)
        return found

    with replaced(PartitionLog, "expire_segments", at_once):
        yield


@contextmanager
def answers_deletions_before_the_followers() -> Iterator[None]:
    """DeleteRecords is answered when the leader has moved its log start."""
    start = property(lambda self: self.log.log_start_offset)
    with replaced(Partition, "low_watermark", start):
        yield


# -- compaction --------------------------------------------------------------------------------


@contextmanager
def cleans_what_is_not_committed() -> Iterator[None]:
    """A cleaning takes records for newer that may be cut off yet."""
    find_cleanable = cleaner.find_cleanable

    def lax(log: PartitionLog, now_ms: int) -> Any:
        before, log.offsets.high_watermark = log.high_watermark, log.log_end_offset
        try:
            return find_cleanable(log, now_ms)
        finally:
            log.offsets.high_watermark = before

    with replaced(cleaner, "find_cleanable", lax):
        yield


@contextmanager
def cleans_what_is_not_durable() -> Iterator[None]:
    """A cleaning takes records for newer that a loss of power may take."""
    find_cleanable = cleaner.find_cleanable

    def lax(log: PartitionLog, now_ms: int) -> Any:
        before, log.flusher.recovery_point = log.recovery_point, log.log_end_offset
        try:
            return find_cleanable(log, now_ms)
        finally:
            log.flusher.recovery_point = before

    with replaced(cleaner, "find_cleanable", lax):
        yield


@contextmanager
def removes_tombstones_at_once() -> Iterator[None]:
    """A tombstone goes with the second cleaning, whatever delete.retention.ms says."""
    make = cleaner_rewrite.BatchFilter

    def hasty(*given: Any, **named: Any) -> BatchFilter:
        return make(*given, **{**named, "delete_retention_ms": 0})

    with replaced(cleaner_rewrite, "BatchFilter", hasty):
        yield


@contextmanager
def removes_the_newest_record_of_a_tombstoned_key() -> Iterator[None]:
    """A record goes if its key has a tombstone, though the tombstone is older."""
    stays = BatchFilter._stays
    deleted: set[tuple[int, bytes | None]] = set()

    def lax(self: BatchFilter, header: Any, record: Any) -> bool:
        place = id(self), record.key
        if record.value is None:
            deleted.add(place)
            return stays(self, header, record)
        return place not in deleted and stays(self, header, record)

    with replaced(BatchFilter, "_stays", lax):
        yield


@contextmanager
def drops_the_last_batches_of_producers() -> Iterator[None]:
    """A cleaning leaves nothing of a producer whose records have all been replaced."""
    with replaced(BatchFilter, "_is_last_of_producer", lambda self, header: False):
        yield


@contextmanager
def swaps_segments_without_syncs() -> Iterator[None]:
    """A cleaned segment takes the place of the old ones before its names are durable."""

    def quick(self: Swap, rename: Callable[[], None], then: Callable[[], None]) -> None:
        if self._try(rename):
            self._try(then)

    with replaced(Swap, "_step", quick):
        yield


LOG_VARIANTS = (
    *map(
        variant,
        (
            indexes_the_offset_behind_a_batch,
            keeps_times_of_what_it_cut_off,
            seals_segments_without_their_largest_timestamp,
            begins_epochs_one_late,
            recovers_epochs_one_late,
            forgets_to_store_epochs_that_are_cut_off,
            keeps_producers_of_what_it_cut_off,
            notes_batches_one_early,
            recovers_no_producers,
            cuts_one_record_more,
            keeps_the_first_record_that_differs,
            follows_high_watermarks_back,
            flushes_one_record_late,
            commits_before_its_flush,
            trusts_what_was_sealed_after_its_flush,
            expires_a_segment_too_many_by_size,
            expires_segments_by_their_first_record,
            keeps_a_segment_more_than_retention_bytes,
            keeps_the_last_segment_that_has_expired,
            deletes_segments_before_the_log_start_is_durable,
            answers_deletions_before_the_followers,
            cleans_what_is_not_committed,
            cleans_what_is_not_durable,
            removes_tombstones_at_once,
            removes_the_newest_record_of_a_tombstoned_key,
            drops_the_last_batches_of_producers,
            swaps_segments_without_syncs,
        ),
    ),
    variant(keeps_what_cannot_be_compared, zookeeper=True),
)
