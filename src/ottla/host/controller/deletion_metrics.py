"""The metrics of topic deletions, from the image, in both modes. Source: KafkaController."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.base.metrics import Family, gauge
from ottla.metadata.deletions import DeletionImage, DeletionState, HaltReason
from ottla.metadata.image import ClusterImage

PREFIX: Final = "kafka_controller_kafka_controller"


class DeletionCounts(NamedTuple):
    """Topics and replicas to delete, and those of them that are ineligible now."""

    topics: int = 0
    replicas: int = 0
    ineligible_topics: int = 0
    ineligible_replicas: int = 0


def count_deletions(image: ClusterImage) -> DeletionCounts:
    """Count topics to delete, their replicas not deleted yet, and the ineligible of both."""
    pending = image.deletions.pending()
    waiting = [each.count(DeletionState.INELIGIBLE) for each in pending]
    return DeletionCounts(
        topics=len(pending),
        replicas=sum(_replicas_left(image, each) for each in pending),
        ineligible_topics=sum(
            replicas > 0 or each.halted is not HaltReason.NONE
            for each, replicas in zip(pending, waiting, strict=True)
        ),
        ineligible_replicas=sum(waiting),
    )


def _replicas_left(image: ClusterImage, deletion: DeletionImage) -> int:
    """Count the replicas not deleted, of the assignment: the ledger lists none before the start."""
    topic = image.topics.by_id(deletion.topic_id)
    if topic is None:
        return deletion.count(DeletionState.STARTED, DeletionState.INELIGIBLE)
    over = {
        (broker_id, partition_id)
        for broker_id, state, partition_ids in deletion.rows()
        if state.is_over
        for partition_id in partition_ids
    }
    return sum(
        (broker_id, partition_id) not in over
        for partition_id, partition in topic.partitions.items()
        for broker_id in partition.replicas
    )


def deletion_gauges(counts: DeletionCounts) -> Iterator[Family]:
    """Yield the gauges of topic deletions."""
    for name, text, value in (
        ("topics_to_delete", "Topics that are to be deleted.", counts.topics),
        ("replicas_to_delete", "Replicas of these that are not deleted yet.", counts.replicas),
        (
            "topics_ineligible_to_delete",
            "Topics whose deletion waits for a broker, a log directory, a move or an election.",
            counts.ineligible_topics,
        ),
        (
            "replicas_ineligible_to_delete",
            "Replicas that cannot be deleted now: their broker is down, or refused.",
            counts.ineligible_replicas,
        ),
    ):
        yield gauge(f"{PREFIX}_{name}_count", text, value)
