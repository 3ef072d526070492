"""Leaders change the in-sync replicas of their partitions (AlterPartition).

The checks of each partition are in Kafka's order, since the leader acts on the error: an epoch
*ahead* of this controller's means that another controller is active by now; one behind means that
the leader must first replay what it missed. A new member is refused unless it is registered
under the epoch that the leader saw in its fetches (KIP-903), unfenced and not shutting down.

Two things differ from Kafka's quorum. As in ZooKeeper mode, a repeated request for the present
state is answered with that state although its partition epoch is behind, so that a lost response
costs nothing. And the refusal of a member that is not eligible bumps the partition epoch: with it
the leader returns to the smaller ISR, while another copy of the request, from before the leader
reconnected, may arrive once the member is eligible.
Source: ReplicationControlManager.alterPartition, Kafka 4.0; KIP-497, KIP-704, KIP-841, KIP-903.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import Rules, RulesByLeader
from ottla.controller.elections.partition_change import (
    RECOVERY_UNCHANGED,
    PartitionTarget,
    build_change,
)
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from ottla.metadata.topics import RECOVERED, RECOVERING, changed_partition

ANY_EPOCH = -1
"""The epoch of a member whose epoch the leader does not know: it is not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A leader's requested change of one partition. `isr`: (broker, its epoch), in any order."""

    topic_id: Uuid
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class ChangedIsr:
    """The result: an error, or the partition as it is now."""

    topic_id: Uuid
    partition_id: int
    error: Error = Error.NONE
    partition: PartitionImage | None = None


def alter_partition(
    image: ClusterImage,
    wanted: Sequence[IsrChange],
    *,
    broker_id: int,
    broker_epoch: int,
    context: DecisionContext,
) -> Decision[tuple[ChangedIsr, ...]]:
    """Change in-sync replicas; one result each, in the order asked.

    Raises: ApiError(STALE_BROKER_EPOCH) where the leader is not registered under that epoch.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        expected = "is not registered" if broker is None else f"has the epoch {broker.epoch}"
        raise ApiError(
            Error.STALE_BROKER_EPOCH, f"Broker {broker_id} {expected}, but it sent {broker_epoch}."
        )
    rules = RulesByLeader(image, context.config).of(broker_id)
    records: list[PartitionChangeRecord] = []
    results: list[ChangedIsr] = []
    changed: dict[tuple[Uuid, int], PartitionImage] = {}  # A request may name one twice.
    for each in wanted:
        key = (each.topic_id, each.partition_id)
        topic = image.topics.by_id(each.topic_id)
        if topic is None:
            results.append(ChangedIsr(*key, Error.UNKNOWN_TOPIC_ID))
            continue
        partition = changed.get(key) or topic.partitions.get(each.partition_id)
        if partition is None:
            results.append(ChangedIsr(*key, Error.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        error = _fault(image, broker_id, partition, each)
        if error is Error.NONE:
            record = _record(partition, each, topic.name, rules)
        else:
            record = _as_it_is(partition, each) if error is Error.INELIGIBLE_REPLICA else None
        if record is not None:
            records.append(record)
            partition = changed[key] = changed_partition(partition, record)
            if record.leader not in (LEADER_UNCHANGED, broker_id):
                # The change finished a reassignment, after which another replica leads.
                error = Error.NEW_LEADER_ELECTED
        results.append(ChangedIsr(*key, error, partition if error is Error.NONE else None))
    return Decision(Step(tuple(records), atomic=False), tuple(results))


def _as_it_is(partition: PartitionImage, wanted: IsrChange) -> PartitionChangeRecord:
    """Return a record that changes the partition epoch alone, and the leader's recovery as it says.

    It sets the ISR: over ZooKeeper a record that sets nothing is not written. There brokers take a
    leader whose partition epoch has changed for recovered, as UpdateMetadata does not say.
    """
    is_same = wanted.recovery_state == partition.leader_recovery_state
    return PartitionChangeRecord(
        topic_id=wanted.topic_id,
        partition_id=wanted.partition_id,
        isr=partition.isr,
        leader_recovery_state=RECOVERY_UNCHANGED if is_same else wanted.recovery_state,
    )


def _record(
    partition: PartitionImage, wanted: IsrChange, topic_name: str, rules: Rules
) -> PartitionChangeRecord | None:
    if _is_repeated(partition, wanted):
        return None
    target = PartitionTarget(
        isr=tuple(broker_id for broker_id, _ in wanted.isr),
        recovery_state=wanted.recovery_state,
        election=rules.election(topic_name),
    )
    return build_change(
        wanted.topic_id, wanted.partition_id, partition, target, rules.change_context(topic_name)
    )


def _is_repeated(partition: PartitionImage, wanted: IsrChange) -> bool:
    return (
        wanted.partition_epoch < partition.partition_epoch
        and {broker_id for broker_id, _ in wanted.isr} == set(partition.isr)
        and wanted.recovery_state == partition.leader_recovery_state
    )


def _fault(
    image: ClusterImage, broker_id: int, partition: PartitionImage, wanted: IsrChange
) -> Error:
    """Return why a change is refused, or NONE."""
    leader_epoch, partition_epoch = partition.leader_epoch, partition.partition_epoch
    if wanted.leader_epoch > leader_epoch or wanted.partition_epoch > partition_epoch:
        return Error.NOT_CONTROLLER
    if wanted.leader_epoch < leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return Error.INVALID_REQUEST
    if wanted.partition_epoch < partition_epoch:
        # What holds is not judged again: over ZooKeeper a member may have lost its registration,
        # and its leave is decided later. Refused, the leader would take it for not applied.
        repeats = _is_repeated(partition, wanted)
        return Error.NONE if repeats else Error.INVALID_UPDATE_VERSION
    if not _is_sensible(broker_id, partition, wanted):
        return Error.INVALID_REQUEST
    if not all(_is_eligible(image, *member, leader=broker_id) for member in wanted.isr):
        return Error.INELIGIBLE_REPLICA
    return Error.NONE


def _is_sensible(broker_id: int, partition: PartitionImage, wanted: IsrChange) -> bool:
    members = [member for member, _ in wanted.isr]
    if len(set(members)) < len(members) or not set(members) <= set(partition.replicas):
        return False
    if broker_id not in members or wanted.recovery_state not in (RECOVERED, RECOVERING):
        return False
    if wanted.recovery_state == RECOVERING:
        # A follower cannot be in sync with a leader that is recovering.
        return len(members) == 1 and partition.leader_recovery_state == RECOVERING
    return True


def _is_eligible(image: ClusterImage, broker_id: int, broker_epoch: int, *, leader: int) -> bool:
    broker = image.brokers.get(broker_id)
    if broker is None or broker_epoch not in (ANY_EPOCH, broker.epoch):
        return False
    # A shutting-down leader that must lead on needs others in sync to hand over.
    return broker.active or (broker_id == leader and not broker.fenced)
