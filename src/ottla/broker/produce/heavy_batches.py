"""Produced batches that a worker validates before they are appended.

1. An append finds that a batch takes longer to validate than the loop should be blocked.
2. Its bytes are copied out of the connection's receive buffer, and a worker validates the copy.
   The connection handles no other request meanwhile, so that its order stays.
3. The validated batch is appended like any other: if this broker still leads, after what other
   producers have sent since, under the topic settings of that moment.

A producer that has lost its connection may reconnect while its batch is still being validated. Its
next batches wait behind it, so that its sequences keep their order. Other producers of the
partition do not wait.
"""

import struct
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.ports import Buffer
from ottla.broker.partition import Partition
from ottla.broker.produce.batch_work import BatchWork
from ottla.log.validation import Examined, examine, expanded_bytes_max
from ottla.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE

if TYPE_CHECKING:
    from ottla.log.config import LogConfig

_producer_of: Final = struct.Struct(">43xq").unpack_from

Outcome = Examined | ApiError | OSError


class HeavyBatches:
    """The heavy batches of one broker."""

    def __init__(self, work: BatchWork) -> None:
        self._work = work
        self._last: dict[tuple[Partition, int], Pending[Outcome]] = {}
        """By partition and producer: the last batch that is being validated."""

    @property
    def is_full(self) -> bool:
        """Tell whether the queue is full."""
        return self._work.is_full

    def is_waited_for(self, partition: Partition, data: Buffer) -> bool:
        """Tell whether a batch of the same producer is being validated."""
        if not self._last or len(data) < HEADER_SIZE:
            return False
        (producer_id,) = _producer_of(data)
        return producer_id >= 0 and (partition, producer_id) in self._last

    def examine(
        self, partition: Partition, data: Buffer, config: "LogConfig", owner: object
    ) -> Pending[Outcome]:
        """Validate a copy of a batch; the first listener of the promise appends it.

        `owner`: for the queue's round-robin order; None = an owner of its own.
        """
        copy = bytearray(data)
        is_packed = copy[ATTRIBUTES_AT + 1] & CODEC_MASK
        expands_to = len(copy) + (expanded_bytes_max(config) if is_packed else 0)
        where = f"{partition.topic}-{partition.partition_id}"
        examined: Pending[Outcome] = self._work.submit(
            lambda: examine(copy, config, where),
            expands_to=expands_to,
            owner=owner,
            held=len(copy),
        )
        (producer_id,) = _producer_of(copy)
        key = partition, producer_id
        before = self._last.get(key)
        if producer_id < 0 or (examined.done and before is None):
            return examined
        outcome: Pending[Outcome] = Pending()
        self._last[key] = outcome
        outcome.then(lambda _: self._ended(key, outcome))
        if before is None:
            examined.then(lambda found: _keep(outcome, found))
        else:
            # The earlier one may take longer; its appending listener was added to `before` first.
            before.then(lambda _: examined.then(lambda found: _keep(outcome, found)))
        return outcome

    def _ended(self, key: tuple[Partition, int], outcome: Pending[Outcome]) -> None:
        if self._last.get(key) is outcome:
            del self._last[key]


def _keep(promise: Pending[Outcome], found: Outcome) -> None:
    promise.complete(found)
