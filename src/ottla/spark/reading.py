"""A split that brokers have: every offset exactly once, as Arrow batches; gaps are reported.

While one response is decoded, a thread fetches the next. Order: offsets ascend.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ottla.base.errors import Error
from ottla.client.cluster import ClusterClient
from ottla.records.batch import iter_headers
from ottla.records.columnar import decode
from ottla.records.errors import CorruptBatch
from ottla.spark import lookup
from ottla.spark.errors import ClusterError, DataLossError
from ottla.spark.fetching import Fetched, OutOfRange, PartitionFetcher
from ottla.spark.losses import deleted, missing_records, report_losses, shorter
from ottla.spark.options import ReadOptions
from ottla.spark.schema import arrow_schema, record_columns
from ottla.spark.splits import Split

FETCH_BYTES_MIN: Final = 64 * 1024
"""Sizes of splits are estimates."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of a split that fetched batches cover.

    Fields: `size`: bytes of the batches with offsets of the split.
            `next_offset`: the end of the covered offsets; the split's end at most.
            `epoch`: leader epoch of the last batch.
            `gaps`: offsets [from, to) for which a topic that is not compacted has no records.
    """

    size: int
    next_offset: int
    epoch: int
    gaps: tuple[tuple[int, int], ...]


def measure(
    records: memoryview,
    offset: int,
    end: int,
    *,
    epoch: int,
    contiguous: bool,
    may_precede: bool = False,
) -> Coverage:
    """Check the headers of the batches that were fetched for [offset, end).

    `may_precede`: they may also end before `offset`.
    Raises: CorruptBatch where offsets or leader epochs decrease, or the batches end before
            `offset`.
    """
    gaps: list[tuple[int, int]] = []
    size = previous = 0
    reached = offset
    for position, header in iter_headers(records, allow_partial=True):
        if header.base_offset >= end:
            reached = _note(gaps, reached, end, contiguous)
            break
        if header.partition_leader_epoch < epoch:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} has the leader epoch "
                f"{header.partition_leader_epoch}, the one before it {epoch}"
            )
        if header.base_offset < previous:
            raise CorruptBatch(f"offset {header.base_offset} comes after {previous - 1}")
        epoch = header.partition_leader_epoch
        previous = header.next_offset
        size = position + header.size_in_bytes
        if header.next_offset <= reached:
            continue
        if header.base_offset > reached:
            reached = _note(gaps, reached, header.base_offset, contiguous)
        if contiguous and header.record_count <= header.last_offset_delta:
            gaps.append((reached, min(header.next_offset, end)))
        reached = min(header.next_offset, end)
        if reached == end:
            break
    if reached == offset and not may_precede:
        raise CorruptBatch(f"batches were fetched for offset {offset}, and end at {previous - 1}")
    return Coverage(size, reached, epoch, tuple(gaps))


def _note(gaps: list[tuple[int, int]], start: int, end: int, contiguous: bool) -> int:
    if contiguous:
        gaps.append((start, end))
    return end


def read_split(split: Split, options: ReadOptions, columns: tuple[str, ...]) -> Iterator[Any]:
    """Yield the records of a split as batches of `columns`.

    Raises: DataLossError where records are gone, unless `failOnDataLoss` is false; ClusterError;
            CorruptBatch.
    """
    constants = ConstantColumns(split, columns)
    offset, epoch = split.start, -1
    with ClusterClient(options.brokers) as client, ThreadPoolExecutor(1) as pool:
        fetcher = PartitionFetcher(
            client,
            split,
            read_committed=options.read_committed,
            fetch_bytes=_fetch_bytes(split, options),
            timeout_ms=options.poll_timeout_ms,
        )
        pending = pool.submit(fetcher.fetch, offset)
        while offset < split.end:
            try:
                fetched = pending.result()
            except (OutOfRange, ClusterError) as error:
                offset = _skip_lost(client, split, offset, error, options)
                if offset < split.end:
                    pending = pool.submit(fetcher.fetch, offset)
                continue
            coverage = measure(
                fetched.records, offset, split.end, epoch=epoch, contiguous=split.contiguous
            )
            if coverage.next_offset < split.end:
                pending = pool.submit(fetcher.fetch, coverage.next_offset)
            report_losses(missing_records(split, coverage.gaps), fail=options.fail_on_data_loss)
            for batch in _decode(fetched, coverage, offset, options, columns):
                yield constants.add_to(batch)
            offset, epoch = coverage.next_offset, coverage.epoch


def _fetch_bytes(split: Split, options: ReadOptions) -> int:
    """Return the size of a fetch: brokers send that much, also of what is behind the split."""
    if split.is_open or not split.size_bytes:
        return options.fetch_bytes
    return min(options.fetch_bytes, max(FETCH_BYTES_MIN, 2 * split.size_bytes))


def _decode(
    fetched: Fetched,
    coverage: Coverage,
    offset: int,
    options: ReadOptions,
    columns: tuple[str, ...],
) -> Iterator[Any]:
    return decode(
        fetched.records[: coverage.size],
        lo=offset,
        hi=coverage.next_offset,
        columns=record_columns(columns),
        aborted=fetched.aborted,
        verify_crc=options.verify_crc,
    )


def _skip_lost(
    client: ClusterClient, split: Split, offset: int, error: Exception, options: ReadOptions
) -> int:
    """Return the offset to continue at after a failed fetch; raise unless records are lost."""
    key = (split.topic, split.partition)
    subject = f"{split.topic}-{split.partition}"
    if isinstance(error, ClusterError):
        if error.code not in (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION):
            raise error
        report_losses([deleted(split, offset)], fail=options.fail_on_data_loss)
        return split.end
    earliest, latest = lookup.edges_of(client, [key], read_committed=options.read_committed)[key]
    if offset < earliest:
        reached = min(earliest, split.end)
        loss = f"{subject}: offsets {offset} to {reached - 1} are no longer available"
    elif offset >= latest:
        reached = split.end
        loss = shorter(split, latest, offset)
    else:
        raise DataLossError(f"{subject}: offset {offset} is refused, yet within the log") from error
    report_losses([loss], fail=options.fail_on_data_loss)
    return reached


class ConstantColumns:
    """Adds the columns topic and partition: one value for all rows."""

    def __init__(self, split: Split, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._scalars: dict[str, Any] = {
            "topic": pa.scalar(split.topic, pa.string()),
            "partition": pa.scalar(split.partition, pa.int32()),
        }
        self._constant: dict[str, Any] = {}

    def add_to(self, batch: Any) -> Any:
        """Return the batch with the columns of the schema, in its order."""
        arrays = [
            self._repeat(name, batch.num_rows) if name in self._scalars else batch.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeat(self, name: str, count: int) -> Any:
        constant = self._constant.get(name)
        if constant is None or len(constant) < count:
            constant = self._constant[name] = pa.repeat(self._scalars[name], count)
        return constant.slice(0, count)
