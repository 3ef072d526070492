"""The broker of a node: what its request handlers work on.

`apply` receives every metadata change, in order, on the loop, and passes it on to the parts: logs
are created, led, reconfigured and deleted first, then the coordinators are updated.
It owns no socket, thread or clock; all of those come in.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.ids import NO_EPOCH, OFFSETS_TOPIC, Uuid
from ottla.base.object_store import ObjectStore
from ottla.base.pending import Pending, gather
from ottla.base.ports import Clock, Dice, Workers
from ottla.base.timers import Timers
from ottla.broker.fetch.fetch_sessions import FetchSessions
from ottla.broker.fetch.read_replica import same_rack
from ottla.broker.forwarding.auto_create import AutoCreate
from ottla.broker.groups.group_service import GroupService
from ottla.broker.idle import IdleTopics
from ottla.broker.logs.deletion_failures import DeletionFailures
from ottla.broker.logs.directory_assignments import DirectoryAssignments
from ottla.broker.logs.log_values import log_values
from ottla.broker.logs.maintenance import Maintenance
from ottla.broker.metrics import PartitionErrors
from ottla.broker.nodes import client_controller_id
from ottla.broker.partition import Partition, PartitionEnvironment
from ottla.broker.ports import Forwarder, Peers
from ottla.broker.produce.producer_ids import ProducerIds
from ottla.broker.purgatory import Purgatory
from ottla.broker.remote.reads.reads import RemoteReader
from ottla.broker.remote.remote_storage import RemoteStorage, RemoteStoragePorts, remote_reader
from ottla.broker.replica_manager import ReplicaManager, TopicSettings
from ottla.broker.replication.isr import IsrChange
from ottla.broker.replication.isr_manager import IsrManager
from ottla.broker.replication.replica_fetchers import ReplicaFetchers
from ottla.broker.saved_idle_times import read_idle_times, write_idle_times
from ottla.log.config import LogConfig
from ottla.log.dirs.log_dirs import LogDirs
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.tiered.remote_log import RemoteLog

if TYPE_CHECKING:
    from ottla.broker.zookeeper.zk_metadata import ZkMetadataPort

logger = logging.getLogger(__name__)

DELETE_DELAY = "log.segment.delete.delay.ms"


class ApplyError(Exception):
    """A metadata change could not be applied to some partitions."""


class Broker:
    """One broker. `epoch` is set by its registration; -1 before.

    `store`: the object store of tiered storage; None = the broker is without it. Fields:
    `topic_deletion_purgatory`, `tiering_purgatory`: orders that wait for a topic's deletion, or for
    its tiering state, in this broker's metadata.
    """

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
        store: ObjectStore | None = None,
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
        self.remote: RemoteStorage | None = None
        reads = None
        if store is not None:
            reads = remote_reader(config, store, clock, timers, self._remote_log)
        self.replicas = self._replica_manager(reads)
        self.replicas.on_replica_offline = self._replica_lost
        self.isr = self._isr_manager()
        self.fetchers = ReplicaFetchers(
            config=config,
            broker_epoch=lambda: self.epoch,
            peers=peers,
            replica_manager=self.replicas,
            clock=clock,
            timers=timers,
        )
        self.directories = self._directory_assignments()
        self.partition_errors = PartitionErrors()
        self.sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"], dice)
        self.producer_ids = self._producer_ids()
        if store is not None and reads is not None:
            self.remote = self._remote_storage(store, reads, peers)
            self.fetchers.aux_states = self.remote.aux_states.build
        self.auto_create = AutoCreate(config, forwarder)
        self.topic_deletion_purgatory, self.tiering_purgatory = Purgatory(timers), Purgatory(timers)
        self.deletion_failures = DeletionFailures()
        self.maintenance = Maintenance(
            config=config,
            clock=clock,
            timers=timers,
            log_dirs=log_dirs,
            replicas=self.replicas,
        )
        self.idle = self._idle_topics()
        self.groups: GroupService = GroupService(self) if groups is None else groups(self)

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

    def _remote_storage(
        self, store: ObjectStore, reads: RemoteReader, peers: Peers
    ) -> RemoteStorage:
        return RemoteStorage(
            RemoteStoragePorts(
                config=self.config,
                store=store,
                reads=reads,
                log_dirs=self.log_dirs,
                replicas=self.replicas,
                producer_ids=self.producer_ids,
                forwarder=self.forwarder,
                peers=peers,
                complete_image=lambda: self.client_image,
                clock=self.clock,
                timers=self.timers,
                workers=self.workers,
                dice=self.dice,
                broker_epoch=lambda: self.epoch,
            )
        )

    def _producer_ids(self) -> ProducerIds:
        return ProducerIds(
            node_id=self.node_id,
            broker_epoch=lambda: self.epoch,
            forwarder=self.forwarder,
            timers=self.timers,
            monotonic_ms=self.clock.monotonic_ms,
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
            saved=read_idle_times(self.log_dirs),
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

    def _replica_manager(self, remote: RemoteReader | None) -> ReplicaManager:
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
            remote=remote,
        )

    def apply(self, delta: ClusterDelta) -> None:
        """Apply a metadata change: logs first, then the coordinators whose state they hold.

        The first change leads from the empty image to the image of the start; the logs on disk are
        loaded by then. A change that failed may be applied again, as a difference.

        Raises: ApplyError where it failed for some partitions; the rest is applied.
        """
        first = self.image is EMPTY
        self.image = delta.image
        reconfigured = self._reconfigured(delta)
        if reconfigured is None:
            self.log_dirs.set_delete_delay(self.config.dynamic(delta.image)[DELETE_DELAY])
        touched = self.replicas.apply(delta, first=first, reconfigured=reconfigured)
        if delta.changed_brokers:
            self.replicas.recheck()
        self.idle.apply(delta)
        partitions = [partition for partition, _ in touched]
        self.fetchers.update(partitions)
        if self.remote is not None:
            self.remote.apply(delta, partitions, reconfigured)
        if self.zk_metadata is None:
            self.directories.update(delta.image, partitions)
        for partition, begins in touched:
            if partition.topic != OFFSETS_TOPIC:
                continue
            if begins:
                self.groups.became_leader(partition.partition_id)
            elif partition.deleted or not partition.is_leader:
                self.groups.resigned(partition.partition_id)
        # A topic created and deleted within the change shows in the deletion ledger alone.
        self.topic_deletion_purgatory.wake_each(
            [*delta.deleted_topics, *sorted(delta.changed_deletions)]
        )
        self.tiering_purgatory.wake_each(
            sorted({*delta.changed_tiering, *delta.deleted_topics, *delta.changed_deletions})
        )
        if delta.deleted_topics:
            deleted = {each.id: each.name for each in delta.deleted_topics.values()}
            self.groups.topics_deleted(deleted)
        failures = self.replicas.applied(partitions)
        if failures:
            name, error = failures[0]
            text = f"metadata update failed for {len(failures)} partitions, first {name}: {error}"
            raise ApplyError(text) from error

    @property
    def client_image(self) -> ClusterImage:
        """Return the image as clients may see it."""
        if self.zk_metadata is None:
            return self.image
        return self.zk_metadata.facts.client_view(self.image)

    @property
    def controller_id(self) -> int:
        """Return the controller's id that clients get; -1 = none is known."""
        known = -1 if self.zk_metadata is None else self.zk_metadata.facts.controller_id
        return client_controller_id(self.image, known, self.dice)

    def _remote_log(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        return None if self.remote is None else self.remote.metadata.remote_log(topic_id, partition)

    def _propose_isr(self, partition: Partition, change: IsrChange) -> None:
        self.isr.propose(partition, change)

    def _replica_lost(self, partition: Partition) -> None:
        """Report to the controller a replica that is offline while its log directory is online."""
        if self.remote is not None:
            self.remote.update(partition)
        if self.zk_metadata is None:
            self.directories.update(self.image, (partition,))
        elif self.replicas.on_log_dir_failed is not None:
            self.replicas.on_log_dir_failed()  # The controller queries each replica's state again.

    def start_serving(self) -> None:
        """Start the periodic tasks: retention, flushes, checkpoints."""
        self.maintenance.start()
        self.idle.start()
        self.isr.start(self.replicas.recheck, self.config["replica.lag.time.max.ms"] // 2)

    def shutdown(self) -> Pending[None]:
        """Stop the timers, flush all logs and mark the shutdown as clean on disk."""
        self.maintenance.stop()
        self.idle.stop()
        self.isr.close()
        self.directories.close()
        self.fetchers.close()
        self.groups.shutdown()
        if self.remote is not None:
            self.remote.close()
        stopped = self.log_dirs.shutdown(self.epoch)
        saved = self.idle.saved()
        if not saved:
            return stopped
        written = write_idle_times(self.log_dirs, saved, self.epoch)
        return gather([stopped, written]).map(lambda _: None)

    def _settings(self, image: ClusterImage, topic: str) -> TopicSettings:
        values = log_values(image, self.config, topic)
        return TopicSettings(LogConfig.of(values), values["min.insync.replicas"])

    def _reconfigured(self, delta: ClusterDelta) -> list[str] | None:
        """Return the topics whose configuration the change touches; None = all."""
        tiered = map(delta.image.topics.by_id, sorted(delta.changed_tiering))
        topics = [each.name for each in tiered if each is not None]
        for resource_type, name in sorted(delta.changed_configs):
            if resource_type == ResourceType.TOPIC:
                topics.append(name)
            elif resource_type == ResourceType.BROKER and name in (ALL_BROKERS, str(self.node_id)):
                return None
        return topics
