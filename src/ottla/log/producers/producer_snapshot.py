"""Snapshot files of the producer state, so that recovery need not replay the whole log.

`<20-digit offset>.snapshot` holds the state before that offset: version 1 (int16), CRC-32C of
what follows (uint32), the number of producers (int32), then 46 bytes each: producer id (int64),
epoch (int16), last sequence (int32), last offset (int64), offset delta (int32), timestamp
(int64), coordinator epoch (int32), first offset of the open transaction (int64). Of the five
batches only the last one is kept.

Source: ProducerSnapshot.json, ProducerStateManager.{read,write}Snapshot.
"""

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.producers.producer_state import BatchMetadata, ProducerEntry

VERSION: Final = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == 46


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the file's content, producers by ascending id."""
    rows = [
        _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
        for entry in sorted(entries, key=lambda entry: entry.producer_id)
    ]
    body = b"".join((_COUNT.pack(len(rows)), *rows))
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the producers. Raises: MalformedFile where version, CRC or length is wrong."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise MalformedFile(f"a producer snapshot has only {len(data)} bytes")
    version, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise MalformedFile(f"a producer snapshot has version {version}, only {VERSION} is known")
    body = data[_HEADER.size :]
    if crc32c(body) != crc:
        raise MalformedFile("a producer snapshot's CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    rows = body[_COUNT.size :]
    if len(rows) != count * _ENTRY.size:
        raise MalformedFile(f"a producer snapshot of {count} entries has {len(rows)} bytes")
    return [_entry(*row) for row in _ENTRY.iter_unpack(rows)]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerEntry:
    entry = ProducerEntry(
        producer_id=producer_id,
        epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        transaction_start=max(transaction_start, -1),
    )
    if last_offset >= 0:
        entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
    return entry
