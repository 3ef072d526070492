"""A producer, idempotent or not, that keeps writing unique values to a topic.

Sequence numbers, retries and epochs are those of a real client. After a batch was given up, or an
error that a retry cannot fix, an idempotent producer starts a new epoch: the outcome of open
batches is recorded as unknown, and brokers reject the old epoch once they have seen the new one
(KIP-360).

With acks=0 there is no response: the outcome of each batch is unknown. Some keyed records are
tombstones, which carry their unique value in a header.

Not done: several partitions in one request; transactions.
Source: KafkaProducer's Sender and TransactionManager, Kafka 4.0.
"""

from functools import partial

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.records.builder import NewRecord, encode_batch
from ottla.records.compression import Codec
from ottla.testing.history.history import ACKS_ALL, Progress, Write
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim_clients.client import SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.partition_queue import RETRIED, Batch, PartitionQueue
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE_VERSION = 13
INIT_VERSION = 4
NO_PRODUCER = (-1, -1)
EPOCH_MAX = 32_766

REQUEST_TIMEOUT_MS = 3_000
BROKER_TIMEOUT_MS = 2_000
DELIVERY_TIMEOUT_MS = 20_000
RETRY_BACKOFF_MS = 100
OPEN_MAX = 5
"""Open batches of one partition: a producer's buffer is bounded."""

NEW_EPOCH = frozenset({Error.INVALID_PRODUCER_EPOCH, Error.UNKNOWN_PRODUCER_ID})
ONE_WAY_TIMEOUT_MS = 200
"""How long a connection stays open after a request without a response."""
TOMBSTONE_ONE_IN = 6
RARE_ONE_IN, RARE_KEYS = 4, 60
"""The newest record of a rare key stays the newest through several cleanings."""
IDENTITY = "value"
"""The header with the unique value of a tombstone."""

LANDED = frozenset({Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER})


class Producer:
    """One producer of one topic.

    Fields: `interval_ms`: the mean time between batches; `in_flight_max`: of one partition;
            `acks`: -1, 0 or 1; `keys`: how many there are beside rare ones, 0 = records have
            none; `codec`: of its batches; `new_epochs`: how often it had to begin again with
            its sequence numbers.
    """

    def __init__(
        self,
        client: SimClient,
        topic: str,
        *,
        idempotent: bool,
        interval_ms: int,
        in_flight_max: int = 5,
        acks: int = ACKS_ALL,
        keys: int = 0,
        codec: Codec = Codec.NONE,
    ) -> None:
        assert acks == ACKS_ALL or not idempotent
        self.client = client
        self.topic = topic
        self.acks = acks
        self.keys = keys
        self.codec = codec
        self.idempotent = idempotent
        self.interval_ms = interval_ms
        self.in_flight_max = in_flight_max if idempotent else 1
        self.acknowledged = 0
        self.new_epochs = 0
        self._producer = NO_PRODUCER
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._values = 0
        self._stopped = False
        self._renewing = False
        client.follow(topic)

    def begin(self) -> None:
        """Start to write."""
        self.client.run(self._work())

    def stop(self) -> None:
        """Start no further batch; open ones are finished."""
        self._stopped = True

    @property
    def is_done(self) -> bool:
        """Tell whether the outcome of every batch is known."""
        return not any(queue.batches for queue in self._queues.values())

    def _work(self) -> Dialogue[None]:
        client = self.client
        while not client.partitions_of(self.topic):
            yield client.refresh()
        if self.idempotent:
            yield from self._init()
        while not self._stopped:
            yield 1 + client.dice.below(2 * self.interval_ms)
            self._expire()
            if not self._stopped:  # The logs may already have been read for the history.
                self._write()
        while not self.is_done:
            yield self.interval_ms
            self._expire()

    def _init(self) -> Dialogue[None]:
        """Get a producer id, with retries."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            answer = yield self.client.send(self.client.any_node(), request, INIT_VERSION)
            if not isinstance(answer, ApiError) and answer.error_code == Error.NONE:
                self._producer = (answer.producer_id, answer.producer_epoch)
                return
            yield RETRY_BACKOFF_MS

    def _write(self) -> None:
        """Begin one batch, in some partition."""
        client = self.client
        partitions = client.partitions_of(self.topic)
        if not partitions:
            client.refresh()
            return
        self._leave_old_topics(partitions)
        chosen = partitions[client.dice.below(len(partitions))]
        queue = self._queues.get(chosen)
        if queue is None:
            producer = self._producer if self.idempotent else None
            queue = PartitionQueue(
                client.name, chosen, producer, in_flight_max=self.in_flight_max, acks=self.acks
            )
            self._queues[chosen] = queue
        if len(queue.batches) >= OPEN_MAX:
            return
        count = 1 + client.dice.below(3)
        values = tuple(
            f"{client.name}:{self._values + each}".encode() for each in range(1, count + 1)
        )
        self._values += count
        below = client.dice.below
        keys = tuple(self._key() for _ in values) if self.keys else ()
        tombstones = tuple(below(TOMBSTONE_ONE_IN) == 0 for _ in keys)
        queue.add(values, client.now_ms, client.clock.now_ms(), keys, tombstones)
        self._pump(queue)

    def _key(self) -> bytes:
        """Return a key: mostly a frequent one, sometimes a rare one."""
        below = self.client.dice.below
        if below(RARE_ONE_IN) == 0:
            return b"rare-%d" % below(RARE_KEYS)
        return b"key-%d" % below(self.keys)

    def _leave_old_topics(self, partitions: list[TopicPartition]) -> None:
        """Give up the batches for a topic that was replaced by another one of its name.

        The queue is kept: a lagging broker may return the old topic id once more, and then the new
        one again, where a sequence that started again at 0 would look like a retry.
        """
        topic_id = partitions[0][0]
        left = [
            queue for key, queue in self._queues.items() if key[0] != topic_id and queue.batches
        ]
        for queue in left:
            for batch in list(queue.batches):
                self._record(queue.given_up(batch, self.client.now_ms))
        if any(queue.producer is not None for queue in left):
            self._new_epoch()

    # -- sending -------------------------------------------------------------------------------

    def _pump(self, queue: PartitionQueue) -> None:
        """Send what may be sent."""
        while not self._renewing and (batch := queue.ready()) is not None:
            leader = self.client.leaders.get(queue.partition)
            if leader is None or leader.node == NO_LEADER:
                self._back_off(queue)
                return
            queue.sent(batch)
            timeout_ms = REQUEST_TIMEOUT_MS if self.acks else ONE_WAY_TIMEOUT_MS
            pending = self.client.send(
                leader.node, self._request(queue, batch), PRODUCE_VERSION, timeout_ms
            )
            pending.then(partial(self._answered, queue, batch, leader.node))

    def _request(self, queue: PartitionQueue, batch: Batch) -> ProduceRequest:
        producer_id, epoch = queue.producer or NO_PRODUCER
        # A retry sends the same bytes: the timestamp is that of the batch's creation.
        records = encode_batch(
            _records(batch),
            codec=self.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.sequence if queue.producer else -1,
        )
        topic_id, number = queue.partition
        data = PartitionProduceData(index=number, records=records)
        topic = TopicProduceData(topic_id=topic_id, partition_data=(data,))
        return ProduceRequest(acks=self.acks, timeout_ms=BROKER_TIMEOUT_MS, topic_data=(topic,))

    def _answered(
        self, queue: PartitionQueue, batch: Batch, node: int, response: ProduceResponse | ApiError
    ) -> None:
        if batch not in queue.batches:
            return  # Given up meanwhile.
        if self.acks == 0:
            queue.refused(batch, Error.REQUEST_TIMED_OUT)
            self._record(queue.given_up(batch, self.client.now_ms))
            self._pump(queue)
            return
        error, result = _result(response)
        if error in LANDED:
            offset = result.base_offset if result is not None and error is Error.NONE else -1
            self._record(queue.kept(batch, offset, node, self.client.now_ms))
            self._pump(queue)
            return
        hopeless = error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.is_first(batch)
        queue.refused(batch, error)
        if error in NEW_EPOCH or (hopeless and queue.producer is not None):
            self._new_epoch(init=error in NEW_EPOCH)
        elif error in RETRIED:
            self._back_off(queue)
        else:
            self._record(queue.given_up(batch, self.client.now_ms))

    def _back_off(self, queue: PartitionQueue) -> None:
        """Send nothing for the retry backoff, then refresh the metadata."""
        if not queue.backing_off:
            queue.backing_off = True
            self.client.run(self._resume_after_backoff(queue))

    def _resume_after_backoff(self, queue: PartitionQueue) -> Dialogue[None]:
        yield RETRY_BACKOFF_MS
        yield self.client.refresh()
        queue.backing_off = False
        self._expire()
        self._pump(queue)

    # -- giving up -----------------------------------------------------------------------------

    def _expire(self) -> None:
        """Give up batches older than the delivery timeout."""
        now_ms = self.client.now_ms
        for queue in [each for each in self._queues.values() if each.batches]:
            late = [each for each in queue.batches if now_ms - each.sent_ms >= DELIVERY_TIMEOUT_MS]
            for batch in late:
                self._record(queue.given_up(batch, now_ms))
            if late and queue.producer is not None:
                self._new_epoch()

    def _new_epoch(self, *, init: bool = False) -> None:
        """Give up open batches and start with sequence 0 in a new epoch.

        A producer may bump its epoch itself; if the broker has rejected its epoch or id, it needs a
        new producer id.
        """
        self.new_epochs += 1
        now_ms = self.client.now_ms
        producer_id, epoch = self._producer
        self._producer = (producer_id, epoch + 1)
        for queue in self._queues.values():
            for batch in list(queue.batches):
                self._record(queue.given_up(batch, now_ms))
            queue.restart(self._producer)
        if (init or epoch + 1 >= EPOCH_MAX) and not self._renewing:
            self._renewing = True
            self.client.run(self._init_anew())

    def _init_anew(self) -> Dialogue[None]:
        yield from self._init()
        for queue in self._queues.values():
            for batch in list(queue.batches):  # Begun meanwhile; none was sent.
                self._record(queue.given_up(batch, self.client.now_ms))
            queue.restart(self._producer)
        self._renewing = False

    def _record(self, write: Write) -> None:
        history = self.client.history
        history.writes.append(write)
        if write.node >= 0:
            self.acknowledged += 1
            what = f"writes to {self.topic}-{write.partition[1]}"
            history.progress.append(Progress(what, write.ended_ms))


def _records(batch: Batch) -> list[NewRecord]:
    if not batch.keys:
        return [(None, value, (), batch.made_ms) for value in batch.values]
    return [
        (key, None, ((IDENTITY, value),), batch.made_ms)
        if is_tombstone
        else (key, value, (), batch.made_ms)
        for key, value, is_tombstone in zip(batch.keys, batch.values, batch.tombstones, strict=True)
    ]


def _result(response: ProduceResponse | ApiError) -> tuple[Error, PartitionProduceResponse | None]:
    if isinstance(response, ApiError):
        return response.error, None
    result = response.responses[0].partition_responses[0]
    return Error(result.error_code), result
