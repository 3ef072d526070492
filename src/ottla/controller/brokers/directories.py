"""Brokers with several log directories report which one each replica is in (AssignReplicasToDirs).

The controller must know, or a failed directory would cost no replica in it the leadership.
A directory that failed before its assignment arrived counts at once: the replica leaves the ISR.

A replica that was in another directory before is empty in this one, since brokers do not move
logs: its old directory was removed from the broker's configuration, perhaps after a clean stop.
So it leaves the ISR and is not eligible to lead, nor is it the last known leader any more: with an
empty log it would have the others truncate theirs. Kafka overlooks that. If the log was moved by
hand nothing is lost: the replica fetches what it lacks, or leads after an unclean election. One
that had no directory, since its log could not be read, may have all its records again.
Source: ReplicationControlManager.handleAssignReplicasToDirs, Kafka 4.0; KIP-858.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import Rules
from ottla.controller.elections.partition_change import PartitionTarget, build_change
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_LOST, UNKNOWN_DIRECTORIES


@dataclass(frozen=True, slots=True)
class DirectoryAssignment:
    """A replica of the requesting broker and its log directory."""

    directory: Uuid
    topic_id: Uuid
    partition_id: int


def assign_directories(
    image: ClusterImage,
    wanted: Sequence[DirectoryAssignment],
    *,
    broker_id: int,
    broker_epoch: int,
    context: DecisionContext,
) -> Decision[tuple[tuple[DirectoryAssignment, Error], ...]]:
    """Record log directories; one result each, in order. The last one for a replica counts.

    Raises: ApiError(STALE_BROKER_EPOCH) where the broker is not registered under that epoch.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise ApiError(
            Error.STALE_BROKER_EPOCH, f"Broker {broker_id} has not the epoch {broker_epoch}."
        )
    rules = Rules(image, context.config)
    last = {
        (assignment.topic_id, assignment.partition_id): assignment.directory
        for assignment in wanted
    }
    records: list[PartitionChangeRecord] = []
    results: list[tuple[DirectoryAssignment, Error]] = []
    for assignment in wanted:
        topic = image.topics.by_id(assignment.topic_id)
        partition = None if topic is None else topic.partitions.get(assignment.partition_id)
        error = _fault(broker_id, topic, partition)
        results.append((assignment, error))
        directory = last.pop((assignment.topic_id, assignment.partition_id), None)
        if error is not Error.NONE or directory is None:
            continue
        assert topic is not None
        assert partition is not None
        change_context = rules.change_context(topic.name)
        target = PartitionTarget(
            directories={broker_id: directory},
            isr=partition.isr,
            election=rules.election(topic.name),
        )
        previous = partition.directory(broker_id)
        is_offline = bool(broker.log_dirs) and directory not in broker.log_dirs
        is_moved = previous not in UNKNOWN_DIRECTORIES and previous != directory
        if is_offline or is_moved:
            others = tuple(each for each in partition.isr if each != broker_id)
            lost = frozenset({broker_id} if is_moved else ())
            is_last = not others and not change_context.elr_enabled and not is_offline
            target = replace(
                target,
                isr=partition.isr if is_last else others,
                unclean_shutdown=lost,
                empty_logs=frozenset() if previous == DIRECTORY_LOST else lost,
            )
        record = build_change(topic.id, assignment.partition_id, partition, target, change_context)
        if record is not None:
            records.append(record)
    return Decision(Step(tuple(records), atomic=False), tuple(results))


def _fault(broker_id: int, topic: TopicImage | None, partition: PartitionImage | None) -> Error:
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if broker_id in partition.replicas else Error.NOT_LEADER_OR_FOLLOWER
