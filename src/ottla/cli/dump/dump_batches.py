"""The batches and records of a segment or snapshot as lines. Source: DumpLogSegments.dumpLog."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.dump.dump_decoders import Decoder, control_text
from ottla.cli.dump.dump_files import mapped
from ottla.log.names import parse_segment_name
from ottla.records.batch import BatchHeader, check_crc, parse_header
from ottla.records.errors import CorruptBatch, UnsupportedMagic
from ottla.records.record import Record, read_records

INDENT = "|"
BOOTSTRAP = "bootstrap.checkpoint"
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_TIMES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much of a log to show."""

    records: bool = False
    contents: Decoder | None = None
    skip_metadata: bool = False
    max_bytes: int | None = None


@dataclass(slots=True)
class Findings:
    """Problems in a file. `gaps`: pairs of adjacent offsets that are not consecutive."""

    gaps: list[tuple[int, int]] = field(default_factory=list)
    corrupt: int = 0


def log_lines(path: Path, depth: Depth, findings: Findings) -> Iterator[str]:
    """Yield the lines of a `.log` or `.checkpoint` file."""
    yield _heading(path)
    with mapped(path) as data:
        end = len(data) if depth.max_bytes is None else min(len(data), depth.max_bytes)
        position = 0
        last_offset = -1
        while position < end:
            try:
                header = parse_header(data, position)
            except (CorruptBatch, UnsupportedMagic):
                break
            if position + header.size_in_bytes > end:
                break
            is_valid = _is_valid(data, position, header)
            findings.corrupt += not is_valid
            yield batch_line(header, position, is_valid)
            if depth.records:
                try:
                    records = read_records(data, position, header)
                except CorruptBatch as error:
                    findings.corrupt += is_valid
                    yield f"{INDENT} unreadable: {error}"
                    records = []
                for record in records:
                    if last_offset >= 0 and record.offset != last_offset + 1:
                        findings.gaps.append((last_offset, record.offset))
                    last_offset = record.offset
                    yield record_line(record, header, depth)
            position += header.size_in_bytes
        if position < end and depth.max_bytes is None:
            findings.corrupt += 1
            yield f"Found {end - position} invalid bytes at the end of {path.name}"


def _heading(path: Path) -> str:
    if path.name == BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    snapshot = _SNAPSHOT.fullmatch(path.name)
    if snapshot:
        return f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
    segment = parse_segment_name(path.name)
    start = segment[0] if segment else "unknown"
    return f"Log starting offset: {start}"


def _is_valid(data: memoryview, position: int, header: BatchHeader) -> bool:
    try:
        check_crc(data, position, header)
    except CorruptBatch:
        return False
    return True


def batch_line(header: BatchHeader, position: int, is_valid: bool) -> str:
    """Return the line of a batch."""
    horizon = "OptionalLong.empty"
    if header.has_delete_horizon:
        horizon = f"OptionalLong[{header.base_timestamp}]"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_boolean(header.is_transactional)} "
        f"isControl: {_boolean(header.is_control)} deleteHorizonMs: {horizon} "
        f"position: {position} {_TIMES[header.timestamp_type]}: {header.max_timestamp} "
        f"size: {header.size_in_bytes} magic: {header.magic} "
        f"compresscodec: {header.compression.name.lower()} crc: {header.crc} "
        f"isvalid: {_boolean(is_valid)}"
    )


def record_line(record: Record, header: BatchHeader, depth: Depth) -> str:
    """Return the line of a record; `depth` says whether with its contents."""
    parts = []
    if not depth.skip_metadata:
        names = ",".join(name for name, _ in record.headers)
        parts.append(
            f"offset: {record.offset} {_TIMES[header.timestamp_type]}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
            f"sequence: {_sequence(record, header)} headerKeys: [{names}]"
        )
        if header.is_control:
            parts.append(control_text(record))
    if depth.contents is not None and not header.is_control:
        key, payload = depth.contents(record)
        parts += [f"key: {key}"] if key is not None else []
        parts += [f"payload: {payload}"] if payload is not None else []
    return " ".join((INDENT, *parts))


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) & 0x7FFF_FFFF


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _boolean(value: bool) -> str:
    return "true" if value else "false"
