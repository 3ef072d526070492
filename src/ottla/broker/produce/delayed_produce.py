"""Produce requests that wait: for in-sync replicas and for flushes.

Source: Kafka's DelayedProduce, ReplicaManager.appendRecords.
"""

from typing import NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_OFFSET
from ottla.base.pending import Pending
from ottla.broker.partition import ACKS_ALL, Partition
from ottla.broker.purgatory import DelayedOperation, Purgatory
from ottla.log.validation import NullKeys

WITHOUT_KEY = "a compacted topic takes no record without a key"


class AppendResult(NamedTuple):
    """How an append to one partition ended; offsets are -1 where it failed."""

    error: Error
    message: str | None = None
    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: int = NO_OFFSET
    record_errors: tuple[tuple[int, str | None], ...] = ()
    """(index in the batch, what is wrong with it) of the records that spoilt the batch."""


class Wait(NamedTuple):
    """One append that waits: its slot in the results, its end offset, its flush."""

    slot: int
    partition: Partition
    next_offset: int
    flushed: Pending[OSError | None] | None

    def outcome(self, acks: int) -> Error | None:
        """Return the result of the wait, or None while it lasts."""
        if self.flushed is not None:
            if not self.flushed.done:
                return None
            if self.flushed.value is not None:
                return Error.KAFKA_STORAGE_ERROR
        return self.partition.committed(self.next_offset) if acks == ACKS_ALL else Error.NONE


def delay_produce(
    purgatory: Purgatory,
    results: list[AppendResult],
    waits: list[Wait],
    acks: int,
    deadline_ms: int,
    closed: Pending[None] | None = None,
) -> Pending[list[AppendResult]]:
    """Wait for replicas and flushes; `results` is completed in place."""
    pending: Pending[list[AppendResult]] = Pending()

    def attempt() -> bool:
        still: list[Wait] = []
        for wait in waits:
            error = wait.outcome(acks)
            if error is None:
                still.append(wait)
            elif error is not Error.NONE:
                results[wait.slot] = AppendResult(error, error.message)
        waits[:] = still
        return not still and (pending.complete(results) or True)

    def expire() -> None:
        for wait in waits:
            results[wait.slot] = AppendResult(
                Error.REQUEST_TIMED_OUT, "not all in-sync replicas stored the batch in time"
            )
        pending.complete(results)

    operation = purgatory.add(
        [wait.partition for wait in waits],
        attempt=attempt,
        expire=expire,
        deadline_ms=deadline_ms,
        closed=closed,
    )
    for wait in tuple(waits):
        if wait.flushed is not None:
            wait.flushed.then(lambda _: _try_now(operation))
    return pending


def refused(partition: Partition, refusal: ApiError) -> AppendResult:
    """Return the result of an append that was refused."""
    log = partition.log
    if log is None:
        return AppendResult(refusal.error, refusal.message)
    # The producer fails only the records that are named.
    indexes = refusal.indexes if isinstance(refusal, NullKeys) else ()
    return AppendResult(
        refusal.error,
        refusal.message,
        log_start_offset=log.log_start_offset,
        record_errors=tuple((index, WITHOUT_KEY) for index in indexes),
    )


def _try_now(operation: DelayedOperation) -> None:
    operation.try_now()
