"""Tiered storage of one broker: its parts put together, and the events that reach them.

    metadata change, sealed segment, moved log start
                      |
             RemoteLogManager ------ copies, deletes -----> object store
                      |                                          ^
             RemoteLogMetadata (__remote_log_metadata)           |
                      |                                          |
    deletion ledger -> Purger ----- deletes what deleted topics left
                      |                                          |
    Fetch, ListOffsets -> RemoteReader ---- reads ---------------+
    replica fetchers -> AuxStateBuilder ---- reads --------------+

A broker without `remote.log.storage.system.enable` has none of it.
Source: KIP-405; Kafka's RemoteLogManager, BrokerServer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.object_store import ObjectStore
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Dice, Workers
from ottla.base.timers import Timers
from ottla.broker.leader_requests import LeaderRequests
from ottla.broker.partition import Partition
from ottla.broker.ports import BACKFILL_LANE, Forwarder, Peers
from ottla.broker.produce.producer_ids import ProducerIds
from ottla.broker.remote.aux_state_builder import AuxStateBuilder
from ottla.broker.remote.environment import (
    LeaderRecords,
    RemoteEnvironment,
    RemoteLogManagerConfig,
    TopicFacts,
)
from ottla.broker.remote.metadata.leader_apis import FetchApi, Fetched, FetchFrom
from ottla.broker.remote.metadata.metadata_topic import MetadataTopicPorts, RemoteLogMetadata
from ottla.broker.remote.metadata.metadata_topic_creation import (
    REPLICATION_FACTOR,
    MetadataTopicSettings,
)
from ottla.broker.remote.reads.reads import RemoteReader, RemoteReadLimits
from ottla.broker.remote.reads.remote_segments import RemoteLogs
from ottla.broker.remote.remote_log_manager import RemoteLogManager
from ottla.broker.remote.store_calls import StoreCalls
from ottla.broker.remote.tasks.floor_reports import FloorReports
from ottla.broker.remote.tasks.log_start_publication import LogStartPublisher
from ottla.broker.remote.tasks.purger import Purger, PurgerPorts
from ottla.broker.replica_manager import ReplicaManager
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig

if TYPE_CHECKING:
    from ottla.log.dirs.log_dirs import LogDirs
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.tiering import RestoredPartition, TopicTiering

BACKFILL_WAIT_MS: Final = 50
BACKFILL_PARTITION_BYTES_MAX: Final = 1024 * 1024
BACKFILL_RESPONSE_BYTES_MAX: Final = 4 * 1024 * 1024

ROLLED_PAUSES_MS: Final = (20, 200, 2_000)
"""After a segment was sealed, its records are soon committed; the copy task looks again then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStoragePorts:
    """What tiered storage needs of its broker.

    Fields: `complete_image` returns the newest metadata without the topics of which this broker
            does not know all partitions yet (ZooKeeper mode): segments hash to one of them.
            `broker_epoch`: of its registration.
    """

    config: NodeConfig
    store: ObjectStore
    reads: RemoteReader
    log_dirs: "LogDirs"
    replicas: ReplicaManager
    producer_ids: ProducerIds
    forwarder: Forwarder
    peers: Peers
    complete_image: Callable[[], ClusterImage]
    clock: Clock
    timers: Timers
    workers: Workers
    dice: Dice
    broker_epoch: Callable[[], int]


class RemoteStorage:
    """See the module. `apply` must be called with each metadata change, after the replicas'."""

    def __init__(self, ports: RemoteStoragePorts) -> None:
        self._config = config = ports.config
        self._replicas = ports.replicas
        self._complete_image = ports.complete_image
        self._clock, self._timers = ports.clock, ports.timers
        self._image: ClusterImage = EMPTY
        self._hosted: set[tuple[Uuid, int]] = set()
        self._purged: set[tuple[Uuid, int]] = set()
        """The partitions of deleted topics whose metadata the purger reads."""
        self._led: set[tuple[Uuid, int]] = set()
        self._is_closed = False
        self.reads = ports.reads
        self.metadata = self._metadata_of_segments(ports)
        self._backfills, records = _leader_records(ports)
        publisher = LogStartPublisher(ports.replicas, ports.log_dirs, ports.clock)
        self.environment = RemoteEnvironment(
            node_id=config.node_id,
            metadata=self.metadata,
            calls=StoreCalls(ports.store, ports.clock, ports.dice, _backoff(config)),
            clock=ports.clock,
            timers=ports.timers,
            workers=ports.workers,
            dice=ports.dice,
            topic_facts=self._topic_facts,
            publish_log_start=publisher.publish,
            restored=self._restored,
            leader_records=records,
            log_damaged=ports.replicas.damaged.found_by_copy,
            config=_manager_config(config),
            metrics=ports.reads.metrics,
        )
        self.manager = RemoteLogManager(self.environment)
        self.purger = self._purger(ports)
        self.floor_reports = FloorReports(
            self.environment, ports.forwarder, ports.broker_epoch, self.manager.purge_of
        )
        self.aux_states = AuxStateBuilder(
            ports.reads.ranges,
            self.metadata.remote_log,
            self.environment.metrics,
            ports.clock,
            ports.timers,
        )
        self.metadata.on_ready(self.manager.metadata_changed)
        self.metadata.on_ready(self.purger.metadata_changed)
        self.metadata.on_replayed(self.manager.metadata_changed)
        ports.log_dirs.ports.on_rolled = self._rolled

    def _metadata_of_segments(self, ports: RemoteStoragePorts) -> RemoteLogMetadata:
        config = ports.config
        return RemoteLogMetadata(
            MetadataTopicSettings(
                partitions=config["rlmm.config.remote.log.metadata.topic.num.partitions"],
                replication_factor=config[REPLICATION_FACTOR],
                min_isr=config["rlmm.config.remote.log.metadata.topic.min.isr"],
                consume_wait_ms=config["rlmm.config.remote.log.metadata.consume.wait.ms"],
            ),
            MetadataTopicPorts(
                node_id=config.node_id,
                replicas=ports.replicas,
                producer_ids=ports.producer_ids,
                forwarder=ports.forwarder,
                peers=ports.peers,
                disk=ports.log_dirs.ports.disk,
                log_dir=_first_dir(ports.log_dirs),
                workers=ports.workers,
                clock=ports.clock,
                timers=ports.timers,
                dice=ports.dice,
            ),
            # A topic that was deleted at once may never have had the metadata topic.
            has_tiered_topics=lambda image: bool(image.tiering) or self.purger.is_needed,
        )

    def _purger(self, ports: RemoteStoragePorts) -> Purger:
        purger_ports = PurgerPorts(
            assign=self._read_for_purge,
            unassign=self._read_no_more_for_purge,
            forwarder=ports.forwarder,
            broker_epoch=ports.broker_epoch,
        )
        return Purger(self.environment, purger_ports)

    # -- metadata ------------------------------------------------------------------------------

    def apply(
        self,
        delta: ClusterDelta,
        touched: Iterable[Partition],
        reconfigured: Iterable[str] | None,
    ) -> None:
        """Follow a metadata change.

        `touched`: the partitions whose leadership was checked; `reconfigured`: the topics whose
        settings changed, None = all.
        """
        is_first = self._image is EMPTY
        image = self._image = delta.image
        self._backfills.update(image)
        self.purger.note_pending(image, None if is_first else delta.changed_deletions)
        self.topics_completed()
        changed = delta.changed_tiering
        for topic_id in sorted(changed):
            tiering = image.tiering.get(topic_id)
            self.reads.set_readable(topic_id, readable=tiering is None or tiering.has_remote_log)
        partitions = list(touched)
        if changed:
            known = set(map(id, partitions))
            partitions += [
                each
                for each in self._replicas.hosted()
                if each.topic_id in changed and id(each) not in known
            ]
        for partition in partitions:
            self.update(partition)
        if reconfigured is None:
            self._reconfigure(image)
        names = [topic.name for topic in image.topics] if reconfigured is None else reconfigured
        for name in names:
            topic = image.topics.by_name(name)
            if topic is not None and topic.id in image.tiering:
                self.manager.config_changed(topic.id)
        partitioned = {*delta.created_topics, *delta.changed_topics, *delta.deleted_topics}
        self.floor_reports.apply(image, None if is_first else changed | partitioned)
        if delta.changed_deletions:
            self.purger.apply(self._complete_image(), delta.changed_deletions)

    def _reconfigure(self, image: ClusterImage) -> None:
        """Apply the broker's dynamic configuration."""
        config = self._config.dynamic(image)
        self.reads.change_limits(read_limits(config))
        self.environment.reconfigure(_manager_config(config))

    def topics_completed(self) -> None:
        """Note that all partitions of a topic may have become known, without a metadata change."""
        image = self._complete_image()
        self.metadata.apply(image)
        self.purger.apply(image, ())

    def update(self, partition: Partition) -> None:
        """Lead, follow or stop one partition's tasks, by its present state."""
        key = partition.topic_id, partition.partition_id
        tiering: TopicTiering | None = self._image.tiering.get(partition.topic_id)
        log = partition.log
        if partition.deleted or tiering is None or log is None or log.failed:
            if key in self._hosted:
                self._hosted.discard(key)
                self._led.discard(key)
                self.manager.stop(*key)
                if key not in self._purged:
                    self.metadata.unassign([key])
                is_topic_known = self._image.topics.by_id(partition.topic_id) is not None
                self.reads.fail(
                    *key,
                    Error.NOT_LEADER_OR_FOLLOWER
                    if is_topic_known
                    else Error.UNKNOWN_TOPIC_OR_PARTITION,
                )
            return
        if key not in self._hosted:
            self._hosted.add(key)
            self.metadata.assign([key])
        if partition.is_leader:
            self._led.add(key)
            start = log.log_start_offset
            self.manager.become_leader(log, leader_epoch=partition.leader_epoch, tiering=tiering)
            if log.log_start_offset > start:
                self._replicas.fetch_reader.hasten_follower_fetches(partition)
        else:
            self.manager.become_follower(log, tiering=tiering)
            if key in self._led:
                self._led.discard(key)
                self.reads.fail(*key, Error.NOT_LEADER_OR_FOLLOWER)

    def _read_for_purge(self, keys: Iterable[tuple[Uuid, int]]) -> None:
        listed = list(keys)
        self._purged.update(listed)
        self.metadata.assign(listed)

    def _read_no_more_for_purge(self, keys: Iterable[tuple[Uuid, int]]) -> None:
        listed = list(keys)
        self._purged.difference_update(listed)
        self.metadata.unassign([each for each in listed if each not in self._hosted])

    # -- events --------------------------------------------------------------------------------

    def log_start_moved(self, partition: Partition) -> None:
        """Note that DeleteRecords has moved the log start of a led partition."""
        self.manager.log_start_moved(partition.topic_id, partition.partition_id)

    def _rolled(self, log: "PartitionLog") -> None:
        key = log.topic_id, log.partition
        if self._is_closed or key not in self._hosted:
            return
        now_ms = self._clock.monotonic_ms()
        for pause_ms in ROLLED_PAUSES_MS:
            self._timers.at(now_ms + pause_ms, lambda: self.manager.segment_rolled(*key))

    # -- what the tasks need -------------------------------------------------------------------

    def _topic_facts(self, topic_id: Uuid) -> TopicFacts:
        topic = self._image.topics.by_id(topic_id)
        if topic is None:
            return TopicFacts(0, {})
        configs = self._image.configs.of(ResourceType.TOPIC, topic.name)
        return TopicFacts(len(topic.partitions), dict(configs))

    def _restored(self, topic_id: Uuid, partition: int) -> "RestoredPartition | None":
        tiering = self._image.tiering.get(topic_id)
        return None if tiering is None else tiering.restored_partition(partition)

    # -- end -----------------------------------------------------------------------------------

    def close(self) -> Pending[None]:
        """End all tasks and reads; return the promise that what is saved is written."""
        self._is_closed = True
        self.reads.close()
        self.manager.close()
        self.purger.close()
        self.floor_reports.close()
        self._backfills.close()
        return self.metadata.close()


def _leader_records(
    ports: RemoteStoragePorts,
) -> tuple[LeaderRequests[FetchFrom, Fetched], LeaderRecords]:
    """Return the reads of followers from their leaders, and the requests that do them."""
    fetches = FetchApi(
        ports.replicas,
        ports.workers,
        Pending(),
        max_wait_ms=BACKFILL_WAIT_MS,
        partition_bytes_max=BACKFILL_PARTITION_BYTES_MAX,
        response_bytes_max=BACKFILL_RESPONSE_BYTES_MAX,
    )
    requests = LeaderRequests(
        fetches,
        node_id=ports.config.node_id,
        peers=ports.peers,
        lane=BACKFILL_LANE,
        clock=ports.clock,
        timers=ports.timers,
        dice=ports.dice,
        abandons=True,
    )

    def read(topic_id: Uuid, partition: int, offset: int) -> Pending[bytes | ApiError]:
        answer = requests.ask((topic_id, partition), FetchFrom(offset))
        return answer.map(lambda found: found if isinstance(found, ApiError) else found.records)

    records = LeaderRecords(
        read=read,
        cancel=lambda topic_id, partition: requests.cancel((topic_id, partition)),
        store_local_start=ports.log_dirs.checkpoint_log_start,
    )
    return requests, records


def remote_reader(
    config: NodeConfig,
    store: ObjectStore,
    clock: Clock,
    timers: Timers,
    remote_logs: RemoteLogs,
) -> RemoteReader:
    """Return the reads of a broker, limited as its configuration says."""
    return RemoteReader(store, remote_logs, clock, timers, read_limits(config))


def read_limits(config: NodeConfig) -> RemoteReadLimits:
    """Return the limits of remote reads that a configuration asks for."""
    threads = config["remote.log.reader.threads"]
    windows = config["remote.log.manager.fetch.quota.window.num"]
    return RemoteReadLimits(
        reads_max=threads + config["remote.log.reader.max.pending.tasks"],
        calls_max=threads,
        chunk_bytes=config["ottla.remote.chunk.size.bytes"],
        chunk_cache_bytes_max=config["ottla.remote.chunk.cache.size.bytes"],
        index_cache_bytes_max=config["ottla.remote.index.cache.size.bytes"],
        fetch_max_wait_ms=config["remote.fetch.max.wait.ms"],
        list_offsets_timeout_ms=config["remote.list.offsets.request.timeout.ms"],
        bytes_per_second=config["remote.log.manager.fetch.max.bytes.per.second"],
        window_seconds=windows * config["remote.log.manager.fetch.quota.window.size.seconds"],
    )


def _first_dir(log_dirs: "LogDirs") -> str:
    online = log_dirs.online_dirs
    return (online or log_dirs.dirs)[0].path


def _backoff(config: NodeConfig) -> Backoff:
    return Backoff(
        first_ms=config["remote.log.manager.task.retry.backoff.ms"],
        max_ms=config["remote.log.manager.task.retry.backoff.max.ms"],
    )


def _manager_config(config: NodeConfig) -> RemoteLogManagerConfig:
    most = config["remote.log.manager.copy.max.bytes.per.second"]
    windows = config["remote.log.manager.copy.quota.window.num"]
    return RemoteLogManagerConfig(
        interval_ms=config["remote.log.manager.task.interval.ms"],
        copier_slots=config["remote.log.manager.copier.thread.pool.size"],
        expiration_slots=config["remote.log.manager.expiration.thread.pool.size"],
        copy_bytes_per_second=most,
        copy_window_seconds=windows * config["remote.log.manager.copy.quota.window.size.seconds"],
    )
