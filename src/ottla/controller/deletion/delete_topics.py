"""Topics are deleted, by name or by id, or by a marker in ZooKeeper.

In KRaft the record is the deletion: the name is free at once, and brokers delete their replicas
as they replay it, fenced by the topic's id; at feature level `ottla.version` 1 the entry in the
deletion ledger is written with it. In ZooKeeper mode the topic is queued, and is removed when all
its replicas are deleted; asking again is no error. Deleting the internal topics is refused, unlike
in Kafka's Admin API: without them all groups and transactions would be lost.
Source: ControllerApis.deleteTopics, ReplicationControlManager.deleteTopics, Kafka 4.0; KIP-516;
KafkaController.processTopicDeletion, Kafka 3.9.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, NO_UUID, Uuid
from ottla.base.limits import (
    DELETED_REPLICAS_PER_STEP_MAX,
    DELETIONS_PER_STEP_MAX,
    DELETIONS_QUEUED_PER_STEP_MAX,
)
from ottla.controller.context import DecisionContext
from ottla.controller.deletion.deletion_policy import at_once_records, new_entry
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import Policy, header_record
from ottla.metadata.features import ledger_enabled
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import Record, RemoveTopicRecord


@dataclass(frozen=True, slots=True)
class TopicReference:
    """A topic as a request names it: by its name or by its id."""

    name: str | None = None
    topic_id: Uuid = NO_UUID


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """The result for one topic; with name and id where it was found."""

    name: str | None
    topic_id: Uuid
    error: Error = Error.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedTopics:
    """The results of markers.

    Fields: `queued`: topics that are queued now, or were before; `refused`: the others, whose
            markers are to be removed, each with the reason.
    """

    queued: tuple[str, ...] = ()
    refused: Mapping[str, Error] = field(default_factory=dict)


def delete_topics(
    image: ClusterImage,
    wanted: Sequence[TopicReference],
    *,
    context: DecisionContext,
    wall_ms: int,
    queue: bool = False,
) -> Decision[tuple[DeletedTopic, ...]]:
    """Delete topics in one step; one result for each different reference, in the order asked.

    For few topics: see `delete_first` for how many that may be. `wall_ms`: epoch milliseconds of
    now; `queue`: queue the topics instead of removing them at once.
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
    """Return each different reference's topic or error, in the order asked.

    A topic is named as in the request, so one that was asked for by its id has no name here.
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
    """Delete the first topics of a list, as many as one step may; return the results of these.

    Each topic is deleted as a whole: a list of any length is deleted step by step, with
    other requests served in between. A step that leaves something of the list writes something. It
    is atomic, so that an error of it is true for each topic in it.
    `found`: see `find_topics`; its errors are returned as they are. A topic that was removed since
    is an error, and one that got its name since is not touched.
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


def mark_topics(
    image: ClusterImage, marked: Mapping[str, Uuid], *, enabled: bool, wall_ms: int
) -> Decision[MarkedTopics]:
    """Queue the topics that have a marker under /admin/delete_topics.

    API handlers and other tools write markers; all are checked here. A topic that must not or
    cannot be deleted is refused, and the caller removes its marker: one that stayed would delete a
    topic that is created later, or once deletions are enabled (KAFKA-3175, KAFKA-5975).
    Marking twice is marking once (KAFKA-13572).

    `marked`: the ids of the topics that the markers are for, by name; another topic of the name is
    not touched. `enabled`: delete.topic.enable.
    """
    queued: list[str] = []
    refused: dict[str, Error] = {}
    records: list[Record] = []
    for name, topic_id in sorted(marked.items()):
        topic = image.topics.by_name(name)
        if topic is None or topic.id != topic_id:
            refused[name] = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif name in INTERNAL_TOPICS or name == METADATA_TOPIC:
            refused[name] = Error.INVALID_REQUEST
        elif image.deletions.is_queued(topic_id):
            queued.append(name)
        elif not enabled:
            refused[name] = Error.TOPIC_DELETION_DISABLED
        else:
            queued.append(name)
            records += _queue_records(image, topic, wall_ms)
    return Decision(
        Step(tuple(records), atomic=False), MarkedTopics(queued=tuple(queued), refused=refused)
    )


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
    return [header_record(new_entry(image, topic, Policy.CLASSIC, wall_ms=wall_ms))]


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
