"""A transactional producer and its coordinator in one; each transaction is of one partition.

A transaction has a few batches, some of them apart, and a marker that commits or aborts it, which
is written again until it is acknowledged. What becomes of its records is known from the beginning:
a batch that is given up is part of it, or is nowhere.

Not done: sequence numbers, transactions over several partitions, transaction timeouts.
Source: KIP-98.
"""

from collections.abc import Callable

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.records.builder import encode_batch
from ottla.records.control import build_marker
from ottla.testing.history.history import Write
from ottla.testing.history.topics import Outcome, TopicPartition
from ottla.testing.history.transactions import NOT_DECIDED_MS, TransactionSeen
from ottla.testing.sim_clients.client import SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.partition_queue import UNTOUCHED

Append = Callable[[TopicPartition, bytes], Pending[int | Error]]

RETRY_MS = 150
BATCHES_MAX = 6
PRODUCER_ID_FIRST = 1 << 40
"""Far above those that the controller hands out."""


class TransactionWriter:
    """Writes one transaction after the other, in some partition of a topic.

    `append`: appends a batch on a partition's leader. `number`: of this writer. `interval_ms`: the
    mean time between batches.
    """

    def __init__(
        self, client: SimClient, topic: str, *, append: Append, number: int, interval_ms: int
    ) -> None:
        self.client = client
        self.topic = topic
        self.interval_ms = interval_ms
        self.is_done = False
        """Whether it was stopped, and its last transaction has ended."""
        self._append = append
        self._producer_id = PRODUCER_ID_FIRST + number
        self._values = 0
        self._batches = 0
        self._stopped = False
        client.follow(topic)

    def begin(self) -> None:
        """Start to write."""
        self.client.run(self._work())

    def stop(self) -> None:
        """Begin no other transaction, and no other batch."""
        self._stopped = True

    def _work(self) -> Dialogue[None]:
        client, below = self.client, self.client.dice.below
        while not self._stopped:
            partitions = client.partitions_of(self.topic)
            if not partitions:
                yield client.refresh()
                continue
            yield from self._transaction(partitions[below(len(partitions))])
            yield 1 + below(2 * self.interval_ms)
        self.is_done = True

    def _transaction(self, partition: TopicPartition) -> Dialogue[None]:
        client, below = self.client, self.client.dice.below
        committed = below(2) == 0
        transactions = client.history.transactions.ended
        at, values = len(transactions), tuple[bytes, ...]()
        transactions.append(TransactionSeen(client.name, partition, values, committed))
        for _ in range(1 + below(BATCHES_MAX)):
            if self._stopped:
                break
            batch = tuple(self._value() for _ in range(1 + below(3)))
            values += batch
            transactions[at] = transactions[at]._replace(values=values)
            yield from self._write(partition, batch)
            yield 1 + below(2 * self.interval_ms)
        transactions[at] = transactions[at]._replace(decided_ms=client.now_ms)
        while not (yield from self._mark(partition, committed)):
            if partition[0] in client.history.deleted:
                transactions[at] = transactions[at]._replace(decided_ms=NOT_DECIDED_MS)
                return
            yield RETRY_MS

    def _value(self) -> bytes:
        self._values += 1
        return f"{self.client.name}:{self._values}".encode()

    def _write(self, partition: TopicPartition, values: tuple[bytes, ...]) -> Dialogue[None]:
        """Append a batch once."""
        client, made_ms = self.client, self.client.clock.now_ms()
        batch = encode_batch(
            [(None, value, (), made_ms) for value in values],
            producer_id=self._producer_id,
            producer_epoch=0,
            transactional=True,
        )
        sent_ms = client.now_ms
        result: int | Error = yield self._append(partition, batch)
        outcome = Outcome.ACKNOWLEDGED
        if isinstance(result, Error):
            outcome = Outcome.FAILED if result in UNTOUCHED else Outcome.UNKNOWN
        self._batches += 1
        client.history.writes.append(
            Write(
                client=client.name,
                partition=partition,
                values=values,
                number=self._batches,
                outcome=outcome,
                offset=-1 if isinstance(result, Error) else result,
                sent_ms=sent_ms,
                ended_ms=client.now_ms,
                made_ms=made_ms,
            )
        )

    def _mark(self, partition: TopicPartition, committed: bool) -> Dialogue[bool]:
        """Append the marker; tell whether it is acknowledged. A second one has no effect."""
        marker = build_marker(
            committed=committed,
            producer_id=self._producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.client.clock.now_ms(),
        )
        result: int | Error = yield self._append(partition, marker)
        return not isinstance(result, Error)
