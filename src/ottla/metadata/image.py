"""The cluster's state as one persistent value, changed only by replaying records.

An old image stays valid and shares what did not change with the new one: deciders, brokers and
fetch sessions hold on to images without copies or locks. A snapshot is `to_records()`; replaying
that on `EMPTY` gives an equal image (`delta.replay`).
Source: MetadataImage, Kafka 4.0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from ottla.base.ids import NO_EPOCH, NO_LEADER, NO_OFFSET, Uuid
from ottla.metadata import brokers, controllers
from ottla.metadata.brokers import BrokerImage, Endpoint, FeatureRange
from ottla.metadata.configs import ALL_BROKERS, ConfigsImage, ResourceType
from ottla.metadata.controllers import ControllerImage
from ottla.metadata.deletions import DeletionsImage, deletion_records
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord, ProducerIdsRecord, Record
from ottla.metadata.tiering import TopicTiering, tiering_record
from ottla.metadata.topics import PartitionImage, TopicImage, TopicsImage, topic_records

NOWHERE: Final = (NO_OFFSET, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """The producer ids handed out so far (KIP-730).

    All below `next_producer_id` belong to some broker's block.
    """

    next_producer_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All facts, as of `position`: offset and epoch of the last record that made it."""

    features: Map[str, int] = field(default_factory=Map)
    """Finalized levels by feature name."""
    brokers: Map[int, BrokerImage] = field(default_factory=Map)
    controllers: Map[int, ControllerImage] = field(default_factory=Map)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    deletions: DeletionsImage = field(default_factory=DeletionsImage)
    tiering: Map[Uuid, TopicTiering] = field(default_factory=Map)
    """By topic id, of existing topics that have or had remote storage."""
    position: tuple[int, int] = NOWHERE

    def broker_ids(self) -> list[int]:
        """Return the ids of all registered brokers, in order."""
        return sorted(self.brokers)

    def is_active(self, broker_id: int) -> bool:
        """Tell whether a broker is there, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def is_queued_for_deletion(self, topic_name: str) -> bool:
        """Tell whether an existing topic is queued for deletion: it must not be changed."""
        topic_id = self.topics.id_of(topic_name)
        return topic_id is not None and self.deletions.is_queued(topic_id)

    def is_being_deleted(self, topic_name: str) -> bool:
        """Tell whether replicas of an existing topic are being deleted: it is not served."""
        topic_id = self.topics.id_of(topic_name)
        return topic_id is not None and self.deletions.is_being_deleted(topic_id)

    def has_remote_log(self, topic_name: str) -> bool:
        """Tell whether a topic may have segments in remote storage that are read."""
        topic_id = self.topics.id_of(topic_name)
        tiering = None if topic_id is None else self.tiering.get(topic_id)
        return tiering is not None and tiering.has_remote_log

    def copies_segments(self, topic_name: str) -> bool:
        """Tell whether leaders copy a topic's segments to remote storage."""
        topic_id = self.topics.id_of(topic_name)
        tiering = None if topic_id is None else self.tiering.get(topic_id)
        return tiering is not None and tiering.copies

    def to_records(self) -> Iterator[Record]:
        """Yield records that lead from `EMPTY` to this image.

        The metadata version comes first: the encoding of the rest depends on it.
        """
        names = sorted(self.features, key=lambda name: (name != METADATA_VERSION, name))
        for name in names:
            yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        for _, broker in sorted(self.brokers.items()):
            yield brokers.record_of(broker)
        for _, controller in sorted(self.controllers.items()):
            yield controllers.record_of(controller)
        for topic in self.topics:
            yield from topic_records(topic)
        for (resource_type, resource_name), values in self.configs:
            for name in sorted(values):
                yield ConfigRecord(
                    resource_type=resource_type,
                    resource_name=resource_name,
                    name=name,
                    value=values[name],
                )
        if self.producer_ids.next_producer_id:
            # The broker of the block is not kept: nothing needs it.
            yield ProducerIdsRecord(
                broker_id=-1, next_producer_id=self.producer_ids.next_producer_id
            )
        for deletion in self.deletions:
            yield from deletion_records(deletion)
        for _, tiering in sorted(self.tiering.items()):
            yield tiering_record(tiering)


EMPTY: Final = ClusterImage()

__all__ = [
    "ALL_BROKERS",
    "EMPTY",
    "NOWHERE",
    "NO_LEADER",
    "BrokerImage",
    "ClusterImage",
    "ConfigsImage",
    "ControllerImage",
    "Endpoint",
    "FeatureRange",
    "PartitionImage",
    "ProducerIdsImage",
    "ResourceType",
    "TopicImage",
    "TopicsImage",
]
