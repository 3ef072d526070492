"""Loading a log from its directory, in a worker thread, with or without recovery.

After a clean shutdown only the end of the last segment is read. After a crash every segment from
the one that holds the recovery point on is read as a whole: CRCs are checked; the log is truncated
at the first damaged batch, or at a gap between segments; the indexes, the leader epochs and the
producer state are rebuilt. Segments before the recovery point were synced and are trusted; their
missing or impossible indexes are rebuilt, too. (A missing transaction index is none: most segments
have no aborted transaction.)

A batch of an older leader epoch than its predecessor was truncated once, and came back with a power
loss: it is treated as damage. Truncated data is gone from the disk, and what was read is synced,
before anything is appended. One warning reports what was lost.

A log with a remote prefix (`remote_prefix`) begins at its local log start; the leader epochs before
are only in their file. Without local records it is an empty log there, and keeps its prefix. A log
that was being begun with one when the process ended is removed, and is empty.

Source: LogLoader, LogSegment.recover, UnifiedLog.rebuildProducerState.
"""

import logging
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import (
    DAMAGED,
    NO_LIMITS,
    NOTHING_CHECKPOINTED,
    CheckpointLimits,
    lowest,
    read_limits,
    write_limits,
)
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.epoch_cache import EpochCache, EpochEntry
from ottla.log.indexes import offset_index, time_index
from ottla.log.indexes.offset_index import OffsetIndex
from ottla.log.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.log.indexes.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset, larger
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.log.producers.producer_state import ProducerState
from ottla.log.recovery.producer_replay import (
    Extent,
    estimate_append_times,
    list_snapshots,
    prune_snapshots,
    rebuild_producers,
    remove_stray_snapshots,
    replay_batch,
    store_producers_before,
    write_snapshot,
)
from ottla.log.recovery.scan import scan_batches, scan_headers
from ottla.log.recovery.startup_cleanup import tidy
from ottla.log.recovery.transaction_index_check import (
    check_transaction_index,
    write_transaction_index,
)
from ottla.records.batch import HEADER_SIZE, BatchHeader, parse_header
from ottla.records.errors import CorruptBatch, RecordsError

logger = logging.getLogger(__name__)


class LogDamaged(Exception):
    """Recovery would truncate records that are known to have been durable; nothing was changed.

    Fields: `path`, `position`: where the damage begins; `offset`: the first damaged one.
    """

    def __init__(self, path: str, position: int, offset: int) -> None:
        super().__init__(f"{path} is damaged at byte {position}, offset {offset}")
        self.path = path
        self.position = position
        self.offset = offset


@dataclass(slots=True, kw_only=True)
class LoadedSegment:
    """One segment as found. Only the last one has its indexes in memory.

    `scanned`: its files were read as a whole and may have been changed. `aborted`: what its
    transaction index has, None = it is read when it is needed.
    """

    base_offset: int
    size: int
    max_timestamp: TimestampOffset | None = None
    offset_index: OffsetIndex | None = None
    time_index: TimeIndex | None = None
    scanned: bool = False
    aborted: list[AbortedTransaction] | None = None


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """The state that a `PartitionLog` starts from.

    Fields: `cut_bytes`: bytes that recovery truncated; `dropped_segments`: whole segments that it
            deleted; `cut_from`: the offset of the truncation, None = there was none; `lost_to`: the
            end of the lost records, as far as known; `limits`: those in the log's directory;
            `is_new`: there was no segment, so no name in the directory is durable;
            `local_start_checkpointed`: a checkpoint has an entry of the local log start.
    """

    segments: list[LoadedSegment]
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: EpochCache
    producers: ProducerState
    snapshots: list[int] = field(default_factory=list)
    cut_bytes: int = 0
    dropped_segments: int = 0
    cut_from: int | None = None
    lost_to: int = 0
    limits: dict[int, CheckpointLimits] = field(default_factory=dict)
    is_new: bool = False
    local_start_checkpointed: bool = False


@dataclass(slots=True, kw_only=True)
class _Scan:
    """A segment read as a whole. `size`: of its sound batches; `damage`: what ends them, if any."""

    size: int = 0
    damage: str | None = None
    end_offset: int
    offsets: OffsetIndex
    times: TimeIndex
    largest: TimestampOffset
    aborted: list[AbortedTransaction] = field(default_factory=list)


def load_log(
    disk: Disk,
    directory: str,
    log_name: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    local_log_start_offset: int = 0,
    keep_below: int = 0,
    now_ms: int,
) -> LoadedLog:
    """Load the log in `directory`. Blocks: for a worker thread.

    Fields: `log_name`: for messages; `clean`: the last shutdown was clean;
            `local_log_start_offset`: its checkpointed value, 0 = no entry; `keep_below`: a log that
            is damaged below this offset is left as it is.
    Raises: OSError; LogDamaged, because of `keep_below`.
    """
    loader = _Loader(disk, directory, log_name, config, keep_below)
    return loader.load(clean, recovery_point, log_start_offset, local_log_start_offset, now_ms)


class _Loader:
    def __init__(
        self, disk: Disk, directory: str, log_name: str, config: LogConfig, keep_below: int
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.keep_below = keep_below
        self.config = config
        self.epochs = EpochCache()
        self.stored_epochs: tuple[EpochEntry, ...] = ()
        self.producers = ProducerState(log_name)
        self.log_name = log_name
        self.segments: list[LoadedSegment] = []
        self.cut_bytes = 0
        self.dropped_segments = 0
        self.cut_from: int | None = None
        self.lost_to = 0
        self.cause = ""
        self.has_remote_prefix = False
        self.snapshots_written: list[str] = []

    def load(
        self,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        checkpointed_local_start: int,
        now_ms: int,
    ) -> LoadedLog:
        self._remove_incomplete()
        limits = self._read_limits()
        lowered = lowest(limits.values())
        recovery_point = min(recovery_point, lowered.recovery_point)
        start = min(log_start_offset, lowered.log_start_offset)
        local_start = max(start, min(checkpointed_local_start, lowered.local_log_start_offset))
        self.has_remote_prefix = local_start > start
        bases = tidy(self.disk, self.directory)
        # A power loss may have brought back some of the deleted segments.
        expired = [base for base, end in pairwise(bases) if end <= local_start]
        bases = bases[len(expired) :]
        self._store_producers_of(expired, bases)
        end = self._load_segments(bases, clean, recovery_point) if bases else None
        self._check_kept(bases[-1] if bases else 0, None, end or 0)
        for base in expired:
            self._remove(base)
        if end is None or end < local_start:
            end = self._start_empty(local_start, end, recovery_point)
        local_start = self._local_start(local_start)
        if not self.has_remote_prefix:
            start = local_start
        point = end if clean and self.cut_from is None else min(recovery_point, end)
        if bases and (not clean or self.cut_from is not None):
            self._sync()
        if point < recovery_point:
            # The next start must not use the checkpoint's higher recovery point.
            number = max(limits, default=0) + 1
            limits[number] = self._new_limits(point, start, local_start, end)
            write_limits(self.disk, self.directory, number, limits[number])
        self._warn_of_loss(end)
        self._fit_epochs(start, local_start, end)
        estimate_append_times(self.disk, self.directory, self._extents(), self.producers, now_ms)
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        return LoadedLog(
            segments=self.segments,
            log_start_offset=start,
            local_log_start_offset=local_start,
            log_end_offset=end,
            recovery_point=point,
            epochs=self.epochs,
            producers=self.producers,
            snapshots=remove_stray_snapshots(self.disk, self.directory, self._extents(), end),
            cut_bytes=self.cut_bytes,
            dropped_segments=self.dropped_segments,
            cut_from=self.cut_from,
            lost_to=self.lost_to,
            limits=limits,
            is_new=not bases,
            local_start_checkpointed=checkpointed_local_start > 0,
        )

    def _read_limits(self) -> dict[int, CheckpointLimits]:
        limits = read_limits(self.disk, self.directory)
        if DAMAGED in limits.values():
            logger.warning(
                "%s: %s is damaged; reading the whole log, as any of it may have been truncated",
                *(self.log_name, names.TRUNCATION),
            )
        return limits

    def _store_producers_of(self, expired: list[int], remaining: list[int]) -> None:
        """Keep what only the expired segments may know: the producers before the others."""
        if expired:
            sizes = [self.disk.size(self._path(base, names.LOG)) for base in expired]
            extents = list(map(Extent, expired, sizes))
            store_producers_before(self.disk, self.directory, self.log_name, extents, remaining[0])

    def _remove_incomplete(self) -> None:
        """Remove everything of a log that is incomplete: see `remote_prefix`."""
        path = f"{self.directory}/{names.INCOMPLETE}"
        if not self.disk.exists(path):
            return
        logger.info(
            "%s: the log was being begun behind records in remote storage when the broker ended; "
            "it starts empty",
            self.log_name,
        )
        # The checkpoints' entries may be of the old log, or of the new one.
        number = max(read_limits(self.disk, self.directory), default=0) + 1
        write_limits(self.disk, self.directory, number, NOTHING_CHECKPOINTED)
        for base in tidy(self.disk, self.directory):
            self._remove(base)
        prune_snapshots(self.disk, self.directory, -1)
        self.disk.remove(f"{self.directory}/{names.LEADER_EPOCHS}")
        self.disk.sync_dir(self.directory)
        self.disk.remove(path)
        self.disk.sync_dir(self.directory)

    def _new_limits(self, point: int, start: int, local_start: int, end: int) -> CheckpointLimits:
        # No limit for the high watermark: if this process dies before it has registered, the next
        # start must find again that the log ends below it.
        return NO_LIMITS._replace(
            recovery_point=point,
            log_start_offset=start,
            clean_offset=end,
            local_log_start_offset=local_start if self.has_remote_prefix else 0,
        )

    def _local_start(self, local_start: int) -> int:
        """Return where the local log starts, which a damaged directory may lack the first of."""
        first = self.segments[0].base_offset
        if first <= local_start:
            return local_start
        if self.has_remote_prefix:
            # Damage: a segment is deleted after its local log start is durable. Or a truncation to
            # an offset in remote storage, from which a power loss has brought back old segments.
            logger.warning(
                "%s: the segments from the local log start offset %d to %d are missing; "
                "reading these offsets from remote storage only",
                *(self.log_name, local_start, first),
            )
        return first

    def _load_segments(self, bases: list[int], clean: bool, recovery_point: int) -> int:
        """Load the trusted segments and recover the others; return the log's end."""
        trusted = bases[:-1] if clean else bases[: _first_unflushed(bases, recovery_point)]
        decreasing = self._load_epochs(bases)
        if decreasing is not None and decreasing <= bases[len(trusted)]:
            trusted, clean = [base for base in trusted if base < decreasing], False
        for base in trusted:
            self.segments.append(self._trusted(base))
        end = self._load_end(bases[-1]) if clean else None
        if end is None:
            return self._recover(bases[len(self.segments) :])
        self.producers = self._producers_at(end)
        return end

    def _sync(self) -> None:
        """Make durable what was read: no old page or segment may come back behind new ones.

        A killed process may have truncated without a sync, and rolled since. The snapshots are
        needed once the segments before them are deleted, and no flush of a segment syncs them.
        """
        logs = [self._path(each.base_offset, names.LOG) for each in self.segments if each.scanned]
        for path in (*logs, *self.snapshots_written):
            with closing(self.disk.open(path)) as file:
                file.sync()
        self.disk.sync_dir(self.directory)

    # --- what was lost -------------------------------------------------------------------

    def _warn_of_loss(self, end: int) -> None:
        if self.cut_from is None:
            return
        logger.warning(
            "%s: recovery truncated the log at offset %d: %s; at least %d offsets and %d bytes "
            "are lost, %d segments dropped; the log ends at offset %d",
            *(self.log_name, self.cut_from, self.cause, max(0, self.lost_to - self.cut_from)),
            *(self.cut_bytes, self.dropped_segments, end),
        )

    def _note_loss(self, offset: int, cause: str) -> None:
        """Note that records from `offset` on are lost; the first cause is kept."""
        if self.cut_from is None:
            self.cut_from, self.lost_to, self.cause = offset, offset, cause
        self.cut_from = min(self.cut_from, offset)

    def _count_lost(self, base: int, position: int, size: int) -> None:
        """Estimate the end of the lost records from the batch headers behind the damage."""
        self.cut_bytes += size - position
        with closing(self.disk.open(self._path(base, names.LOG))) as file:
            try:
                while position + HEADER_SIZE <= size:
                    header = parse_header(file.read_at(position, HEADER_SIZE), whole=False)
                    if not base <= header.base_offset <= header.last_offset:
                        break
                    if header.last_offset - base > RELATIVE_OFFSET_MAX:
                        break
                    self.lost_to = max(self.lost_to, header.next_offset)
                    position += header.size_in_bytes
            except RecordsError:
                return

    # --- segments ------------------------------------------------------------------------

    def _trusted(self, base: int) -> LoadedSegment:
        """Load a segment without reading it; rebuild its indexes if missing or impossible."""
        size = self.disk.size(self._path(base, names.LOG))
        self._check_transaction_index(base, size)
        for suffix, entry_size in (
            (names.OFFSET_INDEX, offset_index.ENTRY_SIZE),
            (names.TIME_INDEX, time_index.ENTRY_SIZE),
        ):
            path = self._path(base, suffix)
            if not self.disk.exists(path) or self.disk.size(path) % entry_size:
                return self._rebuild_indexes(base, size)
        return LoadedSegment(base_offset=base, size=size)

    def _check_transaction_index(self, base: int, size: int) -> list[AbortedTransaction] | None:
        segment, earlier = Extent(base, size), self._extents()
        return check_transaction_index(self.disk, self.directory, self.log_name, segment, earlier)

    def _rebuild_indexes(self, base: int, size: int) -> LoadedSegment:
        offsets, times, largest = self._new_indexes(base)
        with closing(self.disk.open(self._path(base, names.LOG))) as file:
            try:
                entry_at = 0
                for position, header in scan_headers(file, 0, size):
                    largest = larger(largest, header)
                    if position - entry_at > self.config.index_interval_bytes:
                        offsets.append(header.last_offset, position)
                        times.maybe_append(*largest)
                        entry_at = position
            except RecordsError:
                pass  # Readers get an error at the damage; what precedes it can be read.
        times.maybe_append(*largest)
        self._write_indexes(base, offsets, times)
        return LoadedSegment(base_offset=base, size=size, max_timestamp=largest, scanned=True)

    def _load_end(self, base: int) -> int | None:
        """Load the last segment of a clean log; None = it needs recovery after all."""
        size = self.disk.size(self._path(base, names.LOG))
        try:
            offsets = OffsetIndex.load(
                self.disk.read_bytes(self._path(base, names.OFFSET_INDEX)),
                base,
                self.config.segment_index_bytes,
            )
            times = TimeIndex.load(
                self.disk.read_bytes(self._path(base, names.TIME_INDEX)),
                base,
                self.config.segment_index_bytes,
            )
        except (FileNotFoundError, ValueError):
            return None
        aborted = self._check_transaction_index(base, size)
        if aborted is None:
            return None
        end, largest = base, times.last
        with closing(self.disk.open(self._path(base, names.LOG))) as file:
            try:
                for _, header in scan_headers(file, offsets.last.position, size):
                    end = header.next_offset
                    largest = larger(largest, header)
            except RecordsError:
                return None
        if size and (offsets.last.position >= size or end <= offsets.last.offset):
            return None
        self.segments.append(
            LoadedSegment(
                base_offset=base,
                size=size,
                max_timestamp=largest,
                offset_index=offsets,
                time_index=times,
                aborted=aborted,
            )
        )
        return end

    def _recover(self, bases: list[int]) -> int:
        """Read whole segments and truncate at the first damage; return the log's end."""
        if self.segments or self.has_remote_prefix:
            self.epochs.truncate_from_end(bases[0])
        else:
            # Entries before the first record may be a former log's, and batches of older epochs
            # would be refused because of them.
            self.epochs.clear()
        # A power loss may have brought back snapshots of what was truncated since.
        prune_snapshots(self.disk, self.directory, bases[0])
        self.producers = self._producers_at(bases[0])
        end = bases[0]
        for index, base in enumerate(bases):
            last = index + 1 == len(bases)
            size = self.disk.size(self._path(base, names.LOG))
            if base < end:
                # A segment that overlaps its predecessor does not belong to this log.
                self._check_kept(base, 0, end)
                self._note_loss(end, f"the next segment begins at offset {base}")
                self._drop(bases[index:])
                break
            scan = self._scan(base, size)
            end = scan.end_offset
            if scan.size < size:
                self._check_kept(base, scan.size, end)
                name = names.segment_name(base, names.LOG)
                self._note_loss(end, f"at position {scan.size} of {name}, {scan.damage}")
                self._cut(base, size, scan.size)
            # Segments have no gaps between them: at a gap a power loss took the end of this
            # segment, or the next one, and left what was written later.
            if not last and (scan.size < size or end < bases[index + 1]):
                self._check_kept(base, scan.size, end)
                self._note_loss(end, f"the next segment begins at offset {bases[index + 1]}")
                self._drop(bases[index + 1 :])
                last = True
            self._keep_scanned(base, scan, last)
            if last:
                break
            if end == bases[index + 1]:  # Else the next one overlaps, and will be dropped.
                # Without it recovering the next segment would have to read this one again.
                path = write_snapshot(self.disk, self.directory, end, self.producers)
                self.snapshots_written.append(path)
        self._activate_last()
        return end

    def _scan(self, base: int, size: int) -> _Scan:
        offsets, times, largest = self._new_indexes(base)
        scan = _Scan(end_offset=base, offsets=offsets, times=times, largest=largest)
        entry_at = 0
        with closing(self.disk.open(self._path(base, names.LOG))) as file:
            try:
                for position, header, buffer, start in scan_batches(file, 0, size):
                    if header.base_offset < scan.end_offset:
                        raise CorruptBatch(f"offset {header.base_offset} goes back")
                    if header.last_offset - base > RELATIVE_OFFSET_MAX:
                        raise CorruptBatch(f"offset {header.last_offset} is too far from {base}")
                    if not self._add_epoch(header, scan.end_offset):
                        epoch, latest = header.partition_leader_epoch, self.epochs.latest_epoch
                        raise CorruptBatch(f"leader epoch {epoch} follows leader epoch {latest}")
                    if header.producer_id >= 0:
                        aborted = replay_batch(self.producers, header, buffer, start)
                        if aborted is not None:
                            scan.aborted.append(aborted)
                    # Only now: an index entry of a batch that is cut off would stay.
                    scan.largest = larger(scan.largest, header)
                    if position - entry_at > self.config.index_interval_bytes:
                        offsets.append(header.last_offset, position)
                        times.maybe_append(*scan.largest)
                        entry_at = position
                    scan.end_offset = header.next_offset
                    scan.size = position + header.size_in_bytes
            except RecordsError as error:
                scan.damage = str(error)  # The log is truncated here.
        times.maybe_append(*scan.largest)
        return scan

    def _keep_scanned(self, base: int, scan: _Scan, last: bool) -> None:
        write_transaction_index(self.disk, self.directory, base, scan.aborted)
        if not last:
            self._write_indexes(base, scan.offsets, scan.times)
        self.segments.append(
            LoadedSegment(
                base_offset=base,
                size=scan.size,
                max_timestamp=scan.largest,
                offset_index=scan.offsets if last else None,
                time_index=scan.times if last else None,
                scanned=True,
                aborted=scan.aborted,
            )
        )

    def _activate_last(self) -> None:
        """Load the indexes of a segment that became the last one when others were deleted."""
        last = self.segments[-1]
        if last.offset_index is None:
            last.offset_index = OffsetIndex.load(
                self.disk.read_bytes(self._path(last.base_offset, names.OFFSET_INDEX)),
                last.base_offset,
                self.config.segment_index_bytes,
            )
            last.time_index = TimeIndex.load(
                self.disk.read_bytes(self._path(last.base_offset, names.TIME_INDEX)),
                last.base_offset,
                self.config.segment_index_bytes,
            )

    def _check_kept(self, base: int, position: int | None, end: int) -> None:
        """Raise LogDamaged if a log that ends at `end` would lack records below `keep_below`."""
        if end < self.keep_below:
            path = self._path(base, names.LOG)
            if position is None:
                position = self.disk.size(path) if self.disk.exists(path) else 0
            raise LogDamaged(path, position, end)

    def _cut(self, base: int, size: int, sound: int) -> None:
        self._count_lost(base, sound, size)
        with closing(self.disk.open(self._path(base, names.LOG))) as file:
            file.truncate(sound)

    def _drop(self, bases: list[int]) -> None:
        for base in bases:
            self.dropped_segments += 1
            self._count_lost(base, 0, self.disk.size(self._path(base, names.LOG)))
            self._remove(base)

    def _remove(self, base: int) -> None:
        # The log file last: an index without it is an orphan and goes at the next start.
        for suffix in reversed(names.SEGMENT_SUFFIXES):
            self.disk.remove(self._path(base, suffix))

    def _start_empty(self, local_start: int, end: int | None, recovery_point: int) -> int:
        """Create an empty log: no segment exists, or the log ends before its start offset."""
        if end is not None:
            first = self.segments[0].base_offset
            self._note_loss(first, f"it ended at {end}, before its log start offset {local_start}")
            self.cut_from = first
        elif recovery_point > 0:
            self._note_loss(0, "no segment exists")
            self.lost_to = recovery_point
        self._drop([segment.base_offset for segment in self.segments])
        if list_snapshots(self.disk, self.directory):
            # They are of the deleted log, and could be read at its next truncation or start.
            prune_snapshots(self.disk, self.directory, -1)
            self.disk.sync_dir(self.directory)
        if self.has_remote_prefix:
            self._load_epochs([])
            self.epochs.truncate_from_end(local_start)
        else:
            self.epochs.clear()
        self.producers.clear()
        offsets, times, largest = self._new_indexes(local_start)
        self.disk.open(self._path(local_start, names.LOG), create=True).close()
        self.segments = [
            LoadedSegment(
                base_offset=local_start,
                size=0,
                max_timestamp=largest,
                offset_index=offsets,
                time_index=times,
                scanned=True,
            )
        ]
        return local_start

    def _new_indexes(self, base: int) -> tuple[OffsetIndex, TimeIndex, TimestampOffset]:
        size_max = self.config.segment_index_bytes
        empty = TimestampOffset(NO_TIMESTAMP, base)
        return OffsetIndex(base, size_max), TimeIndex(base, size_max), empty

    def _write_indexes(self, base: int, offsets: OffsetIndex, times: TimeIndex) -> None:
        with closing(self.disk.open(self._path(base, names.OFFSET_INDEX), create=True)) as file:
            offsets.write(file)
        with closing(self.disk.open(self._path(base, names.TIME_INDEX), create=True)) as file:
            times.write(file)

    def _producers_at(self, end: int) -> ProducerState:
        return rebuild_producers(self.disk, self.directory, self.log_name, self._extents(), end)

    def _extents(self) -> list[Extent]:
        return [Extent(segment.base_offset, segment.size) for segment in self.segments]

    def _path(self, base: int, suffix: str) -> str:
        return f"{self.directory}/{names.segment_name(base, suffix)}"

    # --- leader epochs -------------------------------------------------------------------

    def _load_epochs(self, bases: list[int]) -> int | None:
        """Return the base offset of the first segment in which epochs decrease; None = no such."""
        try:
            data = self.disk.read_bytes(f"{self.directory}/{names.LEADER_EPOCHS}")
        except FileNotFoundError:
            data = b""  # As Kafka creates it.
        try:
            if data:
                self.epochs = EpochCache.decode(data)
                self.stored_epochs = self.epochs.entries
                return None
        except MalformedFile as error:
            logger.warning(
                "%s: %s is damaged (%s); reading the leader epochs from the batches",
                *(self.log_name, names.LEADER_EPOCHS, error),
            )
        # The batches have their epochs: an unreadable file costs a scan over all headers.
        for base in bases:
            if not self._read_epochs(base):
                return base
        return None

    def _fit_epochs(self, start: int, local_start: int, end: int) -> None:
        """Have the epochs of the log's offsets, and of no others."""
        self.epochs.truncate_from_end(end)
        known = self.epochs.entries
        self.epochs.truncate_from_start(start)
        # As what `EpochCache.start_durable` drops: limits may have been removed before.
        self.epochs.has_dropped = self.epochs.entries != known
        self._complete_epochs(start, end)
        self._warn_of_missing_epochs(start, local_start)

    def _complete_epochs(self, start: int, end: int) -> None:
        """Read the epochs between the log start and the first known one from the batches.

        The file may be newer than the log start checkpoint: after DeleteRecords and a crash the log
        starts lower again. If it was then truncated below, no epoch is known.
        """
        known = self.epochs.entries
        if not known and not self.stored_epochs:
            return
        if known:
            end = known[0].start_offset
        if end <= start:
            return
        self.epochs = EpochCache()
        for segment in self.segments:
            if segment.base_offset >= end or not self._read_epochs(segment.base_offset, end):
                break
        self.epochs.truncate_from_start(start)
        for entry in known:
            self.epochs.assign(*entry)
        self.epochs.dirty = True

    def _warn_of_missing_epochs(self, start: int, local_start: int) -> None:
        """Say that records which are in remote storage only have no epochs here: no batch has them,
        and without them no segment is known to belong to this log."""
        known = self.epochs.entries
        end = min(known[0].start_offset, local_start) if known else local_start
        if start < end:
            logger.warning(
                "%s: the leader epochs of the offsets %d to %d are missing, which are in remote "
                "storage only; this replica cannot serve them: %s is damaged or was deleted",
                *(self.log_name, start, end, names.LEADER_EPOCHS),
            )

    def _read_epochs(self, base: int, end: int = 2**63) -> bool:
        """Read a segment's epochs up to `end`; return whether they never decrease."""
        reached = base
        with closing(self.disk.open(self._path(base, names.LOG))) as file:
            try:
                for _, header in scan_headers(file, 0, file.size()):
                    if header.base_offset >= end:
                        break
                    if not self._add_epoch(header, reached):
                        return False
                    reached = header.next_offset
            except RecordsError:
                pass  # Recovery or readers handle the damage.
        return True

    def _add_epoch(self, header: BatchHeader, reached: int) -> bool:
        """Add a batch's leader epoch; return whether it does not decrease.

        `reached`: the end of the log before the batch. Compaction may have removed batches in
        between, of this and other epochs. Replicas that lag may have other records there, and would
        keep these if the epoch's start offset were too high. The epoch file has the start offset.
        Its entries for other offsets are from before a truncation; without an entry the epoch
        starts at `reached`, the lowest possible offset.
        """
        epoch, latest = header.partition_leader_epoch, self.epochs.latest_epoch
        if epoch <= latest:
            return epoch < 0 or epoch == latest
        between = [
            each
            for each in self.stored_epochs
            if each.epoch <= epoch and reached <= each.start_offset <= header.base_offset
        ]
        if between and between[-1].epoch == epoch:
            for each in between:
                self.epochs.assign(*each)
        else:
            self.epochs.assign(epoch, reached)
        return True


def _first_unflushed(bases: list[int], recovery_point: int) -> int:
    """Return the index of the segment that holds the recovery point."""
    first = 0
    for index, base in enumerate(bases):
        if base <= recovery_point:
            first = index
    return first
