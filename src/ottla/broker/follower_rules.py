"""The rules of following: where to go on, what to cut off, what an error means.

A follower's log must become the leader's. It says with each fetch in which epoch its last record
was written; where the leader's log parted from it before, the answer says so, and the follower
cuts its log back to what both have. That may take several rounds where leaders changed often.

Source: Kafka's AbstractFetcherThread (getOffsetTruncationState, fetchOffsetAndTruncate,
processFetchRequest) and ReplicaFetcherThread; KIP-101, KIP-279, KIP-320, KIP-595.
"""

from enum import Enum
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_OFFSET
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import parse_header


class Position(NamedTuple):
    """Where a follower's log stands: what it asks for next."""

    fetch_offset: int
    last_fetched_epoch: int


def position_of(log: PartitionLog) -> Position:
    """Return what to ask the leader for.

    A log that knows no epoch, of which there is nothing to compare, is empty: see `prepare`.
    """
    return Position(log.log_end_offset, log.latest_epoch)


def prepare(log: PartitionLog) -> bool:
    """Make a log fit to follow a new leader; tell whether something was cut off.

    Where its records have no epochs only what is known to be committed may stay: nothing could
    tell whether the leader has the rest. Raises: ApiError, OSError.
    """
    if log.latest_epoch != NO_EPOCH:
        return False
    return log.truncate_to(log.high_watermark)


def truncation_offset(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Return where to cut a log, told that the leader's ends `epoch` at `end_offset`.

    `epoch` is the leader's largest that is not above the one asked with. Where this log does not
    know it either, all that it has of later epochs goes, and the next answer says more.
    """
    if end_offset == NO_OFFSET:
        return log.high_watermark
    if epoch == NO_EPOCH:
        return min(end_offset, log.log_end_offset)
    own = log.epoch_end_offset(epoch)
    if own.end_offset == NO_OFFSET:
        return min(end_offset, log.log_end_offset)
    if own.epoch != epoch:
        return min(own.end_offset, log.log_end_offset)
    return min(own.end_offset, end_offset, log.log_end_offset)


def start_at_first_batch(log: PartitionLog, records: memoryview) -> bool:
    """Let an empty log begin where the first batch that came does; tell whether it had to.

    A leader's log can start in the middle of a batch (DeleteRecords), and the batch comes whole.
    Raises: RecordsError, ApiError, OSError.
    """
    if log.size_bytes or not records:
        return False
    first = parse_header(records)
    if not first.base_offset < log.log_end_offset <= first.last_offset:
        return False
    log.truncate_fully_and_start_at(first.base_offset)
    return True


class Reaction(Enum):
    """What a follower does about a partition's error code."""

    TAKE = "append what came"
    LOCATE = "ask the leader where its log begins and ends"
    WAIT = "try again later: leader and follower do not know the same metadata yet"
    COMPLAIN = "try again later, and say so: this should not happen"


REACTIONS: dict[int, Reaction] = {
    Error.NONE: Reaction.TAKE,
    Error.OFFSET_OUT_OF_RANGE: Reaction.LOCATE,
    Error.FENCED_LEADER_EPOCH: Reaction.WAIT,
    Error.UNKNOWN_LEADER_EPOCH: Reaction.WAIT,
    Error.NOT_LEADER_OR_FOLLOWER: Reaction.WAIT,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Reaction.WAIT,
    Error.UNKNOWN_TOPIC_ID: Reaction.WAIT,
    Error.INCONSISTENT_TOPIC_ID: Reaction.WAIT,
    Error.KAFKA_STORAGE_ERROR: Reaction.WAIT,
}
"""KAFKA_STORAGE_ERROR is the leader's disk: another leader will be elected."""


def reaction_to(code: int) -> Reaction:
    """Return what to do about an error code, known or not."""
    # An Error is its number, so an unknown one is looked up like any other.
    return REACTIONS.get(code, Reaction.COMPLAIN)


class OffsetReset(Enum):
    """Where a follower goes on whose offset the leader does not have."""

    CUT = "cut off what lies beyond the leader's end"
    START_OVER = "drop everything and begin at the leader's start"
    GO_ON = "the offset is good again: the leader's log has grown meanwhile"


def decide_offset_reset(log: PartitionLog, leader_start: int, leader_end: int) -> OffsetReset:
    """Decide how to go on once the leader has said where its log begins and ends.

    An end below this log's means that a replica which lacked records was elected (unclean).
    """
    if leader_end < log.log_end_offset:
        return OffsetReset.CUT if leader_end >= log.log_start_offset else OffsetReset.START_OVER
    if leader_start > log.log_end_offset:
        return OffsetReset.START_OVER
    return OffsetReset.GO_ON
