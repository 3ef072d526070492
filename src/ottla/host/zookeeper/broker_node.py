"""The broker role of a node in ZooKeeper mode: start, registration, controlled shutdown.

It loads its logs by the metadata in ZooKeeper, leads nothing before a request of the controller,
and serves clients once the controller lists it among the live brokers. An expired session does not
stop it: it continues with the metadata that it has and registers again, which the controller treats
as a failure and a restart.

Source: KafkaServer.startup, Kafka 3.9.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.zookeeper import Create, Session, ZkCode, ZkError
from ottla.broker.core import Broker
from ottla.broker.zookeeper.zk_metadata import without_own_leadership
from ottla.broker.zookeeper.zk_replica_drops import (
    drop_topics,
    note_unconfirmed,
    unconfirmed_at_start,
)
from ottla.host.broker_links import BrokerLinks
from ottla.host.cleaner import Cleaner
from ottla.host.kraft.broker_lifecycle import BrokerState
from ottla.host.metadata_publication import MetadataErrors
from ottla.host.node_dirs import StartError
from ottla.host.node_ports import Address, NodePorts
from ottla.host.remote_storage import opened_store, resize_pools
from ottla.host.steps import Steps, drive
from ottla.host.zookeeper.config_follower import ConfigFollower
from ottla.host.zookeeper.controlled_shutdown import request_controlled_shutdown
from ottla.host.zookeeper.controller_broker_links import ControllerBrokerLinks
from ottla.host.zookeeper.node_dirs import ZooKeeperNodeDirs
from ottla.host.zookeeper.registration import Registration
from ottla.host.zookeeper.start_reading import read_deleted, read_image, without_deleted
from ottla.host.zookeeper.zk_metadata_image import ZkMetadataImage
from ottla.metadata.brokers import Endpoint
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.znodes.notifications import encode_log_dir_event
from ottla.metadata.znodes.paths import LOG_DIR_EVENT

log = logging.getLogger(__name__)

SESSION_EXPIRY_SLACK_MS = 2_000
"""How much longer than a session the znode of another broker with this id may exist: ZooKeeper
expires sessions in ticks."""


class SessionHolder(Protocol):
    """What is needed of `ottla.host.zookeeper.session_keeper.SessionKeeper`."""

    @property
    def session(self) -> Session | None:
        """Return the current session; None while there is none."""
        ...

    def on_new(self, listener: Callable[[Session], None]) -> None:
        """Call `listener` with each new session, once it is connected."""
        ...


class Election(Protocol):
    """What is needed of `ottla.host.zookeeper.election.ControllerElection`."""

    def on_controller(self, listener: Callable[[int, int], None]) -> None:
        """Call `listener` with controller and epoch, now and with each change; -1 = none."""
        ...


class ZooKeeperBrokerNode:
    """One broker with its connections to ZooKeeper and the controller. See `BrokerNode`."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        cluster_id: str,
        listeners: Iterable[Endpoint],
        node_dirs: ZooKeeperNodeDirs,
        keeper: SessionHolder,
        ports: NodePorts,
        on_failure: Callable[[str], None],
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._listeners = tuple(listeners)
        self._on_failure = on_failure
        self._node_dirs = node_dirs
        self._keeper = keeper
        self._ports = ports
        self.broker: Broker | None = None
        self.epoch = -1
        """The czxid of its registration; -1 = not registered yet."""
        self.state = BrokerState.STARTING
        self._zk_metadata = ZkMetadataImage(
            config.node_id, on_image=self._changed, clock=ports.clock, timers=ports.timers
        )
        self._links = ControllerBrokerLinks(
            ports.connect, config, lambda: self.image, self._own_address, ports.clock, ports.timers
        )
        self._peers = BrokerLinks(ports.connect, config, lambda: self.image)
        self._configs = ConfigFollower(self._zk_metadata, ports.clock)
        self._zk_metadata.read_configs = self._configs.read_configs
        self._zk_metadata.check_missing_topics = self._check_missing_topics
        self._cleaner = Cleaner(
            ports.cleanings, node_dirs.log_dirs, ports.dice, lambda: config.dynamic(self.image)
        )
        self._registration = Registration(
            config.node_id,
            self._listeners,
            rack=config.rack,
            clock=ports.clock,
            timers=ports.timers,
            store_session=node_dirs.store_session,
            previous_sessions=node_dirs.previous_sessions,
            on_epoch=self._epoch_changed,
        )
        self._store = opened_store(config, ports)

    @property
    def image(self) -> ClusterImage:
        """Return the newest metadata that the controller has sent."""
        return self._zk_metadata.image

    @property
    def metadata_errors(self) -> MetadataErrors:
        """Return how often a change of the metadata could not be applied."""
        return self._zk_metadata.errors

    def _own_address(self) -> Address | None:
        name = self._config.inter_broker_listener_name
        found = [(each.host, each.port) for each in self._listeners if each.name == name]
        return found[0] if found else None

    # -- start ---------------------------------------------------------------------------------

    def load(self) -> Steps[None]:
        """Read the metadata in ZooKeeper, then load the logs. Raises: StartError."""
        self.state = BrokerState.RECOVERY
        session = self._keeper.session
        try:
            if session is None:
                raise ZkError(ZkCode.SESSION_EXPIRED)
            image = yield from read_image(session, self._config.node_id)
        except ZkError as error:
            raise StartError(f"the cluster's metadata cannot be read: {error}") from None
        yield from self._node_dirs.load_logs(image, self._config)
        stored_image, image = image, without_deleted(image)
        self._zk_metadata.begin(image)
        note_unconfirmed(
            self._zk_metadata.facts,
            unconfirmed_at_start(
                stored_image, image, self._config.node_id, self._node_dirs.log_dirs
            ),
        )
        self._zk_metadata.apply(without_own_leadership(image, self._config.node_id))
        broker = self._make_broker()
        broker.zk_metadata = self._zk_metadata
        broker.replicas.on_log_dir_failed = self._on_log_dir_failure
        broker.replicas.on_all_log_dirs_failed = lambda: self._on_failure(
            "all log directories have failed"
        )
        broker.apply(delta_between(EMPTY, self.image))
        self.broker = broker
        if not self._node_dirs.log_dirs.online_dirs:
            raise StartError("all log directories have failed")

    def _make_broker(self) -> Broker:
        ports = self._ports
        return Broker(
            config=self._config,
            cluster_id=self._cluster_id,
            clock=ports.clock,
            dice=ports.dice,
            workers=ports.workers,
            timers=ports.timers,
            log_dirs=self._node_dirs.log_dirs,
            forwarder=self._links,
            peers=self._peers,
            store=self._store,
        )

    def register(self, election: Election) -> Steps[None]:
        """Register; the controller sends requests from now on. Raises: StartError."""
        election.on_controller(self._on_controller_change)
        session = self._keeper.session
        for session_started in (self._configs.session_started, self._registration.session_started):
            self._keeper.on_new(session_started)
            if session is not None:
                session_started(session)
        limit_ms = self._config["zookeeper.session.timeout.ms"] + SESSION_EXPIRY_SLACK_MS
        finished: Pending[None] = Pending()

        def end(_: None = None) -> None:
            finished.complete(None)

        timer = self._ports.timers.at(self._ports.clock.monotonic_ms() + limit_ms, end)
        self._registration.registered.then(end)
        yield finished
        timer.cancel()
        if self._registration.blocking_session:
            raise StartError(
                f"broker.id={self._config.node_id}: a broker of this id is registered already, and"
                f" its session (0x{self._registration.blocking_session:x}) has not ended"
            )
        yield self._registration.registered

    def serve(self) -> Steps[None]:
        """Start periodic work; return once the controller has listed this broker as live."""
        assert self.broker is not None
        self.broker.start_serving()
        self._cleaner.start()
        yield self._zk_metadata.listed_as_live
        self.state = BrokerState.RUNNING

    # -- events --------------------------------------------------------------------------------

    def _epoch_changed(self, epoch: int) -> None:
        self.epoch = self._zk_metadata.facts.broker_epoch = epoch
        if self.broker is not None:
            self.broker.epoch = epoch

    def _on_controller_change(self, controller_id: int, epoch: int) -> None:
        self._links.controller_changed(controller_id, epoch)

    def _changed(self, delta: ClusterDelta) -> None:
        if delta.changed_brokers:
            self._peers.brokers_changed()
            self._links.brokers_changed()
        if delta.changed_configs:
            resize_pools(self._store, self._config.dynamic(delta.image))
        if self.broker is not None:
            self.broker.apply(delta)

    def _check_missing_topics(self) -> None:
        """Drop topics that were deleted while this broker was down, without a request to it.

        It had no replica of the topic, or a reassignment had removed its replica and the deletion
        did not wait for it. An entry in the deletion ledger is proof of the deletion; that the
        controller does not list the topic is none.
        """
        session, missing_topics = self._keeper.session, self._zk_metadata.facts.missing_topics
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
        self._zk_metadata.facts.missing_topics -= missing_topics
        deleted = [each for each in sorted(found) if self.image.topics.by_id(each) is not None]
        if deleted and self.broker is not None:
            log.info(
                "%d topics were deleted while this broker was down; deleting their replicas",
                len(deleted),
            )
            drop_topics(self.broker, self._zk_metadata, deleted)
            if self._zk_metadata.facts.inconsistent_ids:
                # For new topics of these names: the controller sends them again only on a change.
                self._request_log_dir_event()

    def _on_log_dir_failure(self) -> None:
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
        """Have the controller move leadership away.

        With controlled.shutdown.enable=false the broker stops as if the process had died.
        """
        if self._config["controlled.shutdown.enable"] and self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            yield from request_controlled_shutdown(
                self._config,
                self._links,
                self.epoch,
                clock=self._ports.clock,
                timers=self._ports.timers,
            )
        self.state = BrokerState.SHUTTING_DOWN

    def unregister(self) -> Pending[None]:
        """Delete the registration, so that no controller elects this broker as a leader."""
        return self._registration.unregister()

    def close(self) -> Steps[None]:
        """Flush and close the logs, close the connections. The keeper closes the session."""
        self._zk_metadata.close()
        self._cleaner.close()
        self._registration.close()
        self._configs.close()
        self._links.close()
        stopped = None if self.broker is None else self.broker.shutdown()
        self._peers.close()
        if stopped is not None:
            yield stopped
        if self._store is not None:
            self._store.close()
