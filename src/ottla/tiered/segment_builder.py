"""A granted segment, from the batches that a leader sends: their checks, and its indexes. Pure.

The batches must be those of the leader's own file, byte for byte: their sizes add up to the
segment's, so none is missing, and each has its checksum and its leader epoch.
"""

from bisect import bisect_right
from typing import Final

from ottla.base.ports import Buffer
from ottla.log.indexes.offset_index import OffsetIndex
from ottla.log.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.log.indexes.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from ottla.records.batch import check_crc, iter_headers
from ottla.records.errors import CorruptBatch
from ottla.wire.messages.grant_segment_copies import GrantedSegment

INDEX_INTERVAL_BYTES: Final = 4_096
"""index.interval.bytes of Kafka: bytes between two entries."""


class SegmentBuilder:
    """Takes the batches of one segment, in order.

    Fields: `next_offset`: from where on batches lack. `size_bytes`: of those that are taken.
    """

    def __init__(self, segment: GrantedSegment) -> None:
        self._segment = segment
        self._epochs = [(each.start_offset, each.epoch) for each in segment.epochs]
        self._offsets = OffsetIndex(segment.start_offset, RELATIVE_OFFSET_MAX)
        self._times = TimeIndex(segment.start_offset, RELATIVE_OFFSET_MAX)
        self._largest = TimestampOffset(NO_TIMESTAMP, segment.start_offset)
        self._indexed_at = 0
        self.next_offset = segment.start_offset
        self.size_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are taken."""
        return self.size_bytes == self._segment.size_bytes

    def add(self, records: Buffer) -> int:
        """Take the segment's batches at the beginning of what was fetched from `next_offset` on;
        return how many bytes these are. The last batch may be incomplete: it is left.

        Raises: CorruptBatch, where these cannot be all of the segment's batches.
        """
        taken = 0
        for at, header in iter_headers(records, allow_partial=True):
            if header.base_offset > self._segment.end_offset:
                break
            if header.base_offset < self.next_offset:
                raise CorruptBatch(
                    f"a batch begins at offset {header.base_offset}, expected {self.next_offset}"
                )
            if header.last_offset > self._segment.end_offset:
                raise CorruptBatch(
                    f"a batch ends at offset {header.last_offset}, behind its segment"
                )
            check_crc(records, at, header)
            self._check_epoch(header.base_offset, header.partition_leader_epoch)
            self._index(header.last_offset, header.max_timestamp)
            self.size_bytes += header.size_in_bytes
            self.next_offset = header.next_offset
            taken = at + header.size_in_bytes
        if self.size_bytes > self._segment.size_bytes:
            raise CorruptBatch(
                f"the batches have {self.size_bytes} bytes, the segment {self._segment.size_bytes}"
            )
        return taken

    def _check_epoch(self, offset: int, epoch: int) -> None:
        slot = bisect_right(self._epochs, offset, key=lambda each: each[0])
        expected = self._epochs[slot - 1][1] if slot else None
        if epoch != expected:
            raise CorruptBatch(f"offset {offset} has the leader epoch {epoch}, expected {expected}")

    def _index(self, last_offset: int, max_timestamp: int) -> None:
        """Add entries as the log itself does. Source: LogSegment.append."""
        position = self.size_bytes
        if max_timestamp > self._largest.timestamp:
            self._largest = TimestampOffset(max_timestamp, last_offset)
        if position - self._indexed_at > INDEX_INTERVAL_BYTES:
            self._offsets.append(last_offset, position)
            self._times.maybe_append(*self._largest)
            self._indexed_at = position

    def indexes(self) -> tuple[bytes, bytes]:
        """Return the offset index and the time index, once all batches are taken.

        Raises: CorruptBatch, where bytes lack.
        """
        if not self.is_complete:
            raise CorruptBatch(
                f"the batches have {self.size_bytes} bytes, the segment {self._segment.size_bytes}"
            )
        self._times.maybe_append(*self._largest)
        return self._offsets.encode(), self._times.encode()
