"""Goal: there is one session at a time, and none before the last one's heirs are done.

Method: sessions that the test connects and ends.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.base.zookeeper import SessionState
from ottla.host.zookeeper.session_keeper import SessionKeeper


class FakeSession:
    """A session that becomes what the test says."""

    def __init__(self, on_state: Callable[[SessionState], None]) -> None:
        self.state = SessionState.CONNECTING
        self.id = 0
        self._on_state = on_state

    def become(self, state: SessionState) -> None:
        self.state = state
        self._on_state(state)

    def close(self) -> Pending[None]:
        self.become(SessionState.CLOSED)
        return completed(None)


class World:
    """A keeper, the sessions that it opened, and what its listeners heard."""

    def __init__(self, connection_timeout_ms: int | None = None) -> None:
        self.now_ms = 0
        self.timers = Timers()
        self.sessions: list[FakeSession] = []
        self.heard: list[Any] = []
        self.wound_up: Pending[None] = Pending()
        self.keeper = SessionKeeper(
            self._open,  # type: ignore[arg-type]
            clock=self,
            timers=self.timers,
            connection_timeout_ms=connection_timeout_ms,
        )
        for name in ("first", "second"):
            self.keeper.on_new(lambda session, name=name: self.heard.append((name, session)))
        self.keeper.on_lost(self._lost)
        self.keeper.on_lost(lambda: self.heard.append("lost too"))  # type: ignore[func-returns-value]
        self.keeper.on_state(lambda state: self.heard.append(state))

    def monotonic_ms(self) -> int:
        return self.now_ms

    def now(self) -> int:
        return self.now_ms

    def _open(self, on_state: Callable[[SessionState], None]) -> FakeSession:
        self.sessions.append(FakeSession(on_state))
        return self.sessions[-1]

    def _lost(self) -> Pending[None]:
        self.heard.append(("lost", self.keeper.session))
        return self.wound_up

    def said(self) -> list[Any]:
        heard, self.heard = self.heard, []
        return heard


def test_listeners_hear_of_a_session_once_it_is_connected_for_the_first_time() -> None:
    world = World()
    started = world.keeper.start()
    (session,) = world.sessions
    assert (world.keeper.session, world.keeper.state) == (None, SessionState.CONNECTING)
    session.become(SessionState.CONNECTED)
    assert started.value
    assert world.keeper.session is session  # type: ignore[comparison-overlap]
    assert world.said() == [("first", session), ("second", session), SessionState.CONNECTED]
    session.become(SessionState.SUSPENDED)
    session.become(SessionState.CONNECTED)
    assert world.said() == [SessionState.SUSPENDED, SessionState.CONNECTED]


def test_no_session_is_opened_before_the_lost_ones_heirs_are_done() -> None:
    world = World()
    world.keeper.start()
    world.sessions[0].become(SessionState.CONNECTED)
    world.said()
    world.sessions[0].become(SessionState.EXPIRED)
    assert world.said() == [("lost", None), "lost too", SessionState.EXPIRED]
    assert len(world.sessions) == 1
    world.wound_up.complete(None)
    assert len(world.sessions) == 2
    assert world.keeper.session is None
    world.sessions[1].become(SessionState.CONNECTED)
    assert world.said()[:2] == [("first", world.sessions[1]), ("second", world.sessions[1])]


def test_a_session_that_nobody_heard_of_is_not_mourned() -> None:
    world = World()
    world.keeper.start()
    world.sessions[0].become(SessionState.EXPIRED)
    assert world.said() == [SessionState.EXPIRED]
    assert len(world.sessions) == 2


def test_states_of_a_session_of_before_change_nothing() -> None:
    world = World()
    world.wound_up.complete(None)
    world.keeper.start()
    world.sessions[0].become(SessionState.CONNECTED)
    world.sessions[0].become(SessionState.EXPIRED)
    world.said()
    world.sessions[0].become(SessionState.CLOSED)
    assert (world.said(), len(world.sessions)) == ([], 2)


def test_a_closed_keeper_opens_no_more() -> None:
    world = World()
    world.keeper.start()
    world.sessions[0].become(SessionState.CONNECTED)
    world.said()
    assert world.keeper.close().done
    assert (world.keeper.session, world.keeper.state) == (None, SessionState.CLOSED)
    assert world.said() == [SessionState.CLOSED]
    assert len(world.sessions) == 1


def test_closing_while_the_heirs_are_at_it() -> None:
    world = World()
    world.keeper.start()
    world.sessions[0].become(SessionState.CONNECTED)
    world.sessions[0].become(SessionState.EXPIRED)
    world.keeper.close()
    world.wound_up.complete(None)
    assert len(world.sessions) == 1


def test_a_start_without_a_server_says_so_in_time_and_goes_on_trying() -> None:
    world = World(connection_timeout_ms=6_000)
    started = world.keeper.start()
    world.timers.run_due(5_999)
    assert not started.done
    world.timers.run_due(6_000)
    assert started.value is False
    world.sessions[0].become(SessionState.CONNECTED)
    assert world.keeper.session is not None


def test_a_start_that_is_connected_forgets_its_time() -> None:
    world = World(connection_timeout_ms=6_000)
    started = world.keeper.start()
    world.sessions[0].become(SessionState.CONNECTED)
    assert started.value is True
    assert len(world.timers) == 0


def test_states_are_counted_over_all_sessions() -> None:
    world = World()
    world.wound_up.complete(None)
    world.keeper.start()
    (first,) = world.sessions
    for state in (SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED):
        first.become(state)
    first.become(SessionState.EXPIRED)
    first.become(SessionState.CONNECTED)  # Nobody is told what a buried session says.
    world.sessions[1].become(SessionState.CONNECTED)
    assert world.keeper.states_heard == {
        SessionState.CONNECTED: 3,
        SessionState.SUSPENDED: 1,
        SessionState.EXPIRED: 1,
    }
