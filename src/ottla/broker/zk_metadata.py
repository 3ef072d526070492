"""What a controller's requests mean to the broker that is told by them, as records of its image.

Where ZooKeeper keeps the metadata, LeaderAndIsr, UpdateMetadata and StopReplica stand for the
metadata log. Each is turned into the records that lead from the broker's image to what was told,
so that everything behind the image works as in KRaft. Of a partition the newest word counts:
leader epoch first, partition epoch (its znode's version) second. UpdateMetadata does not tell of
reassignments and recovery; of these the last LeaderAndIsr's word stays.

Unlike Kafka's, a LeaderAndIsr of the epoch that the broker has already is a repetition and no
error. A topic whose name comes with another id is never taken for the old one: where replicas of
the old one are here the new word is refused, for deleting them needs a deletion.

Not done: versions before topic ids (inter.broker.protocol.version below 2.8); brokers' epochs,
which these requests do not tell (`BrokerImage.epoch` is -1).
Source: ReplicaManager.{becomeLeaderOrFollower, maybeUpdateMetadataCache, stopReplicas},
ZkMetadataCache, KafkaApis, Kafka 3.9; KIP-380, KIP-516, KIP-570.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, TypeVar

from immutables import Map

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_LEADER, NO_UUID, Uuid, uuid_text
from ottla.base.pending import Pending
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.configs import ResourceType, config_records
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    RECOVERED,
    PartitionImage,
    TopicImage,
    partition_record,
)
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import update_metadata as meta

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

LEADER_DURING_DELETE: Final = -2
"""The leader of a partition whose topic goes (KAFKA-1355)."""

DELETED_REMEMBERED_MAX: Final = 10_000
"""Of how many deleted topics the ids are remembered, until their last replicas are asked for."""

PartitionName = tuple[str, int]
"""Topic and number: StopReplica names no ids."""


class ZkChange(NamedTuple):
    """What a request changes, and what is wrong with it, by partition; NONE = nothing is."""

    records: tuple[Record, ...]
    errors: dict[PartitionName, Error]


@dataclass(slots=True)
class ZkMetadata:
    """Which controller this broker listens to, and what of its words only it remembers.

    Fields: `deleted`: topics that were here and went, by name, with their ids. `gone`: the ids of
            topics that a controller or the ledger called deleted, with the controller's epoch.
            `logged_refusals`: of which ids it was said in the log that they are refused for that, with
            the epoch.
            `unconfirmed_deletions`: of which topics a replica went while its log folder was offline, where it
            may lie still. `hidden_partitions`: new partitions of which LeaderAndIsr has spoken and
            UpdateMetadata not yet, by topic. `missing_topics`: topics that the controller did not name
            among all. `refused`: the topics that were refused since replicas of a former one of
            their name are here, by name. `has_full_metadata`: whether this broker has heard of all
            partitions since it registered, from the controller that it listens to.
    """

    node_id: int
    broker_epoch: int = NO_EPOCH
    """This broker's own, as registered; -1 = not yet."""
    controller_id: int = -1
    controller_epoch: int = NO_EPOCH
    deleted_by_name: dict[str, Uuid] = field(default_factory=dict)
    deleted_ids: dict[Uuid, int] = field(default_factory=dict)
    logged_refusals: dict[Uuid, int] = field(default_factory=dict)
    unconfirmed_deletions: dict[PartitionName, set[Uuid]] = field(default_factory=dict)
    hidden_partitions: dict[Uuid, set[int]] = field(default_factory=dict)
    missing_topics: frozenset[Uuid] = frozenset()
    inconsistent_ids: dict[str, Uuid] = field(default_factory=dict)
    has_full_metadata: bool = False
    newest_broker_epoch: int = NO_EPOCH
    """The newest of this broker's epochs that it was told something in."""

    def check_sender(
        self, *, broker_epoch: int, controller_id: int, controller_epoch: int
    ) -> Error:
        """Say whether a request counts; from now on none of an older controller does.

        The epoch of the broker that is asked may be newer than what it knows of itself: when it
        registers anew, the controller may hear of that before the broker does (KAFKA-9839). What
        was said to an older registration is late then. Of a process's first registration the
        broker knows before it is asked: it could not tell words to its former life otherwise.
        """
        assert self.broker_epoch != NO_EPOCH, "controllers are heard once the broker is registered"
        if NO_EPOCH != broker_epoch < max(self.broker_epoch, self.newest_broker_epoch):
            return Error.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return Error.STALE_CONTROLLER_EPOCH
        if controller_epoch > self.controller_epoch:
            # Its first elections come before it tells of all, and the one before it may have died
            # before it told this broker what it had done.
            self.has_full_metadata = False
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        if broker_epoch > self.newest_broker_epoch:
            # What happened before this registration it may have missed, until it hears of all.
            self.newest_broker_epoch, self.has_full_metadata = broker_epoch, False
        return Error.NONE

    # -- LeaderAndIsr --------------------------------------------------------------------------

    def leader_and_isr(self, image: ClusterImage, request: lai.LeaderAndIsrRequest) -> ZkChange:
        """Return what the request says of partitions that this broker is to host."""
        records: list[Record] = []
        errors: dict[PartitionName, Error] = {}
        for topic in request.topic_states:
            known, refusal, opening = self._topic(image, topic.topic_name, topic.topic_id)
            before = len(records)
            for state in topic.partition_states:
                old = None if known is None else known.partitions.get(state.partition_index)
                error = refusal or self._fault_of(state, old)
                errors[topic.topic_name, state.partition_index] = error
                if error is Error.NONE:
                    if old is None:
                        hidden_partitions = self.hidden_partitions.setdefault(topic.topic_id, set())
                        hidden_partitions.add(state.partition_index)
                    new = _from_leader_and_isr(state, old)
                    records += _changed(topic.topic_id, state.partition_index, old, new)
            if len(records) > before:
                records[before:before] = opening
        return ZkChange(tuple(records), errors)

    def _fault_of(self, state: lai.LeaderAndIsrPartitionState, old: PartitionImage | None) -> Error:
        if self.node_id not in state.replicas:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if old is not None and _is_older(state.leader_epoch, state.partition_epoch, old):
            return Error.STALE_CONTROLLER_EPOCH
        return Error.NONE

    def _topic(
        self, image: ClusterImage, name: str, topic_id: Uuid
    ) -> tuple[TopicImage | None, Error, tuple[Record, ...]]:
        """Return the topic as known, why its partitions are refused, and what makes it known."""
        if topic_id == NO_UUID or self.deleted_ids.get(topic_id) == self.controller_epoch:
            # Of a deleted topic its controller says nothing any more: this was sent before, and
            # again where no answer came, and is the copy that arrives last.
            self._log_refusal(name, topic_id)
            return None, Error.UNKNOWN_TOPIC_ID, ()
        known = image.topics.by_name(name)
        made = TopicRecord(name=name, topic_id=topic_id)
        if known is not None and known.id != topic_id and self._hosts_any(known):
            self.inconsistent_ids[name] = topic_id
            logger.error(
                "topic %s is told to have the id %s, and replicas of %s are here",
                name,
                topic_id,
                known.id,
            )
            return None, Error.INCONSISTENT_TOPIC_ID, ()
        self.inconsistent_ids.pop(name, None)
        if known is None:
            return None, Error.NONE, (made,)
        if known.id == topic_id:
            return known, Error.NONE, ()
        # Its deletion was told while this broker was cut off, and nothing of it is here. The
        # configuration is the name's: what was read of it last may be the new topic's.
        resource = (int(ResourceType.TOPIC), name)
        kept = config_records(resource, {}, image.configs.of(*resource))
        return None, Error.NONE, (RemoveTopicRecord(topic_id=known.id), made, *kept)

    def _log_refusal(self, name: str, topic_id: Uuid) -> None:
        """Say once in a term that a topic is refused: its znode may have been put back."""
        if self.logged_refusals.get(topic_id) != self.controller_epoch:
            _remember(self.logged_refusals, topic_id, self.controller_epoch)
            logger.warning(
                "topic %s with the id %s is refused: controller %d of epoch %d has said that it is"
                " deleted. If it was put back since, another controller has to be elected",
                name,
                uuid_text(topic_id),
                self.controller_id,
                self.controller_epoch,
            )

    def _hosts_any(self, topic: TopicImage) -> bool:
        return any(self.node_id in each.replicas for each in topic.partitions.values())

    # -- UpdateMetadata ------------------------------------------------------------------------

    def update_metadata(self, image: ClusterImage, request: meta.UpdateMetadataRequest) -> ZkChange:
        """Return what the request says of all live brokers, and of the partitions it names."""
        self._reveal(request)
        live = {each.id: self._broker(each) for each in request.live_brokers}
        records: list[Record] = [*_broker_changes(image, live)]
        errors: dict[PartitionName, Error] = {}
        for topic in request.topic_states:
            if any(each.leader == LEADER_DURING_DELETE for each in topic.partition_states):
                if self.inconsistent_ids.get(topic.topic_name) == topic.topic_id:
                    del self.inconsistent_ids[topic.topic_name]
                records += self.deleted_topic(image, topic.topic_id)
                continue
            known, refusal, opening = self._topic(image, topic.topic_name, topic.topic_id)
            if refusal:
                errors |= {
                    (topic.topic_name, each.partition_index): refusal
                    for each in topic.partition_states
                }
                continue
            records += opening
            for state in topic.partition_states:
                old = None if known is None else known.partitions.get(state.partition_index)
                if old is None or not _is_older(state.leader_epoch, state.zk_version, old):
                    kept = old
                    if self.node_id not in state.replicas and old is not None:
                        # The end of its reassignment is told to its replicas alone.
                        kept = replace(old, adding_replicas=(), removing_replicas=())
                    new = _from_update_metadata(state, kept, live)
                    records += _changed(topic.topic_id, state.partition_index, old, new)
        if request.type == meta.FULL:
            replaced = {each.topic_id for each in records if isinstance(each, RemoveTopicRecord)}
            self._note_missing_topics(image, request, replaced)
        return ZkChange(tuple(records), errors)

    def _note_missing_topics(
        self, image: ClusterImage, request: meta.UpdateMetadataRequest, replaced: set[Uuid]
    ) -> None:
        """Note which topics a request of all partitions does not name (KAFKA-15605).

        They were deleted after this broker read them at its start, and before anybody told it; or
        they were made after the request was, which is a late copy. So that nobody names one is no
        reason to let it go: what became of it is asked elsewhere, see `ZkMetadataPort.check_missing_topics`.
        """
        passed = {*replaced, *(topic.topic_id for topic in request.topic_states)}
        self.missing_topics = frozenset(
            topic.id for topic in image.topics if topic.id not in passed
        )
        self.has_full_metadata = True

    def deleted_topic(self, image: ClusterImage, topic_id: Uuid) -> Iterator[RemoveTopicRecord]:
        """Remember that a topic is deleted for certain; yield its end where it is known here."""
        _remember(self.deleted_ids, topic_id, self.controller_epoch)
        topic = image.topics.by_id(topic_id)
        if topic is not None:
            _remember(self.deleted_by_name, topic.name, topic.id)
            yield RemoveTopicRecord(topic_id=topic.id)

    def _broker(self, broker: meta.UpdateMetadataBroker) -> BrokerImage:
        return BrokerImage(
            id=broker.id,
            epoch=NO_EPOCH,
            incarnation_id=NO_UUID,
            endpoints=tuple(
                Endpoint(each.listener, each.host, each.port, each.security_protocol)
                for each in broker.endpoints
            ),
            rack=broker.rack,
            fenced=False,
        )

    def _reveal(self, request: meta.UpdateMetadataRequest) -> None:
        for topic in request.topic_states if self.hidden_partitions else ():
            hidden_partitions = self.hidden_partitions.get(topic.topic_id, set())
            hidden_partitions.difference_update(
                each.partition_index for each in topic.partition_states
            )
            if not hidden_partitions:
                self.hidden_partitions.pop(topic.topic_id, None)

    def client_view(self, image: ClusterImage) -> ClusterImage:
        """Return the image as clients may see it: of a new topic all partitions or none.

        LeaderAndIsr names those only that are hosted here, and clients count what they are told
        of: for a moment a topic would have fewer partitions than it has.
        """
        topics = image.topics
        for topic_id, partition_ids in self.hidden_partitions.items():
            topic = topics.by_id(topic_id)
            if topic is None:
                continue
            kept = {
                each: state for each, state in topic.partitions.items() if each not in partition_ids
            }
            if kept:
                topics = topics.with_topic(replace(topic, partitions=Map(kept)))
            else:
                topics = topics.without(topic_id)
        return image if topics is image.topics else replace(image, topics=topics)

    # -- StopReplica ---------------------------------------------------------------------------

    def may_stop(self, image: ClusterImage, name: PartitionName, leader_epoch: int) -> Error:
        """Say whether a StopReplica counts: equal epochs do, and one that is none (KIP-570).

        That of a deletion counts where no topic of that name is alive here: UpdateMetadata says
        first that a topic goes. What comes late names the topic that was deleted, while the name
        may be another one's by now, of which not a byte may go.
        """
        known = image.topics.by_name(name[0])
        state = None if known is None else known.partitions.get(name[1])
        if state is None or leader_epoch == NO_EPOCH:
            return Error.NONE
        return Error.NONE if leader_epoch >= state.leader_epoch else Error.FENCED_LEADER_EPOCH

    def dropped(self, image: ClusterImage, names: Iterable[PartitionName]) -> tuple[Record, ...]:
        """Return the records by which this broker hosts these partitions no more."""
        return tuple(self._drops(image, names))

    def _drops(self, image: ClusterImage, names: Iterable[PartitionName]) -> Iterator[Record]:
        for name, partition_id in names:
            topic = image.topics.by_name(name)
            state = None if topic is None else topic.partitions.get(partition_id)
            if topic is None or state is None or self.node_id not in state.replicas:
                continue
            yield partition_record(topic.id, partition_id, _without(state, self.node_id))


class ZkMetadataPort(Protocol):
    """The way from a controller's request into the broker's image."""

    facts: ZkMetadata

    @property
    def image(self) -> ClusterImage:
        """Return the image after all that was applied."""
        ...

    def apply(self, records: tuple[Record, ...]) -> None:
        """Bring records into the image, and the broker to what they say."""
        ...

    @property
    def read_configs(self) -> Callable[[Iterable[str]], Pending[None]]:
        """Return what brings the configurations of topics, new ones, into the image."""
        ...

    @property
    def check_missing_topics(self) -> Callable[[], None]:
        """Return what asks the ledger which of the `missing_topics` were deleted, and lets these go."""
        ...


def is_late(image: ClusterImage, name: str, topic_id: Uuid) -> bool:
    """Tell whether a StopReplica means a topic whose name another one has by now.

    `topic_id`: the one that it means; zero where its controller does not say.
    """
    known = image.topics.id_of(name)
    return topic_id != NO_UUID and known is not None and known != topic_id


def unknown_topics(image: ClusterImage, named: Iterable[tuple[str, Uuid]]) -> list[str]:
    """Return the names of topics whose configurations this broker has not read: new ones.

    A name may be a former topic's here: then what was read is that one's.
    """
    return [name for name, topic_id in named if image.topics.by_id(topic_id) is None]


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    """Note something as the newest of what is remembered."""
    memory.pop(key, None)
    memory[key] = value
    while len(memory) > DELETED_REMEMBERED_MAX:
        del memory[next(iter(memory))]


# -- partitions --------------------------------------------------------------------------------


def _is_older(leader_epoch: int, partition_epoch: int, known: PartitionImage) -> bool:
    return (leader_epoch, partition_epoch) < (known.leader_epoch, known.partition_epoch)


def _changed(
    topic_id: Uuid, partition_id: int, old: PartitionImage | None, new: PartitionImage
) -> list[PartitionRecord]:
    return [] if new == old else [partition_record(topic_id, partition_id, new)]


def _from_leader_and_isr(
    state: lai.LeaderAndIsrPartitionState, old: PartitionImage | None
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(state.replicas),
        directories=_known_directories(state.replicas, old),
        isr=tuple(state.isr),
        removing_replicas=tuple(state.removing_replicas),
        adding_replicas=tuple(state.adding_replicas),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )


def _from_update_metadata(
    state: meta.UpdateMetadataPartitionState,
    old: PartitionImage | None,
    live: dict[int, BrokerImage],
) -> PartitionImage:
    replicas = tuple(state.replicas)
    lost = {each for each in state.offline_replicas if each in live}

    def still(moved: tuple[int, ...]) -> tuple[int, ...]:
        # Who left the assignment is no longer on its way out of it.
        return tuple(each for each in moved if each in replicas)

    # Who leads a partition that is recovered is told by LeaderAndIsr, in the same epochs; others
    # would keep a recovery for ever that ended in later ones.
    epochs = state.leader_epoch, state.zk_version
    same = old is not None and epochs == (old.leader_epoch, old.partition_epoch)
    return PartitionImage(
        replicas=replicas,
        directories=tuple(
            DIRECTORY_LOST if each in lost else DIRECTORY_MIGRATING for each in replicas
        ),
        isr=tuple(state.isr),
        removing_replicas=() if old is None else still(old.removing_replicas),
        adding_replicas=() if old is None else still(old.adding_replicas),
        leader=state.leader,
        leader_recovery_state=old.leader_recovery_state if old is not None and same else RECOVERED,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
    )


def _known_directories(replicas: Iterable[int], old: PartitionImage | None) -> tuple[Uuid, ...]:
    known = {} if old is None else dict(zip(old.replicas, old.directories, strict=True))
    return tuple(known.get(replica, DIRECTORY_MIGRATING) for replica in replicas)


def _without(state: PartitionImage, node_id: int) -> PartitionImage:
    def others(members: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(each for each in members if each != node_id)

    kept = [at for at, replica in enumerate(state.replicas) if replica != node_id]
    return replace(
        state,
        replicas=tuple(state.replicas[at] for at in kept),
        directories=tuple(state.directories[at] for at in kept),
        isr=others(state.isr),
        removing_replicas=others(state.removing_replicas),
        adding_replicas=others(state.adding_replicas),
        leader=NO_LEADER if state.leader == node_id else state.leader,
    )


# -- brokers -----------------------------------------------------------------------------------


def _broker_changes(image: ClusterImage, live: dict[int, BrokerImage]) -> Iterator[Record]:
    for broker_id in image.broker_ids():
        if broker_id not in live:
            epoch = image.brokers[broker_id].epoch
            yield UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)
    for broker_id, broker in sorted(live.items()):
        if image.brokers.get(broker_id) != broker:
            yield record_of(broker)


# -- the image of a start ----------------------------------------------------------------------


def without_own_leadership(image: ClusterImage, node_id: int) -> tuple[Record, ...]:
    """Return what makes an image that was read in ZooKeeper fit to start with: nothing is led.

    Until the controller of now has spoken, another broker may lead what the image says this one
    does. Such a partition is put back by an epoch, so that the word that comes next counts.
    """
    return tuple(
        partition_record(
            topic.id,
            partition_id,
            replace(
                state,
                leader=NO_LEADER,
                leader_epoch=state.leader_epoch - 1,
                partition_epoch=state.partition_epoch - 1,
            ),
        )
        for topic in image.topics
        for partition_id, state in topic.in_order()
        if state.leader == node_id
    )
