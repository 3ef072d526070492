"""The public codec functions: offsets, kinds of buffer, and what is compiled once.

Method: one small message of the protocol; its bytes are checked elsewhere.
"""

import pytest

from ottla.wire.codec import decode, encode, encode_chunks, holds_records, records_view
from ottla.wire.errors import EncodeError, WireError
from ottla.wire.messages.fetch_snapshot import FetchSnapshotResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
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


def test_unknown_versions_are_our_own_bug() -> None:
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
