"""The bytes of a manifest: JSON lines in UTF-8.

The first line is the header, then comes a line for each removed and each added segment, and the
last has the CRC32C of all bytes before it. A restore, Spark (`spark.read.json`) or an operator with
`jq` can read manifests without this code, and they compress well. Each line names its type; lines
and fields that a reader does not know are skipped, so both can be added.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from crc32c import crc32c

from ottla.base.ids import Uuid, parse_uuid, uuid_text
from ottla.tiered.manifest import Manifest
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata, SegmentState, check_segment
from ottla.wire.primitives import Buffer

VERSION: Final = 1

MANIFEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Some 200,000 segments."""

_INT64_MAX: Final = 2**63 - 1


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the object's content."""
    lines: list[dict[str, Any]] = [_header(manifest)]
    lines += ({"type": "removed", "segmentId": uuid_text(each)} for each in manifest.removed)
    lines += (_segment_line(each) for each in manifest.added)
    body = b"".join(_line(each) for each in lines)
    return body + _line({"type": "end", "crc32c": crc32c(body)})


def decode_manifest_of(data: Buffer, *, topic_id: Uuid, sequence: int) -> Manifest:
    """Return the manifest in an object whose name says these. Raises: ValueError."""
    manifest = decode_manifest(data)
    if (manifest.topic_id, manifest.sequence) != (topic_id, sequence):
        raise ValueError("it is another manifest")
    return manifest


def decode_manifest(data: Buffer) -> Manifest:
    """Return the manifest in an object. Raises: ValueError."""
    content = bytes(data)
    body, end = _split(content)
    if end.get("type") != "end" or end.get("crc32c") != crc32c(body):
        raise ValueError("a manifest fails its checksum")
    header, *lines = [_parse(each) for each in body.splitlines()] or [{}]
    if header.get("type") != "manifest" or header.get("version") != VERSION:
        raise ValueError(f"a manifest of an unknown version: {header.get('version')!r}")
    removed = tuple(_uuid(each, "segmentId") for each in lines if each.get("type") == "removed")
    added = tuple(_to_segment(header, each) for each in lines if each.get("type") == "segment")
    if (len(added), len(removed)) != (_int(header, "added"), _int(header, "removed")):
        raise ValueError("a manifest lacks some of its segments")
    manifest = Manifest(
        topic=_text(header, "topic"),
        topic_id=_uuid(header, "topicId"),
        partition=_int(header, "partition"),
        sequence=_int(header, "sequence"),
        leader_epoch=_int(header, "leaderEpoch"),
        tiered_epoch=_int(header, "tieredEpoch"),
        floor=_int(header, "floor"),
        log_start_offset=_int(header, "logStartOffset"),
        epochs=_epochs(header),
        is_base=_bool(header, "base"),
        added=added,
        removed=removed,
        partition_count=None if "partitionCount" not in header else _int(header, "partitionCount"),
        configs=None if "configs" not in header else _configs(header),
    )
    if _int(header, "predecessor", least=-1) != manifest.predecessor:
        raise ValueError(f"manifest {manifest.sequence} does not follow the one before it")
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    if manifest.is_base and manifest.removed:
        raise ValueError("a base manifest removes segments")
    if len({each.segment_id for each in manifest.added}) < len(manifest.added):
        raise ValueError("a manifest adds a segment twice")
    starts = [epoch for epoch, _ in manifest.epochs], [start for _, start in manifest.epochs]
    if any(sorted(set(each)) != each for each in starts):
        raise ValueError("the leader epochs of a manifest do not ascend")
    for segment in manifest.added:
        check_segment(segment)
        if segment.leader_epoch > manifest.leader_epoch:
            raise ValueError("a manifest lists a segment of a newer leader epoch")
        is_dead = manifest.floor and segment.tiered_epoch <= manifest.floor
        if is_dead or segment.tiered_epoch > manifest.tiered_epoch:
            raise ValueError("a manifest lists a segment of another tiered epoch")


def _header(manifest: Manifest) -> dict[str, Any]:
    header: dict[str, Any] = {
        "type": "manifest",
        "version": VERSION,
        "topic": manifest.topic,
        "topicId": uuid_text(manifest.topic_id),
        "partition": manifest.partition,
        "sequence": manifest.sequence,
        "predecessor": manifest.predecessor,
        "base": manifest.is_base,
        "leaderEpoch": manifest.leader_epoch,
        "tieredEpoch": manifest.tiered_epoch,
        "floor": manifest.floor,
        "logStartOffset": manifest.log_start_offset,
        "epochs": manifest.epochs,
        "added": len(manifest.added),
        "removed": len(manifest.removed),
    }
    if manifest.partition_count is not None:
        header["partitionCount"] = manifest.partition_count
    if manifest.configs is not None:
        header["configs"] = dict(sorted(manifest.configs.items()))
    return header


def _segment_line(segment: SegmentMetadata) -> dict[str, Any]:
    assert segment.state is SegmentState.COPY_FINISHED
    custom = segment.custom_metadata
    return {
        "type": "segment",
        "segmentId": uuid_text(segment.segment_id),
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp_ms,
        "brokerId": segment.broker_id,
        "eventTimestampMs": segment.event_timestamp_ms,
        "sizeBytes": segment.size_bytes,
        "epochs": segment.epochs,
        "leaderEpoch": segment.leader_epoch,
        "tieredEpoch": segment.tiered_epoch,
        "txnIndexEmpty": segment.txn_index_empty,
        "customMetadata": None if custom is None else b64encode(custom).decode("ascii"),
    }


def _to_segment(header: Mapping[str, Any], line: Mapping[str, Any]) -> SegmentMetadata:
    custom = line.get("customMetadata")
    return SegmentMetadata(
        topic=_text(header, "topic"),
        topic_id=_uuid(header, "topicId"),
        partition=_int(header, "partition"),
        segment_id=_uuid(line, "segmentId"),
        start_offset=_int(line, "startOffset"),
        end_offset=_int(line, "endOffset"),
        max_timestamp_ms=_int(line, "maxTimestampMs", least=-1),
        broker_id=_int(line, "brokerId", least=-1),
        event_timestamp_ms=_int(line, "eventTimestampMs", least=-1),
        size_bytes=_int(line, "sizeBytes"),
        epochs=_epochs(line),
        state=SegmentState.COPY_FINISHED,
        leader_epoch=_int(line, "leaderEpoch", least=-1),
        tiered_epoch=_int(line, "tieredEpoch", least=-1),
        txn_index_empty=_bool(line, "txnIndexEmpty"),
        custom_metadata=None if custom is None else _bytes(line, "customMetadata"),
    )


def _line(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _split(content: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes that the checksum is of, and the last line."""
    if not content.endswith(b"\n"):
        raise ValueError("a manifest ends too early")
    start = content.rfind(b"\n", 0, -1) + 1
    return content[:start], _parse(content[start:])


def _parse(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("a manifest is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("a line of a manifest is not an object")
    return value


def _int(line: Mapping[str, Any], key: str, *, least: int = 0) -> int:
    value = line.get(key)
    if type(value) is not int or not least <= value <= _INT64_MAX:
        raise ValueError(f"{key} of a manifest is {value!r}")
    return value


def _bool(line: Mapping[str, Any], key: str) -> bool:
    value = line.get(key)
    if type(value) is not bool:
        raise ValueError(f"{key} of a manifest is {value!r}")
    return value


def _text(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    if type(value) is not str:
        raise ValueError(f"{key} of a manifest is {value!r}")
    return value


def _bytes(line: Mapping[str, Any], key: str) -> bytes:
    return b64decode(_text(line, key), validate=True)


def _uuid(line: Mapping[str, Any], key: str) -> Uuid:
    return parse_uuid(_text(line, key))


def _epochs(line: Mapping[str, Any]) -> Epochs:
    value = line.get("epochs")
    if not isinstance(value, list):
        raise ValueError(f"epochs of a manifest are {value!r}")
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or {*map(type, pair)} != {int}:
            raise ValueError(f"epochs of a manifest are {value!r}")
        if min(pair) < 0 or max(pair) > _INT64_MAX:
            raise ValueError(f"epochs of a manifest are {value!r}")
    return tuple((epoch, start) for epoch, start in value)


def _configs(line: Mapping[str, Any]) -> dict[str, str]:
    value = line.get("configs")
    if not isinstance(value, dict) or not all(type(each) is str for each in value.values()):
        raise ValueError(f"configs of a manifest are {value!r}")
    return value
