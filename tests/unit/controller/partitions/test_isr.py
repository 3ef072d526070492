"""AlterPartition: every check in its order, and the result for the leader.

Method: one request against one partition, changed by one thing at a time; a row that breaks two
rules must be answered by the first of them.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.partitions.isr import ANY_EPOCH, ChangedIsr, IsrChange, alter_partition
from ottla.controller.step import Decision
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.topics import RECOVERED, RECOVERING

from ..builders import advance, broker, cluster, context, uuid

TOPIC = uuid("topic")
BEFORE = PartitionImage(
    replicas=(1, 2, 3),
    directories=tuple(uuid(f"dir-{each}") for each in (1, 2, 3)),
    isr=(1, 2),
    leader=1,
    leader_epoch=5,
    partition_epoch=9,
)


def image_of(*partitions: PartitionImage) -> ClusterImage:
    base = cluster(
        broker(1), broker(2), broker(3), broker(4), broker(5, fenced=True),
        broker(6, in_controlled_shutdown=True),
    )  # fmt: skip
    topic = TopicImage(name="t", id=TOPIC, partitions=Map(enumerate(partitions)))
    return replace(base, topics=base.topics.with_topic(topic))


def epochs(members: Iterable[int]) -> tuple[tuple[int, int], ...]:
    return tuple((each, 100 + each) for each in members)


def wanted(
    isr: Iterable[int] = (1, 2, 3),
    members: tuple[tuple[int, int], ...] | None = None,
    **more: object,
) -> IsrChange:
    usual = IsrChange(
        topic_id=TOPIC,
        partition_id=0,
        leader_epoch=5,
        partition_epoch=9,
        isr=members or epochs(isr),
    )
    return replace(usual, **more)  # type: ignore[arg-type]


def ask(
    *changes: IsrChange,
    partition: PartitionImage = BEFORE,
    broker_id: int = 1,
    image: ClusterImage | None = None,
) -> Decision[tuple[ChangedIsr, ...]]:
    return alter_partition(
        image or image_of(partition),
        changes,
        broker_id=broker_id,
        broker_epoch=100 + broker_id,
        context=context(),
    )


def outcome(
    change: IsrChange, partition: PartitionImage = BEFORE, broker_id: int = 1
) -> tuple[Error, bool]:
    decided = ask(change, partition=partition, broker_id=broker_id)
    [result] = decided.reply
    return result.error, bool(decided.step.records)


@pytest.mark.parametrize("isr", [(1, 2, 3), (1,), (3, 2, 1), (1, 3)])
def test_the_isr_is_changed_and_returned(isr: tuple[int, ...]) -> None:
    image = image_of(BEFORE)
    decided = ask(wanted(isr), image=image)
    changed = advance(image, decided.step.records).topics.by_id(TOPIC)
    assert changed is not None
    after = changed.partitions[0]
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == (isr, 1, 5, 10)
    assert decided.reply == (ChangedIsr(TOPIC, 0, partition=after),)
    assert not decided.step.atomic


@pytest.mark.parametrize(("broker_id", "epoch"), [(9, 109), (2, 101), (2, 103), (2, -1)], ids=str)
def test_a_leader_of_another_registration(broker_id: int, epoch: int) -> None:
    with pytest.raises(ApiError) as caught:
        alter_partition(
            image_of(BEFORE), [wanted()], broker_id=broker_id, broker_epoch=epoch, context=context()
        )
    assert caught.value.error is Error.STALE_BROKER_EPOCH


AHEAD, BEHIND = {"leader_epoch": 6}, {"leader_epoch": 4}
LATER, EARLIER = {"partition_epoch": 10}, {"partition_epoch": 8}
BAD_ISR = {"isr": (2, 3)}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (wanted(topic_id=uuid("other"), partition_id=7), Error.UNKNOWN_TOPIC_ID),
        (wanted(partition_id=7, **AHEAD), Error.UNKNOWN_TOPIC_OR_PARTITION),
        # Ahead of this controller: another one is active by now.
        (wanted(**AHEAD), Error.NOT_CONTROLLER),
        (wanted(**LATER), Error.NOT_CONTROLLER),
        (wanted(**BEHIND, **LATER), Error.NOT_CONTROLLER),
        (wanted(**AHEAD, **BAD_ISR), Error.NOT_CONTROLLER),
        (wanted(**BEHIND), Error.FENCED_LEADER_EPOCH),
        (wanted(**BEHIND, **EARLIER), Error.FENCED_LEADER_EPOCH),
        (wanted(**BEHIND, **BAD_ISR), Error.FENCED_LEADER_EPOCH),
        (wanted(**EARLIER), Error.INVALID_UPDATE_VERSION),
        (wanted(**EARLIER, **BAD_ISR), Error.INVALID_UPDATE_VERSION),
        # What no ISR can be.
        (wanted(()), Error.INVALID_REQUEST),
        (wanted((1, 2, 2)), Error.INVALID_REQUEST),
        (wanted((1, 4)), Error.INVALID_REQUEST),
        (wanted((1, -1)), Error.INVALID_REQUEST),
        (wanted((2, 3)), Error.INVALID_REQUEST),
        (wanted((1,), recovery_state=RECOVERING), Error.INVALID_REQUEST),
        (wanted((1, 2), recovery_state=2), Error.INVALID_REQUEST),
        # KIP-903: the member is another process than the one that fetched.
        (wanted(members=((1, 101), (2, 101))), Error.INELIGIBLE_REPLICA),
        (wanted(members=((1, 101), (2, 103))), Error.INELIGIBLE_REPLICA),
        (wanted(members=((1, 100), (2, 102))), Error.INELIGIBLE_REPLICA),
        (wanted(members=((1, ANY_EPOCH), (2, ANY_EPOCH), (3, ANY_EPOCH))), Error.NONE),
    ],
)
def test_checks_in_their_order(change: IsrChange, error: Error) -> None:
    assert outcome(change) == (error, error in (Error.NONE, Error.INELIGIBLE_REPLICA))


def test_the_leader_check_comes_after_the_epochs_and_before_the_rest() -> None:
    assert outcome(wanted(), broker_id=2) == (Error.INVALID_REQUEST, False)
    assert outcome(wanted(**BEHIND), broker_id=2) == (Error.FENCED_LEADER_EPOCH, False)
    assert outcome(wanted(**EARLIER), broker_id=2) == (Error.INVALID_REQUEST, False)


@pytest.mark.parametrize("member", [5, 6, 7], ids=["fenced", "shutting down", "not registered"])
def test_new_members_must_be_active(member: int) -> None:
    before = replace(BEFORE, replicas=(1, 2, member))
    assert outcome(wanted((1, 2, member)), before) == (Error.INELIGIBLE_REPLICA, True)
    assert outcome(wanted((1,)), before) == (Error.NONE, True)


def test_a_refused_member_does_not_join_by_a_copy_of_the_request() -> None:
    """The leader no longer waits for it: elected, it would lack what was acknowledged since."""
    before = replace(BEFORE, replicas=(1, 2, 5))
    image = image_of(before)
    decided = ask(wanted((1, 2, 5)), image=image)
    assert decided.reply == (ChangedIsr(TOPIC, 0, Error.INELIGIBLE_REPLICA),)
    image = advance(image, decided.step.records)
    topic = image.topics.by_id(TOPIC)
    assert topic is not None
    assert topic.partitions[0] == replace(before, partition_epoch=10)
    image = replace(image, brokers=image.brokers.set(5, broker(5)))
    [late] = ask(wanted((1, 2, 5)), image=image).reply
    assert late.error is Error.INVALID_UPDATE_VERSION
    [again] = ask(wanted((1, 2, 5), **LATER), image=image).reply
    assert again.error is Error.NONE


def test_a_leader_that_has_recovered_is_heard_also_where_a_member_is_refused() -> None:
    """Over ZooKeeper brokers take it for recovered once the partition epoch has changed."""
    before = replace(BEFORE, replicas=(1, 2, 5), isr=(1,), leader_recovery_state=RECOVERING)
    image = image_of(before)
    decided = ask(wanted((1, 5)), image=image)
    assert decided.reply == (ChangedIsr(TOPIC, 0, Error.INELIGIBLE_REPLICA),)
    topic = advance(image, decided.step.records).topics.by_id(TOPIC)
    assert topic is not None
    recovered = replace(before, partition_epoch=10, leader_recovery_state=RECOVERED)
    assert topic.partitions[0] == recovered


def test_after_a_refusal_a_partition_may_be_named_again() -> None:
    before = replace(BEFORE, replicas=(1, 2, 5))
    decided = ask(wanted((1, 2, 5)), wanted((1,)), wanted((1,), **LATER), partition=before)
    assert [each.error for each in decided.reply] == [
        Error.INELIGIBLE_REPLICA,
        Error.INVALID_UPDATE_VERSION,
        Error.NONE,
    ]


@pytest.mark.parametrize(
    ("isr", "state", "expected"),
    [
        ((1,), RECOVERING, (Error.NONE, False)),
        ((1, 2), RECOVERING, (Error.INVALID_REQUEST, False)),
        ((1,), RECOVERED, (Error.NONE, True)),
        ((1, 2), RECOVERED, (Error.NONE, True)),
    ],
)
def test_a_recovering_leader(
    isr: tuple[int, ...], state: int, expected: tuple[Error, bool]
) -> None:
    before = replace(BEFORE, isr=(1,), leader_recovery_state=RECOVERING)
    assert outcome(wanted(isr, recovery_state=state), before) == expected


def test_a_repeated_request_is_answered_with_what_holds() -> None:
    for isr in ((1, 2), (2, 1)):
        decided = ask(wanted(isr, **EARLIER))
        assert decided.step.records == ()
        assert decided.reply == (ChangedIsr(TOPIC, 0, partition=BEFORE),)
    assert outcome(wanted((1, 2), **BEHIND, **EARLIER))[0] is Error.FENCED_LEADER_EPOCH
    recovering = replace(BEFORE, isr=(1,), leader_recovery_state=RECOVERING)
    assert outcome(wanted((1,), **EARLIER), recovering)[0] is Error.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    "gone",
    [
        (broker(1), broker(2, fenced=True)),
        (broker(1), broker(2, in_controlled_shutdown=True)),
        (broker(1), broker(2, epoch=7)),
        (broker(1),),
    ],
    ids=["fenced", "shutting down", "registered again", "not registered"],
)
def test_what_holds_is_not_refused_for_a_member_that_may_leave_soon(
    gone: tuple[BrokerImage, ...],
) -> None:
    """Over ZooKeeper its leave is decided later. Until then an elected leader may be any member:
    one that the leader does not wait for, as its request was refused, loses what it acknowledges.
    """
    image = replace(image_of(BEFORE), brokers=cluster(*gone).brokers)
    decided = ask(wanted((1, 2), **EARLIER), image=image)
    assert decided.reply == (ChangedIsr(TOPIC, 0, partition=BEFORE),)
    assert decided.step.records == ()
    [now] = ask(wanted((1, 2)), image=image).reply
    assert now.error is Error.INELIGIBLE_REPLICA


def test_a_partition_named_twice_is_changed_once() -> None:
    decided = ask(wanted((1,)), wanted((1, 2, 3)), wanted((1,)))
    assert [each.error for each in decided.reply] == [
        Error.NONE,
        Error.INVALID_UPDATE_VERSION,
        Error.NONE,
    ]
    assert len(decided.step.records) == 1


MOVING = replace(
    BEFORE,
    replicas=(4, 1, 2),
    directories=tuple(uuid(f"dir-{each}") for each in (4, 1, 2)),
    adding_replicas=(4,),
    removing_replicas=(1,),
)


def test_a_change_that_moves_the_leader_is_made_and_refused_in_one() -> None:
    image = image_of(MOVING)
    decided = ask(wanted((1, 2, 4)), image=image)
    assert decided.reply == (ChangedIsr(TOPIC, 0, Error.NEW_LEADER_ELECTED),)
    changed = advance(image, decided.step.records).topics.by_id(TOPIC)
    assert changed is not None
    after = changed.partitions[0]
    assert (after.replicas, after.isr, after.leader) == ((4, 2), (2, 4), 4)
    assert (after.leader_epoch, after.adding_replicas, after.removing_replicas) == (6, (), ())


def test_a_change_that_ends_a_reassignment_elsewhere_bumps_the_leader_s_epoch() -> None:
    staying = replace(MOVING, removing_replicas=(2,))
    [result] = ask(wanted((1, 2, 4)), partition=staying).reply
    assert result.partition is not None
    assert (result.error, result.partition.leader, result.partition.leader_epoch) == (
        Error.NONE,
        1,
        6,
    )
    assert result.partition.replicas == (4, 1)


def test_partitions_stand_or_fall_by_themselves() -> None:
    leaderless = replace(BEFORE, leader=NO_LEADER)
    image = image_of(BEFORE, leaderless, BEFORE)
    decided = ask(wanted(), wanted(partition_id=1), wanted((1,), partition_id=2), image=image)
    assert [each.error for each in decided.reply] == [
        Error.NONE,
        Error.INVALID_REQUEST,
        Error.NONE,
    ]
    assert [getattr(each, "partition_id", None) for each in decided.step.records] == [0, 2]
