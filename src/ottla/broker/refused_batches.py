"""What follows a refused batch of an idempotent producer is refused for the same reason.

1. A producer has several batches of a partition under way on one connection.
2. The first is refused for a reason that passes: this broker does not lead yet, or too few
   replicas are in sync.
3. The reason passes before the second is looked at. By its sequence it comes too early:
   OUT_OF_ORDER_SEQUENCE_NUMBER.
4. librdkafka then begins another epoch of the producer, for all its partitions, and numbers anew
   what it has not heard of. Records of other partitions whose answers were lost, with a leader
   that died say, are in their logs by the old numbers, and nobody can tell their repetition.

Kafka's brokers answer so. Here the second hears what the first one heard, and both come again in
order. The log of a producer that it does not know yet takes any sequence to begin with: there
the first would even have been taken for late. A producer that gives the first one up begins
another epoch or id of its own accord; should one not, no more than FOLLOWING_MAX batches hear it.

Source: handle_idempotent_Produce_error of librdkafka; ProducerStateManager of Kafka, KIP-360.
"""

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.log.producer_state import BATCHES_KEPT, ProducerEntry
from ottla.records.batch import HEADER_SIZE, INT32_MAX

if TYPE_CHECKING:
    from ottla.base.ports import Buffer

PASSING: Final = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS})
"""Reasons that pass by themselves, for which a producer comes again with the same batch."""

LATER_BATCHES_MAX: Final = BATCHES_KEPT - 1
"""How many batches a producer can have under way behind the refused one."""

PRODUCERS_MAX: Final = 1_000
"""How many are remembered of a partition; of more the oldest are forgotten, as by Kafka all are."""

_producer_of = struct.Struct(">43xqhi").unpack_from
"""Producer id, epoch and first sequence of a record batch."""


Producers = Mapping[int, ProducerEntry]


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    error: Error
    message: str | None
    left: int


class RefusedBatches:
    """Of one partition: by producer, the first batch that was refused and is not back yet."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def note(self, data: "Buffer", refusal: ApiError, producers: Producers) -> None:
        """Remember a client's batch that was refused, if that passes. `producers`: of the log."""
        if refusal.error not in PASSING or len(data) < HEADER_SIZE:
            return
        producer_id, epoch, sequence = _producer_of(data)
        if producer_id < 0:
            return
        known = self._take(producer_id, epoch, producers)
        if known is not None and _is_after(sequence, known.sequence):
            sequence = known.sequence
        elif len(self._by_producer) >= PRODUCERS_MAX:
            del self._by_producer[next(iter(self._by_producer))]
        self._by_producer[producer_id] = _Refused(
            epoch, sequence, refusal.error, refusal.message, LATER_BATCHES_MAX
        )

    def check(self, data: "Buffer", producers: Producers) -> None:
        """Look at a client's next batch. Raises: ApiError where it follows a refused one."""
        if len(data) < HEADER_SIZE:
            return
        producer_id, epoch, sequence = _producer_of(data)
        known = self._take(producer_id, epoch, producers)
        if known is None or not _is_after(sequence, known.sequence):
            return  # It is back, or will never be.
        if known.left > 1:
            self._by_producer[producer_id] = known._replace(left=known.left - 1)
        raise ApiError(known.error, known.message)

    def _take(self, producer_id: int, epoch: int, producers: Producers) -> _Refused | None:
        """Take out what is remembered of a producer; None where that is past.

        A batch that a follower refused went to the leader, and came here with what it copied.
        """
        known = self._by_producer.pop(producer_id, None)
        if known is None or known.epoch != epoch:
            return None
        entry = producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return known
        return known if _is_after(known.sequence, entry.last_sequence) else None


def _is_after(sequence: int, other: int) -> bool:
    """Tell whether a sequence comes after another; they begin anew after 2^31 - 1."""
    return 0 < (sequence - other) & INT32_MAX < 1 << 30
