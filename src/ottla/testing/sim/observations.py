"""What a simulation tells about its nodes while it runs: plain values for checkers.

Nodes are watched from outside after everything that they do, so that a change that a node made
and took back within one event is not seen, as no peer can see it either.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.base.ids import Uuid
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.host.node_core import NodeCore
from ottla.host.quorum_replay import read_log
from ottla.host.quorum_storage import QuorumStorage
from ottla.log.partition_log import PartitionLog
from ottla.metadata.deletions import DeletionImage
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.raft.batches import LogBatch, read_batches


class QuorumLed(NamedTuple):
    """A controller leads the metadata quorum from now on."""

    at_ms: int
    node: int
    life: int
    epoch: int


class PartitionSet(NamedTuple):
    """A committed metadata record made a partition what `state` says."""

    at_ms: int
    offset: int
    topic: str
    topic_id: Uuid
    partition: int
    state: PartitionImage


class MetadataCommitted(NamedTuple):
    """A node takes a batch of the metadata log for committed."""

    at_ms: int
    node: int
    life: int
    batch: LogBatch


class ImagePublished(NamedTuple):
    """A node's committed metadata has changed."""

    at_ms: int
    node: int
    life: int
    image: ClusterImage


class HighWatermarkMoved(NamedTuple):
    """A replica's high watermark is another one; `leads`: it is the leader's, in its own eyes."""

    at_ms: int
    node: int
    life: int
    topic_id: Uuid
    partition: int
    epoch: int
    leads: bool
    offset: int


class Acknowledged(NamedTuple):
    """A leader says that a batch is kept. `acks`: what the client asked for; `epoch`: its own."""

    at_ms: int
    node: int
    life: int
    topic_id: Uuid
    partition: int
    epoch: int
    offset: int
    crc: int
    acks: int


class LogOpened(NamedTuple):
    """A partition has another log than before: the one that its node writes from now on."""

    at_ms: int
    node: int
    life: int
    topic_id: Uuid
    partition: int
    hosted: Partition
    log: PartitionLog


class TopicKnown(NamedTuple):
    """A topic has come or gone for a node; `offset`: the position of what it knows."""

    at_ms: int
    node: int
    life: int
    offset: int
    topic_id: Uuid
    is_there: bool


class TopicSet(NamedTuple):
    """A topic has come to the cluster's metadata, or left it."""

    at_ms: int
    offset: int
    topic_id: Uuid
    is_there: bool


class DeletionSet(NamedTuple):
    """An entry of the ledger of deletions is another one now; None = there is none."""

    at_ms: int
    before: DeletionImage | None
    after: DeletionImage | None


class DeletionConfirmed(NamedTuple):
    """The ledger calls a replica deleted. `left`: what its broker has of it all the same."""

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    left: tuple[str, ...]


class FolderSeen(NamedTuple):
    """A disk holds a folder of a replica that it did not hold; not one on its way out."""

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    name: str


class FolderGone(NamedTuple):
    """The last folder that a replica is served from has another name now, or none.

    Fields: `in_sync`: the metadata counts on this replica. `assigned`: the metadata has it on this
            node, in sync or not, and so has what the node itself knows of them.
    """

    at_ms: int
    node: int
    topic_id: Uuid
    partition: int
    in_sync: bool
    assigned: bool


class UnfencedWrite(NamedTuple):
    """A topic's znodes were changed by somebody else than the ruling controller."""

    at_ms: int
    client: object
    ruler: int
    changed: tuple[str, ...]


class NodeChanged(NamedTuple):
    """A node has started, serves, was paused or resumed, has crashed or stopped."""

    at_ms: int
    node: int
    life: int
    what: str


class DiskRefused(NamedTuple):
    """A start ended because of what the node's own disk held."""

    at_ms: int
    node: int
    life: int
    reason: str


Observation = (
    QuorumLed
    | PartitionSet
    | MetadataCommitted
    | ImagePublished
    | HighWatermarkMoved
    | Acknowledged
    | LogOpened
    | NodeChanged
    | DiskRefused
    | UnfencedWrite
    | TopicKnown
    | TopicSet
    | DeletionSet
    | DeletionConfirmed
    | FolderSeen
    | FolderGone
)

Observer = Callable[[Any], None]
"""Called with each `Observation`."""


class MetadataWitness:
    """Which batches one life of a node holds of the metadata log, and how far it commits them."""

    def __init__(
        self,
        storage: QuorumStorage,
        tell: Callable[[LogBatch], None],
        mark: Callable[[str], None],
    ) -> None:
        self._tell = tell
        log = storage.log
        self._batches: deque[LogBatch] = deque(
            batch for batches in read_log(storage, log.start_offset) for batch in batches
        )
        append, truncate_to, restart_at = log.append, log.truncate_to, log.restart_at

        def appended(data: bytes | memoryview) -> None:
            append(data)
            self._batches.extend(read_batches(data))

        def truncated(offset: int) -> None:
            truncate_to(offset)
            mark("metadata-truncated")
            while self._batches and self._batches[-1].next_offset > offset:
                self._batches.pop()

        def restarted(offset: int) -> None:
            restart_at(offset)
            mark("snapshot-adopted")
            self._batches.clear()

        # The log is watched where it is written: nothing of the product knows of it.
        watched: Any = log
        watched.append, watched.truncate_to, watched.restart_at = appended, truncated, restarted

    def committed(self, offset: int) -> None:
        """Tell of all batches up to the one that holds the record at `offset`."""
        while self._batches and self._batches[0].next_offset <= offset + 1:
            self._tell(self._batches.popleft())


class Watch:
    """Looks at one life of a node after everything that it does."""

    def __init__(
        self,
        core: NodeCore,
        *,
        life: int,
        now_ms: Callable[[], int],
        tell: Observer,
        on_delta: Callable[[ClusterDelta], None],
        mark: Callable[[str], None],
    ) -> None:
        self._core = core
        self._node = core.node_id
        self._life = life
        self._now_ms = now_ms
        self._tell = tell
        self._on_delta = on_delta
        self._mark = mark
        self._image: ClusterImage | None = None
        self._topics: frozenset[Uuid] = frozenset()
        self._epoch_led = -1
        self._metadata: MetadataWitness | None = None
        self._subscribed = False
        self._seen: dict[Partition, tuple[PartitionLog, int, int, int]] = {}
        """Of each hosted partition the log, its end, the high watermark and the leader epoch."""
        self._watermarks: dict[tuple[Uuid, int], tuple[int, int]] = {}
        self._ends: dict[tuple[Uuid, int], int] = {}
        self._logs: dict[tuple[Uuid, int], PartitionLog] = {}
        self.touched = False
        """Whether requests or answers came that may have moved a high watermark."""

    def opened(self, storage: QuorumStorage) -> None:
        """Look at the metadata log from its first write on."""
        self._metadata = MetadataWitness(storage, self._batch_committed, self._mark)

    def _batch_committed(self, batch: LogBatch) -> None:
        self._tell(MetadataCommitted(self._now_ms(), self._node, self._life, batch))

    def look(self) -> None:
        """Tell what has changed."""
        core = self._core
        controller = core.controller
        if controller is not None:
            runtime = controller.runtime
            if not self._subscribed:
                self._subscribed = True
                runtime.subscribe(self._on_delta)
            raft = runtime.raft
            if raft.epoch != self._epoch_led and raft.is_leader:
                self._epoch_led = raft.epoch
                self._tell(QuorumLed(self._now_ms(), self._node, self._life, raft.epoch))
        image = core.image
        if image is not self._image:
            if self._image is None or image.topics is not self._image.topics:
                self._look_at_topics(image)
            self._image = image
            if self._metadata is not None:
                self._metadata.committed(image.position[0])
            self._tell(ImagePublished(self._now_ms(), self._node, self._life, image))
            self.touched = True
        if self.touched:
            self.touched = False
            broker = None if core.broker is None else core.broker.broker
            if broker is not None:
                self._look_at_partitions(broker)

    def _look_at_topics(self, image: ClusterImage) -> None:
        before, self._topics = self._topics, frozenset(topic.id for topic in image.topics)
        now_ms, offset = self._now_ms(), image.position[0]
        for topic_id in sorted(before ^ self._topics):
            is_there = topic_id in self._topics
            self._tell(TopicKnown(now_ms, self._node, self._life, offset, topic_id, is_there))

    def _look_at_partitions(self, broker: Broker) -> None:
        seen = self._seen
        for partition in broker.replicas.hosted():
            log = partition.log
            if log is None:
                continue
            now = log, log.log_end_offset, log.high_watermark, partition.leader_epoch
            if seen.get(partition) != now:
                seen[partition] = now
                self._look_at_partition(partition, log)

    def _look_at_partition(self, partition: Partition, log: PartitionLog) -> None:
        key = partition.topic_id, partition.partition_id
        if self._logs.get(key) is not log:
            self._logs[key] = log
            self._tell(LogOpened(self._now_ms(), self._node, self._life, *key, partition, log))
        end = log.log_end_offset
        if end < self._ends.get(key, 0):
            self._mark("log-truncated")
        self._ends[key] = end
        now = log.high_watermark, partition.leader_epoch
        if self._watermarks.get(key) != now:
            self._watermarks[key] = now
            self._tell(
                HighWatermarkMoved(
                    self._now_ms(),
                    self._node,
                    self._life,
                    partition.topic_id,
                    partition.partition_id,
                    partition.leader_epoch,
                    partition.is_leader,
                    log.high_watermark,
                )
            )
