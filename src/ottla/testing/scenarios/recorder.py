"""From what a simulation tells of its nodes to a history that checkers read.

Metadata is told batch by batch, as the bytes that a node holds. The first node that takes a batch
for committed also tells what it does to partitions, record by record: an image shows only what
a whole batch amounts to. Images are kept for the newest offsets only, and compared with the first
that was seen at the same offset.
"""

from hashlib import sha256

from ottla.base.ids import NO_EPOCH, OFFSETS_TOPIC
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    decode_record,
)
from ottla.metadata.topics import TopicImage, changed_partition, partition_of
from ottla.raft.batches import LogBatch
from ottla.testing.history import (
    Acknowledgement,
    Committed,
    History,
    ImageSeen,
    LeaderTerm,
    PartitionDirAppeared,
    PartitionSeen,
    ReplicaConfirmed,
    ReplicaSetAside,
    TopicPartition,
    TopicSeen,
)
from ottla.testing.sim import observations as seen

IMAGES_KEPT = 256
"""Offsets whose images are remembered: as many as a node may lag behind to be compared."""

ACKS_ALL = -1


class Recorder:
    """Writes a history. `unclean`: elections outside the in-sync replicas are allowed here.

    `zookeeper`: partitions are what their znodes say, zxids count instead of offsets, and each
    node's image is its own: what it was told, at positions that nobody else counts by.
    """

    def __init__(self, history: History, *, unclean: bool = False, zookeeper: bool = False) -> None:
        self.history = history
        self._unclean = unclean
        self._zookeeper = zookeeper
        self._images: dict[int, list[ClusterImage]] = {}
        self._next_offset = 0
        self._partitions: dict[TopicPartition, PartitionImage] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._offsets_topics: dict[int, TopicImage] = {}

    def observe(self, told: seen.Observation) -> None:
        """Take one observation."""
        match told:
            case seen.Acknowledged():
                self._acknowledged(told)
            case seen.MetadataCommitted():
                self._committed(told)
            case seen.ImagePublished():
                self._coordinators(told)
                if not self._zookeeper:
                    self._image(told)
            case seen.PartitionSet():
                if self._zookeeper and told.state.leader_epoch != NO_EPOCH:
                    key = (told.topic_id, told.partition)
                    self._partition(key, told.state, told.offset, told.at_ms)
            case seen.UnfencedWrite():
                text = (
                    f"{told.client} changed {', '.join(told.changed)} while node "
                    f"{told.controller_id} was the controller"
                )
                self.history.unfenced.append((told.at_ms, text))
            case seen.TopicSet() | seen.TopicKnown():
                self._topic(told)
            case seen.DeletionConfirmed():
                key = (told.topic_id, told.partition)
                self.history.confirmed.append(
                    ReplicaConfirmed(told.node, key, told.left, told.at_ms)
                )
            case seen.HighWatermarkMoved():
                if told.leads:
                    self._committed_up_to((told.topic_id, told.partition), told.offset, told.at_ms)
            case seen.PartitionDirSeen():
                key = (told.topic_id, told.partition)
                self.history.partition_dirs.append(
                    PartitionDirAppeared(told.node, key, told.name, told.at_ms)
                )
            case seen.PartitionDirGone():
                key = (told.topic_id, told.partition)
                self.history.set_aside.append(
                    ReplicaSetAside(told.node, key, told.in_sync, told.assigned, told.at_ms)
                )
            case seen.NodeChanged(what="lost power"):
                self.history.losses.append(told.at_ms)
            case seen.QuorumLed():
                self.history.leader_terms.append(
                    LeaderTerm(told.node, None, told.epoch, told.at_ms)
                )

    def _coordinators(self, told: seen.ImagePublished) -> None:
        """Note who leads __consumer_offsets, as far as a node knows."""
        topic = told.image.topics.by_name(OFFSETS_TOPIC)
        if topic is None or topic is self._offsets_topics.get(told.node):
            return
        self._offsets_topics[told.node] = topic
        for number, state in topic.in_order():
            key = (told.node, (topic.id, number))
            known = self.history.groups.known_leaders.setdefault(key, [])
            if not known or known[-1][1:] != (state.leader, state.leader_epoch):
                known.append((told.at_ms, state.leader, state.leader_epoch))

    def _committed_up_to(self, key: TopicPartition, offset: int, at_ms: int) -> None:
        known = self.history.groups.high_watermarks.setdefault(key, [])
        if not known or known[-1][1] < offset:
            known.append((at_ms, offset))

    def _topic(self, told: seen.TopicSet | seen.TopicKnown) -> None:
        if isinstance(told, seen.TopicSet):
            known = TopicSeen(told.topic_id, told.is_there, offset=told.offset, at_ms=told.at_ms)
        else:
            offset = -1 if self._zookeeper else told.offset
            known = TopicSeen(
                told.topic_id, told.is_there, told.node, told.incarnation, offset, told.at_ms
            )
        self.history.topics_seen.append(known)

    def _acknowledged(self, told: seen.Acknowledged) -> None:
        if told.acks != ACKS_ALL:
            return
        self.history.acknowledgements.append(
            Acknowledgement(
                told.node,
                (told.topic_id, told.partition),
                told.epoch,
                told.offset,
                told.crc,
                told.at_ms,
            )
        )

    def _image(self, told: seen.ImagePublished) -> None:
        offset = told.image.position[0]
        known = self._images.setdefault(offset, [])
        if any(image is told.image or image == told.image for image in known[:1]):
            return
        known.append(told.image)
        if len(known) == 1:
            if len(self._images) > IMAGES_KEPT:
                del self._images[min(self._images)]
            return
        # Only what differs is worth telling, and against what it does.
        self.history.images += [
            ImageSeen(-1, offset, "the first one", told.at_ms),
            ImageSeen(told.node, offset, "another one", told.at_ms),
        ]

    def _committed(self, told: seen.MetadataCommitted) -> None:
        batch = told.batch
        self.history.metadata.append(
            Committed(
                told.node,
                told.incarnation,
                batch.base_offset,
                batch.epoch,
                _content(batch),
                told.at_ms,
            )
        )
        if batch.base_offset < self._next_offset:
            return
        self._next_offset = batch.next_offset
        for offset, value in enumerate(batch.values, batch.base_offset):
            match decode_record(value):
                case PartitionRecord() as record:
                    key = (record.topic_id, record.partition_id)
                    self._partition(key, partition_of(record), offset, told.at_ms)
                case PartitionChangeRecord() as change:
                    key = (change.topic_id, change.partition_id)
                    before = self._partitions.get(key)
                    if before is not None:  # Else it is of another log, which a checker tells.
                        after = changed_partition(before, change)
                        self._partition(key, after, offset, told.at_ms)
                case RemoveTopicRecord() as removal:
                    for key in [each for each in self._partitions if each[0] == removal.topic_id]:
                        del self._partitions[key]
                        self._leaders.pop(key, None)

    def _partition(
        self, key: TopicPartition, state: PartitionImage, offset: int, at_ms: int
    ) -> None:
        self._partitions[key] = state
        self.history.partitions.append(
            PartitionSeen(
                partition=key,
                offset=offset,
                replicas=state.replicas,
                isr=state.isr,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                elr=state.elr,
                last_known=state.last_known_elr,
                unclean=self._unclean,
                at_ms=at_ms,
            )
        )
        if state.leader >= 0 and self._leaders.get(key) != state.leader:
            self._leaders[key] = state.leader
            self.history.leader_terms.append(
                LeaderTerm(state.leader, key, state.leader_epoch, at_ms)
            )


def _content(batch: LogBatch) -> str:
    """Return what tells one batch from another."""
    digest = sha256(f"{batch.next_offset} {batch.timestamp} {len(batch.values)}".encode())
    for value in batch.values:
        digest.update(value)
    for record in batch.control:
        digest.update(record.value or b"")
    return digest.hexdigest()[:16]
