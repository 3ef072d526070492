"""One partition's target becomes at most one record: reassignment, ISR, ELR, leader, epochs.

Every change of a partition is made here, so the rules exist once and in one order:
finish a reassignment whose target replicas are in sync; compute the eligible leader replicas;
elect; bump the leader epoch where a replica was removed, and in ZooKeeper mode where one was added
or a reassignment begins; write only what changed.

Leaders. The present one stays if it can, else the first in the order of replicas that is in the
ISR and active; only where the ISR is empty, one of the ELR; only where both are, the last known
leader, whose log is then the best one left, if it is still that log. An unclean election takes any
active replica. Whoever is elected where nobody led is the whole ISR: each other member was away,
too, and may be still, or may be back without what it had. It joins again once it has caught up.

ELR (KIP-966): replicas that left the ISR while it was below min.insync.replicas, so that nothing
can have been committed since without them. They lead safely, unless a broker returned without
proof that what it had acknowledged is on its disk. While there is an ELR the ISR may become
empty; without the feature the last member stays listed without leading (KAFKA-708), since only
it surely has every acknowledged record.

Differences from Kafka 4.0, all on the safe side: a replica that is no longer assigned is not
eligible; no replica stays eligible beside a leader that commits alone; the last known leader must
be an assigned and acceptable one (KAFKA-19522). Of members that fail together Kafka's ZooKeeper
controller keeps one in the ISR; here all stay without leading, and any of them may be elected.
Source: PartitionChangeBuilder, PartitionReassignmentReplicas, ReplicationControlManager, 4.0;
KafkaController.onPartitionReassignment, 3.9 (the epoch that begins with a reassignment).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, RECOVERING

RECOVERY_UNCHANGED = -1
"""A PartitionChangeRecord's recovery state that keeps the present one."""


class Election(Enum):
    """How a leader is chosen; the values of the ElectLeaders request where it has them."""

    ONLINE = -1
    """Keep the leader if it can stay."""
    PREFERRED = 0
    """Move to the first replica if it can lead, else as ONLINE."""
    UNCLEAN = 1
    """As ONLINE, and at the worst any active replica, whatever it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTarget:
    """The target of a partition; None = unchanged (Kafka's PartitionChangeBuilder).

    Fields: `directories`: log directories by broker, for replicas that are new or moved; for a new
            replica that is not named, its broker chooses one.
            `unclean_shutdown`: brokers whose unflushed data is lost: not eligible any more.
            `empty_logs`: those of them whose log is another one, which began empty: they are not
            the last known leader any more, either, unless no other broker has the partition.
    """

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    directories: Mapping[int, Uuid] | None = None
    recovery_state: int | None = None
    election: Election = Election.ONLINE
    unclean_shutdown: frozenset[int] = frozenset()
    empty_logs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeContext:
    """What a change depends on besides the partition.

    Fields: `is_acceptable`: tells whether a broker is active and its log directory online.
            `min_isr`: min.insync.replicas of the topic; the number of replicas bounds it.
            `requests_may_be_delayed`: brokers get requests (ZooKeeper), of which a copy may be read
            much later. A StopReplica with deletion must not hit a replica that was added again,
            and has only the leader epoch; so an addition begins a leader epoch, too, and, as in
            Kafka, each reassignment that does not end at once.
    """

    is_acceptable: Callable[[int, Uuid], bool]
    min_isr: int
    elr_enabled: bool
    requests_may_be_delayed: bool = False


def leader_predicate(
    image: ClusterImage, *, without: int | None = None, plus: int | None = None
) -> Callable[[int, Uuid], bool]:
    """Return the predicate that tells acceptable leaders by the image.

    `without`, `plus`: a broker that the step under way takes out, or unfences.
    """
    active = {
        broker_id: broker
        for broker_id, broker in image.brokers.items()
        if (broker.active or broker_id == plus) and broker_id != without
    }

    def is_acceptable(broker_id: int, directory: Uuid) -> bool:
        broker = active.get(broker_id)
        return broker is not None and broker.has_online_dir(directory)

    return is_acceptable


def build_change(
    topic_id: Uuid,
    partition_id: int,
    partition: PartitionImage,
    target: PartitionTarget,
    context: ChangeContext,
) -> PartitionChangeRecord | None:
    """Return the record that reaches the target as far as the rules allow, or None.

    None also for a partition that never had a leader: `new_partitions` elects its first.
    """
    if partition.leader_epoch == NO_EPOCH:
        return None
    goal = _with_elr(
        partition, _complete_reassignment(_with_target(partition, target)), target, context
    )
    goal, elected_uncleanly = _with_leader(goal, target.election, context)
    # An election may make its leader the ISR, which may complete a reassignment.
    goal = _complete_reassignment(goal)
    if goal.elr and (elected_uncleanly or not context.elr_enabled):
        goal = replace(goal, elr=())
    if not goal.isr and not context.elr_enabled:
        goal = replace(goal, isr=_fallback_isr(partition, goal))
    goal = _with_last_known_elr(partition, goal, context)
    return _record(topic_id, partition_id, partition, goal, context)


def _with_target(partition: PartitionImage, target: PartitionTarget) -> PartitionImage:
    replicas = partition.replicas if target.replicas is None else target.replicas
    assert replicas, "a partition has replicas"
    directories = partition.directories
    if replicas != partition.replicas or target.directories:
        known = {
            **dict(zip(partition.replicas, directories, strict=True)),
            **(target.directories or {}),
        }
        directories = tuple(known.get(each, DIRECTORY_UNASSIGNED) for each in replicas)
    known_leaders = tuple(
        each
        for each in partition.last_known_elr
        if each not in target.empty_logs or replicas == (each,)
    )
    return replace(
        partition,
        replicas=replicas,
        directories=directories,
        last_known_elr=known_leaders,
        isr=partition.isr if target.isr is None else target.isr,
        removing_replicas=partition.removing_replicas
        if target.removing is None
        else target.removing,
        adding_replicas=partition.adding_replicas if target.adding is None else target.adding,
        leader_recovery_state=(
            partition.leader_recovery_state
            if target.recovery_state is None
            else target.recovery_state
        ),
    )


def _complete_reassignment(goal: PartitionImage) -> PartitionImage:
    """Finish a reassignment as soon as all replicas that are to stay are in sync."""
    removing = goal.removing_replicas
    if not removing and not goal.adding_replicas:
        return goal
    staying = tuple(each for each in goal.replicas if each not in removing)
    isr = tuple(each for each in goal.isr if each not in removing)
    if not staying or not set(staying) <= set(isr):
        return goal
    return replace(
        goal,
        replicas=staying,
        directories=tuple(goal.directory(each) for each in staying),
        isr=isr,
        elr=tuple(each for each in goal.elr if each not in removing),
        removing_replicas=(),
        adding_replicas=(),
    )


def _with_elr(
    partition: PartitionImage, goal: PartitionImage, target: PartitionTarget, context: ChangeContext
) -> PartitionImage:
    """Compute the eligible leader replicas: none where the ISR is as large as it must be."""
    if not context.elr_enabled:
        return goal
    if _is_large_enough(goal.isr, goal, context):
        elr: tuple[int, ...] = ()
    else:
        candidates = {*partition.elr, *partition.isr}.difference(goal.isr, target.unclean_shutdown)
        elr = tuple(each for each in goal.replicas if each in candidates)
    return goal if elr == goal.elr else replace(goal, elr=elr)


def _is_large_enough(isr: tuple[int, ...], goal: PartitionImage, context: ChangeContext) -> bool:
    """Tell whether such an ISR commits by itself, so that others may miss what it committed."""
    return len(isr) >= min(context.min_isr, len(goal.replicas))


def _with_leader(
    goal: PartitionImage, election: Election, context: ChangeContext
) -> tuple[PartitionImage, bool]:
    """Return the partition with its leader, and whether that may lack acknowledged records."""
    active = [
        replica
        for replica, directory in zip(goal.replicas, goal.directories, strict=True)
        if context.is_acceptable(replica, directory)
    ]
    safe = [each for each in active if each in (goal.isr or goal.elr)]
    if safe:
        if election is Election.PREFERRED and safe[0] == goal.replicas[0]:
            leader = safe[0]
        else:
            leader = goal.leader if goal.leader in safe else safe[0]
        if leader in goal.isr and goal.leader != NO_LEADER:
            return replace(goal, leader=leader), False
        # Nobody led, or it was not in sync: it is the ISR now.
        left = tuple(each for each in goal.elr if each != leader)
        if _is_large_enough((leader,), goal, context):
            left = ()
        return replace(goal, leader=leader, isr=(leader,), elr=left), False
    leader = NO_LEADER
    if context.elr_enabled and not goal.isr and not goal.elr and len(goal.last_known_elr) == 1:
        # No replica surely has everything; the last leader lacks the least.
        leader = goal.last_known_elr[0] if goal.last_known_elr[0] in active else NO_LEADER
    if leader == NO_LEADER and election is Election.UNCLEAN and active:
        leader = active[0]
    if leader == NO_LEADER:
        return replace(goal, leader=NO_LEADER), False
    return replace(goal, leader=leader, isr=(leader,), leader_recovery_state=RECOVERING), True


def _fallback_isr(partition: PartitionImage, goal: PartitionImage) -> tuple[int, ...]:
    """Return the ISR that stays where the target would empty it (KAFKA-708)."""
    left = tuple(each for each in partition.isr if each in goal.replicas)
    return left or partition.isr


def _with_last_known_elr(
    partition: PartitionImage, goal: PartitionImage, context: ChangeContext
) -> PartitionImage:
    """Record the last leader when the ISR becomes empty, and clear it once there is a leader."""
    if not context.elr_enabled:
        known: tuple[int, ...] = ()
    elif goal.leader != NO_LEADER:
        known = ()
    elif not goal.isr and partition.leader != NO_LEADER:
        known = (partition.leader,)
    elif not goal.isr and len(partition.isr) == 1:
        # From before there was an ELR: the last of the ISR, kept in it without leading.
        known = partition.isr
    else:
        known = goal.last_known_elr
    return goal if known == goal.last_known_elr else replace(goal, last_known_elr=known)


def _record(
    topic_id: Uuid,
    partition_id: int,
    partition: PartitionImage,
    goal: PartitionImage,
    context: ChangeContext,
) -> PartitionChangeRecord | None:
    leader = LEADER_UNCHANGED
    before, after = set(partition.replicas), set(goal.replicas)
    # A removed replica must not fetch as a replica: a new leader epoch fences it.
    bumps_epoch = not before <= after or (
        context.requests_may_be_delayed
        and (not after <= before or _starts_reassignment(partition, goal))
    )
    if goal.leader != partition.leader or bumps_epoch:
        leader = goal.leader
    elif goal == partition:
        return None
    recovery = goal.leader_recovery_state
    return PartitionChangeRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        isr=_changed(partition.isr, goal.isr),
        leader=leader,
        replicas=_changed(partition.replicas, goal.replicas),
        removing_replicas=_changed(partition.removing_replicas, goal.removing_replicas),
        adding_replicas=_changed(partition.adding_replicas, goal.adding_replicas),
        leader_recovery_state=(
            RECOVERY_UNCHANGED if recovery == partition.leader_recovery_state else recovery
        ),
        directories=None if goal.directories == partition.directories else goal.directories,
        eligible_leader_replicas=_changed(partition.elr, goal.elr),
        last_known_elr=_changed(partition.last_known_elr, goal.last_known_elr),
    )


def _starts_reassignment(partition: PartitionImage, goal: PartitionImage) -> bool:
    """Tell whether a reassignment begins, or changes its target."""
    moving = (goal.adding_replicas, goal.removing_replicas)
    return any(moving) and moving != (partition.adding_replicas, partition.removing_replicas)


def _changed(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if after == before else after
