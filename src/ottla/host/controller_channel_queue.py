"""One broker's queue of requests, without its connection: a pure value holder, driven by hand.

One request is in flight at most, and stays the first until it is answered, however often it is
sent: brokers see requests in the order in which they were decided.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import Error
from ottla.base.metrics import Histogram, latency_ms
from ottla.controller.request_batch import BrokerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A broker answered, whatever it says."""

    sent: BrokerRequest
    response: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A request can have no answer any more; whether it was done is unknown.

    `error`: BROKER_NOT_AVAILABLE (its broker went), STALE_BROKER_EPOCH (it is another process
    now), STALE_CONTROLLER_EPOCH (the term that sent it is over), UNKNOWN_SERVER_ERROR (it could
    not be put on the wire).
    """

    sent: BrokerRequest
    error: Error


ChannelEvent = Answered | Dropped


@dataclass(slots=True)
class ChannelMetrics:
    """What is counted for one broker, also over its bounces. `queue_time`: until first sent."""

    queue_time: Histogram = field(default_factory=latency_ms)
    retries: int = 0


class BrokerQueue:
    """The queue of one registration of a broker.

    Fields: `attempt`: the number of the sending that is out, so that an answer to an earlier one
            is known as such; `failures`: how often the first request has failed in a row.
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
        """Put a request at the end."""
        assert request.broker_epoch == self.broker_epoch
        self._waiting.append((request, now_ms))

    def take(self, now_ms: int) -> BrokerRequest | None:
        """Return what is to be sent now; None while something is in flight, or nothing waits."""
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
        """Take back what that attempt was about, to be sent again; None where it is not out."""
        if not self._in_flight or attempt != self.attempt:
            return None
        self._in_flight = False
        self.failures += 1
        return self._first

    def finish(self, attempt: int) -> BrokerRequest | None:
        """Take out what that attempt was about; None where it is not out."""
        if not self._in_flight or attempt != self.attempt:
            return None
        finished, self._first = self._first, None
        self._in_flight = False
        self.failures = 0
        return finished

    def drain(self) -> list[BrokerRequest]:
        """Empty the queue; return all in order, the unanswered first one included."""
        unanswered = [request for request, _ in self._waiting]
        if self._first is not None:
            unanswered.insert(0, self._first)
        self._waiting.clear()
        self._first, self._in_flight = None, False
        return unanswered
