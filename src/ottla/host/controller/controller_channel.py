"""The active controller's channel to each broker: requests in order, retried until answered.

Each broker has an unbounded queue and one request in flight. A request without a response is
retried, with a backoff, while the broker epoch and the controller epoch are the same; all else is
fenced by them. Requests must therefore be idempotent.

Every request ends in exactly one event: `Answered`, or `Dropped` where it can have no response any
more. (Kafka drops the queue of a broker that is removed with its callbacks, so that failure
handling must guess what was in it.) Events go to one callback, which should put them into the
controller's own queue: nothing here decides or waits for a decision, so that a slow broker does not
delay others (KAFKA-1305).

Source: ControllerChannelManager, RequestSendThread (ControllerChannelManager.scala), Kafka 3.9.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.controller.zookeeper.broker_responses import error_of
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.host.controller.controller_channel_queue import (
    Answered,
    BrokerQueue,
    ChannelEvent,
    ChannelMetrics,
    Dropped,
)
from ottla.host.node_ports import Address, Connect
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.image import ClusterImage

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""The backoff before a request is sent again."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""controller.socket.timeout.ms"""

__all__ = [
    "Answered",
    "ChannelEvent",
    "ChannelLink",
    "ControllerChannels",
    "Dropped",
    "OpenLink",
    "endpoint_between_brokers",
    "links_of_image",
    "response_of",
]

STALE: Final = frozenset({Error.STALE_CONTROLLER_EPOCH, Error.STALE_BROKER_EPOCH})
"""Errors of a broker, or to a controller, with another epoch now: they say nothing of what was
ordered. The metadata will have the new epoch, too."""


class ChannelLink(Protocol):
    """A connection to one broker, opened when there is something to send."""

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send one request; return its response, or the error."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


OpenLink = Callable[[int, int], ChannelLink]
"""Connects to a broker by id and epoch, and to no other process with that id."""


def links_of_image(
    connect: Connect,
    image: Callable[[], ClusterImage],
    *,
    listener_name: str,
    client_id: str,
) -> OpenLink:
    """Return links to the brokers' inter-broker endpoints in the metadata.

    See `endpoint_between_brokers`.
    """

    def open_link(broker_id: int, broker_epoch: int) -> ChannelLink:
        def choose() -> Address | None:
            broker = image().brokers.get(broker_id)
            if broker is None or broker.epoch != broker_epoch:
                return None
            endpoint = endpoint_between_brokers(broker, listener_name)
            return None if endpoint is None else (endpoint.host, endpoint.port)

        return connect(choose, client_id=f"{client_id}-{broker_id}")

    return open_link


def endpoint_between_brokers(broker: BrokerImage, listener_name: str) -> Endpoint | None:
    """Return a broker's inter-broker endpoint, or None.

    `listener_name`: this node's inter.broker.listener.name. A controller without a broker may not
    have it configured: where a broker has one listener only, that one is taken.
    """
    only = broker.endpoints[0] if len(broker.endpoints) == 1 else None
    return broker.endpoint(listener_name) or only


class ControllerChannels:
    """The channels of one controller node, over all its terms."""

    def __init__(
        self,
        open_link: OpenLink,
        *,
        clock: Clock,
        timers: Timers,
        on_event: Callable[[ChannelEvent], None],
        retry_ms: int = RETRY_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        self.controller_epoch = NO_EPOCH
        self.metrics: dict[int, ChannelMetrics] = {}
        self._open_link = open_link
        self._clock = clock
        self._timers = timers
        self._on_event = on_event
        self._retry_ms = retry_ms
        self._request_timeout_ms = request_timeout_ms
        self._channels: dict[int, _Channel] = {}

    # -- brokers -------------------------------------------------------------------------------

    def begin_epoch(self, controller_epoch: int) -> None:
        """Begin a controller epoch: queued requests of earlier epochs are dropped."""
        assert controller_epoch >= self.controller_epoch
        if controller_epoch == self.controller_epoch:
            return
        self.controller_epoch = controller_epoch
        for broker_id, channel in sorted(self._channels.items()):
            # A new link: the request in flight on the old one may hang for its whole timeout.
            self._channels[broker_id] = self._open(broker_id, channel.queue.broker_epoch)
            self._stop(channel, Error.STALE_CONTROLLER_EPOCH)

    def add_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Open a channel to a broker, in place of that of an older registration."""
        existing = self._channels.get(broker_id)
        if existing is not None and existing.queue.broker_epoch >= broker_epoch:
            return
        self.metrics.setdefault(broker_id, ChannelMetrics())
        self._channels[broker_id] = self._open(broker_id, broker_epoch)
        if existing is not None:
            self._stop(existing, Error.STALE_BROKER_EPOCH)

    def remove_broker(self, broker_id: int) -> None:
        """Close a channel; its unanswered requests are dropped."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            del self.metrics[broker_id]
            self._stop(channel, Error.BROKER_NOT_AVAILABLE)

    def set_brokers(self, brokers: Iterable[tuple[int, int]]) -> None:
        """Open and close channels so that there is one to each of these (id, epoch)."""
        wanted = dict(brokers)
        for broker_id in sorted(self._channels.keys() - wanted.keys()):
            self.remove_broker(broker_id)
        for broker_id, broker_epoch in sorted(wanted.items()):
            self.add_broker(broker_id, broker_epoch)

    def resign(self) -> None:
        """Close all channels: another controller is active, or this node stops."""
        for broker_id in sorted(self._channels):
            self.remove_broker(broker_id)

    # -- sending -------------------------------------------------------------------------------

    def send(self, requests: Iterable[BrokerRequest]) -> None:
        """Queue requests, each to its broker; fenced ones are dropped at once."""
        updated: dict[int, _Channel] = {}
        fenced: list[ChannelEvent] = []
        for request in requests:
            channel = self._channels.get(request.broker_id)
            error = self._fence(request, channel)
            if error is not None:
                fenced.append(Dropped(sent=request, error=error))
                continue
            assert channel is not None
            channel.queue.offer(request, self._clock.monotonic_ms())
            updated[request.broker_id] = channel
        for channel in updated.values():
            channel.pump()
        for event in fenced:
            self._emit(event)

    def _fence(self, request: BrokerRequest, channel: "_Channel | None") -> Error | None:
        if request.controller_epoch != self.controller_epoch:
            return Error.STALE_CONTROLLER_EPOCH
        if channel is None:
            return Error.BROKER_NOT_AVAILABLE
        if request.broker_epoch != channel.queue.broker_epoch:
            return Error.STALE_BROKER_EPOCH
        return None

    # -- queues --------------------------------------------------------------------------------

    def queue_size(self, broker_id: int) -> int:
        """Return the queued requests of a broker, without the one in flight."""
        return len(self._channels[broker_id].queue)

    def queue_sizes(self) -> list[tuple[int, int]]:
        """Return (broker id, queued requests), in order."""
        return [(each, len(channel.queue)) for each, channel in sorted(self._channels.items())]

    # -- inside --------------------------------------------------------------------------------

    def _open(self, broker_id: int, broker_epoch: int) -> "_Channel":
        return _Channel(
            BrokerQueue(broker_epoch, self.metrics[broker_id]),
            self._open_link(broker_id, broker_epoch),
            clock=self._clock,
            timers=self._timers,
            on_event=self._emit,
            retry_ms=self._retry_ms,
            request_timeout_ms=self._request_timeout_ms,
        )

    def _stop(self, channel: "_Channel", error: Error) -> None:
        for request in channel.stop():
            self._emit(Dropped(sent=request, error=error))

    def _emit(self, event: ChannelEvent) -> None:
        try:
            self._on_event(event)
        except Exception:  # A failing callback must not stop the channels.
            log.exception("processing a response of broker %d failed", event.sent.broker_id)


class _Channel:
    """One broker's queue with its link. Once stopped it sends nothing and ignores responses."""

    def __init__(
        self,
        queue: BrokerQueue,
        link: ChannelLink,
        *,
        clock: Clock,
        timers: Timers,
        on_event: Callable[[ChannelEvent], None],
        retry_ms: int,
        request_timeout_ms: int,
    ) -> None:
        self.queue = queue
        self._link = link
        self._clock = clock
        self._timers = timers
        self._emit = on_event
        self._retry_ms = retry_ms
        self._request_timeout_ms = request_timeout_ms
        self._retry: Timer | None = None
        self._pumping = False
        self._stopped = False

    def pump(self) -> None:
        """Send the next request, if none is in flight.

        A loop, because a link may answer at once: recursion would be as deep as the queue is long.
        """
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._stopped:
                request = self.queue.take(self._clock.monotonic_ms())
                if request is None:
                    return
                self._send(request)
        finally:
            self._pumping = False

    def stop(self) -> list[BrokerRequest]:
        """Stop; return the unanswered requests, in order."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        self._link.close()
        return self.queue.drain()

    def _send(self, request: BrokerRequest) -> None:
        attempt = self.queue.attempt
        try:
            sent = self._link.send(
                request.request, request.version, timeout_ms=self._request_timeout_ms
            )
        except Exception:  # A bug, such as an EncodeError; later requests do not wait for it.
            log.exception(
                "sending a request to broker %d failed; the request is dropped", request.broker_id
            )
            self.queue.finish(attempt)
            self._emit(Dropped(sent=request, error=Error.UNKNOWN_SERVER_ERROR))
            return
        sent.then(lambda response: self._on_response(attempt, response))

    def _on_response(self, attempt: int, response: Any | ApiError) -> None:
        if self._stopped:
            return  # Closing the link has ended the request in flight.
        # The queue ignores responses of earlier attempts.
        if isinstance(response, ApiError):
            self._retry_later(attempt, response)
            return
        request = self.queue.finish(attempt)
        if request is not None:
            self._emit(Answered(sent=request, response=response))
            self.pump()

    def _retry_later(self, attempt: int, error: ApiError) -> None:
        request = self.queue.fail(attempt)
        if request is None:
            return
        log.log(
            logging.INFO if self.queue.failures == 1 else logging.DEBUG,
            "broker %d: no response to %s (%s); retrying until there is one",
            request.broker_id,
            type(request.request).__name__,
            error.error.name,
        )
        due_ms = self._clock.monotonic_ms() + self._retry_ms
        self._retry = self._timers.at(due_ms, self.pump)


def response_of(event: ChannelEvent, api: str) -> Any | None:
    """Return the response that ended an order; None = none says what became of it.

    `api`: its name, for the log.
    """
    if isinstance(event, Dropped):
        return None
    error = error_of(event.response.error_code)
    if error in STALE:
        log.info("broker %d rejected %s: %s", event.sent.broker_id, api, error.name)
        return None
    return event.response
