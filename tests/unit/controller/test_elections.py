"""A partition's leader is an active broker of its ISR, and the last one in an ISR stays in it.

Method: one partition with its brokers in every state; the rules as properties by hypothesis.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from ottla.base.ids import NO_LEADER
from ottla.controller.elections import (
    come_back,
    leads_anything,
    leave,
    leave_directories,
)
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage, TopicsImage
from ottla.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_UNASSIGNED

from .world import advance, broker, cluster, uuid

TOPIC = uuid("topic")


def partition(replicas: Iterable[int], isr: Iterable[int], leader: int) -> PartitionImage:
    listed = tuple(replicas)
    return PartitionImage(
        replicas=listed,
        directories=tuple(uuid(f"dir-{each}") for each in listed),
        isr=tuple(isr),
        leader=leader,
    )


def image_of(*partitions: PartitionImage, fenced: Iterable[int] = ()) -> ClusterImage:
    brokers = cluster(*(broker(each, fenced=each in set(fenced)) for each in (1, 2, 3)))
    topic = TopicImage(name="t", id=TOPIC, partitions=Map(enumerate(partitions)))
    return ClusterImage(
        brokers=brokers.brokers,
        topics=TopicsImage().with_topic(topic),
        position=brokers.position,
    )


def state(image: ClusterImage, number: int = 0) -> tuple[tuple[int, ...], int]:
    topic = image.topics.by_id(TOPIC)
    assert topic is not None
    found = topic.partitions[number]
    return found.isr, found.leader


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "fenced", "expected"),
    [
        ((1,), (1,), 1, (), ((1,), NO_LEADER)),
        ((1, 2), (1, 2), 1, (), ((2,), 2)),
        ((2, 1), (1, 2), 2, (), ((2,), 2)),
        ((1, 2, 3), (1, 2, 3), 1, (2,), ((2, 3), 3)),
        ((1, 2), (1, 2), 1, (2,), ((2,), NO_LEADER)),
        ((1, 2), (2,), 2, (), ((2,), 2)),
        ((1, 2), (1,), 1, (), ((1,), NO_LEADER)),
        ((1,), (1,), NO_LEADER, (), ((1,), NO_LEADER)),
    ],
)
def test_broker_1_leaves(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int,
    fenced: tuple[int, ...],
    expected: tuple[tuple[int, ...], int],
) -> None:
    image = image_of(partition(replicas, isr, leader), fenced=fenced)
    assert state(advance(image, leave(image, 1))) == expected


def test_what_does_not_change_is_not_written() -> None:
    image = image_of(partition((2,), (2,), 2), partition((1,), (1,), NO_LEADER))
    assert list(leave(image, 1)) == []


def test_only_what_changes_is_written() -> None:
    image = image_of(partition((2, 1), (2, 1), 2))
    assert list(leave(image, 1)) == [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2,), leader=LEADER_UNCHANGED)
    ]


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "expected"),
    [
        ((1,), (1,), NO_LEADER, 1),
        ((2, 1), (1,), NO_LEADER, 1),
        ((2, 1), (2,), NO_LEADER, NO_LEADER),
        ((3, 1), (3, 1), 3, 3),
    ],
)
def test_broker_1_comes_back(
    replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, expected: int
) -> None:
    image = image_of(partition(replicas, isr, leader), fenced=(1, 2))
    assert state(advance(image, come_back(image, 1)))[1] == expected


def test_a_folder_that_is_gone_leads_nothing() -> None:
    here, there = partition((1,), (1,), 1), partition((1,), (1,), 1)
    image = image_of(
        here,
        PartitionImage(replicas=there.replicas, directories=(uuid("other"),), isr=(1,), leader=1),
    )
    changed = advance(image, leave_directories(image, 1, frozenset({uuid("other")})))
    assert [state(changed, number)[1] for number in (0, 1)] == [1, NO_LEADER]


def test_a_replica_without_a_known_folder_can_lead() -> None:
    unassigned = PartitionImage(
        replicas=(1,), directories=(DIRECTORY_UNASSIGNED,), isr=(1,), leader=NO_LEADER
    )
    image = image_of(unassigned, fenced=(1,))
    assert state(advance(image, come_back(image, 1)))[1] == 1


def test_a_replica_in_a_folder_that_the_broker_lacks_does_not_lead() -> None:
    lost = PartitionImage(replicas=(1,), directories=(uuid("gone"),), isr=(1,), leader=NO_LEADER)
    image = image_of(lost, fenced=(1,))
    assert list(come_back(image, 1)) == []


def test_who_leads() -> None:
    image = image_of(partition((1, 2), (1, 2), 2))
    assert [leads_anything(image, each) for each in (1, 2, 3)] == [False, True, False]


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    """Draw partitions whose leaders are active members of their ISRs, or none."""
    fenced = draw(st.sets(st.sampled_from([1, 2, 3]), max_size=2))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        replicas = draw(st.permutations([1, 2, 3]))[: draw(st.integers(1, 3))]
        isr = [each for each in replicas if draw(st.booleans())] or replicas[:1]
        fit = [each for each in isr if each not in fenced]
        found.append(partition(replicas, isr, fit[0] if fit else NO_LEADER))
    return image_of(*found, fenced=fenced)


@settings(max_examples=100)
@given(images(), st.sampled_from([1, 2, 3]))
def test_leaders_are_in_sync_and_no_isr_is_emptied(image: ClusterImage, gone: int) -> None:
    changed = advance(image, leave(image, gone))
    topic, before = changed.topics.by_id(TOPIC), image.topics.by_id(TOPIC)
    assert topic is not None
    assert before is not None
    assert not leads_anything(changed, gone)
    for number, after in topic.in_order():
        assert after.isr
        assert after.leader in (*after.isr, NO_LEADER)
        assert set(after.isr) <= set(before.partitions[number].isr)
        assert gone not in after.isr or after.isr == (gone,)
        active = [each for each in after.isr if each != gone and image.is_active(each)]
        assert (after.leader == NO_LEADER) == (not active)
