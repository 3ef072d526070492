"""The part of a `History` about the logs of replicas; input of `checkers_log`.

A `ReplicaLog` is one replica at the end of a history: the files on its disk, and its node's
in-memory state of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.log.indexes.transaction_index import AbortedTransaction


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
    is_transactional: bool = False
    aborts: bool = False
    """It is the marker of an aborted transaction."""


class RecordSeen(NamedTuple):
    """A record of a compacted log."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class SegmentSeen(NamedTuple):
    """A segment's files, and its indexes: the active one's are those in memory.

    Fields: `size`: its bytes, as its node has it in memory; `file_size`: of the file, -1 = there is
            none. `damage`: why reading ended before `size`; None = it did not.
            `largest`: the largest timestamp in memory; None = not loaded.
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
    aborted: tuple[AbortedTransaction, ...] | None = ()
    """The transaction index; None = it cannot be decoded."""
    is_active: bool = False
    largest: int | None = None


class ProducerSeen(NamedTuple):
    """A producer's state in a replica. `batches`: (last sequence, last offset), ascending;
    `in_transactions`: a transaction marker was appended for it: its epoch may be a later one."""

    producer_id: int
    epoch: int
    batches: tuple[tuple[int, int], ...]
    in_transactions: bool = False


class ReplicaLog(NamedTuple):
    """One replica's local log. `start`, `end`, `high_watermark`: as its node has them in memory.

    Fields: `compacted`: records may be missing in it. `strange`: log files of segments that the
            node does not have. `epochs`: (epoch, start offset) in memory; `epochs_stored`: on disk,
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
    """A running replica truncated its log below its own high watermark.

    Fields: `high_watermark`: the highest of the replica in this incarnation. `may_be`: allowed: it
            is out of sync, and its log is compacted. Where the leader has no batch of an epoch any
            more, its next start drops that epoch; the replica truncates to it and fetches again.
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
    """A leader's high watermark is greater than the log end of an in-sync replica."""

    partition: tuple[Uuid, int]
    leader: int
    node: int
    epoch: int
    high_watermark: int
    end: int
    at_ms: int = 0


class StartMoved(NamedTuple):
    """A log start moved without a valid reason; `reason`: the only one there was.

    Fields: `may_be_lost`: a loss of power may have taken the first segments.
    """

    partition: tuple[Uuid, int]
    node: int
    before: int
    start: int
    reason: str
    at_ms: int = 0
    may_be_lost: bool = False


class ExpiredKept(NamedTuple):
    """A retention check left the first segment, which is beyond what `limit` names."""

    partition: tuple[Uuid, int]
    node: int
    base_offset: int
    limit: str
    at_ms: int = 0


class WatermarkFell(NamedTuple):
    """A high watermark fell within one incarnation: in one leader epoch without a truncation, or
    with one, and below the log end that it left."""

    partition: tuple[Uuid, int]
    node: int
    incarnation: int
    epoch: int
    before: int
    high_watermark: int
    at_ms: int = 0


LogEvent = BatchTwice | ExpiredKept | LogCut | MemberPassed | StartMoved | WatermarkFell
