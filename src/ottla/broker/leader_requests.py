"""Requests of this broker to the leaders of partitions, whichever brokers these are.

A partition's part of a request is answered by the partition's leader: over the network, or locally
where this broker leads it. Parts for the same leader share a request, and each leader has one
request in flight on a connection of its own (a lane of `Peers`). A leader that moves is followed;
a lost connection and a retriable error are retried with exponential backoff and jitter, until the
part's deadline or for ever. A partition without a leader waits for the metadata to name one.

A partition has at most one part in flight. That keeps the order of a stream of produced batches:
the next one is asked when the one before is answered. A part that is in flight to a broker that no
longer leads stays in flight until that broker answers or the connection breaks, unless `abandons`
says that its late answer does not matter: then the new leader is asked at once.

1. Broker 1 leads; a part is in flight to it; broker 1 is paused.
2. The controller elects broker 2. A fetch is sent to broker 2 now, and broker 1's answer dropped.
3. A produced batch goes to broker 2 once broker 1 has answered, or its request has timed out.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Dice
from ottla.base.timers import Timer, Timers
from ottla.broker.ports import Message, Peers
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import EMPTY, ClusterImage

logger = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

TopicIdPartition = tuple[Uuid, int]

CLOSED = "the broker is shutting down"


class Leader(NamedTuple):
    """A partition's leader, as the metadata names it."""

    topic: str
    node_id: int
    epoch: int


def leader_of(image: ClusterImage, key: TopicIdPartition) -> Leader | None:
    """Return a partition's leader; None where there is none, or no such partition."""
    topic = image.topics.by_id(key[0])
    state = None if topic is None else topic.partitions.get(key[1])
    if topic is None or state is None or state.leader == NO_LEADER:
        return None
    return Leader(topic.name, state.leader, state.leader_epoch)


class Part(NamedTuple, Generic[P]):
    """A partition's part of a request."""

    key: TopicIdPartition
    leader: Leader
    payload: P


class LeaderApi(Protocol[P, R]):
    """An API of partition leaders: how parts become a request, and its response their results."""

    @property
    def name(self) -> str:
        """Return the API's name, for log lines."""
        ...

    @property
    def version(self) -> int:
        """Return the version in which requests are sent."""
        ...

    @property
    def timeout_ms(self) -> int:
        """Return how long to wait for a response."""
        ...

    def request(self, parts: Sequence[Part[P]]) -> Message:
        """Return one request of these parts."""
        ...

    def results(self, parts: Sequence[Part[P]], response: Any) -> Sequence[R | ApiError]:
        """Return the result of each part. Bytes of the response must be copied."""
        ...

    def answer_locally(self, parts: Sequence[Part[P]]) -> Pending[Sequence[R | ApiError]]:
        """Return the result of each part, for partitions that this broker leads."""
        ...

    def retries(self, error: Error) -> bool:
        """Tell whether a part with this error is sent again, to the then leader."""
        ...


class _Request(Generic[P, R]):
    """One partition's part, until it is answered. `sent_to`: the leader that has it; None = none.

    `attempt` grows with each sending; an answer to an earlier attempt is dropped.
    """

    __slots__ = (
        "answer",
        "attempt",
        "backoff",
        "deadline",
        "failures",
        "leader",
        "payload",
        "sent_to",
    )

    def __init__(self, payload: P, leader: Leader | None) -> None:
        self.payload = payload
        self.leader = leader
        self.answer: Pending[R | ApiError] = Pending()
        self.attempt = 0
        self.failures = 0
        self.sent_to: int | None = None
        self.backoff: Timer | None = None
        self.deadline: Timer | None = None

    def drop_timers(self) -> None:
        for timer in (self.backoff, self.deadline):
            if timer is not None:
                timer.cancel()
        self.backoff = self.deadline = None


class _Sent(NamedTuple, Generic[P, R]):
    """A part in a request: its partition, the part, the attempt, and who led at that time."""

    key: TopicIdPartition
    request: _Request[P, R]
    attempt: int
    leader: Leader


class _LeaderState:
    """What is known of one leader: whether a request is in flight, and its failures in a row."""

    __slots__ = ("backoff", "broker", "busy", "failures")

    def __init__(self) -> None:
        self.busy = False
        self.failures = 0
        self.backoff: Timer | None = None
        self.broker: BrokerImage | None = None
        """The broker's registration when it failed: another one ends the backoff."""


class LeaderRequests(Generic[P, R]):
    """See the module. One object for each lane, that is for each kind of request.

    `update` must be called with each new image.
    """

    def __init__(
        self,
        api: LeaderApi[P, R],
        *,
        node_id: int,
        peers: Peers,
        lane: int,
        clock: Clock,
        timers: Timers,
        dice: Dice,
        backoff: Backoff | None = None,
        abandons: bool = False,
    ) -> None:
        self._api = api
        self._node_id = node_id
        self._peers = peers
        self._lane = lane
        self._clock = clock
        self._timers = timers
        self._dice = dice
        self._backoff = Backoff() if backoff is None else backoff
        self._abandons = abandons
        self._image: ClusterImage = EMPTY
        self._requests: dict[TopicIdPartition, _Request[P, R]] = {}
        self._leaders: dict[int, _LeaderState] = {}
        self._flush: Timer | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._requests)

    # -- For users --

    def ask(
        self, key: TopicIdPartition, payload: P, *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Ask the leader of a partition that has no part waiting or in flight.

        It is sent in the next turn, together with what else is asked in this one. `deadline_ms`:
        monotonic; None = retry for ever. At the deadline the answer is REQUEST_TIMED_OUT; a part
        that is in flight then may still have its effect.
        """
        assert key not in self._requests, "a partition has one part at a time"
        if self._closed:
            return completed(ApiError(Error.BROKER_NOT_AVAILABLE, CLOSED))
        request: _Request[P, R] = _Request(payload, leader_of(self._image, key))
        self._requests[key] = request
        if deadline_ms is not None:
            request.deadline = self._timers.at(deadline_ms, partial(self._expire, key, request))
        self._send_soon()
        return request.answer

    def cancel(self, key: TopicIdPartition) -> None:
        """Drop a partition's part, if there is one: it is never answered."""
        request = self._requests.pop(key, None)
        if request is not None:
            request.drop_timers()

    def update(self, image: ClusterImage) -> None:
        """Follow leaders that have moved."""
        before, self._image = self._image, image
        if image.topics is before.topics and image.brokers is before.brokers:
            return
        for node_id, state in self._leaders.items():
            if state.backoff is not None and image.brokers.get(node_id) != state.broker:
                self._end_backoff(state)
        for key, request in self._requests.items():
            leader = leader_of(image, key)
            if leader == request.leader:
                continue
            request.leader = leader
            if request.sent_to is None:
                request.failures = 0
                if request.backoff is not None:
                    request.backoff.cancel()
                    request.backoff = None
            elif self._abandons and leader is not None and leader.node_id != request.sent_to:
                request.sent_to = None
        self._send_soon()

    def close(self) -> None:
        """Answer all parts with BROKER_NOT_AVAILABLE; what is in flight may still have effects."""
        self._closed = True
        requests, self._requests = self._requests, {}
        for state in self._leaders.values():
            if state.backoff is not None:
                state.backoff.cancel()
        if self._flush is not None:
            self._flush.cancel()
        for request in requests.values():
            request.drop_timers()
        for request in requests.values():
            request.answer.complete(ApiError(Error.BROKER_NOT_AVAILABLE, CLOSED))

    # -- Sending --

    def _send_soon(self) -> None:
        """Send in the next turn: what is asked in this one shares a request."""
        if self._flush is None and not self._closed:
            self._flush = self._timers.at(self._clock.monotonic_ms(), self._send_waiting)

    def _send_waiting(self) -> None:
        self._flush = None
        by_leader: dict[int, list[tuple[TopicIdPartition, _Request[P, R]]]] = {}
        for key, request in self._requests.items():
            if request.sent_to is None and request.backoff is None and request.leader is not None:
                by_leader.setdefault(request.leader.node_id, []).append((key, request))
        for node_id, waiting in by_leader.items():
            state = self._leaders.setdefault(node_id, _LeaderState())
            if not state.busy and state.backoff is None:
                self._send(node_id, state, waiting)

    def _send(
        self,
        node_id: int,
        state: _LeaderState,
        waiting: list[tuple[TopicIdPartition, _Request[P, R]]],
    ) -> None:
        parts: list[Part[P]] = []
        sent: list[_Sent[P, R]] = []
        for key, request in waiting:
            assert request.leader is not None
            request.attempt += 1
            request.sent_to = node_id
            parts.append(Part(key, request.leader, request.payload))
            sent.append(_Sent(key, request, request.attempt, request.leader))
        state.busy = True
        if node_id == self._node_id:
            self._api.answer_locally(parts).then(partial(self._settle, state, sent))
            return
        sender = self._peers.to(node_id, self._lane)
        answer = sender.send(
            self._api.request(parts), self._api.version, timeout_ms=self._api.timeout_ms
        )
        answer.then(partial(self._answered, node_id, state, parts, sent))

    # -- Answers --

    def _answered(
        self,
        node_id: int,
        state: _LeaderState,
        parts: list[Part[P]],
        sent: list[_Sent[P, R]],
        response: Any,
    ) -> None:
        if self._closed:
            return
        if not isinstance(response, ApiError):
            state.failures = 0
            self._settle(state, sent, self._api.results(parts, response))
            return
        state.busy = False
        state.failures += 1
        state.broker = self._image.brokers.get(node_id)
        if state.failures == 1:
            logger.warning(
                "%s to broker %d failed: %s; retrying", self._api.name, node_id, response.message
            )
        for each in sent:
            if self._is_current(each):
                each.request.sent_to = None
        due_ms = self._clock.monotonic_ms() + self._backoff.delay_ms(state.failures, self._dice)
        state.backoff = self._timers.at(due_ms, partial(self._end_backoff, state))
        self._send_soon()  # Some of them may have another leader by now.

    def _end_backoff(self, state: _LeaderState) -> None:
        if state.backoff is not None:
            state.backoff.cancel()
            state.backoff = None
        self._send_soon()

    def _settle(
        self,
        state: _LeaderState,
        sent: list[_Sent[P, R]],
        results: Sequence[R | ApiError],
    ) -> None:
        state.busy = False
        if self._closed:
            return
        self._send_soon()
        for each, result in zip(sent, results, strict=True):
            if not self._is_current(each):
                continue
            request = each.request
            request.sent_to = None
            if not isinstance(result, ApiError) or not self._api.retries(result.error):
                del self._requests[each.key]
                request.drop_timers()
                request.answer.complete(result)
            elif request.leader == each.leader:
                self._back_off(request)
            # Else the metadata names another leader by now, which is asked at once.

    def _is_current(self, sent: _Sent[P, R]) -> bool:
        """Tell whether an answer is to the part's newest attempt: else it was abandoned."""
        request = sent.request
        return (
            self._requests.get(sent.key) is request
            and request.attempt == sent.attempt
            and request.sent_to is not None
        )

    def _back_off(self, request: _Request[P, R]) -> None:
        request.failures += 1
        delay_ms = self._backoff.delay_ms(request.failures, self._dice)

        def resume() -> None:
            request.backoff = None
            self._send_soon()

        request.backoff = self._timers.at(self._clock.monotonic_ms() + delay_ms, resume)

    def _expire(self, key: TopicIdPartition, request: _Request[P, R]) -> None:
        if self._requests.get(key) is request:
            del self._requests[key]
            request.drop_timers()
            request.answer.complete(ApiError(Error.REQUEST_TIMED_OUT))
