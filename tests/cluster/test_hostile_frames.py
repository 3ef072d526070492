"""Garbage, lies and floods on a broker's socket end that connection and nothing else.

Method: raw sockets against a broker of its own, while a bystander uses it as intended; the
broker must close or answer, stay small (its resident memory is sampled throughout), log no
exception and never make the bystander fail.
"""

import random
import re
import select
import socket
import struct
import time
from contextlib import ExitStack, suppress
from urllib.request import urlopen

import pytest

from ottla.base.errors import Error
from ottla.testing import Cluster
from ottla.wire.frames import decode_response
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import versions_of

from .bystander import Bystander
from .clients import Message, client_of, eventually, produce
from .conftest import new_topic
from .raw import answer_to, answered, connect, encoded, framed, header, port_of

SEED = 99
REQUEST_BYTES_MAX = 100 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\xff" * 1000,
        struct.pack(">i", -1) + b"x" * 10,
        struct.pack(">i", 2**31 - 1) + b"x" * 10,
        struct.pack(">i", REQUEST_BYTES_MAX + 1) + b"x" * 10,
        framed(b""),
        framed(b"\x00"),
        framed(header(3, 9)[:9]),
        framed(struct.pack(">hhih", 3, 9, 1, -2)),
        framed(struct.pack(">hhih", 3, 9, 1, 30_000) + b"short"),
        framed(struct.pack(">hhih", 3, 9, 1, 2) + b"\xff\xff\x00"),
    ],
    ids=range(13),
)
def test_what_is_no_request_ends_the_connection(
    data: bytes, victim: Cluster, bystander: Bystander
) -> None:
    assert answer_to(victim, data) is None


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (3, 99),
        (3, -1),
        (0, 2),
        (0, 100),
        (1, 3),
        (999, 0),
        (-1, 0),
        (32767, 32767),
        (6, 0),
        (58, 0),
    ],
)
def test_unknown_keys_and_versions_end_the_connection(
    key: int, version: int, victim: Cluster, bystander: Bystander
) -> None:
    """Keys 6 (UpdateMetadata) and 58 (Envelope) exist, but not for clients."""
    assert answer_to(victim, framed(header(key, version) + bytes(100))) is None


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    version: int, victim: Cluster, bystander: Bystander
) -> None:
    frame = answer_to(victim, framed(header(18, version) + b"\x00\x01\x01\x00"))
    assert frame is not None
    _, answer = decode_response(ApiVersionsResponse, frame, 0)
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert [each.api_key for each in answer.api_keys] == [18]


def test_random_bodies_of_every_api(victim: Cluster, bystander: Bystander) -> None:
    dice = random.Random(SEED)
    frame = answer_to(victim, encoded(ApiVersionsRequest(), 0))
    assert frame is not None
    _, offered = decode_response(ApiVersionsResponse, frame, 0)
    tried = 0
    for api in offered.api_keys:
        for version in range(api.min_version, api.max_version + 1):
            for size in (0, 5, dice.randrange(400)):
                body = dice.randbytes(size)
                request = framed(header(api.api_key, version) + body)
                # A closed connection or an answer: anything but silence, which raises.
                # Acks 0 and waiting fetches may be silent by right: ask something after them.
                after = encoded(ApiVersionsRequest(), 0, correlation_id=2)
                answer_to(victim, request + after)
                tried += 1
    assert tried > 500


def test_absurd_counts_cost_nothing(victim: Cluster, bystander: Bystander) -> None:
    """Arrays whose lengths promise far more than the frame holds."""
    # Metadata v1: an array of strings; CreateTopics v2: of structs; Produce v3: nested.
    starts = (header(3, 1), header(19, 2), header(0, 3) + b"\xff\xff\x00\x01" + bytes(4))
    for length in (2**31 - 1, 10_000_000, 51):
        for start in starts:
            request = framed(start + struct.pack(">i", length) + bytes(50))
            assert answer_to(victim, request) is None
    for varint in (b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x80" * 20):
        assert answer_to(victim, framed(header(3, 9) + b"\x00" + varint)) is None


def test_frames_cut_anywhere(victim: Cluster, bystander: Bystander) -> None:
    frame = encoded(MetadataRequest(topics=None), 9)
    for end in range(len(frame)):
        with connect(victim) as raw:
            raw.sendall(frame[:end])
            raw.shutdown(socket.SHUT_WR)
            assert raw.recv(1) == b""


def test_random_garbage(victim: Cluster, bystander: Bystander) -> None:
    dice = random.Random(SEED)
    for _ in range(300):
        with connect(victim) as raw, suppress(ConnectionError):
            raw.sendall(dice.randbytes(dice.randrange(1, 4000)))
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65_536):
                pass


def test_requests_that_claim_much_and_send_little(victim: Cluster, bystander: Bystander) -> None:
    """Forty frames of 100 MB each are begun, trickle on and are never finished."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(victim)) for _ in range(40)]
        for raw in sockets:
            raw.sendall(struct.pack(">i", REQUEST_BYTES_MAX) + header(0, 9) + bytes(1000))
        for _ in range(3):
            bystander.wait_round()
            for raw in sockets:
                with suppress(ConnectionError):
                    raw.sendall(b"x")
        # Others may still send what is large, though not as large as all that is claimed.
        topic = new_topic(victim.bootstrap, "large", max_message_bytes=str(20 << 20))
        value = b"x" * (10 << 20)
        sent = [Message(topic=topic, value=value)]
        produce(client_of("confluent"), victim.bootstrap, sent, max_bytes=20 << 20)


def test_claims_without_bytes_keep_out_nobody(victim: Cluster, bystander: Bystander) -> None:
    """Five hundred frames of 100 MB each are claimed; a request in two segments still comes in."""
    frame = encoded(MetadataRequest(topics=None), 9)
    with ExitStack() as stack:
        for _ in range(520):
            raw = stack.enter_context(connect(victim))
            raw.sendall(struct.pack(">i", REQUEST_BYTES_MAX))
        bystander.wait_round()
        for _ in range(10):
            raw = stack.enter_context(connect(victim))
            raw.sendall(frame[:10])
            time.sleep(0.02)
            assert answered(raw, frame[10:]) is not None


def test_slow_senders(victim: Cluster, bystander: Bystander) -> None:
    """Two hundred peers send a request byte by byte; each gets its answer in the end."""
    frame = encoded(ApiVersionsRequest(), 0)
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(victim)) for _ in range(200)]
        for byte in frame[:-1]:
            for raw in sockets:
                raw.send(bytes([byte]))
        bystander.wait_round()
        for raw in sockets:
            assert answered(raw, frame[-1:]) is not None


def test_a_storm_of_connections_comes_and_goes(victim: Cluster, bystander: Bystander) -> None:
    before = bystander.descriptors
    address = ("127.0.0.1", port_of(victim))
    reset_at_close = struct.pack("ii", 1, 0)
    with ExitStack() as stack:
        for batch in range(24):
            sockets = [stack.enter_context(socket.socket()) for _ in range(50)]
            for raw in sockets:
                raw.setblocking(False)
                raw.connect_ex(address)
            select.select([], sockets, [], 1)
            for number, raw in enumerate(sockets):
                if number % 3 == 0:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_at_close)
                if batch > 5 or number % 3:
                    raw.close()
        bystander.wait_round()
    eventually(
        lambda: bystander.descriptors, lambda now: now <= before + 10, what="sockets to be closed"
    )


def test_peers_that_ask_and_never_read(victim: Cluster, bystander: Bystander) -> None:
    """Their answers must not pile up: the broker stops reading from such a peer."""
    topic = new_topic(victim.bootstrap, "never-read", max_message_bytes=str(20 << 20))
    for _ in range(5):
        sent = [Message(topic=topic, value=b"x" * (10 << 20))]
        produce(client_of("confluent"), victim.bootstrap, sent, max_bytes=20 << 20)
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=(
            FetchTopic(
                topic=topic,
                partitions=(
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1),
                ),
            ),
        ),
    )
    requests = (
        encoded(MetadataRequest(topics=None), 9) * 20_000,
        encoded(ApiVersionsRequest(), versions_of(ApiVersionsRequest)[-1]) * 20_000,
        encoded(fetch, 11) * 1000,
    )
    with ExitStack() as stack:
        for data in requests:
            for _ in range(4):
                raw = stack.enter_context(connect(victim))
                raw.setblocking(False)
                with suppress(BlockingIOError, ConnectionError):
                    raw.send(data)
        for _ in range(3):
            bystander.wait_round()


def test_refusals_are_counted_not_logged_each(victim: Cluster, bystander: Bystander) -> None:
    before = len(victim.logs(1))
    counted = refused_requests(victim)
    for _ in range(300):
        assert answer_to(victim, framed(b"\xff" * 30)) is None
    assert refused_requests(victim) == counted + 300
    logged = victim.logs(1)[before:]
    assert logged.count("\n") < 20, "not a line for each"


def refused_requests(cluster: Cluster) -> int:
    with urlopen(f"http://{cluster.metrics_address(1)}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'ottla_refused_total\{listener="\w+",reason="request"\} (\d+)', text)
    assert found
    return sum(map(int, found))
