"""The partition and the replica state machine at work: from a wish to records and requests.

A wish names partitions or replicas and the state that they are to enter. What is illegal, or
cannot be done, is refused for that one alone, and the rest proceeds. An `Outcome` tells the
records to write, the batches to send once they are written, and the context from then on.

Nothing is read or written here. A write that meets another writer's, say a leader's that has
changed its in-sync set meanwhile, comes back as a value: `resume` decides the rest again on what
is stored. It needs no loop, and no more than the partitions that were met: each partition is
decided by itself, so the others come out as before.

Differences from Kafka: a replica whose topic is queued for deletion is not told to host it when
it comes online, so that a broker that has deleted its copy does not make an empty one first;
and taking the leader from a partition that has none writes nothing.
Source: PartitionStateMachine.scala, ReplicaStateMachine.scala, Kafka 3.9; KAFKA-499.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.controller.leader_strategies import OfflineElection, Strategy
from ottla.controller.partition_changes import PartitionRound
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_changes import ReplicaRound
from ottla.controller.replica_states import ReplicaState
from ottla.controller.request_batch import RequestBatch
from ottla.controller.state_context import PartitionKey, ReplicaKey, StateContext, Stored
from ottla.controller.state_rounds import Refused
from ottla.metadata.records import PartitionChangeRecord, PartitionRecord


@dataclass(frozen=True, slots=True)
class PartitionWish:
    """Partitions and where they are to go; the strategy elects on the way to ONLINE."""

    partitions: tuple[PartitionKey, ...]
    target: PartitionState
    strategy: Strategy = field(default_factory=OfflineElection)


@dataclass(frozen=True, slots=True)
class ReplicaWish:
    """Replicas and where they are to go."""

    replicas: tuple[ReplicaKey, ...]
    target: ReplicaState


Wish = PartitionWish | ReplicaWish


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of wishes.

    Fields: `context`: the world once `records` are written; `batches`: what brokers are to be
            told then, one batch a round, in order; `refused`: who stays where it was, and why;
            `unclean`: how many leaders were elected out of sync.
    """

    context: StateContext
    records: tuple[PartitionRecord | PartitionChangeRecord, ...] = ()
    batches: tuple[RequestBatch, ...] = ()
    refused: tuple[Refused, ...] = ()
    unclean: int = 0

    def then(self, following: "Outcome") -> "Outcome":
        """Return both as one; the second was decided on the first one's context."""
        return Outcome(
            context=following.context,
            records=self.records + following.records,
            batches=self.batches + following.batches,
            refused=self.refused + following.refused,
            unclean=self.unclean + following.unclean,
        )


def transition(context: StateContext, *wishes: Wish) -> Outcome:
    """Decide wishes, each on what the one before it makes of the world."""
    outcome = Outcome(context=context)
    for wish in wishes:
        outcome = outcome.then(_decide(outcome.context, wish))
    return outcome


def _decide(context: StateContext, wish: Wish) -> Outcome:
    this_round: PartitionRound | ReplicaRound
    if isinstance(wish, PartitionWish):
        this_round = PartitionRound(context)
        this_round.enter(wish.partitions, wish.target, wish.strategy)
    else:
        this_round = ReplicaRound(context)
        this_round.enter(wish.replicas, wish.target)
    return Outcome(
        context=this_round.draft.finish(),
        records=tuple(this_round.records),
        batches=(this_round.batch,) if this_round.batch else (),
        refused=tuple(this_round.refused),
        unclean=this_round.unclean,
    )


# -- conflicts ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What is left to do after some writes met others'.

    Fields: `written`: the part whose records are written, with its batches; `again`: the rest,
            decided on what is stored; its records are to be written yet. `before`, `wishes`:
            what that rest was decided on and from, to resume it if it meets others, too.
    """

    written: Outcome
    before: StateContext
    wishes: tuple[Wish, ...]
    again: Outcome


def resume(
    before: StateContext, wishes: Iterable[Wish], stored: Mapping[PartitionKey, Stored | None]
) -> Resumed:
    """Decide again what met another writer, and nothing else.

    `before`: the context on which the wishes were decided; `stored`: what was found instead,
    None = nothing. A larger controller epoch in there means that another one rules: those
    partitions are refused.
    """
    wishes = tuple(wishes)
    written = transition(before, *(_part(wish, stored, met=False) for wish in wishes))
    found = written.context.observed(stored)
    rest = tuple(_part(wish, stored, met=True) for wish in wishes)
    return Resumed(written=written, before=found, wishes=rest, again=transition(found, *rest))


def _part(wish: Wish, stored: Mapping[PartitionKey, Stored | None], *, met: bool) -> Wish:
    if isinstance(wish, PartitionWish):
        partitions = tuple(each for each in wish.partitions if (each in stored) == met)
        return replace(wish, partitions=partitions)
    replicas = tuple(each for each in wish.replicas if (each.partition in stored) == met)
    return replace(wish, replicas=replicas)


# -- the start of a controller -----------------------------------------------------------------


def start_replicas(context: StateContext) -> Outcome:
    """Put every assigned replica into its first state: live ones ONLINE, the others OFFLINE.

    The others begin as ineligible, which is what they are if their topic is being deleted, and
    go on to OFFLINE, so that they leave the in-sync sets that a dead controller left them in.
    """
    draft = context.draft()
    live: list[ReplicaKey] = []
    dead: list[ReplicaKey] = []
    for replica in sorted(context.replicas()):
        if context.is_online(replica):
            draft.set_replica_state(replica, ReplicaState.ONLINE)
            live.append(replica)
        else:
            draft.set_replica_state(replica, ReplicaState.DELETION_INELIGIBLE)
            dead.append(replica)
    return transition(
        draft.finish(),
        ReplicaWish(tuple(live), ReplicaState.ONLINE),
        ReplicaWish(tuple(dead), ReplicaState.OFFLINE),
    )


def start_partitions(context: StateContext, strategy: Strategy | None = None) -> Outcome:
    """Put every partition into its first state, then elect where nobody leads."""
    draft = context.draft()
    for key, partition in context.partitions.items():
        if context.leadership(key) is None:
            draft.set_partition_state(key, PartitionState.NEW)
        elif context.is_online(ReplicaKey(partition.leader, *key)):
            draft.set_partition_state(key, PartitionState.ONLINE)
        else:
            draft.set_partition_state(key, PartitionState.OFFLINE)
    return trigger_online(draft.finish(), strategy)


def trigger_online(context: StateContext, strategy: Strategy | None = None) -> Outcome:
    """Try to bring every new and every leaderless partition online, but for those that go."""
    waiting = context.in_partition_states(PartitionState.NEW, PartitionState.OFFLINE)
    wanted = tuple(each for each in waiting if not context.is_queued_for_deletion(each.topic))
    wish = PartitionWish(wanted, PartitionState.ONLINE, strategy or OfflineElection())
    return transition(context, wish)
