"""Produce, Fetch and ListOffsets to the leaders of the metadata topic's partitions.

Each is one API of `leader_requests`: over the network in the versions that name topics by id where
there are such, and locally, through the replica manager, where this broker leads.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ottla.base.errors import ApiError, Error, error_of
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.base.pending import Pending, completed
from ottla.base.ports import Workers
from ottla.broker.fetch.delayed_fetch import FetchLimits, Reads
from ottla.broker.fetch.fetch_sessions import Fetching, Key
from ottla.broker.fetch.fetch_sessions import FetchPartition as LocalFetchPartition
from ottla.broker.fetch.reading import PartitionRead
from ottla.broker.leader_requests import Part, TopicIdPartition
from ottla.broker.partition import ACKS_ALL, Partition
from ottla.broker.ports import CloseConnection
from ottla.broker.produce.delayed_produce import AppendResult
from ottla.broker.replica_manager import ReplicaManager
from ottla.log.file_cache import FileSlice
from ottla.wire.codec import records_view
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import produce as produce_wire

PartT = TypeVar("PartT")

LATEST: Final = -1
"""ListOffsets' timestamp of the high watermark."""
EARLIEST: Final = -2
"""ListOffsets' timestamp of the log start."""

REQUEST_TIMEOUT_MS: Final = 30_000
"""request.timeout.ms of Kafka's clients: how long to wait for a response."""

PRODUCE_TIMEOUT_MS: Final = 10_000
"""How long a leader waits for its in-sync replicas; a retry finds the batch in its log."""

NO_SESSION_EPOCH: Final = -1

_MISSING = ApiError(Error.UNKNOWN_SERVER_ERROR, "the response lacks the partition")


class FetchFrom(NamedTuple):
    """Where to read. `last_epoch`: that of the last record read, -1 = none."""

    offset: int
    last_epoch: int = NO_EPOCH


class Fetched(NamedTuple):
    """What was read: whole batches but for the last, which may be cut off.

    Fields: `diverged`: the log was truncated below what was read before; there are no records.
    """

    records: bytes
    high_watermark: int
    diverged: bool = False


class ProduceApi:
    """Appends a batch, acks=all; the result is its base offset."""

    name: Final = "Produce"
    version: Final = 13
    timeout_ms: Final = REQUEST_TIMEOUT_MS

    def __init__(self, replicas: ReplicaManager, closed: Pending[None]) -> None:
        self._replicas = replicas
        self._closed = closed

    def request(self, parts: Sequence[Part[bytes]]) -> produce_wire.ProduceRequest:
        """Return the request."""
        return produce_wire.ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=tuple(
                produce_wire.TopicProduceData(
                    topic_id=topic_id,
                    partition_data=tuple(
                        produce_wire.PartitionProduceData(index=part.key[1], records=part.payload)
                        for part in of_topic
                    ),
                )
                for topic_id, of_topic in _by_topic(parts)
            ),
        )

    def results(
        self, parts: Sequence[Part[bytes]], response: produce_wire.ProduceResponse
    ) -> list[int | ApiError]:
        """Return the base offset, or the error, of each part."""
        found: dict[TopicIdPartition, int | ApiError] = {
            (topic.topic_id, each.index): each.base_offset
            if not each.error_code
            else ApiError(error_of(each.error_code), each.error_message)
            for topic in response.responses
            for each in topic.partition_responses
        }
        return [found.get(part.key, _MISSING) for part in parts]

    def answer_locally(self, parts: Sequence[Part[bytes]]) -> Pending[Sequence[int | ApiError]]:
        """Append to this broker's own logs."""
        results: dict[TopicIdPartition, int | ApiError] = {}
        batches: list[tuple[Partition, bytearray]] = []
        keys: list[TopicIdPartition] = []
        for part in parts:
            try:
                partition = self._replicas.partition_by_id(*part.key)
            except ApiError as refusal:
                results[part.key] = refusal
            else:
                # A copy: the append writes its offset into the batch, which may be sent again.
                batches.append((partition, bytearray(part.payload)))
                keys.append(part.key)
        try:
            appended = self._replicas.append_all(
                batches, acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS, closed=self._closed
            )
        except CloseConnection as reason:
            busy = ApiError(Error.REQUEST_TIMED_OUT, str(reason))
            return completed([results.get(part.key, busy) for part in parts])

        def merge(late: list[AppendResult]) -> Sequence[int | ApiError]:
            for key, each in zip(keys, late, strict=True):
                error = ApiError(each.error, each.message) if each.error else None
                results[key] = each.base_offset if error is None else error
            return [results[part.key] for part in parts]

        promise = appended if isinstance(appended, Pending) else completed(appended)
        return promise.map(merge)

    def retries(self, error: Error) -> bool:
        """Tell whether the same batch is sent again, with the same sequence numbers."""
        return error.retriable


class FetchApi:
    """Reads up to the high watermark, as a consumer.

    Fields: `max_wait_ms`: how long the leader waits where there is nothing to read.
    """

    name: Final = "Fetch"
    version: Final = 17

    def __init__(
        self,
        replicas: ReplicaManager,
        workers: Workers,
        closed: Pending[None],
        *,
        max_wait_ms: int,
        partition_bytes_max: int,
        response_bytes_max: int,
    ) -> None:
        self.timeout_ms = REQUEST_TIMEOUT_MS + max_wait_ms
        self._replicas = replicas
        self._workers = workers
        self._closed = closed
        self._max_wait_ms = max_wait_ms
        self._partition_bytes_max = partition_bytes_max
        self._response_bytes_max = response_bytes_max

    def request(self, parts: Sequence[Part[FetchFrom]]) -> fetch_wire.FetchRequest:
        """Return the request, without a fetch session."""
        return fetch_wire.FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._response_bytes_max,
            session_epoch=NO_SESSION_EPOCH,
            topics=tuple(
                fetch_wire.FetchTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        fetch_wire.FetchPartition(
                            partition=part.key[1],
                            current_leader_epoch=part.leader.epoch,
                            fetch_offset=part.payload.offset,
                            last_fetched_epoch=part.payload.last_epoch,
                            partition_max_bytes=self._partition_bytes_max,
                        )
                        for part in of_topic
                    ),
                )
                for topic_id, of_topic in _by_topic(parts)
            ),
        )

    def results(
        self, parts: Sequence[Part[FetchFrom]], response: fetch_wire.FetchResponse
    ) -> list[Fetched | ApiError]:
        """Return what was read of each part, or its error."""
        if response.error_code:
            return [ApiError(error_of(response.error_code))] * len(parts)
        found: dict[TopicIdPartition, Fetched | ApiError] = {}
        for topic in response.responses:
            for each in topic.partitions:
                found[topic.topic_id, each.partition_index] = (
                    ApiError(error_of(each.error_code))
                    if each.error_code
                    else Fetched(
                        bytes(records_view(each.records)),
                        each.high_watermark,
                        each.diverging_epoch.epoch >= 0,
                    )
                )
        return [found.get(part.key, _MISSING) for part in parts]

    def answer_locally(
        self, parts: Sequence[Part[FetchFrom]]
    ) -> Pending[Sequence[Fetched | ApiError]]:
        """Read this broker's own logs, the bytes in a worker."""
        requested: dict[Key, LocalFetchPartition] = {
            part.key: LocalFetchPartition(
                "",
                *part.key,
                part.payload.offset,
                self._partition_bytes_max,
                part.leader.epoch,
                part.payload.last_epoch,
            )
            for part in parts
        }
        limits = FetchLimits(self._max_wait_ms, 1, self._response_bytes_max, False)
        reads = self._replicas.fetch_reader.fetch(Fetching(requested), limits, self._closed)
        answer: Pending[Sequence[Fetched | ApiError]] = Pending()

        def load(late: Reads) -> None:
            found = {each.key: read for each, read in late}
            self._workers.submit(
                lambda: [_loaded(found[part.key]) for part in parts],
                partial(_read_locally, list(found.values()), len(parts), answer),
            )

        promise = reads if isinstance(reads, Pending) else completed(reads)
        promise.then(load)
        return answer

    def retries(self, error: Error) -> bool:
        """Tell whether to read again from the same offset."""
        return error is not Error.OFFSET_OUT_OF_RANGE


def _loaded(read: PartitionRead) -> Fetched | ApiError:
    if read.error:
        return ApiError(read.error)
    records = b"".join(
        [piece.read() if isinstance(piece, FileSlice) else piece for piece in read.records]
    )
    return Fetched(records, read.high_watermark, read.diverging is not None)


def _read_locally(
    reads: Iterable[PartitionRead],
    count: int,
    answer: Pending[Sequence[Fetched | ApiError]],
    loaded: "list[Fetched | ApiError] | BaseException",
) -> None:
    for read in reads:
        read.release()
    if isinstance(loaded, BaseException):
        # The log directory is taken offline by those who read or write it next.
        loaded = [ApiError(Error.KAFKA_STORAGE_ERROR, str(loaded))] * count
    answer.complete(loaded)


class ListOffsetsApi:
    """The high watermark (LATEST) or the log start (EARLIEST) of a partition."""

    name: Final = "ListOffsets"
    version: Final = 9
    timeout_ms: Final = REQUEST_TIMEOUT_MS

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def request(self, parts: Sequence[Part[int]]) -> offsets_wire.ListOffsetsRequest:
        """Return the request."""
        return offsets_wire.ListOffsetsRequest(
            replica_id=-1,
            topics=tuple(
                offsets_wire.ListOffsetsTopic(
                    name=of_topic[0].leader.topic,
                    partitions=tuple(
                        offsets_wire.ListOffsetsPartition(
                            partition_index=part.key[1],
                            current_leader_epoch=part.leader.epoch,
                            timestamp=part.payload,
                        )
                        for part in of_topic
                    ),
                )
                for _, of_topic in _by_topic(parts)
            ),
        )

    def results(
        self, parts: Sequence[Part[int]], response: offsets_wire.ListOffsetsResponse
    ) -> list[int | ApiError]:
        """Return the offset, or the error, of each part."""
        found: dict[tuple[str, int], int | ApiError] = {
            (topic.name, each.partition_index): ApiError(error_of(each.error_code))
            if each.error_code
            else each.offset
            for topic in response.topics
            for each in topic.partitions
        }
        return [found.get((part.leader.topic, part.key[1]), _MISSING) for part in parts]

    def answer_locally(self, parts: Sequence[Part[int]]) -> Pending[Sequence[int | ApiError]]:
        """Look into this broker's own logs."""
        return completed([self._local(part) for part in parts])

    def _local(self, part: Part[int]) -> int | ApiError:
        try:
            partition = self._replicas.partition_by_id(*part.key)
            log = partition.leader_log(part.leader.epoch)
        except ApiError as refusal:
            return refusal
        if part.payload == EARLIEST:
            return log.log_start_offset
        if partition.epoch_start_offset > log.high_watermark:
            # Records that the previous leader acknowledged may be above it (KIP-207).
            return ApiError(Error.OFFSET_NOT_AVAILABLE)
        return log.high_watermark

    def retries(self, error: Error) -> bool:
        """Tell whether to ask again: always, as there is an answer to every question."""
        return error is not Error.NONE


def _by_topic(parts: Sequence[Part[PartT]]) -> "Iterable[tuple[Uuid, list[Part[PartT]]]]":
    """Return the parts of each topic: of one, but while a topic of the same name replaces it."""
    topics: dict[Uuid, list[Part[PartT]]] = {}
    for part in parts:
        topics.setdefault(part.key[0], []).append(part)
    return topics.items()
