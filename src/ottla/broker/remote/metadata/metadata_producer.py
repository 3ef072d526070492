"""The producer of the metadata topic: idempotent, acks=all, in order for each partition.

A metadata partition has one batch in flight; what is appended meanwhile waits and shares the next
one. A batch whose answer is lost is sent again with the same sequence numbers, to whoever leads
then, until it is answered: it lands once. Where the leader does not know the sequence (its
producer state has expired, or was lost in an unclean election) the batch is sent with a new
producer id. It may be in the log twice then, which replaying it twice leaves without effect.

Each metadata partition has its own producer id, so that a new one disturbs no other partition.

Source: KIP-98, KIP-360; Kafka's ProducerManager of the topic-based RLMM.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.limits import REMOTE_METADATA_WAITING_MAX
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Dice
from ottla.base.timers import Timer, Timers
from ottla.broker.leader_requests import CLOSED, LeaderRequests, TopicIdPartition
from ottla.records.builder import encode_batch

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = 64 * 1024
"""Bytes of values in one batch, but for a single larger one."""

SEQUENCE_MAX: Final = 2**31 - 1

PRODUCER_ID_TIMEOUT_MS: Final = 30_000

NEW_ID_ERRORS: Final = frozenset(
    {
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error.UNKNOWN_PRODUCER_ID,
        Error.INVALID_PRODUCER_EPOCH,
        Error.DUPLICATE_SEQUENCE_NUMBER,
    }
)
"""The leader cannot place the batch: it is sent again with a new producer id."""

GrantProducerId = Callable[[], Pending[int | Error]]


class _Waiting(NamedTuple):
    value: bytes
    answer: Pending[int | ApiError]


class _Stream:
    """One metadata partition: its queue, the batch in flight, its producer id and sequence."""

    __slots__ = ("backoff", "busy", "failures", "in_flight", "producer_id", "queue", "sequence")

    def __init__(self) -> None:
        self.queue: deque[_Waiting] = deque()
        self.in_flight: list[_Waiting] = []
        self.producer_id: int | None = None
        self.sequence = 0
        self.busy = False
        """A batch is in flight, or a producer id, or a backoff is under way."""
        self.failures = 0
        self.backoff: Timer | None = None


class MetadataProducer:
    """See the module. `grant` requests a producer id of this broker."""

    def __init__(
        self,
        topic: str,
        requests: LeaderRequests[bytes, int],
        *,
        grant: GrantProducerId,
        clock: Clock,
        timers: Timers,
        dice: Dice,
        backoff: Backoff | None = None,
    ) -> None:
        self._topic = topic
        self._requests = requests
        self._grant = grant
        self._clock = clock
        self._timers = timers
        self._dice = dice
        self._backoff = Backoff() if backoff is None else backoff
        self._streams: dict[TopicIdPartition, _Stream] = {}
        self._closed = False
        self.waiting = 0
        """Records that wait or are in flight."""
        self.appended = 0
        """Records that were acknowledged."""

    def append(self, key: TopicIdPartition, value: bytes, answer: Pending[int | ApiError]) -> None:
        """Append a value with a null key; complete `answer` with its offset.

        Records of one metadata partition land in the order of their appends. One whose `answer`
        was completed before it was sent, as nobody waits for it any longer, is not sent.

        Errors: BROKER_NOT_AVAILABLE while it closes, THROTTLING_QUOTA_EXCEEDED where too many
        records wait; any error of Produce that a retry cannot mend.
        """
        if self._closed:
            answer.complete(ApiError(Error.BROKER_NOT_AVAILABLE, CLOSED))
        elif self.waiting >= REMOTE_METADATA_WAITING_MAX:
            reason = f"{self.waiting} records of {self._topic} wait to be written"
            answer.complete(ApiError(Error.THROTTLING_QUOTA_EXCEEDED, reason))
        else:
            self.waiting += 1
            stream = self._streams.setdefault(key, _Stream())
            stream.queue.append(_Waiting(value, answer))
            self._send_next(key, stream)

    def drop(self, topic_id: Uuid) -> None:
        """Fail what waits for a topic that no longer exists."""
        gone = ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self._topic} was deleted")
        for key in [key for key in self._streams if key[0] == topic_id]:
            self._requests.cancel(key)
            self._end(self._streams.pop(key), gone)

    def close(self) -> None:
        """Fail what waits; what is in flight may still be written."""
        self._closed = True
        streams, self._streams = self._streams, {}
        for key in streams:
            self._requests.cancel(key)
        for stream in streams.values():
            self._end(stream, ApiError(Error.BROKER_NOT_AVAILABLE, CLOSED))

    def _end(self, stream: _Stream, error: ApiError) -> None:
        if stream.backoff is not None:
            stream.backoff.cancel()
        waiting = [*stream.in_flight, *stream.queue]
        stream.in_flight = []
        stream.queue.clear()
        self._complete(waiting, [error] * len(waiting))

    # -- Sending --

    def _send_next(self, key: TopicIdPartition, stream: _Stream) -> None:
        if stream.busy or self._streams.get(key) is not stream:
            return
        if not stream.in_flight:
            stream.in_flight = self._take(stream)
        if not stream.in_flight:
            return
        stream.busy = True
        count = len(stream.in_flight)
        if stream.producer_id is not None and stream.sequence + count <= SEQUENCE_MAX:
            self._send(key, stream)
            return
        self._grant().then(lambda granted: self._granted(key, stream, granted))

    def _take(self, stream: _Stream) -> list[_Waiting]:
        """Take the records of the next batch; leave out those that nobody waits for any more."""
        taken: list[_Waiting] = []
        size = 0
        while stream.queue:
            first = stream.queue[0]
            if first.answer.done:
                self.waiting -= 1
            elif taken and size + len(first.value) > BATCH_BYTES_MAX:
                break
            else:
                taken.append(first)
                size += len(first.value)
            stream.queue.popleft()
        return taken

    def _granted(self, key: TopicIdPartition, stream: _Stream, granted: int | Error) -> None:
        if self._streams.get(key) is not stream:
            return
        if isinstance(granted, Error):
            self._retry_later(key, stream, f"no producer id ({granted.name})")
            return
        stream.producer_id, stream.sequence = granted, 0
        self._send(key, stream)

    def _send(self, key: TopicIdPartition, stream: _Stream) -> None:
        now_ms = self._clock.now_ms()
        assert stream.producer_id is not None
        batch = encode_batch(
            [(None, each.value, (), now_ms) for each in stream.in_flight],
            producer_id=stream.producer_id,
            producer_epoch=0,
            base_sequence=stream.sequence,
        )
        self._requests.ask(key, batch).then(lambda result: self._answered(key, stream, result))

    def _answered(self, key: TopicIdPartition, stream: _Stream, result: int | ApiError) -> None:
        if self._streams.get(key) is not stream:
            return
        if isinstance(result, ApiError) and result.error in NEW_ID_ERRORS:
            stream.producer_id = None
            self._retry_later(key, stream, result.error.name)
            return
        records, stream.in_flight = stream.in_flight, []
        stream.busy = False
        if isinstance(result, ApiError):
            # Whether the sequence numbers are used is unknown: the next batch needs others.
            stream.producer_id = None
            logger.warning(
                "Produce of %d records to %s-%d failed: %s; they are not written",
                *(len(records), self._topic, key[1], result.message),
            )
            self._complete(records, [result] * len(records))
        else:
            stream.failures = 0
            stream.sequence += len(records)
            self.appended += len(records)
            self._complete(records, range(result, result + len(records)))
        self._send_next(key, stream)

    def _complete(self, records: Sequence[_Waiting], results: Sequence[int | ApiError]) -> None:
        self.waiting -= len(records)
        for record, result in zip(records, results, strict=True):
            record.answer.complete(result)

    def _retry_later(self, key: TopicIdPartition, stream: _Stream, reason: str) -> None:
        """Send the batch in flight again after a backoff, with a new producer id."""
        stream.failures += 1
        if stream.failures == 1:
            logger.info(
                "Produce to %s-%d failed: %s; retrying with a new producer id",
                *(self._topic, key[1], reason),
            )

        def resume() -> None:
            stream.backoff, stream.busy = None, False
            self._send_next(key, stream)

        delay_ms = self._backoff.delay_ms(stream.failures, self._dice)
        stream.backoff = self._timers.at(self._clock.monotonic_ms() + delay_ms, resume)
