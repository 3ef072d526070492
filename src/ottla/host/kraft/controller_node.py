"""The controller role of a KRaft node: metadata log, runtime, and periodic operations.

Sessions of brokers are soft state: while this controller is active, a timer checks when the session
of the stalest broker may have ended, and fences it. Other timers run unclean elections where they
are allowed, and the preferred leader rebalance. Topic deletions are driven by the deletion channel.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.timers import Timer, aligned
from ottla.broker.ports import Listeners
from ottla.controller.activation import first_records
from ottla.controller.brokers.brokers import fence_stalest
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import elect_after_failover
from ottla.controller.step import Decision, Step
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.controller.disabling import DisablingDriver
from ottla.host.controller.periodic_elections import PeriodicElections
from ottla.host.kraft.deletion_channel import DeletionChannel
from ottla.host.kraft.metadata_log import MetadataLog
from ottla.host.kraft.quorum_driver import Peers, QuorumLinks
from ottla.host.kraft.quorum_snapshots import SnapshotLimits
from ottla.host.kraft.quorum_storage import QuorumStorage
from ottla.host.node_ports import NodePorts
from ottla.metadata.brokers import Endpoint
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import Record
from ottla.raft.timing import QuorumTiming

log = logging.getLogger(__name__)

R = TypeVar("R")

RECHECK_MS = 1000
"""How often sessions are checked while none can end."""

PAUSE_MS_MIN = 500
"""A check that is this late means that the process was stopped or starved. Heartbeats that arrived
meanwhile were not read and have timed out; if that time counted, a cluster's only controller would
fence every live broker when it continues."""


class ControllerNode:
    """See `ottla.broker.api.base.ControllerPort`.

    Fields: `log`: the metadata log, `runtime`: the decisions over it. `deletions`, `disabling`:
            what brokers have to acknowledge.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        cluster_id: str,
        listeners: Iterable[Endpoint],
        storage: QuorumStorage,
        bootstrap: tuple[Record, ...],
        ports: NodePorts,
        on_failure: Callable[[str], None],
        peers: Peers | None = None,
    ) -> None:
        self.context = DecisionContext(
            config=config,
            cluster_id=cluster_id,
            dice=ports.dice,
            liveness=BrokerLiveness(config["broker.session.timeout.ms"]),
        )
        self.ready: Pending[None] = Pending()
        self.timed_out_heartbeats = 0
        clock = self._clock = ports.clock
        timers = self._timers = ports.timers
        self._timer: Timer | None = None
        self._next_check_ms = 0
        self._is_fencing = False
        self._elections = PeriodicElections(
            lambda: self.runtime, config, clock=clock, timers=timers
        )
        self._activations = 0
        self._is_active = False
        own_listeners: Listeners = tuple((each.name, each.host, each.port) for each in listeners)
        self._voters = tuple(voter.id for voter in config.quorum_voters) or (config.node_id,)
        self.log = MetadataLog(
            node_id=config.node_id,
            cluster_id=cluster_id,
            voters=self._voters,
            storage=storage,
            bootstrap=first_records(bootstrap, config),
            clock=clock,
            timers=timers,
            workers=ports.workers,
            on_elected=lambda epoch: self.runtime.begin(epoch).then(self._activated),
            on_resigned=self._resigned,
            on_failure=on_failure,
            idle_interval_ms=config["metadata.max.idle.interval.ms"],
            snapshot_limits=SnapshotLimits.of(config.values),
            nodes=lambda: self._other_listeners() | {config.node_id: own_listeners},
            links=QuorumLinks(peers=peers, dice=ports.dice, timing=_timing(config)),
        )
        self.runtime = ControllerRuntime(self.log, clock=clock, on_effect=self._elections.on_effect)
        self.deletions = DeletionChannel(
            self.runtime, config, connect=ports.connect, clock=clock, timers=timers
        )
        self.disabling = DisablingDriver(
            config, self.context.acknowledgements, connect=ports.connect, clock=clock, timers=timers
        )
        self.runtime.subscribe(self.disabling.changed)

    def _other_listeners(self) -> dict[int, Listeners]:
        """Return the listeners of the voters in this node's properties."""
        config = self.context.config
        name = config.controller_listeners[0].name
        return {voter.id: ((name, voter.host, voter.port),) for voter in config.quorum_voters}

    @property
    def image(self) -> ClusterImage:
        """Return the appended image."""
        return self.runtime.image

    @property
    def leader_id(self) -> int:
        """Return the active controller's id; -1 where none is known."""
        return self.log.leader_id

    @property
    def is_active(self) -> bool:
        """Tell whether it is the active controller.

        A new leader of several voters waits until a record of its epoch is committed: until then
        it may have no followers, and it has received no heartbeat.
        """
        return self.runtime.active and (len(self._voters) == 1 or self._is_active)

    def run(
        self, decide: Callable[[ClusterImage], Decision[R]], *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Decide now, if active; answer once committed."""
        if not self.is_active:
            refused: Pending[R | ApiError] = Pending()
            refused.complete(ApiError(Error.NOT_CONTROLLER))
            return refused
        return self.runtime.run(decide, deadline_ms=deadline_ms)

    def stop(self) -> None:
        """Resign and check no session any more."""
        self._stop_timers()
        self.deletions.end()
        self.disabling.end()
        self.log.stop()

    def _activated(self, failure: ApiError | None) -> None:
        """Take over: the first record of this epoch is committed."""
        if failure is not None:
            return
        config = self.context.config
        log.info("node %d is the active controller", config.node_id)
        self._activations += 1
        self._is_active = True
        # A single voter leads from its start on, before its own broker can have registered.
        is_first = config.is_broker and len(self._voters) == 1 and self._activations == 1
        own = (config.node_id,) if is_first else ()
        now_ms = self._next_check_ms = self._clock.monotonic_ms()
        self.context.liveness.activate(self.runtime.image, now_ms, dead=own)
        self.runtime.run_step(lambda image: elect_after_failover(image, config))
        self._check_sessions()
        self._elections.start()
        self.deletions.begin()
        self.disabling.begin(self.runtime)
        self.ready.complete(None)

    def _resigned(self) -> None:
        self.runtime.resign()
        log.info("node %d is no longer the active controller", self.context.config.node_id)
        self._is_active = False
        self._stop_timers()
        self.deletions.end()
        self.disabling.end()

    def _stop_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._elections.stop()

    def _check_sessions(self) -> None:
        """Fence the broker whose session is over; plan the next check, also while that is written.

        Without a check a pause meanwhile could not be distinguished from a slow write.
        """
        if not self.runtime.active:
            return
        now_ms = self._clock.monotonic_ms()
        self._extend_over_pause(now_ms)
        next_ms = aligned(now_ms, RECHECK_MS)
        due_ms = self.context.liveness.next_check_ms(self.runtime.image)
        is_over = due_ms is not None and due_ms <= now_ms
        if due_ms is not None and not is_over:
            next_ms = min(due_ms, next_ms)
        self._next_check_ms = next_ms
        self._timer = self._timers.move(self._timer, next_ms, self._check_sessions)
        if is_over and not self._is_fencing:
            # One broker per decision; the next check comes when this one is committed.
            self._is_fencing = True
            self.runtime.run_step(lambda image: self._fence(image, now_ms)).then(self._fenced)

    def _extend_over_pause(self, now_ms: int) -> None:
        """Extend sessions by the time in which this process was paused: it does not count."""
        paused_ms = now_ms - self._next_check_ms
        if paused_ms >= PAUSE_MS_MIN:
            log.warning(
                "controller was paused for %d ms; broker sessions are extended by that time",
                paused_ms,
            )
            self.context.liveness.extend_sessions(paused_ms, now_ms)

    def _fenced(self, failure: ApiError | None) -> None:
        self._is_fencing = False
        # A decision that failed would fail again now, and again within this call.
        if failure is None:
            self._check_sessions()

    def _fence(self, image: ClusterImage, now_ms: int) -> Step:
        decision = fence_stalest(image, self.context, now_ms)
        if decision.reply is not None:
            self.timed_out_heartbeats += 1
            log.warning("fencing broker %d: session timed out", decision.reply)
        return decision.step


def _timing(config: NodeConfig) -> QuorumTiming:
    return QuorumTiming(
        election_timeout_ms=config["controller.quorum.election.timeout.ms"],
        fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
        election_backoff_max_ms=config["controller.quorum.election.backoff.max.ms"],
    )
