"""The local files of one log: its segments and their end.

A local log knows bytes, segments and names, and neither producers, leader epochs nor what is
committed: those are `partition_log`'s. It also notes which of its names and small files are not
durable yet, for the next flush (`flushing`).

Source: LocalLog, LogSegments.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ports import Buffer
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.disk_ports import DiskPorts
from ottla.log.earlier_segments import EarlierSegment
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_cache import Handle, OutOfDescriptors
from ottla.log.indexes.timestamp_search import TimestampSearch
from ottla.log.indexes.transaction_index import AbortedTransaction, select
from ottla.log.recovery.log_loader import LoadedSegment
from ottla.log.recovery.producer_replay import Extent
from ottla.log.results import NOTHING, DamagedLog, ReadResult
from ottla.log.retention import SegmentFacts
from ottla.log.segment import DamagedSegment, Segment, new_segment
from ottla.log.segment_files import LocalSegment, SegmentFiles, files_of
from ottla.log.segment_list import SegmentList
from ottla.log.validation import NewBatch, api_error, expanded_bytes_max
from ottla.records.batch import HEADER_SIZE
from ottla.records.errors import RecordsError


class SegmentSwap(Protocol):
    """A swap of cleaned segments, as far as its log has to know it."""

    @property
    def is_replaced(self) -> bool: ...

    def settle(self) -> None: ...


class LocalLog:
    """See the module.

    Fields: `failed`: the disk failed beneath the log, or it is closed; `size_bytes`: of the
            segments' batches; `names_changed`: names in the directory are not durable yet, as
            before the first flush; `begins_durably`: the first segment's name is durable;
            `unsynced_handles`: small files to sync with the next flush; `delayed_deletions`:
            segment deletions that wait for `file.delete.delay.ms`; `swap`: the swap of cleaned
            segments in progress.
    """

    __slots__ = (
        "_ports",
        "begins_durably",
        "config",
        "delayed_deletions",
        "directory",
        "failed",
        "log_end_offset",
        "name",
        "names_changed",
        "segments",
        "size_bytes",
        "swap",
        "unsynced_handles",
    )

    def __init__(
        self,
        ports: DiskPorts,
        directory: str,
        name: str,
        config: LogConfig,
        segments: Sequence[LoadedSegment],
        *,
        log_end_offset: int,
        begins_durably: bool,
    ) -> None:
        self._ports = ports
        self.directory = directory
        self.name = name
        self.config = config
        self.segments = SegmentList([_segment(ports, directory, each) for each in segments])
        self.segments.active.jitter_ms = ports.jitter_ms(config.segment_jitter_ms)
        self.log_end_offset = log_end_offset
        self.size_bytes = sum(segment.size for segment in self.segments)
        self.failed = False
        self.names_changed = True
        self.begins_durably = begins_durably
        self.unsynced_handles: list[Handle] = []
        self.delayed_deletions = 0
        self.swap: SegmentSwap | None = None

    def check_usable(self) -> None:
        """Raise ApiError (KAFKA_STORAGE_ERROR) once the log has failed or is closed."""
        if self.failed:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, f"The log of {self.name} is offline.")

    def offline_error(self) -> OSError:
        """Return the error of what is asked of a log that has failed or is closed."""
        return OSError(errno.EIO, "the log is offline", self.directory)

    # --- append --------------------------------------------------------------------------

    def append_one(self, data: Buffer, last_offset: int, max_timestamp: int, size: int) -> None:
        """Append one batch, which fits into the active segment. Raises: OSError."""
        segment = self.segments.active
        try:
            segment.append_one(
                data, last_offset, max_timestamp, size, self.config.index_interval_bytes
            )
        except OutOfDescriptors:
            raise  # Before anything was written.
        except BaseException:
            self._append_failed(segment, segment.size)
            raise
        self.size_bytes += size
        self.log_end_offset = last_offset + 1

    def append_run(self, run: Sequence[NewBatch]) -> None:
        """Append batches, which fit into the active segment, with one write. Raises: OSError."""
        segment = self.segments.active
        before = segment.size
        headers = [batch.header for batch in run]
        try:
            segment.append([batch.data for batch in run], headers, self.config.index_interval_bytes)
        except OutOfDescriptors:
            raise  # Before anything was written.
        except BaseException:
            self._append_failed(segment, before)
            raise
        self.size_bytes += segment.size - before
        self.log_end_offset = headers[-1].next_offset

    def fitting(self, batches: Sequence[NewBatch], now_ms: int) -> int:
        """Return how many of the batches, one at least, the active segment takes."""
        segment, config = self.segments.active, self.config
        size = batches[0].header.size_in_bytes
        for count in range(1, len(batches)):
            header = batches[count].header
            more = header.size_in_bytes
            if not segment.fits(
                header.last_offset, header.max_timestamp, more, config, now_ms, size
            ):
                return count
            size += more
        return len(batches)

    def _append_failed(self, segment: Segment, size: int) -> None:
        # The batch was not taken, and the next one has its offset: its bytes may not stay.
        try:
            segment.undo_append(size, self.log_end_offset)
        except (OSError, OutOfDescriptors):
            self.failed = True

    def seal_active(self) -> None:
        """Seal the active segment; `add_segment` follows. Raises: OSError."""
        if not self.begins_durably:
            # Once for each log. A power loss could take the first of two segments, and the rest
            # would look like a log whose first segment was deleted by retention.
            self._ports.disk.sync_dir(self.directory)
            self.begins_durably = True
        self.segments.active.seal()

    def add_segment(self, base_offset: int, now_ms: int) -> None:
        """Create another active segment. Raises: OSError."""
        segment = self._new_segment(base_offset, now_ms)
        segment.jitter_ms = self._ports.jitter_ms(self.config.segment_jitter_ms)
        self.segments.add(segment)
        self.names_changed = True

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return new_segment(self._ports.files, self.directory, base_offset, self.config, now_ms)

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
        """Do as `PartitionLog.read`, for an offset within the local log."""
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
                return self._slice(
                    segment, found.position, min(end - found.position, limit), found.size
                )
        except RecordsError as error:
            raise api_error(error) from None
        if emptied is None or (max_bytes < HEADER_SIZE and not at_least_one):
            return NOTHING
        segment, position, size = emptied
        return self._slice(segment, position, min(size, max(max_bytes, HEADER_SIZE)), HEADER_SIZE)

    def _slice(self, segment: Segment, position: int, length: int, first_size: int) -> ReadResult:
        piece = self._ports.files.slice(segment.log, position, length, first_size)
        return ReadResult((piece,), piece.length)

    def _end_position(self, index: int, upper_bound: int) -> int:
        segment = self.segments[index]
        if upper_bound >= self.segments.end_of(index, self.log_end_offset):
            return segment.size
        found = segment.position_of(upper_bound)
        return segment.size if found is None else found.position

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Do as `PartitionLog.aborted_transactions`."""
        found: list[AbortedTransaction] = []
        for index in range(self.segments.floor(start_offset), len(self.segments)):
            try:
                entries = self.segments[index].aborted()
            except DamagedSegment as damage:
                raise _damaged(damage) from None
            some, complete = select(entries, start_offset, end_offset)
            found += some
            if complete:
                break
        return found

    def search_timestamp(self, timestamp: int, start_offset: int) -> TimestampSearch | None:
        """Return a search for the first record from `start_offset` on with this timestamp or a
        later one: see `PartitionLog.search_timestamp`."""
        limit = expanded_bytes_max(self.config)
        for index in range(self.segments.floor(start_offset), len(self.segments)):
            segment = self.segments[index]
            if segment.max_timestamp.timestamp >= timestamp:
                end = None
                if not segment.is_active:
                    end = self.segments.end_of(index, self.log_end_offset)
                return segment.search_timestamp(timestamp, start_offset, limit, end)
        return None

    def search_max_timestamp(self) -> TimestampSearch | None:
        """Return a search for the first record with the largest timestamp; None = there is none."""
        largest = max(self.segments, key=lambda segment: segment.max_timestamp.timestamp)
        timestamp = largest.max_timestamp.timestamp
        if timestamp < 0:
            return None
        limit = expanded_bytes_max(self.config)
        return largest.search_timestamp(timestamp, largest.base_offset, limit)

    # --- the segments --------------------------------------------------------------------

    def local_segments(self) -> list[LocalSegment]:
        """Return the segments, the active one last."""
        return [
            LocalSegment(
                base_offset=segment.base_offset,
                end_offset=self.segments.end_of(index, self.log_end_offset),
                size_bytes=segment.size,
                is_active=segment.is_active,
            )
            for index, segment in enumerate(self.segments)
        ]

    def segment_files(
        self,
        base_offset: int,
        *,
        epochs: EpochCache,
        snapshots: list[int],
        is_same_log: Callable[[], bool],
    ) -> SegmentFiles | None:
        """Do as `PartitionLog.segment_files`; `is_same_log`: whether it was not truncated."""
        index = self.segments.floor(base_offset)
        segment, directory = self.segments[index], self.directory
        if segment.base_offset != base_offset or segment.is_active or self.swap is not None:
            return None

        def is_intact() -> bool:
            if self.failed or self.directory != directory or not is_same_log():
                return False
            at = self.segments[self.segments.floor(base_offset)]
            return at is segment or at.base_offset > base_offset

        try:
            return files_of(
                self._ports.disk,
                segment,
                self.segments.end_of(index, self.log_end_offset),
                epochs=epochs,
                snapshots=snapshots,
                earlier=self.extents(index + 1),
                is_intact=is_intact,
            )
        except DamagedSegment as damage:
            raise _damaged(damage) from None

    def extents(self, count: int | None = None) -> list[Extent]:
        """Return where the first `count` segments start, and their sizes; None = of all."""
        chosen = list(self.segments)[:count]
        return [Extent(segment.base_offset, segment.size) for segment in chosen]

    def count_below(self, offset: int) -> int:
        """Return how many segments are wholly below an offset; never the active one."""
        count = 0
        while count + 1 < len(self.segments) and self.segments[count + 1].base_offset <= offset:
            count += 1
        return count

    def segment_facts(self, now_ms: int, high_watermark: int) -> list[SegmentFacts]:
        """Return the segments' facts for retention; a largest timestamp is read once and kept.

        Raises: OSError.
        """
        facts: list[SegmentFacts] = []
        config = self.config
        needs_time = config.deletes and config.retention_ms >= 0
        if config.remote_storage:
            needs_time = config.local_retention_ms >= 0
        for index, segment in enumerate(self.segments):
            end = self.segments.end_of(index, self.log_end_offset)
            newest = 0
            if needs_time and end <= high_watermark:
                newest = self.newest_ms(segment)
                if config.remote_storage and newest > now_ms:
                    # It would never leave the local disk (KAFKA-20609).
                    newest = self._ports.disk.modified_ms(segment.current_path(names.LOG))
            facts.append(
                SegmentFacts(segment.base_offset, end, segment.size, newest, segment.is_active)
            )
        return facts

    def newest_ms(self, segment: Segment) -> int:
        """Return when a segment's newest record was written, for time limits. Raises: OSError."""
        timestamp = segment.max_timestamp.timestamp
        if timestamp >= 0:
            return timestamp
        # Records without timestamps age with their file.
        return self._ports.disk.modified_ms(segment.current_path(names.LOG))

    def take_first(self, count: int) -> list[Segment]:
        """Remove and return the first segments; their files are still there."""
        gone = self.segments.take_first(count)
        self.size_bytes -= sum(segment.size for segment in gone)
        return gone

    def replace_segments(self, old_segments: Sequence[Segment], segment: Segment) -> None:
        """Let a sealed segment, made from some of the segments, take their place."""
        index = self.segments.floor(segment.base_offset)
        self.segments.replace(index, len(old_segments), segment)
        self.size_bytes += segment.size - sum(old.size for old in old_segments)
        self.names_changed = True

    def name_earlier(self, earlier: Sequence[EarlierSegment]) -> list[Segment]:
        """Give their names to segments that precede the first one; return them. Raises: OSError."""
        disk = self._ports.disk
        made: list[Segment] = []
        for each in earlier:
            segment = Segment(
                self._ports.files,
                self.directory,
                each.base_offset,
                size=each.size,
                created_ms=self._ports.clock.now_ms(),
                max_timestamp=each.max_timestamp,
            )
            for suffix in each.suffixes:
                disk.rename(segment.path(suffix) + names.TEMPORARY, segment.path(suffix))
            made.append(segment)
        return made

    def put_first(self, earlier: list[Segment]) -> None:
        """Put sealed segments before the first one."""
        if earlier:
            self.segments.put_first(earlier)
            self.size_bytes += sum(segment.size for segment in earlier)

    # --- truncate ------------------------------------------------------------------------

    def check_cut(self, offset: int) -> None:
        """Check that the log can be cut there, before anything changes. Raises: DamagedLog."""
        try:
            self.segments[self.segments.floor(offset)].cut_at(offset)
        except DamagedSegment as damage:
            raise _damaged(damage) from None

    def settle_swaps(self) -> None:
        """End the swaps of cleaned segments in progress. Raises: OSError."""
        while self.swap is not None:  # The end of one may begin the next one.
            self.swap.settle()

    def take_above(self, offset: int) -> list[Segment]:
        """Remove and return the segments that start above `offset`, from the end: a process that
        is killed while their files go must not leave a gap."""
        return self.segments.take_above(offset)[::-1]

    def cut(self, offset: int, log_start_offset: int) -> None:
        """Remove the batches of the last segment that reach `offset`. Raises: OSError."""
        active = self.segments.active
        active.activate(self.config)
        # A batch may begin below the log start; the log start does not move back.
        end = active.truncate_to(offset)
        self.log_end_offset = max(end, min(offset, log_start_offset))
        self.size_bytes = sum(segment.size for segment in self.segments)

    def start_at(self, offset: int, now_ms: int) -> None:
        """Replace all segments, whose files are gone, by an empty one. Raises: OSError."""
        self.segments.replace_all(self._new_segment(offset, now_ms))
        self.log_end_offset = offset
        self.size_bytes = 0

    # --- delete and close ----------------------------------------------------------------

    def delete_segments(
        self, segments: Iterable[Segment], failed: Callable[[OSError], None]
    ) -> None:
        """Rename the segments' files to `.deleted`, and remove them after `file.delete.delay.ms`.

        Readers can go on: the files stay open while pinned. `failed`: called if the removal fails.
        Raises: OSError.
        """
        disk = self._ports.disk
        renamed: list[str] = []
        for segment in segments:
            for suffix in names.SEGMENT_SUFFIXES:
                deleted = segment.path(suffix) + names.DELETED
                try:
                    disk.rename(segment.current_path(suffix), deleted)
                except FileNotFoundError:
                    continue
                renamed.append(deleted)
            segment.moved(segment.directory, names.DELETED)
            segment.close()

        def remove() -> None:
            for path in renamed:
                disk.remove(path)

        def removed(result: BaseException | None) -> None:
            if isinstance(result, OSError):
                failed(result)
            elif result is not None:
                raise result

        def delay_over() -> None:
            self.delayed_deletions -= 1
            self._ports.workers.submit(remove, removed)

        self.delayed_deletions += 1
        due_ms = self._ports.clock.monotonic_ms() + self.config.file_delete_delay_ms
        self._ports.timers.at(due_ms, delay_over)

    def note_unsynced(self, path: str) -> None:
        """Have the next flush sync a small file, such as a producer snapshot."""
        self.unsynced_handles.append(self._ports.files.handle(path))

    def moved(self, directory: str) -> None:
        """Take over the new path of a renamed directory, for every open file (KAFKA-5099)."""
        self.directory = directory
        for segment in self.segments:
            segment.moved(directory)

    def close(self) -> None:
        """Close the files without a flush."""
        self.failed = True
        for item in (*self.segments, *self.unsynced_handles):
            with contextlib.suppress(OSError):
                item.close()
        self.unsynced_handles.clear()


def _segment(ports: DiskPorts, directory: str, found: LoadedSegment) -> Segment:
    segment = Segment(
        ports.files,
        directory,
        found.base_offset,
        size=found.size,
        created_ms=ports.clock.now_ms(),
        offset_index=found.offset_index,
        time_index=found.time_index,
        max_timestamp=found.max_timestamp,
        aborted=found.aborted,
    )
    segment.unsynced = found.scanned
    return segment


def _damaged(damage: DamagedSegment) -> DamagedLog:
    return DamagedLog(str(damage), path=damage.path, good_end=damage.good_end)
