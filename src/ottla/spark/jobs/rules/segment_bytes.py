"""What must hold of a segment's bytes: its batches and its auxiliary objects. Pure.

The .log is given in byte ranges, one after the other, of any length: a batch may begin in one and
end in the next. A segment is checked as far as its batches can be followed: where one has an
impossible length, nothing behind it can be found.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla.base.ports import Buffer
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.epoch_cache import EpochCache
from ottla.log.indexes import offset_index, time_index, transaction_index
from ottla.log.indexes.offset_index import ENTRY, OffsetIndex
from ottla.log.indexes.time_index import TimeIndex
from ottla.log.indexes.transaction_index import decode_entries
from ottla.log.producers.producer_snapshot import decode_snapshot
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_crc, parse_header
from ottla.records.errors import RecordsError
from ottla.spark.jobs.rules.findings import Finding, Kind, Severity
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata, epoch_ranges

RANGE_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are read at once."""
BATCH_BYTES_MAX: Final = 1 << 30
"""A longer batch is a damaged length: it is not waited for."""


@dataclass(slots=True)
class SegmentChecker:
    """Checks one segment; `findings` are in the order of offsets.

    `index`: the last offset of the batch at a position, by the offset index; may be empty.
    """

    segment: SegmentMetadata
    index: dict[int, int]
    findings: list[Finding]
    _rest: bytearray
    _position: int
    _next_offset: int | None
    _is_lost: bool
    _epochs: list[tuple[int, int, int]]

    @staticmethod
    def of(segment: SegmentMetadata, index: dict[int, int] | None = None) -> "SegmentChecker":
        """Return the checker of a segment."""
        return SegmentChecker(
            segment, dict(index or {}), [], bytearray(), 0, None, False, epoch_ranges(segment)
        )

    def add(self, data: Buffer) -> None:
        """Check the next bytes of the .log."""
        if self._is_lost:
            return
        self._rest += data
        at = 0
        while len(self._rest) - at >= HEADER_SIZE:
            try:
                header = parse_header(self._rest, at, whole=False)
            except RecordsError as error:
                self._lose(at, str(error))
                return
            size = LOG_OVERHEAD + header.batch_length
            if size > BATCH_BYTES_MAX:
                self._lose(at, f"a batch of {size} bytes")
                return
            if len(self._rest) - at < size:
                break
            self._check_batch(at, header)
            at += size
        del self._rest[:at]
        self._position += at

    def end(self) -> list[Finding]:
        """Return all findings, once the last byte was given."""
        if not self._is_lost:
            if self._rest:
                self._add(
                    Kind.CRC_MISMATCH,
                    f"the last batch, at byte {self._position}, is cut after "
                    f"{len(self._rest)} bytes",
                )
            self._check_end()
            for position in sorted(self.index):
                self._add_index(f"an entry points to byte {position}, where no batch begins")
        return self.findings

    def _check_batch(self, at: int, header: BatchHeader) -> None:
        position = self._position + at
        try:
            check_crc(self._rest, at, header)
        except RecordsError as error:
            offsets = header.base_offset, header.last_offset
            self._add(Kind.CRC_MISMATCH, f"{error}, at byte {position}", offsets)
        self._check_offsets(header)
        self._check_epoch(header)
        indexed = self.index.pop(position, None)
        if indexed is not None and indexed != header.last_offset:
            self._add_index(
                f"an entry names offset {indexed} for byte {position}, where the batch ends at "
                f"{header.last_offset}"
            )
        self._next_offset = header.next_offset

    def _check_offsets(self, header: BatchHeader) -> None:
        segment = self.segment
        expected = segment.start_offset if self._next_offset is None else self._next_offset
        if header.base_offset > expected:
            hole = expected, header.base_offset - 1
            self._add(Kind.OFFSETS_NOT_COVERED, "no batch has these offsets", hole)
        elif header.base_offset < expected:
            again = header.base_offset, header.last_offset
            text = f"a batch begins at offset {header.base_offset}, expected {expected}"
            self._add(Kind.OFFSETS_NOT_COVERED, text, again)
        if header.last_offset > segment.end_offset:
            beyond = header.base_offset, header.last_offset
            text = f"a batch ends behind the segment, at offset {header.last_offset}"
            self._add(Kind.OFFSETS_NOT_COVERED, text, beyond)

    def _check_epoch(self, header: BatchHeader) -> None:
        slot = bisect_right(self._epochs, header.base_offset, key=lambda each: each[1])
        if not slot:
            return  # Below the log start of its time: the leader epoch is not known any more.
        epoch = self._epochs[slot - 1][0]
        if header.partition_leader_epoch != epoch:
            self._add(
                Kind.WRONG_LEADER_EPOCH,
                f"a batch of leader epoch {header.partition_leader_epoch}, the metadata say "
                f"{epoch}",
                (header.base_offset, header.last_offset),
            )

    def _check_end(self) -> None:
        segment = self.segment
        reached = segment.start_offset if self._next_offset is None else self._next_offset
        if reached <= segment.end_offset and not self._rest:
            lost = reached, segment.end_offset
            self._add(Kind.OFFSETS_NOT_COVERED, "no batch has these offsets", lost)

    def _lose(self, at: int, why: str) -> None:
        self._is_lost = True
        segment = self.segment
        first = segment.start_offset if self._next_offset is None else self._next_offset
        self._rest = bytearray()
        self._add(
            Kind.CRC_MISMATCH,
            f"no batch can be read from byte {self._position + at} on: {why}",
            (min(first, segment.end_offset), segment.end_offset),
        )

    def _add(self, kind: Kind, detail: str, offsets: tuple[int, int] | None = None) -> None:
        self.findings.append(
            segment_finding(self.segment, kind, detail, ObjectKind.LOG, offsets=offsets)
        )

    def _add_index(self, detail: str) -> None:
        self.findings.append(
            segment_finding(self.segment, Kind.DAMAGED_AUXILIARY, detail, ObjectKind.OFFSET_INDEX)
        )


def segment_finding(
    segment: SegmentMetadata,
    kind: Kind,
    detail: str,
    object_kind: ObjectKind,
    *,
    offsets: tuple[int, int] | None = None,
) -> Finding:
    """Return a finding about one of a segment's objects."""
    start, end = offsets or (segment.start_offset, segment.end_offset)
    return Finding(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        kind=kind,
        severity=Severity.ERROR,
        detail=detail,
        object=object_name(segment, object_kind),
        start_offset=start,
        end_offset=end,
    )


def check_log(
    segment: SegmentMetadata, ranges: Iterable[Buffer], index: dict[int, int] | None = None
) -> list[Finding]:
    """Return what is wrong with a .log, given in byte ranges."""
    checker = SegmentChecker.of(segment, index)
    for each in ranges:
        checker.add(each)
    return checker.end()


def index_entries(segment: SegmentMetadata, data: Buffer) -> dict[int, int]:
    """Return the last offsets of batches by their positions; of a damaged index nothing."""
    if _index_fault(segment, bytes(data)) is not None:
        return {}
    return {
        position: segment.start_offset + relative for relative, position in ENTRY.iter_unpack(data)
    }


ENTRY_BYTES: Final = {
    ObjectKind.OFFSET_INDEX: offset_index.ENTRY_SIZE,
    ObjectKind.TIME_INDEX: time_index.ENTRY_SIZE,
    ObjectKind.TXN_INDEX: transaction_index.ENTRY_SIZE,
}
"""The sizes of these objects are multiples of these."""
_NEVER_EMPTY: Final = frozenset(
    {ObjectKind.PRODUCER_SNAPSHOT, ObjectKind.LEADER_EPOCHS, ObjectKind.TXN_INDEX}
)


def size_fault(kind: ObjectKind, size_bytes: int) -> str | None:
    """Return why an auxiliary object cannot have this size; None = it can."""
    if size_bytes % ENTRY_BYTES.get(kind, 1):
        return f"{size_bytes} bytes are not whole entries of {ENTRY_BYTES[kind]}"
    return "it is empty" if not size_bytes and kind in _NEVER_EMPTY else None


def check_auxiliary(segment: SegmentMetadata, kind: ObjectKind, data: Buffer) -> Iterator[Finding]:
    """Yield what is wrong with the content of an index, a snapshot or the leader epochs."""
    fault = _CHECKS[kind](segment, bytes(data))
    if fault is not None:
        yield segment_finding(segment, Kind.DAMAGED_AUXILIARY, fault, kind)


def _index_fault(segment: SegmentMetadata, data: bytes) -> str | None:
    try:
        index = OffsetIndex.load(data, segment.start_offset, len(data))
    except ValueError as error:
        return str(error)
    if not len(index):
        return None
    last = index.last
    if last.offset > segment.end_offset or last.position >= segment.size_bytes:
        return f"its last entry is {last}, behind the segment's end"
    return None


def _time_index_fault(segment: SegmentMetadata, data: bytes) -> str | None:
    try:
        index = TimeIndex.load(data, segment.start_offset, len(data))
    except ValueError as error:
        return str(error)
    if not len(index):
        return None
    last = index.last
    if last.offset > segment.end_offset:
        return f"its last entry is {last}, behind the segment's end"
    if last.timestamp > segment.max_timestamp_ms >= 0:
        return f"its last entry is {last}, the newest record is of {segment.max_timestamp_ms}"
    return None


def _txn_index_fault(segment: SegmentMetadata, data: bytes) -> str | None:
    try:
        entries = decode_entries(data, segment.start_offset)
    except ValueError as error:
        return str(error)
    if any(each.last_offset > segment.end_offset for each in entries):
        return "an entry ends behind the segment's end"
    return None


def _snapshot_fault(segment: SegmentMetadata, data: bytes) -> str | None:
    try:
        decode_snapshot(data)
    except MalformedFile as error:
        return str(error)
    return None


def _epochs_fault(segment: SegmentMetadata, data: bytes) -> str | None:
    try:
        cache = EpochCache.decode(data)
    except MalformedFile as error:
        return str(error)
    own = tuple(map(tuple, cache.between(segment.start_offset, segment.end_offset + 1)))
    expected = tuple((epoch, start) for epoch, start, _ in epoch_ranges(segment))
    if own != expected:
        return f"the leader epochs of the segment are {list(own)}, expected {list(expected)}"
    return None


_CHECKS: Final = {
    ObjectKind.OFFSET_INDEX: _index_fault,
    ObjectKind.TIME_INDEX: _time_index_fault,
    ObjectKind.TXN_INDEX: _txn_index_fault,
    ObjectKind.PRODUCER_SNAPSHOT: _snapshot_fault,
    ObjectKind.LEADER_EPOCHS: _epochs_fault,
}
assert set(_CHECKS) == set(ObjectKind) - {ObjectKind.LOG}
