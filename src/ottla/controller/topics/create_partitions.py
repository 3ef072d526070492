"""Topics get more partitions. Source: ReplicationControlManager.createPartitions; KIP-195."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC
from ottla.controller.context import DecisionContext
from ottla.controller.step import Decision, Step
from ottla.controller.topics.assignment import assign, assign_manually
from ottla.controller.topics.create_topics import check_partition_total
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import PartitionRecord
from ottla.metadata.topics import partition_record

WHY_FIXED = {
    OFFSETS_TOPIC: "groups would not find the offsets that they have committed any more",
    REMOTE_LOG_METADATA_TOPIC: (
        "the remote segments that are recorded in it would not be found any more"
    ),
}
"""The topics whose number of partitions decides what is stored in which: it never changes."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic and its new partition count; the replicas of the new partitions."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatedPartitions:
    """The result for one topic."""

    name: str
    error: Error = Error.NONE
    message: str | None = None


def create_partitions(
    image: ClusterImage,
    wanted: Sequence[NewPartitions],
    *,
    validate_only: bool,
    context: DecisionContext,
) -> Decision[tuple[CreatedPartitions, ...]]:
    """Add partitions; one result a topic, in the order asked; a name twice is refused once.

    Raises: ApiError(POLICY_VIOLATION) where the request asks for too many at once.
    """
    check_partition_total(sum(_additional(image, request) for request in wanted))
    counts = Counter(request.name for request in wanted)
    records: list[PartitionRecord] = []
    results: dict[str, CreatedPartitions] = {}
    for request in wanted:
        if request.name in results:
            continue
        try:
            if counts[request.name] > 1:
                raise ApiError(Error.INVALID_REQUEST, "Duplicate topic name.")
            topic = _topic(image, request)
            first = len(topic.partitions)
            partitions = _added_partitions(image, topic, request, context)
        except ApiError as refusal:
            results[request.name] = CreatedPartitions(request.name, refusal.error, refusal.message)
            continue
        records += [
            partition_record(topic.id, partition_id, partition)
            for partition_id, partition in enumerate(partitions, start=first)
        ]
        results[request.name] = CreatedPartitions(request.name)
    step = Step() if validate_only else Step(tuple(records))
    return Decision(step, tuple(results.values()))


def _additional(image: ClusterImage, request: NewPartitions) -> int:
    topic = image.topics.by_name(request.name)
    return 0 if topic is None else max(0, request.count - len(topic.partitions))


def check_may_grow(name: str) -> None:
    """Raise ApiError(INVALID_REQUEST) for a topic whose number of partitions is fixed."""
    if name in WHY_FIXED:
        raise ApiError(
            Error.INVALID_REQUEST,
            f"The number of partitions of {name} cannot be changed: {WHY_FIXED[name]}.",
        )


def _topic(image: ClusterImage, request: NewPartitions) -> TopicImage:
    topic = image.topics.by_name(request.name)
    if topic is None:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    check_may_grow(request.name)
    if image.deletions.is_queued(topic.id):
        # The replicas of new partitions would never be deleted (KAFKA-6612).
        raise ApiError(
            Error.INVALID_TOPIC_EXCEPTION, f"The topic {request.name} is marked for deletion."
        )
    present = len(topic.partitions)
    if request.count == present:
        raise ApiError(Error.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if request.count < present:
        raise ApiError(
            Error.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {present} partition(s); {request.count} would"
            " not be an increase.",
        )
    return topic


def _added_partitions(
    image: ClusterImage, topic: TopicImage, request: NewPartitions, context: DecisionContext
) -> list[PartitionImage]:
    first = len(topic.partitions)
    additional = request.count - first
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        return assign(
            image,
            topic.name,
            first=first,
            count=additional,
            replication_factor=replication_factor,
            dice=context.dice,
        )
    if len(request.assignments) != additional:
        raise ApiError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only"
            f" {len(request.assignments)} assignment(s) were specified.",
        )
    return assign_manually(
        image,
        topic.name,
        request.assignments,
        first=first,
        replication_factor=replication_factor,
    )
