"""Brokers come, bounce and go: who is told what, in which order, and what becomes of states.

Method: small clusters by hand; then random histories of brokers, elections and deletions, with
writes that meet others', after each step of which nothing may be in an impossible state.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from ottla.base.ids import NO_LEADER
from ottla.controller import partition_states, replica_states
from ottla.controller.leader_strategies import (
    ControlledShutdownElection,
    OfflineElection,
    PreferredElection,
    ReassignElection,
)
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_states import ReplicaState
from ottla.controller.state_broker_changes import (
    BrokerChange,
    brokers_changed,
    compare_brokers,
    controlled_shutdown,
    replicas_went_offline,
    start_machines,
)
from ottla.controller.state_changes import (
    Outcome,
    PartitionWish,
    ReplicaWish,
    Wish,
    resume,
    transition,
)
from ottla.controller.state_context import PartitionKey, StateContext, Stored, assigned
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import PartitionChangeRecord, TopicRecord

from .state_world import (
    CONTROLLER_EPOCH,
    KEY,
    a_broker,
    a_context,
    brokers,
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

P, R = PartitionState, ReplicaState
OTHER = PartitionKey("u", 0)


def running() -> StateContext:
    """Three brokers; t-0 on all of them led by 0, u-0 on 1 and 2 led by 1; all in sync."""
    context = with_partition(a_context(0, 1, 2), led_by(0, [0, 1, 2], [0, 1, 2]))
    context = with_partition(context, led_by(1, [1, 2], [1, 2]), key=OTHER)
    return start_machines(context).context


def registered(*ids: int, **epochs: int) -> Map[int, BrokerImage]:
    """Return registrations; `b2=500` = broker 2 with epoch 500."""
    found = brokers(*ids)
    for name, epoch in epochs.items():
        found = found.set(int(name[1:]), a_broker(int(name[1:]), epoch))
    return found


def test_who_came_bounced_and_went() -> None:
    change = compare_brokers(a_context(0, 1, 2), registered(0, 3, b1=700))
    assert change == BrokerChange(new=(3,), bounced=(1,), dead=(2,))


def test_kafka_9839_an_older_epoch_than_the_known_one_is_no_bounce() -> None:
    assert compare_brokers(a_context(0), registered(b0=5)) == BrokerChange()
    context = running()
    assert brokers_changed(context, registered(1, 2, b0=5)) == Outcome(context=context)


# -- the start of a controller -----------------------------------------------------------------


def test_kafka_4443_brokers_hear_of_one_another_before_they_hear_of_leaders() -> None:
    context = with_partition(a_context(0, 1), led_by(0, [0, 1], [0, 1]))
    outcome = start_machines(context)
    requests = sent(outcome)
    assert told(requests)[:2] == [(0, "UpdateMetadata"), (1, "UpdateMetadata")]
    assert metadata(requests[:2]) == {0: [], 1: []}
    assert [each.id for each in requests[0].request.live_brokers] == [0, 1]


def test_a_new_controller_elects_where_the_leader_is_gone() -> None:
    context = with_partition(a_context(1, 2), led_by(0, [0, 1], [0, 1]))
    context = with_partition(context, led_by(1, [1, 2], [1, 2]), key=OTHER)
    new = PartitionKey("v", 0)
    context = with_partition(context, assigned((2, 1)), key=new)
    nobody = PartitionKey("w", 0)
    context = with_partition(context, led_by(0, [0], [0]), key=nobody)
    outcome = start_machines(context)
    after = outcome.context
    states = {key: after.partition_state(key) for key in (KEY, OTHER, new, nobody)}
    assert states == {KEY: P.ONLINE, OTHER: P.ONLINE, new: P.ONLINE, nobody: P.OFFLINE}
    assert after.partitions[KEY].leader == 1
    assert after.partitions[new].leader == 2
    assert (after.partitions[nobody].leader, after.partitions[nobody].isr) == (NO_LEADER, (0,))
    assert [each.subject for each in outcome.refused] == [nobody]


def test_kafka_1681_what_a_dead_controller_left_waiting_is_looked_at_once() -> None:
    """No wake-up has to come first: the start itself tries everything that waits."""
    context = with_partition(a_context(0), led_by(NO_LEADER, [0], [0]))
    outcome = start_machines(context)
    assert outcome.context.partitions[KEY].leader == 0


def test_topics_that_are_to_go_are_not_brought_online() -> None:
    context = with_partition(a_context(1), led_by(0, [0, 1], [0, 1]))
    context = replace(context, to_delete=frozenset({"t"}))
    outcome = start_machines(context)
    assert outcome.context.partition_state(KEY) is P.OFFLINE
    assert leader_and_isrs(sent(outcome)) == {}


# -- a broker comes ----------------------------------------------------------------------------


def test_a_new_broker_is_told_everything_and_the_others_that_it_is_there() -> None:
    context = with_partition(a_context(0), led_by(0, [0], [0, 1]))
    context = start_machines(context).context
    outcome = brokers_changed(context, registered(0, 1))
    assert outcome.context.replica_state(replica(1)) is R.ONLINE
    requests = sent(outcome)
    assert told(requests) == [
        (0, "UpdateMetadata"),
        (1, "UpdateMetadata"),
        (0, "UpdateMetadata"),
        (1, "LeaderAndIsr"),
        (1, "UpdateMetadata"),
    ]
    assert metadata(requests[:1]) == {0: []}
    assert metadata(requests[1:2]) == {1: [(KEY, 0)]}
    assert set(leader_and_isrs(requests)) == {1}


def test_a_broker_that_returns_brings_its_partitions_back() -> None:
    context = with_partition(a_context(1), led_by(0, [0], [0]))
    context = start_machines(context).context
    assert context.partition_state(KEY) is P.OFFLINE
    outcome = brokers_changed(context, registered(0, 1))
    assert outcome.context.partition_state(KEY) is P.ONLINE
    assert outcome.context.partitions[KEY].leader == 0


def test_replicas_whose_deletion_runs_do_not_come_back_with_their_broker() -> None:
    context = replace(running(), to_delete=frozenset({"t"}), deletion_started=frozenset({"t"}))
    context = replace(context, brokers=brokers(0, 1))
    context = in_replica_state(context, R.DELETION_SUCCESSFUL, replica(2))
    outcome = brokers_changed(context, registered(0, 1, 2))
    assert outcome.refused == ()
    assert outcome.context.replica_state(replica(2)) is R.DELETION_SUCCESSFUL
    assert all(key != KEY for key in leader_and_isrs(sent(outcome)).get(2, {}))


# -- a broker goes -----------------------------------------------------------------------------


def test_a_dead_leader_is_replaced_and_leaves_the_isr() -> None:
    outcome = brokers_changed(running(), registered(1, 2))
    after = outcome.context
    assert (after.partitions[KEY].leader, after.partitions[KEY].isr) == (1, (1, 2))
    assert after.partition_state(KEY) is P.ONLINE
    assert after.replica_state(replica(0)) is R.OFFLINE
    # The election has dropped it from the in-sync set, so the replica's step writes nothing.
    assert len(outcome.records) == 1
    requests = sent(outcome)
    assert {broker for broker, _ in told(requests)} == {1, 2}
    assert leader_and_isrs(requests)[2][KEY].leader == 1


def test_a_dead_follower_leaves_the_isr_and_everyone_hears_that_it_is_gone() -> None:
    outcome = brokers_changed(running(), registered(0, 1))
    after = outcome.context
    assert (after.partitions[KEY].leader, after.partitions[KEY].isr) == (0, (0, 1))
    requests = sent(outcome)
    last = {each.broker_id: each.request for each in requests}
    assert [each.id for each in last[0].live_brokers] == [0, 1]


def test_the_death_of_an_idle_broker_is_told_too() -> None:
    context = replace(running(), brokers=brokers(0, 1, 2, 9))
    requests = sent(brokers_changed(context, registered(0, 1, 2)))
    assert told(requests) == [(each, "UpdateMetadata") for each in (0, 1, 2)]


def test_kafka_7235_a_fast_bounce_is_a_failure_and_a_start() -> None:
    outcome = brokers_changed(running(), registered(1, 2, b0=900))
    after = outcome.context
    assert after.brokers[0].epoch == 900
    assert after.partitions[KEY].leader == 1
    assert after.replica_state(replica(0)) is R.ONLINE
    requests = [each for each in sent(outcome) if each.broker_id == 0]
    # The new process hears of its start only, under its own epoch, never of the old one's end.
    assert {each.broker_epoch for each in requests} == {900}
    assert stops(requests) == {}
    assert leader_and_isrs(requests)[0][KEY].leader == 1
    assert told(requests)[0] == (0, "UpdateMetadata")


def test_new_brokers_come_first_then_bounced_ones_then_dead_ones() -> None:
    """t-0 loses its last in-sync replica to a death, after its other replica has returned."""
    context = with_partition(a_context(0, 2), led_by(0, [0, 1], [0, 1]))
    context = start_machines(context).context
    context = context.observed({KEY: Stored(led_by(0, [0, 1], [0, 1]), CONTROLLER_EPOCH)})
    outcome = brokers_changed(context, registered(1, b2=900))
    assert outcome.context.partitions[KEY].leader == 1
    assert outcome.unclean == 0
    assert set(outcome.context.brokers) == {1, 2}


def test_the_broker_that_dies_while_shutting_down_is_forgotten_there() -> None:
    context = replace(running(), shutting_down=frozenset({2}))
    assert brokers_changed(context, registered(0, 1)).context.shutting_down == frozenset()


def test_replicas_that_are_being_deleted_become_ineligible_with_their_broker() -> None:
    context = replace(running(), to_delete=frozenset({"t", "u"}))
    context = in_replica_state(context, R.OFFLINE, replica(2))
    context = in_replica_state(context, R.DELETION_STARTED, replica(2))
    outcome = brokers_changed(context, registered(0, 1))
    assert outcome.refused == ()
    assert outcome.context.replica_state(replica(2)) is R.DELETION_INELIGIBLE
    # u was queued and had not begun: online in name until its broker died.
    assert outcome.context.replica_state(replica(2, OTHER)) is R.DELETION_INELIGIBLE


def test_latent_l2_a_confirmed_deletion_stays_confirmed_when_its_broker_dies() -> None:
    context = replace(running(), to_delete=frozenset({"t"}), deletion_started=frozenset({"t"}))
    context = in_replica_state(context, R.DELETION_SUCCESSFUL, replica(2))
    outcome = brokers_changed(context, registered(0, 1))
    assert outcome.refused == ()
    assert outcome.context.replica_state(replica(2)) is R.DELETION_SUCCESSFUL


def test_a_failed_folder_moves_the_leader_and_only_that() -> None:
    context = replace(running(), offline_replicas=frozenset({replica(0)}))
    outcome = replicas_went_offline(context, [replica(0)])
    assert outcome.context.partitions[KEY].leader == 1
    assert outcome.context.replica_state(replica(0)) is R.OFFLINE
    assert outcome.context.partitions[OTHER] == context.partitions[OTHER]
    assert stops(sent(outcome)) == {(0, KEY): (4, False)}


# -- a broker is about to go -------------------------------------------------------------------


def test_controlled_shutdown_moves_what_is_led_and_stops_what_is_followed() -> None:
    outcome, remaining = controlled_shutdown(running(), 1)
    after = outcome.context
    assert remaining == ()
    assert (after.partitions[OTHER].leader, after.partitions[OTHER].isr) == (2, (2,))
    assert (after.partitions[KEY].leader, after.partitions[KEY].isr) == (0, (0, 2))
    assert after.replica_state(replica(1)) is R.OFFLINE
    requests = sent(outcome)
    assert stops(requests) == {(1, KEY): (3, False)}
    assert leader_and_isrs(requests)[1][OTHER].leader == 2


def test_controlled_shutdown_tells_what_it_could_not_move() -> None:
    alone, single = PartitionKey("v", 0), PartitionKey("w", 0)
    context = with_partition(running(), led_by(1, [1], [1, 2]), key=alone, state=P.ONLINE)
    context = with_partition(context, led_by(1, [1], [1]), key=single, state=P.ONLINE)
    context = replace(context, to_delete=frozenset({"u"}))
    outcome, remaining = controlled_shutdown(context, 1)
    assert remaining == (alone,)
    after = outcome.context.partitions
    assert [after[key].leader for key in (alone, single, OTHER)] == [1, 1, 1]


def test_a_leader_that_could_not_be_moved_leads_until_it_is_gone() -> None:
    alone = PartitionKey("v", 0)
    context = with_partition(running(), led_by(1, [1], [1, 2]), key=alone)
    outcome, remaining = controlled_shutdown(start_machines(context).context, 1)
    assert remaining == (alone,)
    outcome = brokers_changed(outcome.context, registered(1, 2))  # Another one dies.
    assert outcome.context.partition_state(alone) is P.ONLINE
    assert outcome.context.partitions[alone].leader == 1
    outcome = brokers_changed(outcome.context, registered(2))
    assert outcome.context.partition_state(alone) is P.OFFLINE
    assert outcome.context.partitions[alone].leader == NO_LEADER


def test_brokers_that_leave_together_do_not_hand_to_one_another() -> None:
    outcome, _ = controlled_shutdown(running(), 1)
    outcome, remaining = controlled_shutdown(outcome.context, 2)
    assert remaining == (OTHER,)
    assert outcome.context.partitions[OTHER].leader == 2


# -- random histories --------------------------------------------------------------------------

IDS = range(4)
TOPICS = ("t", "u")
KEYS = [PartitionKey(topic, number) for topic in TOPICS for number in range(2)]
STRATEGIES = [
    OfflineElection(),
    OfflineElection(allow_unclean=True),
    ReassignElection(),
    PreferredElection(),
    ControlledShutdownElection(),
]

some_keys = st.lists(st.sampled_from(KEYS), max_size=4).map(tuple)
some_replicas = st.lists(
    st.builds(replica, st.sampled_from(IDS), st.sampled_from(KEYS)), max_size=6
).map(tuple)
wishes: st.SearchStrategy[Wish] = st.one_of(
    st.builds(PartitionWish, some_keys, st.sampled_from(P), st.sampled_from(STRATEGIES)),
    st.builds(ReplicaWish, some_replicas, st.sampled_from(R)),
)
Act = Callable[[StateContext], Outcome]


@st.composite
def acts(draw: st.DrawFn, *, with_conflicts: bool = True) -> Act:
    """Draw something that may happen to a controller."""
    kind = draw(st.sampled_from(["wish", "brokers", "bounce", "leave", "queue", "disk", "start"]))
    if kind == "wish":
        listed = draw(st.lists(wishes, min_size=1, max_size=3))
        met = draw(st.sets(st.sampled_from(KEYS))) if with_conflicts else set()
        bump = draw(st.integers(-1, 1))
        return lambda context: conflicting(context, listed, met, bump)
    if kind == "brokers":
        there = draw(st.sets(st.sampled_from(IDS)))
        return lambda context: brokers_changed(
            context, {each: context.brokers.get(each) or a_broker(each) for each in there}
        )
    if kind == "queue":
        topics = draw(st.sets(st.sampled_from(TOPICS)))
        return lambda context: Outcome(context=replace(context, to_delete=frozenset(topics)))
    one = draw(st.sampled_from(IDS))
    if kind == "bounce":
        return lambda context: bounce(context, one)
    if kind == "leave":
        return lambda context: leave(context, one)
    if kind == "disk":
        failed = frozenset(draw(some_replicas))
        return lambda context: replicas_went_offline(
            replace(context, offline_replicas=failed), sorted(failed)
        )
    return start_machines


def leave(context: StateContext, one: int) -> Outcome:
    if one not in context.brokers:
        return Outcome(context=context)
    return controlled_shutdown(context, one)[0]


def bounce(context: StateContext, one: int) -> Outcome:
    if one not in context.brokers:
        return Outcome(context=context)
    newer = a_broker(one, context.brokers[one].epoch + 1)
    return brokers_changed(context, context.brokers.set(one, newer))


def conflicting(
    context: StateContext, listed: list[Wish], met: set[PartitionKey], bump: int
) -> Outcome:
    """Decide wishes; then some writes meet those of a leader, or of another controller."""
    stored: dict[PartitionKey, Stored | None] = {}
    for key in met:
        led = context.leadership(key)
        if led is not None:
            isr = tuple(each for each in led.isr if each == led.leader) or led.isr
            changed = replace(led, isr=isr, partition_epoch=led.partition_epoch + 1)
            stored[key] = Stored(changed, context.controller_epoch + bump)
    resumed = resume(context, listed, stored)
    return resumed.written.then(resumed.again)


def check(before: StateContext, outcome: Outcome) -> None:
    after = outcome.context
    for partition in after.partitions.values():
        if partition.leader_epoch >= 0:
            assert partition.isr, "an in-sync set is empty"  # KAFKA-708
            assert partition.leader in (*partition.isr, NO_LEADER)
    for key, state in after.partition_states.items():
        assert state is not partition_states.INITIAL
        assert state is not P.ONLINE or after.leadership(key) is not None
    assert replica_states.INITIAL not in after.replica_states.values()
    assert after.controller_epoch == before.controller_epoch
    epochs: dict[PartitionKey, int] = {}
    names = {after.topic_id(topic): topic for topic in TOPICS}
    for record in outcome.records:
        key = PartitionKey(names[record.topic_id], record.partition_id)
        if isinstance(record, PartitionChangeRecord):
            assert record.isr is None or record.isr
            epochs[key] = epochs.get(key, 0) + 1
    for key, count in epochs.items():
        was = before.leadership(key)
        assert after.partitions[key].leader_epoch >= (was.leader_epoch if was else 0) + count
    for request in sent(outcome):
        assert request.broker_id in after.brokers
        assert request.broker_epoch == after.brokers[request.broker_id].epoch


@settings(max_examples=150, deadline=None)
@given(st.lists(acts(), max_size=12))
def test_no_history_leads_to_an_undefined_state_or_an_empty_isr(history: list[Any]) -> None:
    context = a_context(*IDS)
    for key in KEYS:
        context = with_partition(context, assigned((key.number, key.number + 1, 3)), key=key)
    context = start_machines(context).context
    for act in history:
        outcome = act(context)
        check(context, outcome)
        context = outcome.context


@settings(max_examples=60, deadline=None)
@given(st.lists(acts(with_conflicts=False), max_size=10))
def test_the_records_lead_a_metadata_image_to_the_same_facts(history: list[Any]) -> None:
    """What the machines decide can be written to either back end: the records say all of it."""
    context = a_context(*IDS)
    for key in KEYS:
        context = with_partition(context, assigned((key.number, key.number + 1, 3)), key=key)
    topics = [TopicRecord(name=name, topic_id=context.topic_id(name)) for name in TOPICS]
    image = replay(EMPTY, topics, offset=1, epoch=1).image
    for act in [start_machines, *history]:
        outcome = act(context)
        context = outcome.context
        offset = image.position[0] + max(1, len(outcome.records))
        image = replay(image, outcome.records, offset=offset, epoch=1).image
    for key in KEYS:
        known = context.leadership(key)
        topic = image.topics.by_name(key.topic)
        assert topic is not None
        found = topic.partitions.get(key.number)
        assert (found is None) == (known is None)
        if found is not None and known is not None:
            # Who holds it is changed in memory only, and written by whoever asked for that.
            assert replace(found, replicas=known.replicas, directories=known.directories) == known


def test_histories_meet_what_they_are_for() -> None:
    """The random test's world is not a quiet one: all four start online and can lose leaders."""
    context = a_context(*IDS)
    for key in KEYS:
        context = with_partition(context, assigned((key.number, key.number + 1, 3)), key=key)
    context = start_machines(context).context
    assert {context.partition_state(key) for key in KEYS} == {P.ONLINE}
    outcome = transition(
        context,
        ReplicaWish(tuple(replica(each, key) for each in IDS for key in KEYS), R.OFFLINE),
        PartitionWish(tuple(KEYS), P.OFFLINE),
    )
    assert {context.partition_state(key) for key in KEYS} == {P.ONLINE}
    assert {outcome.context.partition_state(key) for key in KEYS} == {P.OFFLINE}
