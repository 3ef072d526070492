"""`__remote_log_metadata` as a job reads it: partitions, and the remote logs in one of them.

A partition is read from its start up to the high watermark that its leader names, and later further
on, so that two looks at it enclose a listing of the store.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.client.fetch import fetch
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.records.batch import BatchHeader, check_crc, iter_headers
from ottla.records.errors import RecordsError
from ottla.records.record import read_records
from ottla.tiered.metadata_records import decode
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import Fence, MetadataRecord, SegmentState, SegmentUpdate

FETCH_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 500
STALLS_MAX: Final = 20
"""Fetches below the high watermark that return nothing."""

Key = tuple[str, Uuid, int]
"""Topic, topic id, partition of what is stored in tiers."""


class MetadataChanged(Exception):
    """The partition lost records while it was read: it has to be read again."""


@dataclass(slots=True)
class UserLog:
    """The remote log of one user partition. `refused`: see `PartitionView`."""

    remote: RemoteLog = field(default_factory=RemoteLog)
    refused: set[Uuid] = field(default_factory=set)
    _was_readable: set[Uuid] = field(default_factory=set)

    def replay(self, record: MetadataRecord) -> None:
        """Apply the next record."""
        before = self.remote.refused
        self.remote.replay(record)
        if not isinstance(record, SegmentUpdate):
            return
        segment_id = record.segment_id
        if record.state is SegmentState.DELETE_FINISHED:
            self._was_readable.discard(segment_id)
        elif record.state is SegmentState.COPY_FINISHED:
            if self.remote.refused == before:
                self._was_readable.add(segment_id)
            elif segment_id not in self._was_readable:
                self.refused.add(segment_id)


def ends_of(client: ClusterClient) -> dict[int, tuple[int, int]]:
    """Return the start and the end offset of each partition; empty = there is no such topic.

    Raises: ClientError.
    """

    def ask() -> dict[int, tuple[int, int]]:
        found = client.topics([REMOTE_LOG_METADATA_TOPIC], skip_unknown=True)
        if not found:
            return {}
        keys = [(REMOTE_LOG_METADATA_TOPIC, each.partition_index) for each in found[0].partitions]
        edges: dict[int, list[int]] = defaultdict(list)
        for timestamp in (EARLIEST, LATEST):
            answers = list_offsets(client, dict.fromkeys(keys, timestamp))
            for (topic, partition), answer in answers.items():
                check(f"{topic}-{partition}", answer.error_code)
                edges[partition].append(answer.offset)
        return {partition: (start, end) for partition, (start, end) in edges.items()}

    return client.with_retries(ask, repeatable=True)


class MetadataPartition:
    """The remote logs of one partition of the metadata topic.

    Fields: `logs`: by user partition. `next_offset`: records below are replayed. `skipped`: batches
            and records that cannot be decoded.
    """

    def __init__(self, client: ClusterClient, partition: int) -> None:
        self._client = client
        self._key = (REMOTE_LOG_METADATA_TOPIC, partition)
        self._name = f"{REMOTE_LOG_METADATA_TOPIC}-{partition}"
        self.logs: dict[Key, UserLog] = {}
        self.next_offset: int | None = None
        self.skipped = 0

    def read(self) -> None:
        """Read up to the present end. Raises: ClientError, MetadataChanged, RecordsError."""
        for record in self.tail(self.next_offset):
            key = record.topic, record.topic_id, record.partition
            self.logs.setdefault(key, UserLog()).replay(record)

    def log_of(self, key: Key) -> UserLog:
        """Return the remote log of a user partition; it may be empty."""
        return self.logs.setdefault(key, UserLog())

    def tail(self, offset: int | None) -> Iterator[MetadataRecord]:
        """Yield the records from an offset on, None = the start, up to the present end."""
        end = self._offset_of(LATEST)
        if offset is None:
            offset = self._offset_of(EARLIEST)
        stalls = 0
        while offset < end:
            data = self._fetch(offset)
            reached = offset
            for position, header in iter_headers(data, allow_partial=True):
                yield from self._records(data, position, header, offset)
                reached = max(reached, header.next_offset)
            stalls = stalls + 1 if reached == offset else 0
            if stalls == STALLS_MAX:
                raise MetadataChanged(f"{self._name} returns no records from offset {offset} on")
            offset = reached
        self.next_offset = max(offset, self.next_offset or 0)

    def _records(
        self, data: bytes, position: int, header: BatchHeader, offset: int
    ) -> Iterator[MetadataRecord]:
        """Yield a batch's records from an offset on, without those that cannot be decoded: brokers
        skip them, too.
        """
        try:
            check_crc(data, position, header)
            found = [] if header.is_control else read_records(data, position, header)
        except RecordsError:
            self.skipped += 1
            return
        for each in found:
            try:
                value = None if each.value is None else decode(each.value)
            except ValueError:
                self.skipped += 1
                continue
            if value is not None and each.offset >= offset:
                yield value

    def _offset_of(self, timestamp: int) -> int:
        def ask() -> int:
            answer = list_offsets(self._client, {self._key: timestamp})[self._key]
            check(self._name, answer.error_code)
            return answer.offset

        return self._client.with_retries(ask, repeatable=True)

    def _fetch(self, offset: int) -> bytes:
        def ask() -> bytes:
            data = fetch(
                self._client,
                self._key,
                offset,
                topic_id=NO_UUID,
                max_bytes=FETCH_BYTES,
                max_wait_ms=MAX_WAIT_MS,
                read_committed=False,
            )
            if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                raise MetadataChanged(f"{self._name} has no offset {offset}")
            assert data.records is None or isinstance(data.records, memoryview)
            return b"" if data.records is None else bytes(data.records)

        return self._client.with_retries(ask, repeatable=True)


def is_given_up(
    records: Collection[MetadataRecord], key: Key, segment_id: Uuid, tiered_epoch: int
) -> bool:
    """Tell whether records end a segment: its deletion has begun, or a fence has given it up."""
    for each in records:
        if (each.topic, each.topic_id, each.partition) != key:
            continue
        if isinstance(each, Fence):
            is_over = each.floor >= tiered_epoch
        elif isinstance(each, SegmentUpdate) and each.segment_id == segment_id:
            is_over = each.state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)
        else:
            is_over = False
        if is_over:
            return True
    return False
