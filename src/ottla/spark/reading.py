"""One task: every offset of its splits exactly once, as Arrow batches; gaps are reported.

While one response is decoded, a thread fetches the next. Order: offsets ascend.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.offsets import LATEST
from ottla.records.batch import iter_headers
from ottla.records.columnar import decode
from ottla.records.errors import CorruptBatch
from ottla.spark import lookup
from ottla.spark.cluster_options import retried
from ottla.spark.errors import ClusterError, DataLossError
from ottla.spark.fetching import Fetched, OutOfRange, PartitionFetcher
from ottla.spark.options import ReadOptions
from ottla.spark.planner import Split, Task, report_losses
from ottla.spark.schema import arrow_schema, record_columns


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
    records: memoryview, offset: int, end: int, *, epoch: int, contiguous: bool
) -> Coverage:
    """Check the headers of the batches that were fetched for [offset, end).

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
    if reached == offset:
        raise CorruptBatch(f"batches were fetched for offset {offset}, and end at {previous - 1}")
    return Coverage(size, reached, epoch, tuple(gaps))


def _note(gaps: list[tuple[int, int]], start: int, end: int, contiguous: bool) -> int:
    if contiguous:
        gaps.append((start, end))
    return end


def read_task(task: Task, options: ReadOptions, columns: tuple[str, ...]) -> Iterator[Any]:
    """Yield the records of a task's splits; of open ones up to the latest readable offset.

    Raises: as `read_split`.
    """
    for split in _ended(task.splits, options):
        if split.start < split.end:
            yield from read_split(split, options, columns)


def _ended(splits: tuple[Split, ...], options: ReadOptions) -> list[Split]:
    """Return the splits with the ends that open ones have now.

    Raises: DataLossError where a log was deleted, or is shorter than when the query was planned,
            unless `failOnDataLoss` is false; ClusterError.
    """
    names = {each.topic for each in splits if each.is_open}
    if not names:
        return list(splits)
    ended: list[Split] = []
    losses: list[str] = []
    with ClusterClient(options.cluster) as client:
        topics = retried(
            client, "looking up topics", lambda: client.topics(sorted(names), skip_unknown=True)
        )
        ids = {each.name or "": each.topic_id for each in topics}
        there = [each for each in splits if each.is_open and _is_same(each, ids.get(each.topic))]
        latest = lookup.offsets_at(
            client,
            {(each.topic, each.partition): LATEST for each in there},
            read_committed=options.read_committed,
            attempts_min=1 + options.offset_retries,
            backoff_ms=options.offset_retry_ms,
        )
    for split in splits:
        key = split.topic, split.partition
        if split in there:
            end = latest[key] or 0
            if end < split.end:
                losses.append(_shorter(split, end))
            ended.append(replace(split, end=end))
        elif split.is_open and split.start == split.end:
            losses.append(_deleted(split, split.start))
        else:  # Has an end already, or was deleted: then reading it fails.
            ended.append(split)
    report_losses(losses, fail=options.fail_on_data_loss)
    return ended


def _is_same(split: Split, topic_id: Uuid | None) -> bool:
    return topic_id is not None and (
        split.topic_id == topic_id or NO_UUID in (split.topic_id, topic_id)
    )


def read_split(split: Split, options: ReadOptions, columns: tuple[str, ...]) -> Iterator[Any]:
    """Yield the records of a split as batches of `columns`.

    Raises: DataLossError where records are gone, unless `failOnDataLoss` is false; ClusterError;
            CorruptBatch.
    """
    constants = _ConstantColumns(split, columns)
    offset, epoch = split.start, -1
    with ClusterClient(options.cluster) as client, ThreadPoolExecutor(1) as pool:
        fetcher = PartitionFetcher(
            client,
            split,
            read_committed=options.read_committed,
            fetch_bytes=options.fetch_bytes,
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
            report_losses(_losses(split, coverage), fail=options.fail_on_data_loss)
            for batch in _decode(fetched, coverage, offset, options, columns):
                yield constants.add_to(batch)
            offset, epoch = coverage.next_offset, coverage.epoch


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


def _losses(split: Split, coverage: Coverage) -> list[str]:
    return [
        f"{split.topic}-{split.partition}: records are missing among offsets {start} to {end - 1} "
        "of a topic that is not compacted (expected where it was compacted in the past)"
        for start, end in coverage.gaps
    ]


def _skip_lost(
    client: ClusterClient, split: Split, offset: int, error: Exception, options: ReadOptions
) -> int:
    """Return the offset to continue at after a failed fetch; raise unless records are lost."""
    key = (split.topic, split.partition)
    subject = f"{split.topic}-{split.partition}"
    if isinstance(error, ClusterError):
        if error.code not in (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION):
            raise error
        report_losses([_deleted(split, offset)], fail=options.fail_on_data_loss)
        return split.end
    earliest, latest = lookup.edges_of(client, [key], read_committed=options.read_committed)[key]
    if offset < earliest:
        reached = min(earliest, split.end)
        loss = f"{subject}: offsets {offset} to {reached - 1} are no longer available"
    elif offset >= latest:
        reached = split.end
        loss = _shorter(split, latest, offset)
    else:
        raise DataLossError(f"{subject}: offset {offset} is refused, yet within the log") from error
    report_losses([loss], fail=options.fail_on_data_loss)
    return reached


def _shorter(split: Split, latest: int, offset: int | None = None) -> str:
    first = latest if offset is None else offset
    return (
        f"{split.topic}-{split.partition}: offsets {first} to {split.end - 1} are lost; "
        f"the log ends at {latest}"
    )


def _deleted(split: Split, offset: int) -> str:
    gone = f"; offsets {offset} to {split.end - 1} of the former one are lost"
    return (
        f"{split.topic}-{split.partition}: the topic was deleted, or deleted and re-created, "
        f"since the query was planned{gone if offset < split.end else ''}"
    )


class _ConstantColumns:
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
