"""Finding a record by its timestamp in one segment, in a worker.

The loop looks up the indexes and pins the segment's file; a worker reads the headers from there on,
and decompresses the batches whose largest timestamp is late enough. Only length and deltas of
records are read, up to the first match, so the record headers and values cost nothing; the
decompressed size of a batch is bounded.

Source: LogSegment.findOffsetByTimestamp, FileRecords.searchForTimestamp.
"""

from typing import NamedTuple

from ottla.log.file_cache import FileSlice, Handle
from ottla.log.recovery.scan import scan_headers
from ottla.log.validation import api_error
from ottla.records.errors import RecordsError
from ottla.records.record import find_timestamp


class TimestampMatch(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class TimestampSearch:
    """A search for the first record from `start_offset` on at `timestamp` or later.

    Fields: `end_offset`: of the segment, where the next search begins; None = there is none after
            the active segment's. `limit`: bytes that one batch may decompress to.
    Order:  `run`, in any thread; then `release`, on the loop.
    """

    __slots__ = ("_piece", "_start_offset", "_timestamp", "end_offset", "limit")

    def __init__(
        self,
        log: Handle,
        position: int,
        end: int,
        *,
        end_offset: int | None,
        timestamp: int,
        start_offset: int,
        limit: int,
    ) -> None:
        self._piece = FileSlice(log, position, end - position)
        self._timestamp = timestamp
        self._start_offset = start_offset
        self.end_offset = end_offset
        self.limit = limit

    def run(self) -> TimestampMatch | None:
        """Return the match, if any. Raises: ApiError, also if the file is truncated; OSError."""
        file, position = self._piece.file, self._piece.position
        try:
            for at, header in scan_headers(file, position, position + self._piece.length):
                if (
                    header.max_timestamp < self._timestamp
                    or header.last_offset < self._start_offset
                ):
                    continue
                found = find_timestamp(
                    file.read_at(at, header.size_in_bytes),
                    0,
                    header,
                    self._timestamp,
                    self._start_offset,
                    limit=self.limit,
                )
                if found is not None:
                    return TimestampMatch(*found, header.partition_leader_epoch)
        except RecordsError as error:
            raise api_error(error) from None
        return None

    def release(self) -> None:
        """Unpin the file."""
        self._piece.release()
