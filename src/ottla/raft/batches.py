"""The metadata log's batches: records without keys, several to a batch, never compressed.

Source: BatchBuilder, RecordsIterator of Kafka's raft module; KIP-631.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ottla.raft.values import BatchSpan
from ottla.records.batch import HEADER_SIZE, BatchHeader, check_crc, iter_headers
from ottla.records.builder import encode_batch
from ottla.records.errors import CorruptBatch
from ottla.records.record import Record, read_records

Buffer = bytes | bytearray | memoryview


RECORD_OVERHEAD_BYTES = 8
"""What a record takes besides its value, more or less: lengths, deltas, key and headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """One batch, read. Of a data batch, `values`; of a control batch, `control`."""

    base_offset: int
    next_offset: int
    epoch: int
    timestamp: int
    size_bytes: int
    values: tuple[bytes, ...] = ()
    control: tuple[Record, ...] = ()

    @property
    def is_control(self) -> bool:
        """Tell whether the batch has control records, which only raft uses."""
        return bool(self.control)


def records_batch(
    values: Iterable[bytes], *, base_offset: int, epoch: int, timestamp: int
) -> bytes:
    """Return one batch of these records."""
    return encode_batch(
        [(None, value, (), timestamp) for value in values],
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def batch_bytes(values: Sequence[bytes]) -> int:
    """Return the size that a batch of these records will have, give or take a few bytes each."""
    return HEADER_SIZE + sum(map(len, values)) + RECORD_OVERHEAD_BYTES * len(values)


def read_spans(data: Buffer) -> tuple[tuple[BatchSpan, ...], int]:
    """Return the whole batches in `data`, checked, and how many bytes they take.

    A batch cut off by the end is left out, as a fetch's size limit may cut one.
    Raises: CorruptBatch.
    """
    spans: list[BatchSpan] = []
    size = 0
    for position, header in iter_headers(data, allow_partial=True):
        check_crc(data, position, header)
        spans.append(
            BatchSpan(header.base_offset, header.next_offset, header.partition_leader_epoch)
        )
        size = position + header.size_in_bytes
    return tuple(spans), size


def read_batches(data: Buffer) -> Iterator[LogBatch]:
    """Yield every batch in `data`, which must hold whole ones. Raises: CorruptBatch."""
    for position, header in iter_headers(data):
        check_crc(data, position, header)
        yield _batch(data, position, header)


def _batch(data: Buffer, position: int, header: BatchHeader) -> LogBatch:
    records = tuple(read_records(data, position, header))
    if header.is_control:
        values: tuple[bytes, ...] = ()
    else:
        values = tuple(_value(record) for record in records)
    return LogBatch(
        base_offset=header.base_offset,
        next_offset=header.next_offset,
        epoch=header.partition_leader_epoch,
        timestamp=header.max_timestamp,
        size_bytes=header.size_in_bytes,
        values=values,
        control=records if header.is_control else (),
    )


def _value(record: Record) -> bytes:
    if record.value is None:
        raise CorruptBatch(f"the metadata record at offset {record.offset} has no value")
    return record.value
