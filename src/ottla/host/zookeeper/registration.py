"""A broker's registration: `/brokers/ids/N`, an ephemeral node of its session.

It is created again with each new session; its czxid is the broker epoch (KIP-380). An existing node
is one of three: this session's (a lost response), which is kept; a previous session's of this
broker (KAFKA-7165), which is deleted and created again in one multi; or another broker's, whose
session's end is awaited.

Sessions of this broker, also of a killed process, are known by their ids, which are stored in the
log directories before anything is created with them: the holder of the directories' lock knows that
the previous holder is dead, and need not wait for ZooKeeper to expire its session.

Source: KafkaZkClient.registerBroker, CheckedEphemeral, Kafka 3.9.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from immutables import Map

from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.base.zookeeper import (
    Create,
    Delete,
    Event,
    Operation,
    Result,
    Session,
    Stat,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.host.steps import Steps, drive, wait
from ottla.metadata.brokers import Endpoint
from ottla.metadata.features import LEDGER, OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.broker import BrokerZnode, encode_broker

log = logging.getLogger(__name__)

FEATURES: Final = Map({OTTLA_VERSION: (LEDGER, OTTLA_VERSION_LEVEL)})
"""What a broker registers with: Kafka's features are of KRaft mode."""

RETRY_MS = 500
"""The backoff after unexpected errors."""


class Registration:
    """Keeps a broker registered. `on_epoch` is called with the epoch of each registration.

    `store_session`: writes a session's id into the log directories; `previous_sessions`: the ids
    that were read from them at the start.
    """

    def __init__(
        self,
        broker_id: int,
        endpoints: Iterable[Endpoint],
        *,
        rack: str | None,
        clock: Clock,
        timers: Timers,
        store_session: Callable[[int], Pending[None]],
        previous_sessions: Iterable[int],
        on_epoch: Callable[[int], None],
    ) -> None:
        self._path = paths.broker(broker_id)
        self._broker_id = broker_id
        self._znode = BrokerZnode(endpoints=tuple(endpoints), rack=rack, features=FEATURES)
        self._clock = clock
        self._timers = timers
        self._store_session = store_session
        self._own_sessions = set(previous_sessions)
        self._on_epoch = on_epoch
        self._session: Session | None = None
        self._timer: Timer | None = None
        self._blocking_session = 0
        self._is_closed = False
        self.registered: Pending[None] = Pending()
        """Kept when the broker is registered for the first time."""

    def session_started(self, session: Session) -> None:
        """Register with a new session."""
        if self._is_closed:
            return
        self._session = session
        self._own_sessions.add(session.id)
        self._store_session(session.id).then(lambda _: self._register(session))

    def unregister(self) -> Pending[None]:
        """Stop registering and delete the node: the session may still be needed.

        Only this session's node: a node of a previous session may be another broker's by now, which
        would not notice the deletion.
        """
        session = self._session
        self.close()
        if session is None:
            return completed(None)
        unregistered: Pending[None] = Pending()

        def ended(_outcome: Exception | None) -> None:
            unregistered.complete(None)  # Whatever the outcome: the node goes with the session.

        drive(self._delete_own_znode(session), ended)
        return unregistered

    def close(self) -> None:
        """Stop registering; the node goes with its session."""
        self._is_closed = True
        self._session = None
        self._cancel()

    @property
    def blocking_session(self) -> int:
        """Return the session of another broker that owns the node; 0 = none."""
        return self._blocking_session

    # -- steps ---------------------------------------------------------------------------------

    def _register(self, session: Session, *before: Delete) -> None:
        if session is not self._session:
            return
        data = encode_broker(replace(self._znode, timestamp_ms=self._clock.now_ms()))
        made: list[Operation] = [*before, Create(self._path, data, ephemeral=True)]
        session.multi(made).then(lambda outcome: self._on_created(session, outcome))

    def _on_created(self, session: Session, outcome: tuple[Result, ...] | ZkError) -> None:
        if session is not self._session:
            return
        if isinstance(outcome, ZkError) and outcome.code not in READ_AGAIN_AFTER:
            self._failed(session, outcome)
            return
        # Also after a success: the epoch is the node's czxid.
        session.get(self._path).then(lambda found: self._on_read(session, found))

    def _on_read(self, session: Session, found: ZnodeData | ZkError) -> None:
        if session is not self._session:
            return
        if isinstance(found, ZkError):
            if found.code is ZkCode.NO_NODE:
                self._register(session)
            else:
                self._failed(session, found)
            return
        stat = found.stat
        if stat.ephemeral_owner == session.id:
            self._blocking_session = 0
            log.info("broker %d registered with broker epoch %d", self._broker_id, stat.czxid)
            self._on_epoch(stat.czxid)
            self.registered.complete(None)
        elif stat.ephemeral_owner in self._own_sessions:
            log.info(
                "%s is owned by a previous session of this broker; creating it again", self._path
            )
            self._register(session, Delete(self._path, stat.version))
        else:
            self._wait_for(session, stat.ephemeral_owner)

    def _wait_for(self, session: Session, owner: int) -> None:
        """Wait until another broker's node is deleted, at the latest with its session."""
        if self._blocking_session != owner:
            self._blocking_session = owner
            log.warning(
                "%s is owned by session 0x%x; waiting until that session ends", self._path, owner
            )
        session.exists(self._path, partial(self._on_change, session)).then(
            partial(self._on_exists, session)
        )

    def _on_exists(self, session: Session, found: Stat | ZkError | None) -> None:
        if found is None:
            self._register(session)
        elif isinstance(found, ZkError) and session is self._session:
            self._failed(session, found)  # No watch is set.

    def _on_change(self, session: Session, event: Event) -> None:
        self._register(session)

    def _failed(self, session: Session, error: ZkError) -> None:
        if error.code is ZkCode.SESSION_EXPIRED:
            return  # The next session registers.
        log.warning("broker %d: registration failed: %s; retrying", self._broker_id, error)
        self._cancel()
        due_ms = self._clock.monotonic_ms() + RETRY_MS
        self._timer = self._timers.at(due_ms, lambda: self._register(session))

    def _delete_own_znode(self, session: Session) -> Steps[None]:
        # Read after requests under way, so that a node that is being created is seen as well.
        found = yield from wait(session.get(self._path))
        if isinstance(found, ZnodeData) and found.stat.ephemeral_owner == session.id:
            yield from wait(session.multi((Delete(self._path),)))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


READ_AGAIN_AFTER = frozenset(
    {ZkCode.NODE_EXISTS, ZkCode.NO_NODE, ZkCode.BAD_VERSION, ZkCode.CONNECTION_LOSS}
)
"""Errors after which the node is read: another broker's node, or a lost response."""
