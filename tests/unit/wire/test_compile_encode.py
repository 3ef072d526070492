"""Encoding: hand-made bytes, what a version cannot say, and records that are not copied.

Method: small declarations of our own, whose bytes can be written down from the protocol guide.
"""

import struct
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.codec import decode, encode, encode_chunks
from ottla.wire.errors import EncodeError
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Records,
    array,
    field,
    message,
    struct_of,
)

TOPIC_ID = Uuid(bytes(range(16)))


@dataclass(frozen=True, slots=True)
class FileSlice:
    """What the host sends from a file."""

    length: int


@struct_of
class Node:
    node_id: int = field(INT32)
    host: str | None = field(STRING, nullable="0+", default=None)


@message(key=9000, versions="0-3", flexible="2+")
class Example:
    flag: bool = field(BOOL)
    small: int = field(INT8, default=0)
    name: str = field(STRING)
    blob: bytes | None = field(BYTES, versions="1+", nullable="2+", default=b"")
    nodes: tuple[Node, ...] | None = field(array(Node), nullable="1+")
    ids: tuple[int, ...] = field(array(INT64), default=())
    hint: int = field(INT16, versions="3+", default=-1, ignorable=True)
    topic_id: Uuid = field(UUID, versions="2+", tag=1, default=NO_UUID)
    leader: Node = field(Node, versions="3+", tag=0, default=Node(node_id=-1))


@message(versions="0", flexible="0+")
class Kinds:
    port: int = field(UINT16)
    crc: int = field(UINT32)
    ratio: float = field(FLOAT64)
    names: tuple[str, ...] = field(array(STRING))
    ids: tuple[Uuid, ...] = field(array(UUID))
    flags: tuple[bool, ...] = field(array(BOOL))
    node: Node | None = field(Node, nullable="0+")


@message(versions="0-1", flexible="1+")
class Holder:
    before: int = field(INT8)
    records: Records | None = field(RECORDS, nullable="1+")
    after: int = field(INT8)


EXAMPLE = Example(flag=True, name="ab", nodes=(Node(node_id=5),))


def test_fixed_lengths() -> None:
    assert encode(EXAMPLE, 0).hex(" ") == (
        "01 00 00 02 61 62"  # flag, small, name
        " 00 00 00 01 00 00 00 05 ff ff"  # one node without a host
        " 00 00 00 00"  # no ids
    )


def test_compact_lengths() -> None:
    message = replace(EXAMPLE, small=-1, blob=b"\x07", ids=(1,), hint=9)
    assert encode(message, 3).hex(" ") == (
        "01 ff 03 61 62"
        " 02 07"  # blob
        " 02 00 00 00 05 00 00"  # one node: null host, no tagged fields
        " 02 00 00 00 00 00 00 00 01"  # ids
        " 00 09 00"  # hint, no tagged fields
    )


def test_tagged_fields_are_sorted_and_sized() -> None:
    message = replace(EXAMPLE, nodes=(), topic_id=TOPIC_ID, leader=Node(node_id=1, host="h"))
    assert (
        encode(message, 3)
        .hex(" ")
        .endswith(
            "02"  # Two tagged fields: the struct, with its own empty ones; the id.
            " 00 07 00 00 00 01 02 68 00"
            " 01 10 " + TOPIC_ID.hex(" ")
        )
    )


def test_tagged_fields_at_their_default_are_not_written() -> None:
    equal_not_identical = Node(node_id=-1)
    assert encode(replace(EXAMPLE, leader=equal_not_identical), 3) == encode(EXAMPLE, 3)


def test_all_kinds() -> None:
    kinds = Kinds(
        port=65_535,
        crc=0xFFFF_FFFF,
        ratio=1.5,
        names=("a", "é"),
        ids=(TOPIC_ID,),
        flags=(True, False),
        node=Node(node_id=1, host=""),
    )
    encoded = encode(kinds, 0)
    assert (
        encoded.hex(" ")
        == (
            "ff ff ff ff ff ff 3f f8 00 00 00 00 00 00"
            " 03 02 61 03 c3 a9"
            " 02 " + TOPIC_ID.hex(" ") + " 03 01 00"
            " 01 00 00 00 01 01 00"  # Present (KIP-893), id, empty host, no tagged fields.
            " 00"
        )
    )
    assert decode(Kinds, encoded, 0) == kinds
    assert encode(replace(kinds, node=None), 0).endswith(b"\x01\x00\xff\x00")


@pytest.mark.parametrize("size", [0, 31, 32, 126, 127, 128, 20_000])
def test_arrays_and_strings_of_any_length(size: int) -> None:
    message = replace(EXAMPLE, name="x" * size, ids=tuple(range(size)))
    for version in range(4):
        assert decode(Example, encode(message, version), version) == message


@pytest.mark.parametrize(
    ("change", "version", "complaint"),
    [
        ({"blob": b"x"}, 0, "Example.blob"),
        ({"topic_id": TOPIC_ID}, 1, "Example.topic_id"),
        ({"leader": Node(node_id=1)}, 2, "Example.leader"),
        ({"nodes": None}, 0, "Example version 0"),
        ({"blob": None}, 1, "Example version 1"),
        ({"name": None}, 3, "Example version 3"),
        ({"small": 128}, 3, "Example version 3"),
        ({"ids": (1 << 63,)}, 3, "Example version 3"),
        ({"ids": 5}, 3, "Example version 3"),
        ({"nodes": (None,)}, 3, "Example version 3"),
        ({"name": b"bytes"}, 3, "Example version 3"),
        ({"name": "x" * 40_000}, 0, "Example version 0"),
        ({"name": "\ud800"}, 3, "Example version 3"),
        ({"topic_id": b"short"}, 3, "16 bytes"),
        ({}, 4, "versions 0 to 3, not 4"),
        ({}, -1, "versions 0 to 3, not -1"),
    ],
)
def test_values_that_a_version_has_no_field_for(
    change: dict[str, object], version: int, complaint: str
) -> None:
    with pytest.raises(EncodeError, match=complaint):
        encode(replace(EXAMPLE, **change), version)  # type: ignore[arg-type]


def test_ignorable_fields_are_dropped_where_a_version_lacks_them() -> None:
    assert encode(replace(EXAMPLE, hint=9), 2) == encode(EXAMPLE, 2)
    assert decode(Example, encode(replace(EXAMPLE, hint=9), 2), 2).hint == -1


def chunk_bytes(chunk: object) -> bytes:
    """Stand in for sending a chunk: a slice sends its length of one letter."""
    return b"F" * chunk.length if isinstance(chunk, FileSlice) else bytes(chunk)  # type: ignore[call-overload]


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=5),
            st.binary(max_size=5).map(bytearray),
            st.binary(max_size=5).map(lambda data: memoryview(data)),
            st.integers(0, 300).map(FileSlice),
        ),
        max_size=4,
    ),
    st.sampled_from((0, 1)),
)
def test_chunks_encode_as_bytes_do(records: list[object], version: int) -> None:
    whole = b"".join(map(chunk_bytes, records))
    expected = encode(Holder(before=1, records=whole, after=2), version)
    chunks = encode_chunks(Holder(before=1, records=records, after=2), version)  # type: ignore[arg-type]
    assert b"".join(map(chunk_bytes, chunks)) == expected
    assert [c for c in chunks if isinstance(c, FileSlice)] == [
        c for c in records if isinstance(c, FileSlice) and c.length
    ]


def test_records_are_passed_on_uncopied() -> None:
    batch, part = b"b" * 100, FileSlice(1 << 20)
    partitions = (
        PartitionData(partition_index=0, error_code=0, high_watermark=1, records=batch),
        PartitionData(partition_index=1, error_code=0, high_watermark=1, records=(part,)),
        PartitionData(partition_index=2, error_code=6, high_watermark=1, records=None),
    )
    topic = FetchableTopicResponse(topic="t", partitions=partitions)
    chunks = encode_chunks(FetchResponse(responses=(topic,)), 12)
    assert len(chunks) == 5
    assert chunks[1] is batch
    assert chunks[3] is part
    assert isinstance(chunks[2], bytes)
    # Its size in a compact length, one more than it: 1 MiB + 1 in seven-bit groups.
    assert chunks[2].endswith(b"\x81\x80\x40")


def test_views_of_wider_items_count_bytes() -> None:
    wide = memoryview(struct.pack("4i", 1, 2, 3, 4)).cast("i")
    chunks = encode_chunks(Holder(before=1, records=wide, after=2), 0)
    assert chunks[0] == b"\x01\x00\x00\x00\x10"


def test_slices_cannot_become_bytes() -> None:
    with pytest.raises(EncodeError):
        encode(Holder(before=1, records=(FileSlice(3),), after=2), 0)


def test_chunks_that_are_neither_bytes_nor_slices() -> None:
    with pytest.raises(EncodeError):
        encode(Holder(before=1, records=("text",), after=2), 0)  # type: ignore[arg-type]


def test_records_are_null_only_where_allowed() -> None:
    assert encode(Holder(before=1, records=None, after=2), 1) == b"\x01\x00\x02\x00"
    with pytest.raises(EncodeError):
        encode(Holder(before=1, records=None, after=2), 0)


def test_empty_message_is_one_chunk() -> None:
    assert encode_chunks(ProduceRequest(acks=0, timeout_ms=0, topic_data=()), 3) == [
        encode(ProduceRequest(acks=0, timeout_ms=0, topic_data=()), 3)
    ]


def test_decoded_records_are_a_view_of_what_was_received() -> None:
    part = PartitionProduceData(index=0, records=b"batch")
    topic = TopicProduceData(name="t", partition_data=(part,))
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=(topic,))
    received = bytearray(encode(request, 9))
    decoded = decode(ProduceRequest, received, 9)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0:1] = b"B"  # As the broker does when it stamps the base offset.
    assert b"Batch" in received
