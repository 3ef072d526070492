"""Goal: there is one session at a time, and no new one before listeners of a loss are done.

Method: sessions that the test connects and ends.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.base.zookeeper import SessionState
from ottla.host.zookeeper.session_keeper import RETRY_MS, SessionKeeper


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


class Harness:
    """A keeper, the sessions that it opened, and the calls of its listeners."""

    def __init__(self, connection_timeout_ms: int | None = None) -> None:
        self.now_ms = 0
        self.timers = Timers()
        self.sessions: list[FakeSession] = []
        self.calls: list[Any] = []
        self.failures: list[Exception] = []
        """What opening the next sessions raises."""
        self.wound_up: Pending[None] = Pending()
        self.keeper = SessionKeeper(
            self._open,  # type: ignore[arg-type]
            clock=self,
            timers=self.timers,
            connection_timeout_ms=connection_timeout_ms,
        )
        for name in ("first", "second"):
            self.keeper.on_new(lambda session, name=name: self.calls.append((name, session)))
        self.keeper.on_lost(self._lost)
        self.keeper.on_lost(lambda: self.calls.append("lost too"))  # type: ignore[func-returns-value]
        self.keeper.on_state(lambda state: self.calls.append(state))

    def monotonic_ms(self) -> int:
        return self.now_ms

    def now(self) -> int:
        return self.now_ms

    def _open(self, on_state: Callable[[SessionState], None]) -> FakeSession:
        if self.failures:
            raise self.failures.pop(0)
        self.sessions.append(FakeSession(on_state))
        return self.sessions[-1]

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.timers.run_due(self.now_ms)

    def _lost(self) -> Pending[None]:
        self.calls.append(("lost", self.keeper.session))
        return self.wound_up

    def take_calls(self) -> list[Any]:
        calls, self.calls = self.calls, []
        return calls


def test_listeners_are_called_when_a_session_is_first_connected() -> None:
    harness = Harness()
    started = harness.keeper.start()
    (session,) = harness.sessions
    assert (harness.keeper.session, harness.keeper.state) == (None, SessionState.CONNECTING)
    session.become(SessionState.CONNECTED)
    assert started.value
    assert harness.keeper.session is session  # type: ignore[comparison-overlap]
    assert harness.take_calls() == [("first", session), ("second", session), SessionState.CONNECTED]
    session.become(SessionState.SUSPENDED)
    session.become(SessionState.CONNECTED)
    assert harness.take_calls() == [SessionState.SUSPENDED, SessionState.CONNECTED]


def test_no_session_is_opened_before_the_lost_ones_heirs_are_done() -> None:
    harness = Harness()
    harness.keeper.start()
    harness.sessions[0].become(SessionState.CONNECTED)
    harness.take_calls()
    harness.sessions[0].become(SessionState.EXPIRED)
    assert harness.take_calls() == [("lost", None), "lost too", SessionState.EXPIRED]
    assert len(harness.sessions) == 1
    harness.wound_up.complete(None)
    assert len(harness.sessions) == 2
    assert harness.keeper.session is None
    harness.sessions[1].become(SessionState.CONNECTED)
    assert harness.take_calls()[:2] == [
        ("first", harness.sessions[1]),
        ("second", harness.sessions[1]),
    ]


def test_the_loss_of_a_session_that_was_never_connected_is_not_reported() -> None:
    harness = Harness()
    harness.keeper.start()
    harness.sessions[0].become(SessionState.EXPIRED)
    assert harness.take_calls() == [SessionState.EXPIRED]
    assert len(harness.sessions) == 2


def test_states_of_a_previous_session_are_ignored() -> None:
    harness = Harness()
    harness.wound_up.complete(None)
    harness.keeper.start()
    harness.sessions[0].become(SessionState.CONNECTED)
    harness.sessions[0].become(SessionState.EXPIRED)
    harness.take_calls()
    harness.sessions[0].become(SessionState.CLOSED)
    assert (harness.take_calls(), len(harness.sessions)) == ([], 2)


def test_a_closed_keeper_opens_no_more() -> None:
    harness = Harness()
    harness.keeper.start()
    harness.sessions[0].become(SessionState.CONNECTED)
    harness.take_calls()
    assert harness.keeper.close().done
    assert (harness.keeper.session, harness.keeper.state) == (None, SessionState.CLOSED)
    assert harness.take_calls() == [SessionState.CLOSED]
    assert len(harness.sessions) == 1


def test_closing_while_the_heirs_are_at_it() -> None:
    harness = Harness()
    harness.keeper.start()
    harness.sessions[0].become(SessionState.CONNECTED)
    harness.sessions[0].become(SessionState.EXPIRED)
    harness.keeper.close()
    harness.wound_up.complete(None)
    assert len(harness.sessions) == 1


def test_a_start_without_a_server_times_out_and_keeps_trying() -> None:
    harness = Harness(connection_timeout_ms=6_000)
    started = harness.keeper.start()
    harness.timers.run_due(5_999)
    assert not started.done
    harness.timers.run_due(6_000)
    assert started.value is False
    harness.sessions[0].become(SessionState.CONNECTED)
    assert harness.keeper.session is not None


def test_a_start_that_is_connected_cancels_its_timeout() -> None:
    harness = Harness(connection_timeout_ms=6_000)
    started = harness.keeper.start()
    harness.sessions[0].become(SessionState.CONNECTED)
    assert started.value is True
    assert len(harness.timers) == 0


def test_states_are_counted_over_all_sessions() -> None:
    harness = Harness()
    harness.wound_up.complete(None)
    harness.keeper.start()
    (first,) = harness.sessions
    for state in (SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED):
        first.become(state)
    first.become(SessionState.EXPIRED)
    first.become(SessionState.CONNECTED)  # States of an expired session are ignored.
    harness.sessions[1].become(SessionState.CONNECTED)
    assert harness.keeper.state_counts == {
        SessionState.CONNECTED: 3,
        SessionState.SUSPENDED: 1,
        SessionState.EXPIRED: 1,
    }


def test_a_session_that_cannot_be_opened_is_opened_later() -> None:
    """For want of a descriptor or a thread: without a session the broker is dead for all others."""
    harness = Harness()
    harness.wound_up.complete(None)
    harness.keeper.start()
    harness.sessions[0].become(SessionState.CONNECTED)
    harness.failures = [OSError(24, "Too many open files"), RuntimeError("can't start new thread")]
    harness.sessions[0].become(SessionState.EXPIRED)
    harness.pass_time(RETRY_MS)
    assert (harness.failures, len(harness.sessions)) == ([], 1)
    harness.pass_time(RETRY_MS)
    harness.sessions[1].become(SessionState.CONNECTED)
    assert harness.keeper.session is harness.sessions[1]  # type: ignore[comparison-overlap]


def test_a_closed_keeper_does_not_retry_to_open_a_session() -> None:
    harness = Harness()
    harness.wound_up.complete(None)
    harness.keeper.start()
    harness.sessions[0].become(SessionState.CONNECTED)
    harness.failures = [OSError(24, "Too many open files")]
    harness.sessions[0].become(SessionState.EXPIRED)
    harness.keeper.close()
    harness.pass_time(RETRY_MS)
    assert len(harness.sessions) == 1
