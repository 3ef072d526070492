"""From znodes to records: what was read, and the records that lead there from an image.

The same code loads everything at an election (`records_of`, from the empty image) and follows
what others changed since (`observed`). Invalid znodes are collected as problems; each
leaves its fact as it was, and all others are loaded. So is an assignment that others
changed without the controller, which is written again.
An invalid broker is not registered; an invalid topic that was not known does not exist, and its
name is taken; known facts of a topic, a partition, a configuration or a tiering state stay, and the
next write repairs the znode; a partition without known facts has no leader and no in-sync replicas,
so that only an unclean election brings it back.

A topic with the id of another, older one is invalid, too: a tool may have copied its znode.

A topic without an id (before Kafka 2.8) gets one that follows from its name and its znode's
czxid: every reader computes the same, until it is written (`write.topic_rewrites`).

Not done: a `/feature` or producer-id znode that disappears; nothing deletes those.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

from immutables import Map

from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.base.zookeeper import ZnodeData
from ottla.metadata.brokers import record_of
from ottla.metadata.configs import Resource, ResourceType, config_records
from ottla.metadata.deletions import DeletionImage, deletion_records
from ottla.metadata.deletions_json import decode_deletion
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    FeatureLevelRecord,
    ForgetDeletionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.tiering import TopicTiering, tiering_record
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    partition_record,
)
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.broker import broker_image, decode_broker
from ottla.metadata.znodes.cluster import decode_feature, decode_producer_ids
from ottla.metadata.znodes.config import decode_config
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.known import (
    KnownConfig,
    KnownNode,
    KnownTiering,
    KnownTopic,
    KnownZnodes,
    PartitionNodes,
)
from ottla.metadata.znodes.partition_state import decode_state_of
from ottla.metadata.znodes.tiering import decode_tiered_epoch, decode_tiering
from ottla.metadata.znodes.topic import Assignment, TopicZnode, assignment_of, decode_topic

Read = ZnodeData | None
"""A node as it was read; None = it does not exist."""


class TieringNodes(NamedTuple):
    """The nodes below a topic's `tieredstorage` node."""

    epoch: Read
    state: Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was read: everything, or what may have changed. A key that is missing was not read.

    Fields: `states`: of all partitions of a topic that was not known, None where there is none.
            `partition_nodes`: the ids below `/brokers/topics/T/partitions`, for topics where
            a state is missing (or all); None = that node does not exist. Without it only the
            parents of states are known, and a partition without a state cannot be written.
            `tiering`: of topics with a tiering state, and of those that may have one; None = there
            is no `tieredstorage` node. A new topic that is not in here has none.
            `configs`: by type and name as in the image; of a new topic, too, since tools
            write it before the topic, without a notification.
            `deletions`: the ledger's entries.
            `marked_for_deletion`: all names under `/admin/delete_topics`; None = not read.
    """

    brokers: Mapping[int, Read] = field(default_factory=dict)
    topics: Mapping[str, Read] = field(default_factory=dict)
    states: Mapping[tuple[str, int], Read] = field(default_factory=dict)
    partition_nodes: Mapping[str, frozenset[int] | None] = field(default_factory=dict)
    tiering: Mapping[str, TieringNodes | None] = field(default_factory=dict)
    configs: Mapping[Resource, Read] = field(default_factory=dict)
    deletions: Mapping[Uuid, Read] = field(default_factory=dict)
    feature: Read = None
    producer_ids: Read = None
    marked_for_deletion: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of a snapshot. `to_rewrite`: topics whose znodes lack their id, or have an
    assignment not in force, or an invalid tiering state; `marked`: topics with a deletion marker.
    """

    records: tuple[Record, ...]
    known: KnownZnodes
    problems: tuple[ZnodeError, ...] = ()
    to_rewrite: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()


def records_of(snapshot: Snapshot) -> Loaded:
    """Return the records that lead from the empty image to what is stored."""
    return observed(EMPTY, KnownZnodes(), snapshot)


def observed(image: ClusterImage, known: KnownZnodes, snapshot: Snapshot) -> Loaded:
    """Return the records that lead from `image` to what was read, none where nothing changed."""
    reading = _Reading(image, known, snapshot)
    records = (
        *reading.features(),
        *reading.brokers(),
        *reading.topics_and_configs(),
        *reading.producer_ids(),
        *reading.deletions(),
    )
    known = reading.known_after()
    return Loaded(
        records=records,
        known=known,
        problems=tuple(reading.problems),
        to_rewrite=tuple(known.to_rewrite()),
        marked=tuple(sorted(known.marked)),
    )


def id_of(topic: str, czxid: int) -> Uuid:
    """Return the id of a topic whose znode has none, in the form of random ids."""
    attempt = 0
    while True:
        raw = bytearray(sha256(f"{czxid}/{topic}/{attempt}".encode()).digest()[:16])
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:  # A text that begins with a dash looks like a command-line option.
            return Uuid(bytes(raw))
        attempt += 1


class _Reading:
    """One snapshot compared with one image."""

    def __init__(self, image: ClusterImage, known: KnownZnodes, snapshot: Snapshot) -> None:
        self.image = image
        self.snapshot = snapshot
        self.problems: list[ZnodeError] = []
        self._known = known
        self._topics = known.topics.mutate()
        self._unreadable = known.unreadable
        self._configs = known.configs.mutate()
        self._deletions = known.deletions
        self._feature = known.feature
        self._producer_ids = known.producer_ids
        self._read_topics = self._decode_topics()
        self._created: set[str] = set()
        """Topics whose records are all among the new ones."""
        self._removed_topics: set[str] = set()

    def known_after(self) -> KnownZnodes:
        """Return what is known after the whole snapshot."""
        marked = self.snapshot.marked_for_deletion
        return KnownZnodes(
            topics=self._topics.finish(),
            unreadable=self._unreadable,
            configs=self._configs.finish(),
            deletions=self._deletions,
            feature=self._feature,
            producer_ids=self._producer_ids,
            marked=self._known.marked if marked is None else marked,
        )

    # -- what there is one of --------------------------------------------------------------

    def features(self) -> Iterator[Record]:
        """Yield finalized features that changed."""
        got = self.snapshot.feature
        if got is None:
            return
        try:
            znode = decode_feature(got.data)
        except ZnodeError as problem:
            self.problems.append(problem)
            self._feature = KnownNode(got.stat.version)
            return
        self._feature = KnownNode(got.stat.version, znode.extra)
        levels: Mapping[str, int] = znode.levels if znode.enabled else {}
        for name in sorted({*levels, *self.image.features}):
            level = levels.get(name, 0)
            if level != self.image.features.get(name, 0):
                yield FeatureLevelRecord(name=name, feature_level=level)

    def producer_ids(self) -> Iterator[Record]:
        """Yield the next producer id where it changed."""
        got = self.snapshot.producer_ids
        if got is None:
            return
        self._producer_ids = KnownNode(got.stat.version)
        try:
            block = decode_producer_ids(got.data)
        except ZnodeError as problem:
            self.problems.append(problem)
            self._producer_ids = KnownNode(got.stat.version, fault=problem.reason)
            return
        if block is None:
            return
        self._producer_ids = KnownNode(got.stat.version, block.extra)
        if block.last + 1 != self.image.producer_ids.next_producer_id:
            yield ProducerIdsRecord(broker_id=block.broker_id, next_producer_id=block.last + 1)

    def deletions(self) -> Iterator[Record]:
        """Yield the ledger's entries that changed."""
        for topic_id, got in sorted(self.snapshot.deletions.items()):
            before = self.image.deletions.of(topic_id)
            after: DeletionImage | None = None
            if got is None:
                self._deletions = _without(self._deletions, topic_id)
            else:
                self._deletions = self._deletions.set(topic_id, KnownNode(got.stat.version))
                try:
                    after = decode_deletion(got.data)
                except ValueError as error:
                    self.problems.append(ZnodeError(paths.deletion(topic_id), str(error)))
                    continue
            if after != before:
                if before is not None:
                    yield ForgetDeletionRecord(topic_id=topic_id)
                if after is not None:
                    yield from deletion_records(after)

    # -- brokers ---------------------------------------------------------------------------

    def brokers(self) -> Iterator[Record]:
        """Yield brokers that appeared, disappeared, restarted, or have other endpoints."""
        for broker_id, got in sorted(self.snapshot.brokers.items()):
            before = self.image.brokers.get(broker_id)
            if before is not None and (got is None or got.stat.czxid != before.epoch):
                yield UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=before.epoch)
                before = None
            if got is None:
                continue
            try:
                znode = decode_broker(broker_id, got.data)
            except ZnodeError as problem:
                self.problems.append(problem)
                continue
            after = broker_image(broker_id, znode, got.stat.czxid)
            if before is not None:
                after = replace(
                    after,
                    in_controlled_shutdown=before.in_controlled_shutdown,
                    log_dirs=before.log_dirs,
                )
            if after != before:
                yield record_of(after)

    # -- topics and configurations ---------------------------------------------------------

    def topics_and_configs(self) -> Iterator[Record]:
        """Yield what changed of topics, partitions and configurations."""
        for resource, got in self.snapshot.configs.items():
            self._config(resource, got)
        states: dict[str, set[int]] = {}
        for name, partition_id in self.snapshot.states:
            states.setdefault(name, set()).add(partition_id)
        names = {*self.snapshot.topics, *states, *self.snapshot.partition_nodes}
        names.update(self.snapshot.tiering)
        for name in sorted(names):
            yield from self._topic(name, states.get(name, set()))
        resources = set(self.snapshot.configs)
        resources.update((int(ResourceType.TOPIC), name) for name in self._created)
        for resource in sorted(resources):
            yield from self._changed_values(resource)

    def _config(self, resource: Resource, got: Read) -> None:
        """Store what a configuration's znode holds."""
        if got is None:
            self._configs.pop(resource, None)
            return
        version = got.stat.version
        try:
            znode = decode_config(resource, got.data)
        except ZnodeError as problem:
            self.problems.append(problem)
            values = Map(self.image.configs.of(*resource))
            self._configs[resource] = KnownConfig(version, values=values)
            return
        self._configs[resource] = KnownConfig(version, znode.extra, znode.values)

    def _changed_values(self, resource: Resource) -> Iterator[Record]:
        resource_type, name = resource
        before: Mapping[str, str] = self.image.configs.of(*resource)
        if resource_type == ResourceType.TOPIC:
            if name in self._created:
                before = {}
            elif name in self._removed_topics or name not in self.image.topics:
                return  # The topic does not exist (yet): known, but no fact.
        known: KnownConfig = self._configs.get(resource, KnownConfig())
        yield from config_records(resource, before, known.values)

    def _topic(self, name: str, states_read: set[int]) -> Iterator[Record]:
        before = self.image.topics.by_name(name)
        known: KnownTopic | None = self._topics.get(name)
        topic_id = None if before is None else before.id
        znode: TopicZnode | None = None
        if name in self.snapshot.topics:
            got = self.snapshot.topics[name]
            if got is None:
                yield from self._removed(name, before)
                return
            znode = self._decoded(name, known)
            if znode is not None:
                is_same = known is not None and known.czxid in (0, got.stat.czxid)
                kept = topic_id if is_same else None
                topic_id = znode.topic_id or kept or id_of(name, got.stat.czxid)
                edited: Mapping[int, Assignment] = {}
                if before is not None and is_same and topic_id == before.id:
                    edited = self._edited(before, znode)
                    znode = replace(znode, partitions={**znode.partitions, **edited})
                known = KnownTopic(
                    version=got.stat.version,
                    format=znode.version,
                    is_whole=znode.topic_id is not None and not edited,
                    extra=znode.extra,
                    czxid=got.stat.czxid,
                    partitions=known.partitions if is_same and known is not None else None,
                    tiering=known.tiering if is_same and known is not None else None,
                )
            elif known is not None:
                known = replace(known, version=got.stat.version, czxid=got.stat.czxid)
        if known is None or topic_id is None:
            return
        self._topics[name] = known = self._below(name, known, states_read)
        yield from self._changed_topic(name, topic_id, before, znode, states_read)
        yield from self._changed_tiering(name, topic_id)

    def _edited(self, before: TopicImage, znode: TopicZnode) -> Mapping[int, Assignment]:
        """Return the present assignments of partitions that others changed without the controller.

        A replica that is dropped from an assignment is deleted by its broker, without a check that
        there is another copy: a move needs a reassignment. The controller's own
        changes write the state in the same multi.
        """
        edited = {}
        for partition_id, assignment in znode.partitions.items():
            known = before.partitions.get(partition_id)
            if known is None or known.leader_epoch == NO_EPOCH:
                continue
            if (before.name, partition_id) in self.snapshot.states:
                got = self.snapshot.states[before.name, partition_id]
                if got is None or got.stat.version != known.partition_epoch:
                    continue
            if assignment != assignment_of(known):
                edited[partition_id] = assignment_of(known)
        if edited:
            reason = (
                f"partitions {sorted(edited)[:20]} have other replicas than before: expected"
                f" reassignments to be requested in {paths.REASSIGN_PARTITIONS}"
            )
            self.problems.append(ZnodeError(paths.topic(before.name), reason))
        return edited

    def _removed(self, name: str, before: TopicImage | None) -> Iterator[Record]:
        self._topics.pop(name, None)
        self._unreadable = _without(self._unreadable, name)
        self._removed_topics.add(name)
        if before is not None:
            yield RemoveTopicRecord(topic_id=before.id)

    def _decode_topics(self) -> Mapping[str, TopicZnode | ZnodeError]:
        """Return the topics that were read, the oldest alone of those with the same id.

        A tool may have copied a znode. With one id both would be one topic, which has the
        partitions of the last one.
        """
        decoded: dict[str, TopicZnode | ZnodeError] = {}
        names: dict[Uuid, str] = {}
        there = {name: got for name, got in self.snapshot.topics.items() if got is not None}
        for name, got in sorted(there.items(), key=lambda item: (item[1].stat.czxid, item[0])):
            try:
                decoded[name] = znode = decode_topic(name, got.data)
            except ZnodeError as problem:
                decoded[name] = problem
                continue
            if znode.topic_id is None:
                continue
            known = self.image.topics.by_id(znode.topic_id)
            owner = names.setdefault(znode.topic_id, name if known is None else known.name)
            if owner != name:
                reason = f"topic_id is that of topic {owner}: expected another one"
                decoded[name] = ZnodeError(paths.topic(name), reason)
        return decoded

    def _decoded(self, name: str, known: KnownTopic | None) -> TopicZnode | None:
        znode = self._read_topics[name]
        if isinstance(znode, ZnodeError):
            self.problems.append(znode)
            if known is None:
                self._unreadable = self._unreadable.set(name, znode.reason)
            return None
        self._unreadable = _without(self._unreadable, name)
        return znode

    def _below(self, name: str, known: KnownTopic, states_read: set[int]) -> KnownTopic:
        """Return the topic with what was read of the nodes below it."""
        if not states_read and name not in self.snapshot.partition_nodes:
            return known
        nodes: dict[int, KnownNode | None] = dict(known.partitions or {})
        is_there = known.partitions is not None
        if name in self.snapshot.partition_nodes:
            listed = self.snapshot.partition_nodes[name]
            is_there = listed is not None
            nodes = {partition_id: nodes.get(partition_id) for partition_id in listed or ()}
        for partition_id in states_read:
            got = self.snapshot.states[name, partition_id]
            if got is not None:
                is_there = True
                nodes[partition_id] = KnownNode(got.stat.version)
            elif partition_id in nodes:
                nodes[partition_id] = None
        partitions: PartitionNodes | None = Map(nodes) if is_there else None
        return replace(known, partitions=partitions)

    def _changed_topic(
        self,
        name: str,
        topic_id: Uuid,
        before: TopicImage | None,
        znode: TopicZnode | None,
        states_read: set[int],
    ) -> Iterator[Record]:
        is_same = before is not None and before.id == topic_id
        known_before: Mapping[int, PartitionImage] = {}
        if before is not None and is_same:
            known_before = before.partitions
        if znode is None:
            assignments = {
                partition_id: assignment_of(known_before[partition_id])
                for partition_id in sorted(states_read.intersection(known_before))
            }
        else:
            assignments = dict(znode.partitions)
        after = {
            partition_id: self._partition(
                name, partition_id, assignment, known_before.get(partition_id)
            )
            for partition_id, assignment in assignments.items()
        }
        if is_same and (znode is None or set(known_before) <= set(after)):
            changed = {each: now for each, now in after.items() if now != known_before.get(each)}
        else:
            # Another topic, or one with fewer partitions, for which there is no record.
            changed = after
            if before is not None:
                yield RemoveTopicRecord(topic_id=before.id)
            yield TopicRecord(name=name, topic_id=topic_id)
            self._created.add(name)
        for partition_id, partition in changed.items():
            yield partition_record(topic_id, partition_id, partition)

    def _changed_tiering(self, name: str, topic_id: Uuid) -> Iterator[Record]:
        """Yield the topic's tiering state where it changed, or the topic is among the new ones."""
        before = after = self.image.tiering.get(topic_id)
        if name in self.snapshot.tiering:
            after, known = self._tiering(name, topic_id, before, self.snapshot.tiering[name])
            self._topics[name] = replace(self._topics[name], tiering=known)
        if after is not None and (after != before or name in self._created):
            yield tiering_record(after)

    def _tiering(
        self, name: str, topic_id: Uuid, before: TopicTiering | None, nodes: TieringNodes | None
    ) -> tuple[TopicTiering | None, KnownTiering | None]:
        """Return a topic's tiering state, and what is known of its znodes."""
        if nodes is None:
            if before is not None:
                self.problems.append(ZnodeError(paths.tiering(name), "was deleted"))
            return before, None
        epoch_node = None if nodes.epoch is None else KnownNode(nodes.epoch.stat.version)
        if nodes.state is None:
            return before, KnownTiering(epoch=epoch_node, is_whole=before is None)
        state_node = KnownNode(nodes.state.stat.version)
        try:
            tiering, extra = decode_tiering(name, topic_id, nodes.state.data)
        except ZnodeError as problem:
            self.problems.append(problem)
            known = KnownTiering(epoch=epoch_node, state=state_node, is_whole=before is None)
            return before, known
        state_node = replace(state_node, extra=extra)
        is_whole = self._is_epoch_of(name, tiering, nodes.epoch)
        return tiering, KnownTiering(epoch=epoch_node, state=state_node, is_whole=is_whole)

    def _is_epoch_of(self, name: str, tiering: TopicTiering, got: Read) -> bool:
        try:
            if got is not None and decode_tiered_epoch(name, got.data) == tiering.tiered_epoch:
                return True
            reason = f"expected {tiering.tiered_epoch}, as in {paths.tiering_state(name)}"
            self.problems.append(ZnodeError(paths.tiered_epoch(name), reason))
        except ZnodeError as problem:
            self.problems.append(problem)
        return False

    def _partition(
        self, name: str, partition_id: int, assignment: Assignment, before: PartitionImage | None
    ) -> PartitionImage:
        replicas = assignment.replicas
        lost: set[int] = set()
        if before is not None:
            directories = zip(before.replicas, before.directories, strict=True)
            lost = {each for each, directory in directories if directory == DIRECTORY_LOST}
        partition = PartitionImage(
            replicas=replicas,
            directories=tuple(
                DIRECTORY_LOST if each in lost else DIRECTORY_MIGRATING for each in replicas
            ),
            isr=(),
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            leader=NO_LEADER,
            leader_epoch=NO_EPOCH,
            partition_epoch=NO_EPOCH,
        )
        if (name, partition_id) not in self.snapshot.states:
            return partition if before is None else _led_as(partition, before)
        got = self.snapshot.states[name, partition_id]
        if got is None:
            return partition
        version = got.stat.version
        try:
            state = decode_state_of(name, partition_id, got.data, replicas)
        except ZnodeError as problem:
            self.problems.append(problem)
            if before is None or before.leader_epoch == NO_EPOCH:
                return replace(partition, leader_epoch=0, partition_epoch=version)
            return replace(_led_as(partition, before), partition_epoch=version)
        if state.extra:
            self._keep_extra(name, partition_id, KnownNode(version, state.extra))
        return replace(
            partition,
            isr=state.isr,
            leader=state.leader,
            leader_recovery_state=state.leader_recovery_state,
            leader_epoch=state.leader_epoch,
            partition_epoch=version,
        )

    def _keep_extra(self, name: str, partition_id: int, node: KnownNode) -> None:
        topic: KnownTopic = self._topics[name]
        assert topic.partitions is not None, "the state was read"
        self._topics[name] = replace(topic, partitions=topic.partitions.set(partition_id, node))


def _led_as(partition: PartitionImage, before: PartitionImage) -> PartitionImage:
    return replace(
        partition,
        isr=before.isr,
        leader=before.leader,
        leader_recovery_state=before.leader_recovery_state,
        leader_epoch=before.leader_epoch,
        partition_epoch=before.partition_epoch,
    )


def _without(kept: Map, key: object) -> Map:  # type: ignore[type-arg]
    return kept.delete(key) if key in kept else kept
