"""Observations of nodes while a simulation runs: plain values for checkers.

Nodes are inspected from outside after each event that they process. A change that is undone within
one event is not observed, as no peer can see it either.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.base.ids import NO_EPOCH, NO_OFFSET, Uuid
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.host.kraft.node_mode import KRaftMode
from ottla.host.kraft.quorum_replay import read_log
from ottla.host.kraft.quorum_storage import QuorumStorage
from ottla.host.node_core import NodeCore
from ottla.log.local_log import LocalLog
from ottla.log.log_offsets import LogOffsets
from ottla.log.partition_log import PartitionLog
from ottla.metadata.deletions import DeletionImage
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.tiering import TopicTiering
from ottla.raft.batches import LogBatch, read_batches


class QuorumLed(NamedTuple):
    """A node has become leader of the metadata quorum, or controller over ZooKeeper."""

    at_ms: int
    node: int
    incarnation: int
    epoch: int


class PartitionSet(NamedTuple):
    """A committed metadata record has changed a partition to `state`; `before` None = it is new."""

    at_ms: int
    offset: int
    topic: str
    topic_id: Uuid
    partition: int
    before: PartitionImage | None
    state: PartitionImage


class MetadataCommitted(NamedTuple):
    """A node has seen a batch of the metadata log committed."""

    at_ms: int
    node: int
    incarnation: int
    batch: LogBatch


class MetadataHighWatermarkMoved(NamedTuple):
    """The leader of the metadata quorum has moved its high watermark to `offset` in its epoch."""

    at_ms: int
    node: int
    incarnation: int
    epoch: int
    offset: int


class ImagePublished(NamedTuple):
    """A node's image has changed."""

    at_ms: int
    node: int
    incarnation: int
    image: ClusterImage


class HighWatermarkMoved(NamedTuple):
    """A replica's high watermark has changed; `leads`: its node takes it for the leader."""

    at_ms: int
    node: int
    incarnation: int
    topic_id: Uuid
    partition: int
    epoch: int
    leads: bool
    offset: int


class LeadershipBegan(NamedTuple):
    """A broker begins to lead in a new epoch.

    Fields: `former_epoch`: the last one in which this process led, -1 = none; `known`: the
            followers whose log ends it takes for known.
    """

    at_ms: int
    node: int
    incarnation: int
    topic_id: Uuid
    partition: int
    former_epoch: int
    epoch: int
    known: tuple[int, ...]


class Acknowledged(NamedTuple):
    """A leader has acknowledged a batch. `acks`: of the request; `epoch`: the leader's."""

    at_ms: int
    node: int
    incarnation: int
    topic_id: Uuid
    partition: int
    epoch: int
    offset: int
    crc: int
    acks: int


class LogOpened(NamedTuple):
    """A node has opened a log for a partition."""

    at_ms: int
    node: int
    incarnation: int
    topic_id: Uuid
    partition: int
    hosted: Partition
    log: PartitionLog


class RemoteSegmentChanged(NamedTuple):
    """A committed record of `__remote_log_metadata` has given a segment a state.

    Fields: `state`: its name. `node`: the broker that wrote the record. `is_refused`: the record
            had no effect, as a fence came before it. `end_offset`: the last of the segment, -1 = it
            is not known. `was_copied`: its copy was ever finished.
    """

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    state: str
    is_refused: bool
    end_offset: int = -1
    was_copied: bool = False


class PartitionFenced(NamedTuple):
    """A fence is committed in `__remote_log_metadata`. `node`: the broker that wrote it."""

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    tiered_epoch: int


class TieringSet(NamedTuple):
    """A committed metadata record has changed a topic's tiering state; None = there was none."""

    at_ms: int
    before: TopicTiering | None
    after: TopicTiering


class TopicKnown(NamedTuple):
    """A topic has been added to a node's image, or removed; `offset`: of the image."""

    at_ms: int
    node: int
    incarnation: int
    offset: int
    topic_id: Uuid
    is_there: bool


class TopicSet(NamedTuple):
    """A topic has been added to the cluster's metadata, or removed."""

    at_ms: int
    offset: int
    topic_id: Uuid
    is_there: bool


class DeletionSet(NamedTuple):
    """An entry of the deletion ledger has changed; None = there is none."""

    at_ms: int
    before: DeletionImage | None
    after: DeletionImage | None


class DeletionConfirmed(NamedTuple):
    """The ledger lists a replica as deleted. `left`: what its broker still has of it."""

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    left: tuple[str, ...]


class PartitionDirSeen(NamedTuple):
    """A partition directory has appeared on a disk; not one renamed for deletion."""

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    name: str


class PartitionDirGone(NamedTuple):
    """The last live directory of a replica has been renamed or removed.

    Fields: `in_sync`: the replica is in the ISR. `assigned`: both the metadata and the node's image
            assign it to this node, in sync or not.
    """

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    in_sync: bool
    assigned: bool


class UnfencedWrite(NamedTuple):
    """A client that is not the active controller changed a topic's znodes."""

    at_ms: int
    client: object
    controller_id: int
    changed: tuple[str, ...]


class NodeChanged(NamedTuple):
    """A node has started, serves, was paused or resumed, has crashed or stopped."""

    at_ms: int
    node: int
    incarnation: int
    what: str


class DiskRefused(NamedTuple):
    """A start ended because of what the node's own disk held."""

    at_ms: int
    node: int
    incarnation: int
    reason: str


Observation = (
    QuorumLed
    | PartitionSet
    | MetadataCommitted
    | MetadataHighWatermarkMoved
    | ImagePublished
    | HighWatermarkMoved
    | LeadershipBegan
    | Acknowledged
    | LogOpened
    | RemoteSegmentChanged
    | PartitionFenced
    | NodeChanged
    | DiskRefused
    | UnfencedWrite
    | TopicKnown
    | TopicSet
    | DeletionSet
    | DeletionConfirmed
    | TieringSet
    | PartitionDirSeen
    | PartitionDirGone
)

Observer = Callable[[Any], None]
"""Called with each `Observation`."""


class MetadataWitness:
    """Follows the metadata log of one incarnation of a node, and reports its committed batches."""

    def __init__(
        self,
        storage: QuorumStorage,
        notify: Callable[[LogBatch], None],
        mark: Callable[[str], None],
    ) -> None:
        self._notify = notify
        log = storage.log
        self._batches: deque[LogBatch] = deque(
            batch for batches in read_log(storage, log.start_offset) for batch in batches
        )
        append, truncate_to, restart_at = log.append, log.truncate_to, log.restart_at

        def appended(data: bytes | memoryview) -> None:
            append(data)
            self._batches.extend(_batches_in(bytes(data)))

        def truncated(offset: int) -> None:
            truncate_to(offset)
            mark("metadata-truncated")
            while self._batches and self._batches[-1].next_offset > offset:
                self._batches.pop()

        def restarted(offset: int) -> None:
            restart_at(offset)
            mark("snapshot-adopted")
            self._batches.clear()

        # The log's methods are wrapped: the product has no hook for it.
        watched: Any = log
        watched.append, watched.truncate_to, watched.restart_at = appended, truncated, restarted

    def committed(self, offset: int) -> None:
        """Report all batches up to the one that holds the record at `offset`."""
        while self._batches and self._batches[0].next_offset <= offset + 1:
            self._notify(self._batches.popleft())


_Seen = tuple[PartitionLog | None, LocalLog, LogOffsets, int, int, int]
"""A partition's log and its two parts, the log's end, the high watermark and the leader epoch."""

_NOTHING: Any = None
_UNSEEN: _Seen = (None, _NOTHING, _NOTHING, -1, -1, NO_EPOCH)


@lru_cache(maxsize=1024)
def _batches_in(data: bytes) -> tuple[LogBatch, ...]:
    """Return the batches of an append: all nodes append the same bytes, soon one after another."""
    return tuple(read_batches(data))


class Watch:
    """Inspects one incarnation of a node after each event that it processes."""

    def __init__(
        self,
        core: NodeCore,
        *,
        incarnation: int,
        now_ms: Callable[[], int],
        notify: Observer,
        on_delta: Callable[[ClusterDelta], None],
        mark: Callable[[str], None],
    ) -> None:
        self._core = core
        self._kraft = core.mode if isinstance(core.mode, KRaftMode) else None
        self._node = core.node_id
        self._incarnation = incarnation
        self._now_ms = now_ms
        self._notify = notify
        self._on_delta = on_delta
        self._mark = mark
        self._image: ClusterImage | None = None
        self._topics: frozenset[Uuid] = frozenset()
        self._epoch_led = -1
        self._metadata_watermark: int | None = None
        self._metadata: MetadataWitness | None = None
        self._subscribed = False
        self._hosted: tuple[Partition, ...] = ()
        self._seen: dict[Partition, _Seen] = {}
        """What was seen last of each hosted partition."""
        self._watermarks: dict[tuple[Uuid, int], tuple[int, int]] = {}
        self._ends: dict[tuple[Uuid, int], int] = {}
        self._led: dict[tuple[Uuid, int], int] = {}
        """The last epoch in which this process led each partition."""
        self._logs: dict[tuple[Uuid, int], PartitionLog] = {}

    def opened(self, storage: QuorumStorage) -> None:
        """Follow the metadata log from its first write on."""
        self._metadata = MetadataWitness(storage, self._batch_committed, self._mark)

    def _batch_committed(self, batch: LogBatch) -> None:
        self._notify(MetadataCommitted(self._now_ms(), self._node, self._incarnation, batch))

    def look(self) -> None:
        """Emit observations of what has changed."""
        core = self._core
        controller = None if self._kraft is None else self._kraft.controller
        if controller is not None:
            if not self._subscribed:
                self._subscribed = True
                controller.runtime.follow(self._on_delta)
            raft = controller.log.raft
            if raft.epoch != self._epoch_led and raft.is_leader:
                self._epoch_led = raft.epoch
                self._notify(QuorumLed(self._now_ms(), self._node, self._incarnation, raft.epoch))
            if raft.high_watermark != self._metadata_watermark:
                self._metadata_watermark = offset = raft.high_watermark
                if raft.is_leader and offset is not None:
                    self._notify(
                        MetadataHighWatermarkMoved(
                            self._now_ms(), self._node, self._incarnation, raft.epoch, offset
                        )
                    )
        image = core.image
        if image is not self._image:
            if self._image is None or image.topics is not self._image.topics:
                self._look_at_topics(image)
            self._image = image
            if self._metadata is not None:
                self._metadata.committed(image.position[0])
            self._notify(ImagePublished(self._now_ms(), self._node, self._incarnation, image))
        broker = None if core.broker is None else core.broker.broker
        if broker is not None:
            # After every event: a flush that ends advances a high watermark, too, and a follower
            # may serve a read up to there before its leader gets another request.
            self._look_at_partitions(broker)

    def _look_at_topics(self, image: ClusterImage) -> None:
        before, self._topics = self._topics, frozenset(topic.id for topic in image.topics)
        now_ms, offset = self._now_ms(), image.position[0]
        for topic_id in sorted(before ^ self._topics):
            is_there = topic_id in self._topics
            self._notify(
                TopicKnown(now_ms, self._node, self._incarnation, offset, topic_id, is_there)
            )

    def _look_at_partitions(self, broker: Broker) -> None:
        hosted = broker.replicas.hosted()
        if hosted is not self._hosted:
            self._hosted = hosted
            self._seen = {each: self._seen.get(each, _UNSEEN) for each in hosted}
        # After most events nothing has changed: this loop makes no objects, and calls nothing.
        for partition, (log_seen, local, offsets, end, watermark, epoch) in self._seen.items():
            log = partition.log
            if log is None or (
                log is log_seen
                and local.log_end_offset == end
                and offsets.high_watermark == watermark
                and partition.leader_epoch == epoch
            ):
                continue
            local, offsets = log.local, log.offsets
            self._seen[partition] = (
                log,
                local,
                offsets,
                local.log_end_offset,
                offsets.high_watermark,
                partition.leader_epoch,
            )
            self._look_at_partition(partition, log)

    def _look_at_partition(self, partition: Partition, log: PartitionLog) -> None:
        key = partition.topic_id, partition.partition_id
        if self._logs.get(key) is not log:
            self._logs[key] = log
            self._notify(
                LogOpened(self._now_ms(), self._node, self._incarnation, *key, partition, log)
            )
        end = log.log_end_offset
        if end < self._ends.get(key, 0):
            self._mark("log-truncated")
        self._ends[key] = end
        now = log.high_watermark, partition.leader_epoch
        before = self._watermarks.get(key)
        if before is not None and before[1] != partition.leader_epoch and partition.is_leader:
            self._leadership_began(partition, self._led.get(key, NO_EPOCH))
        if partition.is_leader:
            self._led[key] = partition.leader_epoch
        if before != now:
            self._watermarks[key] = now
            self._notify(
                HighWatermarkMoved(
                    self._now_ms(),
                    self._node,
                    self._incarnation,
                    partition.topic_id,
                    partition.partition_id,
                    partition.leader_epoch,
                    partition.is_leader,
                    log.high_watermark,
                )
            )

    def _leadership_began(self, partition: Partition, former_epoch: int) -> None:
        known = [
            node
            for node, follower in partition.followers.items()
            if follower.log_end_offset != NO_OFFSET
        ]
        self._notify(
            LeadershipBegan(
                self._now_ms(),
                self._node,
                self._incarnation,
                partition.topic_id,
                partition.partition_id,
                former_epoch,
                partition.leader_epoch,
                tuple(known),
            )
        )
