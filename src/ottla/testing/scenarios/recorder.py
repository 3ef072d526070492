"""Turns the observations of a simulation into a history for checkers.

Metadata is observed batch by batch, as the bytes that a node holds. The first time a batch is seen
committed, its records are applied to partitions one by one: an image shows only the effect of a
whole batch. Images are kept for the newest offsets only, and compared with the first one at the
same offset.
"""

from functools import lru_cache
from hashlib import sha256

from ottla.base.ids import NO_EPOCH
from ottla.metadata.brokers import BrokerImage, broker_of, changed_broker
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
    decode_record,
)
from ottla.metadata.topics import changed_partition, partition_of
from ottla.raft.batches import LogBatch
from ottla.testing.history.history import (
    Acknowledgement,
    Committed,
    History,
    ImageSeen,
    LeaderTerm,
    PartitionDirAppeared,
    PartitionSeen,
    PowerLoss,
    ReplicaConfirmed,
    ReplicaSetAside,
    TopicSeen,
)
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim.watch import observations as seen

IMAGES_KEPT = 256
"""Offsets whose images are kept: nodes that lag further behind are not compared."""

ACKS_ALL = -1


class Recorder:
    """Writes a history. `unclean`: elections outside the in-sync replicas are allowed here.

    `zookeeper`: partition states come from znodes, zxids replace offsets, and the offset of a
    node's image counts the updates that this node received: images are not compared.
    """

    def __init__(self, history: History, *, unclean: bool = False, zookeeper: bool = False) -> None:
        self.history = history
        self._unclean = unclean
        self._zookeeper = zookeeper
        self._images: dict[int, list[ClusterImage]] = {}
        self._next_offset = 0
        self._partitions: dict[TopicPartition, PartitionImage] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._brokers: dict[int, BrokerImage] = {}

    def observe(self, observation: seen.Observation) -> None:
        """Record one observation."""
        # The most frequent ones first.
        match observation:
            case seen.HighWatermarkMoved():
                self._led(observation)
            case seen.Acknowledged():
                self._acknowledged(observation)
            case seen.MetadataCommitted():
                self._committed(observation)
            case seen.ImagePublished():
                if not self._zookeeper:
                    self._image(observation)
            case seen.PartitionSet():
                if self._zookeeper and observation.state.leader_epoch != NO_EPOCH:
                    key = (observation.topic_id, observation.partition)
                    self._partition(key, observation.state, observation.offset, observation.at_ms)
            case seen.UnfencedWrite():
                text = (
                    f"{observation.client} changed {', '.join(observation.changed)} while node "
                    f"{observation.controller_id} was the controller"
                )
                self.history.unfenced.append((observation.at_ms, text))
            case seen.TopicSet() | seen.TopicKnown():
                self._topic(observation)
            case seen.DeletionConfirmed():
                key = (observation.topic_id, observation.partition)
                self.history.confirmed.append(
                    ReplicaConfirmed(observation.node, key, observation.left, observation.at_ms)
                )
            case seen.PartitionDirSeen():
                key = (observation.topic_id, observation.partition)
                self.history.partition_dirs.append(
                    PartitionDirAppeared(observation.node, key, observation.name, observation.at_ms)
                )
            case seen.PartitionDirGone():
                key = (observation.topic_id, observation.partition)
                self.history.set_aside.append(
                    ReplicaSetAside(
                        observation.node,
                        key,
                        observation.in_sync,
                        observation.assigned,
                        observation.at_ms,
                    )
                )
            case seen.NodeChanged(what="lost power"):
                self.history.losses.append(PowerLoss(observation.node, observation.at_ms))
            case seen.QuorumLed():
                self.history.leader_terms.append(
                    LeaderTerm(observation.node, None, observation.epoch, observation.at_ms)
                )

    def _led(self, moved: seen.HighWatermarkMoved) -> None:
        """Record whether a replica leads, and how far a leader has committed."""
        key = (moved.topic_id, moved.partition)
        epoch = moved.epoch if moved.leads else NO_EPOCH
        epochs = self.history.groups.epochs_led.setdefault((moved.node, key), [])
        if not epochs or epochs[-1][1] != epoch:
            epochs.append((moved.at_ms, epoch))
        if moved.leads:
            known = self.history.groups.high_watermarks.setdefault(key, [])
            if not known or known[-1][1] < moved.offset:
                known.append((moved.at_ms, moved.offset))

    def _topic(self, observation: seen.TopicSet | seen.TopicKnown) -> None:
        if isinstance(observation, seen.TopicSet):
            known = TopicSeen(
                observation.topic_id,
                observation.is_there,
                offset=observation.offset,
                at_ms=observation.at_ms,
            )
        else:
            offset = -1 if self._zookeeper else observation.offset
            known = TopicSeen(
                observation.topic_id,
                observation.is_there,
                observation.node,
                observation.incarnation,
                offset,
                observation.at_ms,
            )
        self.history.topics_seen.append(known)

    def _acknowledged(self, observation: seen.Acknowledged) -> None:
        if observation.acks != ACKS_ALL:
            return
        self.history.acknowledgements.append(
            Acknowledgement(
                observation.node,
                (observation.topic_id, observation.partition),
                observation.epoch,
                observation.offset,
                observation.crc,
                observation.at_ms,
            )
        )

    def _image(self, observation: seen.ImagePublished) -> None:
        offset = observation.image.position[0]
        known = self._images.setdefault(offset, [])
        if any(image is observation.image or image == observation.image for image in known[:1]):
            return
        known.append(observation.image)
        if len(known) == 1:
            if len(self._images) > IMAGES_KEPT:
                del self._images[min(self._images)]
            return
        # Only images that differ are recorded, with the one they differ from.
        self.history.images += [
            ImageSeen(-1, offset, "the first one", observation.at_ms),
            ImageSeen(observation.node, offset, "another one", observation.at_ms),
        ]

    def _committed(self, observation: seen.MetadataCommitted) -> None:
        batch = observation.batch
        self.history.metadata.append(
            Committed(
                observation.node,
                observation.incarnation,
                batch.base_offset,
                batch.epoch,
                _content(batch),
                observation.at_ms,
            )
        )
        if batch.base_offset < self._next_offset:
            return
        self._next_offset = batch.next_offset
        for offset, value in enumerate(batch.values, batch.base_offset):
            match decode_record(value):
                case PartitionRecord() as record:
                    key = (record.topic_id, record.partition_id)
                    self._partition(key, partition_of(record), offset, observation.at_ms)
                case PartitionChangeRecord() as change:
                    key = (change.topic_id, change.partition_id)
                    before = self._partitions.get(key)
                    if before is not None:  # Else the log differs, which a checker finds.
                        after = changed_partition(before, change)
                        self._partition(key, after, offset, observation.at_ms)
                case RegisterBrokerRecord() as registration:
                    self._brokers[registration.broker_id] = broker_of(registration)
                case BrokerRegistrationChangeRecord() as change if (
                    change.broker_id in self._brokers
                ):
                    broker = self._brokers[change.broker_id]
                    self._brokers[change.broker_id] = changed_broker(broker, change)
                case UnregisterBrokerRecord() as gone:
                    self._brokers.pop(gone.broker_id, None)
                case RemoveTopicRecord() as removal:
                    for key in [each for each in self._partitions if each[0] == removal.topic_id]:
                        del self._partitions[key]
                        self._leaders.pop(key, None)

    def _partition(
        self, key: TopicPartition, state: PartitionImage, offset: int, at_ms: int
    ) -> None:
        self._partitions[key] = state
        inactive: tuple[int, ...] = ()
        if not self._zookeeper:
            active = {each.id for each in self._brokers.values() if each.active}
            inactive = tuple(each for each in state.isr if each not in active)
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
                inactive=inactive,
                at_ms=at_ms,
            )
        )
        if state.leader >= 0 and self._leaders.get(key) != state.leader:
            self._leaders[key] = state.leader
            self.history.leader_terms.append(
                LeaderTerm(state.leader, key, state.leader_epoch, at_ms)
            )


@lru_cache(maxsize=1024)
def _content(batch: LogBatch) -> str:
    """Return a hash of a batch. Each node commits the same ones, soon one after another."""
    digest = sha256(f"{batch.next_offset} {batch.timestamp} {len(batch.values)}".encode())
    for value in batch.values:
        digest.update(value)
    for record in batch.control:
        digest.update(record.value or b"")
    return digest.hexdigest()[:16]
