"""Preferred leaders are elected again: on request (ElectLeaders), and automatically.

A partition's first replica is its preferred leader. After a broker was down, others lead its
partitions; the automatic rebalance gives them back once more than a share of those that the broker
is preferred for has another leader (leader.imbalance.per.broker.percentage, which Kafka's KRaft
controllers ignore: they move every one).
Source: ReplicationControlManager.electLeaders, maybeBalancePartitionLeaders, Kafka 4.0;
KafkaController.checkAndTriggerAutoLeaderRebalance, Kafka 3.9; KIP-460.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.base.limits import ELECTIONS_PER_STEP_MAX
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import RulesByLeader, partitions
from ottla.controller.elections.partition_change import Election, PartitionTarget, build_change
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import PartitionChangeRecord

ON_REQUEST = {each.value: each for each in (Election.PREFERRED, Election.UNCLEAN)}
"""The elections that a request can ask for, by its number."""

NOT_AVAILABLE = {
    Election.PREFERRED: Error.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
assert set(NOT_AVAILABLE) == set(ON_REQUEST.values())


@dataclass(frozen=True, slots=True)
class Elected:
    """The result of one partition's election."""

    topic: str
    partition_id: int
    error: Error = Error.NONE
    message: str | None = None


def elect_leaders(
    image: ClusterImage,
    wanted: Sequence[tuple[str, int]] | None,
    *,
    election_type: int,
    context: DecisionContext,
) -> Decision[tuple[Elected, ...]]:
    """Elect leaders; one result for each different partition, in the order asked.

    `wanted` None = all partitions; those that need no election are left out of the results.
    Raises: ApiError(INVALID_REQUEST) for an unknown election type.
    """
    election = ON_REQUEST.get(election_type)
    if election is None:
        raise ApiError(Error.INVALID_REQUEST, f"Unknown election type {election_type}.")
    rules = RulesByLeader(image, context.config)
    records: list[PartitionChangeRecord] = []
    results: list[Elected] = []
    for name, partition_id in _all(image) if wanted is None else dict.fromkeys(wanted):
        try:
            records.append(_elect(image, name, partition_id, election, rules))
        except ApiError as refusal:
            if wanted is None and refusal.error is Error.ELECTION_NOT_NEEDED:
                continue
            results.append(Elected(name, partition_id, refusal.error, refusal.message))
            continue
        results.append(Elected(name, partition_id))
    return Decision(Step(tuple(records), atomic=False), tuple(results))


def _all(image: ClusterImage) -> Iterator[tuple[str, int]]:
    return (
        (topic.name, partition_id)
        for topic, partition_id, _ in partitions(image)
        if not image.deletions.is_queued(topic.id)
    )


def _elect(
    image: ClusterImage, name: str, partition_id: int, election: Election, rules: RulesByLeader
) -> PartitionChangeRecord:
    """Return the change that an election makes. Raises: ApiError."""
    topic = image.topics.by_name(name)
    if topic is None:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if image.deletions.is_queued(topic.id):
        # An error of this partition alone, which delays no other election (KAFKA-1558).
        raise ApiError(Error.INVALID_TOPIC_EXCEPTION, f"The topic {name} is being deleted")
    partition = topic.partitions.get(partition_id)
    if partition is None:
        raise ApiError(
            Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition_id}"
        )
    is_preferred = partition.leader == partition.replicas[0]
    is_led = partition.leader != NO_LEADER
    if is_preferred if election is Election.PREFERRED else is_led:
        raise ApiError(Error.ELECTION_NOT_NEEDED)
    record = build_change(
        topic.id,
        partition_id,
        partition,
        PartitionTarget(election=election),
        rules.of(partition.leader).change_context(name),
    )
    if record is None:
        raise ApiError(NOT_AVAILABLE[election])
    return record


def balance(
    image: ClusterImage, config: NodeConfig, *, limit: int = ELECTIONS_PER_STEP_MAX
) -> Decision[bool]:
    """Give partitions back to their preferred leaders; the reply tells whether more remain."""
    rules = RulesByLeader(image, config)
    records: list[PartitionChangeRecord] = []
    for topic, partition_id, partition in _imbalanced(
        image, config["leader.imbalance.per.broker.percentage"]
    ):
        if len(records) == limit:
            return Decision(Step(tuple(records), atomic=False), True)
        record = build_change(
            topic.id,
            partition_id,
            partition,
            PartitionTarget(election=Election.PREFERRED),
            rules.of(partition.leader).change_context(topic.name),
        )
        if record is not None:
            records.append(record)
    return Decision(Step(tuple(records), atomic=False), False)


def _imbalanced(
    image: ClusterImage, percentage: int
) -> Iterable[tuple[TopicImage, int, PartitionImage]]:
    """Return the partitions of active brokers over the limit that other brokers lead."""
    totals: dict[int, int] = {}
    elsewhere: dict[int, list[tuple[TopicImage, int, PartitionImage]]] = {}
    for each in partitions(image):
        topic, _, partition = each
        if image.deletions.is_queued(topic.id):
            continue
        preferred = partition.replicas[0]
        totals[preferred] = totals.get(preferred, 0) + 1
        if partition.leader != preferred:
            elsewhere.setdefault(preferred, []).append(each)
    for broker_id, found in sorted(elsewhere.items()):
        if image.is_active(broker_id) and 100 * len(found) > percentage * totals[broker_id]:
            yield from found
