"""Topics and their partitions become znodes: assignments, parents, states; and are removed.

See `write` for what is written together and in which order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from immutables import Map

from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.base.zookeeper import Check, Create, Delete, SetData
from ottla.metadata.configs import Resource, ResourceType
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.topics import changed_partition, partition_of, partition_record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, ZnodeError
from ottla.metadata.znodes.known import KnownTopic
from ottla.metadata.znodes.multis import Multis, Need
from ottla.metadata.znodes.partition_state import StateZnode, encode_state
from ottla.metadata.znodes.topic import Assignment, assignment_of, encode_topic
from ottla.metadata.znodes.write_configs import ConfigWriter
from ottla.metadata.znodes.write_tiering import TieringWriter

_NUMBER_BYTES_MAX = 12
"""Of a broker or partition id in JSON, with its punctuation."""

_EPOCH_BYTES_MAX = 34
"""Of a broker's id and epoch in JSON, with their punctuation."""


class TopicWriter:
    """The topics that one step creates, changes and removes."""

    def __init__(
        self,
        multis: Multis,
        before: ClusterImage,
        configs: ConfigWriter,
        tiering: TieringWriter,
        controller_epoch: int,
    ) -> None:
        self._multis = multis
        self._before = before
        self._configs = configs
        self._tiering = tiering
        self._controller_epoch = controller_epoch
        # What the step has changed so far, over `before`.
        self._names: dict[Uuid, str] = {}
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}
        self._new_partitions: dict[Uuid, dict[int, Assignment]] = {}
        """Partitions that the step creates: the first assignment has all of them."""
        # Of the multi that is being filled.
        self._assigned: dict[Uuid, None] = {}
        """Topics whose znode is to be set."""
        self._extended: dict[Uuid, None] = {}
        """Topics whose assignment has partitions that later records create."""
        self._created: set[Uuid] = set()
        """Topics whose znode is created."""
        self._checked: dict[Uuid, None] = {}
        """Others that get new states, each with room for a check."""
        self._stateless: list[tuple[Uuid, int]] = []
        """Partitions whose state is deleted, of a topic that stays until the next multi."""
        multis.on_flush.append(self._write_pending)

    def announce(self, records: Iterable[Record]) -> None:
        """Register the partitions that the step creates."""
        for record in records:
            if isinstance(record, PartitionRecord):
                topic = self._before.topics.by_id(record.topic_id)
                if topic is None or record.partition_id not in topic.partitions:
                    new_partitions = self._new_partitions.setdefault(record.topic_id, {})
                    new_partitions[record.partition_id] = assignment_of(partition_of(record))

    # -- what a record does ----------------------------------------------------------------

    def create(self, record: TopicRecord) -> None:
        """Plan a topic, with the assignment of all its partitions."""
        name, topic_id = record.name, record.topic_id
        reason = self._multis.known.unreadable.get(name)
        if reason is not None:
            raise ZnodeError(paths.topic(name), f"exists and cannot be read: {reason}")
        self._names[topic_id] = name
        self._partitions[topic_id] = {}
        data = self._topic_data(topic_id)
        resource = _resource(name)
        config = self._configs.need_of(resource)
        state = self._tiering.need_with_topic(name)
        needed = Need(
            1 + config.operations + state.operations,
            100 + len(name) + len(data) + config.data_bytes + state.data_bytes,
        )
        self._begin_whole(topic_id, Need(state.operations, needed.data_bytes))
        self._multis.make_room(paths.topic(name), lambda: needed)
        self._configs.begin(resource)
        self._multis.add(Create(paths.topic(name), data))
        self._created.add(topic_id)
        self._extended[topic_id] = None
        self._multis.record(record)

    def partition(self, record: PartitionRecord) -> None:
        """Plan a whole partition: a new one, or an assigned one that gets its state."""
        topic_id, partition_id = record.topic_id, record.partition_id
        after, path = partition_of(record), paths.topic(self._name(topic_id))
        if self._find(topic_id, partition_id) is None and topic_id not in self._extended:
            self._begin_whole(topic_id, Need(0, len(self._topic_data(topic_id))))
            self._multis.make_room(path, lambda: self._assignment_need(topic_id))
            self._assign(topic_id)
            self._extended[topic_id] = None
        self._multis.make_room(
            path, lambda: self._need(topic_id, self._find(topic_id, partition_id), after)
        )
        # Making room may have written the assignment, and with it this one as NEW.
        self._write(record, self._find(topic_id, partition_id), after)

    def change(self, record: PartitionChangeRecord) -> None:
        """Plan a change of a partition, and of its assignment where that changes."""
        topic_id, partition_id = record.topic_id, record.partition_id
        before = self._find(topic_id, partition_id)
        assert before is not None, "a change of a partition that does not exist"
        after = changed_partition(before, record)
        written: PartitionRecord | PartitionChangeRecord = record
        if before.leader_epoch == NO_EPOCH and after.leader == NO_LEADER:
            # It stays NEW, with an assignment and no state.
            after = replace(after, isr=(), leader_epoch=NO_EPOCH, partition_epoch=NO_EPOCH)
            written = partition_record(topic_id, partition_id, after)
        path = paths.topic(self._name(topic_id))
        self._multis.make_room(path, lambda: self._need(topic_id, before, after))
        self._write(written, before, after)

    def remove(self, record: RemoveTopicRecord, after: Need) -> None:
        """Plan a topic's removal, as far as its znodes exist: another controller may have begun it.

        `after`: what is to follow in the multi of its own znode.
        """
        topic_id = record.topic_id
        name = self._name(topic_id)
        path = paths.topic(name)
        known = self._multis.known.topics.get(name)
        nodes = None if known is None else known.partitions
        for partition_id, state in sorted((nodes or {}).items(), key=lambda item: item[0]):
            self._multis.make_room(path, lambda: Need(2, 2 * len(name) + 120))
            if state is not None:
                self._multis.add(Delete(paths.state(name, partition_id)))
                self._stateless.append((topic_id, partition_id))
            self._multis.add(Delete(paths.partition(name, partition_id)), is_fact=False)
        tiering = self._tiering.need_of_removal(name)
        last = Need(
            4 + after.operations + tiering.operations,
            4 * len(name) + 200 + after.data_bytes + tiering.data_bytes,
        )
        self._multis.make_room(path, lambda: last)
        if nodes is not None:
            self._multis.add(Delete(paths.partitions(name)), is_fact=False)
        self._tiering.remove(name)
        if known is not None:
            # At its version: another topic may have the name by now.
            self._multis.add(Delete(paths.topic(name), known.version))
        self._configs.remove(_resource(name))
        if name in self._multis.known.marked:
            self._multis.add(Delete(paths.marker(name)))
        self._stateless = [each for each in self._stateless if each[0] != topic_id]
        self._multis.record(record)

    def rewrite(self, topic_id: Uuid) -> None:
        """Plan to write a topic's znode as it should be."""
        path = paths.topic(self._name(topic_id))
        self._multis.make_room(path, lambda: self._assignment_need(topic_id))
        self._assign(topic_id)

    # -- the topic as it is by now -----------------------------------------------------------

    def _name(self, topic_id: Uuid) -> str:
        topic = self._before.topics.by_id(topic_id)
        return self._names[topic_id] if topic is None else topic.name

    def _find(self, topic_id: Uuid, partition_id: int) -> PartitionImage | None:
        found = self._partitions.get(topic_id, {}).get(partition_id)
        if found is None:
            topic = self._before.topics.by_id(topic_id)
            found = None if topic is None else topic.partitions.get(partition_id)
        return found

    def _now(self, record: PartitionRecord | PartitionChangeRecord, after: PartitionImage) -> None:
        self._partitions.setdefault(record.topic_id, {})[record.partition_id] = after
        self._multis.record(record)

    def _topic_data(self, topic_id: Uuid) -> bytes:
        """Return the data of the topic's znode, with all partitions that the step creates."""
        topic = self._before.topics.by_id(topic_id)
        present: Mapping[int, PartitionImage] = {} if topic is None else topic.partitions
        assignments = {
            **self._new_partitions.get(topic_id, {}),
            **{partition_id: assignment_of(each) for partition_id, each in present.items()},
        }
        for partition_id, partition in self._partitions.get(topic_id, {}).items():
            assignments[partition_id] = assignment_of(partition)
        known = self._multis.known.topics.get(self._name(topic_id), KnownTopic())
        listed = sorted(assignments.items(), key=lambda item: item[0])
        return encode_topic(listed, topic_id, version=known.format, extra=known.extra)

    # -- room ----------------------------------------------------------------------------------

    def _begin_whole(self, topic_id: Uuid, begin: Need) -> None:
        """Begin another multi for the rest of a topic's records, if they fit into one."""
        new_partitions = self._new_partitions.get(topic_id, {})
        name = self._name(topic_id)
        states = sum(
            _state_need(name, each.replicas).data_bytes for each in new_partitions.values()
        )
        need = Need(
            5 + begin.operations + 2 * len(new_partitions), begin.data_bytes + states + 4_000
        )
        if not self._multis.has_room(need) and self._multis.would_fit(need):
            self._multis.flush()

    def _assignment_need(self, topic_id: Uuid) -> Need:
        if topic_id in self._assigned:
            return Need(0, 0)
        return Need(1, len(self._name(topic_id)) + 100 + len(self._topic_data(topic_id)))

    def _need(self, topic_id: Uuid, before: PartitionImage | None, after: PartitionImage) -> Need:
        """Return the most that a partition takes, its assignment included where that changes."""
        state, check = _state_need(self._name(topic_id), after.isr), self._check_need(topic_id)
        need = Need(state.operations + check.operations, state.data_bytes + check.data_bytes)
        if before is None or assignment_of(before) == assignment_of(after):
            return need
        topic = self._assignment_need(topic_id)
        return Need(
            need.operations + topic.operations,
            need.data_bytes + topic.data_bytes + _assignment_bytes(after),
        )

    def _check_need(self, topic_id: Uuid) -> Need:
        """Return the room for the check that a topic that gets states is still the known one."""
        if topic_id in self._created or topic_id in self._checked:
            return Need(0, 0)
        return Need(1, len(paths.topic(self._name(topic_id))))

    # -- operations ----------------------------------------------------------------------------

    def _assign(self, topic_id: Uuid, more_bytes: int = 0) -> None:
        """Plan to set the topic's znode; there must be room for it."""
        need = self._assignment_need(topic_id)
        self._multis.reserve(Need(need.operations, need.data_bytes + more_bytes))
        self._assigned[topic_id] = None

    def _write(
        self,
        record: PartitionRecord | PartitionChangeRecord,
        before: PartitionImage | None,
        after: PartitionImage,
    ) -> None:
        topic_id, partition_id = record.topic_id, record.partition_id
        name = self._name(topic_id)
        if before is not None and assignment_of(before) != assignment_of(after):
            self._assign(topic_id, _assignment_bytes(after))
        if before is None or before.partition_epoch == NO_EPOCH:
            if after.partition_epoch != NO_EPOCH:
                self._create_state(topic_id, partition_id, after)
        elif after.partition_epoch != before.partition_epoch:
            assert after.partition_epoch == before.partition_epoch + 1, "an epoch was left out"
            data = self._state_data(name, partition_id, after)
            self._multis.add(SetData(paths.state(name, partition_id), data, before.partition_epoch))
        self._now(record, after)

    def _create_state(self, topic_id: Uuid, partition_id: int, after: PartitionImage) -> None:
        assert after.partition_epoch == 0, "a state begins at version 0"
        name = self._name(topic_id)
        if topic_id not in self._created and topic_id not in self._checked:
            self._multis.reserve(self._check_need(topic_id))
            self._checked[topic_id] = None
        nodes = self._multis.known.topics[name].partitions
        if nodes is None:
            self._multis.add(Create(paths.partitions(name)), is_fact=False)
        if nodes is None or partition_id not in nodes:
            self._multis.add(Create(paths.partition(name, partition_id)), is_fact=False)
        elif nodes[partition_id] is not None:
            # Left from a former partition that is not assigned.
            self._multis.add(Delete(paths.state(name, partition_id)))
        data = self._state_data(name, partition_id, after)
        self._multis.add(Create(paths.state(name, partition_id), data))

    def _state_data(self, name: str, partition_id: int, partition: PartitionImage) -> bytes:
        known = self._multis.known.state(name, partition_id)
        brokers = self._before.brokers
        state = StateZnode(
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            controller_epoch=self._controller_epoch,
            isr=partition.isr,
            leader_recovery_state=partition.leader_recovery_state,
            broker_epochs=Map(
                {
                    each: broker.epoch
                    for each in (partition.leader, *partition.isr)
                    if (broker := brokers.get(each)) is not None
                }
            ),
            extra=NO_EXTRA if known is None else known.extra,
        )
        return encode_state(state)

    # -- the end of a multi --------------------------------------------------------------------

    def _write_pending(self) -> None:
        for topic_id in self._checked:
            if topic_id not in self._assigned:
                # A state that does not exist has no version. By now the name may be another
                # topic's, which would get this one's leader and in-sync replicas.
                self._multis.add_reserved(self._unchanged(topic_id), is_fact=False)
        for topic_id in self._assigned:
            name = self._name(topic_id)
            version = self._multis.known.topics[name].version
            operation = SetData(paths.topic(name), self._topic_data(topic_id), version)
            self._multis.add_reserved(operation)
        for topic_id in self._extended:
            new_partitions = self._new_partitions.get(topic_id, {})
            for partition_id in sorted(new_partitions):
                if self._find(topic_id, partition_id) is None:
                    self._record_new(topic_id, partition_id, new_partitions[partition_id])
        for topic_id, partition_id in self._stateless:
            partition = self._find(topic_id, partition_id)
            if partition is not None and partition.partition_epoch != NO_EPOCH:
                self._record_new(topic_id, partition_id, assignment_of(partition))
        self._assigned, self._extended, self._stateless = {}, {}, []
        self._created, self._checked = set(), {}

    def _unchanged(self, topic_id: Uuid) -> Check:
        name = self._name(topic_id)
        return Check(paths.topic(name), self._multis.known.topics[name].version)

    def _record_new(self, topic_id: Uuid, partition_id: int, assignment: Assignment) -> None:
        """Record a partition with an assignment and no state, until the next multi."""
        record = PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            isr=(),
            leader=NO_LEADER,
            leader_epoch=NO_EPOCH,
            partition_epoch=NO_EPOCH,
        )
        self._now(record, partition_of(record))


def _resource(name: str) -> Resource:
    return (int(ResourceType.TOPIC), name)


def _state_need(name: str, isr: tuple[int, ...]) -> Need:
    """Return the most that a state takes: parents, an old state to delete, and itself."""
    path = len(paths.state(name, 2**31 - 1))
    members = _NUMBER_BYTES_MAX * len(isr) + _EPOCH_BYTES_MAX * (len(isr) + 1)
    return Need(3, 3 * path + 200 + members)


def _assignment_bytes(partition: PartitionImage) -> int:
    """Return the most by which a partition's entries in the topic's znode can grow."""
    count = len(partition.replicas) + len(partition.adding_replicas)
    return _NUMBER_BYTES_MAX * (count + len(partition.removing_replicas) + 3) + 60
