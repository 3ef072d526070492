"""Keeps one live ZooKeeper session: when one has expired, another is opened.

Listeners of `on_lost` are called first, and may each return a promise that is awaited before a new
session is opened: a controller answers its queued requests and resigns. So nothing of the expired
session is still active when the new one begins.

Source: ZooKeeperClient.reinitialize and KafkaController (Expire, RegisterBrokerAndReelect).
"""

import logging
from collections import Counter
from collections.abc import Callable

from ottla.base.pending import Pending, completed, gather
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.base.zookeeper import OpenSession, Session, SessionState

log = logging.getLogger(__name__)

NewListener = Callable[[Session], None]
LostListener = Callable[[], Pending[None] | None]
StateListener = Callable[[SessionState], None]

RETRY_MS = 1_000
"""The backoff after a session that could not be opened, for want of a descriptor or a thread."""


class SessionKeeper:
    """See the module. `on_new` listeners are called when a session is connected for the first time,
    in the order of their registration; `on_lost` listeners when it has expired.

    Fields: `state_counts`: how often sessions entered each state.
    """

    def __init__(
        self,
        open_session: OpenSession,
        *,
        clock: Clock,
        timers: Timers,
        connection_timeout_ms: int | None = None,
    ) -> None:
        self.state_counts: Counter[SessionState] = Counter()
        self._open_session = open_session
        self._clock = clock
        self._timers = timers
        self._connection_timeout_ms = connection_timeout_ms
        self._session: Session | None = None
        self._announced = False
        self._is_closed = False
        self._timer: Timer | None = None
        self._started: Pending[bool] = Pending()
        self._on_new: list[NewListener] = []
        self._on_lost: list[LostListener] = []
        self._on_state: list[StateListener] = []

    @property
    def session(self) -> Session | None:
        """Return the session that was passed to listeners, until it is lost or closed."""
        return self._session if self._announced else None

    @property
    def state(self) -> SessionState:
        """Return the current session's state."""
        if self._is_closed:
            return SessionState.CLOSED
        return SessionState.CONNECTING if self._session is None else self._session.state

    def on_new(self, listener: NewListener) -> None:
        """Call `listener` with each new session; see `session` for the current one."""
        self._on_new.append(listener)

    def on_lost(self, listener: LostListener) -> None:
        """Call `listener` when a session that was passed to listeners has expired.

        Another one is opened once the promises are kept that listeners return.
        """
        self._on_lost.append(listener)

    def on_state(self, listener: StateListener) -> None:
        """Call `listener` with each change of state, after the other listeners."""
        self._on_state.append(listener)

    def start(self) -> Pending[bool]:
        """Open the first session; the promise is whether it was connected in time.

        If it was not, the keeper continues to connect until it is closed.
        """
        assert self._session is None, "a keeper is started once"
        if self._connection_timeout_ms is not None:
            at_ms = self._clock.monotonic_ms() + self._connection_timeout_ms
            self._timer = self._timers.at(at_ms, lambda: self._note_started(False))
        self._open()
        return self._started

    def close(self) -> Pending[None]:
        """Close the session and open no more. `on_lost` listeners are not called."""
        self._is_closed = True
        self._announced = False
        self._note_started(False)
        return completed(None) if self._session is None else self._session.close()

    def _open(self) -> None:
        opened: list[Session] = []

        def changed(state: SessionState) -> None:
            self._changed(opened[0], state)

        self._announced = False
        opened.append(self._open_session(changed))
        self._session = opened[0]

    def _changed(self, session: Session, state: SessionState) -> None:
        if session is not self._session:
            return
        self.state_counts[state] += 1
        if state is SessionState.CONNECTED and not self._announced and not self._is_closed:
            self._announce(session)
        elif state is SessionState.EXPIRED and not self._is_closed:
            self._on_expired(session)
        for listener in self._on_state:
            listener(state)

    def _announce(self, session: Session) -> None:
        self._announced = True
        self._note_started(True)
        for listener in tuple(self._on_new):
            if session.state is SessionState.CONNECTED:
                listener(session)

    def _on_expired(self, session: Session) -> None:
        was_announced, self._announced = self._announced, False
        promises: list[Pending[None]] = []
        for listener in tuple(self._on_lost) if was_announced else ():
            promise = listener()
            if promise is not None:
                promises.append(promise)
        log.info("opening another ZooKeeper session once the expired one is cleaned up")
        gather(promises).then(lambda _: self._open_next(session))

    def _open_next(self, expired: Session) -> None:
        if self._is_closed or self._session is not expired:
            return
        try:
            self._open()
        except (OSError, RuntimeError) as error:
            log.error("opening a ZooKeeper session failed: %s; retrying in %d ms", error, RETRY_MS)
            at_ms = self._clock.monotonic_ms() + RETRY_MS
            self._timer = self._timers.at(at_ms, lambda: self._open_next(expired))

    def _note_started(self, connected: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._started.done:
            self._started.complete(connected)
