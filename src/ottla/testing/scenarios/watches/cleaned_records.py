"""Checks what a cleaned segment leaves out, before it replaces others.

A record goes only for a newer one of its key that is replicated and on disk: it would be gone for
good where that one is truncated, or lost with the power (LogCleanerManager.cleanableOffsets).
Tombstones are left to other checkers: they go by their age.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.log import names
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import BatchHeader
from ottla.records.record import read_records
from ottla.testing.scenarios.watches.batch_reader import BatchReader
from ottla.testing.sim.disk import SimDisk


class _Keyed(NamedTuple):
    offset: int
    key: bytes
    is_tombstone: bool


class _Batch(NamedTuple):
    last_offset: int
    records: tuple[_Keyed, ...]


class CleanedRecords:
    """The records with keys in the logs of one node."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self._written = BatchReader(_batch)
        self._on_disk = BatchReader(_batch)

    def left_out(self, log: PartitionLog, base_offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and key of the records that the cleaned segment must not leave out.

        It is on disk under the name that ends with `.swap`.
        """
        cleaned = self._batches_of(log, base_offset, names.SWAP)
        end = max((batch.last_offset for batch in cleaned), default=base_offset) + 1
        kept = {record.offset for batch in cleaned for record in batch.records}
        newest = self._newest(log)
        for segment in log.segments:
            if not base_offset <= segment.base_offset < end:
                continue
            for batch in self._batches_of(log, segment.base_offset):
                for record in batch.records:
                    if (
                        record.offset not in kept
                        and record.offset >= log.log_start_offset
                        and not record.is_tombstone
                        and newest.get(record.key, -1) <= record.offset
                    ):
                        yield record.offset, record.key

    def _batches_of(self, log: PartitionLog, base_offset: int, suffix: str = "") -> list[_Batch]:
        path = f"{log.directory}/{names.segment_name(base_offset, names.LOG)}{suffix}"
        found = self._written.batches(path, bytes(self._disk.data_of(path)))
        return [batch for _, batch in found]

    def _newest(self, log: PartitionLog) -> dict[bytes, int]:
        """Return the offset of each key's last record that is replicated and on disk."""
        found: dict[bytes, int] = {}
        for segment in log.segments:
            path = f"{log.directory}/{names.segment_name(segment.base_offset, names.LOG)}"
            for _, batch in self._on_disk.batches(path, self._disk.durable_data_of(path)):
                for record in batch.records:
                    if record.offset < log.high_watermark:
                        found[record.key] = record.offset
        return found


def _batch(data: bytes, at: int, header: BatchHeader) -> _Batch:
    records = () if header.is_control else read_records(data, at, header)
    keyed = (
        _Keyed(record.offset, record.key, record.value is None)
        for record in records
        if record.key is not None
    )
    return _Batch(header.last_offset, tuple(keyed))
