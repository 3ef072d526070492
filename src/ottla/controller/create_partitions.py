"""Topics get more partitions. Source: ReplicationControlManager.createPartitions; KIP-195."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.controller.assignment import assign, assign_manually
from ottla.controller.context import DecisionContext
from ottla.controller.step import Decision, Step
from ottla.controller.topics import check_partition_total
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import PartitionRecord
from ottla.metadata.topics import partition_record


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic and how many partitions it shall have in all; the replicas of the new ones."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatedPartitions:
    """What came of it."""

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
    """Add partitions; one answer a topic, in the order asked; a name twice is refused once.

    Raises: ApiError(POLICY_VIOLATION) where the request asks for too many at once.
    """
    check_partition_total(sum(_additional(image, growth) for growth in wanted))
    counts = Counter(growth.name for growth in wanted)
    records: list[PartitionRecord] = []
    answers: dict[str, CreatedPartitions] = {}
    for growth in wanted:
        if growth.name in answers:
            continue
        try:
            if counts[growth.name] > 1:
                raise ApiError(Error.INVALID_REQUEST, "Duplicate topic name.")
            topic = _topic(image, growth)
            first = len(topic.partitions)
            partitions = _grow(image, topic, growth, context)
        except ApiError as refusal:
            answers[growth.name] = CreatedPartitions(growth.name, refusal.error, refusal.message)
            continue
        records += [
            partition_record(topic.id, number, partition)
            for number, partition in enumerate(partitions, start=first)
        ]
        answers[growth.name] = CreatedPartitions(growth.name)
    step = Step() if validate_only else Step(tuple(records))
    return Decision(step, tuple(answers.values()))


def _additional(image: ClusterImage, growth: NewPartitions) -> int:
    topic = image.topics.by_name(growth.name)
    return 0 if topic is None else max(0, growth.count - len(topic.partitions))


def _topic(image: ClusterImage, growth: NewPartitions) -> TopicImage:
    topic = image.topics.by_name(growth.name)
    if topic is None:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    if image.deletions.is_queued(topic.id):
        # New partitions would be replicas that nobody has told to go (KAFKA-6612).
        raise ApiError(
            Error.INVALID_TOPIC_EXCEPTION, f"The topic {growth.name} is marked for deletion."
        )
    present = len(topic.partitions)
    if growth.count == present:
        raise ApiError(Error.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if growth.count < present:
        raise ApiError(
            Error.INVALID_PARTITIONS,
            f"The topic {growth.name} currently has {present} partition(s); {growth.count} would"
            " not be an increase.",
        )
    return topic


def _grow(
    image: ClusterImage, topic: TopicImage, growth: NewPartitions, context: DecisionContext
) -> list[PartitionImage]:
    first = len(topic.partitions)
    additional = growth.count - first
    replication_factor = len(topic.partitions[0].replicas)
    if growth.assignments is None:
        return assign(
            image,
            topic.name,
            first=first,
            count=additional,
            replication_factor=replication_factor,
            dice=context.dice,
        )
    if len(growth.assignments) != additional:
        raise ApiError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only"
            f" {len(growth.assignments)} assignment(s) were specified.",
        )
    return assign_manually(
        image,
        topic.name,
        growth.assignments,
        first=first,
        replication_factor=replication_factor,
    )
