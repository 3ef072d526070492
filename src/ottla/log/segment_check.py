"""The check of a sealed segment's batches, part by part: for who makes its file the only one.

Every batch has its checksum. Offsets and leader epochs, which it does not cover, do not go back,
nor beyond the segment's last offset and the log's latest epoch.
"""

from contextlib import closing
from typing import Final

from ottla.base.ids import NO_EPOCH
from ottla.base.ports import Disk
from ottla.log.recovery.scan import BATCHES_READ_BYTES, scan_batches
from ottla.records.batch import BatchHeader
from ottla.records.errors import CorruptBatch

PART_BYTES: Final = 2 * BATCHES_READ_BYTES
"""What a step checks at least: small batches take a worker some 100 ms then."""


class SegmentCheck:
    """See the module.

    Fields: `position`, `next_offset`: behind the last batch that was found sound.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        size_bytes: int,
        base_offset: int,
        end_offset: int,
        latest_epoch: int,
    ) -> None:
        self._disk = disk
        self._path = path
        self._size_bytes = size_bytes
        self._end_offset = end_offset
        self._latest_epoch = latest_epoch
        self._epoch = NO_EPOCH
        self.position = 0
        self.next_offset = base_offset

    @property
    def is_over(self) -> bool:
        """Whether all batches are sound."""
        return self.position >= self._size_bytes

    def step(self) -> None:
        """Check the next batches. Blocks: for a worker, one call at a time.

        Raises: OSError; RecordsError at a damaged batch, as the next call does.
        """
        until = self.position + PART_BYTES
        with closing(self._disk.open(self._path)) as file:
            for position, header, _, _ in scan_batches(file, self.position, self._size_bytes):
                self._check(header)
                self.position = position + header.size_in_bytes
                self.next_offset = header.next_offset
                if self.position >= until:
                    return

    def _check(self, header: BatchHeader) -> None:
        first, last = header.base_offset, header.last_offset
        if first < self.next_offset:
            raise CorruptBatch(f"offset {first} follows offset {self.next_offset - 1}")
        if last >= self._end_offset:
            raise CorruptBatch(f"offset {last} belongs to the next segment")
        epoch = header.partition_leader_epoch
        if epoch == NO_EPOCH:
            return
        if epoch < self._epoch:
            raise CorruptBatch(f"leader epoch {epoch} follows leader epoch {self._epoch}")
        if epoch > self._latest_epoch:
            raise CorruptBatch(f"leader epoch {epoch} follows the latest, {self._latest_epoch}")
        self._epoch = epoch
