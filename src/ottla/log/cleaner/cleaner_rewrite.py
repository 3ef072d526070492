"""The heavy work of a cleaning: reading keys, rewriting segments. Blocks; runs in any process.

First pass: the keys of the dirty segments are put into the map, whole batches at a time, until it
is full. Second pass: every segment up to there is read and its retained records are written,
several small segments into one. Keys of aborted transactions do not count.

Source: Cleaner.{buildOffsetMap, cleanSegments, cleanInto}.
"""

from collections.abc import Callable, Iterator
from contextlib import closing

from ottla.base.ports import Disk, File
from ottla.log import names
from ottla.log.cleaner.cleaner_filter import BatchFilter
from ottla.log.cleaner.cleaner_job import (
    CleanedSegment,
    CleaningEnd,
    CleaningFailed,
    CleaningJob,
    Group,
)
from ottla.log.cleaner.cleaner_map import SLOT_BYTES, OffsetMap
from ottla.log.cleaner.cleaner_transactions import CleanedTransactions
from ottla.log.indexes.offset_index import OffsetIndex
from ottla.log.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.log.indexes.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset, larger
from ottla.log.indexes.transaction_index import AbortedTransaction, encode_entry
from ottla.log.recovery.scan import Batch, scan_batches, scan_headers
from ottla.records.batch import BatchHeader, parse_header
from ottla.records.errors import RecordsError
from ottla.records.record import read_records, record_bytes

Throttle = Callable[[int], None]
"""Called with the number of bytes read or written; waits to keep the rate."""

COUNT_BELIEVED_MAX = 1 << 20
"""A larger record count in a batch header is verified, since the map's size depends on it."""

_INDEX_BYTES_MAX = 1 << 62
"""The planned groups keep the indexes within their sizes."""


def unthrottled(count: int) -> None:
    """Take any number of bytes."""


def clean(
    disk: Disk, job: CleaningJob, throttle: Throttle = unthrottled
) -> Iterator[CleanedSegment | CleaningEnd]:
    """Yield a new segment for each group up to the map's end offset, then the CleaningEnd.

    Raises: OSError; CleaningFailed where a batch is damaged.
    """
    try:
        yield from _Cleaning(disk, job, throttle).run()
    except RecordsError as error:
        raise CleaningFailed(f"{job.directory}: {error}") from None


class _Cleaning:
    def __init__(self, disk: Disk, job: CleaningJob, throttle: Throttle) -> None:
        self.disk = disk
        self.job = job
        self.throttle = throttle
        self.bytes_read = 0
        self.bytes_written = 0

    def run(self) -> Iterator[CleanedSegment | CleaningEnd]:
        job = self.job
        records, largest = self._dirty_records()
        # Any single batch must fit, or a cleaning could never get past it.
        least = (int(largest / job.map_load_factor) + 8) * 2 * SLOT_BYTES
        latest = OffsetMap(
            max(job.map_bytes, least),
            job.map_load_factor,
            keys=records,
            salt=job.token.encode(),
        )
        end_offset = self._fill(latest)
        transactions = CleanedTransactions(job.aborted)
        rules = BatchFilter(
            latest,
            end_offset,
            transactions,
            producers=job.producers,
            levels=job.levels,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        for number, group in enumerate(job.groups):
            if group[0].base_offset >= end_offset:
                break
            yield self._rewrite(number, group, rules, transactions)
        yield CleaningEnd(
            end_offset,
            self.bytes_read,
            self.bytes_written,
            rules.records_read,
            rules.records_kept,
            tuple(rules.unreadable),
            rules.unreadable_count,
        )

    # --- the map -------------------------------------------------------------------------

    def _dirty(self) -> Group:
        first_dirty = self.job.first_dirty
        return tuple(
            segment for group in self.job.groups for segment in group
            if segment.end_offset > first_dirty
        )  # fmt: skip

    def _dirty_records(self) -> tuple[int, int]:
        """Return how many records are dirty, and how many the largest batch has."""
        total = largest = 0
        for segment in self._dirty():
            with closing(self.disk.open(self._path(segment.base_offset))) as file:
                for position, header in scan_headers(file, 0, segment.size):
                    count = header.record_count
                    if count > COUNT_BELIEVED_MAX:
                        count = _real_count(file, position, header)
                    total += count
                    largest = max(largest, count)
        return total, largest

    def _fill(self, latest: OffsetMap) -> int:
        """Put the dirty records' keys into the map; return the offset up to which all are in it."""
        dirty = self._dirty()
        # Markers before are not read here: their producers may have committed records since.
        transactions = CleanedTransactions(
            entry for entry in self.job.aborted if entry.last_offset >= dirty[0].base_offset
        )
        end_offset = self.job.first_dirty
        for segment in dirty:
            for batch in self._batches(segment.base_offset, segment.size):
                header = batch.header
                discarded = transactions.may_discard(header, batch.buffer, batch.start)
                if header.last_offset < self.job.first_dirty:
                    continue
                if not discarded and not header.is_control and not self._note(latest, batch):
                    return end_offset
                end_offset = header.next_offset
            end_offset = segment.end_offset
        return end_offset

    def _note(self, latest: OffsetMap, batch: Batch) -> bool:
        """Put a batch's keys into the map, all or none; return whether."""
        try:
            records = read_records(batch.buffer, batch.start, batch.header)
        except RecordsError:
            return True  # It is kept as it is, and supersedes nothing.
        if not latest.has_room_for(len(records)):
            return False
        for record in records:
            if record.key is not None and record.offset >= self.job.first_dirty:
                latest.put(record.key, record.offset)
        return True

    # --- the segments --------------------------------------------------------------------

    def _rewrite(
        self, number: int, group: Group, rules: BatchFilter, transactions: CleanedTransactions
    ) -> CleanedSegment:
        last_offset = self._last_offset(group)
        base_offset = group[0].base_offset
        written = _Writer(self.disk, self.job, base_offset)
        try:
            for segment in group:
                for batch in self._batches(segment.base_offset, segment.size):
                    is_last = batch.header.last_offset == last_offset
                    data = rules.retained(batch, is_last=is_last)
                    if data is not None:
                        self.throttle(len(data))
                        written.add(data)
            # An abort's index entry belongs to the segment with its marker.
            aborted, transactions.kept = transactions.kept, []
            # Where no record with a timestamp is left, the file's age is that of the records.
            modified_ms = max(self.disk.modified_ms(self._path(old.base_offset)) for old in group)
            suffixes = written.finish(aborted, modified_ms)
        finally:
            written.close()
        self.bytes_written += written.size
        return CleanedSegment(number, base_offset, written.size, *written.largest, suffixes)

    def _last_offset(self, group: Group) -> int:
        """Return the last offset of the group's batches.

        Its batch is kept, if only as an empty one: a start that finds an unfinished swap deletes
        exactly the old segments below the new segment's end.
        """
        last = -1
        for segment in group:
            with closing(self.disk.open(self._path(segment.base_offset))) as file:
                for _, header in scan_headers(file, 0, segment.size):
                    last = header.last_offset
        return last

    def _batches(self, base_offset: int, size: int) -> Iterator[Batch]:
        with closing(self.disk.open(self._path(base_offset))) as file:
            for batch in scan_batches(file, 0, size):
                self.bytes_read += batch.header.size_in_bytes
                self.throttle(batch.header.size_in_bytes)
                yield batch

    def _path(self, base_offset: int) -> str:
        return f"{self.job.directory}/{names.segment_name(base_offset, names.LOG)}"


def _real_count(file: File, position: int, header: BatchHeader) -> int:
    """Return the verified record count of a batch; 0 = its records do not decompress."""
    try:
        record_bytes(file.read_at(position, header.size_in_bytes), 0, header)
    except RecordsError:
        return 0
    return header.record_count


class _Writer:
    """One new segment in its temporary files."""

    def __init__(self, disk: Disk, job: CleaningJob, base_offset: int) -> None:
        self._disk = disk
        self._job = job
        self._base_offset = base_offset
        self._log_path = job.temporary(base_offset, names.LOG)
        self._log = disk.open(self._log_path, create=True)
        self._files = [self._log]
        self._offsets = OffsetIndex(base_offset, _INDEX_BYTES_MAX)
        self._times = TimeIndex(base_offset, _INDEX_BYTES_MAX)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._since_entry = 0
        self.largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self.size = 0

    def add(self, data: bytes) -> None:
        """Write a batch. Raises: OSError, CleaningFailed."""
        header = parse_header(data)
        self._note(header)
        self._pending.append(data)
        self._pending_bytes += len(data)
        self.size += len(data)
        if self._pending_bytes >= self._job.write_bytes:
            self._write_pending()

    def _note(self, header: BatchHeader) -> None:
        if self.size + header.size_in_bytes > RELATIVE_OFFSET_MAX:
            raise CleaningFailed(f"the segment at {self._base_offset} would exceed 2 GiB")
        self.largest = larger(self.largest, header)
        if self._since_entry > self._job.index_interval_bytes:
            self._offsets.append(header.last_offset, self.size)
            self._times.maybe_append(*self.largest)
            self._since_entry = 0
        self._since_entry += header.size_in_bytes

    def _write_pending(self) -> None:
        self._log.append(self._pending)
        self._pending = []
        self._pending_bytes = 0

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int) -> tuple[str, ...]:
        """Write the rest and make all durable; return which files there are. Raises: OSError.

        `modified_ms`: when the log file's records were appended.
        """
        self._write_pending()
        self._disk.set_modified_ms(self._log_path, modified_ms)
        self._times.maybe_append(*self.largest)
        self._offsets.write(self._create(names.OFFSET_INDEX))
        self._times.write(self._create(names.TIME_INDEX))
        suffixes = [names.LOG, names.OFFSET_INDEX, names.TIME_INDEX]
        if aborted:
            entries = sorted(aborted, key=lambda entry: entry.last_offset)
            self._create(names.TRANSACTION_INDEX).append([encode_entry(entry) for entry in entries])
            suffixes.append(names.TRANSACTION_INDEX)
        for file in self._files:
            file.sync()
        self._disk.sync_dir(self._job.directory)
        return tuple(suffixes)

    def _create(self, suffix: str) -> File:
        file = self._disk.open(self._job.temporary(self._base_offset, suffix), create=True)
        self._files.append(file)
        return file

    def close(self) -> None:
        for file in self._files:
            file.close()
