"""What the controller of a cluster whose brokers are told by requests knows while it tells them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.ids import NO_UUID, Uuid
from ottla.controller.inter_broker_protocol import LATEST, Level
from ottla.controller.keys import PartitionKey, ReplicaKey
from ottla.controller.previous_broker_epochs import PreviousEpochs
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import DIRECTORY_LOST, PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """A cluster whose brokers are told by requests, as its controller sees it.

    `previous_epochs`: what is over of that which the image says of leaders.
    """

    image: ClusterImage
    controller_id: int
    controller_epoch: int
    level: Level = LATEST
    inter_broker_listener: str = "PLAINTEXT"
    previous_epochs: PreviousEpochs = field(default_factory=dict)

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        """Return the brokers that are alive, those that shut down among them."""
        return self.image.brokers

    def topic_id(self, topic: str) -> Uuid:
        """Return a topic's id; zero where it has none."""
        return self.image.topics.id_of(topic) or NO_UUID

    def live_or_shutting_down_ids(self) -> list[int]:
        """Return all brokers that can be reached, in order."""
        return self.image.broker_ids()

    def is_online(self, replica: ReplicaKey) -> bool:
        """Tell whether a replica's broker lives and stays, and its folder works."""
        topic = self.image.topics.by_name(replica.topic)
        partition = None if topic is None else topic.partitions.get(replica.partition)
        return self.image.is_active(replica.broker_id) and not (
            partition is not None
            and replica.broker_id in partition.replicas
            and partition.directory(replica.broker_id) == DIRECTORY_LOST
        )

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Tell whether brokers are to hear of a topic as of one that goes."""
        topic_id = self.image.topics.id_of(topic)
        return topic_id is not None and self.image.deletions.is_being_deleted(topic_id)

    def is_leader_stale(self, key: PartitionKey, partition: PartitionImage) -> bool:
        """Tell whether the leader that a partition names was another process."""
        if not self.previous_epochs:
            return False
        topic_id = self.topic_id(key.topic)
        return self.previous_epochs.get((topic_id, key.partition)) == partition.leader_epoch
