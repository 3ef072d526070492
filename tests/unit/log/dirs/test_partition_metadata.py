"""`partition.metadata`, byte for byte. Method: content by hand and damage of each kind."""

import pytest

from ottla.base.ids import parse_uuid
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.dirs.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
    is_unwritten,
)

TOPIC_ID = parse_uuid("vPrf8GOdSvuGKTXo8bVbuQ")
CONTENT = b"version: 0\ntopic_id: vPrf8GOdSvuGKTXo8bVbuQ"


def test_content() -> None:
    assert encode_partition_metadata(TOPIC_ID) == CONTENT
    assert decode_partition_metadata(CONTENT) == TOPIC_ID
    assert decode_partition_metadata(CONTENT + b"\n") == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0\n",
        b"topic_id: vPrf8GOdSvuGKTXo8bVbuQ",
        CONTENT[:-1],
        CONTENT.replace(b"0", b"1"),
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version 0\ntopic_id vPrf8GOdSvuGKTXo8bVbuQ",
        b"\xff",
    ],
)
def test_damage(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        decode_partition_metadata(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"vers",
        CONTENT[:-1],
        bytes(43),
        bytes(44),
        bytes(30) + CONTENT[30:],
        CONTENT[:30] + bytes(13),
        CONTENT[:10] + bytes(10) + CONTENT[20:],
    ],
)
def test_a_power_loss_leaves_a_part(data: bytes) -> None:
    assert is_unwritten(data)


@pytest.mark.parametrize(
    "data",
    [
        CONTENT,
        CONTENT + b"\n",
        CONTENT.replace(b"0", b"1"),
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"garbage",
        b"\0\0garbage",
        CONTENT[:-1] + b"!",
        CONTENT[:-1] + b"\0!",
        CONTENT + b"more",
        bytes(44) + b"x",
    ],
)
def test_damage_is_no_part(data: bytes) -> None:
    assert not is_unwritten(data)
