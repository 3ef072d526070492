"""Requests reach whoever leads a partition, once at a time, until they are answered.

Method: an API of plain values, senders whose answers the test gives, and an image of which the test
moves the leaders. What is checked is what went to whom, and what came back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.leader_requests import LeaderRequests, Part, leader_of
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage

from .harness import TOPIC_ID, FakeClock, FakeDice

HERE = 1
Key = tuple[Uuid, int]
A, B = (TOPIC_ID, 0), (TOPIC_ID, 1)


def image_of(leaders: Mapping[int, tuple[int, int]]) -> ClusterImage:
    """Return an image whose topic has these leaders and epochs by partition."""
    topic = TopicImage(name="t", id=TOPIC_ID)
    for partition_id, (leader, epoch) in leaders.items():
        state = PartitionImage(
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=epoch,
            directories=(DIRECTORY_UNASSIGNED,) * 3,
        )
        topic = topic.with_partition(partition_id, state)
    return replace(EMPTY, topics=EMPTY.topics.with_topic(topic))


@dataclass(slots=True)
class Api:
    """Requests are lists of (key, epoch, payload), responses lists of results."""

    local: list[tuple[Sequence[Part[str]], Pending[Any]]] = field(default_factory=list)
    name: str = "Ask"
    version: int = 3
    timeout_ms: int = 30_000

    def request(self, parts: Sequence[Part[str]]) -> object:
        return [(part.key, part.leader.epoch, part.payload) for part in parts]

    def results(self, parts: Sequence[Part[str]], response: Any) -> Sequence[str | ApiError]:
        return [response[part.key] for part in parts]

    def answer_locally(self, parts: Sequence[Part[str]]) -> Pending[Sequence[str | ApiError]]:
        pending: Pending[Sequence[str | ApiError]] = Pending()
        self.local.append((parts, pending))
        return pending

    def retries(self, error: Error) -> bool:
        return error.retriable


@dataclass(slots=True)
class Sender:
    sent: list[tuple[Any, Pending[Any]]] = field(default_factory=list)

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        assert (version, timeout_ms) == (3, 30_000)
        pending: Pending[Any] = Pending()
        self.sent.append((request, pending))
        return pending


class Harness:
    def __init__(self, *, abandons: bool = False) -> None:
        self.timers = Timers()
        self.clock = FakeClock(self.timers)
        self.api = Api()
        self.senders: dict[int, Sender] = {}
        self.requests: LeaderRequests[str, str] = LeaderRequests(
            self.api,
            node_id=HERE,
            peers=self,
            lane=7,
            clock=self.clock,
            timers=self.timers,
            dice=FakeDice(),
            backoff=Backoff(first_ms=100, max_ms=1_000),
            abandons=abandons,
        )

    def to(self, broker_id: int, lane: int = 0) -> Sender:
        assert lane == 7
        return self.senders.setdefault(broker_id, Sender())

    def lead(self, leaders: Mapping[int, tuple[int, int]]) -> None:
        self.requests.update(image_of(leaders))
        self.run(0)

    def run(self, ms: int) -> None:
        self.clock.advance(ms)

    def ask(self, key: Key, payload: str = "x", **how: Any) -> Pending[str | ApiError]:
        answer = self.requests.ask(key, payload, **how)
        self.run(0)
        return answer

    def in_flight(self, node: int) -> list[Any]:
        return [request for request, _ in self.to(node, 7).sent]

    def answer(self, node: int, response: Any) -> None:
        _, pending = self.to(node, 7).sent.pop(0)
        pending.complete(response)
        self.run(0)


def error_of(answer: Pending[str | ApiError]) -> Error:
    assert isinstance(answer.value, ApiError)
    return answer.value.error


def test_leader_of() -> None:
    image = image_of({0: (2, 5), 1: (NO_LEADER, 6)})
    assert leader_of(image, A) == ("t", 2, 5)
    assert leader_of(image, B) is None
    assert leader_of(image, (TOPIC_ID, 9)) is None
    assert leader_of(EMPTY, A) is None


def test_what_is_asked_in_one_turn_shares_a_request() -> None:
    harness = Harness()
    harness.lead({0: (2, 5), 1: (2, 6)})
    first = harness.requests.ask(A, "a")
    second = harness.requests.ask(B, "b")
    harness.run(0)
    assert harness.in_flight(2) == [[(A, 5, "a"), (B, 6, "b")]]
    harness.answer(2, {A: "1", B: "2"})
    assert (first.value, second.value) == ("1", "2")


def test_a_leader_has_one_request_in_flight() -> None:
    harness = Harness()
    harness.lead({0: (2, 5), 1: (2, 6)})
    harness.ask(A)
    harness.ask(B)
    assert harness.in_flight(2) == [[(A, 5, "x")]]
    harness.answer(2, {A: "1"})
    assert harness.in_flight(2) == [[(B, 6, "x")]]


def test_different_leaders_do_not_wait_for_one_another() -> None:
    harness = Harness()
    harness.lead({0: (2, 5), 1: (3, 6)})
    harness.ask(A)
    second = harness.ask(B)
    harness.answer(3, {B: "2"})
    assert second.value == "2"
    assert harness.in_flight(2) == [[(A, 5, "x")]]


def test_two_parts_of_one_partition_at_a_time_are_a_bug() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    harness.ask(A)
    with pytest.raises(AssertionError):
        harness.requests.ask(A, "again")


def test_without_a_leader_it_waits_for_the_metadata() -> None:
    harness = Harness()
    answer = harness.ask(A)
    harness.lead({0: (NO_LEADER, 5)})
    harness.run(60_000)
    assert not answer.done
    assert not harness.senders
    harness.lead({0: (2, 6)})
    harness.answer(2, {A: "1"})
    assert answer.value == "1"


def test_a_leader_here_is_answered_without_the_network() -> None:
    harness = Harness()
    harness.lead({0: (HERE, 5), 1: (HERE, 6)})
    answer = harness.ask(A)
    harness.ask(B)
    ((parts, pending),) = harness.api.local
    assert [part.key for part in parts] == [A]  # One at a time, as of any other leader.
    pending.complete(["1"])
    harness.run(0)
    assert answer.value == "1"
    assert not harness.senders
    assert [part.key for part in harness.api.local[1][0]] == [B]


def test_not_leader_is_asked_again_after_a_growing_backoff() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    answer = harness.ask(A)
    waits: list[int] = []
    for _ in range(4):
        harness.answer(2, {A: ApiError(Error.NOT_LEADER_OR_FOLLOWER)})
        began = harness.clock.elapsed_ms
        while not harness.in_flight(2):
            harness.run(10)
        waits.append(harness.clock.elapsed_ms - began)
    assert all(80 << at <= wait <= (120 << at) + 10 for at, wait in enumerate(waits)), waits
    harness.answer(2, {A: "1"})
    assert answer.value == "1"


def test_not_leader_follows_a_leader_that_the_metadata_names_already() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    harness.ask(A)
    harness.lead({0: (3, 6)})
    assert not harness.in_flight(3)  # It may still be appended there.
    harness.answer(2, {A: ApiError(Error.NOT_LEADER_OR_FOLLOWER)})
    assert harness.in_flight(3) == [[(A, 6, "x")]]


def test_a_new_leader_ends_the_backoff() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    harness.ask(A)
    harness.answer(2, {A: ApiError(Error.NOT_LEADER_OR_FOLLOWER)})
    assert not harness.in_flight(2)
    harness.lead({0: (3, 6)})
    assert harness.in_flight(3) == [[(A, 6, "x")]]


def test_the_same_leader_in_a_new_epoch_is_asked_with_that_epoch() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    harness.ask(A)
    harness.answer(2, {A: ApiError(Error.UNKNOWN_LEADER_EPOCH)})
    harness.lead({0: (2, 6)})
    assert harness.in_flight(2) == [[(A, 6, "x")]]


def test_a_lost_connection_is_retried_with_one_backoff_for_the_leader() -> None:
    harness = Harness()
    harness.lead({0: (2, 5), 1: (2, 6)})
    answer = harness.ask(A)
    harness.answer(2, ApiError(Error.NETWORK_EXCEPTION))
    late = harness.ask(B)
    assert not harness.in_flight(2)
    harness.run(130)
    assert harness.in_flight(2) == [[(A, 5, "x"), (B, 6, "x")]]
    harness.answer(2, {A: "1", B: "2"})
    assert (answer.value, late.value) == ("1", "2")


def test_after_a_lost_connection_a_new_leader_is_asked_at_once() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    harness.ask(A)
    harness.answer(2, ApiError(Error.NETWORK_EXCEPTION))
    harness.lead({0: (3, 6)})
    assert harness.in_flight(3) == [[(A, 6, "x")]]


def test_an_error_that_a_retry_cannot_mend_is_the_answer() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    answer = harness.ask(A)
    harness.answer(2, {A: ApiError(Error.MESSAGE_TOO_LARGE)})
    assert error_of(answer) is Error.MESSAGE_TOO_LARGE
    assert not len(harness.requests)


def test_a_deadline_ends_the_retries() -> None:
    harness = Harness()
    answer = harness.ask(A, deadline_ms=5_000)
    harness.run(4_999)
    assert not answer.done
    harness.run(1)
    assert error_of(answer) is Error.REQUEST_TIMED_OUT
    harness.lead({0: (2, 5)})
    assert not harness.senders


def test_an_answer_after_the_deadline_is_dropped() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    answer = harness.ask(A, deadline_ms=1_000)
    harness.run(1_000)
    again = harness.ask(A, "again")
    harness.answer(2, {A: "late"})
    assert error_of(answer) is Error.REQUEST_TIMED_OUT
    assert not again.done
    assert harness.in_flight(2) == [[(A, 5, "again")]]


def test_a_paused_leader_is_abandoned_where_its_late_answer_does_not_matter() -> None:
    harness = Harness(abandons=True)
    harness.lead({0: (2, 5), 1: (2, 5)})
    answer = harness.ask(A)
    harness.lead({0: (3, 6), 1: (2, 5)})
    assert harness.in_flight(3) == [[(A, 6, "x")]]
    harness.answer(3, {A: "new"})
    harness.answer(2, {A: "old"})
    assert answer.value == "new"


def test_the_answer_of_an_abandoned_leader_is_dropped() -> None:
    harness = Harness(abandons=True)
    harness.lead({0: (2, 5)})
    answer = harness.ask(A)
    harness.lead({0: (3, 6)})
    harness.answer(2, {A: "old"})
    assert not answer.done
    harness.answer(3, {A: "new"})
    assert answer.value == "new"


def test_a_cancelled_part_is_never_answered() -> None:
    harness = Harness()
    harness.lead({0: (2, 5)})
    answer = harness.ask(A)
    harness.requests.cancel(A)
    harness.requests.cancel(A)
    harness.answer(2, {A: "1"})
    assert not answer.done


def test_close_answers_all_that_wait() -> None:
    harness = Harness()
    harness.lead({0: (2, 5), 1: (NO_LEADER, 5)})
    in_flight, waiting = harness.ask(A), harness.ask(B, deadline_ms=1_000)
    harness.requests.close()
    assert error_of(in_flight) is error_of(waiting) is Error.BROKER_NOT_AVAILABLE
    harness.answer(2, {A: "1"})
    assert error_of(harness.ask(A)) is Error.BROKER_NOT_AVAILABLE
    harness.run(60_000)
    assert not len(harness.timers)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.sampled_from([0, 1]), st.sampled_from([-1, 1, 2, 3])),
        st.tuples(st.just("answer"), st.sampled_from([1, 2, 3]), st.booleans()),
        st.tuples(st.just("lose"), st.sampled_from([2, 3]), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([0, 50, 500]), st.booleans()),
    ),
    max_size=40,
)


@given(MOVES, st.booleans())
def test_whatever_happens_a_part_is_in_flight_once_and_answered_in_the_end(
    moves: list[tuple[str, int, int]], abandons: bool
) -> None:
    harness = Harness(abandons=abandons)
    leaders = {0: (2, 1), 1: (3, 1)}
    harness.lead(leaders)
    answers = {A: harness.ask(A), B: harness.ask(B)}

    def results(asked: list[Key], *, good: bool) -> dict[Key, Any]:
        return {key: "done" if good else ApiError(Error.NOT_LEADER_OR_FOLLOWER) for key in asked}

    def reply(node: int, *, good: bool) -> None:
        if node == HERE and harness.api.local:
            parts, pending = harness.api.local.pop(0)
            found = results([part.key for part in parts], good=good)
            pending.complete([found[part.key] for part in parts])
            harness.run(0)
        elif node != HERE and harness.in_flight(node):
            asked = [key for key, _, _ in harness.in_flight(node)[0]]
            harness.answer(node, results(asked, good=good))

    for what, first, second in moves:
        if what == "lead":
            leaders[first] = (second, leaders[first][1] + 1)
            harness.lead(leaders)
        elif what == "answer":
            reply(first, good=bool(second))
        elif what == "lose" and harness.in_flight(first):
            harness.answer(first, ApiError(Error.NETWORK_EXCEPTION))
        elif what == "wait":
            harness.run(first)
        for node in (2, 3):
            assert len(harness.in_flight(node)) <= 1
        if not abandons:
            sent = [key for node in (2, 3) for each in harness.in_flight(node) for key, *_ in each]
            sent += [part.key for parts, _ in harness.api.local for part in parts]
            assert len(sent) == len(set(sent)), "two requests of one order-keeping stream"

    harness.lead({0: (2, 99), 1: (3, 99)})
    for _ in range(10):
        for node in (HERE, 2, 3):
            reply(node, good=True)
        harness.run(1_300)
    assert all(answer.value == "done" for answer in answers.values())
    assert not len(harness.requests)
