"""The group coordinator of a broker: one shard for each offsets partition that it leads.

A group belongs to the partition that its id hashes to. When this broker becomes that partition's
leader the shard is loaded from the log; meanwhile clients get COORDINATOR_LOAD_IN_PROGRESS, and
NOT_COORDINATOR after the leadership has moved away. A partition whose log cannot be read is not
served at all: half of its groups would be worse than none. If the disk is the reason, its log
directory is taken offline, as for any other read.

The offsets of a deleted topic are deleted with it: in served shards when the metadata has the
deletion, in others once they are loaded, for which each commit carries its topic's id. A shard
whose partition cannot be written at that moment is retried at the next expiry. In ZooKeeper mode
the metadata may be incomplete: a topic that is unknown may still exist, and its offsets stay until
it is known to be deleted, or its name belongs to another topic, or they expire.

In ZooKeeper mode LeaderAndIsr makes a broker coordinator, and a new controller sends it before the
UpdateMetadata with all topics:
1. Broker 1 is behind its controller; a topic is deleted and created again.
2. Broker 2, the coordinator, stores offsets for the new topic. It dies, with the controller.
3. The next controller elects broker 1, which knows the old topic alone: it would return no offsets
   of the new one, and store offsets committed under its name as the old one's.
So a loaded shard is served only once this broker has the full metadata. (In KRaft the metadata
that elects it follows all that came before.) A shard that is served already stays so: its offsets
are of topics that were known here.

Source: Kafka's GroupCoordinatorService and CoordinatorRuntime.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, OFFSETS_TOPIC, Uuid
from ottla.base.limits import GROUP_MEMBERS_BYTES_MAX
from ottla.base.ports import Clock, Dice, Workers
from ottla.base.timers import Timer, Timers
from ottla.broker.groups.group_journal import GroupJournal, GroupLoad
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.zookeeper.zk_metadata import ZkMetadataPort
from ottla.coordinator import groups
from ottla.coordinator.shard import Shard
from ottla.coordinator.values import GroupConfig
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topics import TopicImage
from ottla.records.compression import Codec

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000
LINE_MAX = 1_000
"""Characters of a log line about a group; a client's reason can be 32 KB long."""


class CoordinatorBroker(Protocol):
    """What the shards of a broker use of it; `Broker` has it all."""

    config: NodeConfig
    clock: Clock
    dice: Dice
    workers: Workers
    timers: Timers
    replicas: ReplicaManager
    image: ClusterImage
    zk_metadata: ZkMetadataPort | None


class GroupService:
    """The shards of this broker, by partition."""

    def __init__(self, broker: CoordinatorBroker) -> None:
        self._broker = broker
        self._config = group_config(broker.config)
        self._shards: dict[int, Shard] = {}
        self._loads: dict[int, GroupLoad] = {}
        self._awaiting_metadata: set[int] = set()
        """Partitions that are loaded, and are served once this broker has the full metadata."""
        self._expiry: Timer | None = None

    # --- for handlers -----------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """Return the offsets partition that stores a group.

        Raises: ApiError(COORDINATOR_NOT_AVAILABLE) while this broker knows only the offsets
        partitions that it hosts: by their count a group would hash to a wrong partition.
        """
        topic = self._broker.image.topics.by_name(OFFSETS_TOPIC)
        zk_metadata = self._broker.zk_metadata
        hidden_partitions = {} if zk_metadata is None else zk_metadata.facts.hidden_partitions
        if topic is not None and topic.id in hidden_partitions:
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
        count: int = self._broker.config["offsets.topic.num.partitions"]
        return positive_hash(group_id) % (count if topic is None else len(topic.partitions))

    def shard_of(self, group_id: str, *, may_be_empty: bool = False) -> Shard:
        """Return the shard that serves a group; raise ApiError with the client's error code.

        `may_be_empty`: the APIs that tolerate an empty group id, as old clients send it.
        """
        if group_id == "" and not may_be_empty:
            raise ApiError(Error.INVALID_GROUP_ID)
        partition = self.partition_of(group_id)
        shard = self._shards.get(partition)
        if shard is not None:
            return shard
        if partition in self._loads:
            raise ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        raise ApiError(Error.NOT_COORDINATOR)

    def shards(self) -> Sequence[Shard]:
        """Return all shards that are served, by partition; raise ApiError while one loads."""
        if self._loads:
            raise ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        return [shard for _, shard in sorted(self._shards.items())]

    def served(self) -> Sequence[Shard]:
        """Return the shards that are served now, whatever else is still loading."""
        return list(self._shards.values())

    def topic_id_of(self, name: str) -> Uuid:
        """Return the id of the topic whose offsets are stored under a name; zero = there is none.

        That is not always the one of the image: there a former topic of the name stays until its
        replicas here are deleted.
        """
        zk_metadata = self._broker.zk_metadata
        if zk_metadata is not None and name in zk_metadata.facts.inconsistent_ids:
            return zk_metadata.facts.inconsistent_ids[name]
        topic = self._broker.image.topics.by_name(name)
        return NO_UUID if topic is None else topic.id

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        """Return the topic of an id; None where its name belongs to another topic by now.

        Offsets are stored by name: its offsets would be taken for the other topic's.
        """
        topic = self._broker.image.topics.by_id(topic_id)
        return None if topic is None or self.topic_id_of(topic.name) != topic_id else topic

    # --- for the broker ---------------------------------------------------------------------

    def became_leader(self, partition: int) -> None:
        """Load a partition of the offsets topic, which this broker leads from now on.

        A new epoch of the same leader loads again: another leader may have written in between.
        """
        self.resigned(partition)
        broker = self._broker
        shard = Shard(
            config=self._config,
            clock=broker.clock,
            timers=broker.timers,
            dice=broker.dice,
            journal=GroupJournal(
                broker.replicas,
                partition,
                clock=broker.clock,
                codec=Codec(broker.config["offsets.topic.compression.codec"]),
            ),
            log_event=_log,
            topic_id_of=self.topic_id_of,
            memory_left=self._memory_left,
        )
        load = GroupLoad(
            shard,
            broker.replicas,
            partition,
            workers=broker.workers,
            chunk_bytes=broker.config["offsets.load.buffer.size"],
            done=lambda error: self._loaded(partition, error),
        )
        self._loads[partition] = load
        load.advance()

    def _memory_left(self) -> int:
        shards = (*self._shards.values(), *(load.shard for load in self._loads.values()))
        return GROUP_MEMBERS_BYTES_MAX - sum(shard.memory.used_bytes for shard in shards)

    def _loaded(self, partition: int, error: Exception | None) -> None:
        if error is not None:
            del self._loads[partition]
            logger.error(
                "loading groups from %s-%d failed: %s; its groups are unavailable",
                OFFSETS_TOPIC,
                partition,
                error,
            )
            return
        zk_metadata = self._broker.zk_metadata
        if zk_metadata is None or zk_metadata.facts.has_full_metadata:
            self._serve(partition)
        else:
            self._awaiting_metadata.add(partition)

    def full_metadata_received(self) -> None:
        """Serve the loaded shards that waited for the full metadata (UpdateMetadata, type FULL)."""
        for partition in sorted(self._awaiting_metadata):
            self._serve(partition)

    def _serve(self, partition: int) -> None:
        self._awaiting_metadata.discard(partition)
        load = self._loads.pop(partition)
        elapsed_ms = self._broker.clock.monotonic_ms() - load.started_ms
        if load.loader.record_count:
            logger.info(
                "loaded %d groups and %d offsets of %s-%d from %d records in %d ms",
                len(load.shard.groups),
                load.shard.offsets.count,
                OFFSETS_TOPIC,
                partition,
                load.loader.record_count,
                elapsed_ms,
            )
        # A record above the high watermark may be an acknowledged commit, or be lost with this
        # broker: it is applied now, but not readable before it is committed.
        load.shard.wait_for_loaded(load.replicated())
        self._shards[partition] = load.shard
        groups.start(load.shard)
        if load.deleted_topics:
            groups.topics_deleted(load.shard, load.deleted_topics).then(_warn_of_leftovers)
        self._forget_gone(load.shard)
        self._arm_expiry()

    def resigned(self, partition: int) -> None:
        """Unload a partition of the offsets topic; its delayed requests are answered."""
        self._awaiting_metadata.discard(partition)
        load = self._loads.pop(partition, None)
        if load is not None:
            load.cancel()
        shard = self._shards.pop(partition, None)
        if shard is not None:
            groups.unload(shard)

    def topics_deleted(self, deleted: Mapping[Uuid, str]) -> None:
        """Delete the offsets of deleted topics, given by id with their names."""
        for load in self._loads.values():
            # It may still read offsets of a new topic of the name, which has another id.
            load.deleted_topics |= deleted
        for shard in list(self._shards.values()):
            groups.topics_deleted(shard, deleted).then(_warn_of_leftovers)

    def _forget_gone(self, shard: Shard) -> None:
        groups.forget_offsets(shard, self._is_gone).then(_warn_of_leftovers)

    def _is_gone(self, name: str, topic_id: Uuid) -> bool:
        """Tell whether the topic that an offset was committed for was deleted, for certain."""
        known, zk_metadata = self.topic_id_of(name), self._broker.zk_metadata
        is_anothers = topic_id != NO_UUID and known not in (NO_UUID, topic_id)
        if known != NO_UUID and not is_anothers:
            return False
        if zk_metadata is None:
            return True
        # Until it has the full metadata, this broker may know the older of two topics of a name.
        return topic_id in zk_metadata.facts.deleted_ids or (
            is_anothers and zk_metadata.facts.has_full_metadata
        )

    def shutdown(self) -> None:
        """Unload all partitions: the logs are about to be closed."""
        for partition in sorted({*self._loads, *self._shards}):
            self.resigned(partition)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # --- expiry -----------------------------------------------------------------------------

    def _arm_expiry(self) -> None:
        if self._expiry is None:
            interval_ms: int = self._broker.config["offsets.retention.check.interval.ms"]
            at_ms = self._broker.clock.monotonic_ms() + interval_ms
            self._expiry = self._broker.timers.at(at_ms, self.tick)

    def tick(self) -> None:
        """Expire offsets and groups, every `offsets.retention.check.interval.ms`."""
        self._expiry = None
        self._arm_expiry()
        for partition, shard in list(self._shards.items()):
            try:
                self._forget_gone(shard)
                groups.expire(shard)
            except Exception:
                logger.exception(
                    "expiry of offsets in %s-%d failed; retrying at the next expiry check",
                    *(OFFSETS_TOPIC, partition),
                )


def _log(line: str) -> None:
    # Part of it comes from clients, who must not be able to forge log lines.
    logger.info("%s", "".join(each if each.isprintable() else "?" for each in line[:LINE_MAX]))


def _warn_of_leftovers(error: Error) -> None:
    if error:
        logger.warning(
            "deletion of deleted topics' offsets failed: %s; retrying at the next expiry check",
            error.name,
        )


def group_config(config: NodeConfig) -> GroupConfig:
    """Return a node's settings for groups."""
    return GroupConfig(
        session_timeout_ms_min=config["group.min.session.timeout.ms"],
        session_timeout_ms_max=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        members_max=config["group.max.size"],
        offsets_retention_ms=config["offsets.retention.minutes"] * MINUTE_MS,
        offset_metadata_bytes_max=config["offset.metadata.max.bytes"],
        commit_ms=config["offsets.commit.timeout.ms"],
    )


def positive_hash(text: str) -> int:
    """Return Java's hash of a string, made positive as Kafka's Utils.abs does.

    Java hashes UTF-16 code units into 32 bits; the smallest integer has no positive twin and
    becomes 0.
    """
    value = 0
    for unit in _utf16(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
        if value == 1 << 31:
            return 0
    return value


def _utf16(text: str) -> Iterator[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return (raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2))
