"""Writes encoded batches to the leaders of their partitions; retries without duplicates.

An idempotent producer numbers its batches per partition. A batch whose response was lost is resent
with its sequence number, and the broker detects the duplicate.
Sources: KIP-98; Kafka's Sender, which also splits batches that are too large.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, NoSuchVersionError, Refusal, check
from ottla.client.partitions import TopicPartition
from ottla.client.produce import Produced, produce
from ottla.records.columnar import encode
from ottla.spark.cluster_options import retried
from ottla.spark.errors import ClusterError, WriteError
from ottla.spark.writing.producer_identities import OF_THIS_PROCESS, Identities, Identity
from ottla.spark.writing.write_options import WriteOptions
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NO_OFFSET: Final = bytes(8)
_SEQUENCES: Final = 2**31
_TOO_LARGE: Final = (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE)
_NO_TRANSACTION_MS: Final = 2**31 - 1
"""Sent in InitProducerId without a transactional id, as Kafka's producer does."""
REQUEST_BYTES: Final = 32 * 1024 * 1024
"""The approximate limit of one request, over all partitions."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """One encoded record batch and its rows."""

    data: bytes
    rows: Any
    sequence: int


@dataclass(slots=True)
class _Queue:
    """The unsent batches of one partition, in order."""

    key: TopicPartition
    waiting: deque[_Batch] = field(default_factory=deque)


class RawProducer:
    """Writes rows of one task, in order within each partition.

    Fields: `written`: rows that the cluster has acknowledged.
            `restamped`: topics whose brokers have replaced the timestamps of rows
            (message.timestamp.type=LogAppendTime).
    Raises: WriteError where the cluster rejects rows or does not acknowledge them in time.
    """

    def __init__(
        self,
        client: ClusterClient,
        options: WriteOptions,
        identities: Identities = OF_THIS_PROCESS,
    ) -> None:
        self._client = client
        self._options = options
        self._identities = identities
        self._producer: Identity | None = None
        self._is_new = False
        """The producer id was given out for this task: the cluster is the one that it is of."""
        self._cluster_id: str | None = None
        self._topic_ids: dict[str, Uuid] = {}
        self.written = 0
        self.restamped: set[str] = set()

    def partition_count(self, topic: str) -> int:
        """Return a topic's number of partitions; the cluster may create it."""

        def look() -> int:
            (found,) = self._client.topics([topic], create=True)
            if not found.partitions:
                raise Refusal(f"topic {topic}", Error.UNKNOWN_TOPIC_OR_PARTITION)
            self._topic_ids[topic] = found.topic_id
            return len(found.partitions)

        try:
            return retried(self._client, "looking up where to write", look)
        except ClusterError as error:
            raise WriteError(str(error)) from error

    def write(self, rows_by_partition: dict[TopicPartition, Any]) -> None:
        """Encode rows and return once the cluster has acknowledged all of them."""
        self._identify({topic for topic, _ in rows_by_partition})
        now_ms = time.time_ns() // 1_000_000
        queues = [
            _Queue(key, deque(self._encode(key, rows, now_ms, self._options.batch_bytes)))
            for key, rows in sorted(rows_by_partition.items())
        ]
        while queues:
            self._send_round(queues)
            queues = [queue for queue in queues if queue.waiting]

    def finish(self) -> None:
        """Let the next task of this process continue with the producer id.

        Only after all writes have returned: a batch whose fate is unknown could come later.
        """
        is_known = self._producer is not None and NO_UUID not in self._producer.topic_ids
        if self._producer is not None and is_known and self._options.idempotent:
            self._identities.give_back(self._cluster_id, self._producer)
            self._producer = None

    # -- encoding ------------------------------------------------------------------------------

    def _encode(
        self,
        key: TopicPartition,
        rows: Any,
        now_ms: int,
        batch_bytes: int,
        sequence: int | None = None,
    ) -> list[_Batch]:
        producer = self._producer
        assert producer is not None
        idempotent = producer.producer_id >= 0
        first = producer.sequences.get(key, 0) if sequence is None else sequence
        encoded = encode(
            rows,
            timestamp_ms=now_ms,
            codec=self._options.codec,
            level=self._options.level,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=first if idempotent else -1,
            batch_bytes=batch_bytes,
        )
        batches: list[_Batch] = []
        start = 0
        for data in encoded:
            count = int.from_bytes(data[57:61])
            at = (first + start) % _SEQUENCES
            # The encoder continues offsets over batches; each produced batch must start at 0.
            produced = data if not start else _NO_OFFSET + data[len(_NO_OFFSET) :]
            batches.append(_Batch(produced, rows.slice(start, count), at))
            start += count
        assert start == rows.num_rows
        if sequence is None:
            producer.sequences[key] = (first + start) % _SEQUENCES
        return batches

    def _identify(self, topics: Iterable[str]) -> None:
        """Have a producer id for writes to topics: one of an earlier task, or a new one."""
        wanted = {self._topic_ids.get(topic, NO_UUID) for topic in topics}
        if self._producer is not None and (self._is_new or wanted <= self._producer.topic_ids):
            self._producer.topic_ids |= wanted
            return
        if not self._options.idempotent:
            self._producer, self._is_new = Identity(-1, -1), True
            return

        def ask() -> Identity:
            self._cluster_id = self._client.cluster().cluster_id
            kept = self._identities.take(self._cluster_id, wanted)
            self._is_new = kept is None
            if kept is not None:
                return kept
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_MS
            )
            response = self._client.ask(request, InitProducerIdResponse)
            check("a producer id", response.error_code)
            return Identity(response.producer_id, response.producer_epoch, topic_ids=wanted)

        try:
            self._producer = retried(self._client, "getting a producer id", ask)
        except ClusterError as error:
            raise WriteError(str(error)) from error

    # -- sending -------------------------------------------------------------------------------

    def _send_round(self, queues: Sequence[_Queue]) -> None:
        """Send the first batch of each queue; retry those that failed."""
        left = list(queues)
        deadline = time.monotonic() + self._options.delivery_timeout_ms / 1000
        config = self._options.cluster
        backoff = config.backoff_s
        while True:
            left, error = self._try_round(left)
            if not left:
                return
            if error is None:
                continue  # Batches were split.
            if time.monotonic() >= deadline:
                raise WriteError(
                    f"{error}; not written within {self._options.delivery_timeout_ms} ms "
                    "(kafka.delivery.timeout.ms)"
                ) from error
            self._client.refresh()
            time.sleep(backoff)
            backoff = max(backoff, min(2 * backoff, config.backoff_s_max))

    def _try_round(self, queues: list[_Queue]) -> tuple[list[_Queue], Exception | None]:
        """Return the queues whose first batch must be sent, and the last failure, if any."""
        again: list[_Queue] = []
        reason: Exception | None = None
        by_node: dict[int, list[_Queue]] = {}
        for queue in queues:
            try:
                by_node.setdefault(self._client.leader(queue.key).node, []).append(queue)
            except ClientError as error:
                _check_retriable(error)
                again.append(queue)
                reason = error
        for node, led in sorted(by_node.items()):
            for group in _groups(led):
                batches = {queue.key: queue.waiting[0].data for queue in group}
                try:
                    answers = produce(self._client, node, batches, acks=self._options.acks)
                except ClientError as error:
                    _check_retriable(error)
                    again.extend(group)
                    reason = error
                    continue
                for queue in group:
                    batch = queue.waiting[0]
                    reason = self._settle(queue, answers[queue.key]) or reason
                    if queue.waiting and queue.waiting[0].sequence == batch.sequence:
                        again.append(queue)
        return again, reason

    def _settle(self, queue: _Queue, answer: Produced) -> Refusal | None:
        """Remove an acknowledged batch from the queue; return a retriable error."""
        batch, refusal = queue.waiting[0], answer.refusal
        # The broker has the batch already: an earlier response was lost.
        if refusal is None or refusal.code == Error.DUPLICATE_SEQUENCE_NUMBER:
            queue.waiting.popleft()
            self.written += batch.rows.num_rows
            if answer.log_append_ms >= 0:
                self.restamped.add(queue.key[0])
            return None
        if refusal.code in _TOO_LARGE and batch.rows.num_rows > 1:
            self._split(queue)
            return None
        if refusal.code in _TOO_LARGE:
            raise WriteError(
                f"{refusal}; a row of {len(batch.data)} bytes does not fit: raise the topic's "
                "max.message.bytes"
            )
        if not refusal.is_retriable:
            raise WriteError(str(refusal))
        return refusal

    def _split(self, queue: _Queue) -> None:
        """Split the first batch into two or more, with the same sequence numbers overall."""
        batch = queue.waiting.popleft()
        half = batch.rows.num_rows // 2
        parts: list[_Batch] = []
        for rows, sequence in (
            (batch.rows.slice(0, half), batch.sequence),
            (batch.rows.slice(half), (batch.sequence + half) % _SEQUENCES),
        ):
            now_ms = time.time_ns() // 1_000_000
            parts += self._encode(queue.key, rows, now_ms, self._options.batch_bytes, sequence)
        queue.waiting.extendleft(reversed(parts))


def _check_retriable(error: ClientError) -> None:
    """Raise WriteError for an error that is not retriable."""
    if isinstance(error, NoSuchVersionError) or (
        isinstance(error, Refusal) and not error.is_retriable
    ):
        raise WriteError(str(error)) from error


def _groups(queues: list[_Queue]) -> list[list[_Queue]]:
    """Divide one broker's queues into requests of bounded size."""
    groups: list[list[_Queue]] = [[]]
    size = 0
    for queue in queues:
        length = len(queue.waiting[0].data)
        if groups[-1] and size + length > REQUEST_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(queue)
        size += length
    return groups
