"""Reads within one remote segment: batches from an offset, a record from a timestamp, aborted
transactions.

A lookup takes the position from the segment's index, scans the headers from there, and reads whole
batches. Everything that comes from the store is checked: structure, offsets, checksums.

Source: Kafka's RemoteLogManager.read, lookupTimestamp, collectAbortedTransactions.
"""

from array import array
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.ports import Buffer
from ottla.broker.produce.batch_work import BatchWork
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.reads.chunk_cache import ChunkCache
from ottla.broker.remote.reads.index_cache import IndexCache, IndexContent
from ottla.broker.remote.reads.range_reads import StoreFailed
from ottla.broker.remote.reads.turn_budget import UNITS_PER_STEP, TurnBudget
from ottla.log.indexes import offset_index, time_index
from ottla.log.indexes.timestamp_search import TimestampMatch
from ottla.log.indexes.transaction_index import AbortedTransaction, decode_entries
from ottla.log.validation import api_error
from ottla.records.batch import HEADER_SIZE, BatchHeader, check_crc, iter_headers, parse_header
from ottla.records.errors import CorruptBatch, RecordsError
from ottla.records.record import find_timestamp
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.read_plan import ReadSlice
from ottla.tiered.segment_metadata import SegmentMetadata


class Batches(NamedTuple):
    """Whole batches.

    Fields: `next_offset`: behind the last one; `position`: of that in the object;
            `is_transactional`: some of the records belong to transactions; `ends`: where in `data`
            each batch ends, so that a part of them is found without their headers.
    """

    data: Buffer
    next_offset: int
    position: int
    is_transactional: bool
    ends: "array[int]"


class _Found(NamedTuple):
    position: int
    header: BatchHeader


class SegmentReader:
    """Reads segments through the two caches."""

    def __init__(self, chunks: ChunkCache, indexes: IndexCache, budget: TurnBudget) -> None:
        self.chunks = chunks
        self.indexes = indexes
        self._budget = budget

    def read(
        self,
        piece: ReadSlice,
        *,
        max_bytes: int,
        at_least_one: bool,
        reserve: Callable[[int], bool],
    ) -> Dialogue[Batches | None]:
        """Return batches from the one with the slice's first offset on; None = there are none.

        At most `max_bytes`, but for a first batch that is larger: it is returned whole with
        `at_least_one`, if `reserve` grants its bytes; else nothing is. Batches that reach the end
        of the slice are left out, and so are leading ones that compaction has emptied.

        Raises: StoreFailed; RecordsError where the segment is damaged.
        """
        segment, offset, end_offset = piece.segment, piece.start_offset, piece.end_offset
        position = yield from self._indexed_position(segment, offset)
        found = yield from self._first_batch(piece, position)
        if found is None:
            return None
        position, first = found
        wanted = max_bytes
        if first.size_in_bytes > max_bytes:
            if not at_least_one or not reserve(first.size_in_bytes):
                return Batches(b"", offset, position, False, array("I"))
            wanted = first.size_in_bytes
        end = min(position + wanted, segment.size_bytes)
        name = object_name(segment, ObjectKind.LOG)
        data = yield from self.chunks.read(name, segment.size_bytes, position, end)
        if len(data) < end - position:
            raise CorruptBatch(f"{name} ends at {position + len(data)}, before {end}")
        return (yield from self._whole_batches(data, offset, end_offset, position))

    def read_ahead(self, segment: SegmentMetadata, position: int) -> None:
        """Read the chunk behind `position`: its reader reads on."""
        self.chunks.read_ahead(object_name(segment, ObjectKind.LOG), segment.size_bytes, position)

    def forget(self, segment: SegmentMetadata) -> None:
        """Drop what the caches have of a segment, which proved to be wrong."""
        self.chunks.forget(object_name(segment, ObjectKind.LOG), segment.size_bytes)
        for kind in (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TXN_INDEX):
            self.indexes.kept.drop(object_name(segment, kind))

    def aborted(self, segment: SegmentMetadata) -> Dialogue[list[AbortedTransaction]]:
        """Return the aborted transactions whose markers are in the segment.

        Raises: StoreFailed, also where only the index is lost: without it aborted records would
                count as committed. RecordsError.
        """
        if segment.txn_index_empty:
            return []
        name = object_name(segment, ObjectKind.TXN_INDEX)
        try:
            data = yield from self.indexes.read(name)
        except StoreFailed as failed:
            if not failed.is_missing or not segment.may_lack_txn_index:
                raise
            # Either there was none to copy, or the segment is gone; then its log is, too.
            yield from self.chunks.read(
                object_name(segment, ObjectKind.LOG), segment.size_bytes, 0, 1
            )
            self.indexes.put_empty(name)
            return []
        try:
            return decode_entries(bytes(data), segment.start_offset)
        except ValueError as error:
            self.indexes.kept.drop(name)
            raise CorruptBatch(f"{name}: {error}") from None

    def find_timestamp(
        self, piece: ReadSlice, timestamp: int, work: BatchWork, limit: int
    ) -> Dialogue[TimestampMatch | ApiError | OSError | None]:
        """Return the first record of the slice with this timestamp or a later one.

        `limit`: bytes that a batch may decompress to, in a worker of `work`.
        Raises: StoreFailed, RecordsError.
        """
        segment, offset, end_offset = piece.segment, piece.start_offset, piece.end_offset
        times = yield from self.indexes.read(object_name(segment, ObjectKind.TIME_INDEX))
        entry = time_index.search(IndexContent(times), segment.start_offset, timestamp)
        position = yield from self._indexed_position(segment, max(entry.offset, offset))
        name, size = object_name(segment, ObjectKind.LOG), segment.size_bytes
        while position < size:
            yield from self._budget.wait()
            for found in (yield from self._headers(segment, position, end_offset)):
                position, header = found
                if header.last_offset >= end_offset:
                    return None
                if header.max_timestamp >= timestamp and header.last_offset >= offset:
                    end = position + header.size_in_bytes
                    data = yield from self.chunks.read(name, size, position, end)
                    check_crc(data, 0, header)
                    search = _search(work, data, header, timestamp, offset, limit)
                    yield search
                    if search.value is not None:
                        return search.value
                position += header.size_in_bytes
        return None

    def _indexed_position(self, segment: SegmentMetadata, offset: int) -> Dialogue[int]:
        name = object_name(segment, ObjectKind.OFFSET_INDEX)
        index = IndexContent((yield from self.indexes.read(name)))
        position = offset_index.search(index, segment.start_offset, offset).position
        return position if 0 <= position < segment.size_bytes else 0

    def _first_batch(self, piece: ReadSlice, position: int) -> Dialogue[_Found | None]:
        """Return the first batch from `position` on that reaches the slice and has records."""
        segment, offset, end_offset = piece.segment, piece.start_offset, piece.end_offset
        is_first = True
        while position < segment.size_bytes:
            yield from self._budget.wait()
            for found in (yield from self._headers(segment, position, offset)):
                header = found.header
                if is_first and header.base_offset > offset and position:
                    raise CorruptBatch(f"the index leads {offset} to {header.base_offset}")
                is_first = False
                if header.last_offset >= end_offset:
                    return None
                if header.last_offset >= offset and header.size_in_bytes > HEADER_SIZE:
                    return found
            position = found.position + header.size_in_bytes
        return None

    def _headers(
        self, segment: SegmentMetadata, position: int, until: int
    ) -> Dialogue[list[_Found]]:
        """Return the batches that begin in the next bytes: at least one, or it is an error.

        The one that reaches the offset `until` is the last one.
        """
        size = segment.size_bytes
        end = min(position + self.chunks.scan_bytes, size)
        buffer = yield from self.chunks.read(
            object_name(segment, ObjectKind.LOG), size, position, end
        )
        found: list[_Found] = []
        at = 0
        while at + HEADER_SIZE <= len(buffer) or not found:
            header = parse_header(buffer, at, whole=False)
            if position + at + header.size_in_bytes > size:
                raise CorruptBatch(f"the batch at position {position + at} is cut at {size}")
            if not segment.start_offset <= header.base_offset <= segment.end_offset:
                raise CorruptBatch(f"offset {header.base_offset} is not of this segment")
            found.append(_Found(position + at, header))
            at += header.size_in_bytes
            if header.last_offset >= until:
                break
        self._budget.spend(len(found), len(buffer))
        return found

    def _whole_batches(
        self, data: bytes, offset: int, end_offset: int, position: int
    ) -> Dialogue[Batches]:
        """Return the whole batches at the start of `data` that end below `end_offset`.

        Each is checked; many of them over several turns.
        """
        ends, next_offset, is_transactional = array("I"), offset, False
        size = checked = 0
        yield from self._budget.wait()
        self._budget.spend(0, len(data))
        view = memoryview(data)
        for at, header in iter_headers(view, allow_partial=True):
            if header.last_offset >= end_offset:
                break
            if header.last_offset < next_offset:
                raise CorruptBatch(f"offset {header.last_offset} follows {next_offset - 1}")
            check_crc(view, at, header)
            size = at + header.size_in_bytes
            ends.append(size)
            next_offset = header.next_offset
            is_transactional = is_transactional or header.is_transactional
            if len(ends) - checked == UNITS_PER_STEP:
                checked = len(ends)
                self._budget.spend(UNITS_PER_STEP, 0)
                yield from self._budget.wait()
        self._budget.spend(len(ends) - checked, 0)
        # Not copied once more: the batch that is cut off stays in memory for as long.
        whole = data if size == len(data) else view[:size]
        return Batches(whole, next_offset, position + size, is_transactional, ends)


def _search(
    work: BatchWork, data: bytes, header: BatchHeader, timestamp: int, offset: int, limit: int
) -> Pending[TimestampMatch | ApiError | OSError | None]:
    def run() -> TimestampMatch | None:
        try:
            found = find_timestamp(data, 0, header, timestamp, offset, limit=limit)
        except RecordsError as error:
            raise api_error(error) from None
        if found is None:
            return None
        return TimestampMatch(*found, header.partition_leader_epoch)

    return work.submit(run, expands_to=limit)
