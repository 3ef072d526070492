"""Replicas enter each state as Kafka's do: every legal transition, and every illegal one.

Method: one transition on a context made by hand; tests bear the names of Kafka's
ReplicaStateMachineTest. Failed writes come in as values, by `resume`.
"""

from dataclasses import replace

import pytest

from ottla.base.ids import NO_LEADER
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_states import PREVIOUS, ReplicaState
from ottla.controller.state_changes import (
    Outcome,
    ReplicaWish,
    resume,
    start_replicas,
    transition,
)
from ottla.controller.state_context import (
    PartitionKey,
    ReplicaKey,
    StateContext,
    Stored,
    assigned,
)
from ottla.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from ottla.metadata.topics import PartitionImage

from .state_world import (
    CONTROLLER_EPOCH,
    KEY,
    a_context,
    in_replica_state,
    leader_and_isrs,
    led_by,
    metadata,
    replica,
    sent,
    stops,
    told,
    with_partition,
)

S = ReplicaState
R0 = replica(0)
"""The replica under test. Its partition has replicas 0, 1 and 2; 1 leads, all are in sync."""


def move(context: StateContext, target: S, *replicas: ReplicaKey) -> Outcome:
    return transition(context, ReplicaWish(replicas or (R0,), target))


def in_state(state: S, partition: PartitionImage | None = None) -> StateContext:
    usual = led_by(1, [1, 0, 2], [0, 1, 2])
    context = with_partition(a_context(0, 1, 2), partition or usual, state=PartitionState.ONLINE)
    return in_replica_state(context, state, R0)


def state_after(outcome: Outcome, of: ReplicaKey = R0) -> S:
    return outcome.context.replica_state(of)


ILLEGAL = [(a, b) for b in S for a in S if a not in PREVIOUS[b]]

CATALOGUE = [
    "NonexistentReplicaToOnlineReplica",
    "NonexistentReplicaToOfflineReplica",
    "NonexistentReplicaToReplicaDeletionStarted",
    "NonexistentReplicaToReplicaDeletionIneligible",
    "NonexistentReplicaToReplicaDeletionSuccessful",
    "NewReplicaToNonexistentReplica",
    "NewReplicaToReplicaDeletionStarted",
    "NewReplicaToReplicaDeletionIneligible",
    "NewReplicaToReplicaDeletionSuccessful",
    "OnlineReplicaToNonexistentReplica",
    "OnlineReplicaToNewReplica",
    "OnlineReplicaToReplicaDeletionStarted",
    "OnlineReplicaToReplicaDeletionIneligible",
    "OnlineReplicaToReplicaDeletionSuccessful",
    "OfflineReplicaToNonexistentReplica",
    "OfflineReplicaToNewReplica",
    "OfflineReplicaToReplicaDeletionSuccessful",
    "ReplicaDeletionStartedToNonexistentReplica",
    "ReplicaDeletionStartedToNewReplica",
    "ReplicaDeletionStartedToOnlineReplica",
    "ReplicaDeletionStartedToOfflineReplica",
    "ReplicaDeletionSuccessfulToNewReplica",
    "ReplicaDeletionSuccessfulToOnlineReplica",
    "ReplicaDeletionSuccessfulToOfflineReplica",
    "ReplicaDeletionSuccessfulToReplicaDeletionStarted",
    "ReplicaDeletionSuccessfulToReplicaDeletionIneligible",
    "ReplicaDeletionIneligibleToNonexistentReplica",
    "ReplicaDeletionIneligibleToNewReplica",
    "ReplicaDeletionIneligibleToReplicaDeletionStarted",
    "ReplicaDeletionIneligibleToReplicaDeletionSuccessful",
]
"""Kafka's thirty tests of invalid transitions."""

BY_NAME = {state.kafka_name.replace("NonExistent", "Nonexistent"): state for state in S}


def pair(name: str) -> tuple[S, S]:
    source, _, target = name.partition("To")
    return BY_NAME[source], BY_NAME[target]


def test_the_catalogue_s_thirty_cases_are_illegal_and_the_rest_repeat_a_state() -> None:
    named = {pair(name) for name in CATALOGUE}
    assert len(named) == 30
    assert named <= set(ILLEGAL)
    assert {a for a, b in set(ILLEGAL) - named if a is b} == {
        S.NEW,
        S.DELETION_STARTED,
        S.DELETION_SUCCESSFUL,
        S.DELETION_INELIGIBLE,
        S.NON_EXISTENT,
    }
    assert all(a is b for a, b in set(ILLEGAL) - named)


@pytest.mark.parametrize(
    ("source", "target"),
    ILLEGAL,
    ids=[f"test_invalid_{a.kafka_name}_to_{b.kafka_name}_transition" for a, b in ILLEGAL],
)
def test_illegal_transitions_change_nothing(source: S, target: S) -> None:
    before = in_state(source)
    outcome = move(before, target)
    assert outcome.context == before
    assert (outcome.records, outcome.batches) == ((), ())
    [refused] = outcome.refused
    assert refused.subject == R0
    assert refused.illegal
    assert f"from {source.kafka_name} to {target.kafka_name}" in refused.reason


@pytest.mark.parametrize(
    ("source", "target"),
    [(a, b) for b in S for a in PREVIOUS[b]],
    ids=lambda state: state.kafka_name,
)
def test_every_legal_transition_arrives(source: S, target: S) -> None:
    outcome = move(in_state(source), target)
    assert outcome.refused == ()
    assert state_after(outcome) is target


def test_nonexistent_replica_to_new_replica_transition() -> None:
    outcome = move(in_state(S.NON_EXISTENT), S.NEW)
    assert state_after(outcome) is S.NEW
    state = leader_and_isrs(sent(outcome))[0][KEY]
    assert (state.is_new, state.leader) == (True, 1)
    bare = with_partition(a_context(0), assigned((0,)))
    outcome = move(bare, S.NEW)
    assert state_after(outcome) is S.NEW
    assert outcome.batches == ()


def test_the_leader_cannot_be_a_new_replica() -> None:
    outcome = move(in_state(S.NON_EXISTENT, led_by(0, [0], [0, 1])), S.NEW)
    assert state_after(outcome) is S.NON_EXISTENT
    [refused] = outcome.refused
    assert not refused.illegal
    assert "leads" in refused.reason


def test_new_replica_to_online_replica_transition() -> None:
    outcome = move(in_state(S.NEW), S.ONLINE)
    assert state_after(outcome) is S.ONLINE
    assert outcome.batches == ()
    outcome = move(in_state(S.NEW, led_by(1, [1], [1, 2])), S.ONLINE)
    assert outcome.context.partitions[KEY].replicas == (1, 2, 0)
    assert len(outcome.context.partitions[KEY].directories) == 3


def test_new_replica_to_offline_replica_transition() -> None:
    outcome = move(in_state(S.NEW, assigned((0, 1))), S.OFFLINE)
    assert state_after(outcome) is S.OFFLINE
    assert outcome.records == ()
    requests = sent(outcome)
    assert stops(requests) == {(0, KEY): (-1, False)}
    assert metadata(requests) == {0: [], 1: [], 2: []}


@pytest.mark.parametrize(
    "source",
    [S.ONLINE, S.OFFLINE, S.DELETION_INELIGIBLE],
    ids=lambda state: f"test_{state.kafka_name}_to_online_replica_transition",
)
def test_a_replica_that_comes_online_is_told_who_leads(source: S) -> None:
    outcome = move(in_state(source), S.ONLINE)
    assert state_after(outcome) is S.ONLINE
    assert outcome.records == ()
    requests = sent(outcome)
    states = leader_and_isrs(requests)
    assert set(states) == {0}
    assert (states[0][KEY].leader, states[0][KEY].is_new) == (1, False)
    assert set(metadata(requests)) == {0, 1, 2}


def test_online_replica_to_offline_replica_transition() -> None:
    before = in_state(S.ONLINE, led_by(0, [0, 1], [0, 1]))
    outcome = move(before, S.OFFLINE)
    assert state_after(outcome) is S.OFFLINE
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (
        NO_LEADER,
        (1,),
        4,
        8,
    )
    requests = sent(outcome)
    assert stops(requests) == {(0, KEY): (3, False)}
    states = leader_and_isrs(requests)
    assert set(states) == {1}
    assert (states[1][KEY].leader, states[1][KEY].isr) == (NO_LEADER, (1,))


def test_a_follower_that_goes_offline_leaves_the_isr_and_the_epoch_rises() -> None:
    outcome = move(in_state(S.ONLINE), S.OFFLINE)
    [record] = outcome.records
    assert isinstance(record, PartitionChangeRecord)
    assert (record.leader, record.isr) == (1, (1, 2))
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.leader_epoch) == (1, 4)
    # All the others are told, not only the leader (KAFKA-1188).
    assert set(leader_and_isrs(sent(outcome))) == {1, 2}


def test_a_replica_out_of_sync_goes_offline_without_a_write() -> None:
    outcome = move(in_state(S.ONLINE, led_by(1, [1], [0, 1])), S.OFFLINE)
    assert outcome.records == ()
    assert set(leader_and_isrs(sent(outcome))) == {1}


def test_kafka_708_the_last_isr_member_stays() -> None:
    outcome = move(in_state(S.ONLINE, led_by(0, [0], [0, 1])), S.OFFLINE)
    [record] = outcome.records
    assert isinstance(record, PartitionChangeRecord)
    assert (record.leader, record.isr) == (NO_LEADER, None)
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.isr) == (NO_LEADER, (0,))
    # Once more: there is nothing left to write.
    again = move(outcome.context, S.OFFLINE)
    assert state_after(again) is S.OFFLINE
    assert again.records == ()


def test_kafka_6650_a_replica_goes_offline_though_its_partition_s_state_is_gone() -> None:
    before = in_state(S.ONLINE)
    before = replace(before, to_delete=frozenset({"t"}))
    wish = ReplicaWish((R0,), S.OFFLINE)
    resumed = resume(before, [wish], {KEY: None})
    assert resumed.again.refused == ()
    assert resumed.again.context.replica_state(R0) is S.OFFLINE
    stopped = stops(sent(resumed.again))
    assert stopped == {(0, KEY): (-2, False)}
    on = transition(resumed.again.context, ReplicaWish((R0,), S.DELETION_STARTED))
    assert on.context.replica_state(R0) is S.DELETION_STARTED


def test_a_shrink_that_met_the_leader_s_own_change_is_decided_on_that() -> None:
    before = in_state(S.ONLINE)
    other = PartitionKey("u", 0)
    before = with_partition(before, led_by(1, [0, 1], [0, 1]), key=other)
    before = in_replica_state(before, S.ONLINE, ReplicaKey(0, *other))
    wish = ReplicaWish((R0, ReplicaKey(0, *other)), S.OFFLINE)
    met = Stored(led_by(1, [1, 0], [0, 1, 2], leader_epoch=3), CONTROLLER_EPOCH)
    resumed = resume(before, [wish], {KEY: met})
    assert [record.isr for record in resumed.written.records] == [(1,)]
    assert [record.isr for record in resumed.again.records] == [(1,)]
    assert resumed.again.context.partitions[KEY].isr == (1,)
    assert resumed.again.context.replica_state(R0) is S.OFFLINE


def test_kafka_6082_a_deposed_controller_shrinks_nothing() -> None:
    before = in_state(S.ONLINE)
    stored = Stored(led_by(1, [1, 0, 2], [0, 1, 2]), CONTROLLER_EPOCH + 1)
    resumed = resume(before, [ReplicaWish((R0,), S.OFFLINE)], {KEY: stored})
    assert resumed.again.records == ()
    assert resumed.again.batches == ()
    assert resumed.again.context.replica_state(R0) is S.ONLINE
    assert "controller epoch 51" in resumed.again.refused[0].reason


def test_all_replicas_of_a_partition_may_go_in_one_round() -> None:
    """The start of a deletion: each is decided on what the one before it left."""
    context = with_partition(
        a_context(0, 1, 2), led_by(1, [1, 0, 2], [0, 1, 2]), replica_states=S.ONLINE
    )
    context = replace(context, to_delete=frozenset({"t"}))
    outcome = move(context, S.OFFLINE, replica(2), replica(0), replica(1))
    after = outcome.context.partitions[KEY]
    # Broker by broker: 2 is the last, so it stays.
    assert (after.leader, after.isr, after.leader_epoch) == (NO_LEADER, (2,), 5)
    assert [record.leader for record in outcome.records if record.leader != LEADER_UNCHANGED] == [
        1,
        NO_LEADER,
    ]
    requests = sent(outcome)
    assert {kind for _, kind in told(requests)} == {"StopReplica"}
    assert stops(requests) == {(broker, KEY): (-2, False) for broker in (0, 1, 2)}


def test_offline_replica_to_replica_deletion_started_transition() -> None:
    outcome = move(in_state(S.OFFLINE), S.DELETION_STARTED)
    assert state_after(outcome) is S.DELETION_STARTED
    requests = sent(outcome)
    assert told(requests) == [(0, "StopReplica")]
    assert stops(requests) == {(0, KEY): (3, True)}
    assert requests[0].deleted == {KEY}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (S.OFFLINE, S.DELETION_INELIGIBLE),
        (S.DELETION_STARTED, S.DELETION_INELIGIBLE),
        (S.DELETION_STARTED, S.DELETION_SUCCESSFUL),
    ],
    ids=lambda state: state.kafka_name,
)
def test_transitions_in_memory_tell_nobody(source: S, target: S) -> None:
    outcome = move(in_state(source), target)
    assert state_after(outcome) is target
    assert (outcome.records, outcome.batches) == ((), ())


def test_replica_deletion_successful_to_nonexistent_replica_transition() -> None:
    outcome = move(in_state(S.DELETION_SUCCESSFUL), S.NON_EXISTENT)
    assert outcome.context.partitions[KEY].replicas == (1, 2)
    assert R0 not in outcome.context.replica_states


def test_ineligible_to_offline_is_the_way_of_a_retry() -> None:
    """Kafka has this transition and no test of it."""
    ineligible = in_state(S.DELETION_INELIGIBLE, led_by(1, [1], [0, 1]))
    outcome = move(ineligible, S.OFFLINE)
    assert state_after(outcome) is S.OFFLINE
    assert outcome.records == ()
    started = move(outcome.context, S.DELETION_STARTED)
    assert state_after(started) is S.DELETION_STARTED


def test_offline_to_offline_is_heard_twice_and_done_once() -> None:
    """Kafka has this transition and no test of it."""
    outcome = move(move(in_state(S.ONLINE), S.OFFLINE).context, S.OFFLINE)
    assert state_after(outcome) is S.OFFLINE
    assert outcome.records == ()


# -- the start ---------------------------------------------------------------------------------


def test_startup_online_partition() -> None:
    context = with_partition(a_context(0), led_by(0, [0], [0]))
    assert state_after(start_replicas(context)) is S.ONLINE


def test_startup_offline_partition() -> None:
    context = with_partition(a_context(1), led_by(0, [0, 1], [0, 1]))
    outcome = start_replicas(context)
    assert state_after(outcome) is S.OFFLINE
    assert state_after(outcome, replica(1)) is S.ONLINE
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.isr) == (NO_LEADER, (1,))


def test_startup_with_replica_without_leader() -> None:
    context = with_partition(a_context(1), assigned((0,)))
    outcome = start_replicas(context)
    assert outcome.refused == ()
    assert state_after(outcome) is S.OFFLINE


def test_latent_l6_a_new_controller_has_no_deleting_replica_made_again() -> None:
    """Kafka's first sends LeaderAndIsr to it: who had deleted the log makes an empty one."""
    other = PartitionKey("u", 0)
    context = with_partition(a_context(0, 1), led_by(0, [0, 1], [0, 1]))
    context = with_partition(context, led_by(0, [0, 1], [0, 1]), key=other)
    context = replace(context, to_delete=frozenset({"t"}))
    outcome = start_replicas(context)
    assert state_after(outcome) is S.ONLINE
    states = leader_and_isrs(sent(outcome))
    assert {key for told in states.values() for key in told} == {other}
