"""Produced bytes that are no batches, lie about themselves or explode are refused and not stored.

Method: hand-made batches over a raw connection to a broker of its own, while a bystander uses it
as intended and its memory is watched. After each refusal the topic still ends where it ended.
"""

import struct
import time
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest

from ottla.base.errors import Error
from ottla.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, parse_header
from ottla.records.builder import encode_batch, seal
from ottla.records.compression import Codec
from ottla.testing import Cluster

from . import stored
from .bystander import Bystander
from .clients import client_of, read_partition
from .conftest import new_topic
from .raw import (
    PRODUCE_VERSION,
    answer_to,
    connect,
    encoded,
    framed,
    header,
    produce_bytes,
    produce_request,
)

pytestmark = pytest.mark.drawn(3)

GOOD = encode_batch([(b"key", b"value", (), int(time.time() * 1000))] * 3)
HEADER = parse_header(GOOD)
MEGABYTE = 1 << 20

LOOKED_INTO = {
    "plain": {},
    "recompressed": {"compression_type": "zstd"},
    "decompressed": {"compression_type": "uncompressed"},
    "compacted": {"cleanup_policy": "compact"},
    "timed": {"message_timestamp_before_max_ms": "1000000"},
}
"""Topics for whose sake the broker decompressed what it is sent before it did so for all."""


def lying(**fields: int) -> bytes:
    """Return the good batch with other header fields, and a checksum that is right."""
    return seal(HEADER._replace(**fields), GOOD[61:])


def with_length(length: int) -> bytes:
    return GOOD[:8] + struct.pack(">i", length) + GOOD[12:]


def flipped(position: int) -> bytes:
    data = bytearray(GOOD)
    data[position] ^= 0x10
    return bytes(data)


WRONG: dict[str, tuple[bytes, Error]] = {
    "nothing": (b"", Error.INVALID_RECORD),
    "less than a header": (GOOD[:40], Error.INVALID_RECORD),
    "one byte short": (GOOD[:-1], Error.INVALID_RECORD),
    "one byte too many": (GOOD + b"x", Error.INVALID_RECORD),
    "two batches": (GOOD * 2, Error.INVALID_RECORD),
    "a flipped bit of a value": (flipped(-3), Error.CORRUPT_MESSAGE),
    "a flipped bit of the checksum": (flipped(17), Error.CORRUPT_MESSAGE),
    "a flipped bit of a timestamp": (flipped(30), Error.CORRUPT_MESSAGE),
    "length 0": (with_length(0), Error.INVALID_RECORD),
    "length -1": (with_length(-1), Error.INVALID_RECORD),
    "length 2^31 - 1": (with_length(2**31 - 1), Error.INVALID_RECORD),
    "magic 0": (GOOD[:16] + b"\x00" + GOOD[17:], Error.INVALID_RECORD),
    "magic 1": (GOOD[:16] + b"\x01" + GOOD[17:], Error.INVALID_RECORD),
    "magic 3": (GOOD[:16] + b"\x03" + GOOD[17:], Error.INVALID_RECORD),
    "no records": (lying(record_count=0, last_offset_delta=0), Error.INVALID_RECORD),
    "-1 records": (lying(record_count=-1), Error.CORRUPT_MESSAGE),
    "fewer records than offsets": (lying(record_count=2), Error.INVALID_RECORD),
    "a thousand records": (lying(record_count=1000, last_offset_delta=999), Error.INVALID_RECORD),
    "2^31 - 1 records": (
        lying(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        Error.INVALID_RECORD,
    ),
    "base offset 5": (lying(base_offset=5), Error.INVALID_RECORD),
    "base offset -1": (lying(base_offset=-1), Error.CORRUPT_MESSAGE),
    "control": (lying(attributes=CONTROL_BIT), Error.INVALID_RECORD),
    "transactional": (
        lying(attributes=TRANSACTIONAL_BIT, producer_id=1, producer_epoch=0, base_sequence=0),
        Error.INVALID_TXN_STATE,
    ),
    "a producer without sequence": (lying(producer_id=1, producer_epoch=0), Error.INVALID_RECORD),
    "codec 7": (lying(attributes=7), Error.CORRUPT_MESSAGE),
    "from the far future": (lying(max_timestamp=2**63 - 1), Error.INVALID_TIMESTAMP),
}


def test_wrong_batches_are_refused_and_not_stored(victim: Cluster, bystander: Bystander) -> None:
    topic = new_topic(victim.bootstrap, "wrong")
    assert produce_bytes(victim, topic, GOOD) == Error.NONE
    found = {name: produce_bytes(victim, topic, data) for name, (data, _) in WRONG.items()}
    assert found == {name: error for name, (_, error) in WRONG.items()}
    assert produce_bytes(victim, topic, GOOD) == Error.NONE
    assert [each.base_offset for each in stored.batches(victim, topic)] == [0, 3]
    assert len(read_partition(client_of("confluent"), victim.bootstrap, topic, 6)) == 6


def test_without_acknowledgement_a_wrong_batch_ends_the_connection(
    victim: Cluster, bystander: Bystander
) -> None:
    topic = new_topic(victim.bootstrap, "unacknowledged")
    request = produce_request(topic, flipped(-3), acks=0)
    assert answer_to(victim, encoded(request, PRODUCE_VERSION)) is None
    with connect(victim) as raw:
        raw.sendall(encoded(produce_request(topic, GOOD, acks=0), PRODUCE_VERSION))
        raw.sendall(encoded(produce_request(topic, GOOD), PRODUCE_VERSION, correlation_id=7))
        assert raw.recv(8)[4:] == struct.pack(">i", 7)
    assert [each.base_offset for each in stored.batches(victim, topic)] == [0, 3]


def gzip_bomb(megabytes: int) -> bytes:
    coder = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(MEGABYTE)
    return b"".join(coder.compress(zeros) for _ in range(megabytes)) + coder.flush()


BOMBS: dict[Codec, Callable[[], bytes]] = {
    Codec.GZIP: lambda: gzip_bomb(200),
    Codec.SNAPPY: lambda: bytes(cramjam.snappy.compress_raw(bytes(20 * MEGABYTE))),
    Codec.LZ4: lambda: bytes(lz4.frame.compress(bytes(240 * MEGABYTE))),
    Codec.ZSTD: lambda: bytes(cramjam.zstd.compress(bytes(500 * MEGABYTE))),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_bombs_do_not_go_off_in_the_broker(
    codec: Codec, victim: Cluster, bystander: Bystander
) -> None:
    """Under a megabyte each: the broker looks inside, and stops early."""
    bomb = seal(HEADER._replace(attributes=codec), BOMBS[codec]())
    for name, config in LOOKED_INTO.items():
        topic = new_topic(victim.bootstrap, name, 1, **config)
        for _ in range(2):
            error = produce_bytes(victim, topic, bomb)
            assert error in (Error.MESSAGE_TOO_LARGE, Error.INVALID_RECORD), name
        assert stored.batches(victim, topic) == []


def test_producers_that_go_on_and_on(victim: Cluster, bystander: Bystander) -> None:
    """A thousand producer ids in one partition, each with one batch of its own."""
    topic = new_topic(victim.bootstrap, "many-producers")
    for number in range(1000):
        batch = lying(producer_id=10**9 + number, producer_epoch=0, base_sequence=0)
        assert produce_bytes(victim, topic, batch) == Error.NONE


def test_sequences_that_do_not_fit_are_refused(victim: Cluster, bystander: Bystander) -> None:
    topic = new_topic(victim.bootstrap, "sequences")

    def batch(epoch: int, sequence: int) -> bytes:
        return lying(producer_id=7, producer_epoch=epoch, base_sequence=sequence)

    assert produce_bytes(victim, topic, batch(1, 0)) == Error.NONE
    assert produce_bytes(victim, topic, batch(1, 0)) == Error.NONE  # A retry: stored once.
    assert produce_bytes(victim, topic, batch(1, 9)) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce_bytes(victim, topic, batch(0, 3)) == Error.INVALID_PRODUCER_EPOCH
    assert produce_bytes(victim, topic, batch(1, 3)) == Error.NONE
    assert [each.base_offset for each in stored.batches(victim, topic)] == [0, 3]


def test_produce_requests_that_are_cut_within_their_batch(
    victim: Cluster, bystander: Bystander
) -> None:
    topic = new_topic(victim.bootstrap, "cut")
    frame = encoded(produce_request(topic, GOOD), PRODUCE_VERSION)
    for end in range(4, len(frame) - 4):
        assert answer_to(victim, framed(frame[4:end])) is None
    assert answer_to(victim, framed(header(0, 9))) is None
    assert stored.batches(victim, topic) == []
