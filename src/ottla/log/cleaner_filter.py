"""What stays of a batch when its log is cleaned.

| batch or record                                     | what happens                           |
|-----------------------------------------------------|----------------------------------------|
| all records stay                                    | its bytes are copied                   |
| some stay                                           | rewritten: same offsets, fewer records |
| none stays                                          | dropped                                |
| none stays; the last of an active producer          | kept empty: its sequence counts        |
| none stays; the last of its group of segments       | kept empty: it says where the group ends |
| record whose key is known at a higher offset        | goes                                   |
| record without a key                                | goes                                   |
| tombstone, first time it is met                     | stays; its batch gets a delete horizon |
| tombstone behind its batch's delete horizon         | goes                                   |
| data of an aborted transaction                      | goes                                   |
| marker of which nothing else is left                | as a tombstone                         |
| from the cleaning's end on                          | copied as it is                        |
| records that do not decode, under a right checksum  | copied as they are, and said so        |

Source: Cleaner.{cleanInto, shouldRetainRecord}, MemoryRecords.filterTo; KIP-534.
"""

from collections.abc import Mapping

from ottla.log.cleaner_job import UNREADABLE_NAMED_MAX, LastOfProducer
from ottla.log.cleaner_map import OffsetMap
from ottla.log.cleaner_transactions import CleanedTransactions
from ottla.log.scan import Batch
from ottla.records.batch import BatchHeader
from ottla.records.builder import encode_retained
from ottla.records.compression import Codec
from ottla.records.errors import RecordsError
from ottla.records.record import Record, read_records


class BatchFilter:
    """The rules above for one cleaning; shown every batch in order, once."""

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
        """Return the bytes that take the batch's place; None = it goes.

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
        horizon = None
        if waits and not header.has_delete_horizon:
            horizon = self._now_ms + self._delete_retention_ms
        elif len(kept) == header.record_count:
            return _bytes_of(batch)
        level = self._levels.get(header.compression)
        return encode_retained(header, kept, level=level, delete_horizon_ms=horizon)

    def _unreadable(self, batch: Batch) -> bytes:
        """Keep a batch that was stored before records were checked; its keys are not known."""
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

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        # The base timestamp is the horizon where the header says that it has one.
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
