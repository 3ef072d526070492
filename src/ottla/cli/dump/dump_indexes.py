"""Index files and producer snapshots as lines, checked against their segments.

Source: DumpLogSegments.{dumpIndex,dumpTimeIndex,dumpTxnIndex,dumpProducerIdSnapshot}.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.dump.dump_files import content_of, mapped
from ottla.cli.errors import CommandError
from ottla.log import names
from ottla.log.indexes import offset_index, time_index, transaction_index
from ottla.log.producers.producer_snapshot import decode_snapshot
from ottla.records.batch import BatchHeader, parse_header
from ottla.records.errors import CorruptBatch, UnsupportedMagic


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How to treat an index: all entries, only their check, or only the sanity check."""

    verify_only: bool = False
    sanity_only: bool = False


@dataclass(slots=True)
class Mismatches:
    """Mismatches: pairs of the index's value and the log's value."""

    offsets: list[tuple[int, int]] = field(default_factory=list)
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    not_found: list[tuple[int, int]] = field(default_factory=list)


def offset_index_lines(path: Path, check: Check, wrong: Mismatches) -> Iterator[str]:
    """Yield the lines of an `.index` file."""
    base = _base_offset(path)
    data = content_of(path)
    if not data:
        yield f"{path} is empty."
        return
    try:
        offset_index.OffsetIndex.load(data, base, len(data))
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    if check.sanity_only:
        yield f"{path} passed sanity check."
        return
    with mapped(path.with_suffix(names.LOG)) as log:
        for relative, position in offset_index.ENTRY.iter_unpack(data):
            offset = base + relative
            header = _batch_at(log, position)
            found = header.last_offset if header is not None else -1
            if found != offset:
                wrong.offsets.append((offset, found))
            if not check.verify_only:
                yield f"offset: {offset} position: {position}"


def time_index_lines(path: Path, check: Check, wrong: Mismatches) -> Iterator[str]:
    """Yield the lines of a `.timeindex` file."""
    base = _base_offset(path)
    data = content_of(path)
    try:
        time_index.TimeIndex.load(data, base, len(data))
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    if check.sanity_only:
        yield f"{path} passed sanity check."
        return
    index = _offset_index_of(path, base)
    with mapped(path.with_suffix(names.LOG)) as log:
        for timestamp, relative in time_index.ENTRY.iter_unpack(data):
            offset = base + relative
            header = _batch_with(log, index.lookup(offset).position, offset)
            if header is None or header.last_offset != offset:
                wrong.not_found.append((offset, -1 if header is None else header.last_offset))
            elif header.max_timestamp != timestamp:
                wrong.timestamps.append((timestamp, header.max_timestamp))
            if not check.verify_only:
                yield f"timestamp: {timestamp} offset: {offset}"


def transaction_index_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a `.txnindex` file."""
    try:
        entries = transaction_index.decode_entries(content_of(path), _base_offset(path))
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    for each in entries:
        yield (
            f"version: {transaction_index.VERSION} producerId: {each.producer_id} "
            f"firstOffset: {each.first_offset} lastOffset: {each.last_offset} "
            f"lastStableOffset: {each.last_stable_offset}"
        )


def producer_snapshot_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a producer state's `.snapshot` file."""
    try:
        producers = decode_snapshot(content_of(path))
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    for each in producers:
        start = each.transaction_start
        open_since = "OptionalLong.empty" if start < 0 else f"OptionalLong[{start}]"
        line = (
            f"producerId: {each.producer_id} producerEpoch: {each.epoch} "
            f"coordinatorEpoch: {each.coordinator_epoch} currentTxnFirstOffset: {open_since} "
            f"lastTimestamp: {each.last_timestamp} "
        )
        if each.last_sequence >= 0:
            first = each.last_sequence - each.last_offset_delta & 0x7FFF_FFFF
            line += (
                f"firstSequence: {first} lastSequence: {each.last_sequence} "
                f"lastOffset: {each.last_offset} offsetDelta: {each.last_offset_delta} "
                f"timestamp: {each.last_timestamp}"
            )
        yield line


def _base_offset(path: Path) -> int:
    parsed = names.parse_segment_name(path.name)
    if parsed is None:
        raise CommandError(f"{path}: expected a name of 20 digits, as {'0' * 20}{path.suffix}")
    return parsed[0]


def _offset_index_of(path: Path, base: int) -> offset_index.OffsetIndex:
    index_path = path.with_suffix(names.OFFSET_INDEX)
    data = content_of(index_path) if index_path.exists() else b""
    try:
        return offset_index.OffsetIndex.load(data, base, len(data))
    except ValueError as error:
        raise CommandError(f"{index_path}: {error}") from None


def _batch_at(log: memoryview, position: int) -> BatchHeader | None:
    try:
        return parse_header(log, position)
    except (CorruptBatch, UnsupportedMagic):
        return None


def _batch_with(log: memoryview, position: int, offset: int) -> BatchHeader | None:
    """Return the first batch from `position` on that ends at or after `offset`."""
    while True:
        header = _batch_at(log, position)
        if header is None or header.last_offset >= offset:
            return header
        position += header.size_in_bytes
