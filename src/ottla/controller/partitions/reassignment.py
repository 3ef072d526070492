"""Partitions move to other brokers, and get more or fewer replicas, while they are in use.

The state of a reassignment is in the partition. Its start writes the target replicas first, those
to be removed behind them, and both differences as adding and removing replicas. Followers join
the ISR as always; the change that makes the last target replica a member of it also ends the
reassignment (`partition_change`): the removed ones leave the replicas and the ISR, and the leader
epoch is bumped so that they are fenced. Until then all replicas count, and nothing is less safe
than before. A reassignment that only drops or reorders replicas in sync ends with its start.

Cancelling removes the adding replicas again. Where no other one is in the ISR that could lose
records, so it is refused unless the topic allows unclean elections; then an eligible replica
leads before any other one, where Kafka takes the first.

One difference from Kafka 4.0: a target that replaces another one, still under way, keeps
the original replicas (Kafka then counts the adding replicas of the replaced
target as original, and cancelling leaves them all). A replica of the replaced target alone
is both adding and removing.
Not done: throttled replicas (quotas).
Source: ReplicationControlManager, PartitionReassignmentReplicas, PartitionReassignmentRevert,
Kafka 4.0; KIP-455, KIP-860.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import Rules, RulesByLeader, partitions
from ottla.controller.elections.new_partitions import assigned_anew, is_new
from ottla.controller.elections.partition_change import Election, PartitionTarget, build_change
from ottla.controller.step import Decision, Step
from ottla.controller.topics.assignment import RegistrationCheck, check_replicas, default_directory
from ottla.controller.topics.create_topics import check_partition_total
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import PartitionChangeRecord, PartitionRecord


@dataclass(frozen=True, slots=True)
class Target:
    """A partition and its target replicas; None cancels the reassignment under way."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Reassigned:
    """The result for one partition: a started reassignment, a finished one, or an error."""

    topic: str
    partition_id: int
    error: Error = Error.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A reassignment under way."""

    topic: str
    partition_id: int
    partition: PartitionImage


def alter_reassignments(
    image: ClusterImage,
    wanted: Sequence[Target],
    *,
    may_change_factor: bool,
    context: DecisionContext,
    check: RegistrationCheck | None = None,
) -> Decision[tuple[Reassigned, ...]]:
    """Start, change or cancel reassignments; one result each, in the order asked.

    `may_change_factor`: False refuses targets of another size (KIP-860). `check`: which targets
    must be registered brokers; None = those that the context's policy names.
    Raises: ApiError(POLICY_VIOLATION) where the request is too large for one step.
    """
    check_partition_total(len(wanted))
    counts = Counter((target.topic, target.partition_id) for target in wanted)
    rules_by_leader = RulesByLeader(
        image, context.config, requests_may_be_delayed=context.mode.requests_may_be_delayed
    )
    check = context.mode.assignments.reassigned if check is None else check
    records: list[PartitionRecord | PartitionChangeRecord] = []
    results: list[Reassigned] = []
    for target in wanted:
        try:
            if counts[target.topic, target.partition_id] > 1:
                raise ApiError(Error.INVALID_REQUEST, "Duplicate partition.")
            topic, partition = _find(image, target)
            rules = rules_by_leader.of(partition.leader)
            if target.replicas is None:
                partition_target = _cancelled(topic, target.partition_id, partition, rules)
            else:
                if not may_change_factor:
                    _check_factor(partition, target.replicas)
                partition_target = _moved(image, partition, target.replicas, check)
                if is_new(partition):
                    records.append(
                        assigned_anew(topic.id, target.partition_id, partition, target.replicas)
                    )
        except ApiError as refusal:
            results.append(
                Reassigned(target.topic, target.partition_id, refusal.error, refusal.message)
            )
            continue
        record = build_change(
            topic.id,
            target.partition_id,
            partition,
            partition_target,
            rules.change_context(topic.name),
        )
        if record is not None:
            records.append(record)
        results.append(Reassigned(target.topic, target.partition_id))
    return Decision(Step(tuple(records)), tuple(results))


def list_reassignments(
    image: ClusterImage, wanted: Sequence[tuple[str, Sequence[int]]] | None
) -> tuple[Ongoing, ...]:
    """Return reassignments under way: all, or those of these partitions of these topics.

    Unknown partitions are skipped, and so are those without a reassignment.
    """
    found: list[Ongoing] = []
    if wanted is None:
        for topic in image.topics:
            found += [
                Ongoing(topic.name, partition_id, partition)
                for partition_id, partition in topic.in_order()
                if partition.is_reassigning
            ]
        return tuple(found)
    for name, partition_ids in wanted:
        named = image.topics.by_name(name)
        if named is None:
            continue
        for partition_id in partition_ids:
            partition_or_none = named.partitions.get(partition_id)
            if partition_or_none is not None and partition_or_none.is_reassigning:
                found.append(Ongoing(name, partition_id, partition_or_none))
    return tuple(found)


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that a partition has once its reassignment has ended."""
    return tuple(each for each in partition.replicas if each not in partition.removing_replicas)


def finish_reassignments(image: ClusterImage, config: NodeConfig) -> Step:
    """End the reassignments whose target replicas are all in sync.

    The change that brings the last of them in sync ends one; but in ZooKeeper others may have
    written the in-sync replicas, or the assignment, while there was no controller.
    """
    rules = Rules(image, config)
    records: list[PartitionChangeRecord] = []
    for topic, partition_id, partition in partitions(image):
        if partition.is_reassigning and set(target_of(partition)) <= set(partition.isr):
            context = rules.change_context(topic.name)
            record = build_change(topic.id, partition_id, partition, PartitionTarget(), context)
            if record is not None:
                records.append(record)
    return Step(tuple(records), atomic=False)


def _find(image: ClusterImage, target: Target) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.by_name(target.topic)
    if topic is None:
        raise ApiError(
            Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {target.topic}."
        )
    if image.deletions.is_queued(topic.id) and target.replicas is not None:
        # Cancelling is allowed: a deletion may wait for the reassignment's end.
        raise ApiError(
            Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {topic.name} is marked for deletion."
        )
    partition = topic.partitions.get(target.partition_id)
    if partition is None:
        raise ApiError(
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {target.topic}:{target.partition_id}.",
        )
    return topic, partition


def _check_factor(partition: PartitionImage, replicas: tuple[int, ...]) -> None:
    """Refuse another number of replicas than that of the present target."""
    present = len(set(partition.replicas) - set(partition.removing_replicas))
    if len(replicas) != present:
        raise ApiError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {present} to {len(replicas)}.",
        )


def _moved(
    image: ClusterImage,
    partition: PartitionImage,
    target: tuple[int, ...],
    check: RegistrationCheck,
) -> PartitionTarget:
    """Return the target that starts a reassignment or changes the present one."""
    present = set(partition.replicas)
    added = sorted(set(target) - present)
    adding = (*partition.adding_replicas, *added)
    registered = {
        RegistrationCheck.ALL: target,
        RegistrationCheck.ADDED: tuple(each for each in target if each in adding),
        RegistrationCheck.NONE: (),
    }[check]
    check_replicas(image, target, None, registered=registered)
    removing = tuple(sorted(present - set(target)))
    return PartitionTarget(
        replicas=target + removing,
        removing=removing,
        adding=tuple(sorted({*adding})),
        directories={each: default_directory(image, each) for each in added},
    )


def _cancelled(
    topic: TopicImage, partition_id: int, partition: PartitionImage, rules: Rules
) -> PartitionTarget:
    """Return the target with the replicas and the ISR without the adding ones."""
    if not partition.is_reassigning:
        raise ApiError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    adding = partition.adding_replicas
    replicas = tuple(each for each in partition.replicas if each not in adding)
    isr = tuple(each for each in partition.isr if each not in adding)
    assert replicas, "a reassignment begins with replicas"
    election = rules.election(topic.name)
    if not isr and election is not Election.UNCLEAN:
        raise ApiError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert the assignment of partition {topic.name}:{partition_id}: no replica"
            " that it would leave is in sync, and the topic does not allow unclean leader"
            " elections.",
        )
    if not isr and not set(partition.elr) & set(replicas):
        isr = replicas[:1]
    return PartitionTarget(
        isr=isr,
        replicas=replicas,
        removing=(),
        adding=(),
        election=election,
    )
