"""Segments before the first one of a log: the local files of records that were remote only.

A replica's local log may begin later than its leader's. When the remote segments are given up the
records between exist on the leader alone, although they are not expired: the replica has to copy
them before it may count. They are written, batch by batch, into files that a start removes
(`.tmp`; not `.cleaned`, by which it tells an unfinished swap of cleaned segments), and take effect
in this order (`LogRetention.prepend_segments`):

1. The files are durable. They get their names, and are in the log's list of segments, below the
   local log start: a start removes them, as segments that retention has deleted.
2. Their names are durable. The local log start moves back to the first of them.
3. The checkpoint of the local log starts is durable. Not before may the replica count: a start with
   the older one would begin behind these records again.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.base.ids import NO_EPOCH
from ottla.base.ports import Disk, File
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.epoch_cache import EpochEntry
from ottla.log.indexes.offset_index import OffsetIndex
from ottla.log.indexes.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset, larger
from ottla.log.indexes.transaction_index import AbortedTransaction, encode_entry
from ottla.log.producers.producer_state import ProducerState
from ottla.log.recovery.producer_replay import replay_batch
from ottla.records.batch import HEADER_SIZE, BatchHeader, check_crc, parse_header
from ottla.records.errors import CorruptBatch

SUFFIXES: Final = (
    names.LOG,
    names.OFFSET_INDEX,
    names.TIME_INDEX,
    names.TRANSACTION_INDEX,
)


class EarlierSegment(NamedTuple):
    """A segment whose files are durable, under temporary names. `suffixes`: of the files."""

    base_offset: int
    size: int
    max_timestamp: TimestampOffset
    suffixes: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Open:
    """The segment that is being written."""

    base_offset: int
    file: File
    offsets: OffsetIndex
    times: TimeIndex
    largest: TimestampOffset
    size: int = 0
    entry_at: int = 0
    aborted: list[AbortedTransaction] = field(default_factory=list)


class EarlierSegments:
    """Writes the records from one offset to before another one. Blocks: for workers, one call at a
    time.

    Fields: `next_offset`: of the next record; `end`: where the log's own segments begin. `epochs`:
            the log's leader epochs, which the records must have.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log_name: str,
        config: LogConfig,
        *,
        start: int,
        end: int,
        epochs: Sequence[EpochEntry],
    ) -> None:
        assert start < end
        self._disk = disk
        self._directory = directory
        self._config = config
        self._epochs = tuple(epochs)
        self._producers = ProducerState(log_name)
        self._open: _Open | None = None
        self._done: list[EarlierSegment] = []
        self._start = start
        self.next_offset = start
        self.end = end

    @property
    def is_complete(self) -> bool:
        """Whether all records are written."""
        return self.next_offset >= self.end

    def write(self, data: bytes) -> None:
        """Write the whole batches of `data` that are before the end.

        Raises: OSError; RecordsError for batches that do not continue what is there.
        """
        at, count = 0, 0
        while at + HEADER_SIZE <= len(data) and not self.is_complete:
            header = parse_header(data, at, whole=False)
            size = header.size_in_bytes
            if at + size > len(data):
                break
            check_crc(data, at, header)
            self._check(header)
            self._append(header, data, at)
            at, count = at + size, count + 1
        if not count:
            raise CorruptBatch(f"no whole batch from offset {self.next_offset} on")

    def finish(self) -> list[EarlierSegment]:
        """Make all segments durable, under temporary names; return them. Raises: OSError."""
        assert self.is_complete
        self._seal()
        return self._done

    def abandon(self) -> None:
        """Remove all files, as far as that is possible; a start removes the rest."""
        bases = [each.base_offset for each in self._done]
        if self._open is not None:
            self._open.file.close()
            bases.append(self._open.base_offset)
        for base in bases:
            for suffix in SUFFIXES:
                try:
                    self._disk.remove(self._path(base, suffix))
                except OSError:
                    return

    def _check(self, header: BatchHeader) -> None:
        is_first = self.next_offset == self._start
        is_next = header.base_offset >= self.next_offset
        # The log start may lie within a batch, and the leader sends the whole of it.
        if not is_next and not (is_first and header.last_offset >= self._start):
            raise CorruptBatch(f"offset {header.base_offset} follows {self.next_offset - 1}")
        if header.last_offset >= self.end:
            raise CorruptBatch(f"a batch up to {header.last_offset} overlaps offset {self.end}")
        expected = self._epoch_of(max(header.base_offset, self._start))
        if header.partition_leader_epoch != expected:
            raise CorruptBatch(
                f"offset {header.base_offset} has leader epoch {header.partition_leader_epoch},"
                f" and {expected} here"
            )

    def _epoch_of(self, offset: int) -> int:
        found = bisect_right(self._epochs, offset, key=lambda entry: entry.start_offset)
        return self._epochs[found - 1].epoch if found else NO_EPOCH

    def _append(self, header: BatchHeader, data: bytes, at: int) -> None:
        size = header.size_in_bytes
        segment = self._open
        if segment is not None and segment.size + size > self._config.segment_bytes:
            self._seal()
            segment = None
        if segment is None:
            segment = self._open = self._begin(header.base_offset)
        segment.file.append([data[at : at + size]])
        segment.largest = larger(segment.largest, header)
        if segment.size - segment.entry_at > self._config.index_interval_bytes:
            segment.offsets.append(header.last_offset, segment.size)
            segment.times.maybe_append(*segment.largest)
            segment.entry_at = segment.size
        if header.producer_id >= 0:
            aborted = replay_batch(self._producers, header, data[at : at + size], 0)
            if aborted is not None:
                segment.aborted.append(aborted)
        segment.size += size
        self.next_offset = header.next_offset

    def _begin(self, base: int) -> _Open:
        file = self._disk.open(self._path(base, names.LOG), create=True)
        file.truncate(0)
        size_max = self._config.segment_index_bytes
        return _Open(
            base_offset=base,
            file=file,
            offsets=OffsetIndex(base, size_max),
            times=TimeIndex(base, size_max),
            largest=TimestampOffset(NO_TIMESTAMP, base),
        )

    def _seal(self) -> None:
        segment = self._open
        assert segment is not None
        base = segment.base_offset
        segment.times.maybe_append(*segment.largest)
        segment.file.sync()
        segment.file.close()
        suffixes = [names.LOG, names.OFFSET_INDEX, names.TIME_INDEX]
        self._write(base, names.OFFSET_INDEX, segment.offsets.write)
        self._write(base, names.TIME_INDEX, segment.times.write)
        if segment.aborted:
            suffixes.append(names.TRANSACTION_INDEX)
            entries = [encode_entry(each) for each in segment.aborted]
            self._write(base, names.TRANSACTION_INDEX, lambda file: file.append(entries))
        self._open = None
        self._done.append(EarlierSegment(base, segment.size, segment.largest, tuple(suffixes)))

    def _write(self, base: int, suffix: str, write: Callable[[File], object]) -> None:
        file = self._disk.open(self._path(base, suffix), create=True)
        try:
            file.truncate(0)
            write(file)
            file.sync()
        finally:
            file.close()

    def _path(self, base: int, suffix: str) -> str:
        return f"{self._directory}/{names.segment_name(base, suffix)}{names.TEMPORARY}"
