"""Slow responses to clients are reported, without the time in which the node was paused.

Method: one fake node that never answers by itself, and a client with a long timeout.
"""

from random import Random

from ottla.base.pending import Pending
from ottla.broker.dispatch import Chunks, Outcome
from ottla.broker.ports import Connection, Listener
from ottla.testing.history.nodes import RequestHeld
from ottla.testing.sim.net import MS, Network, SimListener
from ottla.testing.sim.scheduler import Process, Scheduler
from ottla.testing.sim.transport import links_from
from ottla.testing.sim.watch.answer_watch import AnswerWatch, limit_of
from ottla.wire.frames import encode_request
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.produce import ProduceRequest

ADDRESS = ("10.0.0.1", 9092)
PRODUCE = ProduceRequest(acks=-1, timeout_ms=1_500, topic_data=())
PATIENCE_MS = 9_000


class Story:
    def __init__(self, place: int = -1) -> None:
        self.scheduler = Scheduler(lambda where, error: None)
        self.net = Network(self.scheduler, Random(7), lambda *_: None)
        self.process = Process("node 1", 3)
        self.process.held_until_us = 0
        self.held: list[RequestHeld] = []
        self.watch = AnswerWatch(self.net, self.held.append)
        self.waiting: list[Pending[Chunks | None]] = []
        listener = SimListener(self.process, 1, Listener.CLIENT, "PLAINTEXT", self.keep)
        listener.is_open = True
        self.net.listen(ADDRESS, listener)
        link = links_from(self.net, place, None)(lambda: ADDRESS, client_id="c")
        link.send(PRODUCE, 9, timeout_ms=PATIENCE_MS)

    def keep(self, _connection: Connection, _frame: memoryview) -> Outcome:
        self.waiting.append(Pending())
        return self.waiting[-1]

    def until(self, at_ms: int) -> None:
        self.scheduler.run_until(at_ms * MS)


def test_a_late_response_is_reported_with_the_requests_own_limit() -> None:
    story = Story()
    story.until(4_000)
    story.waiting[0].complete(None)
    (held,) = story.held
    assert (held.api, held.limit_ms, held.answered, held.incarnation) == ("Produce", 1_500, True, 3)
    assert 3_900 < held.held_ms <= 4_000


def test_a_request_that_its_client_gives_up_is_reported() -> None:
    story = Story()
    story.until(PATIENCE_MS + 1_000)
    (held,) = story.held
    assert not held.answered
    assert held.held_ms > PATIENCE_MS - 100


def test_an_unanswered_request_is_reported_in_the_end() -> None:
    story = Story()
    story.until(5_000)
    assert story.held == []
    story.watch.finish()
    assert [each.answered for each in story.held] == [False]


def test_a_response_in_time_is_not_reported() -> None:
    story = Story()
    story.until(900)
    story.waiting[0].complete(None)
    assert story.held == []


def test_the_time_of_a_pause_does_not_count() -> None:
    story = Story()
    story.until(100)
    story.process.paused = True
    story.until(6_000)
    story.scheduler.resume(story.process)
    story.until(6_500)
    story.waiting[0].complete(None)
    assert story.held == []


def test_a_dead_nodes_requests_are_not_reported() -> None:
    story = Story()
    story.until(4_000)
    story.process.alive = False
    story.net.vanish(story.process, silently=False)
    assert story.held == []


def test_requests_of_nodes_are_not_reported() -> None:
    story = Story(place=2)
    story.until(4_000)
    story.waiting[0].complete(None)
    assert story.held == []


def test_the_limit_of_each_request() -> None:
    fetch = FetchRequest(max_wait_ms=250, min_bytes=1, max_bytes=1, topics=())
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    delete = DeleteTopicsRequest(topics=(), timeout_ms=4_000)
    assert limit_of(encode_request(PRODUCE, 9, 1, "c")) == ("Produce", 1_500)
    assert limit_of(encode_request(fetch, 12, 1, "c")) == ("Fetch", 250)
    assert limit_of(encode_request(heartbeat, 4, 1, "c")) == ("Heartbeat", 0)
    assert limit_of(encode_request(delete, 6, 1, "c")) == ("DeleteTopics", 5_000)
