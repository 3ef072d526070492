"""The open batches of one producer for one partition: sequence numbers, order and outcome.

The rules of a real producer: a batch gets its sequence number when it is first sent and keeps it
through every retry; at most five are in flight; an idempotent producer retries in
the order of the sequences, so that a gap that a broker rejected gets filled.

Source: TransactionManager, RecordAccumulator and Sender of Kafka's producer; KIP-98, KIP-360.
"""

from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.testing.history.history import ACKS_ALL, Write
from ottla.testing.history.topics import Outcome, TopicPartition

UNTOUCHED = frozenset(
    {
        Error.NOT_ENOUGH_REPLICAS,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.LEADER_NOT_AVAILABLE,
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error.INVALID_PRODUCER_EPOCH,
        Error.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors of batches that were not appended."""

RETRIED = frozenset(
    {
        Error.NETWORK_EXCEPTION,
        Error.REQUEST_TIMED_OUT,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.LEADER_NOT_AVAILABLE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.KAFKA_STORAGE_ERROR,
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors after which the same batch is sent again."""


@dataclass(slots=True)
class Batch:
    """One batch until its outcome is known."""

    values: tuple[bytes, ...]
    number: int
    sequence: int
    sent_ms: int
    made_ms: int
    """The wall-clock timestamp of its records."""
    keys: tuple[bytes, ...] = ()
    tombstones: tuple[bool, ...] = ()
    tries: int = 0
    in_flight: bool = False
    touched: bool = False
    """Some attempt may have been appended."""


class PartitionQueue:
    """One partition's batches, oldest first. `producer`: id and epoch; None = not idempotent."""

    def __init__(
        self,
        client: str,
        partition: TopicPartition,
        producer: tuple[int, int] | None,
        *,
        in_flight_max: int,
        acks: int = ACKS_ALL,
    ) -> None:
        assert 1 <= in_flight_max <= 5
        self.acks = acks
        self.client = client
        self.partition = partition
        self.producer = producer
        self.in_flight_max = in_flight_max
        self.batches: list[Batch] = []
        self.backing_off = False
        self._next_sequence = 0
        self._numbers = 0

    def add(
        self,
        values: tuple[bytes, ...],
        now_ms: int,
        wall_ms: int,
        keys: tuple[bytes, ...] = (),
        tombstones: tuple[bool, ...] = (),
    ) -> None:
        """Add a new batch at the end."""
        batch = Batch(values, self._numbers, self._next_sequence, now_ms, wall_ms, keys, tombstones)
        self.batches.append(batch)
        self._numbers += 1
        self._next_sequence += len(values)

    def ready(self) -> Batch | None:
        """Return the batch to send next, or None while there is none or enough are in flight."""
        if self.backing_off or sum(each.in_flight for each in self.batches) >= self.in_flight_max:
            return None
        return next((each for each in self.batches if not each.in_flight), None)

    def sent(self, batch: Batch) -> None:
        """Count an attempt."""
        assert not batch.in_flight
        batch.in_flight = True
        batch.tries += 1

    def refused(self, batch: Batch, error: Error) -> None:
        """Record a failed attempt; the batch waits for the next one."""
        batch.in_flight = False
        batch.touched |= error not in UNTOUCHED

    def is_first(self, batch: Batch) -> bool:
        """Tell whether no earlier batch is open, so that a gap before this one cannot be filled."""
        return bool(self.batches) and self.batches[0] is batch

    def kept(self, batch: Batch, offset: int, node: int, now_ms: int) -> Write:
        """Close a batch that was acknowledged; `offset` -1 = not known to the broker."""
        return self._closed(batch, Outcome.ACKNOWLEDGED, now_ms, offset, node)

    def given_up(self, batch: Batch, now_ms: int) -> Write:
        """Close a batch that is not sent again."""
        unknown = batch.touched or batch.in_flight
        return self._closed(batch, Outcome.UNKNOWN if unknown else Outcome.FAILED, now_ms)

    def restart(self, producer: tuple[int, int] | None) -> None:
        """Start with sequence 0 in a new epoch; all batches are closed."""
        assert not self.batches
        self.producer = producer
        self._next_sequence = 0

    def _closed(
        self, batch: Batch, outcome: Outcome, now_ms: int, offset: int = -1, node: int = -1
    ) -> Write:
        self.batches.remove(batch)
        return Write(
            client=self.client,
            partition=self.partition,
            values=batch.values,
            number=batch.number,
            outcome=outcome,
            offset=offset,
            producer=self.producer,
            sent_ms=batch.sent_ms,
            ended_ms=now_ms,
            node=node,
            tries=batch.tries,
            made_ms=batch.made_ms,
            acks=self.acks,
            keys=batch.keys,
            tombstones=batch.tombstones,
        )
