"""Walking through batches: everything is seen, damage is where it is.

Method: files of batches of sizes around the read sizes; cuts at every byte of the last batch.
"""

import pytest

from ottla.log.recovery.scan import (
    BATCHES_READ_BYTES,
    HEADERS_READ_BYTES,
    marker_of,
    scan_batches,
    scan_headers,
)
from ottla.records.batch import parse_header
from ottla.records.builder import encode_retained
from ottla.records.control import ControlType, Marker, build_control, build_marker
from ottla.records.errors import CorruptBatch, RecordsError
from ottla.testing.disk import MemoryDisk, MemoryFile
from tests.unit.log.support import batch

SIZES = (1, 10, HEADERS_READ_BYTES - 70, HEADERS_READ_BYTES, 3 * HEADERS_READ_BYTES, 5, 6)


def file_of(data: bytes) -> MemoryFile:
    disk = MemoryDisk()
    disk.mkdir("/d")
    file = disk.open("/d/log", create=True)
    file.append((data,))
    return file


def log_of(sizes: tuple[int, ...]) -> tuple[bytes, list[int]]:
    data = bytearray()
    starts: list[int] = []
    for offset, size in enumerate(sizes):
        starts.append(len(data))
        data += batch(1, size=size, base_offset=offset)
    return bytes(data), starts


def test_headers_of_batches_of_all_sizes() -> None:
    data, starts = log_of(SIZES)
    found = list(scan_headers(file_of(data), 0, len(data)))
    assert [position for position, _ in found] == starts
    assert [header.base_offset for _, header in found] == list(range(len(SIZES)))
    assert list(scan_headers(file_of(data), starts[3], starts[5])) == found[3:5]
    assert list(scan_headers(file_of(data), len(data), len(data))) == []


def test_whole_batches_of_all_sizes() -> None:
    sizes = (*SIZES, BATCHES_READ_BYTES - 30_000, BATCHES_READ_BYTES, 2 * BATCHES_READ_BYTES, 1)
    data, starts = log_of(sizes)
    found = list(scan_batches(file_of(data), 0, len(data)))
    assert [item.position for item in found] == starts
    for item in found:
        raw = data[item.position : item.position + item.header.size_in_bytes]
        assert item.buffer[item.start : item.start + len(raw)] == raw


def test_a_cut_at_every_byte_of_the_last_batch() -> None:
    data, starts = log_of((5, 5, 20))
    for end in range(starts[2] + 1, len(data)):
        for scan in (scan_headers, scan_batches):
            walk = iter(scan(file_of(data[:end]), 0, end))
            next(walk), next(walk)
            with pytest.raises(RecordsError):
                next(walk)


def test_a_flipped_bit_anywhere_under_the_crc() -> None:
    data, starts = log_of((5, 30))
    for position in range(starts[1] + 21, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        walk = scan_batches(file_of(bytes(damaged)), 0, len(data))
        next(walk)
        with pytest.raises(RecordsError):
            next(walk)


def test_a_file_shorter_than_its_entry_count() -> None:
    data, _ = log_of((5,))
    walk = scan_batches(file_of(data), 0, len(data) + 100)
    next(walk)
    with pytest.raises(CorruptBatch):
        next(walk)
    with pytest.raises(RecordsError):
        list(scan_headers(file_of(data), 0, len(data) + 100))


def test_markers_and_other_control_batches() -> None:
    data = build_marker(
        committed=False, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp=77
    )
    assert marker_of(data, 0, parse_header(data)) == (Marker(False, 3), 77)
    data = build_control(ControlType.LEADER_CHANGE, b"value", timestamp=0)
    assert marker_of(data, 0, parse_header(data)) is None
    marker = build_marker(
        committed=True, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp=0
    )
    emptied = encode_retained(parse_header(marker), [])
    assert marker_of(emptied, 0, parse_header(emptied)) is None
