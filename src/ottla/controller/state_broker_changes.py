"""What the state machines do when brokers come, bounce, go or are about to go, and in which order.

The order is part of the behaviour: brokers hear of one another before they hear of a leader
(KAFKA-4443); new brokers come first, then those that bounced, then those that died; a bounce is
a failure and a start, told by the broker's epoch and not by the set of ids, which does not
change (KAFKA-7235).

Differences from Kafka: a replica that is being deleted and was online when its broker died goes
through OFFLINE to DELETION_INELIGIBLE; there the step is refused, and it stays online in name.
A replica that has confirmed its deletion stays so. A leader that could not be moved off a broker
that shuts down leads until that broker is gone; there the next failure of another one ends it.
Source: KafkaController.{onControllerFailover, processBrokerChange, onBrokerStartup,
onBrokerFailure, onReplicasBecomeOffline, doControlledShutdown}, Kafka 3.9; KIP-380.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from immutables import Map

from ottla.controller.leader_strategies import (
    ControlledShutdownElection,
    OfflineElection,
    Strategy,
)
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_states import ReplicaState
from ottla.controller.request_batch import new_batch
from ottla.controller.state_changes import (
    Outcome,
    PartitionWish,
    ReplicaWish,
    start_partitions,
    start_replicas,
    transition,
    trigger_online,
)
from ottla.controller.state_context import PartitionKey, ReplicaKey, StateContext
from ottla.metadata.brokers import BrokerImage

NOTHING_LOST = frozenset({ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT})
"""States of replicas on which the death of their broker changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChange:
    """How the registered brokers differ from the known ones, ids in order."""

    new: tuple[int, ...] = ()
    bounced: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()


def compare_brokers(context: StateContext, registered: Mapping[int, BrokerImage]) -> BrokerChange:
    """Return who came, who is another process now, and who went."""
    known, found = frozenset(context.brokers), frozenset(registered)
    return BrokerChange(
        new=tuple(sorted(found - known)),
        bounced=tuple(
            each
            for each in sorted(found & known)
            if registered[each].epoch > context.brokers[each].epoch
        ),
        dead=tuple(sorted(known - found)),
    )


def brokers_changed(
    context: StateContext,
    registered: Mapping[int, BrokerImage],
    strategy: Strategy | None = None,
) -> Outcome:
    """Follow a change of the registered brokers.

    An older registration than the known one is another reader's past, and is passed over.
    """
    change = compare_brokers(context, registered)
    outcome = Outcome(context=context)
    if change.new:
        outcome = outcome.then(_start(outcome.context, registered, change.new, strategy))
    if change.bounced:
        outcome = outcome.then(_fail(outcome.context, change.bounced, strategy))
        outcome = outcome.then(_start(outcome.context, registered, change.bounced, strategy))
    if change.dead:
        outcome = outcome.then(_fail(outcome.context, change.dead, strategy))
    return outcome


def start_machines(context: StateContext, strategy: Strategy | None = None) -> Outcome:
    """Begin as a controller that has just been elected, on all that is stored."""
    told = _metadata(context, context.live_or_shutting_down_ids(), ())
    outcome = told.then(start_replicas(told.context))
    return outcome.then(start_partitions(outcome.context, strategy))


# -- brokers that come -------------------------------------------------------------------------


def _start(
    context: StateContext,
    registered: Mapping[int, BrokerImage],
    ids: Collection[int],
    strategy: Strategy | None,
) -> Outcome:
    old = context.live_or_shutting_down_ids()
    context = replace(
        context,
        brokers=context.brokers.update({each: registered[each] for each in ids}),
        offline_replicas=_not_on(context.offline_replicas, ids),
    )
    led = [
        key
        for key in context.partitions
        if context.leadership(key) is not None and not context.is_queued_for_deletion(key.topic)
    ]
    outcome = _metadata(context, old, ())
    outcome = outcome.then(_metadata(context, ids, led))
    back = ReplicaWish(tuple(context.replicas_on(ids)), ReplicaState.ONLINE)
    outcome = outcome.then(transition(outcome.context, _without_deleted(outcome.context, back)))
    return outcome.then(trigger_online(outcome.context, strategy))


def _without_deleted(context: StateContext, wish: ReplicaWish) -> ReplicaWish:
    """Leave out replicas whose deletion is under way or done: their table has no way back."""
    gone = (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)
    return replace(
        wish,
        replicas=tuple(each for each in wish.replicas if context.replica_state(each) not in gone),
    )


def _metadata(
    context: StateContext, broker_ids: Iterable[int], keys: Iterable[PartitionKey]
) -> Outcome:
    """Tell brokers of all brokers, and of some partitions."""
    batch = new_batch(context)
    batch.add_update_metadata(broker_ids, (), written_by=context.controller_epoch)
    for key in keys:
        batch.add_update_metadata(
            (), [(key, context.partitions[key])], written_by=context.written_by.get(key, 0)
        )
    return Outcome(context=context, batches=(batch,) if batch else ())


# -- brokers that go ---------------------------------------------------------------------------


def _fail(context: StateContext, ids: Collection[int], strategy: Strategy | None) -> Outcome:
    left = {each: broker for each, broker in context.brokers.items() if each not in ids}
    context = replace(
        context,
        brokers=Map(left),
        shutting_down=context.shutting_down.difference(ids),
        offline_replicas=_not_on(context.offline_replicas, ids),
    )
    return replicas_went_offline(context, context.replicas_on(ids), strategy)


def _not_on(replicas: frozenset[ReplicaKey], ids: Collection[int]) -> frozenset[ReplicaKey]:
    return frozenset(each for each in replicas if each.broker_id not in ids)


def replicas_went_offline(
    context: StateContext, replicas: Iterable[ReplicaKey], strategy: Strategy | None = None
) -> Outcome:
    """Follow the loss of replicas, by a broker's death or a disk's; `context` knows of it."""
    lost = [each for each in replicas if context.replica_state(each) not in NOTHING_LOST]
    leaderless = tuple(
        key
        for key in context.in_partition_states(PartitionState.ONLINE)
        if not context.is_queued_for_deletion(key.topic) and not _has_live_leader(context, key)
    )
    outcome = transition(context, PartitionWish(leaderless, PartitionState.OFFLINE))
    outcome = outcome.then(trigger_online(outcome.context, strategy or OfflineElection()))
    kept = tuple(r for r in lost if not context.is_queued_for_deletion(r.topic))
    outcome = outcome.then(transition(outcome.context, ReplicaWish(kept, ReplicaState.OFFLINE)))
    outcome = outcome.then(_fail_deletions(outcome.context, lost))
    if not leaderless:
        # Else the elections have told everybody who is there.
        everyone = outcome.context.live_or_shutting_down_ids()
        outcome = outcome.then(_metadata(outcome.context, everyone, ()))
    return outcome


def _has_live_leader(context: StateContext, key: PartitionKey) -> bool:
    led = context.leadership(key)
    return led is not None and context.is_online(
        ReplicaKey(led.leader, *key), or_shutting_down=True
    )


def _fail_deletions(context: StateContext, lost: Iterable[ReplicaKey]) -> Outcome:
    """Make lost replicas of topics that are to go ineligible, by the way that their table has."""
    queued = [each for each in lost if context.is_queued_for_deletion(each.topic)]
    online = (ReplicaState.NEW, ReplicaState.ONLINE)
    first = tuple(each for each in queued if context.replica_state(each) in online)
    ineligible = ReplicaState.DELETION_INELIGIBLE
    second = tuple(each for each in queued if context.replica_state(each) is not ineligible)
    return transition(
        context,
        ReplicaWish(first, ReplicaState.OFFLINE),
        ReplicaWish(second, ineligible),
    )


# -- brokers that are about to go --------------------------------------------------------------


def controlled_shutdown(
    context: StateContext, broker_id: int
) -> tuple[Outcome, tuple[PartitionKey, ...]]:
    """Move leadership away from a broker that asks to stop; return also what it leads still.

    Partitions with one replica stay with it, having nowhere to go, and so do topics that are
    being deleted. What it follows it no longer fetches. The broker must be known.
    """
    assert broker_id in context.brokers
    context = replace(context, shutting_down=context.shutting_down | {broker_id})
    held = [
        replica.partition
        for replica in context.replicas_on([broker_id])
        if _may_move(context, replica.partition)
    ]
    led = tuple(key for key in held if context.partitions[key].leader == broker_id)
    followed = [key for key in held if context.partitions[key].leader != broker_id]
    outcome = transition(
        context, PartitionWish(led, PartitionState.ONLINE, ControlledShutdownElection())
    )
    replicas = tuple(ReplicaKey(broker_id, *key) for key in followed)
    outcome = outcome.then(transition(outcome.context, ReplicaWish(replicas, ReplicaState.OFFLINE)))
    after = outcome.context.partitions
    return outcome, tuple(key for key in led if after[key].leader == broker_id)


def _may_move(context: StateContext, key: PartitionKey) -> bool:
    return (
        len(context.partitions[key].replicas) > 1
        and context.leadership(key) is not None
        and not context.is_queued_for_deletion(key.topic)
    )
