"""A measured session returns the results of its session, and observes their latency.

Method: a session on a simulated ZooKeeper in virtual time, wrapped.
"""

import pytest

from ottla.base.metrics import Histogram, latency_ns
from ottla.base.pending import Pending
from ottla.base.zookeeper import (
    Create,
    Event,
    EventKind,
    Session,
    SessionState,
    SetData,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.host.zookeeper.measured_session import measured

from .harness import MS, ZooKeeperHarness


class Measured:
    """A measured session, connected."""

    def __init__(self) -> None:
        self.sim = ZooKeeperHarness()
        self.latency: Histogram = latency_ns()
        self.states: list[SessionState] = []
        inner = self.sim.client("client").open_session
        opened = measured(inner, lambda: self.sim.scheduler.now_us * 1_000, self.latency)
        self.session: Session = opened(self.states.append)
        self.sim.until(lambda: self.session.state is SessionState.CONNECTED)


@pytest.fixture
def client() -> Measured:
    return Measured()


def test_answers_watches_and_states_pass_through(client: Measured) -> None:
    sim, session = client.sim, client.session
    seen: list[Event] = []
    assert session.id > 0
    assert sim.wait(session.exists("/a", seen.append)) is None
    assert sim.wait(session.multi((Create("/a", b"1"), Create("/a/b")))) == ("/a", "/a/b")
    assert sim.wait(session.children("/a", seen.append)) == ("b",)
    got = sim.wait(session.get("/a", seen.append))
    assert isinstance(got, ZnodeData)
    assert got.data == b"1"
    sim.wait(session.multi((SetData("/a", b"2"), Create("/a/c"))))
    assert seen == [
        Event(EventKind.CREATED, "/a"),
        Event(EventKind.DATA_CHANGED, "/a"),
        Event(EventKind.CHILDREN_CHANGED, "/a"),
    ]
    failed = sim.wait(session.get("/nothing"))
    assert isinstance(failed, ZkError)
    assert failed.code is ZkCode.NO_NODE
    sim.wait(session.close())
    assert client.states == [SessionState.CONNECTED, SessionState.CLOSED]


def test_each_answer_is_timed_failures_too(client: Measured) -> None:
    sim, session = client.sim, client.session
    asked_us = sim.scheduler.now_us
    sim.wait(session.get("/nothing"))
    assert client.latency.count == 1
    assert 0 < client.latency.total <= (sim.scheduler.now_us - asked_us) * 1_000
    answers: list[Pending[object]] = [
        session.exists("/a"),  # type: ignore[list-item]
        session.children("/"),  # type: ignore[list-item]
        session.multi((Create("/a"),)),  # type: ignore[list-item]
    ]
    for answer in answers:
        sim.wait(answer)
    assert client.latency.count == 4


def test_the_wait_for_a_connection_counts(client: Measured) -> None:
    sim = client.sim
    sim.model.cut("client")
    answer = client.session.get("/")
    sim.run(500)
    assert client.latency.count == 0
    sim.model.heal("client")
    sim.wait(answer)
    assert client.latency.total >= 500 * MS * 1_000
