"""Topics are deleted, by name or by id.

In KRaft the record is the deletion: the name is free at once, and brokers drop what they hold
as they replay it, fenced by the topic's id; at feature level `ottla.version` 1 the entry in the
deletion ledger is written with it. Where brokers are told by requests (ZooKeeper) the
topic is queued, and goes when all its replicas are gone; asking again is no error. The internal
topics are refused, which Kafka's Admin API never does: without them every group and transaction
would be lost.
Source: ControllerApis.deleteTopics, ReplicationControlManager.deleteTopics, Kafka 4.0; KIP-516.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, NO_UUID, Uuid
from ottla.base.limits import (
    DELETED_REPLICAS_PER_STEP_MAX,
    DELETIONS_PER_STEP_MAX,
    DELETIONS_QUEUED_PER_STEP_MAX,
)
from ottla.controller.context import DecisionContext
from ottla.controller.deletion_policy import at_once_records, new_entry
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import Policy, header_record
from ottla.metadata.features import ledger_enabled
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import Record, RemoveTopicRecord


@dataclass(frozen=True, slots=True)
class TopicReference:
    """A topic as a request names it: by one of the two."""

    name: str | None = None
    topic_id: Uuid = NO_UUID


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """What came of it; a topic that was found has both."""

    name: str | None
    topic_id: Uuid
    error: Error = Error.NONE
    message: str | None = None


def delete_topics(
    image: ClusterImage,
    wanted: Sequence[TopicReference],
    *,
    context: DecisionContext,
    wall_ms: int,
    queue: bool = False,
) -> Decision[tuple[DeletedTopic, ...]]:
    """Delete topics in one step; one answer for each different reference, in the order asked.

    For few topics: see `delete_first` for how many that may be. `wall_ms`: epoch milliseconds of
    now; `queue`: the topics are to be queued, not to go at once.
    Raises: ApiError(TOPIC_DELETION_DISABLED) where delete.topic.enable is false.
    """
    found = find_topics(image, wanted, context=context)
    records: list[Record] = []
    results: list[DeletedTopic] = []
    for each in found:
        result, written = _delete(image, each, wall_ms, queue=queue)
        results.append(result)
        records += written
    return Decision(Step(tuple(records)), tuple(results))


def find_topics(
    image: ClusterImage, wanted: Sequence[TopicReference], *, context: DecisionContext
) -> tuple[DeletedTopic, ...]:
    """Return what each different reference means, in the order asked: topics, and refusals.

    A topic is named as it was asked for, so one that was asked for by its id has no name here.
    Raises: ApiError(TOPIC_DELETION_DISABLED) where delete.topic.enable is false.
    """
    if not context.config["delete.topic.enable"]:
        raise ApiError(Error.TOPIC_DELETION_DISABLED)
    counts = Counter(wanted)
    requested_by_id = {each.topic_id for each in counts if each.name is None}
    requested_by_name = {
        image.topics.id_of(each.name)
        for each in counts
        if each.name is not None and each.topic_id == NO_UUID
    }
    found: list[DeletedTopic] = []
    for reference, count in counts.items():
        try:
            topic = _find(image, reference, count)
            if topic.id in requested_by_id and topic.id in requested_by_name:
                raise ApiError(
                    Error.INVALID_REQUEST, "The topic was asked for by its name and by its id."
                )
            found.append(DeletedTopic(reference.name, topic.id))
        except ApiError as refusal:
            found.append(
                DeletedTopic(reference.name, reference.topic_id, refusal.error, refusal.message)
            )
    return tuple(found)


def delete_first(
    image: ClusterImage, found: Sequence[DeletedTopic], *, wall_ms: int, queue: bool = False
) -> Decision[tuple[DeletedTopic, ...]]:
    """Delete the first topics of a list, as many as one step may; answer for these alone.

    Each topic goes as a whole, but only that: a list of any length is deleted step by step, with
    others served in between. A step that leaves something of the list writes something. It is
    written as a whole or not at all, so that an error of it is true of each topic that it has.
    `found`: see `find_topics`; its refusals are answered as they are. A topic that has gone since
    is refused, and one that has got its name since stays.
    """
    records: list[Record] = []
    results: list[DeletedTopic] = []
    topics_max = DELETIONS_QUEUED_PER_STEP_MAX if queue else DELETIONS_PER_STEP_MAX
    topics = replicas = 0
    for each in found:
        if topics >= topics_max or replicas >= DELETED_REPLICAS_PER_STEP_MAX:
            break
        result, written = _delete(image, each, wall_ms, queue=queue)
        results.append(result)
        if written:
            topics += 1
            replicas += 0 if queue else _replica_count(image, each.topic_id)
            records += written
    return Decision(Step(tuple(records)), tuple(results))


def _delete(
    image: ClusterImage, found: DeletedTopic, wall_ms: int, *, queue: bool
) -> tuple[DeletedTopic, list[Record]]:
    if found.error is not Error.NONE:
        return found, []
    topic = image.topics.by_id(found.topic_id)
    if topic is None:
        by_id = found.name is None
        error = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
        return replace(found, error=error), []
    records = (
        _queue_records(image, topic, wall_ms) if queue else _removal_records(image, topic, wall_ms)
    )
    return DeletedTopic(topic.name, topic.id), records


def _replica_count(image: ClusterImage, topic_id: Uuid) -> int:
    topic = image.topics.by_id(topic_id)
    assert topic is not None
    return sum(len(partition.replicas) for partition in topic.partitions.values())


def _removal_records(image: ClusterImage, topic: TopicImage, wall_ms: int) -> list[Record]:
    removal = RemoveTopicRecord(topic_id=topic.id)
    if not ledger_enabled(image.features):
        return [removal]
    return [removal, *at_once_records(image, topic, wall_ms=wall_ms)]


def _queue_records(image: ClusterImage, topic: TopicImage, wall_ms: int) -> list[Record]:
    if image.deletions.is_queued(topic.id):
        return []
    return [header_record(new_entry(topic, Policy.CLASSIC, wall_ms=wall_ms))]


def _find(image: ClusterImage, reference: TopicReference, count: int) -> TopicImage:
    """Return the topic to delete. Raises: ApiError."""
    name, topic_id = reference.name, reference.topic_id
    if name is None and topic_id == NO_UUID:
        raise ApiError(Error.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_UUID:
        raise ApiError(Error.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if count > 1:
        what = "id" if name is None else "name"
        raise ApiError(Error.INVALID_REQUEST, f"Duplicate topic {what}.")
    if name == METADATA_TOPIC:
        raise _protected(name)
    if name is None:
        topic = image.topics.by_id(topic_id)
        if topic is None:
            raise ApiError(Error.UNKNOWN_TOPIC_ID)
    else:
        topic = image.topics.by_name(name)
        if topic is None:
            raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.name in INTERNAL_TOPICS:
        raise _protected(topic.name)
    return topic


def _protected(name: str) -> ApiError:
    return ApiError(Error.INVALID_REQUEST, f"The internal topic {name} cannot be deleted.")
