"""Who is the controller of a ZooKeeper cluster: `/controller`, which every broker watches.

Whoever finds the node missing tries to make it, ephemeral, and to move `/controller_epoch` on in
the same multi, guarded by the version that it read. The epoch and its znode's version are fixed in
that moment; they never follow what is stored later, so that a controller that slept through an
election still writes under its own epoch, and is refused.

After a lost connection the outcome of that multi is looked up: it was done iff `/controller` is
this session's and the epoch is the one that was tried. A read may be behind on another server;
then the multi is tried again, is refused, and the next read is not behind any more.

A node that an own former session left is removed at once, without waiting for that session's end;
guarded by the epoch, so that it cannot be a new controller's.

An epoch never falls while ZooKeeper keeps what it was given. Whoever finds a smaller one than it
knows of, or none, looks at an ensemble that was emptied or put back under living brokers, or at a
server that lags behind: it neither rules nor follows, says so once, and looks again. By itself
that ends where the epoch has caught up; brokers refuse every controller until then. (Kafka's
controllers stand for election there as ever, under epochs that brokers refuse.)

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
    Got,
    Operation,
    Result,
    Session,
    SetData,
    Stat,
    ZkCode,
    ZkError,
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
"""How long to wait after what should not happen, before looking again."""


class SessionHolder(Protocol):
    """What keeps a session with ZooKeeper; see `ottla.host.zookeeper.session_keeper`."""

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
    """A term of office. `epoch_version`: of `/controller_epoch`, which every write checks."""

    epoch: int
    epoch_version: int


class ControllerElection:
    """One broker's part in the election, and its view of who was elected.

    Fields: `term`: of this broker while it is the controller. `controller_id`, `epoch`: who rules,
            as far as this broker has seen; -1 = nobody.
    Hooks:  `on_elected(epoch, epoch_version)`; `on_resigned()`: the office is over, whoever says
            so; no new session is made before what it returns is kept.
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

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Stand for election, with this session and every later one."""
        self._is_candidate = True
        self._keeper.on_new(self._began)
        self._keeper.on_lost(self._lost)
        if self._keeper.session is not None:
            self._began(self._keeper.session)

    def add_previous_sessions(self, sessions: Iterable[int]) -> None:
        """Take these sessions for this broker's own: those of a life that was killed."""
        self._previous_sessions.update(sessions)

    def close(self) -> Pending[None]:
        """Stand no more; resign where this broker rules."""
        self._is_candidate = False
        if self._timer is not None:
            self._timer.cancel()
        return self.resign()

    def on_controller(self, listener: Callable[[int, int], None]) -> None:
        """Call `listener` with controller and epoch, now and with each change; -1 = nobody."""
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

    # -- office --------------------------------------------------------------------------------

    def resign(self) -> Pending[None]:
        """End the office, then make way: the answer comes when `/controller` is gone."""
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
        """End the office: a write was refused, so somebody else has moved the epoch on."""
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

    # -- looking -------------------------------------------------------------------------------

    def _read_controller(self) -> None:
        """Read who rules, and watch. What changes meanwhile is looked at afterwards."""
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
        # The epoch first: whoever is found after it was not elected before it, so that a removal
        # guarded by that epoch cannot be one of a later controller's znode.
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

    def _on_read(self, session: Session, stored: Got | ZkError, found: Got | ZkError) -> None:
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

    def _act_on(self, session: Session, found: Got | ZkError, stored: Got | ZkError) -> None:
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
            # Nobody rules by it: its maker has resigned, or lost the session that it goes with.
            log.info("deleting /controller of this broker's previous session")
            self._write(
                session, (Check(CONTROLLER_EPOCH, current.epoch_version), Delete(CONTROLLER))
            )
            return
        self._notify(decode_controller(node.data).broker_id, current.epoch)

    def _check_epoch(self, stored: int) -> None:
        """Leave every office where epochs have fallen. Raises: ZnodeError."""
        if stored < self.epoch:
            known = self.epoch
            self._end_term()
            self._notify(NO_LEADER, known)
            raise ZnodeError(
                CONTROLLER_EPOCH,
                f"the epoch is {stored} or none, and this broker has seen {known}: ZooKeeper has"
                " lost what it held, and no controller can be trusted. If it was emptied on"
                " purpose, restart all brokers",
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
        """Write; whatever else than success comes of it, look again."""
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
"""What others' elections and lost connections make of a write: looking again tells the rest."""


def _is_missing(read: Got | ZkError) -> bool:
    return isinstance(read, ZkError) and read.code is ZkCode.NO_NODE


def _read(read: Got | ZkError) -> Got:
    if isinstance(read, ZkError):
        raise read
    return read
