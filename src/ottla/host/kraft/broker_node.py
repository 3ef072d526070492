"""The broker role of a node: registration, start, controlled shutdown.

The metadata is replayed from the first moment on; it is applied to the broker once its logs are
loaded, and then completely and in order.
"""

import logging
from collections.abc import Callable, Iterable

from ottla.base.errors import ApiError
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import Pending
from ottla.base.turns import Turns
from ottla.broker.core import Broker
from ottla.host.broker_links import BrokerLinks
from ottla.host.cleaner import Cleaner
from ottla.host.kraft.broker_lifecycle import BrokerLifecycle, BrokerState, LifecycleConfig
from ottla.host.kraft.controller_links import ControllerLinks
from ottla.host.kraft.controller_node import ControllerNode
from ottla.host.kraft.metadata_follower import LocalFollower, MetadataFollower
from ottla.host.kraft.quorum_snapshots import SnapshotLimits
from ottla.host.log_creation import LogCreation
from ottla.host.metadata_publication import MetadataErrors
from ottla.host.node_dirs import NodeDirs, StartError
from ottla.host.node_ports import NodePorts
from ottla.host.remote_storage import opened_store, resize_pools
from ottla.host.steps import Steps, wait
from ottla.metadata.brokers import Endpoint
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.features import SUPPORTED
from ottla.metadata.image import EMPTY, ClusterImage
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


class BrokerNode:
    """One broker with its connections to the controller."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        cluster_id: str,
        listeners: Iterable[Endpoint],
        node_dirs: NodeDirs,
        controller: ControllerNode | None,
        ports: NodePorts,
        turns: Turns,
        on_failure: Callable[[str], None],
    ) -> None:
        self._config = config
        self._on_failure = on_failure
        self._node_dirs = node_dirs
        self._ports = ports
        self.broker: Broker | None = None
        self._log_creation = LogCreation(turns, lambda: self.broker)
        self._links = ControllerLinks(
            ports.connect,
            config,
            ports.clock,
            ports.timers,
            caught_up=lambda offset: self._follower.caught_up_to(offset),
        )
        self._peers = BrokerLinks(ports.connect, config, lambda: self.image)
        self._controller_changed: Callable[[], None] = lambda: None
        self._follower = self._make_follower(cluster_id, controller, ports)
        self._lifecycle = BrokerLifecycle(
            self._lifecycle_config(cluster_id, Uuid(ports.dice.random_bytes(16)), listeners),
            self._links.heartbeats,
            self._follower,
            clock=ports.clock,
            timers=ports.timers,
            on_epoch=self._epoch_changed,
            registration=lambda: self.image.brokers.get(config.node_id),
        )
        self._controller_changed = self._lifecycle.controller_changed
        self._cleaner = Cleaner(
            ports.cleanings, node_dirs.log_dirs, ports.dice, lambda: config.dynamic(self.image)
        )
        self._store = opened_store(config, ports)
        self._make_broker: Callable[[], Broker] = lambda: Broker(
            config=config,
            cluster_id=cluster_id,
            clock=ports.clock,
            dice=ports.dice,
            workers=ports.workers,
            timers=ports.timers,
            log_dirs=node_dirs.log_dirs,
            forwarder=self._links.forwarder,
            peers=self._peers,
            store=self._store,
        )

    def _make_follower(
        self, cluster_id: str, controller: ControllerNode | None, ports: NodePorts
    ) -> LocalFollower | MetadataFollower:
        if controller is not None:
            controller.log.on_leader(self._on_controller_change)
            return LocalFollower(
                controller.runtime,
                controller.log,
                on_image=self._changed,
                clock=ports.clock,
                timers=ports.timers,
                prepare=self._log_creation.prepare,
            )
        return MetadataFollower(
            self._links.sender_to,
            node_id=self._config.node_id,
            cluster_id=cluster_id,
            voters=tuple(voter.id for voter in self._config.quorum_voters),
            storage=self._node_dirs.quorum,
            clock=ports.clock,
            timers=ports.timers,
            workers=ports.workers,
            on_image=self._changed,
            on_failure=self._on_failure,
            on_leader=self._on_controller_change,
            snapshot_limits=SnapshotLimits.of(self._config.values),
            prepare=self._log_creation.prepare,
        )

    def _lifecycle_config(
        self, cluster_id: str, incarnation_id: Uuid, listeners: Iterable[Endpoint]
    ) -> LifecycleConfig:
        config = self._config
        return LifecycleConfig(
            broker_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            listeners=tuple(
                (each.name, each.host, each.port, each.security_protocol) for each in listeners
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
        """Return the newest committed metadata."""
        return self._follower.image

    @property
    def metadata_errors(self) -> MetadataErrors:
        """Return how often metadata could not be applied, or loaded."""
        return self._follower.errors

    @property
    def state(self) -> BrokerState:
        """Return the state of the broker."""
        return self._lifecycle.state

    @property
    def raft(self) -> RaftNode:
        """Return this node's member or observer of the metadata quorum."""
        return self._follower.raft

    # -- start ---------------------------------------------------------------------------------

    def load(self) -> Steps[None]:
        """Register, replay the metadata up to there, then load the logs. Raises StartError."""
        self._follower.start()
        yield from self._await_metadata()
        self._lifecycle.start()
        registered = yield from wait(self._lifecycle.milestones.registered)
        if isinstance(registered, ApiError):
            raise StartError(f"no registration with the controller: {registered.message}")
        yield self._lifecycle.milestones.caught_up
        image = self.image
        yield from self._node_dirs.load_logs(image, self._config)
        yield from self._check_logs()
        broker = self._make_broker()
        broker.replicas.on_log_dir_failed = self._on_log_dir_failure
        broker.epoch = self._lifecycle.epoch
        broker.replicas.on_all_log_dirs_failed = lambda: self._on_failure(
            "all log directories have failed"
        )
        broker.apply(delta_between(EMPTY, image))
        if self.image is not image:
            # Changes that were committed while the logs were loading.
            broker.apply(delta_between(image, self.image))
        self.broker = broker
        if not self._node_dirs.log_dirs.online_dirs:
            raise StartError("all log directories have failed")
        self._on_log_dir_failure()

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
        if not (yield self._up_to_date(limit_ms)):
            raise StartError(
                "no controller has confirmed this broker's metadata within"
                f" initial.broker.registration.timeout.ms={limit_ms}"
            )

    def _up_to_date(self, limit_ms: int) -> Pending[bool]:
        """Return whether the image became up to date within `limit_ms`."""
        up_to_date: Pending[bool] = Pending()
        raft, ports = self._follower.raft, self._ports

        def end(_: None) -> None:
            timer.cancel()
            up_to_date.complete(True)

        def give_up() -> None:
            up_to_date.complete(False)

        timer = ports.timers.at(ports.clock.monotonic_ms() + limit_ms, give_up)
        self._follower.until(lambda image: is_up_to_date(image, raft)).then(end)
        return up_to_date

    def _check_logs(self) -> Steps[None]:
        """Register as unclean, where recovery found less than was committed.

        The first registration claimed that nothing was lost: damage is found only when logs are
        read, and which logs are this broker's is known only once it is registered.
        """
        lacking = self._node_dirs.log_dirs.below_high_watermark
        if not lacking:
            return
        if self._lifecycle.config.previous_broker_epoch < 0:
            # It is registered as unclean: nothing was lost since that registration.
            self._epoch_changed(self._lifecycle.epoch)
            return
        log.warning(
            "%d logs end below their checkpointed high watermark, the first is %s; registering "
            "as after an unclean shutdown",
            len(lacking),
            lacking[0],
        )
        incarnation_id = Uuid(self._ports.dice.random_bytes(16))
        yield self._lifecycle.register_as_unclean(incarnation_id)

    def serve(self) -> Steps[None]:
        """Ask to be unfenced; return once the broker is, and its image has it."""
        assert self.broker is not None
        self.broker.start_serving()
        self._cleaner.start()
        self._lifecycle.ready_to_unfence()
        yield self._lifecycle.milestones.unfenced
        node_id = self._config.node_id
        yield self._follower.until(lambda image: image.is_active(node_id))

    def _on_controller_change(self, leader_id: int, epoch: int) -> None:
        self._links.controller_changed(leader_id, epoch)
        if leader_id != NO_LEADER:
            self._controller_changed()

    def _changed(self, delta: ClusterDelta) -> None:
        if delta.changed_brokers:
            self._peers.brokers_changed()
        if delta.changed_configs:
            resize_pools(self._store, self._config.dynamic(delta.image))
        if self.broker is not None:
            self.broker.apply(delta)

    def _on_log_dir_failure(self) -> None:
        """Report failed log directories to the controller, so that no replica in them leads."""
        registered = self._lifecycle.config.log_dirs
        for directory in self._node_dirs.log_dirs.offline_dirs:
            if directory.directory_id in registered:
                self._lifecycle.propagate_dir_failure(directory.directory_id)

    def _epoch_changed(self, epoch: int) -> None:
        self._node_dirs.log_dirs.note_running(epoch, self._ports.boot_id)
        if self.broker is not None:
            self.broker.epoch = epoch

    # -- stop ----------------------------------------------------------------------------------

    def controlled_shutdown(self) -> Steps[None]:
        """Have the controller move leadership away and fence this broker.

        With controlled.shutdown.enable=false the broker stops as if the process had died.
        """
        if self._config["controlled.shutdown.enable"]:
            yield self._lifecycle.begin_controlled_shutdown()

    def close(self) -> Steps[None]:
        """Flush and close the logs, close the connections to the controller."""
        self._cleaner.close()
        self._lifecycle.close()
        self._follower.stop()
        self._log_creation.stop()
        self._links.close()
        stopped = None if self.broker is None else self.broker.shutdown()
        self._peers.close()
        if stopped is not None:
            yield stopped
        if self._store is not None:
            self._store.close()


def is_up_to_date(image: ClusterImage, raft: RaftNode) -> bool:
    """Tell whether an image has all that was committed at the last response of the quorum's leader.

    A new leader may not know yet how far its predecessor had committed: its high watermark counts
    once a record of its own epoch is committed, which commits all before it.
    """
    committed = raft.leader_high_watermark
    offset, epoch = image.position
    return committed is not None and offset + 1 >= committed and epoch == raft.epoch
