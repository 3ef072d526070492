"""Scanning the batches of a segment's file.

`scan_headers` reads the headers only: for lookups and for replaying producers. `scan_batches` reads
everything and checks every CRC: for recovery.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.base.ports import File
from ottla.records.batch import HEADER_SIZE, BatchHeader, check_crc, parse_header
from ottla.records.control import Marker, decode_marker
from ottla.records.errors import CorruptBatch
from ottla.records.record import read_records

HEADERS_READ_BYTES: Final = 8 * 1024
"""Twice the usual index interval, so that a lookup mostly takes one read."""

BATCHES_READ_BYTES: Final = 1024 * 1024
"""What recovery reads at a time; a larger batch is read as a whole."""


class Batch(NamedTuple):
    """A batch within `buffer`, and where it stands in its file."""

    position: int
    header: BatchHeader
    buffer: bytes
    start: int


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from `position` to `end`.

    Raises: CorruptBatch, UnsupportedMagic at the first invalid or cut batch.
    """
    while position < end:
        buffer = file.read_at(position, min(HEADERS_READ_BYTES, end - position))
        start = 0
        while True:
            header = parse_header(buffer, start, whole=False)
            size = header.size_in_bytes
            if position + size > end:
                raise CorruptBatch(f"the batch at position {position} is cut at {end}")
            yield position, header
            position += size
            start += size
            if start + HEADER_SIZE > len(buffer):
                break


def scan_batches(file: File, position: int, end: int) -> Iterator[Batch]:
    """Yield the batches from `position` to `end`, whole and with their CRC checked.

    Raises: CorruptBatch, UnsupportedMagic at the first that is damaged or cut.
    """
    while position < end:
        buffer = file.read_at(position, min(BATCHES_READ_BYTES, end - position))
        start = 0
        while start < len(buffer):
            header = None
            if start + HEADER_SIZE <= len(buffer):
                header = parse_header(buffer, start, whole=False)
            if header is None or start + header.size_in_bytes > len(buffer):
                if start > 0:
                    break  # Read on from this batch.
                size = HEADER_SIZE if header is None else header.size_in_bytes
                if size > end - position:
                    raise CorruptBatch(f"the batch at position {position} is cut at {end}")
                buffer = file.read_at(position, size)
                header = parse_header(buffer)
            check_crc(buffer, start, header)
            yield Batch(position, header, buffer, start)
            position += header.size_in_bytes
            start += header.size_in_bytes
        if not buffer:
            raise CorruptBatch(f"the file ends at {position}, before {end}")


def marker_of(
    buffer: bytes | bytearray | memoryview, start: int, header: BatchHeader
) -> tuple[Marker, int] | None:
    """Return the transaction marker of a control batch and its timestamp; None = another kind.

    An empty control batch is what compaction leaves of a transaction without remaining data.
    """
    records = read_records(buffer, start, header)
    if not records:
        return None
    marker = decode_marker(records[0])
    return None if marker is None else (marker, records[0].timestamp)
