"""The broker of a node: what its request handlers work on.

It is told of every metadata change through `apply`, in order, on the loop, and hands it on to
the parts: logs are made, led, reconfigured and deleted first, then the coordinators hear of it.
It owns no socket, thread or clock; all of those come in.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.ids import NO_EPOCH, OFFSETS_TOPIC
from ottla.base.pending import Pending, gather
from ottla.base.ports import Clock, Dice, Workers
from ottla.base.timers import Timers
from ottla.broker.api.base import Forwarder
from ottla.broker.auto_create import AutoCreate
from ottla.broker.directory_assignments import DirectoryAssignments
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.idle import IdleTopics
from ottla.broker.idle_file import read_kept, write_kept
from ottla.broker.isr import IsrChange, PartitionEnvironment
from ottla.broker.isr_manager import IsrManager
from ottla.broker.maintenance import Maintenance
from ottla.broker.metrics import PartitionErrors
from ottla.broker.nodes import named_controller
from ottla.broker.partition import Partition
from ottla.broker.peers import Peers
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.purgatory import Purgatory
from ottla.broker.read_replica import same_rack
from ottla.broker.removal_failures import RemovalFailures
from ottla.broker.replica_fetchers import ReplicaFetchers
from ottla.broker.replica_manager import ReplicaManager, TopicSettings
from ottla.log.config import LogConfig
from ottla.log.log_dirs import LogDirs
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topic_config import effective_topic_config

if TYPE_CHECKING:
    from ottla.broker.group_service import GroupService
    from ottla.broker.zk_metadata import ZkMetadataPort

logger = logging.getLogger(__name__)


LOG_PROPERTIES = (
    "producer.id.expiration.ms",
    "transaction.max.timeout.ms",
    "ottla.record.validation",
)
"""What a log needs to know of its broker, not of its topic."""


class ApplyError(Exception):
    """A metadata change could not be applied as a whole."""


class Broker:
    """One broker. `epoch` is set by whoever registers it; -1 before."""

    controller_epoch = NO_EPOCH
    """The epoch of the newest controller that has sent this broker a request."""
    zk_metadata: "ZkMetadataPort | None" = None
    """The metadata from controllers' requests (ZooKeeper); None = it follows a metadata log."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        cluster_id: str,
        clock: Clock,
        dice: Dice,
        workers: Workers,
        timers: Timers,
        log_dirs: LogDirs,
        forwarder: Forwarder,
        peers: Peers,
        groups: "Callable[[Broker], GroupService] | None" = None,
    ) -> None:
        self.config = config
        self.node_id: int = config.node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.dice = dice
        self.workers = workers
        self.timers = timers
        self.log_dirs = log_dirs
        self.forwarder = forwarder
        self.image: ClusterImage = EMPTY
        self.epoch = NO_EPOCH
        self.replicas = self._replica_manager()
        self.replicas.on_replica_lost = self._replica_lost
        self.isr = self._isr_manager()
        self.fetchers = ReplicaFetchers(
            config=config,
            broker_epoch=lambda: self.epoch,
            peers=peers,
            hosts=self.replicas,
            clock=clock,
            timers=timers,
        )
        self.directories = self._directory_assignments()
        self.partition_errors = PartitionErrors()
        self.sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"], dice)
        self.producer_ids = ProducerIds(
            node_id=self.node_id,
            broker_epoch=lambda: self.epoch,
            forwarder=forwarder,
            timers=timers,
            monotonic_ms=clock.monotonic_ms,
        )
        self.auto_create = AutoCreate(config, forwarder)
        self.vanishing = Purgatory(timers)
        self.removal_failures = RemovalFailures()
        self.maintenance = Maintenance(
            config=config,
            clock=clock,
            timers=timers,
            log_dirs=log_dirs,
            replicas=self.replicas,
        )
        self.idle = self._idle_topics()
        self.groups: GroupService = _group_service(self) if groups is None else groups(self)

    def _isr_manager(self) -> IsrManager:
        return IsrManager(
            node_id=self.node_id,
            broker_epoch=lambda: self.epoch,
            forwarder=self.forwarder,
            clock=self.clock,
            timers=self.timers,
            on_changed=self.replicas.isr_changed,
            follows_log=lambda: self.zk_metadata is None,
        )

    def _idle_topics(self) -> IdleTopics:
        return IdleTopics(
            node_id=self.node_id,
            broker_epoch=lambda: self.epoch,
            metrics=lambda: self.replicas.topic_metrics,
            forwarder=self.forwarder,
            clock=self.clock,
            timers=self.timers,
            interval_ms=self.config["ottla.topic.idle.check.interval.ms"],
            kept=read_kept(self.log_dirs),
        )

    def _directory_assignments(self) -> DirectoryAssignments:
        return DirectoryAssignments(
            node_id=self.node_id,
            broker_epoch=lambda: self.epoch,
            log_dirs=self.log_dirs,
            forwarder=self.forwarder,
            clock=self.clock,
            timers=self.timers,
        )

    def _replica_manager(self) -> ReplicaManager:
        return ReplicaManager(
            node_id=self.node_id,
            clock=self.clock,
            timers=self.timers,
            workers=self.workers,
            log_dirs=self.log_dirs,
            settings=self._settings,
            environment=PartitionEnvironment(
                brokers=EMPTY.brokers,
                monotonic_ms=self.clock.monotonic_ms,
                broker_epoch=lambda: self.epoch,
                propose=self._propose_isr,
                lag_time_max_ms=self.config["replica.lag.time.max.ms"],
            ),
            select=same_rack if self.config["replica.selector.class"] else None,
        )

    def apply(self, delta: ClusterDelta) -> None:
        """Take over a metadata change: logs first, then those that live in them.

        The first one leads from nothing to the image of the start; the logs on disk are loaded
        by then. A change may be applied again, as a difference, where it failed before.

        Raises: ApplyError where some partitions could not follow; all else is applied then.
        """
        first = self.image is EMPTY
        self.image = delta.image
        touched = self.replicas.apply(delta, first=first, reconfigured=self._reconfigured(delta))
        if delta.changed_brokers:
            self.replicas.recheck()
        self.idle.apply(delta)
        partitions = [partition for partition, _ in touched]
        self.fetchers.update(partitions)
        if self.zk_metadata is None:
            self.directories.update(delta.image, partitions)
        for partition, begins in touched:
            if partition.topic != OFFSETS_TOPIC:
                continue
            if begins:
                self.groups.became_leader(partition.index)
            elif partition.deleted or not partition.is_leader:
                self.groups.resigned(partition.index)
        # One that came and went within the change shows in the ledger alone.
        self.vanishing.wake_each([*delta.deleted_topics, *sorted(delta.changed_deletions)])
        if delta.deleted_topics:
            deleted = {each.id: each.name for each in delta.deleted_topics.values()}
            self.groups.topics_deleted(deleted)
        failures = self.replicas.applied(partitions)
        if failures:
            name, error = failures[0]
            text = f"{len(failures)} partitions cannot follow the metadata, {name} first: {error}"
            raise ApplyError(text) from error

    @property
    def announced_image(self) -> ClusterImage:
        """Return the image as clients may see it."""
        if self.zk_metadata is None:
            return self.image
        return self.zk_metadata.facts.announced(self.image)

    @property
    def controller_id(self) -> int:
        """Return the controller's id that clients get; -1 = none is known."""
        known = -1 if self.zk_metadata is None else self.zk_metadata.facts.controller_id
        return named_controller(self.image, known, self.dice)

    def _propose_isr(self, partition: Partition, change: IsrChange) -> None:
        self.isr.propose(partition, change)

    def _replica_lost(self, partition: Partition) -> None:
        """Let the controller hear of a replica that is offline, though its log folder is not."""
        if self.zk_metadata is None:
            self.directories.update(self.image, (partition,))
        elif self.replicas.on_log_dir_failure is not None:
            self.replicas.on_log_dir_failure()  # It asks anew, and hears of each replica.

    def start_serving(self) -> None:
        """Begin with what happens by the clock: retention, flushes, checkpoints."""
        self.maintenance.start()
        self.idle.start()
        self.isr.start(self.replicas.recheck, self.config["replica.lag.time.max.ms"] // 2)

    def shutdown(self) -> Pending[None]:
        """Stop the timers, write all to disk and say on disk that it was done."""
        self.maintenance.stop()
        self.idle.stop()
        self.isr.close()
        self.directories.close()
        self.fetchers.close()
        self.groups.shutdown()
        stopped = self.log_dirs.shutdown(self.epoch)
        kept = self.idle.kept()
        if not kept:
            return stopped
        written = write_kept(self.log_dirs, kept, self.epoch)
        return gather([stopped, written]).map(lambda _: None)

    def _settings(self, image: ClusterImage, topic: str) -> TopicSettings:
        values = effective_topic_config(image, self.config, topic)
        config = self.config.dynamic(image)
        brokers_own = {name: config[name] for name in LOG_PROPERTIES}
        return TopicSettings(LogConfig.of({**values, **brokers_own}), values["min.insync.replicas"])

    def _reconfigured(self, delta: ClusterDelta) -> list[str] | None:
        """Return the topics whose configuration a change is about; None = all."""
        topics: list[str] = []
        for resource_type, name in sorted(delta.changed_configs):
            if resource_type == ResourceType.TOPIC:
                topics.append(name)
            elif resource_type == ResourceType.BROKER and name in (ALL_BROKERS, str(self.node_id)):
                return None
        return topics


def _group_service(broker: Broker) -> "GroupService":
    # The service's own module imports this one for its types.
    from ottla.broker.group_service import GroupService

    return GroupService(broker)
