"""Small values of raft: positions in the log, replica keys.

Source: Kafka's OffsetAndEpoch and ReplicaKey (KIP-595, KIP-853).
"""

from typing import NamedTuple

from ottla.base.ids import NO_UUID, Uuid


class OffsetAndEpoch(NamedTuple):
    """An end offset and the epoch of the record before it; also the name of a snapshot."""

    offset: int
    epoch: int

    @property
    def rank(self) -> tuple[int, int]:
        """Return the key to compare logs by: the later epoch, then the longer log."""
        return (self.epoch, self.offset)


class ReplicaKey(NamedTuple):
    """A replica by its node id and, where known, the id of its metadata log directory."""

    id: int
    directory_id: Uuid = NO_UUID


class EpochStart(NamedTuple):
    """The offset of the first record that a leader epoch wrote."""

    epoch: int
    start_offset: int


class BatchSpan(NamedTuple):
    """The offsets and epoch of a fetched batch. Half-open: [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    epoch: int


EMPTY_LOG = OffsetAndEpoch(0, 0)
"""The end of a log without records; also the id of the snapshot that formatting may leave."""
