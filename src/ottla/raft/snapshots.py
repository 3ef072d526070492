"""Snapshots: a state as records, in a file named by its position in the log.

`<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` begins with a header batch and ends with
a footer batch, which marks it complete; in between are ordinary batches, offsets counted from 0.
`bootstrap.checkpoint`, which formatting writes beside the log's directory, has the same format.

Source: KIP-630; Snapshots, RecordsSnapshotWriter, BatchFileWriter of Kafka.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from ottla.raft.batches import LogBatch, read_batches, records_batch
from ottla.raft.control import (
    decode_snapshot_header,
    snapshot_footer_batch,
    snapshot_header_batch,
)
from ottla.raft.values import OffsetAndEpoch
from ottla.records.batch import check_crc, iter_headers, parse_header
from ottla.records.control import ControlType, decode_key
from ottla.records.errors import RecordsError
from ottla.wire.errors import WireError

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
BOOTSTRAP_NAME = "bootstrap.checkpoint"

RECORDS_PER_BATCH = 1_000
BATCH_BYTES_MAX = 1024 * 1024

_NAME = re.compile(r"(\d{20})-(\d{10})(?:-[^.]*)?(\.checkpoint(?:\.part|\.deleted)?)")


class CorruptSnapshot(Exception):
    """A snapshot file is damaged or incomplete."""


def snapshot_name(snapshot: OffsetAndEpoch) -> str:
    """Return the name of the snapshot's file."""
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> tuple[OffsetAndEpoch, str] | None:
    """Return the snapshot id and suffix in a file name; None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return OffsetAndEpoch(int(match[1]), int(match[2])), match[3]


def encode_snapshot(
    values: Iterable[bytes],
    *,
    epoch: int,
    timestamp: int,
    last_contained_ms: int,
    complete: Callable[[list[bytes]], list[bytes]] = list,
) -> Iterator[bytes]:
    """Yield a snapshot file's batches. `last_contained_ms`: of the last record it covers.

    `complete` returns the values of a batch with records to add to it.
    """
    yield snapshot_header_batch(
        epoch=epoch, timestamp=timestamp, last_contained_ms=last_contained_ms
    )
    offset = 1
    for group in map(complete, _groups(iter(values))):
        yield records_batch(group, base_offset=offset, epoch=epoch, timestamp=timestamp)
        offset += len(group)
    yield snapshot_footer_batch(base_offset=offset, epoch=epoch, timestamp=timestamp)


def _groups(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    while first := list(islice(values, 1)):
        group, size = first, len(first[0])
        while size < BATCH_BYTES_MAX and len(group) < RECORDS_PER_BATCH:
            later = list(islice(values, 1))
            if not later:
                break
            group += later
            size += len(later[0])
        yield group


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The content of a snapshot: when its last record was appended to the log, and its records."""

    last_contained_ms: int
    values: tuple[bytes, ...]


def decode_snapshot(data: bytes | memoryview) -> SnapshotContent:
    """Return a file's content. Raises: CorruptSnapshot."""
    try:
        batches = list(read_batches(data))
        if len(batches) < 2:
            raise CorruptSnapshot("a snapshot lacks its header or footer")
        first, *between, last = batches
        _expect(first, ControlType.SNAPSHOT_HEADER)
        _expect(last, ControlType.SNAPSHOT_FOOTER)
        header = decode_snapshot_header(first.control[0].value or b"")
    except (RecordsError, WireError) as error:
        raise CorruptSnapshot(f"a snapshot is damaged: {error}") from None
    # Control batches in between (kraft.version, voters) are raft's, not the state's.
    values = tuple(value for batch in between for value in batch.values)
    return SnapshotContent(header.last_contained_log_timestamp, values)


def inspect_snapshot(data: bytes | memoryview) -> int:
    """Check that a snapshot is complete; return when its last record was appended.

    Checksums are checked, but only the two ends are decoded: a start checks every snapshot.
    Raises: CorruptSnapshot.
    """
    ends: list[int] = []
    try:
        for position, header in iter_headers(data):
            check_crc(data, position, header)
            ends[1:] = [position]
    except RecordsError as error:
        raise CorruptSnapshot(f"a snapshot is damaged: {error}") from None
    if len(ends) < 2:
        raise CorruptSnapshot("a snapshot lacks its header or footer")
    first, last = (parse_header(data, position).size_in_bytes for position in ends)
    return decode_snapshot(
        bytes(data[:first]) + bytes(data[ends[1] : ends[1] + last])
    ).last_contained_ms


def _expect(batch: LogBatch, kind: ControlType) -> None:
    if not batch.is_control or decode_key(batch.control[0].key) is not kind:
        raise CorruptSnapshot(f"a snapshot lacks its {kind.name.lower()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """A snapshot on disk: `last_contained_ms` as its header says, wall clock."""

    id: OffsetAndEpoch
    size_bytes: int
    last_contained_ms: int


def plan_cleaning(
    snapshots: Sequence[StoredSnapshot],
    *,
    log_bytes: int,
    retention_bytes: int,
    retention_ms: int,
    now_ms: int,
) -> OffsetAndEpoch | None:
    """Return the snapshot before which the log and older snapshots may be deleted; None = keep all.

    The newest snapshot is always kept. A snapshot is deleted when log and snapshots together are
    larger than `retention_bytes`, or when its last record is older than `retention_ms` (either
    -1 = no limit). `snapshots` ascend. Source: KafkaMetadataLog.maybeClean; KIP-630.
    """
    keep_from = None
    total = log_bytes + sum(snapshot.size_bytes for snapshot in snapshots)
    for oldest, later in pairwise(snapshots):
        too_large = 0 <= retention_bytes < total
        too_old = retention_ms >= 0 and now_ms - oldest.last_contained_ms > retention_ms
        if not too_large and not too_old:
            break
        keep_from = later.id
        total -= oldest.size_bytes
    return keep_from
