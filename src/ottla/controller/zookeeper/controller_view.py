"""The state from which a controller builds requests for its brokers (ZooKeeper mode)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.ids import NO_UUID, Uuid
from ottla.controller.keys import PartitionKey, ReplicaKey
from ottla.controller.zookeeper.inter_broker_protocol import LATEST, Level
from ottla.controller.zookeeper.previous_broker_epochs import PreviousEpochs
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import DIRECTORY_LOST, PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """The cluster as its controller sees it when it builds requests (Kafka's ControllerContext).

    `previous_epochs`: leader epochs of the image whose leader has restarted since.
    """

    image: ClusterImage
    controller_id: int
    controller_epoch: int
    level: Level = LATEST
    inter_broker_listener: str = "PLAINTEXT"
    previous_epochs: PreviousEpochs = field(default_factory=dict)

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        """Return the live brokers, those in controlled shutdown among them."""
        return self.image.brokers

    def topic_id(self, topic: str) -> Uuid:
        """Return a topic's id; zero where it has none."""
        return self.image.topics.id_of(topic) or NO_UUID

    def live_or_shutting_down_ids(self) -> list[int]:
        """Return all brokers that can be reached, in order."""
        return self.image.broker_ids()

    def is_online(self, replica: ReplicaKey) -> bool:
        """Tell whether a replica's broker is active and its log directory works."""
        topic = self.image.topics.by_name(replica.topic)
        partition = None if topic is None else topic.partitions.get(replica.partition)
        return self.image.is_active(replica.broker_id) and not (
            partition is not None
            and replica.broker_id in partition.replicas
            and partition.directory(replica.broker_id) == DIRECTORY_LOST
        )

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Tell whether brokers must treat a topic as being deleted."""
        topic_id = self.image.topics.id_of(topic)
        return topic_id is not None and self.image.deletions.is_being_deleted(topic_id)

    def is_leader_stale(self, key: PartitionKey, partition: PartitionImage) -> bool:
        """Tell whether the leader of a partition has restarted since its election."""
        if not self.previous_epochs:
            return False
        topic_id = self.topic_id(key.topic)
        return self.previous_epochs.get((topic_id, key.partition)) == partition.leader_epoch
