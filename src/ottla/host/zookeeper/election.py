"""Controller election in a ZooKeeper cluster: `/controller`, which every broker watches.

A broker that finds the znode missing tries to create it, ephemeral, and to increment
`/controller_epoch` in the same multi, guarded by the version that it read. The epoch and its
znode's version are fixed at that moment and never read again, so that a controller that was paused
over an election still writes with its own epoch, and is fenced.

After a lost connection the outcome of that multi is read: it succeeded if `/controller` is owned by
this session and the epoch is the one that was tried. A read may be stale on another server; then
the multi is retried and rejected, and the next read is not stale any more.

A znode of a previous session of this broker is deleted at once, without waiting for that session's
end; guarded by the epoch, so that it cannot be a new controller's.

The epoch never decreases while ZooKeeper keeps its data. A broker that finds a smaller epoch than
it has seen, or none, reads from an ensemble that was emptied or restored under running brokers, or
from a server that lags behind: it takes no part in elections and follows no controller, logs that
once, and reads again. That ends when the epoch has caught up; brokers reject every controller until
then. (Kafka's controllers take part in elections all the same, with epochs that brokers reject.)

Source: KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch, Kafka
3.9; KAFKA-6082.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.base.pending import Pending, completed, gather
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.base.zookeeper import (
    Check,
    Create,
    Delete,
    Event,
    Operation,
    Result,
    Session,
    SetData,
    Stat,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.metadata.znodes.controller import (
    FIRST_EPOCH,
    ControllerZnode,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.paths import CONTROLLER, CONTROLLER_EPOCH

log = logging.getLogger(__name__)

RETRY_MS = 100
"""The backoff after unexpected errors."""


class SessionHolder(Protocol):
    """What is needed of a session keeper; see `ottla.host.zookeeper.session_keeper`."""

    @property
    def session(self) -> Session | None:
        """Return the live session, if there is one."""
        ...

    def on_new(self, listener: Callable[[Session], None]) -> None:
        """Call `listener` with each new session, once it is connected."""
        ...

    def on_lost(self, listener: Callable[[], Pending[None] | None]) -> None:
        """Call `listener` when the session is over, before another one is opened."""
        ...


@dataclass(frozen=True, slots=True)
class Term:
    """A controller's term. `epoch_version`: of `/controller_epoch`, which every write checks."""

    epoch: int
    epoch_version: int


class ControllerElection:
    """One broker's part in the election, and its view of the elected controller.

    Fields: `term`: of this broker while it is the controller. `controller_id`, `epoch`: the
            controller, as far as this broker has seen; -1 = none.
    Hooks:  `on_elected(epoch, epoch_version)`; `on_resigned()`: the term has ended, for whatever
            reason; no new session is opened before the promise that it returns is kept.
    """

    def __init__(
        self,
        keeper: SessionHolder,
        broker_id: int,
        *,
        clock: Clock,
        timers: Timers,
        on_elected: Callable[[int, int], None],
        on_resigned: Callable[[], Pending[None] | None],
    ) -> None:
        self.term: Term | None = None
        self.controller_id = NO_LEADER
        self.epoch = NO_EPOCH
        self._keeper = keeper
        self._broker_id = broker_id
        self._clock = clock
        self._timers = timers
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._listeners: list[Callable[[int, int], None]] = []
        self._session: Session | None = None
        self._previous_sessions: set[int] = set()
        self._is_candidate = False
        self._attempt: Term | None = None
        self._is_watched = False
        self._is_busy = False
        self._read_again = False
        self._timer: Timer | None = None
        self._unreadable = ""

    # -- lifecycle -----------------------------------------------------------------------------

    def start(self) -> None:
        """Take part in elections, with this session and every later one."""
        self._is_candidate = True
        self._keeper.on_new(self._began)
        self._keeper.on_lost(self._lost)
        if self._keeper.session is not None:
            self._began(self._keeper.session)

    def add_previous_sessions(self, sessions: Iterable[int]) -> None:
        """Add sessions of this broker's previous process, which was killed."""
        self._previous_sessions.update(sessions)

    def close(self) -> Pending[None]:
        """Take part no more; resign if this broker is the controller."""
        self._is_candidate = False
        if self._timer is not None:
            self._timer.cancel()
        return self.resign()

    def on_controller(self, listener: Callable[[int, int], None]) -> None:
        """Call `listener` with controller and epoch, now and with each change; -1 = none."""
        listener(self.controller_id, self.epoch)
        self._listeners.append(listener)

    def _began(self, session: Session) -> None:
        self._session = session
        self._attempt = None
        self._is_watched = self._is_busy = False
        self._read_controller()

    def _lost(self) -> Pending[None] | None:
        if self._session is not None:
            self._previous_sessions.add(self._session.id)
        self._session = None
        ended = self._end_term()
        self._notify(NO_LEADER, self.epoch)
        return ended

    # -- term ----------------------------------------------------------------------------------

    def resign(self) -> Pending[None]:
        """End the term; the promise is kept when `/controller` is deleted."""
        term, session = self.term, self._session
        if term is None:
            return completed(None)
        log.info("broker %d resigns as controller of epoch %d", self._broker_id, term.epoch)
        self._end_term()
        deleted: Pending[None] = Pending()
        if session is None:
            deleted.complete(None)
        else:
            self._delete_controller(session, term.epoch_version, deleted)
        return deleted

    def _delete_controller(
        self, session: Session, epoch_version: int, deleted: Pending[None]
    ) -> None:
        def answered(outcome: tuple[Result, ...] | ZkError) -> None:
            lost = isinstance(outcome, ZkError) and outcome.code is ZkCode.CONNECTION_LOSS
            if lost and self._session is session:
                again = self._clock.monotonic_ms() + RETRY_MS
                self._timers.at(
                    again, lambda: self._delete_controller(session, epoch_version, deleted)
                )
            else:
                deleted.complete(None)

        session.multi((Check(CONTROLLER_EPOCH, epoch_version), Delete(CONTROLLER))).then(answered)

    def fenced(self) -> None:
        """End the term: a write was fenced, so another broker has incremented the epoch."""
        self._end_term()
        self._read_controller()

    def _end_term(self) -> Pending[None] | None:
        if self.term is None:
            return None
        log.info(
            "broker %d is no longer the controller of epoch %d", self._broker_id, self.term.epoch
        )
        self.term = self._attempt = None
        return self._on_resigned()

    def _begin_term(self, term: Term) -> None:
        log.info("broker %d is the controller, epoch %d", self._broker_id, term.epoch)
        self.term, self._attempt = term, None
        self._on_elected(term.epoch, term.epoch_version)
        self._notify(self._broker_id, term.epoch)

    def _notify(self, controller_id: int, epoch: int) -> None:
        if (controller_id, epoch) == (self.controller_id, self.epoch):
            return
        self.controller_id, self.epoch = controller_id, epoch
        for listener in tuple(self._listeners):
            listener(controller_id, epoch)

    # -- reading -------------------------------------------------------------------------------

    def _read_controller(self) -> None:
        """Read the controller, and watch. A change meanwhile is read afterwards."""
        session = self._session
        if session is None:
            return
        if self._is_busy:
            self._read_again = True
            return
        self._is_busy, self._read_again = True, False
        if not self._is_watched:
            self._is_watched = True
            session.exists(CONTROLLER, lambda event: self._on_watch(session, event))
        # The epoch first: a controller that is read after it was not elected before, so that a
        # deletion guarded by that epoch cannot delete a newer controller's znode.
        reads = [session.get(CONTROLLER_EPOCH), session.get(CONTROLLER)]
        gather(reads).then(lambda answers: self._on_read(session, *answers))

    def _on_watch(self, session: Session, event: Event) -> None:
        if session is self._session:
            self._is_watched = False
            self._read_controller()

    def _read_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.at(self._clock.monotonic_ms() + RETRY_MS, self._read_controller)

    def _on_read(
        self, session: Session, stored: ZnodeData | ZkError, found: ZnodeData | ZkError
    ) -> None:
        if session is not self._session:
            return
        self._is_busy = False
        try:
            self._act_on(session, found, stored)
        except ZnodeError as error:
            if str(error) != self._unreadable:
                log.error("controller election failed: %s; retrying", error)
            self._unreadable = str(error)
            self._read_later()
        except ZkError as error:
            if error.code is not ZkCode.SESSION_EXPIRED:
                log.warning("reading /controller failed: %s; retrying", error)
                self._read_later()
        else:
            self._unreadable = ""
        if self._read_again:
            self._read_controller()

    def _act_on(
        self, session: Session, found: ZnodeData | ZkError, stored: ZnodeData | ZkError
    ) -> None:
        if _is_missing(stored):
            self._check_epoch(FIRST_EPOCH)
            self._write(session, (Create(CONTROLLER_EPOCH, encode_controller_epoch(FIRST_EPOCH)),))
            return
        epoch_node = _read(stored)
        current = Term(decode_controller_epoch(epoch_node.data), epoch_node.stat.version)
        self._check_epoch(current.epoch)
        if _is_missing(found):
            self._end_term()
            self._notify(NO_LEADER, current.epoch)
            if self._is_candidate:
                self._elect(session, current)
            return
        node = _read(found)
        owner = node.stat.ephemeral_owner
        is_ours = owner == session.id
        if is_ours and self.term == current:
            return
        if is_ours and self._attempt == current and self._is_candidate:
            self._begin_term(current)
            return
        self._end_term()
        if is_ours or owner in self._previous_sessions:
            # It is no controller's: its creator has resigned, or its session has expired.
            log.info("deleting /controller of this broker's previous session")
            self._write(
                session, (Check(CONTROLLER_EPOCH, current.epoch_version), Delete(CONTROLLER))
            )
            return
        self._notify(decode_controller(node.data).broker_id, current.epoch)

    def _check_epoch(self, stored: int) -> None:
        """End the term if the epoch has decreased. Raises: ZnodeError."""
        if stored < self.epoch:
            known = self.epoch
            self._end_term()
            self._notify(NO_LEADER, known)
            raise ZnodeError(
                CONTROLLER_EPOCH,
                f"the epoch is {stored} or missing, and this broker has seen {known}: ZooKeeper has"
                " lost data, and no controller can be elected. If it was emptied on purpose,"
                " restart all brokers",
            )

    def _elect(self, session: Session, current: Term) -> None:
        self._attempt = Term(current.epoch + 1, current.epoch_version + 1)
        epoch = encode_controller_epoch(current.epoch + 1)
        node = ControllerZnode(broker_id=self._broker_id, timestamp_ms=self._clock.now_ms())
        self._write(
            session,
            (
                Create(CONTROLLER, encode_controller(node), ephemeral=True),
                SetData(CONTROLLER_EPOCH, epoch, current.epoch_version),
            ),
            self._elected,
        )

    def _elected(self, results: tuple[Result, ...]) -> None:
        attempt, stat = self._attempt, results[1]
        assert attempt is not None
        assert isinstance(stat, Stat)
        self._begin_term(Term(attempt.epoch, stat.version))

    def _write(
        self,
        session: Session,
        operations: tuple[Operation, ...],
        done: Callable[[tuple[Result, ...]], None] | None = None,
    ) -> None:
        """Write; read the controller again after anything but success."""
        self._is_busy = True

        def answered(outcome: tuple[Result, ...] | ZkError) -> None:
            if session is not self._session:
                return
            self._is_busy = False
            if not isinstance(outcome, ZkError):
                if done is not None and self._is_candidate:
                    done(outcome)
                else:
                    self._read_again = True
                if self._read_again:
                    self._read_controller()
            elif outcome.code in EXPECTED:
                self._read_controller()
            elif outcome.code is not ZkCode.SESSION_EXPIRED:
                log.warning("writing /controller failed: %s; retrying", outcome)
                self._read_later()

        session.multi(operations).then(answered)


EXPECTED = frozenset(
    {
        ZkCode.NODE_EXISTS,
        ZkCode.NO_NODE,
        ZkCode.BAD_VERSION,
        ZkCode.CONNECTION_LOSS,
    }
)
"""Results of a write after other brokers' elections and lost connections: read again."""


def _is_missing(read: ZnodeData | ZkError) -> bool:
    return isinstance(read, ZkError) and read.code is ZkCode.NO_NODE


def _read(read: ZnodeData | ZkError) -> ZnodeData:
    if isinstance(read, ZkError):
        raise read
    return read
