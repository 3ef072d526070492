"""Brokers register, are unfenced when they have caught up, and leave without a gap.

Method: decisions one after another on a replayed image, with times handed in; the heartbeat's
state machine as a table of (state, request) → (state, response).
"""

from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.controller.brokers.brokers import (
    NO_BROKER_EPOCH,
    Heartbeat,
    HeartbeatReply,
    State,
    fence_stalest,
    heartbeat,
    register_broker,
    state_of,
)
from ottla.controller.brokers.unregister import unregister_broker
from ottla.controller.context import DecisionContext, next_offset
from ottla.controller.step import Decision, Step
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.brokers import BrokerImage, Endpoint, FeatureRange
from ottla.metadata.features import ELR_VERSION, SUPPORTED
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)

from ..builders import CLUSTER, SESSION_MS, advance, after, broker, cluster, context, uuid


def register(
    image: ClusterImage,
    wanted: BrokerImage,
    *,
    decision_context: DecisionContext | None = None,
    cluster_id: str = CLUSTER,
    now_ms: int = 0,
    previous_epoch: int = NO_BROKER_EPOCH,
    superseded_epoch: int = NO_BROKER_EPOCH,
) -> Decision[int]:
    return register_broker(
        image,
        wanted,
        cluster_id=cluster_id,
        next_offset=next_offset(image),
        context=decision_context or context(),
        now_ms=now_ms,
        previous_epoch=previous_epoch,
        superseded_epoch=superseded_epoch,
    )


def beat(
    image: ClusterImage,
    broker_id: int = 1,
    *,
    decision_context: DecisionContext | None = None,
    offset: int = 10_000,
    fence: bool = False,
    stop: bool = False,
    epoch: int | None = None,
    offline: tuple[Uuid, ...] = (),
    now_ms: int = 0,
) -> Decision[HeartbeatReply]:
    found = image.brokers.get(broker_id)
    report = Heartbeat(
        broker_id=broker_id,
        broker_epoch=(found.epoch if found else 0) if epoch is None else epoch,
        metadata_offset=offset,
        want_fence=fence,
        want_shut_down=stop,
        offline_log_dirs=offline,
    )
    return heartbeat(
        image,
        report,
        next_offset=next_offset(image),
        context=decision_context or context(),
        now_ms=now_ms,
    )


def with_topic(image: ClusterImage, name: str, broker_id: int) -> ClusterImage:
    wanted = [NewTopic(name=name, assignments=((0, (broker_id,)),))]
    return after(image, create_topics(image, wanted, validate_only=False, context=context()))


def leader_of(image: ClusterImage, name: str) -> int:
    topic = image.topics.by_name(name)
    assert topic is not None
    return topic.partitions[0].leader


# -- registration


def replicated(min_isr: int = 2, elr: int = 1) -> ClusterImage:
    """Return three brokers with one partition of all of them, led by the first."""
    base = cluster(broker(1), broker(2), broker(3))
    image = advance(
        base,
        [
            FeatureLevelRecord(name=ELR_VERSION, feature_level=elr),
            ConfigRecord(
                resource_type=4, resource_name="", name="min.insync.replicas", value=str(min_isr)
            ),
        ],
    )
    wanted = [NewTopic(name="t", assignments=((0, (1, 2, 3)),))]
    return after(image, create_topics(image, wanted, validate_only=False, context=context()))


def members(image: ClusterImage) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    topic = image.topics.by_name("t")
    assert topic is not None
    partition = topic.partitions[0]
    return partition.isr, partition.elr, partition.leader


def returned(image: ClusterImage, broker_id: int, previous_epoch: int) -> ClusterImage:
    """Return the image after a new process of a broker has registered."""
    process = broker(broker_id, incarnation_id=uuid("another"))
    decided = register(image, process, previous_epoch=previous_epoch, now_ms=SESSION_MS)
    assert not decided.step.atomic
    assert isinstance(decided.step.records[-1], RegisterBrokerRecord)
    return after(image, decided)


def test_kafka_7235_a_bounce_that_nobody_noticed_is_a_failure_and_a_start() -> None:
    image = returned(replicated(), 1, previous_epoch=101)
    assert image.brokers[1].fenced
    assert members(image) == ((2, 3), (), 2)


def test_a_clean_stop_keeps_a_broker_eligible() -> None:
    image = after(replicated(), beat(replicated(), 3, fence=True))
    image = after(image, beat(image, 2, fence=True))
    assert members(image) == ((1,), (2,), 1)
    assert members(returned(image, 2, previous_epoch=102)) == ((1,), (2,), 1)
    assert members(returned(image, 1, previous_epoch=101)) == ((), (1, 2), NO_LEADER)


@pytest.mark.parametrize("previous_epoch", [-1, 0, 101, 103, 1_004])
def test_who_may_have_lost_something_is_neither_in_sync_nor_eligible(previous_epoch: int) -> None:
    image = after(replicated(), beat(replicated(), 3, fence=True))
    assert members(returned(image, 2, previous_epoch)) == ((1,), (), 1)
    image = after(image, beat(image, 2, fence=True))
    assert members(returned(image, 2, previous_epoch)) == ((1,), (), 1)


def test_a_clean_stop_of_an_older_life_proves_nothing() -> None:
    image = returned(replicated(), 2, previous_epoch=102)
    newer = image.brokers[2].epoch
    image = advance(
        image,
        [PartitionChangeRecord(partition_id=0, topic_id=topic_id(image), isr=(1, 2), leader=1)],
    )
    crashed = broker(2, incarnation_id=uuid("third"))
    for previous_epoch, expected in ((102, ((1,), (), 1)), (newer, ((1,), (2,), 1))):
        decided = register(image, crashed, previous_epoch=previous_epoch, now_ms=SESSION_MS)
        assert members(after(image, decided)) == expected


def topic_id(image: ClusterImage) -> Uuid:
    found = image.topics.id_of("t")
    assert found is not None
    return found


def test_who_was_unregistered_proves_nothing() -> None:
    image = after(replicated(), beat(replicated(), 3, fence=True))
    image = after(image, beat(image, 2, fence=True))
    gone = after(image, unregister_broker(image, 2, context=context()))
    assert members(gone) == ((1,), (2,), 1)
    assert members(returned(gone, 2, previous_epoch=102)) == ((1,), (), 1)


def test_a_broker_that_was_killed_leads_its_lone_replicas_again() -> None:
    base = advance(cluster(broker(1)), [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
    image = returned(with_topic(base, "t", 1), 1, previous_epoch=-1)
    assert members(image) == ((), (), NO_LEADER)
    image = after(image, beat(image))
    assert members(image) == ((1,), (), 1)


def test_without_eligible_replicas_the_last_one_stays_in_sync() -> None:
    image = replicated(elr=0)
    for broker_id in (3, 2):
        image = after(image, beat(image, broker_id, fence=True))
    assert members(image) == ((1,), (), 1)
    assert members(returned(image, 1, previous_epoch=-1)) == ((1,), (), NO_LEADER)


def test_a_new_broker_starts_fenced_and_its_epoch_is_its_record_s_offset() -> None:
    image = cluster()
    decided = register(image, broker(1))
    assert decided.reply == 1_001
    changed = after(image, decided)
    assert changed.brokers[1] == broker(1, epoch=1_001, fenced=True)
    assert changed.position == (1_001, 1)


def test_the_same_process_keeps_its_epoch_and_state() -> None:
    image = cluster(broker(1, in_controlled_shutdown=True))
    moved = broker(1, endpoints=(Endpoint("PLAINTEXT", "elsewhere", 1),), fenced=True)
    decided = register(image, moved)
    assert decided.reply == 101
    assert after(image, decided).brokers[1] == replace(
        moved, epoch=101, fenced=False, in_controlled_shutdown=True
    )


def test_a_second_process_waits_until_the_first_one_is_silent() -> None:
    image, decision_context = cluster(broker(1)), context()
    decision_context.liveness.activate(image, 0)
    second = broker(1, incarnation_id=uuid("second"))
    with pytest.raises(ApiError) as caught:
        register(image, second, decision_context=decision_context, now_ms=SESSION_MS - 1)
    assert caught.value.error is Error.DUPLICATE_BROKER_REGISTRATION
    assert register(image, second, decision_context=decision_context, now_ms=SESSION_MS).reply > 101


@pytest.mark.parametrize(
    ("previous_epoch", "taken"), [(101, True), (100, False), (102, False), (-1, False)]
)
def test_a_process_with_the_locks_of_the_previous_one_need_not_wait_for_its_session(
    previous_epoch: int, taken: bool
) -> None:
    image, decision_context = cluster(broker(1)), context()
    decision_context.liveness.activate(image, 0)
    second = broker(1, incarnation_id=uuid("second"))
    if taken:
        decided = register(
            image, second, decision_context=decision_context, previous_epoch=previous_epoch
        )
        assert after(image, decided).brokers[1].fenced
    else:
        with pytest.raises(ApiError) as caught:
            register(
                image, second, decision_context=decision_context, previous_epoch=previous_epoch
            )
        assert caught.value.error is Error.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize(("superseded", "taken"), [(101, True), (100, False), (-1, False)])
def test_who_knows_the_registration_before_its_own_need_not_wait(
    superseded: int, taken: bool, fenced: bool
) -> None:
    """Who names an older one may be the older process, whose request comes late."""
    image, decision_context = cluster(broker(1, fenced=fenced)), context()
    decision_context.liveness.activate(image, 0)
    second = broker(1, incarnation_id=uuid("second"))
    if taken:
        decided = register(
            image, second, decision_context=decision_context, superseded_epoch=superseded
        )
        assert decided.reply > 101
    else:
        with pytest.raises(ApiError) as caught:
            register(image, second, decision_context=decision_context, superseded_epoch=superseded)
        assert caught.value.error is Error.DUPLICATE_BROKER_REGISTRATION


def test_the_late_registration_of_a_dead_process_does_not_replace_one_that_starts() -> None:
    """Three processes: the second is registered and fenced yet when the first one's comes."""
    decision_context = context()
    image = replicated(elr=1)
    second = broker(1, incarnation_id=uuid("second"))
    decided = register(
        image, second, decision_context=decision_context, previous_epoch=101, superseded_epoch=101
    )
    image = after(image, decided)
    before = image.brokers[1]
    assert before.fenced
    first = broker(1, incarnation_id=uuid("first"))
    with pytest.raises(ApiError) as caught:
        register(
            image,
            first,
            decision_context=decision_context,
            previous_epoch=101,
            superseded_epoch=101,
        )
    assert caught.value.error is Error.DUPLICATE_BROKER_REGISTRATION
    beaten = beat(
        image, 1, epoch=before.epoch, offset=before.epoch, decision_context=decision_context
    )
    assert not after(image, beaten).brokers[1].fenced
    third = broker(1, incarnation_id=uuid("third"))
    known = before.epoch
    assert (
        register(image, third, decision_context=decision_context, superseded_epoch=known).reply
        > known
    )


def test_who_only_knows_that_the_process_before_it_has_ended_is_unclean() -> None:
    image, decision_context = replicated(elr=1), context()
    decision_context.liveness.activate(image, 0)
    second = broker(1, incarnation_id=uuid("second"))
    image = after(
        image, register(image, second, decision_context=decision_context, superseded_epoch=101)
    )
    assert 1 not in members(image)[0]


def test_what_the_first_process_led_is_led_by_nobody_until_the_second_is_unfenced() -> None:
    image = with_topic(cluster(broker(1)), "t", 1)
    decided = register(image, broker(1, incarnation_id=uuid("second")), now_ms=SESSION_MS)
    kinds = [type(record) for record in decided.step.records]
    assert kinds == [PartitionChangeRecord, RegisterBrokerRecord]
    changed = after(image, decided)
    assert changed.brokers[1].epoch == changed.position[0] == decided.reply
    assert leader_of(changed, "t") == NO_LEADER
    unfenced = after(changed, beat(changed))
    assert leader_of(unfenced, "t") == 1


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (broker(1, log_dirs=()), Error.INVALID_REGISTRATION),
        (broker(1, log_dirs=(uuid("a"), uuid("a"))), Error.INVALID_REGISTRATION),
        (broker(1, log_dirs=(Uuid(bytes(15) + b"\x01"),)), Error.INVALID_REGISTRATION),
        (broker(1, log_dirs=(uuid("dir-2"),)), Error.INVALID_REGISTRATION),
        (broker(1, endpoints=()), Error.INVALID_REGISTRATION),
        (broker(1, endpoints=(Endpoint("A", "h", 1),) * 2), Error.INVALID_REGISTRATION),
        (broker(1, endpoints=(Endpoint("A", "h", 1, 3),)), Error.INVALID_REGISTRATION),
        (broker(1, features=()), Error.UNSUPPORTED_VERSION),
        (
            broker(1, features=(FeatureRange("metadata.version", 1, 24),)),
            Error.UNSUPPORTED_VERSION,
        ),
        (
            broker(1, features=(FeatureRange("metadata.version", 26, 30),)),
            Error.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_registrations_that_make_no_sense(wanted: BrokerImage, error: Error) -> None:
    with pytest.raises(ApiError) as caught:
        register(cluster(broker(2)), wanted)
    assert caught.value.error is error


def test_a_broker_of_another_cluster() -> None:
    with pytest.raises(ApiError) as caught:
        register(cluster(), broker(1), cluster_id="another")
    assert caught.value.error is Error.INCONSISTENT_CLUSTER_ID


def test_a_feature_of_the_cluster_that_the_broker_lacks() -> None:
    image = cluster()
    image = replace(image, features=image.features.set("ottla.version", 1))
    of_before = tuple(each for each in SUPPORTED if each.name != "ottla.version")
    with pytest.raises(ApiError) as caught:
        register(image, broker(1, features=of_before))
    assert caught.value.error is Error.UNSUPPORTED_VERSION
    assert "ottla.version" in caught.value.message


# -- heartbeats


@pytest.mark.parametrize(
    ("epoch", "broker_id", "error"),
    [
        (100, 1, Error.STALE_BROKER_EPOCH),
        (102, 1, Error.STALE_BROKER_EPOCH),
        (0, 9, Error.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_a_heartbeat_of_somebody_else(epoch: int, broker_id: int, error: Error) -> None:
    with pytest.raises(ApiError) as caught:
        beat(cluster(broker(1)), broker_id, epoch=epoch)
    assert caught.value.error is error


FENCED, UNFENCED = broker(1, fenced=True), broker(1)
LEAVING = broker(1, in_controlled_shutdown=True)
GONE = broker(1, in_controlled_shutdown=True, fenced=True)
BEHIND, CAUGHT_UP = 100, 101
S = State


@pytest.mark.parametrize(
    ("before", "leads", "offset", "fence", "stop", "expected", "expected_reply"),
    [
        (FENCED, False, BEHIND, False, False, S.FENCED, (False, True, False)),
        (FENCED, False, CAUGHT_UP, True, False, S.FENCED, (True, True, False)),
        (FENCED, False, CAUGHT_UP, False, False, S.UNFENCED, (True, False, False)),
        (FENCED, False, CAUGHT_UP, False, True, S.FENCED, (True, True, True)),
        (FENCED, False, BEHIND, True, True, S.FENCED, (False, True, True)),
        (UNFENCED, True, CAUGHT_UP, False, False, S.UNFENCED, (True, False, False)),
        (UNFENCED, True, BEHIND, False, False, S.UNFENCED, (False, False, False)),
        (UNFENCED, True, CAUGHT_UP, True, False, S.FENCED, (True, True, False)),
        (UNFENCED, True, CAUGHT_UP, True, True, S.FENCED, (True, True, True)),
        (UNFENCED, True, CAUGHT_UP, False, True, S.CONTROLLED_SHUTDOWN, (True, False, False)),
        (UNFENCED, False, CAUGHT_UP, False, True, S.FENCED, (True, True, True)),
        (LEAVING, False, CAUGHT_UP, False, True, S.FENCED, (True, True, True)),
        (LEAVING, False, CAUGHT_UP, False, False, S.FENCED, (True, True, True)),
        # Who had begun to leave when its session ended does not come back as it is.
        (GONE, False, CAUGHT_UP, False, False, S.FENCED, (True, True, True)),
        (GONE, False, CAUGHT_UP, True, False, S.FENCED, (True, True, True)),
    ],
)
def test_states(
    before: BrokerImage,
    leads: bool,
    offset: int,
    fence: bool,
    stop: bool,
    expected: State,
    expected_reply: tuple[bool, bool, bool],
) -> None:
    image = cluster(before)
    if leads:
        image = with_topic(image, "t", 1)
    decided = beat(image, offset=offset, fence=fence, stop=stop)
    assert state_of(after(image, decided).brokers[1]) is expected
    assert decided.reply == HeartbeatReply(*expected_reply)
    if state_of(before) is expected:
        assert decided.step.records == ()


def test_a_heartbeat_without_changes_writes_nothing_but_extends_the_session() -> None:
    image, decision_context = cluster(broker(1)), context()
    assert beat(image, decision_context=decision_context, now_ms=50).step.records == ()
    assert decision_context.liveness.is_alive(1, 50 + SESSION_MS - 1)


def test_fencing_takes_the_leaders_away_and_unfencing_gives_them_back() -> None:
    image = with_topic(with_topic(cluster(broker(1), broker(2)), "t", 1), "u", 2)
    fenced = after(image, beat(image, fence=True))
    assert (leader_of(fenced, "t"), leader_of(fenced, "u")) == (NO_LEADER, 2)
    topic = fenced.topics.by_name("t")
    assert topic is not None
    assert topic.partitions[0].isr == (1,)
    assert topic.partitions[0].leader_epoch == 1
    back = after(fenced, beat(fenced))
    assert leader_of(back, "t") == 1
    again = back.topics.by_name("t")
    assert again is not None
    assert again.partitions[0].leader_epoch == 2


def test_a_controlled_shutdown_waits_until_the_others_have_replayed_it() -> None:
    image, decision_context = with_topic(cluster(broker(1), broker(2)), "t", 1), context()
    decision_context.liveness.activate(image, 0)
    beat(image, 2, decision_context=decision_context, offset=image.position[0])
    first = beat(image, stop=True, decision_context=decision_context)
    image = after(image, first)
    assert not first.reply.should_shut_down
    assert image.brokers[1].in_controlled_shutdown
    assert leader_of(image, "t") == NO_LEADER
    waiting = beat(image, stop=True, decision_context=decision_context)
    assert (waiting.step.records, waiting.reply) == ((), HeartbeatReply(True, False, False))
    beat(image, 2, decision_context=decision_context, offset=image.position[0])
    done = beat(image, stop=True, decision_context=decision_context)
    assert done.reply == HeartbeatReply(True, True, True)
    assert after(image, done).brokers[1].fenced


def test_a_failover_in_a_controlled_shutdown_does_not_hold_it_up() -> None:
    image = cluster(LEAVING, broker(2))
    decision_context = context()
    decision_context.liveness.activate(image, 0)
    assert beat(image, stop=True, decision_context=decision_context).reply.should_shut_down


def test_a_failed_log_dir_loses_its_leaderships() -> None:
    good, bad = uuid("good"), uuid("bad")
    image = with_topic(cluster(broker(1, log_dirs=(bad,))), "t", 1)
    image = advance(
        image,
        [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, log_dirs=(good, bad))],
    )
    decided = beat(image, offline=(bad, uuid("whose")))
    changed = after(image, decided)
    assert leader_of(changed, "t") == NO_LEADER
    assert changed.brokers[1].log_dirs == (good,)
    assert beat(changed, offline=(bad,)).step.records == ()


def test_a_fenced_broker_is_not_elected_for_replicas_in_a_failed_log_dir() -> None:
    good, bad = uuid("good"), uuid("bad")
    image = with_topic(cluster(broker(1, log_dirs=(bad,))), "t", 1)
    image = after(image, beat(image, fence=True))
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, log_dirs=(good, bad))
    image = advance(image, [change])
    changed = after(image, beat(image, offline=(bad,)))
    assert not changed.brokers[1].fenced
    assert leader_of(changed, "t") == NO_LEADER


def test_a_broker_without_any_log_dir_is_not_fenced_but_stops_itself() -> None:
    image = with_topic(cluster(broker(1)), "t", 1)
    assert beat(image, offline=(uuid("dir-1"),)).step.records == ()


def test_steps_that_move_leaders_may_be_cut_with_the_broker_s_own_state_last() -> None:
    image = with_topic(cluster(broker(1)), "t", 1)
    fenced = beat(image, fence=True)
    back = beat(after(image, fenced))
    leaving = beat(image, stop=True)
    for step in (fenced.step, back.step, leaving.step):
        assert not step.atomic
        assert [type(record) for record in step.records] == [
            PartitionChangeRecord,
            BrokerRegistrationChangeRecord,
        ]


# -- sessions


def test_silent_brokers_are_fenced_one_a_step_the_stalest_first() -> None:
    image, decision_context = with_topic(cluster(broker(1), broker(2)), "t", 2), context()
    decision_context.liveness.touch(1, 10)
    decision_context.liveness.touch(2, 0)
    assert fence_stalest(image, decision_context, SESSION_MS - 1) == Decision(Step(), None)
    first = fence_stalest(image, decision_context, SESSION_MS)
    assert first.reply == 2
    image = after(image, first)
    assert [each.fenced for _, each in sorted(image.brokers.items())] == [False, True]
    assert leader_of(image, "t") == NO_LEADER
    assert fence_stalest(image, decision_context, SESSION_MS) == Decision(Step(), None)
    image = after(image, fence_stalest(image, decision_context, SESSION_MS + 10))
    assert image.brokers[1].fenced
    assert fence_stalest(image, decision_context, 10 * SESSION_MS) == Decision(Step(), None)
