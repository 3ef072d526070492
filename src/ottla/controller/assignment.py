"""Partitions to be: who holds them, who is in sync from the start, in which folder.

Source: ReplicationControlManager.createTopic, PartitionAssignment, Kafka 4.0; KIP-858.
"""

from collections.abc import Sequence

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.ports import Dice
from ottla.controller.placement import candidates, place
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.topics import DIRECTORY_UNASSIGNED


def first_leader_epoch(image: ClusterImage, topic: str) -> int:
    """Return what new partitions of a topic begin with: 0, or above what a former one had.

    Clients that knew a former topic of the name believe in no smaller epoch than the last one they
    saw; librdkafka compares no topic ids (KAFKA-12257). And a consumer whose position is of the
    former topic learns by the epoch that its log ended.
    """
    return image.deletions.last_leader_epoch(topic) + 1


def assign(
    image: ClusterImage,
    topic: str,
    *,
    first: int,
    count: int,
    replication_factor: int,
    dice: Dice,
) -> list[PartitionImage]:
    """Place new partitions. Raises: ApiError(INVALID_REPLICATION_FACTOR)."""
    placed = place(
        candidates(image),
        first=first,
        count=count,
        replication_factor=replication_factor,
        dice=dice,
    )
    leader_epoch = first_leader_epoch(image, topic)
    return [_partition(image, replicas, leader_epoch) for replicas in placed]


def assign_manually(
    image: ClusterImage,
    topic: str,
    lists: Sequence[Sequence[int]],
    *,
    first: int,
    replication_factor: int | None = None,
) -> list[PartitionImage]:
    """Take replicas as somebody chose them, `lists[0]` for partition `first`.

    Raises: ApiError(INVALID_REPLICA_ASSIGNMENT) where a list is empty, names a broker twice or
            one that is not registered, has another length than its neighbours, or names no
            active broker.
    """
    leader_epoch = first_leader_epoch(image, topic)
    partitions: list[PartitionImage] = []
    for number, replicas in enumerate(lists, start=first):
        check_replicas(image, replicas, replication_factor)
        replication_factor = len(replicas)
        if not any(image.is_active(each) for each in replicas):
            raise _invalid(
                f"All brokers of the assignment of partition {number} are fenced or shutting down."
            )
        partitions.append(_partition(image, tuple(replicas), leader_epoch))
    return partitions


def check_replicas(image: ClusterImage, replicas: Sequence[int], expected: int | None) -> None:
    """Refuse a list of replicas that cannot be; `expected`: its length, None = any.

    Raises: ApiError(INVALID_REPLICA_ASSIGNMENT).
    """
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker_id}, but no such broker"
                " is registered."
            )
    if len(set(replicas)) < len(replicas):
        raise _invalid("The manual partition assignment includes a broker more than once.")
    if expected is not None and len(replicas) != expected:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(replicas)}"
            f" replica(s), where others have {expected}."
        )


def _invalid(message: str) -> ApiError:
    return ApiError(Error.INVALID_REPLICA_ASSIGNMENT, message)


def _partition(image: ClusterImage, replicas: tuple[int, ...], leader_epoch: int) -> PartitionImage:
    isr = tuple(each for each in replicas if image.is_active(each))
    assert isr, "a new partition has an active replica"
    return PartitionImage(
        replicas=replicas,
        directories=tuple(default_directory(image, each) for each in replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=leader_epoch,
    )


def default_directory(image: ClusterImage, broker_id: int) -> Uuid:
    """Return the folder where there is no choice; else the broker chooses and says so."""
    log_dirs = image.brokers[broker_id].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else DIRECTORY_UNASSIGNED
