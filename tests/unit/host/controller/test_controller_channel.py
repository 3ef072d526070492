"""The controller's channels: order, one in flight, endless retries, fencing, no response lost.

Method: manual time, links whose other ends are the test; then random histories of brokers that
restart, responses that come late or twice and epochs that end, in which every request must end in
exactly one event and reach a broker in the order in which it was queued.
"""

import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.metrics import render
from ottla.base.pending import Pending
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.host.controller.controller_channel import (
    REQUEST_TIMEOUT_MS,
    RETRY_MS,
    Answered,
    ChannelEvent,
    ControllerChannels,
    Dropped,
    endpoint_between_brokers,
    links_of_image,
)
from ottla.host.controller.controller_channel_metrics import channel_families
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.wire.errors import EncodeError

from ..harness import Harness

BROKEN = ApiError(Error.NETWORK_EXCEPTION, "broken")
LATE = ApiError(Error.REQUEST_TIMED_OUT, "late")


@dataclass(slots=True)
class Link:
    """One link; `at_once` answers by itself."""

    broker_id: int
    broker_epoch: int
    sent: list[tuple[Any, Pending[Any]]] = field(default_factory=list)
    at_once: bool = False
    closed: bool = False

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        assert timeout_ms == REQUEST_TIMEOUT_MS
        assert not self.closed
        assert not self.open, "more than one request is in flight"
        if request == "cannot be encoded":
            raise EncodeError(request)
        if request == "makes the link fail":
            raise ValueError(request)
        answer: Pending[Any] = Pending()
        self.sent.append((request, answer))
        if self.at_once:
            answer.complete(f"{request} done")
        return answer

    @property
    def open(self) -> list[Pending[Any]]:
        return [answer for _, answer in self.sent if not answer.done]

    @property
    def requests(self) -> list[Any]:
        return [request for request, _ in self.sent]

    def answer(self, response: Any = "done") -> None:
        [pending] = self.open
        pending.complete(response)

    def close(self) -> None:
        self.closed = True
        for pending in self.open:
            pending.complete(BROKEN)


class Room:
    """Channels with their surroundings."""

    def __init__(self, epoch: int = 1) -> None:
        self.harness = Harness()
        self.links: list[Link] = []
        self.events: list[ChannelEvent] = []
        self.channels = ControllerChannels(
            self.open,
            clock=self.harness.clock,
            timers=self.harness.timers,
            on_event=self.events.append,
        )
        self.channels.begin_epoch(epoch)

    def open(self, broker_id: int, broker_epoch: int) -> Link:
        self.links.append(Link(broker_id, broker_epoch))
        return self.links[-1]

    def send(self, *bodies: str, to: int = 1, epoch: int = 10, term: int = 1) -> None:
        self.channels.send(request(body, to=to, epoch=epoch, term=term) for body in bodies)

    def results(self) -> list[tuple[str, Any]]:
        """Return what the events say: (request, response or error)."""
        return [
            (each.sent.request, each.response if isinstance(each, Answered) else each.error)
            for each in self.events
        ]


def request(body: str, *, to: int = 1, epoch: int = 10, term: int = 1) -> BrokerRequest:
    return BrokerRequest(
        broker_id=to, broker_epoch=epoch, controller_epoch=term, request=body, version=0
    )


def a_room() -> tuple[Room, Link]:
    """Return channels with broker 1, epoch 10, and the link to it."""
    room = Room()
    room.channels.add_broker(1, 10)
    return room, room.links[0]


def test_one_request_is_in_flight_and_the_others_wait_their_turn() -> None:
    room, link = a_room()
    room.send("a", "b")
    room.send("c")
    assert link.requests == ["a"]
    assert room.channels.queue_size(1) == 2
    link.answer("1")
    assert link.requests == ["a", "b"]
    link.answer("2")
    link.answer("3")
    assert room.results() == [("a", "1"), ("b", "2"), ("c", "3")]
    assert room.channels.queue_size(1) == 0


def test_brokers_do_not_wait_for_one_another() -> None:
    room, slow = a_room()
    room.channels.add_broker(2, 20)
    room.channels.send([request("a"), request("b", to=2, epoch=20), request("c", to=2, epoch=20)])
    room.links[1].answer()
    room.links[1].answer()
    assert room.results() == [("b", "done"), ("c", "done")]
    assert slow.requests == ["a"]


@pytest.mark.parametrize("failure", [BROKEN, LATE])
def test_an_unanswered_request_is_retried_for_ever_and_stays_first(failure: ApiError) -> None:
    room, link = a_room()
    room.send("a", "b")
    for count in range(1, 50):
        link.answer(failure)
        room.harness.advance(RETRY_MS - 1)
        assert link.requests == ["a"] * count
        room.harness.advance(1)
    link.answer()
    link.answer()
    assert link.requests == ["a"] * 50 + ["b"]
    assert room.results() == [("a", "done"), ("b", "done")]
    assert room.channels.metrics[1].retries == 49


def test_a_refusal_is_an_answer_and_is_not_repeated() -> None:
    room, link = a_room()
    room.send("a")
    link.answer(Error.STALE_CONTROLLER_EPOCH)
    room.harness.advance(10 * RETRY_MS)
    assert link.requests == ["a"]
    assert room.results() == [("a", Error.STALE_CONTROLLER_EPOCH)]


def test_kafka_1305_a_queue_has_no_bound_and_a_long_one_no_depth() -> None:
    """Ten were the limit once, and the controller waited for room while it held its lock."""
    room, link = a_room()
    bodies = [str(each) for each in range(3_000)]
    room.send(*bodies)
    assert room.channels.queue_size(1) == len(bodies) - 1
    link.at_once = True
    link.answer()
    assert [body for body, _ in room.results()] == bodies


def test_requests_to_a_removed_broker_are_dropped() -> None:
    room, link = a_room()
    room.send("a", "b", "c")
    room.channels.remove_broker(1)
    not_available = Error.BROKER_NOT_AVAILABLE
    assert room.results() == [("a", not_available), ("b", not_available), ("c", not_available)]
    assert link.closed
    room.send("d")
    assert room.results()[3:] == [("d", not_available)]
    room.harness.advance(10 * RETRY_MS)
    assert link.requests == ["a"]
    assert room.channels.queue_sizes() == []
    room.channels.remove_broker(1)


def test_a_broker_that_is_removed_while_its_request_is_in_backoff() -> None:
    room, link = a_room()
    room.send("a")
    link.answer(BROKEN)
    room.channels.remove_broker(1)
    room.harness.advance(10 * RETRY_MS)
    assert link.requests == ["a"]
    assert room.results() == [("a", Error.BROKER_NOT_AVAILABLE)]


def test_kafka_7235_a_broker_that_bounces_begins_with_an_empty_queue() -> None:
    room, old = a_room()
    room.send("a", "b")
    room.channels.add_broker(1, 11)
    stale = Error.STALE_BROKER_EPOCH
    assert room.results() == [("a", stale), ("b", stale)]
    assert old.closed
    new = room.links[1]
    assert (new.broker_id, new.broker_epoch) == (1, 11)
    room.send("c", epoch=11)
    assert new.requests == ["c"]
    # What was decided on the old registration comes late.
    room.send("d", epoch=10)
    assert room.results()[2:] == [("d", stale)]


def test_an_older_registration_changes_nothing() -> None:
    room, link = a_room()
    room.send("a")
    room.channels.add_broker(1, 9)
    room.channels.add_broker(1, 10)
    assert len(room.links) == 1
    link.answer()
    assert room.results() == [("a", "done")]


def test_kafka_6082_a_new_epoch_drops_the_requests_of_the_old_one() -> None:
    room, old = a_room()
    room.send("a", "b")
    room.channels.begin_epoch(2)
    stale = Error.STALE_CONTROLLER_EPOCH
    assert room.results() == [("a", stale), ("b", stale)]
    room.send("c")
    assert room.results()[2:] == [("c", stale)]
    room.send("d", term=2)
    assert old.closed
    assert room.links[1].requests == ["d"]  # It does not wait for what hangs in the old link.
    room.channels.begin_epoch(2)
    assert len(room.links) == 2


def test_a_late_response_of_an_old_link_is_ignored() -> None:
    room, old = a_room()
    room.send("a")
    [late] = old.open
    old.sent.clear()  # So that its end does not answer it.
    room.channels.add_broker(1, 11)
    room.send("b", epoch=11)
    late.complete("done")
    assert room.results() == [("a", Error.STALE_BROKER_EPOCH)]
    room.links[1].answer()
    assert room.results()[1:] == [("b", "done")]


def test_duplicate_answers_count_once() -> None:
    room, link = a_room()
    channel = room.channels._channels[1]
    room.send("a", "b", "c")
    first = channel.queue.attempt
    link.answer("1")
    channel._on_response(first, "1")
    channel._on_response(first, BROKEN)
    room.harness.advance(10 * RETRY_MS)
    assert room.results() == [("a", "1")]
    assert link.requests == ["a", "b"]
    link.answer("2")
    assert room.results()[1:] == [("b", "2")]


def test_a_term_that_ends_answers_everything() -> None:
    room, _ = a_room()
    room.channels.add_broker(2, 20)
    room.send("a")
    room.send("b", to=2, epoch=20)
    room.channels.resign()
    not_available = Error.BROKER_NOT_AVAILABLE
    assert room.results() == [("a", not_available), ("b", not_available)]
    assert all(each.closed for each in room.links)


def test_set_brokers_opens_and_closes_channels() -> None:
    room, link = a_room()
    room.channels.add_broker(2, 20)
    room.channels.set_brokers([(1, 12), (3, 30)])
    assert [each for each, _ in room.channels.queue_sizes()] == [1, 3]
    assert link.closed
    assert [(each.broker_id, each.broker_epoch) for each in room.links if not each.closed] == [
        (1, 12),
        (3, 30),
    ]


def test_an_exception_of_the_callback_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    room, link = a_room()

    def fail(event: ChannelEvent) -> None:
        room.events.append(event)
        raise RuntimeError("scripted")

    room.channels._on_event = fail
    room.send("a", "b")
    link.answer()
    link.answer()
    assert room.results() == [("a", "done"), ("b", "done")]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("bad", ["cannot be encoded", "makes the link fail"])
def test_a_request_that_cannot_be_sent_does_not_hold_up_the_next(bad: str) -> None:
    room, link = a_room()
    room.send(bad, "b")
    assert link.requests == ["b"]
    assert room.results() == [(bad, Error.UNKNOWN_SERVER_ERROR)]
    link.answer()
    assert room.results()[1:] == [("b", "done")]


def test_a_listener_may_send_and_close() -> None:
    room, link = a_room()

    def react(event: ChannelEvent) -> None:
        room.events.append(event)
        if event.sent.request == "a":
            room.send("c")
        elif event.sent.request == "b":
            room.channels.resign()

    room.channels._on_event = react
    link.at_once = True
    room.send("a", "b", "d")
    assert room.results() == [
        ("a", "a done"),
        ("b", "b done"),
        ("d", Error.BROKER_NOT_AVAILABLE),
        ("c", Error.BROKER_NOT_AVAILABLE),
    ]


def test_metrics_have_queue_sizes_and_times() -> None:
    room, link = a_room()
    room.send("a", "b", "c")
    room.harness.advance(7)
    link.answer()
    text = "".join(render(channel_families(room.channels)))
    prefix = "kafka_controller_controller_channel_manager"
    assert f"{prefix}_total_queue_size 1\n" in text
    assert f'{prefix}_queue_size{{broker_id="1"}} 1\n' in text
    assert f'{prefix}_request_queue_time_seconds_count{{broker_id="1"}} 2\n' in text
    assert f'{prefix}_request_queue_time_seconds_sum{{broker_id="1"}} 0.007\n' in text


def test_only_the_first_failure_in_a_row_is_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    room, link = a_room()
    room.send("a")
    for _ in range(5):
        link.answer(BROKEN)
        room.harness.advance(RETRY_MS)
    assert [each.levelno for each in caplog.records] == [logging.INFO]


def test_a_link_that_is_closed_with_its_term_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    room, _ = a_room()
    room.send("a")
    room.channels.resign()
    assert caplog.records == []


def test_links_lead_to_the_registration_that_was_meant() -> None:
    image = [EMPTY]
    chosen: list[Any] = []

    def connect(choose: Any, **how: Any) -> Any:
        assert how == {"client_id": "controller-7-1"}
        chosen.append(choose)
        return Link(1, 10)

    open_link = links_of_image(
        cast(Any, connect),
        lambda: image[0],
        listener_name="INTERNAL",
        client_id="controller-7",
    )
    open_link(1, 10)
    [choose] = chosen
    assert choose() is None
    image[0] = with_broker(10)
    assert choose() == ("inside", 9090)
    image[0] = with_broker(11)
    assert choose() is None


OUTSIDE, INSIDE = Endpoint("PLAINTEXT", "outside", 9092), Endpoint("INTERNAL", "inside", 9090)


def a_broker(epoch: int, *endpoints: Endpoint) -> BrokerImage:
    return BrokerImage(
        id=1, epoch=epoch, incarnation_id=Uuid(bytes(16)), endpoints=endpoints or (OUTSIDE, INSIDE)
    )


def with_broker(epoch: int) -> ClusterImage:
    return ClusterImage(brokers=EMPTY.brokers.set(1, a_broker(epoch)))


def test_a_broker_of_one_listener_is_found_by_whatever_name() -> None:
    assert endpoint_between_brokers(a_broker(1), "INTERNAL") == INSIDE
    assert endpoint_between_brokers(a_broker(1, INSIDE), "PLAINTEXT") == INSIDE
    assert endpoint_between_brokers(a_broker(1), "REPLICATION") is None


# -- random histories --------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.sampled_from(["answer", "break"]), st.integers(0, 2), st.just(0)),
    st.tuples(st.sampled_from(["bounce", "remove", "add"]), st.integers(0, 2), st.just(0)),
    st.tuples(st.sampled_from(["term", "stale"]), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 2 * RETRY_MS)),
)


class History:
    """Plays steps on three brokers, as a controller that knows their epochs would."""

    def __init__(self) -> None:
        self.room = Room()
        self.term = 1
        self.epochs = [10, 20, 30]
        self.queued: list[str] = []
        for broker_id, epoch in enumerate(self.epochs):
            self.room.channels.add_broker(broker_id, epoch)

    def play(self, step: tuple[str, int, int]) -> None:
        kind, broker_id, count = step
        channels = self.room.channels
        if kind in ("send", "stale"):
            back = 1 if kind == "stale" else 0
            bodies = [f"{broker_id}/{len(self.queued) + each}" for each in range(count or 1)]
            self.queued += bodies
            self.room.send(
                *bodies, to=broker_id, epoch=self.epochs[broker_id] - back, term=self.term
            )
        elif kind in ("answer", "break"):
            for link in self.room.links:
                if link.broker_id == broker_id and link.open:
                    link.answer("done" if kind == "answer" else BROKEN)
                    break
        elif kind == "bounce":
            self.epochs[broker_id] += 1
            channels.add_broker(broker_id, self.epochs[broker_id])
        elif kind == "remove":
            channels.remove_broker(broker_id)
        elif kind == "add":
            channels.add_broker(broker_id, self.epochs[broker_id])
        elif kind == "term":
            self.term += 1
            channels.begin_epoch(self.term)
        else:
            self.room.harness.advance(count)


@given(st.lists(STEPS, max_size=40))
def test_every_request_ends_in_one_event_and_none_overtakes_another(
    steps: list[tuple[str, int, int]],
) -> None:
    history = History()
    for step in steps:
        history.play(step)
    room = history.room
    room.channels.resign()
    ended = [body for body, _ in room.results()]
    assert sorted(ended) == sorted(history.queued)
    assert len(set(ended)) == len(ended)
    for broker_id in range(3):
        first_sent = list(
            dict.fromkeys(
                body for link in room.links if link.broker_id == broker_id for body in link.requests
            )
        )
        assert first_sent == sorted(first_sent, key=history.queued.index)
        answered = [
            event.sent.request
            for event in room.events
            if isinstance(event, Answered) and event.sent.broker_id == broker_id
        ]
        assert answered == sorted(answered, key=history.queued.index)
    for event in room.events:
        assert isinstance(event, Answered | Dropped)
