"""What ZooKeeper mode provides to a broker: controllers' requests, and a registration.

It loads its logs by the metadata in ZooKeeper, leads nothing before a request of the controller,
and serves clients once the controller lists it among the live brokers. An expired session does not
stop it: it continues with the metadata that it has and registers again, which the controller treats
as a failure and a restart.

Source: KafkaServer.startup, Kafka 3.9.
"""

import logging
from collections.abc import Callable
from functools import partial

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.zookeeper import Create, ZkCode, ZkError
from ottla.broker.core import Broker
from ottla.broker.zookeeper.zk_metadata import without_own_leadership
from ottla.broker.zookeeper.zk_replica_drops import (
    drop_topics,
    note_unconfirmed,
    unconfirmed_at_start,
)
from ottla.host.kraft.broker_lifecycle import BrokerState
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.metadata_publication import MetadataErrors
from ottla.host.node_ports import Address, Endpoints, NodePorts
from ottla.host.steps import Steps, drive, within
from ottla.host.zookeeper.config_follower import ConfigFollower
from ottla.host.zookeeper.controlled_shutdown import request_controlled_shutdown
from ottla.host.zookeeper.controller_broker_links import ControllerBrokerLinks
from ottla.host.zookeeper.election import ControllerElection, SessionHolder
from ottla.host.zookeeper.node_dirs import ZooKeeperNodeDirs
from ottla.host.zookeeper.registration import Registration
from ottla.host.zookeeper.start_reading import read_deleted, read_image, without_deleted
from ottla.host.zookeeper.zk_metadata_image import ZkMetadataImage
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.znodes.notifications import encode_log_dir_event
from ottla.metadata.znodes.paths import LOG_DIR_EVENT

log = logging.getLogger(__name__)

SESSION_EXPIRY_SLACK_MS = 2_000
"""How much longer than a session the znode of another broker with this id may exist: ZooKeeper
expires sessions in ticks."""


class ZooKeeperBroker:
    """See `ottla.host.node_mode.BrokerMode`."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        endpoints: Endpoints,
        node_dirs: ZooKeeperNodeDirs,
        keeper: SessionHolder,
        ports: NodePorts,
    ) -> None:
        self.on_change: Callable[[ClusterDelta], None] = lambda delta: None
        self.registered: Pending[None] = Pending()
        self.serving: Pending[None] = Pending()
        self._config = config
        self._endpoints = endpoints
        self._node_dirs = node_dirs
        self._keeper = keeper
        self._ports = ports
        self._broker: Broker | None = None
        self.epoch = -1
        """The czxid of its registration; -1 = not registered yet."""
        self.state = BrokerState.STARTING
        self.zk_metadata = ZkMetadataImage(
            config.node_id, on_image=self._changed, clock=ports.clock, timers=ports.timers
        )
        self.forwarder = ControllerBrokerLinks(
            ports.connect, config, lambda: self.image, self._own_address, ports.clock, ports.timers
        )
        self._configs = ConfigFollower(self.zk_metadata, ports.clock)
        self.zk_metadata.read_configs = self._configs.read_configs
        self.zk_metadata.check_missing_topics = self._check_missing_topics
        self._registration = Registration(
            config.node_id,
            endpoints,
            rack=config.rack,
            clock=ports.clock,
            timers=ports.timers,
            store_session=node_dirs.store_session,
            previous_sessions=node_dirs.previous_sessions,
            on_epoch=self._epoch_changed,
        )

    @property
    def image(self) -> ClusterImage:
        return self.zk_metadata.image

    @property
    def metadata_errors(self) -> MetadataErrors:
        return self.zk_metadata.errors

    def _own_address(self) -> Address | None:
        name = self._config.inter_broker_listener_name
        found = [(each.host, each.port) for each in self._endpoints if each.name == name]
        return found[0] if found else None

    # -- start ---------------------------------------------------------------------------------

    def read_metadata(self) -> Steps[ClusterImage]:
        """Read the metadata in ZooKeeper. Raises: StartError."""
        self.state = BrokerState.RECOVERY
        session = self._keeper.session
        try:
            if session is None:
                raise ZkError(ZkCode.SESSION_EXPIRED)
            return (yield from read_image(session, self._config.node_id))
        except ZkError as error:
            raise StartError(f"the cluster's metadata cannot be read: {error}") from None

    def logs_loaded(self, image: ClusterImage) -> Steps[ClusterImage]:
        """Begin with the metadata without topics being deleted, leading nothing."""
        yield from ()
        node_id = self._config.node_id
        stored_image, image = image, without_deleted(image)
        self.zk_metadata.begin(image)
        note_unconfirmed(
            self.zk_metadata.facts,
            unconfirmed_at_start(stored_image, image, node_id, self._node_dirs.log_dirs),
        )
        self.zk_metadata.apply(without_own_leadership(image, node_id))
        return self.image

    def broker_loaded(self, broker: Broker) -> None:
        """Pass on new epochs from now on."""
        self._broker = broker

    def register(self, election: ControllerElection) -> Steps[None]:
        """Register; the controller sends requests from now on. Raises: StartError."""
        election.on_controller(self._on_controller_change)
        session = self._keeper.session
        for session_started in (self._configs.session_started, self._registration.session_started):
            self._keeper.on_new(session_started)
            if session is not None:
                session_started(session)
        limit_ms = self._config["zookeeper.session.timeout.ms"] + SESSION_EXPIRY_SLACK_MS
        clock, timers = self._ports.clock, self._ports.timers
        yield within(limit_ms, self._registration.registered, clock, timers)
        if self._registration.blocking_session:
            raise StartError(
                f"broker.id={self._config.node_id}: a broker of this id is registered already, and"
                f" its session (0x{self._registration.blocking_session:x}) has not ended"
            )
        yield self._registration.registered
        self.registered.complete(None)

    def serve(self) -> Steps[None]:
        """Return once the controller has listed this broker as live."""
        yield self.zk_metadata.listed_as_live
        self.state = BrokerState.RUNNING
        self.serving.complete(None)

    # -- events --------------------------------------------------------------------------------

    def _epoch_changed(self, epoch: int) -> None:
        self.epoch = self.zk_metadata.facts.broker_epoch = epoch
        if self._broker is not None:
            self._broker.epoch = epoch

    def _on_controller_change(self, controller_id: int, epoch: int) -> None:
        self.forwarder.controller_changed(controller_id, epoch)

    def _changed(self, delta: ClusterDelta) -> None:
        if delta.changed_brokers:
            self.forwarder.brokers_changed()
        self.on_change(delta)

    def _check_missing_topics(self) -> None:
        """Drop topics that were deleted while this broker was down, without a request to it.

        It had no replica of the topic, or a reassignment had removed its replica and the deletion
        did not wait for it. An entry in the deletion ledger is proof of the deletion; that the
        controller does not list the topic is none.
        """
        session, missing_topics = self._keeper.session, self.zk_metadata.facts.missing_topics
        if session is not None:
            drive(
                read_deleted(session, missing_topics),
                partial(self._drop_deleted_topics, missing_topics),
            )

    def _drop_deleted_topics(
        self, missing_topics: frozenset[Uuid], found: frozenset[Uuid] | Exception
    ) -> None:
        if isinstance(found, Exception):
            # After a new session the controller sends everything again, and this is checked again.
            log.warning(
                "reading the deletion ledger failed: %s; retrying after the next full "
                "metadata update",
                found,
            )
            return
        self.zk_metadata.facts.missing_topics -= missing_topics
        deleted = [each for each in sorted(found) if self.image.topics.by_id(each) is not None]
        if deleted and self._broker is not None:
            log.info(
                "%d topics were deleted while this broker was down; deleting their replicas",
                len(deleted),
            )
            drop_topics(self._broker, self.zk_metadata, deleted)
            if self.zk_metadata.facts.inconsistent_ids:
                # For new topics of these names: the controller sends them again only on a change.
                self._request_log_dir_event()

    def log_dir_failed(self) -> None:
        """Have the controller send LeaderAndIsr: the response names the offline replicas."""
        self._request_log_dir_event()

    def _request_log_dir_event(self) -> None:
        event = Create(LOG_DIR_EVENT, encode_log_dir_event(self._config.node_id), sequential=True)
        session = self._keeper.session

        def written(outcome: object) -> None:
            # A duplicate is harmless; after a new session everything is sent anyway.
            if isinstance(outcome, ZkError) and outcome.code is ZkCode.CONNECTION_LOSS:
                assert session is not None
                session.multi((event,)).then(written)
            elif isinstance(outcome, ZkError):
                log.warning("could not write the log_dir_event notification: %s", outcome)

        if session is not None:
            session.multi((event,)).then(written)

    # -- stop ----------------------------------------------------------------------------------

    def controlled_shutdown(self) -> Steps[None]:
        """Have the controller move leadership away."""
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            yield from request_controlled_shutdown(
                self._config,
                self.forwarder,
                lambda: self.epoch,
                clock=self._ports.clock,
                timers=self._ports.timers,
            )

    def unregister(self) -> Pending[None]:
        """Delete the registration, so that no controller elects this broker as a leader."""
        self.state = BrokerState.SHUTTING_DOWN
        return self._registration.unregister()

    def close(self) -> None:
        """Take no more metadata, close the connections. The keeper closes the session."""
        self.zk_metadata.close()
        self._registration.close()
        self._configs.close()
        self.forwarder.close()
