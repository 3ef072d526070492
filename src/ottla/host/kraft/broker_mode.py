"""What KRaft mode provides to a broker: the metadata log, and a registration with heartbeats.

The metadata is replayed from the first moment on; it is applied to the broker once its logs are
loaded, and then completely and in order.
"""

import logging
from collections.abc import Callable

from ottla.base.errors import ApiError
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import completed
from ottla.base.turns import Turns
from ottla.broker.core import Broker
from ottla.broker.ports import Forwarder
from ottla.host.kraft.broker_lifecycle import BrokerLifecycle, BrokerState, LifecycleConfig
from ottla.host.kraft.controller_links import ControllerLinks
from ottla.host.kraft.controller_node import ControllerNode
from ottla.host.kraft.metadata_follower import LocalFollower, MetadataFollower
from ottla.host.kraft.quorum_snapshots import SnapshotLimits
from ottla.host.log_creation import LogCreation
from ottla.host.log_dirs.node_dirs import NodeDirs, StartError
from ottla.host.metadata_publication import MetadataErrors
from ottla.host.node_ports import Endpoints, NodePorts
from ottla.host.steps import Steps, wait, within
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.features import SUPPORTED
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.raft.node import RaftNode

log = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_MS = 5 * 60_000
"""How long a broker waits for its controlled shutdown, which the controller grants once all live
brokers know the new leaders: as in Kafka. Without responses the wait ends earlier."""

SHUTDOWN_RESPONSE_TIMEOUT_MS_MAX = 8_000
"""The longest wait for a response, whatever the quorum's timeouts are: a clean shutdown must end
before a service manager kills the process."""

ELECTION_SLACK_MS = 1_000
"""How much longer than the election timeouts an election of the quorum may take."""


class KRaftBroker:
    """See `ottla.host.node_mode.BrokerMode`."""

    zk_metadata = None

    def __init__(
        self,
        config: NodeConfig,
        *,
        endpoints: Endpoints,
        node_dirs: NodeDirs,
        controller: ControllerNode | None,
        ports: NodePorts,
        turns: Turns,
        on_failure: Callable[[str], None],
    ) -> None:
        self.on_change: Callable[[ClusterDelta], None] = lambda delta: None
        self.registered = self.serving = completed(None)
        self._config = config
        self._on_failure = on_failure
        self._node_dirs = node_dirs
        self._ports = ports
        self._broker: Broker | None = None
        self._log_creation = LogCreation(turns, lambda: self._broker)
        self._links = ControllerLinks(
            ports.connect,
            config,
            ports.clock,
            ports.timers,
            caught_up=lambda offset: self._follower.caught_up_to(offset),
        )
        self._controller_changed: Callable[[], None] = lambda: None
        self._follower = self._make_follower(controller)
        self.lifecycle = BrokerLifecycle(
            self._lifecycle_config(Uuid(ports.dice.random_bytes(16)), endpoints),
            self._links.heartbeats,
            self._follower,
            clock=ports.clock,
            timers=ports.timers,
            on_epoch=self._epoch_changed,
            registration=lambda: self.image.brokers.get(config.node_id),
        )
        self._controller_changed = self.lifecycle.controller_changed

    def _make_follower(self, controller: ControllerNode | None) -> LocalFollower | MetadataFollower:
        ports = self._ports
        if controller is not None:
            controller.log.on_leader(self._on_controller_change)
            return LocalFollower(
                controller.runtime,
                controller.log,
                on_image=lambda delta: self.on_change(delta),
                clock=ports.clock,
                timers=ports.timers,
                prepare=self._log_creation.prepare,
            )
        return MetadataFollower(
            self._links.sender_to,
            node_id=self._config.node_id,
            cluster_id=self._node_dirs.cluster_id,
            voters=tuple(voter.id for voter in self._config.quorum_voters),
            storage=self._node_dirs.quorum,
            clock=ports.clock,
            timers=ports.timers,
            workers=ports.workers,
            on_image=lambda delta: self.on_change(delta),
            on_failure=self._on_failure,
            on_leader=self._on_controller_change,
            snapshot_limits=SnapshotLimits.of(self._config.values),
            prepare=self._log_creation.prepare,
        )

    def _lifecycle_config(self, incarnation_id: Uuid, endpoints: Endpoints) -> LifecycleConfig:
        config = self._config
        return LifecycleConfig(
            broker_id=config.node_id,
            cluster_id=self._node_dirs.cluster_id,
            incarnation_id=incarnation_id,
            listeners=tuple(
                (each.name, each.host, each.port, each.security_protocol) for each in endpoints
            ),
            features=tuple((each.name, each.min_version, each.max_version) for each in SUPPORTED),
            rack=config.rack,
            log_dirs=self._node_dirs.directory_ids,
            previous_broker_epoch=self._node_dirs.previous_broker_epoch,
            heartbeat_interval_ms=config["broker.heartbeat.interval.ms"],
            session_timeout_ms=config["broker.session.timeout.ms"],
            registration_timeout_ms=config["initial.broker.registration.timeout.ms"],
            shutdown_timeout_ms=SHUTDOWN_TIMEOUT_MS,
            shutdown_response_timeout_ms=min(
                config["controller.quorum.fetch.timeout.ms"]
                + 2 * config["controller.quorum.election.timeout.ms"]
                + ELECTION_SLACK_MS,
                SHUTDOWN_RESPONSE_TIMEOUT_MS_MAX,
            ),
        )

    @property
    def image(self) -> ClusterImage:
        return self._follower.image

    @property
    def metadata_errors(self) -> MetadataErrors:
        return self._follower.errors

    @property
    def state(self) -> BrokerState:
        return self.lifecycle.state

    @property
    def raft(self) -> RaftNode:
        """Return this node's member or observer of the metadata quorum."""
        return self._follower.raft

    @property
    def forwarder(self) -> Forwarder:
        return self._links.forwarder

    @property
    def epoch(self) -> int:
        return self.lifecycle.epoch

    # -- start ---------------------------------------------------------------------------------

    def read_metadata(self) -> Steps[ClusterImage]:
        """Register, replay the metadata up to there. Raises: StartError."""
        self._follower.start()
        yield from self._await_metadata()
        self.lifecycle.start()
        registered = yield from wait(self.lifecycle.milestones.registered)
        if isinstance(registered, ApiError):
            raise StartError(f"no registration with the controller: {registered.message}")
        yield self.lifecycle.milestones.caught_up
        return self.image

    def broker_loaded(self, broker: Broker) -> None:
        """Create logs in advance, and pass on new epochs, from now on."""
        self._broker = broker
        self.log_dir_failed()

    def _await_metadata(self) -> Steps[None]:
        """Wait until the image is up to date, where a previous broker epoch was stored.

        A previous process that lost nothing may have registered and died before it stored the new
        epoch. Its registration counts like the stored one: the log directories that it named were
        used in this boot of the machine only, and by one process at a time. Without knowing it, the
        broker would register as unclean and be no longer eligible to lead, though it may be the
        only replica that has everything. Raises: StartError.
        """
        if self._node_dirs.previous_broker_epoch < 0:
            return
        limit_ms = self._config["initial.broker.registration.timeout.ms"]
        raft, ports = self._follower.raft, self._ports
        up_to_date = self._follower.until(lambda image: is_up_to_date(image, raft))
        if not (yield within(limit_ms, up_to_date, ports.clock, ports.timers)):
            raise StartError(
                "no controller has confirmed this broker's metadata within"
                f" initial.broker.registration.timeout.ms={limit_ms}"
            )

    def logs_loaded(self, image: ClusterImage) -> Steps[ClusterImage]:
        """Register as unclean, where recovery found less than was committed.

        The first registration claimed that nothing was lost: damage is found only when logs are
        read, and which logs are this broker's is known only once it is registered.
        """
        lacking = self._node_dirs.log_dirs.below_high_watermark
        if not lacking:
            return image
        if self.lifecycle.config.previous_broker_epoch < 0:
            # It is registered as unclean: nothing was lost since that registration.
            self._epoch_changed(self.lifecycle.epoch)
            return image
        log.warning(
            "%d logs end below their checkpointed high watermark, or may do so, the first is %s; "
            "registering as after an unclean shutdown",
            len(lacking),
            lacking[0],
        )
        incarnation_id = Uuid(self._ports.dice.random_bytes(16))
        yield self.lifecycle.register_as_unclean(incarnation_id)
        return image

    def serve(self) -> Steps[None]:
        """Ask to be unfenced; return once the broker is, and its image has it."""
        self.lifecycle.ready_to_unfence()
        yield self.lifecycle.milestones.unfenced
        node_id = self._config.node_id
        yield self._follower.until(lambda image: image.is_active(node_id))

    def _on_controller_change(self, leader_id: int, epoch: int) -> None:
        self._links.controller_changed(leader_id, epoch)
        if leader_id != NO_LEADER:
            self._controller_changed()

    def log_dir_failed(self) -> None:
        """Report failed log directories to the controller, so that no replica in them leads."""
        registered = self.lifecycle.config.log_dirs
        for directory in self._node_dirs.log_dirs.offline_dirs:
            if directory.directory_id in registered:
                self.lifecycle.propagate_dir_failure(directory.directory_id)

    def _epoch_changed(self, epoch: int) -> None:
        self._node_dirs.log_dirs.note_running(epoch, self._ports.boot_id)
        if self._broker is not None:
            self._broker.epoch = epoch

    # -- stop ----------------------------------------------------------------------------------

    def controlled_shutdown(self) -> Steps[None]:
        """Have the controller move leadership away and fence this broker."""
        yield self.lifecycle.begin_controlled_shutdown()

    def close(self) -> None:
        """Follow the metadata no more, close the connections to the controller."""
        self.lifecycle.close()
        self._follower.stop()
        self._log_creation.stop()
        self._links.close()


def is_up_to_date(image: ClusterImage, raft: RaftNode) -> bool:
    """Tell whether an image has all that was committed at the last response of the quorum's leader.

    A new leader may not know yet how far its predecessor had committed: its high watermark counts
    once a record of its own epoch is committed, which commits all before it.
    """
    committed = raft.leader_high_watermark
    offset, epoch = image.position
    return committed is not None and offset + 1 >= committed and epoch == raft.epoch
