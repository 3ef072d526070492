"""Fetches one partition's raw batches from its leader; follows leader changes."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.base.errors import Error
from ottla.client.cluster import ClusterClient
from ottla.client.fetch import fetch
from ottla.records.batch import iter_headers
from ottla.spark.cluster_options import retried
from ottla.spark.errors import ClusterError
from ottla.spark.options import FETCH_BYTES_MAX
from ottla.spark.splits import Split
from ottla.wire.messages.fetch import PartitionData

MAX_WAIT_MS: Final = 500
"""A broker with data responds at once, which is the normal case: the offsets are planned."""


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
            data = retried(self._client, what, partial(self._fetch_once, offset))
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
        return fetch(
            self._client,
            (split.topic, split.partition),
            offset,
            topic_id=split.topic_id,
            max_bytes=self._fetch_bytes,
            max_wait_ms=MAX_WAIT_MS,
            read_committed=self._read_committed,
        )
