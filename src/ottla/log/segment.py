"""A segment: one file of batches and its three indexes.

The active segment, which is appended to, keeps its indexes in memory; a sealed one reads its index
files. Every `index_interval_bytes` one batch gets an entry in the offset index and, if timestamps
grew, in the time index.

Source: LogSegment.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.base.ports import Buffer, File
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.file_cache import FileCache, Handle, OutOfDescriptors
from ottla.log.indexes import offset_index, time_index
from ottla.log.indexes.offset_index import OffsetIndex, OffsetPosition
from ottla.log.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.log.indexes.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset, larger
from ottla.log.indexes.timestamp_search import TimestampSearch
from ottla.log.indexes.transaction_index import AbortedTransaction, decode_entries, encode_entry
from ottla.log.recovery.scan import scan_batches, scan_headers
from ottla.records.batch import HEADER_SIZE, BatchHeader, parse_header
from ottla.records.errors import CorruptBatch, RecordsError

RECENT_BATCHES_MAX: Final = 128
"""Positions kept beside the index, so that reads at the tail need no scan: 16 bytes each, in every
log that is written to."""


class Found(NamedTuple):
    """Where a batch is: position and size in bytes."""

    position: int
    size: int


class Cut(NamedTuple):
    """Where a truncation cuts a segment's file, and the log's end offset after it."""

    position: int
    end_offset: int


class DamagedSegment(CorruptBatch):
    """A truncation found a damaged batch before its target offset, or the transaction index is
    damaged.

    Fields: `path`, `position`: of the damage; `good_end`: the offset behind the last sound batch
            before it; of the transaction index, the segment's base offset.
    """

    def __init__(self, path: str, cut: Cut, reason: str) -> None:
        super().__init__(f"position {cut.position} of {path}: {reason}")
        self.path = path
        self.position, self.good_end = cut


class Segment:
    """See the module. Made by `new_segment` and by loading a log.

    Fields: `size`: bytes of sound batches; the file may have more after a failed append.
            `unsynced`: the files were written to since the last flush.
    """

    __slots__ = (
        "_aborted",
        "_handles",
        "_indexes_full",
        "_max_timestamp",
        "_offset_index",
        "_recent_lasts",
        "_recent_positions",
        "_since_entry",
        "_time_index",
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp",
        "jitter_ms",
        "log",
        "size",
        "unsynced",
    )

    def __init__(
        self,
        files: FileCache,
        directory: str,
        base_offset: int,
        *,
        size: int,
        created_ms: int,
        offset_index: OffsetIndex | None = None,
        time_index: TimeIndex | None = None,
        max_timestamp: TimestampOffset | None = None,
        aborted: list[AbortedTransaction] | None = None,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.first_timestamp: int | None = None
        self.jitter_ms = 0
        self.unsynced = False
        self._handles = {
            suffix: files.handle(self.path(suffix)) for suffix in names.SEGMENT_SUFFIXES
        }
        self.log: Handle = self._handles[names.LOG]
        self._offset_index = offset_index
        self._time_index = time_index
        self._max_timestamp = max_timestamp
        self._since_entry = 0
        self._indexes_full = self._are_indexes_full()
        self._recent_lasts = array("q")
        self._recent_positions = array("q")
        self._aborted = aborted

    def path(self, suffix: str) -> str:
        """Return the path of a file by its own name."""
        return f"{self.directory}/{names.segment_name(self.base_offset, suffix)}"

    def current_path(self, suffix: str) -> str:
        """Return where a file is now: within a swap its name has one more suffix."""
        return self._handles[suffix].path

    @property
    def is_active(self) -> bool:
        return self._offset_index is not None

    # --- appending -----------------------------------------------------------------------

    def fits(
        self,
        last_offset: int,
        max_timestamp: int,
        size: int,
        config: LogConfig,
        now_ms: int,
        pending: int = 0,
    ) -> bool:
        """Return whether a batch of `size` bytes fits here; otherwise the log must roll first.

        `pending` bytes are to be written before it.
        """
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return False
        before = self.size + pending
        if before == 0:
            # An index may be too small for any entry: one batch always fits, as in Kafka.
            return True
        if before + size > config.segment_bytes or self._indexes_full:
            return False
        # In the records' time where the first batch has one, so that replaying old records
        # produces the same segments again.
        first = self.first_timestamp
        if first is None:
            first = self.first_timestamp = self._read_first_timestamp(max_timestamp)
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return age_ms <= config.segment_ms - self.jitter_ms

    def append(self, data: Sequence[Buffer], headers: Sequence[BatchHeader], interval: int) -> None:
        """Write batches, for which `fits` returned True, at the end.

        Raises: OSError. After any exception `undo_append` takes the segment back.
        """
        self.log.file().append(data)
        for header in headers:
            self._note(
                header.last_offset,
                header.max_timestamp,
                header.size_in_bytes,
                interval,
                is_empty=not header.record_count,
            )

    def append_one(
        self, data: Buffer, last_offset: int, max_timestamp: int, size: int, interval: int
    ) -> None:
        """Do as `append` with one batch: the hot path."""
        self.log.file().append((data,))
        self._note(last_offset, max_timestamp, size, interval)

    def _note(
        self,
        last_offset: int,
        max_timestamp: int,
        size: int,
        interval: int,
        *,
        is_empty: bool = False,
    ) -> None:
        position = self.size
        self.unsynced = True
        lasts = self._recent_lasts
        lasts.append(last_offset)
        self._recent_positions.append(position)
        if len(lasts) > RECENT_BATCHES_MAX:
            del lasts[: RECENT_BATCHES_MAX // 2]
            del self._recent_positions[: RECENT_BATCHES_MAX // 2]
        if position == 0:
            self.first_timestamp = max_timestamp
        if not is_empty and max_timestamp > self.max_timestamp.timestamp:
            self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self._since_entry > interval:
            self._index(last_offset, position)
        self._since_entry += size
        self.size = position + size

    def _index(self, last_offset: int, position: int) -> None:
        offsets, times = self._offset_index, self._time_index
        assert offsets is not None
        assert times is not None
        offsets.append(last_offset, position)
        times.maybe_append(*self.max_timestamp)
        self._since_entry = 0
        self._indexes_full = offsets.is_full or times.is_full

    def undo_append(self, size: int, end_offset: int) -> None:
        """Go back to `size` bytes and the log's `end_offset` after a failed append.

        A failed write leaves bytes in the file alone; noting the batches may fail in the middle.
        Raises: OSError.
        """
        lasts, positions = self._recent_lasts, self._recent_positions
        is_noted = len(lasts) != len(positions) or (bool(positions) and positions[-1] >= size)
        self.size = size
        file = self.log.file()
        if file.size() != size:
            file.truncate(size)
        if is_noted:
            self._forget_from(end_offset)
            self._max_timestamp = self._scan_tail()

    def open_aborted(self) -> None:
        """Open the transaction index, so that `add_aborted` can follow. Raises: OSError."""
        self.aborted()
        self._handles[names.TRANSACTION_INDEX].file(create=True)

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Add an entry to the transaction index. Raises: OSError, DamagedSegment."""
        entries = self.aborted()
        handle = self._handles[names.TRANSACTION_INDEX]
        file = handle.file(create=True)
        file.write_at(len(entries) * len(encode_entry(entry)), encode_entry(entry))
        entries.append(entry)
        self.unsynced = True

    # --- looking up ----------------------------------------------------------------------

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp of a record and the last offset of the first batch that has it."""
        found = self._max_timestamp
        if found is None:
            file = self._index_file(names.TIME_INDEX)
            found = time_index.last_entry(file, self.base_offset)
            self._max_timestamp = found
        return found

    def position_of(self, offset: int) -> Found | None:
        """Return the first batch whose last offset is not below `offset`; None = past the end.

        Raises: OSError, RecordsError.
        """
        lasts = self._recent_lasts
        if lasts and offset > lasts[0]:
            slot = bisect_left(lasts, offset)
            if slot == len(lasts):
                return None
            position = self._recent_positions[slot]
            next_slot = slot + 1
            end = self._recent_positions[next_slot] if next_slot < len(lasts) else self.size
            return Found(position, end - position)
        return self._scan_for(offset)

    def _scan_for(self, offset: int) -> Found | None:
        start = self._index_lookup(offset).position
        if start >= self.size:
            start = 0  # An index ahead of its file, as a crash can leave it.
        for position, header in scan_headers(self.log.file(), start, self.size):
            if header.last_offset >= offset:
                return Found(position, header.size_in_bytes)
        return None

    @property
    def batches_end(self) -> int | None:
        """The offset behind the last batch; None = nothing was appended or truncated here."""
        return self._recent_lasts[-1] + 1 if self._recent_lasts else None

    def first_non_empty(self, position: int, end: int) -> Found | None:
        """Return the first batch from `position` on that compaction has not emptied.

        Raises: OSError, RecordsError.
        """
        for at, header in scan_headers(self.log.file(), position, end):
            if header.size_in_bytes > HEADER_SIZE:
                return Found(at, header.size_in_bytes)
        return None

    def search_timestamp(
        self, timestamp: int, start_offset: int, limit: int, end_offset: int | None = None
    ) -> TimestampSearch:
        """Return a search for the first record from `start_offset` on at `timestamp` or later.

        `limit`: bytes that a batch may decompress to; `end_offset`: of a sealed segment.
        Raises: OSError.
        """
        entry = (
            self._time_index.lookup(timestamp)
            if self._time_index is not None
            else time_index.search(self._index_file(names.TIME_INDEX), self.base_offset, timestamp)
        )
        start = self._index_lookup(max(entry.offset, start_offset)).position
        return TimestampSearch(
            self.log,
            min(start, self.size),
            self.size,
            end_offset=end_offset,
            timestamp=timestamp,
            start_offset=start_offset,
            limit=limit,
        )

    def aborted(self) -> list[AbortedTransaction]:
        """Return the transaction index's entries, not to be changed by the caller.

        Raises: OSError, DamagedSegment.
        """
        if self._aborted is None:
            self._aborted = self._load_aborted()
        return self._aborted

    def _load_aborted(self) -> list[AbortedTransaction]:
        handle = self._handles[names.TRANSACTION_INDEX]
        try:
            file = handle.file()
        except FileNotFoundError:
            return []
        data = _whole(file)
        try:
            return decode_entries(data, self.base_offset)
        except ValueError as error:
            # A start has found it sound, or could not rebuild it: damage of this log, not an I/O
            # error of the whole log directory.
            raise DamagedSegment(handle.path, Cut(0, self.base_offset), str(error)) from None

    def _index_lookup(self, offset: int) -> OffsetPosition:
        if self._offset_index is not None:
            return self._offset_index.lookup(offset)
        file = self._index_file(names.OFFSET_INDEX)
        return offset_index.search(file, self.base_offset, offset)

    def _index_file(self, suffix: str) -> File:
        return self._handles[suffix].file(create=True)

    def _are_indexes_full(self) -> bool:
        offsets, times = self._offset_index, self._time_index
        return offsets is not None and times is not None and (offsets.is_full or times.is_full)

    def first_batch_ms(self) -> int:
        """Return the first batch's largest timestamp; -1 = it has none. Raises: OSError."""
        if self.first_timestamp is None:
            self.first_timestamp = self._read_first_timestamp(NO_TIMESTAMP)
        return self.first_timestamp

    def _read_first_timestamp(self, otherwise: int) -> int:
        if self.size == 0:
            return otherwise  # The timestamp of the batch that is about to be the first.
        try:
            for _, header in scan_headers(self.log.file(), 0, self.size):
                return header.max_timestamp
        except RecordsError:
            pass  # A reader of the batch gets the error.
        return NO_TIMESTAMP

    # --- activate, seal, truncate --------------------------------------------------------

    def activate(self, config: LogConfig) -> None:
        """Load the indexes into memory, to append again. Raises: OSError."""
        if self._offset_index is not None:
            return
        largest = self.max_timestamp
        # One after the other: while readers pin many files, opening one closes the last one opened.
        offsets = _whole(self._index_file(names.OFFSET_INDEX))
        times = _whole(self._index_file(names.TIME_INDEX))
        size_max = config.segment_index_bytes
        try:
            self._offset_index = OffsetIndex.load(offsets, self.base_offset, size_max)
            self._time_index = TimeIndex.load(times, self.base_offset, size_max)
        except ValueError as error:
            self._offset_index = None
            raise OSError(5, f"{error}", self.path("")) from None
        self._max_timestamp = largest
        self._indexes_full = self._are_indexes_full()

    def seal(self) -> None:
        """Write the indexes and drop them from memory. Raises: OSError; it can be retried."""
        self.write_indexes(final=True)
        self._offset_index = None
        self._time_index = None
        self._indexes_full = True  # If no other segment can be created, the next batch rolls again.
        # Where its batches end stays known: without another segment the roll is repeated.
        del self._recent_lasts[:-1], self._recent_positions[:-1]

    def write_indexes(self, *, final: bool = False) -> None:
        """Bring the index files up to date; `final` adds the entry of the largest timestamp."""
        if self._offset_index is None or self._time_index is None:
            return
        if final:
            largest = self.max_timestamp
            self._time_index.maybe_append(largest.timestamp, largest.offset)
        self._offset_index.write(self._index_file(names.OFFSET_INDEX))
        self._time_index.write(self._index_file(names.TIME_INDEX))
        self.unsynced = True

    def cut_at(self, offset: int) -> Cut:
        """Return where `truncate_to` cuts; change nothing.

        If `offset` is within a batch the end is before that batch. If it is between two, as
        compaction leaves them, the end is `offset`, as on the leader. Damage behind the cut is
        ignored; damage before it raises DamagedSegment.

        Raises: OSError, DamagedSegment.
        """
        if offset > self.base_offset:
            self.aborted()  # The entries that stay must be known before anything changes.
        try:
            found = self.position_of(offset)
            if found is None:
                return Cut(self.size, offset)
            header = parse_header(self.log.file().read_at(found.position, HEADER_SIZE), whole=False)
        except RecordsError as error:
            cut = self._sound_before(offset)
            if cut.end_offset < offset:
                raise DamagedSegment(self.path(names.LOG), cut, str(error)) from None
            return cut
        return Cut(found.position, min(offset, header.base_offset))

    def _sound_before(self, offset: int) -> Cut:
        """Return the end of the last sound batch before `offset`, CRC included."""
        indexed = self._index_lookup(offset).position
        file = self.log.file()
        for start in (indexed, 0) if 0 < indexed < self.size else (0,):
            cut = Cut(start, self.base_offset) if start == 0 else None
            try:
                for position, header, _, _ in scan_batches(file, start, self.size):
                    if header.last_offset >= offset:
                        break
                    cut = Cut(position + header.size_in_bytes, header.next_offset)
            except RecordsError:
                pass
            if cut is not None:
                return cut
        raise AssertionError("a segment's start is a cut")

    def truncate_to(self, offset: int) -> int:
        """Remove the batches from the first that reaches `offset` on; return the log's new end,
        see `cut_at`. The segment must be active.

        Raises: OSError, DamagedSegment.
        """
        cut = self.cut_at(offset)
        if cut.position < self.size:
            self.log.file().truncate(cut.position)
            self.size = cut.position
        self._forget_from(offset)
        self._truncate_aborted(offset)
        self.write_indexes()
        self._max_timestamp = self._scan_tail()
        return cut.end_offset

    def _forget_from(self, offset: int) -> None:
        """Forget the batches from `offset` on, which the file has no more."""
        assert self._offset_index is not None
        assert self._time_index is not None
        self._offset_index.truncate_to(offset)
        self._time_index.truncate_to(offset)
        del self._recent_lasts[:], self._recent_positions[:]
        self._since_entry = 0
        self._indexes_full = self._are_indexes_full()
        if self.size == 0:
            self.first_timestamp = None

    def _truncate_aborted(self, offset: int) -> None:
        kept: list[AbortedTransaction] = []
        try:
            entries = self.aborted()
            kept = [entry for entry in entries if entry.last_offset < offset]
            if len(kept) == len(entries):
                return
        except DamagedSegment:
            assert offset <= self.base_offset  # Nothing of the segment is left: see `cut_at`.
        file = self._handles[names.TRANSACTION_INDEX].file()
        file.truncate(sum(len(encode_entry(entry)) for entry in kept))
        self._aborted = kept

    def _scan_tail(self) -> TimestampOffset:
        """Read what follows the last entry of the time index; return the largest timestamp."""
        assert self._time_index is not None
        largest = self._time_index.last
        start = self._index_lookup(largest.offset).position
        lasts, positions = self._recent_lasts, self._recent_positions
        try:
            for position, header in scan_headers(self.log.file(), start, self.size):
                largest = larger(largest, header)
                lasts.append(header.last_offset)
                positions.append(position)
        except RecordsError:
            # A reader of the batch gets the error; the file is cut already.
            del lasts[:], positions[:]
        del lasts[:-RECENT_BATCHES_MAX], positions[:-RECENT_BATCHES_MAX]
        return largest

    # --- files ---------------------------------------------------------------------------

    def pin_files(self) -> list[Handle]:
        """Pin the segment's files that exist, for a flush; the caller unpins. Raises: OSError."""
        pinned: list[Handle] = []
        try:
            for handle in self._handles.values():
                try:
                    handle.pin()
                except FileNotFoundError:
                    continue  # No aborted transactions, or nothing indexed yet.
                pinned.append(handle)
        except Exception:
            for handle in pinned:
                handle.unpin()
            raise
        return pinned

    def moved(self, directory: str, suffix: str = "") -> None:
        """Take over the new path of a renamed directory, or of files with a new suffix."""
        self.directory = directory
        for extension, handle in self._handles.items():
            handle.moved(self.path(extension) + suffix)

    def file_moved(self, suffix: str, path: str) -> None:
        """Take over the new path of one renamed file."""
        self._handles[suffix].moved(path)

    def close(self) -> None:
        """Close the files."""
        for handle in self._handles.values():
            handle.close()


def _whole(file: File) -> bytes:
    return file.read_at(0, file.size())


def new_segment(
    files: FileCache, directory: str, base_offset: int, config: LogConfig, now_ms: int
) -> Segment:
    """Return an active segment with new, empty files. Raises: OSError."""
    segment = Segment(
        files,
        directory,
        base_offset,
        size=0,
        created_ms=now_ms,
        offset_index=OffsetIndex(base_offset, config.segment_index_bytes),
        time_index=TimeIndex(base_offset, config.segment_index_bytes),
        max_timestamp=TimestampOffset(NO_TIMESTAMP, base_offset),
    )
    handles = [segment._handles[each] for each in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX)]
    try:
        for handle in handles:
            file = handle.file(create=True)
            if file.size():
                # Left by an earlier segment of this offset.
                file.truncate(0)
    except OutOfDescriptors:
        # The log goes on without the segment, and its last one may come to end behind this offset.
        for handle in handles:
            handle.close()
            files.disk.remove(handle.path)
        raise
    segment.unsynced = True
    return segment
