"""New partitions: their replicas, their first in-sync replicas, and their log directories.

Source: ReplicationControlManager.createTopic, PartitionAssignment, Kafka 4.0; KIP-858. Over
ZooKeeper: ZkAdminManager.createTopics, KafkaController.validateReplicas, Kafka 3.9.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.base.ports import Dice
from ottla.controller.topics.placement import candidates, place
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.topics import DIRECTORY_UNASSIGNED


class RegistrationCheck(Enum):
    """Which replicas of a manual assignment must be on registered brokers."""

    ALL = "all"
    ADDED = "added"
    """Those that a reassignment adds; the others may be down."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPolicy:
    """What a mode requires of manual assignments.

    In KRaft a broker that is down stays registered, and an assignment may name it. Over ZooKeeper
    only live brokers are registered, so a broker that is down looks like a mistake; these are
    accepted where Kafka accepts them.

    Fields: `created`: of new topics. `reassigned`: of reassignments that a request asks for.
    """

    created: RegistrationCheck
    reassigned: RegistrationCheck


KRAFT_ASSIGNMENTS = AssignmentPolicy(
    created=RegistrationCheck.ALL, reassigned=RegistrationCheck.ALL
)
ZOOKEEPER_ASSIGNMENTS = AssignmentPolicy(
    created=RegistrationCheck.NONE, reassigned=RegistrationCheck.ADDED
)
"""As Kafka 3.9 over ZooKeeper. New partitions of a topic must be on live brokers."""


def first_leader_epoch(image: ClusterImage, topic: str) -> int:
    """Return the first leader epoch of a topic's new partitions: above that of a former topic.

    0 where no topic had the name. Clients that knew a former topic of the name reject an epoch
    below the last one they saw; librdkafka compares no topic ids (KAFKA-12257). A consumer whose
    position is in the former topic sees by the epoch that its log ended.
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
    check: RegistrationCheck = RegistrationCheck.ALL,
) -> list[PartitionImage]:
    """Use the replicas of a manual assignment; `lists[0]` is for partition `first`.

    With `check` NONE, a partition without any active replica is in state NEW: assigned, and without
    a leader until `new_partitions` elects the first.

    Raises: ApiError(INVALID_REPLICA_ASSIGNMENT) where a list is empty, names a broker twice, has
            another length than the others, or, unless `check` is NONE, names a broker that
            is not registered, or no active one.
    """
    any_broker = check is RegistrationCheck.NONE
    leader_epoch = first_leader_epoch(image, topic)
    partitions: list[PartitionImage] = []
    for partition_id, replicas in enumerate(lists, start=first):
        registered = () if any_broker else replicas
        check_replicas(image, replicas, replication_factor, registered=registered)
        replication_factor = len(replicas)
        if not any_broker and not any(image.is_active(each) for each in replicas):
            raise _invalid(
                f"All brokers of the assignment of partition {partition_id} are fenced or"
                " shutting down."
            )
        partitions.append(_partition(image, tuple(replicas), leader_epoch))
    return partitions


def check_replicas(
    image: ClusterImage,
    replicas: Sequence[int],
    expected: int | None,
    *,
    registered: Collection[int],
) -> None:
    """Check a list of replicas.

    `expected`: its length, None = any. `registered`: those of it that must be registered brokers.
    Raises: ApiError(INVALID_REPLICA_ASSIGNMENT).
    """
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id < 0:
            raise _invalid(f"The manual partition assignment includes the broker id {broker_id}.")
        if broker_id in registered and broker_id not in image.brokers:
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
    directories = tuple(default_directory(image, each) for each in replicas)
    if not isr:
        return PartitionImage(
            replicas=replicas,
            directories=directories,
            isr=(),
            leader=NO_LEADER,
            leader_epoch=NO_EPOCH,
            partition_epoch=NO_EPOCH,
        )
    return PartitionImage(
        replicas=replicas,
        directories=directories,
        isr=isr,
        leader=isr[0],
        leader_epoch=leader_epoch,
    )


def default_directory(image: ClusterImage, broker_id: int) -> Uuid:
    """Return the log directory of a broker that has one; UNASSIGNED = the broker chooses."""
    broker = image.brokers.get(broker_id)
    log_dirs = () if broker is None else broker.log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else DIRECTORY_UNASSIGNED
