"""From one image to the next: by records, or by comparison where a snapshot replaced the log.

`replay` never refuses: a record in the log is a fact, and a decider has validated it.
A record that cannot be applied means a broken log, and is an assertion error.
Source: MetadataDelta and the deltas of its nouns, Kafka 4.0.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from immutables import Map

from ottla.base.ids import Uuid
from ottla.metadata.brokers import BrokerImage, broker_of, changed_broker
from ottla.metadata.configs import Resource, ResourceType
from ottla.metadata.controllers import controller_of
from ottla.metadata.deletions import deletion_of, status_of
from ottla.metadata.image import ClusterImage, ProducerIdsImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    DeletionRecord,
    DeletionReplicasRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    ForgetDeletionRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    TopicTieringRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.tiering import tiering_of
from ottla.metadata.topics import (
    PartitionImage,
    TopicImage,
    changed_partition,
    partition_of,
)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic before and after, and the ids of its partitions that were added or changed."""

    old: TopicImage
    new: TopicImage
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDelta:
    """What happened between `before` and `image`.

    Topics are keyed by id, so one that was deleted and made again under its name is in both
    `deleted_topics` and `created_topics`: delete first. One that came and went in between is
    in neither. The mappings are in order of the topics' names.
    """

    before: ClusterImage
    image: ClusterImage
    created_topics: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    changed_topics: Mapping[Uuid, TopicChange] = field(default_factory=dict)
    deleted_topics: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    changed_configs: frozenset[Resource] = frozenset()
    changed_brokers: frozenset[int] = frozenset()
    changed_features: frozenset[str] = frozenset()
    changed_deletions: frozenset[Uuid] = frozenset()
    """Topics whose entry in the deletion ledger came, changed or went."""
    changed_tiering: frozenset[Uuid] = frozenset()
    """Topics whose tiering state came, changed or went; they need not be in the other sets."""


class _Replay:
    """An image under change, and what was touched."""

    def __init__(self, image: ClusterImage) -> None:
        self.before = image
        self.features = image.features
        self.brokers = image.brokers.mutate()
        self.controllers = image.controllers
        self.topics = image.topics
        self.configs = image.configs
        self.producer_ids = image.producer_ids
        self.deletions = image.deletions
        self.tiering = image.tiering
        self.touched_partitions: dict[Uuid, set[int]] = {}
        self.touched_configs: set[Resource] = set()
        self.touched_brokers: set[int] = set()
        self.touched_features: set[str] = set()
        self.touched_deletions: set[Uuid] = set()
        self.touched_tiering: set[Uuid] = set()
        self.open_topics: dict[Uuid, tuple[TopicImage, Any]] = {}
        """Each with its partitions, as a mutable map."""

    # Records about partitions are applied to mutable maps, and new values are made once for all of
    # them: creating a topic of 10,000 partitions would make 10,000 images otherwise.

    def _open(self, topic_id: Uuid) -> Any:
        known = self.open_topics.get(topic_id)
        if known is not None:
            return known[1]
        topic = self.topics.by_id(topic_id)
        assert topic is not None, "a record about a topic that does not exist"
        partitions = topic.partitions.mutate()
        self.open_topics[topic_id] = topic, partitions
        return partitions

    def _close(self) -> None:
        for topic, partitions in self.open_topics.values():
            closed = replace(topic, partitions=partitions.finish())
            self.topics = self.topics.with_topic(closed)
        self.open_topics.clear()

    def topic(self, record: TopicRecord) -> None:
        self._close()
        self.topics = self.topics.with_topic(TopicImage(name=record.name, id=record.topic_id))
        self.touched_partitions.setdefault(record.topic_id, set())

    def partition(self, record: PartitionRecord) -> None:
        self._open(record.topic_id)[record.partition_id] = partition_of(record)
        self.touched_partitions.setdefault(record.topic_id, set()).add(record.partition_id)

    def partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._open(record.topic_id)
        before: PartitionImage = partitions[record.partition_id]
        partitions[record.partition_id] = changed_partition(before, record)
        self.touched_partitions.setdefault(record.topic_id, set()).add(record.partition_id)

    def clear_elr(self, record: ClearElrRecord) -> None:
        self._close()
        named = self.topics.by_name(record.topic_name) if record.topic_name else None
        assert named is not None or not record.topic_name, "a record about an unknown topic"
        for topic in self.topics if named is None else (named,):
            for partition_id, partition in topic.in_order():
                if partition.elr or partition.last_known_elr:
                    forgotten = PartitionChangeRecord(
                        partition_id=partition_id,
                        topic_id=topic.id,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )
                    self.partition_change(forgotten)
        self._close()

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        self._close()
        topic = self.topics.by_id(record.topic_id)
        assert topic is not None, "a topic is removed that does not exist"
        self.topics = self.topics.without(topic.id)
        self.touched_partitions.setdefault(topic.id, set())
        resource = (int(ResourceType.TOPIC), topic.name)
        if self.configs.of(*resource):
            self.configs = self.configs.without(resource)
            self.touched_configs.add(resource)
        if topic.id in self.tiering:
            self.tiering = self.tiering.delete(topic.id)
            self.touched_tiering.add(topic.id)

    def config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        self.configs = self.configs.with_value(resource, record.name, record.value)
        self.touched_configs.add(resource)

    def feature_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features = self.features.set(record.name, record.feature_level)
        elif record.name in self.features:
            self.features = self.features.delete(record.name)
        self.touched_features.add(record.name)

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = broker_of(record)
        self.touched_brokers.add(record.broker_id)

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        del self.brokers[self._broker(record.broker_id, record.broker_epoch).id]

    def fence_broker(self, record: FenceBrokerRecord) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=True)

    def unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=False)

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        self.brokers[broker.id] = changed_broker(broker, record)

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker: BrokerImage | None = self.brokers.get(broker_id)
        assert broker is not None, "a record about a broker that is not registered"
        assert broker.epoch == epoch, "a record about another registration of a broker"
        self.touched_brokers.add(broker_id)
        return broker

    def register_controller(self, record: RegisterControllerRecord) -> None:
        controller = controller_of(record)
        self.controllers = self.controllers.set(controller.id, controller)

    def producer_id_block(self, record: ProducerIdsRecord) -> None:
        self.producer_ids = ProducerIdsImage(record.next_producer_id)

    def deletion(self, record: DeletionRecord) -> None:
        before = self.deletions.of(record.topic_id)
        self.deletions = self.deletions.with_deletion(deletion_of(record, before))
        self.touched_deletions.add(record.topic_id)

    def deletion_replicas(self, record: DeletionReplicasRecord) -> None:
        before = self.deletions.of(record.topic_id)
        assert before is not None, "a record about a deletion that is not in the ledger"
        after = before.with_status(record.broker_id, status_of(record), record.partitions)
        self.deletions = self.deletions.with_deletion(after)
        self.touched_deletions.add(record.topic_id)

    def forget_deletion(self, record: ForgetDeletionRecord) -> None:
        self.deletions = self.deletions.without(record.topic_id)
        self.touched_deletions.add(record.topic_id)

    def topic_tiering(self, record: TopicTieringRecord) -> None:
        known = self.topics.by_id(record.topic_id)
        assert known is not None, "the tiering state of a topic that does not exist"
        self.tiering = self.tiering.set(record.topic_id, tiering_of(record))
        self.touched_tiering.add(record.topic_id)

    def no_op(self, record: NoOpRecord) -> None:
        """Nothing happened, at a new offset."""

    def finish(self, position: tuple[int, int]) -> ClusterDelta:
        self._close()
        image = replace(
            self.before,
            features=self.features,
            brokers=self.brokers.finish(),
            controllers=self.controllers,
            topics=self.topics,
            configs=self.configs,
            producer_ids=self.producer_ids,
            deletions=self.deletions,
            tiering=self.tiering,
            position=position,
        )
        created, changed, deleted = _topic_changes(self.before, image, self.touched_partitions)
        return ClusterDelta(
            before=self.before,
            image=image,
            created_topics=created,
            changed_topics=changed,
            deleted_topics=deleted,
            changed_configs=frozenset(self.touched_configs),
            changed_brokers=frozenset(self.touched_brokers),
            changed_features=frozenset(self.touched_features),
            changed_deletions=frozenset(self.touched_deletions),
            changed_tiering=frozenset(self.touched_tiering),
        )


_Apply = Callable[[_Replay, Any], None]

APPLY: dict[type[Any], _Apply] = {
    RegisterBrokerRecord: _Replay.register_broker,
    UnregisterBrokerRecord: _Replay.unregister_broker,
    FenceBrokerRecord: _Replay.fence_broker,
    UnfenceBrokerRecord: _Replay.unfence_broker,
    BrokerRegistrationChangeRecord: _Replay.change_broker,
    TopicRecord: _Replay.topic,
    PartitionRecord: _Replay.partition,
    PartitionChangeRecord: _Replay.partition_change,
    RemoveTopicRecord: _Replay.remove_topic,
    ClearElrRecord: _Replay.clear_elr,
    ConfigRecord: _Replay.config,
    FeatureLevelRecord: _Replay.feature_level,
    ProducerIdsRecord: _Replay.producer_id_block,
    RegisterControllerRecord: _Replay.register_controller,
    NoOpRecord: _Replay.no_op,
    DeletionRecord: _Replay.deletion,
    DeletionReplicasRecord: _Replay.deletion_replicas,
    ForgetDeletionRecord: _Replay.forget_deletion,
    TopicTieringRecord: _Replay.topic_tiering,
}


def replay(
    image: ClusterImage, records: Iterable[Record], *, offset: int, epoch: int
) -> ClusterDelta:
    """Apply records; `offset` and `epoch` are those of the last one."""
    state = _Replay(image)
    for record in records:
        APPLY[type(record)](state, record)
    return state.finish((offset, epoch))


def delta_between(old: ClusterImage, new: ClusterImage) -> ClusterDelta:
    """Compare two images: what a snapshot changed. What `new` lacks is deleted."""
    touched: dict[Uuid, set[int]] = {topic.id: set() for topic in old.topics}
    for topic in new.topics:
        before = old.topics.by_id(topic.id)
        known: Map[int, PartitionImage] = Map() if before is None else before.partitions
        touched[topic.id] = {
            partition_id
            for partition_id, partition in topic.partitions.items()
            if partition != known.get(partition_id)
        }
    created, changed, deleted = _topic_changes(old, new, touched)
    resources = {*old.configs.resources(), *new.configs.resources()}
    return ClusterDelta(
        before=old,
        image=new,
        created_topics=created,
        changed_topics={key: change for key, change in changed.items() if change.partitions},
        deleted_topics=deleted,
        changed_configs=frozenset(
            each for each in resources if old.configs.of(*each) != new.configs.of(*each)
        ),
        changed_brokers=_different(old.brokers, new.brokers),
        changed_features=_different(old.features, new.features),
        changed_deletions=frozenset(
            each
            for each in old.deletions.ids() | new.deletions.ids()
            if old.deletions.of(each) != new.deletions.of(each)
        ),
        changed_tiering=_different(old.tiering, new.tiering),
    )


def _different(old: Mapping[Any, object], new: Mapping[Any, object]) -> frozenset[Any]:
    return frozenset(key for key in {*old, *new} if old.get(key) != new.get(key))


def _topic_changes(
    old: ClusterImage, new: ClusterImage, touched: Mapping[Uuid, set[int]]
) -> tuple[dict[Uuid, TopicImage], dict[Uuid, TopicChange], dict[Uuid, TopicImage]]:
    """Sort touched topics into created, changed and deleted ones, each in order of names."""
    created: list[TopicImage] = []
    changed: list[TopicChange] = []
    deleted: list[TopicImage] = []
    for topic_id, partitions in touched.items():
        before, after = old.topics.by_id(topic_id), new.topics.by_id(topic_id)
        if before is None and after is not None:
            created.append(after)
        elif before is not None and after is None:
            deleted.append(before)
        elif before is not None and after is not None:
            changed.append(TopicChange(before, after, tuple(sorted(partitions))))
    return (
        {topic.id: topic for topic in sorted(created, key=_by_name)},
        {change.new.id: change for change in sorted(changed, key=lambda each: each.new.name)},
        {topic.id: topic for topic in sorted(deleted, key=_by_name)},
    )


def _by_name(topic: TopicImage) -> tuple[str, Uuid]:
    return topic.name, topic.id
