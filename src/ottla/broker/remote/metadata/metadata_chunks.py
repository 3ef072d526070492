"""Fetched bytes of the metadata topic, decoded into its records.

A value that cannot be decoded is skipped, with its offset, and so is a batch whose records cannot
be read: one of them must not keep all that follow from every broker.
"""

from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.base.ports import Buffer
from ottla.records.batch import check_crc, iter_headers
from ottla.records.errors import CorruptBatch, RecordsError
from ottla.records.record import read_records
from ottla.tiered.metadata_records import decode
from ottla.tiered.segment_metadata import MetadataRecord

UserPartition = tuple[Uuid, int]
"""Topic id and partition of what is stored in tiers: a user partition."""


class Skipped(NamedTuple):
    """What was skipped, and why."""

    offset: int
    reason: str


class Chunk(NamedTuple):
    """Records in order of offsets.

    Fields: `next_offset`: where to read on; `last_epoch`: the leader epoch of the last batch.
    """

    records: list[tuple[int, MetadataRecord]]
    skipped: list[Skipped]
    next_offset: int
    last_epoch: int


def decode_chunk(data: Buffer, offset: int, last_epoch: int) -> Chunk:
    """Return the records from `offset` on of fetched batches, the last of which may be cut off.

    A leader returns whole batches: records below `offset` are left out.

    Raises: RecordsError where the first batch has an unreadable header or is cut off.
    """
    records: list[tuple[int, MetadataRecord]] = []
    skipped: list[Skipped] = []
    next_offset = offset
    try:
        for position, header in iter_headers(data, allow_partial=True):
            last_epoch = max(last_epoch, header.partition_leader_epoch)
            try:
                check_crc(data, position, header)
                found = [] if header.is_control else read_records(data, position, header)
            except RecordsError as error:
                found = []
                skipped.append(Skipped(header.base_offset, f"batch: {error}"))
            for record in found:
                if record.offset < offset:
                    continue
                try:
                    value = None if record.value is None else decode(record.value)
                except ValueError as error:
                    skipped.append(Skipped(record.offset, str(error)))
                    continue
                if value is not None:
                    records.append((record.offset, value))
            next_offset = max(next_offset, header.next_offset)
    except RecordsError:
        if next_offset == offset:
            raise
    if next_offset == offset and len(data):
        raise CorruptBatch(f"nothing whole to read at offset {offset}")
    return Chunk(records, skipped, next_offset, last_epoch)
