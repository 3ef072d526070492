"""Producer ids, handed out from blocks that the controller allocates.

The next block is requested when nine tenths of the current one are used, so that producers rarely
wait; without a block they wait in order. An id is never handed out twice: a block is used by one
broker, and what is left of it at a restart is lost.

Source: KIP-98; KIP-730; Kafka's RPCProducerIdManager.
"""

import logging
from collections import deque
from collections.abc import Callable

from ottla.base.errors import ApiError, Error
from ottla.base.limits import PRODUCER_ID_WAITERS_MAX
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.ports import Forwarder
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

logger = logging.getLogger(__name__)

PREFETCH_NUMERATOR, PREFETCH_DENOMINATOR = 9, 10
RETRY_BACKOFF_MS = 50
ALLOCATE_TIMEOUT_MS = 30_000
Granted = int | Error


class ProducerIds:
    """Hands out ids. `broker_epoch` is called at each allocation, as it changes at registration."""

    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        forwarder: Forwarder,
        timers: Timers,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._forwarder = forwarder
        self._timers = timers
        self._monotonic_ms = monotonic_ms
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._next_block: tuple[int, int] | None = None
        self._in_flight = False
        self._waiting: deque[Pending[Granted]] = deque()

    def grant(self, *, timeout_ms: int) -> Pending[Granted]:
        """Promise an id; COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if none comes."""
        granted: Pending[Granted] = Pending()
        if self._waiting or not self._take(granted):
            if len(self._waiting) >= PRODUCER_ID_WAITERS_MAX:
                granted.complete(Error.COORDINATOR_LOAD_IN_PROGRESS)
                return granted
            self._waiting.append(granted)
            self._timers.at(
                self._monotonic_ms() + timeout_ms,
                lambda: _give_up(granted),
            )
            self._request_block()
        return granted

    def _take(self, granted: Pending[Granted]) -> bool:
        if self._next == self._end:
            if self._next_block is None:
                return False
            self._next, self._end = self._next_block
            self._next_block = None
            size = self._end - self._next
            self._prefetch_at = self._next + size * PREFETCH_NUMERATOR // PREFETCH_DENOMINATOR
        if granted.done:
            return True
        producer_id = self._next
        self._next += 1
        if self._next > self._prefetch_at:
            self._request_block()
        granted.complete(producer_id)
        return True

    def _request_block(self) -> None:
        if self._in_flight or self._next_block is not None:
            return
        self._in_flight = True
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        self._forwarder.call(request, timeout_ms=ALLOCATE_TIMEOUT_MS).then(self._block_received)

    def _block_received(self, response: AllocateProducerIdsResponse | ApiError) -> None:
        if isinstance(response, ApiError):
            self._fail(response.error)
        elif response.error_code != Error.NONE:
            self._fail(Error(response.error_code))
        else:
            first, size = response.producer_id_start, response.producer_id_len
            if first < self._end or size <= 0:
                logger.error(
                    "producer id block of %d ids from %d rejected: expected ids from %d on",
                    *(size, first, self._end),
                )
                self._fail(Error.UNKNOWN_SERVER_ERROR)
                return
            self._in_flight = False
            self._next_block = (first, first + size)
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._take(self._waiting[0]):
            self._waiting.popleft()
        if self._waiting:
            self._request_block()

    def _fail(self, error: Error) -> None:
        logger.warning("AllocateProducerIds failed: %s; retrying while producers wait", error.name)
        self._timers.at(self._monotonic_ms() + RETRY_BACKOFF_MS, self._retry)

    def _retry(self) -> None:
        """Retry while a producer waits; else the next producer's request retries."""
        self._in_flight = False
        while self._waiting and self._waiting[0].done:
            self._waiting.popleft()
        if self._waiting:
            self._request_block()


def _give_up(granted: Pending[Granted]) -> None:
    granted.complete(Error.COORDINATOR_LOAD_IN_PROGRESS)
