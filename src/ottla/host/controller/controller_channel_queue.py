"""One broker's queue of requests, without its connection.

At most one request is in flight. It stays first until it is answered, however often it is sent:
brokers receive requests in the order in which they were queued.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import Error
from ottla.base.metrics import Histogram, latency_ms
from ottla.controller.zookeeper.request_batch import BrokerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A broker responded, with or without errors."""

    sent: BrokerRequest
    response: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A request can have no response any more; whether it was processed is unknown.

    `error`: BROKER_NOT_AVAILABLE (the broker was removed), STALE_BROKER_EPOCH (it has registered
    again), STALE_CONTROLLER_EPOCH (the controller epoch has ended), UNKNOWN_SERVER_ERROR (the
    request could not be encoded).
    """

    sent: BrokerRequest
    error: Error


ChannelEvent = Answered | Dropped


@dataclass(slots=True)
class ChannelMetrics:
    """The metrics of one broker over its restarts. `queue_time`: until a request is first sent."""

    queue_time: Histogram = field(default_factory=latency_ms)
    retries: int = 0


class BrokerQueue:
    """The queue of one registration of a broker.

    Fields: `attempt`: the number of the attempt in flight, by which responses to earlier ones are
            ignored; `failures`: consecutive failures of the first request.
    """

    def __init__(self, broker_epoch: int, metrics: ChannelMetrics) -> None:
        self.broker_epoch = broker_epoch
        self.attempt = 0
        self.failures = 0
        self._metrics = metrics
        self._waiting: deque[tuple[BrokerRequest, int]] = deque()
        self._first: BrokerRequest | None = None
        self._in_flight = False

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, request: BrokerRequest, now_ms: int) -> None:
        """Append a request."""
        assert request.broker_epoch == self.broker_epoch
        self._waiting.append((request, now_ms))

    def take(self, now_ms: int) -> BrokerRequest | None:
        """Return the request to send now; None while one is in flight, or the queue is empty."""
        if self._in_flight:
            return None
        if self._first is None:
            if not self._waiting:
                return None
            self._first, since_ms = self._waiting.popleft()
            self._metrics.queue_time.observe(now_ms - since_ms)
        else:
            self._metrics.retries += 1
        self.attempt += 1
        self._in_flight = True
        return self._first

    def fail(self, attempt: int) -> BrokerRequest | None:
        """Note that an attempt failed; return its request, None if it is not in flight."""
        if not self._in_flight or attempt != self.attempt:
            return None
        self._in_flight = False
        self.failures += 1
        return self._first

    def finish(self, attempt: int) -> BrokerRequest | None:
        """Remove the request of an attempt and return it; None if it is not in flight."""
        if not self._in_flight or attempt != self.attempt:
            return None
        finished, self._first = self._first, None
        self._in_flight = False
        self.failures = 0
        return finished

    def drain(self) -> list[BrokerRequest]:
        """Empty the queue; return its requests in order, the one in flight included."""
        unanswered = [request for request, _ in self._waiting]
        if self._first is not None:
            unanswered.insert(0, self._first)
        self._waiting.clear()
        self._first, self._in_flight = None, False
        return unanswered
