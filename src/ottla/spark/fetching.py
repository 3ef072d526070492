"""Fetches one partition's raw batches from its leader; follows leader changes."""

import time
from dataclasses import dataclass
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID
from ottla.records.batch import iter_headers
from ottla.spark.client import ClusterClient, Refused
from ottla.spark.errors import ClusterError
from ottla.spark.options import FETCH_BYTES_MAX
from ottla.spark.planner import Split
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

MAX_WAIT_MS: Final = 500
"""A broker with data responds at once, which is the normal case: the offsets are planned."""
_LAST_WITH_NAMES: Final = 12
"""Newer versions of Fetch name topics by id only."""
_LAST: Final = 17
"""Version 18 only adds fields of followers."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """At least one whole batch; the last one may be incomplete."""

    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    """Aborted transactions in it: producer id, first offset."""


class OutOfRange(Exception):
    """The offset is out of the log's range."""


class PartitionFetcher:
    """Fetches batches from any offset of a split's partition.

    Raises: OutOfRange; ClusterError, with the code UNKNOWN_TOPIC_ID where the topic was deleted
            or re-created meanwhile.
    """

    def __init__(
        self,
        client: ClusterClient,
        split: Split,
        *,
        read_committed: bool,
        fetch_bytes: int,
        timeout_ms: int,
    ) -> None:
        self._client = client
        self._split = split
        self._read_committed = read_committed
        self._fetch_bytes = fetch_bytes
        self._timeout_ms = timeout_ms

    def fetch(self, offset: int) -> Fetched:
        """Return batches from the one that holds `offset`, or from the next one, onwards."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        split = self._split
        what = f"reading {split.topic}-{split.partition} at offset {offset}"
        while True:
            data = self._client.with_retries(what, lambda: self._fetch_once(offset))
            if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                raise OutOfRange(what)
            assert data.records is None or isinstance(data.records, memoryview)
            records = data.records if data.records is not None else memoryview(b"")
            if next(iter_headers(records, allow_partial=True), None) is not None:
                aborted = data.aborted_transactions if self._read_committed else None
                return Fetched(
                    records, tuple((each.producer_id, each.first_offset) for each in aborted or ())
                )
            if len(records) and self._fetch_bytes < FETCH_BYTES_MAX:
                self._fetch_bytes = min(2 * self._fetch_bytes, FETCH_BYTES_MAX)
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"{what}: no records within {self._timeout_ms} ms "
                    f"(kafkaConsumer.pollTimeoutMs); the high watermark is {data.high_watermark}"
                )

    def _fetch_once(self, offset: int) -> PartitionData:
        split = self._split
        leader = self._client.leader((split.topic, split.partition), topic_id=split.topic_id)
        connection = self._client.connection(leader.node)
        with_ids = split.topic_id != NO_UUID
        at_most = _LAST if with_ids else _LAST_WITH_NAMES
        if connection.version_for(FetchRequest, at_most=at_most) <= _LAST_WITH_NAMES:
            with_ids = False
        partition = FetchPartition(
            partition=split.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            partition_max_bytes=self._fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=int(self._read_committed),
            topics=(
                FetchTopic(
                    topic="" if with_ids else split.topic,
                    topic_id=split.topic_id if with_ids else NO_UUID,
                    partitions=(partition,),
                ),
            ),
        )
        response = self._client.ask(request, FetchResponse, node=leader.node, at_most=at_most)
        subject = f"{split.topic}-{split.partition}"
        if response.error_code:
            raise Refused(subject, response.error_code)
        data = response.responses[0].partitions[0]
        if data.error_code and data.error_code != Error.OFFSET_OUT_OF_RANGE:
            raise Refused(subject, data.error_code)
        return data
