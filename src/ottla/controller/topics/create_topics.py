"""Topics are created.

Each topic of a request succeeds or fails by itself; those of one step that succeed are created
together.
Source: ReplicationControlManager, ControllerApis, Kafka 4.0; KIP-4, KIP-195, KIP-516, KIP-525.
Over ZooKeeper: ZkAdminManager, DelayedCreatePartitions, Kafka 3.9.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.base.ids import METADATA_TOPIC, NO_LEADER, NO_UUID, Uuid
from ottla.base.limits import CREATIONS_PER_STEP_MAX, PARTITIONS_PER_REQUEST_MAX
from ottla.controller.context import DecisionContext
from ottla.controller.idle import check_ttl
from ottla.controller.parts import in_parts
from ottla.controller.step import Decision, Step
from ottla.controller.tiering import tiering_change
from ottla.controller.topics.assignment import assign, assign_manually
from ottla.metadata.config_describe import Entry, describe_topic
from ottla.metadata.configs import ResourceType, config_records
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage, TopicsImage
from ottla.metadata.records import Record, TopicTieringRecord
from ottla.metadata.topic_config import validate_topic_configs
from ottla.metadata.topic_names import fault_of
from ottla.metadata.topics import topic_records

USE_DEFAULT = -1
"""The default number of partitions, or replication factor, of this node's properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A requested topic. `assignments`: replicas by partition, or nothing."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The result for one topic."""

    name: str
    error: Error = Error.NONE
    message: str | None = None
    topic_id: Uuid = NO_UUID
    partition_count: int = -1
    replication_factor: int = -1
    configs: tuple[Entry, ...] = ()


def create_topics(
    image: ClusterImage,
    wanted: Sequence[NewTopic],
    *,
    validate_only: bool,
    context: DecisionContext,
) -> Decision[tuple[CreatedTopic, ...]]:
    """Create topics; one result each, in the order asked.

    A name that comes twice is refused once (INVALID_REQUEST). With `validate_only` nothing is
    created, and the results have no ids. A topic with a partition whose replicas are all down,
    where the context's policy accepts that, is created with the result REQUEST_TIMED_OUT.

    Raises: ApiError(POLICY_VIOLATION) where the request asks for too many partitions at once.
    """
    _check_total(wanted, context)
    counts = Counter(topic.name for topic in wanted)
    records: list[Record] = []
    results: dict[str, CreatedTopic] = {}
    # Topics of one request mostly share their configs, and describing them costs the most.
    described: dict[tuple[tuple[str, str], ...], tuple[Entry, ...]] = {}
    topics = image.topics  # Grows, so that new names collide with each other too.
    for topic in wanted:
        if topic.name in results:
            continue
        try:
            if counts[topic.name] > 1:
                raise ApiError(Error.INVALID_REQUEST, "Duplicate topic name.")
            created, overrides, tiering = _create(image, topics, topic, context)
        except ApiError as refusal:
            results[topic.name] = CreatedTopic(topic.name, refusal.error, refusal.message)
            continue
        topics = topics.with_topic(created)
        records += new_topic_records(created, overrides, tiering)
        settings = tuple(sorted(overrides.items()))
        if settings not in described:
            described[settings] = tuple(describe_topic(image, context.config, overrides))
        leaderless = [] if validate_only else _leaderless(created)
        if leaderless:
            # Kafka waits for the leaders until the request's time is over, and answers this.
            results[topic.name] = CreatedTopic(
                topic.name,
                Error.REQUEST_TIMED_OUT,
                f"Topic '{topic.name}' is created; {len(leaderless)} of its partitions, the first"
                f" of them {leaderless[0]}, have no replica on a live broker, and get a leader"
                " when one of their brokers starts.",
            )
            continue
        results[topic.name] = CreatedTopic(
            topic.name,
            topic_id=NO_UUID if validate_only else created.id,
            partition_count=len(created.partitions),
            replication_factor=len(created.partitions[0].replicas),
            configs=described[settings],
        )
    step = Step() if validate_only else Step(tuple(records))
    return Decision(step, tuple(results.values()))


def parts_of(wanted: Sequence[NewTopic], context: DecisionContext) -> list[tuple[NewTopic, ...]]:
    """Split a request into what one step each creates, in order; equal names stay together.

    Raises: ApiError(POLICY_VIOLATION) where the request asks for too many partitions at once.
    """
    _check_total(wanted, context)
    return in_parts(
        wanted,
        lambda topic: topic.name,
        CREATIONS_PER_STEP_MAX,
        lambda topic: _partition_count(topic, context),
    )


def _leaderless(topic: TopicImage) -> list[int]:
    return [
        partition_id
        for partition_id, partition in topic.in_order()
        if partition.leader == NO_LEADER
    ]


def _check_total(wanted: Sequence[NewTopic], context: DecisionContext) -> None:
    check_partition_total(sum(_partition_count(topic, context) for topic in wanted))


def _partition_count(topic: NewTopic, context: DecisionContext) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.partition_count == USE_DEFAULT:
        default: int = context.config["num.partitions"]
        return default
    return max(0, topic.partition_count)


def check_partition_total(total: int) -> None:
    """Refuse a request that would make too large a step."""
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            Error.POLICY_VIOLATION,
            f"The request asks for {total} partitions; {PARTITIONS_PER_REQUEST_MAX} is the most"
            " that one request may.",
        )


def _create(
    image: ClusterImage, topics: TopicsImage, topic: NewTopic, context: DecisionContext
) -> tuple[TopicImage, dict[str, str], TopicTieringRecord | None]:
    """Return the topic to be, its overrides and its tiering state. Raises: ApiError."""
    check_new_name(image, topics, topic.name)
    overrides = _overrides(topic)
    validate_topic_configs(overrides, context.config, image)
    check_ttl(image, context.mode, topic.name, overrides)
    partitions = _partitions(image, topic, context)
    created = TopicImage(
        name=topic.name, id=new_topic_id(image, context), partitions=Map(enumerate(partitions))
    )
    return (
        created,
        overrides,
        tiering_change(image, context, topic.name, created.id, {}, overrides),
    )


def check_new_name(image: ClusterImage, topics: TopicsImage, name: str) -> None:
    """Check that a topic of that name may be created. Raises: ApiError."""
    if name == METADATA_TOPIC:
        raise ApiError(
            Error.INVALID_REQUEST, f"Creation of the internal topic {METADATA_TOPIC} is prohibited."
        )
    fault = fault_of(name)
    if fault is not None:
        raise ApiError(Error.INVALID_TOPIC_EXCEPTION, fault)
    if image.is_queued_for_deletion(name):
        raise ApiError(
            Error.TOPIC_ALREADY_EXISTS,
            f"Topic '{name}' is marked for deletion; its name is free once all replicas are gone.",
        )
    if name in topics:
        raise ApiError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    alike = topics.collisions(name)
    if alike:
        raise ApiError(
            Error.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with the existing topic '{alike[0]}': metrics tell no dot"
            " from an underscore.",
        )


def _overrides(topic: NewTopic) -> dict[str, str]:
    empty = [name for name, value in topic.configs if value is None]
    if empty:
        raise ApiError(
            Error.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(empty)}"
        )
    # A name that comes twice: the last one counts, as in Kafka.
    return {name: value for name, value in topic.configs if value is not None}


def _partitions(
    image: ClusterImage, topic: NewTopic, context: DecisionContext
) -> list[PartitionImage]:
    if topic.assignments:
        return _assigned_partitions(image, topic, context)
    factor, count = topic.replication_factor, topic.partition_count
    if factor < USE_DEFAULT or factor == 0:
        raise ApiError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < USE_DEFAULT or count == 0:
        raise ApiError(
            Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid value."
        )
    return assign(
        image,
        topic.name,
        first=0,
        count=context.config["num.partitions"] if count == USE_DEFAULT else count,
        replication_factor=(
            context.config["default.replication.factor"] if factor == USE_DEFAULT else factor
        ),
        dice=context.dice,
    )


def _assigned_partitions(
    image: ClusterImage, topic: NewTopic, context: DecisionContext
) -> list[PartitionImage]:
    for given, what in (
        (topic.replication_factor, "replication factor"),
        (topic.partition_count, "number of partitions"),
    ):
        if given != USE_DEFAULT:
            raise ApiError(
                Error.INVALID_REQUEST,
                f"A manual partition assignment was specified, but the {what} was not set to -1.",
            )
    partition_ids = [partition_id for partition_id, _ in topic.assignments]
    if len(set(partition_ids)) < len(partition_ids):
        raise ApiError(
            Error.INVALID_REPLICA_ASSIGNMENT, "A partition has more than one manual assignment."
        )
    if sorted(partition_ids) != list(range(len(partition_ids))):
        raise ApiError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "Partitions should be a consecutive 0-based integer sequence.",
        )
    lists = dict(topic.assignments)
    in_order = [lists[partition_id] for partition_id in range(len(partition_ids))]
    check = context.mode.assignments.created
    return assign_manually(image, topic.name, in_order, first=0, check=check)


def new_topic_id(image: ClusterImage, context: DecisionContext) -> Uuid:
    """Draw a random UUID (version 4) that no topic has and that is not reserved."""
    while True:
        raw = bytearray(context.dice.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        topic_id = Uuid(bytes(raw))
        # A text that begins with a dash looks like an option to every command-line tool.
        if raw[0] >> 2 != 62 and image.topics.by_id(topic_id) is None:
            return topic_id


def new_topic_records(
    topic: TopicImage, overrides: Mapping[str, str], tiering: TopicTieringRecord | None
) -> list[Record]:
    """Return the records of a new topic, in their order."""
    first, *partitions = topic_records(topic)
    configs = config_records((ResourceType.TOPIC, topic.name), {}, overrides)
    state = () if tiering is None else (tiering,)
    return [first, *configs, *state, *partitions]
