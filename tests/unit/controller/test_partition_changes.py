"""Partitions enter each state as Kafka's do: every legal transition, and every illegal one.

Method: one transition on a context made by hand; tests bear the names of Kafka's
PartitionStateMachineTest. Failed writes come in as values, by `resume`.
"""

from dataclasses import replace

import pytest

from ottla.base.ids import NO_LEADER
from ottla.controller.leader_strategies import (
    ControlledShutdownElection,
    OfflineElection,
    PreferredElection,
    ReassignElection,
    Strategy,
)
from ottla.controller.partition_states import PREVIOUS, PartitionState
from ottla.controller.replica_states import ReplicaState
from ottla.controller.state_changes import Outcome, PartitionWish, resume, transition
from ottla.controller.state_context import (
    PartitionKey,
    ReplicaKey,
    StateContext,
    Stored,
    assigned,
)
from ottla.metadata.records import PartitionChangeRecord, PartitionRecord
from ottla.metadata.topics import RECOVERED, RECOVERING

from .state_world import (
    CONTROLLER_EPOCH,
    KEY,
    a_context,
    leader_and_isrs,
    led_by,
    level,
    metadata,
    sent,
    told,
    topic_id,
    with_partition,
)

S = PartitionState
OFFLINE = OfflineElection()


def move(
    context: StateContext, target: S, strategy: Strategy = OFFLINE, *keys: PartitionKey
) -> Outcome:
    return transition(context, PartitionWish(keys or (KEY,), target, strategy))


def state_after(outcome: Outcome, key: PartitionKey = KEY) -> S:
    return outcome.context.partition_state(key)


def in_state(state: S) -> StateContext:
    """Return a context with the partition in a state, with leadership where it has had one."""
    context = a_context(0, 1)
    if state is S.NON_EXISTENT:
        return context
    if state is S.NEW:
        return with_partition(context, assigned((0, 1)), state=state)
    leader = 0 if state is S.ONLINE else NO_LEADER
    return with_partition(context, led_by(leader, [0, 1], [0, 1]), state=state)


ILLEGAL = [(a, b) for b in S for a in S if a not in PREVIOUS[b]]


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
    assert refused.subject == KEY
    assert refused.illegal
    assert f"from {source.kafka_name} to {target.kafka_name}" in refused.reason


def test_there_are_eight_illegal_transitions() -> None:
    assert len(ILLEGAL) == 8


@pytest.mark.parametrize(
    ("source", "target"),
    [(a, b) for b in S for a in PREVIOUS[b]],
    ids=lambda state: state.kafka_name,
)
def test_every_legal_transition_arrives(source: S, target: S) -> None:
    outcome = move(in_state(source), target)
    assert outcome.refused == ()
    assert state_after(outcome) is target


def test_nonexistent_partition_to_new_partition_transition() -> None:
    outcome = move(with_partition(a_context(0), assigned((0,))), S.NEW)
    assert state_after(outcome) is S.NEW
    assert (outcome.records, outcome.batches) == ((), ())


def test_new_partition_to_online_partition_transition() -> None:
    before = with_partition(a_context(0, 2), assigned((1, 2, 0)), state=S.NEW)
    outcome = move(before, S.ONLINE)
    assert state_after(outcome) is S.ONLINE
    # Broker 1 is dead: the first live replica leads, and all live ones are in sync.
    [record] = outcome.records
    assert isinstance(record, PartitionRecord)
    assert (record.leader, record.isr, record.replicas) == (2, (2, 0), (1, 2, 0))
    assert (record.leader_epoch, record.partition_epoch) == (0, 0)
    assert record.topic_id == topic_id("t")
    requests = sent(outcome)
    assert told(requests) == [
        (0, "LeaderAndIsr"),
        (0, "UpdateMetadata"),
        (2, "LeaderAndIsr"),
        (2, "UpdateMetadata"),
    ]
    state = leader_and_isrs(requests)[0][KEY]
    assert (state.leader, state.isr, state.leader_epoch, state.is_new) == (2, (2, 0), 0, True)
    assert state.controller_epoch == CONTROLLER_EPOCH


def test_new_partition_stays_new_without_a_live_replica() -> None:
    before = with_partition(a_context(5), assigned((0, 1)), state=S.NEW)
    outcome = move(before, S.ONLINE)
    assert state_after(outcome) is S.NEW
    [refused] = outcome.refused
    assert not refused.illegal
    assert "[0, 1] is live" in refused.reason


def test_new_partition_to_online_partition_transition_error_from_create_states() -> None:
    """The create met a state that is stored already: the partition stays new, others proceed."""
    other = PartitionKey("u", 0)
    before = with_partition(a_context(0), assigned((0,)), state=S.NEW)
    before = with_partition(before, assigned((0,)), key=other, state=S.NEW)
    wish = PartitionWish((KEY, other), S.ONLINE)
    stored = Stored(led_by(0, [0], [0], leader_epoch=0), CONTROLLER_EPOCH - 1)
    resumed = resume(before, [wish], {KEY: stored})
    assert resumed.written.context.partition_state(other) is S.ONLINE
    assert resumed.again.context.partition_state(KEY) is S.NEW
    assert resumed.again.context.partition_state(other) is S.ONLINE
    assert resumed.again.records == ()
    [refused] = resumed.again.refused
    assert "stored already" in refused.reason
    # The rest of the round is still sent.
    assert set(leader_and_isrs(sent(resumed.written))[0]) == {other}


def test_new_partition_to_offline_partition_transition() -> None:
    outcome = move(in_state(S.NEW), S.OFFLINE)
    assert state_after(outcome) is S.OFFLINE
    assert (outcome.records, outcome.batches) == ((), ())


def test_online_partition_to_online_transition() -> None:
    before = with_partition(a_context(0, 1), led_by(1, [0, 1], [0, 1]), state=S.ONLINE)
    outcome = move(before, S.ONLINE, PreferredElection())
    [record] = outcome.records
    assert isinstance(record, PartitionChangeRecord)
    assert (record.leader, record.isr) == (0, None)
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (0, 4, 8)
    states = leader_and_isrs(sent(outcome))
    assert {broker_id: states[broker_id][KEY].leader_epoch for broker_id in states} == {0: 4, 1: 4}
    assert not states[0][KEY].is_new


def test_online_partition_to_online_transition_for_controlled_shutdown() -> None:
    before = with_partition(a_context(0, 1), led_by(0, [0, 1], [0, 1]), state=S.ONLINE)
    before = replace(before, shutting_down=frozenset({0}))
    outcome = move(before, S.ONLINE, ControlledShutdownElection())
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), 4)
    assert set(leader_and_isrs(sent(outcome))) == {0, 1}


def test_an_online_partition_is_led_by_a_target_of_its_reassignment() -> None:
    moving = led_by(0, [0, 1], [1, 0], adding_replicas=(1,), removing_replicas=(0,))
    before = with_partition(a_context(0, 1), moving, state=S.ONLINE)
    outcome = move(before, S.ONLINE, ReassignElection())
    assert outcome.context.partitions[KEY].leader == 1
    assert set(leader_and_isrs(sent(outcome))) == {1}


def test_online_partition_to_offline_transition() -> None:
    outcome = move(in_state(S.ONLINE), S.OFFLINE)
    assert state_after(outcome) is S.OFFLINE
    assert (outcome.records, outcome.batches) == ((), ())


def test_offline_partition_to_online_partition_transition() -> None:
    before = with_partition(a_context(1), led_by(NO_LEADER, [0, 1], [0, 1]), state=S.OFFLINE)
    outcome = move(before, S.ONLINE)
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), 4)
    assert state_after(outcome) is S.ONLINE
    assert metadata(sent(outcome)) == {1: [(KEY, 1)]}


@pytest.mark.parametrize(
    ("protocol", "recovery"), [("3.9", RECOVERING), ("3.2-IV0", RECOVERING), ("3.1", RECOVERED)]
)
def test_offline_partition_to_unclean_online_partition_transition(
    protocol: str, recovery: int
) -> None:
    before = with_partition(a_context(1), led_by(NO_LEADER, [0], [0, 1]), state=S.OFFLINE)
    before = replace(before, level=level(protocol))
    assert state_after(move(before, S.ONLINE)) is S.OFFLINE
    outcome = move(before, S.ONLINE, OfflineElection(allow_unclean=True))
    after = outcome.context.partitions[KEY]
    assert (after.leader, after.isr, after.leader_recovery_state) == (1, (1,), recovery)
    assert outcome.unclean == 1
    assert sent(outcome)


def test_offline_partition_to_online_partition_transition_without_a_stored_state() -> None:
    """The write found no state at all: the partition stays offline."""
    before = in_state(S.OFFLINE)
    resumed = resume(before, [PartitionWish((KEY,), S.ONLINE)], {KEY: None})
    assert resumed.again.context.partition_state(KEY) is S.OFFLINE
    assert resumed.again.context.leadership(KEY) is None
    [refused] = resumed.again.refused
    assert "no state" in refused.reason


def test_an_election_that_met_the_leader_s_own_change_is_decided_on_that() -> None:
    """The leader shrank the in-sync set while this controller elected outside of what is left."""
    before = with_partition(a_context(1, 2), led_by(0, [0, 1, 2], [0, 1, 2]), state=S.ONLINE)
    other = PartitionKey("u", 0)
    before = with_partition(before, led_by(0, [0, 1], [0, 1]), key=other, state=S.ONLINE)
    wish = PartitionWish((KEY, other), S.ONLINE)
    first = transition(before, wish)
    assert first.context.partitions[KEY].leader == 1
    stored = Stored(led_by(0, [0, 2], [0, 1, 2]), CONTROLLER_EPOCH - 1)
    resumed = resume(before, [wish], {KEY: stored})
    assert resumed.written.records == first.records[1:]
    [record] = resumed.again.records
    assert isinstance(record, PartitionChangeRecord)
    assert (record.leader, record.isr) == (2, (2,))
    # Together they tell what one round would have told.
    requests = sent((*resumed.written.batches, *resumed.again.batches), resumed.again.context)
    states = leader_and_isrs(requests)
    assert states[2][KEY].leader == 2
    assert states[1][other].leader == 1


def test_a_write_may_meet_others_any_number_of_times() -> None:
    """Each time only what is left is decided; Kafka loops over its reads and writes here."""
    keys = [PartitionKey("t", number) for number in range(3)]
    context = a_context(1, 2)
    for key in keys:
        context = with_partition(context, led_by(0, [0, 1, 2], [0, 1, 2]), key=key, state=S.ONLINE)
    stored = Stored(led_by(0, [0, 1, 2], [0, 1, 2], leader_epoch=5), CONTROLLER_EPOCH)
    wishes = (PartitionWish(tuple(keys), S.ONLINE),)
    first = resume(context, wishes, {keys[1]: stored, keys[2]: stored})
    second = resume(first.before, first.wishes, {keys[2]: stored})
    third = resume(second.before, second.wishes, {})
    written = [*first.written.records, *second.written.records, *third.written.records]
    assert [record.partition_id for record in written] == [0, 1, 2]
    assert third.again.records == ()
    after = third.again.context.partitions
    assert [after[key].leader_epoch for key in keys] == [4, 6, 6]
    batches = [*first.written.batches, *second.written.batches, *third.written.batches]
    assert set(leader_and_isrs(sent(batches, third.again.context))[1]) == set(keys)


def test_kafka_6082_a_deposed_controller_leaves_what_its_successor_wrote() -> None:
    other = PartitionKey("u", 0)
    before = with_partition(a_context(1), led_by(0, [0, 1], [0, 1]), state=S.ONLINE)
    before = with_partition(before, led_by(0, [0, 1], [0, 1]), key=other, state=S.ONLINE)
    stored = Stored(led_by(0, [0, 1], [0, 1], leader_epoch=9), CONTROLLER_EPOCH + 1)
    resumed = resume(before, [PartitionWish((KEY, other), S.ONLINE)], {KEY: stored})
    assert resumed.again.records == ()
    [refused] = resumed.again.refused
    assert f"controller epoch {CONTROLLER_EPOCH + 1} wrote it" in refused.reason
    assert resumed.again.context.partitions[KEY].leader == 0
    assert resumed.again.context.partitions[other].leader == 1


def test_kafka_1096_the_epoch_is_that_of_the_election_whatever_is_read_since() -> None:
    before = with_partition(a_context(1), led_by(0, [0, 1], [0, 1]), state=S.ONLINE)
    seen = before.observed({KEY: Stored(led_by(0, [0, 1], [0, 1]), CONTROLLER_EPOCH + 7)})
    assert seen.controller_epoch == CONTROLLER_EPOCH
    assert transition(seen, PartitionWish((KEY,), S.ONLINE)).records == ()


def test_what_is_stored_of_an_unknown_partition_is_passed_over() -> None:
    before = a_context(0)
    assert before.observed({KEY: Stored(led_by(0, [0], [0]), 1)}) == before


def test_offline_partition_to_nonexistent_partition_transition() -> None:
    outcome = move(in_state(S.OFFLINE), S.NON_EXISTENT)
    assert state_after(outcome) is S.NON_EXISTENT
    assert KEY not in outcome.context.partition_states


def test_one_that_cannot_move_does_not_hold_up_the_others() -> None:
    dead, absent = PartitionKey("u", 0), PartitionKey("v", 0)
    before = with_partition(a_context(0), assigned((0,)), state=S.NEW)
    before = with_partition(before, assigned((9,)), key=dead, state=S.NEW)
    outcome = move(before, S.ONLINE, OFFLINE, dead, absent, KEY)
    assert state_after(outcome) is S.ONLINE
    assert state_after(outcome, dead) is S.NEW
    assert [each.subject for each in outcome.refused] == [dead, absent]
    assert [each.illegal for each in outcome.refused] == [False, True]


def test_kafka_1558_a_topic_that_goes_does_not_suppress_the_elections_of_others() -> None:
    other = PartitionKey("u", 0)
    before = with_partition(a_context(0, 1), led_by(1, [0, 1], [0, 1]), state=S.NON_EXISTENT)
    before = with_partition(before, led_by(1, [0, 1], [0, 1]), key=other, state=S.ONLINE)
    before = replace(before, to_delete=frozenset({"t"}), deletion_started=frozenset({"t"}))
    outcome = move(before, S.ONLINE, PreferredElection(), KEY, other)
    assert outcome.context.partitions[other].leader == 0
    assert [each.subject for each in outcome.refused] == [KEY]


def four_offline() -> StateContext:
    context = a_context(0)
    for number in range(4):
        key = PartitionKey("t", number)
        context = with_partition(context, led_by(0, [0], [0]), key=key, state=S.ONLINE)
    keys = tuple(context.partitions)
    return transition(context, PartitionWish(keys, S.OFFLINE)).context


def test_updating_offline_partitions_count() -> None:
    context = four_offline()
    assert context.offline_partition_count() == 4
    again = transition(context, PartitionWish(tuple(context.partitions), S.ONLINE)).context
    assert again.offline_partition_count() == 0


def test_no_offline_partitions_change_for_topics_being_deleted() -> None:
    started = frozenset({"t"})
    context = replace(four_offline(), to_delete=started, deletion_started=started)
    assert context.offline_partition_count() == 0


def test_updating_offline_partitions_count_during_topic_deletion() -> None:
    context = four_offline()
    keys = tuple(context.partitions)
    context = replace(context, to_delete=frozenset({"t"}))
    assert context.offline_partition_count() == 4  # Queued, but not begun.
    gone = transition(
        context, PartitionWish(keys, S.OFFLINE), PartitionWish(keys, S.NON_EXISTENT)
    ).context
    assert gone.offline_partition_count() == 0
    assert gone.without_topic("t").offline_partition_count() == 0


def test_kafka_13572_queueing_a_topic_twice_counts_its_imbalance_once() -> None:
    context = with_partition(a_context(0, 1), led_by(1, [0, 1], [0, 1]), state=S.ONLINE)
    assert context.preferred_replica_imbalance_count() == 1
    for _ in range(2):
        context = replace(context, to_delete=context.to_delete | {"t"})
        assert context.preferred_replica_imbalance_count() == 0


def test_kafka_1742_forgetting_a_topic_leaves_the_others_whole() -> None:
    """There, topics that came later in an unordered collection lost their state with it."""
    context, names = a_context(0, 1), "abcdefgh"
    for name in names:
        for number in range(3):
            key = PartitionKey(name, number)
            context = with_partition(
                context,
                led_by(0, [0, 1], [0, 1]),
                key=key,
                state=S.ONLINE,
                replica_states=ReplicaState.ONLINE,
            )
    after = context.without_topic("d")
    left = [key for key in sorted(context.partitions) if key.topic != "d"]
    assert sorted(after.partitions) == sorted(after.partition_states) == left
    assert len(after.replica_states) == 2 * len(left)
    assert "d" not in after.topic_ids


def test_a_forgotten_topic_leaves_nothing_for_the_next_of_its_name() -> None:
    context = with_partition(a_context(0, 1), led_by(1, [0, 1], [0, 1]), state=S.ONLINE)
    context = replace(
        context,
        to_delete=frozenset({"t"}),
        deletion_started=frozenset({"t"}),
        offline_replicas=frozenset({ReplicaKey(1, *KEY)}),
    )
    assert context.without_topic("t") == a_context(0, 1)
    assert context.without_topic("unknown") == context
