"""The lifecycle of a broker: registration, catching up, unfencing, controlled shutdown.

The order matters. A broker registers first; the response has its epoch, which is the offset of its
registration. It loads its logs only once its image has reached that offset, so that a topic that
was deleted and created again while it was down cannot be mistaken for the old one. Then it asks to
be unfenced. Where the logs lack committed records, it first registers again as a broker that may
have lost data.

Each registration request names the registration of this id that the broker's image has at that
moment: a request of a dead process may reach the controller late, between two attempts of this one.

Source: BrokerLifecycleManager, BrokerState; KIP-631, KIP-841 (controlled shutdown), KIP-858,
KIP-966 (clean-shutdown epochs).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.metadata.brokers import BrokerImage
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

log = logging.getLogger(__name__)

RETRY_MS = 100
"""The backoff after a first failure; it doubles up to the session timeout."""

REGISTRATION_RETRY_MAX_MS = 1_000
"""The longest backoff of registrations. Kafka's is up to the session timeout; but a restarted
broker waits for the session of its killed process already, and should not wait much longer."""

STARTUP_HEARTBEAT_MS = 10
"""The heartbeat interval while the start depends on the next response."""

SHUTDOWN_POLL_MS = 50
"""The wait after the first heartbeat of a controlled shutdown; it doubles up to the interval. A
broker that leads few partitions is let go at once, one with many when the new leaders are known."""

NO_BROKER_EPOCH = -1


class BrokerState(IntEnum):
    """The state of the broker, with the values of Kafka's metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


S = BrokerState
NEXT: dict[BrokerState, frozenset[BrokerState]] = {
    S.NOT_RUNNING: frozenset({S.STARTING, S.SHUTTING_DOWN}),
    S.STARTING: frozenset({S.RECOVERY, S.SHUTTING_DOWN}),
    S.RECOVERY: frozenset({S.RUNNING, S.SHUTTING_DOWN}),
    S.RUNNING: frozenset({S.PENDING_CONTROLLED_SHUTDOWN, S.SHUTTING_DOWN}),
    S.PENDING_CONTROLLED_SHUTDOWN: frozenset({S.SHUTTING_DOWN}),
    S.SHUTTING_DOWN: frozenset(),
}
assert set(NEXT) == set(BrokerState)


class ControllerCaller(Protocol):
    """What is needed of a `Forwarder`."""

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send a request to the controller."""
        ...


class Follower(Protocol):
    """What is needed of a metadata follower."""

    @property
    def offset(self) -> int:
        """Return the offset of the last record in the image."""
        ...

    def caught_up_to(self, offset: int) -> Pending[None]:
        """Return a promise kept once the image holds the record at `offset`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    """What the broker registers, and its timeouts.

    Fields: `incarnation_id`: fresh for each start of the process.
            `listeners`: name, host, port, security protocol; `features`: name, min, max version.
            `previous_broker_epoch`: the broker epoch since which the log directories have lost
            nothing, as their files say; -1 = something may have been lost. After a registration:
            what the last one sent.
            `shutdown_response_timeout_ms`: a controlled shutdown ends after this long without a
            response; longer than an election of the quorum takes.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: tuple[tuple[str, str, int, int], ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None = None
    log_dirs: tuple[Uuid, ...] = ()
    previous_broker_epoch: int = NO_BROKER_EPOCH
    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 60_000
    shutdown_timeout_ms: int = 5 * 60_000
    shutdown_response_timeout_ms: int = 5_000


@dataclass(slots=True)
class Milestones:
    """Promises of a start and of a shutdown.

    Fields: `registered`: the epoch of the first registration, or the error that ended it.
            `caught_up`: this broker's image holds its registration: logs may load.
            `unfenced`: the broker may serve.
            `controlled_shutdown`: the controller has granted it, or it has timed out.
    """

    registered: Pending[int | ApiError] = field(default_factory=Pending)
    caught_up: Pending[None] = field(default_factory=Pending)
    unfenced: Pending[None] = field(default_factory=Pending)
    controlled_shutdown: Pending[None] = field(default_factory=Pending)


class BrokerLifecycle:
    """One process of a broker. All runs on the loop, with one request in flight.

    `on_epoch` is called with each new broker epoch: of the first registration, and of those after
    the controller no longer knew this broker.
    """

    def __init__(
        self,
        config: LifecycleConfig,
        caller: ControllerCaller,
        follower: Follower,
        *,
        clock: Clock,
        timers: Timers,
        on_epoch: Callable[[int], None] = lambda epoch: None,
        registration: Callable[[], BrokerImage | None] = lambda: None,
    ) -> None:
        """`registration`: returns the registration of this broker's id in its image."""
        self.config = config
        self.state = BrokerState.NOT_RUNNING
        self.epoch = NO_BROKER_EPOCH
        self.milestones = Milestones()
        self._caller = caller
        self._follower = follower
        self._clock = clock
        self._timers = timers
        self._on_epoch = on_epoch
        self._registration_of_image = registration
        self._lossless_since = config.previous_broker_epoch
        self._reregistered: Pending[None] = Pending()
        self._registered = False
        self._ready = False
        self._in_flight = False
        self._send_again_at_once = False
        self._failures = 0
        self._offline_dirs: set[Uuid] = set()
        self._shutdown_polls = 0
        self._timer: Timer | None = None
        self._response_timer: Timer | None = None

    # -- public --------------------------------------------------------------------------------

    def start(self) -> None:
        """Register, then send heartbeats."""
        self._become(BrokerState.STARTING)
        deadline_ms = self._clock.monotonic_ms() + self.config.registration_timeout_ms
        self._timers.at(deadline_ms, self._registration_timed_out)
        self._communicate()

    def register_as_unclean(self, incarnation_id: Uuid) -> Pending[None]:
        """Register again, as another process that may have lost data.

        For a start whose logs turn out to lack committed records. Kept when the image has the new
        registration: then no partition relies on the missing records.
        """
        assert not self._ready
        self.config = replace(self.config, incarnation_id=incarnation_id)
        self._lossless_since = NO_BROKER_EPOCH
        self._registered = False
        self._reregistered = Pending()
        self._communicate_in(0)
        return self._reregistered

    def ready_to_unfence(self) -> None:
        """Ask to be unfenced: logs are loaded, listeners are bound."""
        self._ready = True
        self._communicate_in(0)

    def propagate_dir_failure(self, directory_id: Uuid) -> None:
        """Report a log directory that went offline to the controller."""
        self._offline_dirs.add(directory_id)
        if self._registered:
            self._communicate_in(0)

    def begin_controlled_shutdown(self) -> Pending[None]:
        """Ask the controller to move leadership away; kept when it has, or at a timeout."""
        if self.state is BrokerState.RUNNING:
            self._become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            deadline_ms = self._clock.monotonic_ms() + self.config.shutdown_timeout_ms
            self._timers.at(deadline_ms, self._shutdown_timed_out)
            self._restart_response_timer()
            self._failures = 0
            self._communicate_in(0)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.close()
        return self.milestones.controlled_shutdown

    def controller_changed(self) -> None:
        """Retry at the new controller at once: the backoff was for one that did not answer."""
        if self._failures:
            self._failures = 0
            self._communicate_in(0)

    def close(self) -> None:
        """Send nothing any more."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        self._become(BrokerState.SHUTTING_DOWN)
        for timer in (self._timer, self._response_timer):
            if timer is not None:
                timer.cancel()
        self.milestones.controlled_shutdown.complete(None)

    def _become(self, state: BrokerState) -> None:
        assert state in NEXT[self.state], f"{self.state.name} to {state.name}"
        log.info("broker %d: state %s -> %s", self.config.broker_id, self.state.name, state.name)
        self.state = state

    # -- communication -------------------------------------------------------------------------

    def _communicate_in(self, delay_ms: int) -> None:
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return
        if self._in_flight:
            self._send_again_at_once |= delay_ms == 0
            return
        if self._send_again_at_once:
            self._send_again_at_once = False
            delay_ms = 0
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.at(self._clock.monotonic_ms() + delay_ms, self._communicate)

    def _communicate(self) -> None:
        if self._in_flight or self.state is BrokerState.SHUTTING_DOWN:
            return
        self._in_flight = True
        timeout_ms = self.config.session_timeout_ms // 2
        if self._registered:
            request: Any = self._heartbeat()
            handler: Callable[[Any], None] = self._on_heartbeat_response
        else:
            request = self._registration()
            handler = partial(self._on_registration_response, self.config.incarnation_id)
        self._caller.call(request, timeout_ms=timeout_ms).then(
            lambda response: self._on_response(response, handler)
        )

    def _on_response(self, response: Any, handler: Callable[[Any], None]) -> None:
        self._in_flight = False
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        if isinstance(response, ApiError):
            log.info(
                "broker %d: request to the controller failed: %s; retrying",
                self.config.broker_id,
                response,
            )
            self._failed()
            return
        handler(response)

    def _failed(self) -> None:
        longest_ms = (
            self.config.session_timeout_ms if self._registered else REGISTRATION_RETRY_MAX_MS
        )
        delay_ms = min(RETRY_MS << min(self._failures, 16), longest_ms)
        self._failures += 1
        self._send_again_at_once = False  # Never at once after a failure.
        self._communicate_in(delay_ms)

    # -- registration --------------------------------------------------------------------------

    def _previous_epochs(self) -> tuple[int, int]:
        """Return the epoch since which nothing was lost, and the registration that this replaces.

        A registration of this id by another process with one of these log directories is of a
        previous process of this broker: only one process can hold them. If it has the same log
        directories, they were in use since the epoch was stored in them, and nothing was lost.
        """
        previous = self._registration_of_image()
        if previous is None or previous.incarnation_id == self.config.incarnation_id:
            return self._lossless_since, NO_BROKER_EPOCH
        own, its = set(self.config.log_dirs), set(previous.log_dirs)
        lossless = self._lossless_since
        if own == its and 0 <= lossless < previous.epoch:
            lossless = previous.epoch
        return lossless, previous.epoch if own & its else NO_BROKER_EPOCH

    def _registration(self) -> BrokerRegistrationRequest:
        previous_epoch, superseded_epoch = self._previous_epochs()
        self.config = config = replace(self.config, previous_broker_epoch=previous_epoch)
        return BrokerRegistrationRequest(
            broker_id=config.broker_id,
            cluster_id=config.cluster_id,
            incarnation_id=config.incarnation_id,
            listeners=tuple(
                Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in config.listeners
            ),
            features=tuple(
                Feature(name=name, min_supported_version=least, max_supported_version=most)
                for name, least, most in config.features
            ),
            rack=config.rack,
            log_dirs=tuple(sorted(config.log_dirs)),
            previous_broker_epoch=previous_epoch,
            superseded_broker_epoch=superseded_epoch,
        )

    def _on_registration_response(
        self, incarnation_id: Uuid, response: BrokerRegistrationResponse
    ) -> None:
        if incarnation_id != self.config.incarnation_id:
            self._communicate_in(0)  # The response to a registration as the previous process.
            return
        if response.error_code:
            error = _error_of(response.error_code)
            log.warning(
                "broker %d: registration failed: %s; retrying", self.config.broker_id, error.name
            )
            self._failed()
            return
        self._failures = 0
        self._registered = True
        self.epoch = self._lossless_since = response.broker_epoch
        log.info("broker %d registered with broker epoch %d", self.config.broker_id, self.epoch)
        self._on_epoch(self.epoch)
        if self.milestones.registered.complete(self.epoch):
            self._follower.caught_up_to(self.epoch).then(self._caught_up)
        else:
            self._follower.caught_up_to(self.epoch).then(partial(_keep_promise, self._reregistered))
        self._communicate_in(0)

    def _caught_up(self, _none: None) -> None:
        self.milestones.caught_up.complete(None)

    def _registration_timed_out(self) -> None:
        if self.milestones.registered.done or self.state is BrokerState.SHUTTING_DOWN:
            return
        limit_ms = self.config.registration_timeout_ms
        reason = f"no registration with the controller within {limit_ms} ms"
        log.error("broker %d: %s", self.config.broker_id, reason)
        self.milestones.registered.complete(ApiError(Error.REQUEST_TIMED_OUT, reason))
        self.close()

    # -- heartbeats ----------------------------------------------------------------------------

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self.config.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._follower.offset,
            want_fence=not self._ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=tuple(sorted(self._offline_dirs)),
        )

    def _on_heartbeat_response(self, response: BrokerHeartbeatResponse) -> None:
        if response.error_code:
            self._on_heartbeat_error(_error_of(response.error_code))
            return
        self._failures = 0
        self._restart_response_timer()
        match self.state:
            case BrokerState.STARTING:
                if response.is_caught_up and self.milestones.caught_up.done:
                    self._become(BrokerState.RECOVERY)
                self._communicate_in(STARTUP_HEARTBEAT_MS)
            case BrokerState.RECOVERY:
                if not response.is_fenced:
                    self._become(BrokerState.RUNNING)
                    self.milestones.unfenced.complete(None)
                self._communicate_in(self._pause_ms(response, STARTUP_HEARTBEAT_MS))
            case BrokerState.RUNNING:
                self._communicate_in(self._pause_ms(response, RETRY_MS))
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                self._continue_shutdown(response)
            case _:
                raise AssertionError(f"a heartbeat response in state {self.state.name}")

    def _pause_ms(self, response: BrokerHeartbeatResponse, fenced_ms: int) -> int:
        # The controller unfences a broker that has caught up with its own registration; that takes
        # a commit, and waiting a whole interval for it would slow every start.
        if self._ready and response.is_fenced:
            return fenced_ms
        return self.config.heartbeat_interval_ms

    def _on_heartbeat_error(self, error: Error) -> None:
        if error in (Error.STALE_BROKER_EPOCH, Error.BROKER_ID_NOT_REGISTERED):
            log.warning(
                "broker %d: heartbeat with broker epoch %d failed: %s; registering again",
                self.config.broker_id,
                self.epoch,
                error.name,
            )
            self._registered = False
        else:
            log.warning(
                "broker %d: heartbeat failed: %s; retrying", self.config.broker_id, error.name
            )
        self._failed()

    def _continue_shutdown(self, response: BrokerHeartbeatResponse) -> None:
        if response.should_shut_down:
            log.info(
                "broker %d: controlled shutdown granted by the controller", self.config.broker_id
            )
            self.close()
            return
        wait_ms = SHUTDOWN_POLL_MS << min(self._shutdown_polls, 16)
        self._shutdown_polls += 1
        self._communicate_in(min(wait_ms, self.config.heartbeat_interval_ms))

    def _restart_response_timer(self) -> None:
        """Restart the timer that ends a controlled shutdown without responses."""
        if self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return
        if self._response_timer is not None:
            self._response_timer.cancel()
        end_ms = self._clock.monotonic_ms() + self.config.shutdown_response_timeout_ms
        self._response_timer = self._timers.at(end_ms, self._shutdown_timed_out)

    def _shutdown_timed_out(self) -> None:
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            log.warning(
                "broker %d: controlled shutdown timed out; shutting down anyway",
                self.config.broker_id,
            )
            self.close()


def _keep_promise(promise: Pending[None], _none: None) -> None:
    promise.complete(None)


def _error_of(code: int) -> Error:
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR
