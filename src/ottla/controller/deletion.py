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
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, NO_UUID, Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.deletion_policy import at_once_records
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage, Policy, header_record
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
    """Delete topics; one answer for each different reference, in the order asked.

    `wall_ms`: epoch milliseconds of now; `queue`: the topics are to be queued, not to go at once.
    Raises: ApiError(TOPIC_DELETION_DISABLED) where delete.topic.enable is false.
    """
    if not context.config["delete.topic.enable"]:
        raise ApiError(Error.TOPIC_DELETION_DISABLED)
    counts = Counter(wanted)
    asked_by_id = {each.topic_id for each in counts if each.name is None}
    asked_by_name = {
        image.topics.id_of(each.name)
        for each in counts
        if each.name is not None and each.topic_id == NO_UUID
    }
    records: list[Record] = []
    answers: list[DeletedTopic] = []
    for reference, count in counts.items():
        try:
            topic = _find(image, reference, count)
            if topic.id in asked_by_id and topic.id in asked_by_name:
                raise ApiError(
                    Error.INVALID_REQUEST, "The topic was asked for by its name and by its id."
                )
        except ApiError as refusal:
            answers.append(
                DeletedTopic(reference.name, reference.topic_id, refusal.error, refusal.message)
            )
            continue
        records += _queueing(image, topic, wall_ms) if queue else _removal(image, topic, wall_ms)
        answers.append(DeletedTopic(topic.name, topic.id))
    return Decision(Step(tuple(records)), tuple(answers))


def _removal(image: ClusterImage, topic: TopicImage, wall_ms: int) -> list[Record]:
    removal = RemoveTopicRecord(topic_id=topic.id)
    if not ledger_enabled(image.features):
        return [removal]
    return [removal, *at_once_records(image, topic, wall_ms=wall_ms)]


def _queueing(image: ClusterImage, topic: TopicImage, wall_ms: int) -> list[Record]:
    if image.deletions.is_queued(topic.id):
        return []
    deletion = DeletionImage(
        topic_id=topic.id, name=topic.name, policy=Policy.CLASSIC, asked_ms=max(wall_ms, 0)
    )
    return [header_record(deletion)]


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
