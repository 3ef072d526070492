"""The result of a fetch for one partition, and where the fetcher's log diverges from this one.

Source: Kafka's Partition.readRecords; KIP-320, KIP-595 (diverging epochs), KIP-392.
"""

from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_OFFSET
from ottla.base.ports import Buffer

if TYPE_CHECKING:
    from ottla.broker.fetch.fetch_sessions import FetchPartition
    from ottla.log.file_cache import FileSlice
    from ottla.log.partition_log import PartitionLog

NO_REPLICA = -1


class PartitionRead(NamedTuple):
    """The result of a fetch for one partition. A named tuple, as each fetch makes many."""

    error: Error
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: "tuple[FileSlice | Buffer, ...]" = ()
    """Slices of local files, pinned, or copies; or bytes that came from the remote tier."""
    size: int = 0
    aborted: tuple[tuple[int, int], ...] | None = None
    """(producer id, first offset) of transactions to skip; None unless read_committed asks."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the fetcher's log diverges from the leader's."""
    preferred: int = NO_REPLICA
    """The consumer's preferred read replica; then there are no records."""

    def release(self) -> None:
        """Unpin the slices of a read that will not be sent."""
        for piece in self.records:
            if not isinstance(piece, bytes | bytearray | memoryview):
                piece.release()


def divergence(requested: "FetchPartition", log: "PartitionLog") -> tuple[int, int] | None:
    """Return where the fetcher's log diverges from this one, judged by its last fetched epoch.

    Raises: ApiError (OFFSET_OUT_OF_RANGE) where that is unknown, or below the log start.
    """
    found = log.epoch_end_offset(requested.last_fetched_epoch)
    if found.end_offset == NO_OFFSET:
        raise ApiError(
            Error.OFFSET_OUT_OF_RANGE,
            f"the end of epoch {requested.last_fetched_epoch} is not known here",
        )
    if requested.fetch_offset < log.log_start_offset:
        raise ApiError(Error.OFFSET_OUT_OF_RANGE)
    epoch, end_offset = found
    if epoch < requested.last_fetched_epoch or end_offset < requested.fetch_offset:
        return found
    return None
