"""The bytes of manifests: as other readers find them, read back, and damaged."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import decode_manifest, encode_manifest
from tests.unit.tiered.support import (
    FINISHED,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    segment,
    segment_id,
)

BASE = Manifest(
    topic=TOPIC,
    topic_id=TOPIC_ID,
    partition=PARTITION,
    sequence=100,
    leader_epoch=5,
    tiered_epoch=2,
    floor=1,
    log_start_offset=3,
    epochs=((1, 0), (5, 4)),
    is_base=True,
    added=(
        segment(
            1, 0, 9, ((1, 0), (5, 4)), state=FINISHED, tiered_epoch=2, custom_metadata=b"\x00\xff"
        ),
        segment(2, 10, 19, ((5, 10),), state=FINISHED, leader_epoch=5, tiered_epoch=2),
    ),
    partition_count=12,
    configs={"retention.ms": "1000", "cleanup.policy": "delete"},
)
DELTA = replace(
    BASE,
    sequence=101,
    is_base=False,
    added=BASE.added[1:],
    removed=(segment_id(1), segment_id(9)),
    partition_count=None,
    configs=None,
)


@pytest.mark.parametrize("manifest", [BASE, DELTA, replace(BASE, added=(), sequence=0)])
def test_round_trip(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert decode_manifest(memoryview(encode_manifest(manifest))) == manifest


def test_what_other_readers_find() -> None:
    header, first, second, end = map(json.loads, encode_manifest(BASE).decode().splitlines())
    assert header == {
        "type": "manifest",
        "version": 1,
        "topic": "orders",
        "topicId": "AQIDBAUGBwgJCgsMDQ4PEA",
        "partition": 3,
        "sequence": 100,
        "predecessor": 99,
        "base": True,
        "leaderEpoch": 5,
        "tieredEpoch": 2,
        "floor": 1,
        "logStartOffset": 3,
        "epochs": [[1, 0], [5, 4]],
        "added": 2,
        "removed": 0,
        "partitionCount": 12,
        "configs": {"cleanup.policy": "delete", "retention.ms": "1000"},
    }
    assert first == {
        "type": "segment",
        "segmentId": "AAAAAAAAAAAAAAAAAAAAAQ",
        "startOffset": 0,
        "endOffset": 9,
        "maxTimestampMs": 1000,
        "brokerId": 7,
        "eventTimestampMs": 2000,
        "sizeBytes": 100,
        "epochs": [[1, 0], [5, 4]],
        "leaderEpoch": 1,
        "tieredEpoch": 2,
        "txnIndexEmpty": True,
        "customMetadata": "AP8=",
    }
    assert second["customMetadata"] is None
    assert end["type"] == "end"
    assert json.loads(encode_manifest(DELTA).splitlines()[1]) == {
        "type": "removed",
        "segmentId": "AAAAAAAAAAAAAAAAAAAAAQ",
    }


def test_every_damage_is_noticed() -> None:
    data = encode_manifest(DELTA)
    for position in range(len(data)):
        with pytest.raises(ValueError):
            decode_manifest(data[:position])
        damaged = bytearray(data)
        damaged[position] ^= 0x04
        with pytest.raises(ValueError):
            decode_manifest(bytes(damaged))


def rewritten(change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """Return the base with its lines changed and a checksum that fits."""
    lines = [json.loads(each) for each in encode_manifest(BASE).splitlines()[:-1]]
    change(lines)
    body = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    return body + json.dumps({"type": "end", "crc32c": crc32c(body)}).encode() + b"\n"


def test_unknown_lines_and_fields_are_skipped() -> None:
    def change(lines: list[dict[str, Any]]) -> None:
        lines[0]["compression"] = "none"
        lines[1]["encryption"] = {"key": 1}
        lines.append({"type": "checkpoint", "at": [1, 2]})

    assert decode_manifest(rewritten(change)) == BASE


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        (0, "type", "segment"),
        (0, "version", 2),
        (0, "topic", 7),
        (0, "topicId", "x"),
        (0, "partition", -1),
        (0, "partition", True),
        (0, "partition", "3"),
        (0, "sequence", 1.5),
        (0, "sequence", 2**63),
        (0, "predecessor", 98),
        (0, "base", 1),
        (0, "leaderEpoch", 0),  # Older than the second segment's.
        (0, "tieredEpoch", 1),
        (0, "floor", 2),
        (0, "logStartOffset", None),
        (0, "epochs", [[1, 0], [1, 4]]),
        (0, "epochs", [[1, 4], [2, 4]]),
        (0, "epochs", [[1]]),
        (0, "epochs", [1, 0]),
        (0, "epochs", [["1", 0]]),
        (0, "epochs", {}),
        (0, "added", 3),
        (0, "removed", 1),
        (0, "partitionCount", "x"),
        (0, "configs", {"a": 1}),
        (0, "configs", []),
        (1, "segmentId", "AAAAAAAAAAAAAAAAAAAAAg"),  # The second one's.
        (1, "startOffset", 10),
        (1, "endOffset", -1),
        (1, "epochs", []),
        (1, "epochs", [[1, -1]]),
        (1, "sizeBytes", -5),
        (1, "txnIndexEmpty", 0),
        (1, "customMetadata", "="),
        (1, "customMetadata", 5),
        (1, "type", "removed"),
    ],
)
def test_manifests_that_contradict_themselves(line: int, field: str, value: object) -> None:
    with pytest.raises(ValueError):
        decode_manifest(rewritten(lambda lines: lines[line].__setitem__(field, value)))


@pytest.mark.parametrize("field", ["topicId", "sequence", "base", "floor", "epochs", "added"])
def test_missing_fields(field: str) -> None:
    with pytest.raises(ValueError):
        decode_manifest(rewritten(lambda lines: lines[0].pop(field)))


@pytest.mark.parametrize("body", [b"", b"[]\n", b"{}\n", b"7\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_other_content(body: bytes) -> None:
    end = json.dumps({"type": "end", "crc32c": crc32c(body)}).encode() + b"\n"
    for data in (body, body + end):
        with pytest.raises(ValueError):
            decode_manifest(data)


@given(st.binary(max_size=100))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_manifest(data)
