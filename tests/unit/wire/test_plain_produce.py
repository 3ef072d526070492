"""What is read by hand is what the general codec reads, and what is written is what it writes.

Method: requests of one batch, and any others; one is also cut short at every byte, and has each of
its bytes changed to every value.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header, encode_request, encode_response
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.plain_produce import VERSIONS, encode_success, read

from .strategies import many, messages

NAMES = st.sampled_from(("t", "é", "topic-1", "x" * 125, "y" * 126, "z" * 127, "w" * 249))
CLIENTS = st.sampled_from((None, "", "client-1", "é"))
RECORDS = st.sampled_from((b"r", b"s" * 61, bytes(126), bytes(127), bytes(20_000)))
INT16 = st.sampled_from((-1, 0, 1, 2))
INT32 = st.sampled_from((0, 1, -1, 2**31 - 1, -(2**31)))
INT64 = st.sampled_from((0, -1, 2**63 - 1))


@st.composite
def plain_requests(draw: st.DrawFn, version: int) -> ProduceRequest:
    data = PartitionProduceData(index=draw(INT32), records=draw(RECORDS))
    by_id = version >= 13
    topic = TopicProduceData(
        name="" if by_id else draw(NAMES),
        topic_id=Uuid(bytes(range(16))) if by_id else NO_UUID,
        partition_data=(data,),
    )
    return ProduceRequest(acks=draw(INT16), timeout_ms=draw(INT32), topic_data=(topic,))


def general(frame: bytes) -> ProduceRequest:
    header, body_at = decode_request_header(memoryview(frame))
    return decode(ProduceRequest, memoryview(frame), header.api_version, body_at, lenient=True)


def assert_is_same(frame: bytes) -> bool:
    """Check what is read by hand; return whether anything is."""
    found = read(memoryview(frame))
    if found is None:
        return False
    plain, records = found
    header, _ = decode_request_header(memoryview(frame))
    assert (plain.version, plain.correlation_id) == (header.api_version, header.correlation_id)
    request = general(frame)
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    assert request.transactional_id is None
    assert plain[2:7] == (
        request.acks,
        request.timeout_ms,
        topic.name,
        topic.topic_id,
        data.index,
    )
    assert data.records == records
    return True


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_requests_are_read(version: int) -> None:
    @many
    @given(plain_requests(version), CLIENTS)
    def check(request: ProduceRequest, client: str | None) -> None:
        frame = encode_request(request, version, 7, client)[4:]
        is_long = version in range(9, 13) and len(request.topic_data[0].name.encode()) > 126
        assert assert_is_same(frame) == (client != "é" and not is_long)

    check()


@pytest.mark.parametrize("version", range(3, 14))
def test_any_request_is_read_alike_or_not_at_all(version: int) -> None:
    @many
    @given(messages(ProduceRequest, version), CLIENTS)
    def check(request: ProduceRequest, client: str | None) -> None:
        assert_is_same(encode_request(request, version, 7, client)[4:])

    check()


@pytest.mark.parametrize("version", [5, 8, 9, 12, 13])
def test_damaged_requests_are_read_alike_or_not_at_all(version: int) -> None:
    """A byte that is changed may make another good request, but the same one for both."""
    data = PartitionProduceData(index=1, records=b"records")
    by_id = version >= 13
    topic = TopicProduceData(
        name="" if by_id else "topic",
        topic_id=Uuid(bytes(range(16))) if by_id else NO_UUID,
        partition_data=(data,),
    )
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=(topic,))
    frame = encode_request(request, version, 7, "client")[4:]
    assert assert_is_same(frame)
    for length in range(len(frame)):
        assert not assert_is_same(frame[:length])
    taken = 0
    for at in range(len(frame)):
        for value in range(256):
            changed = bytearray(frame)
            changed[at] = value
            taken += assert_is_same(bytes(changed))
    assert taken > 256  # Those of numbers, and of the records.
    assert not assert_is_same(frame + b"\0")


@pytest.mark.parametrize("version", VERSIONS)
def test_successes_are_written_as_by_the_codec(version: int) -> None:
    @many
    @given(plain_requests(version), INT64, INT64, INT64)
    def check(request: ProduceRequest, base: int, appended_ms: int, start: int) -> None:
        found = read(memoryview(encode_request(request, version, 7, "client")[4:]))
        if found is None:
            return
        (topic,) = request.topic_data
        response = ProduceResponse(
            responses=(
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=(
                        PartitionProduceResponse(
                            index=topic.partition_data[0].index,
                            error_code=0,
                            base_offset=base,
                            log_append_time_ms=appended_ms,
                            log_start_offset=start,
                        ),
                    ),
                ),
            )
        )
        expected = b"".join(encode_response(response, version, 7))
        assert encode_success(found[0], base, appended_ms, start) == expected

    check()


def test_other_apis_are_not_read() -> None:
    frame = bytearray(bytes(64))
    for key in range(1, 90):
        frame[:4] = key.to_bytes(2, "big") + b"\0\x09"
        assert read(memoryview(bytes(frame))) is None
    assert read(memoryview(b"")) is None
