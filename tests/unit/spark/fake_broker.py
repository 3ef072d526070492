"""A broker on a real socket that keeps one topic in memory and misbehaves on request.

It speaks Metadata, ListOffsets, Fetch, InitProducerId and Produce, with the checks of sequence
numbers that make retries harmless. `faults` holds, by request class, what to do with the next
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
from ottla.records.batch import iter_headers, restamp
from ottla.wire import registry
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header, encode_response
from ottla.wire.messages import api_versions, fetch, init_producer_id, list_offsets, metadata
from ottla.wire.messages import produce as produce_messages

DROP = -100
LEAVE_OUT = -101
TOPIC = "t"
ID = Uuid(b"i" * 16)
NODE = 7

VERSIONS = {0: (3, 12), 1: (4, 17), 2: (1, 8), 3: (1, 12), 18: (0, 4), 22: (0, 4)}


@dataclass
class Log:
    """One partition."""

    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    end: int = 0
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The last batch of each producer: its first and last sequence."""

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
        return metadata.MetadataResponse(brokers=(broker,), topics=topics)

    def _list_offsets(self, request: Any, error: int) -> Any:
        answers = []
        for topic in request.topics:
            for each in topic.partitions:
                log = self.logs[each.partition_index]
                offset = {-1: log.end, -2: log.start}.get(each.timestamp, -1)
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
        found = log.data
        for position, header in iter_headers(log.data):
            found = log.data[position : position + each.partition_max_bytes]
            if header.next_offset > each.fetch_offset:
                whole = position + header.size_in_bytes
                found = log.data[position : max(whole, position + each.partition_max_bytes)]
                break
        else:
            found = bytearray()
        data = fetch.PartitionData(
            partition_index=each.partition,
            error_code=error,
            high_watermark=log.end,
            log_start_offset=log.start,
            records=b"" if error else bytes(found),
        )
        response = fetch.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=(data,)
        )
        return fetch.FetchResponse(responses=(response,))

    def _init_producer_id(self, request: Any, error: int) -> Any:
        return init_producer_id.InitProducerIdResponse(
            error_code=error, producer_id=99, producer_epoch=0
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
                        index=each.index, error_code=code, base_offset=-1
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


_ANSWERS: dict[type, Any] = {
    api_versions.ApiVersionsRequest: FakeBroker._api_versions,
    metadata.MetadataRequest: FakeBroker._metadata,
    list_offsets.ListOffsetsRequest: FakeBroker._list_offsets,
    fetch.FetchRequest: FakeBroker._fetch,
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
