"""The public codec functions: offsets, kinds of buffer, and what is compiled once.

Method: one small message of the protocol; its bytes are checked elsewhere.
"""

from collections.abc import Generator
from typing import TypeVar

import pytest

from ottla.base.limits import ELEMENTS_PER_STEP
from ottla.wire.codec import (
    PARTS_JOINED_MIN,
    decode,
    decode_in_steps,
    encode,
    encode_chunks,
    encode_parts_in_steps,
    holds_records,
    records_view,
)
from ottla.wire.errors import EncodeError, TooManyElementsError, WireError
from ottla.wire.messages.fetch_snapshot import FetchSnapshotResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import spec_of

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer(kind: type) -> None:
    assert decode(HeartbeatRequest, kind(encode(HEARTBEAT, 4)), 4) == HEARTBEAT


def test_offset() -> None:
    assert decode(HeartbeatRequest, b"head" + encode(HEARTBEAT, 4), 4, 4) == HEARTBEAT
    with pytest.raises(WireError):
        decode(HeartbeatRequest, b"head", 4, 4)


def test_bytes_that_follow_are_refused_unless_the_caller_is_lenient() -> None:
    data = encode(HEARTBEAT, 4) + b"\x01\x00\x00"
    with pytest.raises(WireError, match="3 bytes too many"):
        decode(HeartbeatRequest, data, 4)
    assert decode(HeartbeatRequest, data, 4, lenient=True) == HEARTBEAT


def test_chunks_without_records() -> None:
    assert encode_chunks(HEARTBEAT, 4) == [encode(HEARTBEAT, 4)]


def test_unknown_versions_raise_encode_error() -> None:
    with pytest.raises(EncodeError, match="not 5"):
        encode(HEARTBEAT, 5)
    with pytest.raises(EncodeError, match="not 5"):
        decode(HeartbeatRequest, b"", 5)


def test_which_messages_hold_records() -> None:
    assert holds_records(spec_of(ProduceRequest))
    assert holds_records(spec_of(FetchSnapshotResponse))
    assert not holds_records(spec_of(HeartbeatResponse))


def test_records_view() -> None:
    assert bytes(records_view(None)) == b""
    assert bytes(records_view(memoryview(b"abc"))) == b"abc"
    with pytest.raises(AssertionError):
        records_view((b"abc",))


T = TypeVar("T")


def steps_of(steps: Generator[None, None, T]) -> tuple[int, T]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def names(count: int) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=f"topic-{number}") for number in range(count))
    )


@pytest.mark.parametrize("version", [1, 9, 12])
@pytest.mark.parametrize("count", [0, 1, ELEMENTS_PER_STEP, 5000])
def test_steps_make_the_same(count: int, version: int) -> None:
    data = encode(names(count), version)
    taken, parts = steps_of(encode_parts_in_steps(names(count), version))
    assert b"".join(parts[0]) == data
    assert taken >= count // ELEMENTS_PER_STEP
    assert len(parts[0]) < 2 * PARTS_JOINED_MIN, "what is ready is joined on the way"
    steps = decode_in_steps(MetadataRequest, b"head" + data, version, 4, elements_max=count)
    taken, message = steps_of(steps)
    assert message == names(count)
    assert taken >= count // ELEMENTS_PER_STEP


@pytest.mark.parametrize("cut", [3, 700])
def test_steps_end_where_the_bytes_do(cut: int) -> None:
    data = encode(names(100), 9)[:-cut]
    with pytest.raises(WireError):
        steps_of(decode_in_steps(MetadataRequest, data, 9, 0, elements_max=1000))


def test_elements_are_bounded() -> None:
    data = encode(names(101), 9)
    assert decode(MetadataRequest, data, 9, elements_max=101) == names(101)
    with pytest.raises(TooManyElementsError):
        decode(MetadataRequest, data, 9, elements_max=100)
    with pytest.raises(TooManyElementsError):
        steps_of(decode_in_steps(MetadataRequest, data, 9, 0, elements_max=100))


def test_elements_count_together_and_numbers_by_half() -> None:
    topics = tuple(
        OffsetFetchRequestTopic(name=str(number), partition_indexes=tuple(range(20)))
        for number in range(10)
    )
    data = encode(OffsetFetchRequest(group_id="g", topics=topics), 5)
    decode(OffsetFetchRequest, data, 5, elements_max=10 + 10 * 10)
    with pytest.raises(TooManyElementsError):
        decode(OffsetFetchRequest, data, 5, elements_max=10 + 10 * 10 - 1)
