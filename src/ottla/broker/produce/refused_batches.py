"""Batches of an idempotent producer after a refused one are refused with the same error.

1. A producer has several batches of a partition in flight on one connection.
2. The first is refused with a transient error: this broker does not lead yet, or too few replicas
   are in sync.
3. The cause is gone before the second is handled. Its sequence is too high:
   OUT_OF_ORDER_SEQUENCE_NUMBER.
4. librdkafka then bumps the producer's epoch, for all its partitions, and renumbers the batches
   without a response. Records of other partitions whose responses were lost, with a leader that
   died for example, are in their logs with the old sequences, so that their retries are not
   recognized as duplicates.

Kafka's brokers answer so. Here the second batch gets the first one's error, and both are retried in
order. A log accepts any first sequence from an unknown producer: there the second batch would even
be appended, and the retry of the first would be out of order. A producer that gives up the first
batch bumps its epoch or gets another id; in case one does not, at most LATER_BATCHES_MAX batches
are refused.

Source: handle_idempotent_Produce_error of librdkafka; ProducerStateManager of Kafka, KIP-360.
"""

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.log.producers.producer_state import BATCHES_KEPT, ProducerEntry
from ottla.records.batch import HEADER_SIZE, INT32_MAX

if TYPE_CHECKING:
    from ottla.base.ports import Buffer

PASSING: Final = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS})
"""Transient errors, after which a producer retries the same batch."""

LATER_BATCHES_MAX: Final = BATCHES_KEPT - 1
"""How many batches a producer can have in flight behind the refused one."""

PRODUCERS_MAX: Final = 1_000
"""How many producers a partition remembers; beyond that the oldest are dropped."""

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
    """Of one partition: by producer, the first batch that was refused and not yet retried."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def note(self, data: "Buffer", refusal: ApiError, producers: Producers) -> None:
        """Remember a refused batch, if the error is transient. `producers`: of the log."""
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
        """Check a client's next batch. Raises: ApiError where it follows a refused one."""
        if len(data) < HEADER_SIZE:
            return
        producer_id, epoch, sequence = _producer_of(data)
        known = self._take(producer_id, epoch, producers)
        if known is None or not _is_after(sequence, known.sequence):
            return  # It is the retry, or there will be none.
        if known.left > 1:
            self._by_producer[producer_id] = known._replace(left=known.left - 1)
        raise ApiError(known.error, known.message)

    def _take(self, producer_id: int, epoch: int, producers: Producers) -> _Refused | None:
        """Remove and return a producer's refused batch; None where it is outdated.

        A batch that a follower refused was sent to the leader, and replicated from there.
        """
        known = self._by_producer.pop(producer_id, None)
        if known is None or known.epoch != epoch:
            return None
        entry = producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return known
        return known if _is_after(known.sequence, entry.last_sequence) else None


def _is_after(sequence: int, other: int) -> bool:
    """Tell whether a sequence comes after another; they wrap around after 2^31 - 1."""
    return 0 < (sequence - other) & INT32_MAX < 1 << 30
