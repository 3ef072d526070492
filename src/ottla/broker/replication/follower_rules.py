"""Rules of a follower: from which offset to fetch, what to truncate, what to do after an error.

A follower's log must become equal to the leader's. Each fetch carries the epoch of the follower's
last record. Where the logs diverge before that, the response says so (diverging epoch), and the
follower truncates its log to what both have. That may take several rounds where leaders changed
often.

Source: Kafka's AbstractFetcherThread (getOffsetTruncationState, fetchOffsetAndTruncate,
processFetchRequest) and ReplicaFetcherThread; KIP-101, KIP-279, KIP-320, KIP-595.
"""

from enum import Enum
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_OFFSET
from ottla.broker.replication.remote_log_port import AuxState
from ottla.log.partition_log import PartitionLog
from ottla.log.remote_prefix import RemotePrefix
from ottla.records.batch import parse_header


class Position(NamedTuple):
    """A follower's next fetch offset, and the epoch of its last record."""

    fetch_offset: int
    last_fetched_epoch: int


def position_of(log: PartitionLog) -> Position:
    """Return the position of the next fetch.

    A log without epochs, in which there is nothing to compare, is empty: see `prepare`.
    """
    return Position(log.log_end_offset, log.latest_epoch)


def prepare(log: PartitionLog) -> bool:
    """Prepare a log to follow a new leader; return whether it was truncated.

    Where its records have no epochs, the log is truncated to its high watermark: whether the leader
    has the rest cannot be found out. Raises: ApiError, OSError.
    """
    if log.latest_epoch != NO_EPOCH:
        return False
    return log.truncate_to(log.high_watermark)


def truncation_offset(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Return where to truncate a log, when the leader's `epoch` ends at `end_offset`.

    `epoch` is the leader's largest that is not above the one in the request. Where this log does
    not have it either, all later epochs are truncated, and the next response says more.
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


def is_in_remote_prefix(log: PartitionLog, offset: int) -> bool:
    """Return whether a truncation to this offset leaves only records in remote storage.

    The producers' state at that offset is not known here: it must come from remote storage, too.
    """
    return log.log_start_offset < offset < log.local_log_start_offset


def is_wanted_for(log: PartitionLog, state: AuxState, cut: int | None) -> bool:
    """Return whether a log is to be emptied and begun as `state` says.

    `cut`: where the log is to be truncated, within its remote prefix; None = its next records are
    in the leader's remote storage only, unless the leader's local log starts earlier by now.
    """
    return cut is not None or state.leader_start > log.log_end_offset


def starts_anew(log: PartitionLog, leader_start: int, end_offset: int) -> bool:
    """Tell whether to delete all records: above the high watermark none is surely the leader's.

    `end_offset`: where the leader's records of this log's last epoch end, by its answer. An epoch
    before all that it knows ends at its log start for it, whatever the records below were:

    1. Broker 1 leads in epoch 27. It appends the offsets 879 to 892, commits none, and dies.
    2. Broker 3 leads in epoch 28, and commits other records at the same offsets. Retention moves
       its log start to 890, and the first epoch that it knows is 28, from there on.
    3. Broker 1 fetches from 893, in its epoch 27. The answer: that one ends at 890.
    4. Truncated to 890, broker 1 keeps 879 to 889. It follows, joins the ISR and leads. Its
       producer state has the sequences of these records, so it answers a retry of one with success,
       as a duplicate: a record that is in no log is acknowledged. And if it is killed before the
       log start is in its checkpoint, it serves these records.

    What is below the own high watermark is committed, and so it is, or was, the leader's, too.
    """
    return log.high_watermark < leader_start and end_offset <= leader_start


def is_comparable(
    log: PartitionLog, leader_start: int, leader_epoch: int, records: memoryview
) -> bool:
    """Tell whether the log matches the leader's, which has answered a fetch with `records`.

    At its log start the leader accepts any epoch before all that it knows: see `starts_anew`.
    Raises: RecordsError.
    """
    offset, epoch = position_of(log)
    if epoch in (NO_EPOCH, leader_epoch) or not starts_anew(log, leader_start, offset):
        return True
    return bool(records) and parse_header(records).partition_leader_epoch == epoch


def start_at_first_batch(log: PartitionLog, records: memoryview) -> bool:
    """Move the start of an empty log back to the first batch received; return whether it was moved.

    A leader's log can start in the middle of a batch (DeleteRecords), and is sent the whole batch.
    Raises: RecordsError, ApiError, OSError.
    """
    if log.size_bytes or not records:
        return False
    first = parse_header(records)
    if not first.base_offset < log.log_end_offset <= first.last_offset:
        return False
    prefix = RemotePrefix(log_start_offset=log.log_start_offset) if log.has_remote_prefix else None
    log.truncate_fully_and_start_at(first.base_offset, prefix)
    return True


class Reaction(Enum):
    """What a follower does after a partition's error code."""

    APPEND = "append the records"
    RESET_OFFSET = "ask the leader for its log start and log end"
    RETRY = "back off and retry: leader and follower do not have the same metadata yet"
    BUILD_AUX_STATE = "begin the log behind the records that the leader has in remote storage only"
    RETRY_UNEXPECTED = "back off and retry, and log an error: this should not happen"


REACTIONS: dict[int, Reaction] = {
    Error.NONE: Reaction.APPEND,
    Error.OFFSET_OUT_OF_RANGE: Reaction.RESET_OFFSET,
    Error.FENCED_LEADER_EPOCH: Reaction.RETRY,
    Error.UNKNOWN_LEADER_EPOCH: Reaction.RETRY,
    Error.NOT_LEADER_OR_FOLLOWER: Reaction.RETRY,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
    Error.UNKNOWN_TOPIC_ID: Reaction.RETRY,
    Error.INCONSISTENT_TOPIC_ID: Reaction.RETRY,
    Error.KAFKA_STORAGE_ERROR: Reaction.RETRY,
    Error.OFFSET_MOVED_TO_TIERED_STORAGE: Reaction.BUILD_AUX_STATE,
}
"""KAFKA_STORAGE_ERROR means that the leader's disk failed: another leader will be elected."""


def reaction_to(code: int) -> Reaction:
    """Return what to do after an error code, known or not."""
    # An Error is an int, so an unknown code is looked up like any other.
    return REACTIONS.get(code, Reaction.RETRY_UNEXPECTED)


class OffsetReset(Enum):
    """What a follower does whose fetch offset the leader does not have. The values are logged."""

    TRUNCATE = "truncating to the leader's log end"
    TRUNCATE_FULLY = "deleting all records and starting at the leader's log start"
    KEEP = "the offset is in range by now; retrying"


def decide_offset_reset(log: PartitionLog, leader_start: int, leader_end: int) -> OffsetReset:
    """Decide what to do, given the leader's log start and log end.

    A leader's end below this log's means that a replica which lacked records was elected (unclean).
    """
    if leader_end < log.log_end_offset:
        return (
            OffsetReset.TRUNCATE
            if leader_end >= log.log_start_offset
            else OffsetReset.TRUNCATE_FULLY
        )
    if leader_start > log.log_end_offset:
        return OffsetReset.TRUNCATE_FULLY
    return OffsetReset.KEEP
