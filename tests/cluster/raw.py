"""Speaking to a broker over a plain socket: right, wrong and absurd requests."""

import socket
import struct
from contextlib import suppress

from ottla.client.connection import Connection
from ottla.testing import Cluster
from ottla.wire.frames import encode_request
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

SECONDS = 20.0
PRODUCE_VERSION = 9
"""The newest that names topics."""

_SIZE = struct.Struct(">i")


def port_of(cluster: Cluster, node: int = 1) -> int:
    return int(cluster.address(node).rpartition(":")[2])


def connect(cluster: Cluster, node: int = 1) -> socket.socket:
    """Open a socket to a broker; each of its calls waits SECONDS at most."""
    return socket.create_connection(("127.0.0.1", port_of(cluster, node)), timeout=SECONDS)


def framed(payload: bytes) -> bytes:
    return _SIZE.pack(len(payload)) + payload


def header(key: int, version: int, correlation_id: int = 1) -> bytes:
    """Return a request header of version 1, which every broker reads at least that far."""
    return struct.pack(">hhih", key, version, correlation_id, 4) + b"test"


def encoded(message: object, version: int, correlation_id: int = 1) -> bytes:
    """Return a whole frame."""
    return bytes(encode_request(message, version, correlation_id, "test"))


def answer_to(cluster: Cluster, data: bytes) -> bytes | None:
    """Send bytes on a new connection; return the first frame of the answer, None = closed."""
    with connect(cluster) as raw:
        return answered(raw, data)


def answered(raw: socket.socket, data: bytes) -> bytes | None:
    """Send bytes; return the first frame of the answer, None = closed by the broker.

    Raises: TimeoutError where the broker does neither.
    """
    with suppress(ConnectionError):
        raw.sendall(data)
        head = _exactly(raw, _SIZE.size)
        return None if head is None else _exactly(raw, _SIZE.unpack(head)[0])
    return None


def _exactly(raw: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        chunk = raw.recv(count - len(data))
        if not chunk:
            return None
        data += chunk
    return data


def produce_request(topic: str, batch: bytes, *, acks: int = -1) -> ProduceRequest:
    """Return a request that appends these bytes to partition 0."""
    data = PartitionProduceData(index=0, records=batch)
    topics = (TopicProduceData(name=topic, partition_data=(data,)),)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def produce_bytes(cluster: Cluster, topic: str, batch: bytes) -> int:
    """Append these bytes to partition 0 of a topic; return the error code."""
    with Connection("127.0.0.1", port_of(cluster), client_id="test", timeout=SECONDS) as broker:
        answer = broker.ask(
            produce_request(topic, batch), ProduceResponse, timeout=SECONDS, version=PRODUCE_VERSION
        )
    return int(answer.responses[0].partition_responses[0].error_code)
