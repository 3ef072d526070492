"""Who has to acknowledge that a topic's tiered storage is disabled, and who has.

DISABLED means: no live replica copies any more, and with delete no broker reads the segments again.
So these acknowledge, each partition for itself:

- Every live replica: its broker is registered and not fenced, and its log directory is not offline.
  A broker that is down is not waited for: it receives the state with its next registration,
  before it may lead.
- The leader, as the leader. With delete a partition without a live leader is waited for.

An acknowledgement is of one registration of the broker and of one leader epoch of the partition. A
new leader's log may start elsewhere, so it and its followers acknowledge again: a follower must
have, or fetch, what the leader's log starts with, or the next election would lose it.

What is needed follows from the image alone, so partitions that are added, replicas that are moved
and brokers that register or go need no event of their own. Acknowledgements are soft state of one
controller epoch; the next controller asks again.

Source: KIP-950's draft: the controller waits for the responses of all brokers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.controller.deletion.deletion_policy import is_lost
from ottla.metadata.features import TIERING, registered_level
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering

NO_BROKER: Final = -1


class Acknowledgement(NamedTuple):
    """A broker complied, under one registration and in one leader epoch of the partition."""

    broker_epoch: int
    leader_epoch: int
    is_leader: bool


Partitions = Iterable[tuple[int, PartitionImage]]
"""Of one topic, by id."""

ReplicaKey = tuple[int, int]
"""Partition and broker."""


class Reason(IntEnum):
    """Why an acknowledgement is missing; wire values."""

    NOT_ANSWERED = 1
    """The broker was requested, and has not answered yet."""
    FAILED = 2
    """Its last answer was an error, or that it is not done; it is requested again."""
    NO_LEADER = 3
    """The partition has no live leader; with delete it must have one."""
    OLDER_VERSION = 4
    """The broker does not support tiered storage: start it with newer software, or stop it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An acknowledgement that is needed. `error`: of the broker's last answer."""

    partition: int
    leader_epoch: int
    broker_id: int = NO_BROKER
    is_leader: bool = False
    reason: Reason = Reason.NOT_ANSWERED
    error: Error = Error.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The acknowledgements of one topic's disablement."""

    tiered_epoch: int
    acknowledgements: Mapping[ReplicaKey, Acknowledgement]


@dataclass(slots=True)
class _Topic:
    tiered_epoch: int
    given: dict[ReplicaKey, Acknowledgement] = field(default_factory=dict)
    errors: dict[ReplicaKey, Error] = field(default_factory=dict)


def disabling_state(image: ClusterImage, topic_id: Uuid) -> TopicTiering | None:
    """Return the state of a topic that brokers have to acknowledge, None = there is none.

    A deletion of the topic wins: nobody is asked any more.
    """
    tiering = image.tiering.get(topic_id)
    is_disabling = tiering is not None and tiering.state is TieringState.DISABLING
    return None if not is_disabling or image.deletions.is_queued(topic_id) else tiering


def missing(
    image: ClusterImage,
    tiering: TopicTiering,
    given: Mapping[ReplicaKey, Acknowledgement],
    errors: Mapping[ReplicaKey, Error] | None = None,
    partitions: Partitions | None = None,
) -> Iterator[Missing]:
    """Yield the acknowledgements that a topic's disablement needs and has not.

    `partitions`: those to look at, None = all.
    """
    topic = image.topics.by_id(tiering.topic_id)
    assert topic is not None, "the tiering state of a topic that does not exist"
    live = {each: broker.epoch for each, broker in image.brokers.items() if not broker.fenced}
    older = {each for each in live if registered_level([image.brokers[each]]) < TIERING}
    for partition_id, partition in topic.in_order() if partitions is None else partitions:
        leader = partition.leader if partition.leader in live else NO_LEADER
        epoch = partition.leader_epoch
        if leader == NO_LEADER and tiering.policy is DisablePolicy.DELETE:
            yield Missing(partition=partition_id, leader_epoch=epoch, reason=Reason.NO_LEADER)
        for broker_id in partition.replicas:
            if broker_id not in live or is_lost(partition, broker_id):
                continue
            is_leader = broker_id == leader
            key = partition_id, broker_id
            if given.get(key) == Acknowledgement(live[broker_id], epoch, is_leader):
                continue
            error = Error.NONE if errors is None else errors.get(key, Error.NONE)
            reason = Reason.NOT_ANSWERED if error is Error.NONE else Reason.FAILED
            if broker_id in older:
                reason = Reason.OLDER_VERSION
            yield Missing(
                partition=partition_id,
                leader_epoch=epoch,
                broker_id=broker_id,
                is_leader=is_leader,
                reason=reason,
                error=error,
            )


class Acknowledgements:
    """What the active controller knows of them. It is read by requests too."""

    def __init__(self) -> None:
        self._topics: dict[Uuid, _Topic] = {}

    def clear(self) -> None:
        """Forget all: another controller epoch begins."""
        self._topics.clear()

    def retain(self, topic_ids: Collection[Uuid]) -> None:
        """Forget all other topics."""
        for topic_id in [each for each in self._topics if each not in topic_ids]:
            del self._topics[topic_id]

    def add(self, tiering: TopicTiering, key: ReplicaKey, acknowledgement: Acknowledgement) -> None:
        """Take that a replica complied."""
        topic = self._of(tiering)
        topic.given[key] = acknowledgement
        topic.errors.pop(key, None)

    def fail(self, tiering: TopicTiering, key: ReplicaKey, error: Error) -> None:
        """Take that a replica did not comply yet."""
        self._of(tiering).errors[key] = error

    def given(self, tiering: TopicTiering) -> Given:
        """Return a copy of a disablement's acknowledgements, for a decision."""
        topic = self._of(tiering)
        return Given(tiered_epoch=topic.tiered_epoch, acknowledgements=dict(topic.given))

    def missing(
        self, image: ClusterImage, tiering: TopicTiering, partitions: Partitions | None = None
    ) -> Iterator[Missing]:
        """Yield the acknowledgements that are missing in an image. Changes nothing."""
        topic = self._topics.get(tiering.topic_id)
        if topic is None or topic.tiered_epoch != tiering.tiered_epoch:
            return missing(image, tiering, {}, None, partitions)
        return missing(image, tiering, topic.given, topic.errors, partitions)

    def _of(self, tiering: TopicTiering) -> _Topic:
        known = self._topics.get(tiering.topic_id)
        if known is None or known.tiered_epoch != tiering.tiered_epoch:
            known = self._topics[tiering.topic_id] = _Topic(tiering.tiered_epoch)
        return known
