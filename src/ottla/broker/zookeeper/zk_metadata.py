"""Translates a controller's requests in ZooKeeper mode into records for the broker's image.

There LeaderAndIsr, UpdateMetadata and StopReplica replace the metadata log. Each is translated into
the records that lead from the broker's image to the state in the request, so that everything
behind the image works as in KRaft. For each partition the newest state wins: by leader epoch first,
partition epoch (its znode's version) second. UpdateMetadata does not carry reassignments and the
recovery state; those of the last LeaderAndIsr stay. A topic's tiering state is taken from both
where it is newer than the known one; where restored partitions began is added.

Unlike in Kafka, a LeaderAndIsr of the epoch that the broker already has is a repetition and no
error. A topic name with another id is never taken for the old topic: while replicas of the old one
are here, the new one is rejected, since only a deletion may delete them.

Not done: versions before topic ids (inter.broker.protocol.version below 2.8); brokers' epochs,
which these requests do not carry (`BrokerImage.epoch` is -1).
Source: ReplicaManager.{becomeLeaderOrFollower, maybeUpdateMetadataCache, stopReplicas},
ZkMetadataCache, KafkaApis, Kafka 3.9; KIP-380, KIP-516, KIP-570.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, TypeVar

from immutables import Map

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_LEADER, NO_UUID, Uuid, uuid_text
from ottla.base.pending import Pending
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.configs import ResourceType, config_records
from ottla.metadata.deletions import (
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    Policy,
    Remote,
    deletion_records,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    ForgetDeletionRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    TopicTieringRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.tiering import (
    DisablePolicy,
    RestoredPartition,
    TieringState,
    TopicTiering,
    restored_of,
    tiering_record,
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
from ottla.wire.messages.pending_purges import PendingPurge
from ottla.wire.messages.topic_tiering import TopicTieringState

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

LEADER_DURING_DELETE: Final = -2
"""The leader in UpdateMetadata of a topic that is being deleted (KAFKA-1355)."""

DELETED_REMEMBERED_MAX: Final = 10_000
"""How many deleted topics' ids are remembered, for the StopReplica requests that follow."""

PartitionName = tuple[str, int]
"""(topic name, partition): StopReplica has no topic ids."""


class ZkChange(NamedTuple):
    """The records of a request, and its error of each partition."""

    records: tuple[Record, ...]
    errors: dict[PartitionName, Error]


@dataclass(slots=True)
class ZkMetadata:
    """The current controller, and state from its requests that is not in the image.

    Fields: `deleted_by_name`: the ids of deleted topics that were known here, by name.
            `deleted_ids`: the ids of topics that a controller or the deletion ledger has reported
            as deleted, with the controller's epoch. `logged_refusals`: the ids whose rejection for
            that was logged, with the epoch. `unconfirmed_deletions`: by partition, the ids of
            topics whose replica was deleted while its log directory was offline: it may still be
            there. `hidden_partitions`: by topic, new partitions from LeaderAndIsr that no
            UpdateMetadata has had yet. `missing_topics`: topics of the image that the last full
            UpdateMetadata did not have. `inconsistent_ids`: by name, the ids of topics that were
            rejected since replicas of a former topic of the name are here. `has_full_metadata`:
            whether the current controller has sent a full UpdateMetadata since this broker
            registered.
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
    """The largest broker epoch of any request so far."""

    def check_sender(
        self, *, broker_epoch: int, controller_id: int, controller_epoch: int
    ) -> Error:
        """Check a request's epochs, and note its controller; those of older ones fail from now on.

        The request's broker epoch may be newer than the broker's own: when it registers again, the
        controller may know it before the broker does (KAFKA-9839). Requests with an older epoch are
        stale from then on. A process knows its first registration before it handles requests:
        otherwise it could not recognize those to its previous process.
        """
        assert self.broker_epoch != NO_EPOCH, "requests are handled once the broker is registered"
        if NO_EPOCH != broker_epoch < max(self.broker_epoch, self.newest_broker_epoch):
            return Error.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return Error.STALE_CONTROLLER_EPOCH
        if controller_epoch > self.controller_epoch:
            # Its first elections come before its full UpdateMetadata, and the previous controller
            # may have died before it sent this broker its last changes.
            self.has_full_metadata = False
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        if broker_epoch > self.newest_broker_epoch:
            # Changes before this registration may be missing until the next full UpdateMetadata.
            self.newest_broker_epoch, self.has_full_metadata = broker_epoch, False
        return Error.NONE

    # -- LeaderAndIsr --------------------------------------------------------------------------

    def leader_and_isr(self, image: ClusterImage, request: lai.LeaderAndIsrRequest) -> ZkChange:
        """Return the changes of partitions that this broker is to host."""
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
            if known is not None or len(records) > before:
                records += _changed_tiering(image, topic.topic_id, topic.tiering)
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
        """Return the known topic, the error of its partitions, and the records that create it."""
        if topic_id == NO_UUID or self.deleted_ids.get(topic_id) == self.controller_epoch:
            # A controller sends no request about a topic that it has deleted: this is a late copy
            # of one that was sent before, and again when there was no response.
            self._log_refusal(name, topic_id)
            return None, Error.UNKNOWN_TOPIC_ID, ()
        known = image.topics.by_name(name)
        made = TopicRecord(name=name, topic_id=topic_id)
        if known is not None and known.id != topic_id and self._hosts_any(known):
            self.inconsistent_ids[name] = topic_id
            logger.error(
                "topic %s with the id %s rejected: this broker has replicas of its former id %s",
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
        # This broker missed its deletion while it was disconnected, and has no replica of it. The
        # configuration stays: it is stored by name, and may be the new topic's already.
        resource = (int(ResourceType.TOPIC), name)
        kept = config_records(resource, {}, image.configs.of(*resource))
        return None, Error.NONE, (RemoveTopicRecord(topic_id=known.id), made, *kept)

    def _log_refusal(self, name: str, topic_id: Uuid) -> None:
        """Log a rejected topic, once in a controller epoch: its znode may have been restored."""
        if self.logged_refusals.get(topic_id) != self.controller_epoch:
            _remember(self.logged_refusals, topic_id, self.controller_epoch)
            logger.warning(
                "topic %s with the id %s rejected: controller %d of epoch %d has deleted it; if its"
                " znode was restored since, have another controller elected",
                name,
                uuid_text(topic_id),
                self.controller_id,
                self.controller_epoch,
            )

    def _hosts_any(self, topic: TopicImage) -> bool:
        return any(self.node_id in each.replicas for each in topic.partitions.values())

    # -- UpdateMetadata ------------------------------------------------------------------------

    def update_metadata(self, image: ClusterImage, request: meta.UpdateMetadataRequest) -> ZkChange:
        """Return the changes of the live brokers, and of the partitions in the request."""
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
                        # Only its replicas are sent the end of its reassignment.
                        kept = replace(old, adding_replicas=(), removing_replicas=())
                    new = _from_update_metadata(state, kept, live)
                    records += _changed(topic.topic_id, state.partition_index, old, new)
            records += _changed_tiering(image, topic.topic_id, topic.tiering)
        if request.pending_purges is not None:
            records += _changed_purges(image, request.pending_purges)
        if request.type == meta.FULL:
            replaced = {each.topic_id for each in records if isinstance(each, RemoveTopicRecord)}
            self._note_missing_topics(image, request, replaced)
        return ZkChange(tuple(records), errors)

    def _note_missing_topics(
        self, image: ClusterImage, request: meta.UpdateMetadataRequest, replaced: set[Uuid]
    ) -> None:
        """Note the topics that a full UpdateMetadata does not have (KAFKA-15605).

        They were deleted after this broker read them at its start, and before it received requests;
        or the request is a late copy from before their creation. So a missing topic is not removed
        at once: see `ZkMetadataPort.check_missing_topics`.
        """
        passed = {*replaced, *(topic.topic_id for topic in request.topic_states)}
        self.missing_topics = frozenset(
            topic.id for topic in image.topics if topic.id not in passed
        )
        self.has_full_metadata = True

    def deleted_topic(self, image: ClusterImage, topic_id: Uuid) -> Iterator[RemoveTopicRecord]:
        """Remember a topic that is deleted for certain; yield its removal where it is known."""
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
        """Return the image for clients: of a new topic all partitions or none.

        LeaderAndIsr has only the partitions that are hosted here, and clients count partitions: a
        topic would seem to have too few.
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
        """Check a StopReplica's leader epoch: an equal one passes, and -1 = none (KIP-570).

        One that deletes (-2) passes where this broker knows no topic of the name: UpdateMetadata
        removes a deleted topic first. A late copy must not delete anything of another topic that
        has the name by now.
        """
        known = image.topics.by_name(name[0])
        state = None if known is None else known.partitions.get(name[1])
        if state is None or leader_epoch == NO_EPOCH:
            return Error.NONE
        return Error.NONE if leader_epoch >= state.leader_epoch else Error.FENCED_LEADER_EPOCH

    def dropped(self, image: ClusterImage, names: Iterable[PartitionName]) -> tuple[Record, ...]:
        """Return the records after which this broker no longer hosts these partitions."""
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
        """Return the image after the last `apply`."""
        ...

    def apply(self, records: tuple[Record, ...]) -> None:
        """Apply records to the image and to the broker."""
        ...

    @property
    def read_configs(self) -> Callable[[Iterable[str]], Pending[None]]:
        """Return a function that reads new topics' configurations into the image."""
        ...

    @property
    def check_missing_topics(self) -> Callable[[], None]:
        """Return a function that looks up the `missing_topics` in the deletion ledger, and removes
        those that were deleted."""
        ...


def is_late(image: ClusterImage, name: str, topic_id: Uuid) -> bool:
    """Tell whether a StopReplica means a topic whose name belongs to another topic by now.

    `topic_id`: of the request; zero where its controller does not send one.
    """
    known = image.topics.id_of(name)
    return topic_id != NO_UUID and known is not None and known != topic_id


def unknown_topics(image: ClusterImage, named: Iterable[tuple[str, Uuid]]) -> list[str]:
    """Return the names of new topics, whose configurations this broker has not read.

    A name may be known of a former topic: then the known configuration is that one's.
    """
    return [name for name, topic_id in named if image.topics.by_id(topic_id) is None]


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    """Add an entry as the newest, and drop the oldest beyond DELETED_REMEMBERED_MAX."""
    memory.pop(key, None)
    memory[key] = value
    while len(memory) > DELETED_REMEMBERED_MAX:
        del memory[next(iter(memory))]


# -- topics ------------------------------------------------------------------------------------


def _changed_tiering(
    image: ClusterImage, topic_id: Uuid, received: TopicTieringState | None
) -> list[TopicTieringRecord]:
    """Return the record of a topic's tiering state, where the received one is newer or has more.

    Where a restored partition began never changes, and a request has that of its own partitions
    only: what is known of others stays.
    """
    if received is None:
        return []
    known = image.tiering.get(topic_id)
    new = TopicTiering(
        topic_id=topic_id,
        state=TieringState(received.state),
        tiered_epoch=received.tiered_epoch,
        policy=DisablePolicy(received.policy),
        remote_floor_epoch=received.remote_floor_epoch,
        purge_pending=received.purge_pending,
    )
    if known is not None and known.age >= new.age:
        new = known
    restored = _with_restored(known, received)
    if new is not known or restored != new.restored:
        return [tiering_record(replace(new, restored=restored))]
    return []


def _with_restored(
    known: TopicTiering | None, received: TopicTieringState
) -> tuple[RestoredPartition, ...]:
    before = () if known is None else known.restored
    if not received.restored:
        return before
    found = {each.partition: each for each in restored_of(received.restored)}
    found |= {each.partition: each for each in before}
    return tuple(found[partition] for partition in sorted(found))


def _changed_purges(image: ClusterImage, purges: Sequence[PendingPurge]) -> Iterator[Record]:
    """Yield the records after which the ledger here has these deletions, of tiered topics.

    Each has one row, of no broker: whether any replica is left.
    """
    listed = {each.topic_id for each in purges}
    for topic_id in sorted(image.deletions.ids() - listed):
        yield ForgetDeletionRecord(topic_id=topic_id)
    for each in purges:
        deletion = DeletionImage(
            topic_id=each.topic_id,
            name=each.name,
            # The topic is served, or not, by what the controller says of its partitions.
            policy=Policy.AT_ONCE,
            asked_ms=each.asked_ms,
            remote=Remote.PENDING,
        )
        status = SUCCESSFUL if each.replicas_are_over else STARTED
        deletion = deletion.with_status(NO_LEADER, status, each.partitions)
        if image.deletions.of(each.topic_id) != deletion:
            yield from deletion_records(deletion)


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
        # A replica that has left the assignment is no longer being removed.
        return tuple(each for each in moved if each in replicas)

    # The leader of a recovering partition has the recovery state from LeaderAndIsr, of the same
    # epochs; other brokers would keep a recovery for ever that ended in later epochs.
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
    """Return the records after which an image read from ZooKeeper has no partition led here.

    Until the current controller sends a request, another broker may lead what this one led. The
    epochs of such a partition are decremented, so that the next request about it is newer.
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
