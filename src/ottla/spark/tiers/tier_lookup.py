"""Requests of planning over tiers: DescribeRemoteLog to brokers, indexes from the object store."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.client.fetch import fetch
from ottla.client.partitions import TopicPartition
from ottla.client.remote_logs import describe_remote_logs
from ottla.records.errors import CorruptBatch
from ottla.spark.cluster_options import retried
from ottla.spark.fetching import MAX_WAIT_MS
from ottla.spark.raw_options import log
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession
from ottla.spark.tiers.tier_planning import (
    AbortedSearch,
    Pairs,
    RemoteSegment,
    Tiers,
    with_own_ranges,
)
from ottla.tiered.object_names import ObjectKind
from ottla.tiered.segment_files import AbortedTransaction, SegmentPositions, decode_entries
from ottla.wire.messages import describe_remote_log as wire

PARTITIONS_PER_REQUEST: Final = 50
"""A response lists the segments of so many partitions at most."""
INDEX_BYTES_MAX: Final = 64 * 1024 * 1024
ONE_BATCH_BYTES: Final = 1


def describe(
    client: ClusterClient, ids: Mapping[TopicPartition, Uuid]
) -> dict[TopicPartition, Tiers]:
    """Return the tiers of partitions, from their leaders; those of a re-created topic are left out.

    Raises: ClusterError.
    """
    found: dict[TopicPartition, Tiers] = {}

    def ask() -> None:
        missing = [key for key in ids if key not in found]
        for node, led in sorted(client.by_leader(missing).items()):
            for begin in range(0, len(led), PARTITIONS_PER_REQUEST):
                _ask(client, node, led[begin : begin + PARTITIONS_PER_REQUEST], found)

    retried(client, "looking up remote segments", ask)
    return {
        key: tiers
        for key, tiers in found.items()
        if not tiers.segments or tiers.segments[0].topic_id == ids[key]
    }


def _ask(
    client: ClusterClient,
    node: int,
    keys: list[TopicPartition],
    found: dict[TopicPartition, Tiers],
) -> None:
    response = describe_remote_logs(client, node, keys, include_segments=True)
    check("", response.error_code, response.error_message)
    failures: list[tuple[str, int, str | None]] = []
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code:
                subject = f"{topic.name}-{row.partition}"
                failures.append((subject, row.error_code, row.error_message))
            else:
                found[topic.name, row.partition] = _tiers(topic, row)
    for subject, code, message in failures:
        check(subject, code, message)


def _tiers(topic: wire.RemoteLogTopic, row: wire.RemoteLogPartition) -> Tiers:
    segments = [
        RemoteSegment(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=row.partition,
            segment_id=each.segment_id,
            start_offset=each.start_offset,
            end_offset=each.end_offset + 1,
            own=(each.start_offset, each.end_offset + 1),
            size_bytes=each.size_bytes,
            max_timestamp_ms=each.max_timestamp_ms,
            txn_index_empty=each.txn_index_empty,
            may_lack_txn_index=each.txn_index_empty or each.tiered_epoch == NO_EPOCH,
        )
        for each in row.segments
    ]
    return Tiers(
        segments=with_own_ranges(segments),
        local_start=row.local_start_offset,
        local_end=row.log_end_offset,
        local_bytes=row.local_bytes,
    )


def aborted_at(client: ClusterClient, key: TopicPartition, topic_id: Uuid, offset: int) -> Pairs:
    """Return the aborted transactions that a broker names for the records from an offset on.

    Those that began before and end there or behind are among them. Raises: ClusterError.
    """
    subject = f"{key[0]}-{key[1]}"

    def ask() -> Pairs:
        data = fetch(
            client,
            key,
            offset,
            topic_id=topic_id,
            max_bytes=ONE_BATCH_BYTES,
            max_wait_ms=MAX_WAIT_MS,
            read_committed=True,
        )
        check(subject, data.error_code)
        if not data.records:
            # It names transactions with records only, and has not read remote ones in time.
            check(subject, Error.REQUEST_TIMED_OUT)
        return tuple(
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        )

    what = f"looking up aborted transactions of {subject} at offset {offset}"
    return retried(client, what, ask)


# Indexes


def read_positions(
    session: StoreSession, segments: Iterable[RemoteSegment]
) -> Iterator[SegmentPositions | None]:
    """Yield the offset index of each segment, a few of them read ahead; None = it cannot be used.

    Without it a task reads its segment from the beginning. Raises: RemoteStorageError.
    """
    named = [(each, each.object(ObjectKind.OFFSET_INDEX)) for each in segments]
    contents = session.try_reads((name, 0, INDEX_BYTES_MAX) for _, name in named)
    for (segment, name), data in zip(named, contents, strict=True):
        if isinstance(data, ObjectMissingError):
            log.warning("%s; the segment is read from its beginning", data)
            yield None
            continue
        try:
            yield SegmentPositions(bytes(data), segment.start_offset, segment.size_bytes)
        except ValueError as error:
            log.warning("%s: %s; the segment is read from its beginning", name, error)
            yield None


def search_aborted(session: StoreSession, search: AbortedSearch) -> None:
    """Read the transaction indexes that a search asks for.

    Raises: ObjectMissingError where a segment is gone, or its index; RemoteStorageError;
            CorruptBatch.
    """
    while segments := search.next_segments():
        for segment, entries in zip(segments, _entries(session, segments), strict=True):
            search.found(segment, entries)


def _entries(
    session: StoreSession, segments: Iterable[RemoteSegment]
) -> Iterator[list[AbortedTransaction]]:
    segments = list(segments)
    names = [each.object(ObjectKind.TXN_INDEX) for each in segments]
    contents = session.try_reads((name, 0, INDEX_BYTES_MAX) for name in names)
    for segment, name, data in zip(segments, names, contents, strict=True):
        if isinstance(data, ObjectMissingError):
            # Either it has none, or the segment is gone; then its records are, too.
            records = segment.object(ObjectKind.LOG)
            if not segment.may_lack_txn_index or not session.exists(records):
                raise data
            yield []
            continue
        try:
            yield decode_entries(bytes(data), segment.start_offset)
        except ValueError as error:
            raise CorruptBatch(f"{name}: {error}") from None
