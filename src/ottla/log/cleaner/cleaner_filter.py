"""Which records of a batch a cleaning retains.

| batch or record                                     | what happens                           |
|-----------------------------------------------------|----------------------------------------|
| batch, all records retained                         | its bytes are copied                   |
| batch, some retained                                | rewritten: same offsets, fewer records |
| batch, none retained                                | dropped                                |
| the same, last batch of an active producer          | kept empty, for its sequence numbers   |
| the same, last batch of its group of segments       | kept empty, for the group's end offset |
| record whose key has a higher offset in the map     | removed                                |
| record without a key                                | removed                                |
| tombstone, first cleaning                           | retained; its batch gets a delete horizon |
| the same, horizon beyond what a batch can hold      | retained, without a delete horizon     |
| tombstone after its batch's delete horizon          | removed                                |
| data of an aborted transaction                      | removed                                |
| transaction marker without remaining data           | as a tombstone                         |
| above the cleaning's end offset                     | copied as it is                        |
| records that do not decode, though the CRC is right | copied as they are, and reported       |

Source: Cleaner.{cleanInto, shouldRetainRecord}, MemoryRecords.filterTo; KIP-534.
"""

from collections.abc import Mapping, Sequence

from ottla.log.cleaner.cleaner_job import UNREADABLE_NAMED_MAX, LastOfProducer
from ottla.log.cleaner.cleaner_map import OffsetMap
from ottla.log.cleaner.cleaner_transactions import CleanedTransactions
from ottla.log.recovery.scan import Batch
from ottla.records.batch import BatchHeader
from ottla.records.builder import encode_retained
from ottla.records.compression import Codec
from ottla.records.errors import RecordsError
from ottla.records.record import TIMESTAMP_MAX, TIMESTAMP_MIN, Record, read_records


class BatchFilter:
    """The rules above for one cleaning; it must get every batch once, in order."""

    def __init__(
        self,
        latest: OffsetMap,
        end_offset: int,
        transactions: CleanedTransactions,
        *,
        producers: Mapping[int, LastOfProducer],
        levels: Mapping[Codec, int],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._latest = latest
        self._end_offset = end_offset
        self._transactions = transactions
        self._producers = producers
        self._levels = levels
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.records_read = 0
        self.records_kept = 0
        self.unreadable: list[int] = []
        self.unreadable_count = 0

    def retained(self, batch: Batch, *, is_last: bool) -> bytes | None:
        """Return the bytes that replace the batch; None = it is dropped.

        Raises: RecordsError where a control batch does not decode.
        """
        header, buffer, start = batch.header, batch.buffer, batch.start
        self.records_read += header.record_count
        may_discard = self._transactions.may_discard(header, buffer, start)
        if header.base_offset >= self._end_offset:
            self.records_kept += header.record_count
            return _bytes_of(batch)
        marker_to_go = may_discard and header.is_control
        if marker_to_go:
            may_discard = header.has_delete_horizon and self._is_past_horizon(header)
        try:
            records = [] if may_discard else read_records(buffer, start, header)
        except RecordsError:
            if header.is_control:
                raise
            return self._unreadable(batch)
        kept = (
            records
            if header.is_control
            else [each for each in records if self._stays(header, each)]
        )
        if not kept:
            if is_last or self._is_last_of_producer(header):
                return encode_retained(header, ()) if header.record_count else _bytes_of(batch)
            return None
        self.records_kept += len(kept)
        waits = marker_to_go or (
            not header.is_control and any(record.value is None for record in kept)
        )
        horizon = self._horizon(kept) if waits and not header.has_delete_horizon else None
        if horizon is None and len(kept) == header.record_count:
            return _bytes_of(batch)
        level = self._levels.get(header.compression)
        return encode_retained(header, kept, level=level, delete_horizon_ms=horizon)

    def _unreadable(self, batch: Batch) -> bytes:
        """Keep a batch whose keys are not known: it was stored before records were checked."""
        self.records_kept += batch.header.record_count
        self.unreadable_count += 1
        if len(self.unreadable) < UNREADABLE_NAMED_MAX:
            self.unreadable.append(batch.header.base_offset)
        return _bytes_of(batch)

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if record.offset >= self._end_offset:
            return True
        if record.key is None or record.offset < self._latest.get(record.key):
            return False
        if record.value is not None or not header.has_delete_horizon:
            return True
        return not self._is_past_horizon(header)

    def _horizon(self, kept: Sequence[Record]) -> int | None:
        """Return the delete horizon of a batch with these records; None = it cannot hold it."""
        horizon = self._now_ms + self._delete_retention_ms
        # The records' timestamps are stored as differences from it.
        oldest = min(record.timestamp for record in kept)
        latest = min(TIMESTAMP_MAX, oldest - TIMESTAMP_MIN)
        return horizon if horizon <= latest else None

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        # With the attribute bit set the base timestamp is the delete horizon.
        return header.base_timestamp <= self._now_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        known = self._producers.get(header.producer_id)
        if known is None or header.producer_id < 0:
            return False
        if known.last_offset >= 0:
            return header.last_offset == known.last_offset
        return header.is_control and header.producer_epoch == known.epoch


def _bytes_of(batch: Batch) -> bytes:
    return batch.buffer[batch.start : batch.start + batch.header.size_in_bytes]
