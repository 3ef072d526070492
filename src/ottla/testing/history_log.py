"""What the logs of replicas held: more values of a `History`, which `checkers_log` judges.

A `ReplicaLog` is one replica at the end of a history, as the files on its disk say, beside what its
node knew of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.ids import Uuid


class BatchSeen(NamedTuple):
    """A batch in a segment's file. `records`: offset and what else a record says, with its key.

    Only those of logs that are compacted are read.
    """

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    record_count: int = 1
    producer_id: int = -1
    producer_epoch: int = -1
    last_sequence: int = -1
    max_timestamp: int = -1
    position: int = 0
    size: int = 0
    is_control: bool = False
    records: tuple["RecordSeen", ...] = ()


class RecordSeen(NamedTuple):
    """A record of a compacted log."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class SegmentSeen(NamedTuple):
    """A segment's files, and its indexes: the active one's are those in memory.

    Fields: `size`: how many bytes its node takes for sound; `file_size`: how many there are, -1 =
            there is no file. `damage`: why reading ended before `size`; None = it did not.
            `largest`: the largest timestamp that its node knows; None = it has not looked.
    """

    base_offset: int
    size: int
    file_size: int
    batches: tuple[BatchSeen, ...] = ()
    damage: str | None = None
    offset_index: tuple[tuple[int, int], ...] = ()
    """(Last offset, position) of batches."""
    time_index: tuple[tuple[int, int], ...] = ()
    """(Timestamp, last offset) of batches."""
    is_active: bool = False
    largest: int | None = None


class ProducerSeen(NamedTuple):
    """What a replica remembers of a producer. `batches`: (last sequence, last offset), ascending;
    `in_transactions`: a marker has come for it, so that its epoch may be a later one."""

    producer_id: int
    epoch: int
    batches: tuple[tuple[int, int], ...]
    in_transactions: bool = False


class ReplicaLog(NamedTuple):
    """One replica's log. `start`, `end`, `high_watermark`: as its node knows them.

    Fields: `compacted`: records may be missing in it. `strange`: files of segments that the node
            does not know. `epochs`: (epoch, start offset) in memory; `epochs_stored`: on disk,
            None = that file need not be up to date. `forgets`: producers may have expired.
    """

    node: int
    partition: tuple[Uuid, int]
    start: int
    end: int
    high_watermark: int
    segments: tuple[SegmentSeen, ...]
    compacted: bool = False
    strange: tuple[str, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    epochs_stored: tuple[tuple[int, int], ...] | None = None
    producers: tuple[ProducerSeen, ...] = ()
    forgets: bool = False
    at_ms: int = 0

    def batches(self) -> Iterator[BatchSeen]:
        """Yield all batches, as they follow each other in the files."""
        for segment in self.segments:
            yield from segment.batches


class BatchTwice(NamedTuple):
    """Two replicas appended different batches with the same base offset and leader epoch."""

    partition: tuple[Uuid, int]
    offset: int
    epoch: int
    first_node: int
    node: int
    at_ms: int = 0


class LogCut(NamedTuple):
    """A replica's log ends earlier than what it knew to be committed, and not at a start.

    Fields: `high_watermark`: the highest that the replica knew in this life. `may_be`: it is out of
            sync, and its log is compacted: where the leader's has no batch of an epoch any more,
            a start forgets that epoch, and what the replica has of it is cut off, and fetched anew.
    """

    partition: tuple[Uuid, int]
    node: int
    incarnation: int
    before: int
    end: int
    high_watermark: int
    may_be: bool = False
    at_ms: int = 0


class MemberPassed(NamedTuple):
    """A leader's high watermark lies beyond the log end of an in-sync member."""

    partition: tuple[Uuid, int]
    leader: int
    node: int
    epoch: int
    high_watermark: int
    end: int
    at_ms: int = 0


class StartMoved(NamedTuple):
    """A log start moved although only `reason` was there for it."""

    partition: tuple[Uuid, int]
    node: int
    before: int
    start: int
    reason: str
    at_ms: int = 0


class WatermarkFell(NamedTuple):
    """A replica's high watermark fell within one life and leader epoch, its log not cut."""

    partition: tuple[Uuid, int]
    node: int
    incarnation: int
    epoch: int
    before: int
    high_watermark: int
    at_ms: int = 0


LogEvent = BatchTwice | LogCut | MemberPassed | StartMoved | WatermarkFell
