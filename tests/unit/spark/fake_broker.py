"""A broker on a real socket that keeps one topic in memory and misbehaves on request.

It speaks Metadata, ListOffsets, Fetch, InitProducerId and Produce, with the checks of sequence
numbers that make retries harmless; with TIERED also DescribeRemoteLog. Transactions are what a test
puts into a `Log`. `faults` holds, by request class, what to do with the next
requests of that class: an error code, DROP (do it, then close the connection unanswered),
or LEAVE_OUT (do nothing for a Produce's first partition, and do not answer for it).
"""

import socketserver
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.cluster import ClientConfig
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.records.batch import iter_headers, restamp
from ottla.records.record import find_timestamp
from ottla.wire import registry
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header, encode_response
from ottla.wire.messages import (
    api_versions,
    describe_remote_log,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
)
from ottla.wire.messages import produce as produce_messages

DROP = -100
LEAVE_OUT = -101
TOPIC = "t"
ID = Uuid(b"i" * 16)
NODE = 7

VERSIONS = {0: (3, 12), 1: (4, 17), 2: (1, 8), 3: (1, 12), 18: (0, 4), 22: (0, 4)}
TIERED = {1006: (0, 0)}
"""For `versions`: the broker serves DescribeRemoteLog."""


@dataclass
class Log:
    """One partition."""

    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    end: int = 0
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The last batch of each producer: its first and last sequence."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    first_open: int | None = None
    """Where the first open transaction begins."""
    remote: tuple[describe_remote_log.RemoteLogSegment, ...] = ()
    local_start: int = 0

    def end_for(self, isolation_level: int) -> int:
        """Return the offset behind the last readable record."""
        is_open = isolation_level and self.first_open is not None
        return self.first_open if is_open and self.first_open is not None else self.end

    def append(self, batch: bytes) -> int:
        stamped = bytearray(batch)
        ((_, header),) = iter_headers(stamped)
        restamp(stamped, 0, base_offset=self.end, leader_epoch=0)
        self.data += stamped
        self.end += header.last_offset_delta + 1
        return self.end - header.last_offset_delta - 1


class FakeBroker:
    """Use as a context manager. All state may be changed while it runs."""

    def __init__(self, partitions: int = 1, versions: dict[int, tuple[int, int]] | None = None):
        self.versions = VERSIONS | (versions or {})
        self.topic_id = ID
        self.exists = True
        self.leader = NODE
        self.logs = [Log() for _ in range(partitions)]
        self.batch_bytes_max = 1 << 20
        self.log_append_ms = -1
        self.cluster_id: str | None = None
        self.faults: dict[type, deque[int]] = defaultdict(deque)
        self.received: list[Any] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.broker = self
        self.port = self._server.server_address[1]

    def __enter__(self) -> "FakeBroker":
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def options(self, **changes: Any) -> ClientConfig:
        """Return a configuration that leads here, with little patience."""
        config = ClientConfig(bootstrap=f"127.0.0.1:{self.port}", backoff_s=0.001)
        return replace(config.with_timeout(5), **changes)

    def count(self, request: type) -> int:
        """Return how often a request was made."""
        return sum(isinstance(each, request) for each in self.received)

    def answer(self, request: Any) -> tuple[Any, bool]:
        """Return the response, and whether it is to be sent."""
        self.received.append(request)
        queue = self.faults[type(request)]
        fault = queue.popleft() if queue else 0
        error = 0 if fault == DROP else fault
        return _ANSWERS[type(request)](self, request, error), fault != DROP

    def _api_versions(self, request: Any, error: int) -> Any:
        keys = tuple(
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(self.versions.items())
        )
        return api_versions.ApiVersionsResponse(error_code=error, api_keys=keys)

    def _metadata(self, request: Any, error: int) -> Any:
        partitions = tuple(
            metadata.MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=self.leader,
                leader_epoch=0,
                replica_nodes=(NODE,),
                isr_nodes=(NODE,),
            )
            for index in range(len(self.logs))
        )
        names = [TOPIC] if request.topics is None else [each.name for each in request.topics]
        topics = tuple(
            metadata.MetadataResponseTopic(
                error_code=error or (0 if known else Error.UNKNOWN_TOPIC_OR_PARTITION),
                name=name,
                topic_id=self.topic_id,
                partitions=partitions if known else (),
            )
            for name in names
            for known in [name == TOPIC and self.exists]
        )
        broker = metadata.MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.port)
        return metadata.MetadataResponse(
            brokers=(broker,), cluster_id=self.cluster_id, topics=topics
        )

    def _list_offsets(self, request: Any, error: int) -> Any:
        answers = []
        for topic in request.topics:
            for each in topic.partitions:
                log = self.logs[each.partition_index]
                edges = {-1: log.end_for(request.isolation_level), -2: log.start}
                since = _offset_since(log, each.timestamp, edges[-1])
                offset = edges.get(each.timestamp, since)
                answers.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=error,
                        offset=-1 if error else offset,
                    )
                )
        response = list_offsets.ListOffsetsTopicResponse(name=TOPIC, partitions=tuple(answers))
        return list_offsets.ListOffsetsResponse(topics=(response,))

    def _fetch(self, request: Any, error: int) -> Any:
        (topic,) = request.topics
        (each,) = topic.partitions
        log = self.logs[each.partition]
        if topic.topic_id not in (NO_UUID, self.topic_id):
            error = error or Error.UNKNOWN_TOPIC_ID
        if not error and not log.start <= each.fetch_offset <= log.end:
            error = Error.OFFSET_OUT_OF_RANGE
        begin, stop = len(log.data), len(log.data)
        for position, header in iter_headers(log.data):
            if header.next_offset > each.fetch_offset and begin == stop:
                begin = position
                first = header.size_in_bytes
            if header.base_offset >= log.end_for(request.isolation_level):
                stop = position
                break
        found = log.data[begin:stop]
        if found:
            found = found[: max(first, each.partition_max_bytes)]
        ends = [header.next_offset for _, header in iter_headers(found, allow_partial=True)]
        aborted = [
            fetch.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in log.aborted
            if ends and one.last_offset >= each.fetch_offset and one.first_offset < ends[-1]
        ]
        data = fetch.PartitionData(
            partition_index=each.partition,
            error_code=error,
            high_watermark=log.end,
            log_start_offset=log.start,
            records=b"" if error else bytes(found),
            aborted_transactions=tuple(aborted) if request.isolation_level else None,
        )
        response = fetch.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=(data,)
        )
        return fetch.FetchResponse(responses=(response,))

    def _describe_remote_log(self, request: Any, error: int) -> Any:
        topics = []
        for topic in request.topics:
            rows = [
                describe_remote_log.RemoteLogPartition(
                    partition=number,
                    error_code=error,
                    local_start_offset=self.logs[number].local_start,
                    log_end_offset=self.logs[number].end,
                    local_bytes=len(self.logs[number].data),
                    segments=self.logs[number].remote,
                )
                for number in topic.partitions
            ]
            topics.append(
                describe_remote_log.RemoteLogTopic(
                    name=topic.name, topic_id=self.topic_id, partitions=tuple(rows)
                )
            )
        return describe_remote_log.DescribeRemoteLogResponse(error_code=0, topics=tuple(topics))

    def _init_producer_id(self, request: Any, error: int) -> Any:
        asked = self.count(init_producer_id.InitProducerIdRequest)
        return init_producer_id.InitProducerIdResponse(
            error_code=error, producer_id=98 + asked, producer_epoch=0
        )

    def _produce(self, request: Any, error: int) -> Any:
        answers = []
        for topic in request.topic_data:
            for each in topic.partition_data:
                if error == LEAVE_OUT:
                    error = 0
                    continue
                code = error or self._append(each.index, bytes(each.records))
                answers.append(
                    produce_messages.PartitionProduceResponse(
                        index=each.index,
                        error_code=code,
                        base_offset=-1,
                        log_append_time_ms=-1 if code else self.log_append_ms,
                    )
                )
        response = produce_messages.TopicProduceResponse(
            name=TOPIC, partition_responses=tuple(answers)
        )
        return produce_messages.ProduceResponse(responses=(response,))

    def _append(self, partition: int, batch: bytes) -> int:
        ((_, header),) = iter_headers(batch)
        if header.base_offset:
            return Error.INVALID_RECORD
        if len(batch) > self.batch_bytes_max:
            return Error.MESSAGE_TOO_LARGE
        log = self.logs[partition]
        if header.has_producer_id:
            first, last = log.last.get(header.producer_id, (-1, -1))
            if header.base_sequence == first:
                return Error.DUPLICATE_SEQUENCE_NUMBER
            if header.base_sequence != last + 1:
                return Error.OUT_OF_ORDER_SEQUENCE_NUMBER
            log.last[header.producer_id] = header.base_sequence, header.last_sequence
        log.append(batch)
        return 0


def _offset_since(log: Log, timestamp: int, end: int) -> int:
    for position, header in iter_headers(log.data):
        if header.max_timestamp >= timestamp and header.next_offset > log.start:
            found = find_timestamp(log.data, position, header, timestamp, log.start)
            if found is not None:
                return found[0] if found[0] < end else -1
    return -1


_ANSWERS: dict[type, Any] = {
    api_versions.ApiVersionsRequest: FakeBroker._api_versions,
    metadata.MetadataRequest: FakeBroker._metadata,
    list_offsets.ListOffsetsRequest: FakeBroker._list_offsets,
    fetch.FetchRequest: FakeBroker._fetch,
    describe_remote_log.DescribeRemoteLogRequest: FakeBroker._describe_remote_log,
    init_producer_id.InitProducerIdRequest: FakeBroker._init_producer_id,
    produce_messages.ProduceRequest: FakeBroker._produce,
}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    broker: FakeBroker


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(size))
            header, position = decode_request_header(frame)
            kind = registry.request_type(header.api_key)
            request = decode(kind, frame, header.api_version, position)
            response, sent = self.server.broker.answer(request)
            if not sent:
                return
            chunks = encode_response(response, header.api_version, header.correlation_id)
            self.wfile.write(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]
