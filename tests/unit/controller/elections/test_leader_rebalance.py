"""Elections on request, and leaders that move back by themselves.

Method: a table of partitions with what is asked of them; the balance against its percentage.
"""

from dataclasses import replace

import pytest
from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.elections.leader_rebalance import Elected, balance, elect_leaders
from ottla.controller.step import Decision
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from tests.unit.controller.builders import after, broker, cluster, context, uuid

PREFERRED, UNCLEAN = 0, 1


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        directories=tuple(uuid(f"dir-{each}") for each in replicas),
        isr=isr,
        leader=leader,
    )


def image_of(*partitions: PartitionImage, fenced: tuple[int, ...] = ()) -> ClusterImage:
    base = cluster(*(broker(each, fenced=each in fenced) for each in (1, 2, 3)))
    topic = TopicImage(name="t", id=uuid("topic"), partitions=Map(enumerate(partitions)))
    return replace(base, topics=base.topics.with_topic(topic))


LED_BY_FIRST = partition((1, 2), (1, 2), 1)
LED_BY_SECOND = partition((1, 2), (1, 2), 2)
FIRST_NOT_IN_SYNC = partition((1, 2), (2,), 2)
OFFLINE = partition((2, 3), (3,), NO_LEADER)
DEAD = partition((3,), (3,), NO_LEADER)
IMAGE = image_of(LED_BY_FIRST, LED_BY_SECOND, FIRST_NOT_IN_SYNC, OFFLINE, DEAD, fenced=(3,))


def ask(
    wanted: list[tuple[str, int]] | None, election_type: int, image: ClusterImage = IMAGE
) -> Decision[tuple[Elected, ...]]:
    return elect_leaders(image, wanted, election_type=election_type, context=context())


def leaders(image: ClusterImage) -> list[int]:
    topic = image.topics.by_name("t")
    assert topic is not None
    return [each.leader for _, each in topic.in_order()]


@pytest.mark.parametrize(
    ("partition_id", "election_type", "error", "leader"),
    [
        (0, PREFERRED, Error.ELECTION_NOT_NEEDED, 1),
        (1, PREFERRED, Error.NONE, 1),
        (2, PREFERRED, Error.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (3, PREFERRED, Error.PREFERRED_LEADER_NOT_AVAILABLE, NO_LEADER),
        (4, PREFERRED, Error.PREFERRED_LEADER_NOT_AVAILABLE, NO_LEADER),
        (0, UNCLEAN, Error.ELECTION_NOT_NEEDED, 1),
        (1, UNCLEAN, Error.ELECTION_NOT_NEEDED, 2),
        (2, UNCLEAN, Error.ELECTION_NOT_NEEDED, 2),
        (3, UNCLEAN, Error.NONE, 2),
        (4, UNCLEAN, Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER),
    ],
)
def test_one_partition(partition_id: int, election_type: int, error: Error, leader: int) -> None:
    decided = ask([("t", partition_id)], election_type)
    [expected] = decided.reply
    assert (expected.topic, expected.partition_id, expected.error) == ("t", partition_id, error)
    assert bool(expected.message) == bool(error)
    assert leaders(after(IMAGE, decided))[partition_id] == leader
    assert len(decided.step.records) == (error is Error.NONE)


@pytest.mark.parametrize(
    ("wanted", "text"), [(("nobody", 0), "topic as nobody"), (("t", 9), "partition as t-9")]
)
def test_what_does_not_exist(wanted: tuple[str, int], text: str) -> None:
    [expected] = ask([wanted], PREFERRED).reply
    assert expected.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert text in (expected.message or "")


def test_kafka_1558_one_topic_that_is_gone_does_not_hold_up_the_others() -> None:
    decided = ask([("gone", 0), ("t", 1), ("gone", 1)], PREFERRED)
    assert [each.error for each in decided.reply] == [
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert leaders(after(IMAGE, decided))[1] == 1


@pytest.mark.parametrize(
    ("election_type", "expected"), [(PREFERRED, [1, 2, 3, 4]), (UNCLEAN, [3, 4])]
)
def test_all_partitions_without_those_that_need_none(
    election_type: int, expected: list[int]
) -> None:
    assert [each.partition_id for each in ask(None, election_type).reply] == expected


def test_a_partition_named_twice_is_elected_once() -> None:
    decided = ask([("t", 1), ("t", 0), ("t", 1)], PREFERRED)
    assert [each.partition_id for each in decided.reply] == [1, 0]
    assert len(decided.step.records) == 1


@pytest.mark.parametrize("election_type", [-1, 2])
def test_an_election_that_there_is_not(election_type: int) -> None:
    with pytest.raises(ApiError) as caught:
        ask(None, election_type)
    assert caught.value.error is Error.INVALID_REQUEST


# -- the automatic balance -----------------------------------------------------------------------


def balanced(image: ClusterImage, percentage: int, limit: int = 1_000) -> Decision[bool]:
    given = {"leader.imbalance.per.broker.percentage": str(percentage)}
    return balance(image, context(given).config, limit=limit)


@pytest.mark.parametrize(
    ("elsewhere", "percentage", "moved"),
    [(0, 0, 0), (1, 10, 0), (2, 10, 2), (1, 9, 1), (1, 0, 1), (10, 100, 0), (10, 99, 10)],
)
def test_leaders_move_back_where_too_many_are_elsewhere(
    elsewhere: int, percentage: int, moved: int
) -> None:
    image = image_of(*[LED_BY_SECOND] * elsewhere, *[LED_BY_FIRST] * (10 - elsewhere))
    decided = balanced(image, percentage)
    assert len(decided.step.records) == moved
    assert leaders(after(image, decided)).count(1) == 10 - elsewhere + moved
    assert not decided.reply


def test_each_broker_has_its_own_share() -> None:
    others = [partition((3, 2), (3, 2), 3)] * 9
    image = image_of(LED_BY_SECOND, *others)
    assert leaders(after(image, balanced(image, 50))) == [1, *[3] * 9]


def test_who_is_not_in_sync_or_not_active_gets_nothing_back() -> None:
    image = image_of(FIRST_NOT_IN_SYNC, partition((3, 2), (3, 2), 2), fenced=(3,))
    assert balanced(image, 0).step.records == ()


def test_one_pass_moves_up_to_the_limit_and_reports_more() -> None:
    image = image_of(*[LED_BY_SECOND] * 5)
    first = balanced(image, 0, limit=3)
    assert (len(first.step.records), first.reply) == (3, True)
    second = balanced(after(image, first), 0, limit=3)
    assert (len(second.step.records), second.reply) == (2, False)
