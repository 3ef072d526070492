"""Decodes the records of internal topics to JSON: `dump-log`'s decoders.

A decoder takes a record and returns the texts of its key and payload; None leaves one out.
Source: DumpLogSegments.MessageParser and its subclasses.
"""

import json
import re
import struct
from collections.abc import Callable
from typing import Any

from ottla.cli.wire_json import to_json
from ottla.coordinator import records as group_records
from ottla.metadata.records import TYPES_BY_ID, decode_entry
from ottla.records.control import MARKERS, ControlType, decode_key, decode_marker
from ottla.records.errors import CorruptBatch
from ottla.records.record import Record
from ottla.wire.codec import decode
from ottla.wire.errors import WireError
from ottla.wire.messages import control_records as control
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.wire.primitives import decode_uvarint

Texts = tuple[str | None, str | None]
Decoder = Callable[[Record], Texts]

_INT16 = struct.Struct(">h")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def plain(record: Record) -> Texts:
    """Decode key and value as UTF-8."""
    return tuple(  # type: ignore[return-value]
        None if data is None else data.decode(errors="replace")
        for data in (record.key, record.value)
    )


def cluster_metadata(record: Record) -> Texts:
    """Decode a record of the metadata log."""
    try:
        data = record.value or b""
        _, position = decode_uvarint(data, 0)
        type_id, position = decode_uvarint(data, position)
        version, _ = decode_uvarint(data, position)
        decoded = decode_entry(data)
    except WireError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    kind = _WORD.sub("_", TYPES_BY_ID[type_id].__name__).upper()
    content = {"type": kind, "version": version, "data": to_json(decoded, version)}
    return None, _dumps(content)


def offsets(record: Record) -> Texts:
    """Decode a record of `__consumer_offsets`."""
    try:
        key = group_records.decode_key(record.key)
        key_version = _version(record.key)
        if key is None:
            return f"Unknown record type {key_version} at offset {record.offset}, skipping.", None
        shown = {"type": str(key_version), "data": to_json(key, key_version)}
        if record.value is None:
            return _dumps(shown), "<DELETE>"
        fact = group_records.decode_fact(key, record.value)
    except group_records.BadRecord as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    version = _version(record.value)
    data = to_json(fact.value, version)
    if isinstance(fact.value, group_records.GroupMetadataValue):
        _open_members(data, fact.value)
    return _dumps(shown), _dumps({"version": str(version), "data": data})


def _open_members(data: dict[str, Any], group: group_records.GroupMetadataValue) -> None:
    """Replace the members' subscription and assignment bytes by their contents, where readable."""
    if group.protocol_type != "consumer":
        return
    kinds = (
        ("subscription", ConsumerProtocolSubscription),
        ("assignment", ConsumerProtocolAssignment),
    )
    for shown, member in zip(data["members"], group.members, strict=True):
        for name, cls in kinds:
            raw: bytes = getattr(member, name)
            try:
                version = _version(raw)
                shown[name] = to_json(decode(cls, raw, version, _INT16.size), version)
            except (WireError, ValueError):
                continue


def control_text(record: Record) -> str:
    """Return the text of a control record: a transaction marker or a KRaft control record."""
    try:
        kind = decode_key(record.key)
        if kind in MARKERS:
            marker = decode_marker(record)
            assert marker is not None
            assert kind is not None
            return f"endTxnMarker: {kind.name} coordinatorEpoch: {marker.coordinator_epoch}"
    except CorruptBatch as error:
        return f"unreadable control record: {error}"
    if kind in _CONTROL:
        name, cls = _CONTROL[kind]
        try:
            version = _version(record.value)
            value: object = decode(cls, record.value or b"", version)
        except (WireError, ValueError) as error:
            return f"{name} unreadable: {error}"
        return f"{name} {_dumps(to_json(value, version))}"
    number = _INT16.unpack_from(record.key, _INT16.size)[0] if record.key else -1
    return f"controlType: {kind.name if kind is not None else 'UNKNOWN'}({number})"


_CONTROL: dict[ControlType, tuple[str, type]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", control.LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", control.SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", control.SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion", control.KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", control.VotersRecord),
}


def _version(data: bytes | None) -> int:
    if data is None or len(data) < _INT16.size:
        raise ValueError("too short for a version")
    version: int = _INT16.unpack_from(data)[0]
    return version


def _dumps(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
