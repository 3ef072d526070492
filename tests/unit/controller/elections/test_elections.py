"""Brokers come and go: which partitions that concerns, and that they are led as the rules say.

Method: one partition with its brokers in every state; the rules as properties by hypothesis.
What happens to a single partition is in test_partition_change.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from ottla.base.ids import NO_LEADER
from ottla.controller.elections.elections import (
    elect_after_failover,
    elect_after_unfencing,
    elect_uncleanly,
    leads_anything,
    remove_from_isrs,
    remove_offline_replicas,
)
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage, TopicsImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import (
    LEADER_UNCHANGED,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    Record,
    RemoveTopicRecord,
)
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, RECOVERING
from tests.drawn import examples
from tests.unit.controller.builders import advance, after, broker, cluster, context, uuid

TOPIC = uuid("topic")
CONFIG = context().config
UNCLEAN = context({"unclean.leader.election.enable": "true"}).config


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
    assert state(advance(image, remove_from_isrs(image, CONFIG, 1))) == expected


def test_what_does_not_change_is_not_written() -> None:
    image = image_of(partition((2,), (2,), 2), partition((1,), (1,), NO_LEADER))
    assert list(remove_from_isrs(image, CONFIG, 1)) == []


def test_only_what_changes_is_written() -> None:
    image = image_of(partition((2, 1), (2, 1), 2))
    assert list(remove_from_isrs(image, CONFIG, 1)) == [
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
    assert state(advance(image, elect_after_unfencing(image, CONFIG, 1)))[1] == expected


def test_a_replica_in_a_missing_log_dir_does_not_lead() -> None:
    here, there = partition((1,), (1,), 1), partition((1,), (1,), 1)
    image = image_of(
        here,
        PartitionImage(replicas=there.replicas, directories=(uuid("other"),), isr=(1,), leader=1),
    )
    changed = advance(image, remove_offline_replicas(image, CONFIG, 1, frozenset({uuid("other")})))
    assert [state(changed, number)[1] for number in (0, 1)] == [1, NO_LEADER]


def test_a_replica_without_a_known_log_dir_can_lead() -> None:
    unassigned = PartitionImage(
        replicas=(1,), directories=(DIRECTORY_UNASSIGNED,), isr=(1,), leader=NO_LEADER
    )
    image = image_of(unassigned, fenced=(1,))
    assert state(advance(image, elect_after_unfencing(image, CONFIG, 1)))[1] == 1


def test_a_replica_in_a_log_dir_that_the_broker_lacks_does_not_lead() -> None:
    lost = PartitionImage(replicas=(1,), directories=(uuid("gone"),), isr=(1,), leader=NO_LEADER)
    image = image_of(lost, fenced=(1,))
    assert list(elect_after_unfencing(image, CONFIG, 1)) == []


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


@settings(max_examples=examples(100))
@given(images(), st.sampled_from([1, 2, 3]))
def test_leaders_are_in_sync_and_no_isr_is_emptied(image: ClusterImage, gone: int) -> None:
    changed = advance(image, remove_from_isrs(image, CONFIG, gone))
    topic, before = changed.topics.by_id(TOPIC), image.topics.by_id(TOPIC)
    assert topic is not None
    assert before is not None
    assert not leads_anything(changed, gone)
    for number, here in topic.in_order():
        assert here.isr
        assert here.leader in (*here.isr, NO_LEADER)
        assert set(here.isr) <= set(before.partitions[number].isr)
        assert gone not in here.isr or here.isr == (gone,)
        active = [each for each in here.isr if each != gone and image.is_active(each)]
        assert (here.leader == NO_LEADER) == (not active)


# -- eligible leader replicas, unclean elections ----------------------------------------------


def eligible(image: ClusterImage) -> ClusterImage:
    """Return the image of a cluster that keeps eligible leader replicas."""
    return advance(image, [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])


def config_of(name: str, value: str, resource: tuple[int, str]) -> Record:
    return ConfigRecord(
        resource_type=resource[0], resource_name=resource[1], name=name, value=value
    )


def found(image: ClusterImage, number: int = 0) -> PartitionImage:
    topic = image.topics.by_id(TOPIC)
    assert topic is not None
    return topic.partitions[number]


def test_the_last_one_leaves_the_isr_and_leads_when_it_comes_back() -> None:
    image = eligible(image_of(partition((1, 2), (1,), 1), fenced=(2,)))
    gone = advance(image, remove_from_isrs(image, CONFIG, 1))
    gone = replace(gone, brokers=gone.brokers.set(1, broker(1, fenced=True)))
    assert (found(gone).isr, found(gone).elr, found(gone).leader) == ((), (1,), NO_LEADER)
    assert list(elect_after_unfencing(gone, CONFIG, 2)) == []
    back = found(advance(gone, elect_after_unfencing(gone, CONFIG, 1)))
    assert (back.isr, back.elr, back.leader, back.leader_recovery_state) == ((1,), (), 1, 0)


def test_a_broker_that_lost_unflushed_data_leaves_the_elr_of_all_partitions_too() -> None:
    in_elr = PartitionImage(
        replicas=(1, 2), directories=(uuid("dir-1"), uuid("dir-2")), isr=(2,), elr=(1,), leader=2
    )
    image = eligible(image_of(partition((1, 2), (1, 2), 1), in_elr, partition((2, 3), (2,), 2)))
    several = [config_of("min.insync.replicas", "2", (4, ""))]
    image = advance(image, several)
    changed = advance(image, remove_from_isrs(image, CONFIG, 1, unclean=True))
    assert [(found(changed, n).isr, found(changed, n).elr) for n in (0, 1)] == [
        ((2,), ()),
        ((2,), ()),
    ]
    assert found(changed, 2) == found(image, 2)
    clean = advance(image, remove_from_isrs(image, CONFIG, 1))
    assert [found(clean, n).elr for n in (0, 1)] == [(1,), (1,)]


@pytest.mark.parametrize(
    ("config", "records", "allowed"),
    [
        (CONFIG, [], False),
        (UNCLEAN, [], True),
        (CONFIG, [("true", (2, "t"))], True),
        (CONFIG, [("true", (4, ""))], True),
        (CONFIG, [("true", (4, "1"))], True),
        (CONFIG, [("true", (4, "2"))], False),
        (CONFIG, [("true", (4, "")), ("false", (2, "t"))], False),
        (UNCLEAN, [("false", (4, ""))], False),
    ],
)
def test_where_unclean_elections_are_allowed(
    config: NodeConfig, records: list[tuple[str, tuple[int, str]]], allowed: bool
) -> None:
    name = "unclean.leader.election.enable"
    image = image_of(partition((1, 2), (1,), 1))
    image = advance(image, [config_of(name, *each) for each in records])
    expected = (2, (2,), RECOVERING) if allowed else (NO_LEADER, (1,), 0)
    at_once = found(advance(image, remove_from_isrs(image, config, 1)))
    assert (at_once.leader, at_once.isr, at_once.leader_recovery_state) == expected

    leaderless = advance(image, [PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=-1)])
    fenced = replace(leaderless, brokers=leaderless.brokers.delete(1))
    later = elect_uncleanly(fenced, config)
    after_it = found(after(fenced, later))
    assert (after_it.leader, after_it.isr, after_it.leader_recovery_state) == expected
    assert not later.reply


def test_one_pass_elects_up_to_the_limit_and_reports_more() -> None:
    lost = partition((1, 2), (1,), NO_LEADER)
    image = image_of(*[lost] * 5, fenced=(1,))
    first = elect_uncleanly(image, UNCLEAN, limit=3)
    assert (len(first.step.records), first.reply) == (3, True)
    second = elect_uncleanly(after(image, first), UNCLEAN, limit=3)
    assert (len(second.step.records), second.reply) == (2, False)


def test_where_nobody_lives_nobody_is_elected() -> None:
    image = image_of(partition((1, 2), (1,), NO_LEADER), fenced=(1, 2))
    assert elect_uncleanly(image, UNCLEAN).step.records == ()


def test_what_a_dead_controller_left_half_done_is_settled() -> None:
    led_by_a_fenced_one = partition((1, 2), (1, 2), 1)
    electable = partition((1, 2), (2,), NO_LEADER)
    followed_by_a_fenced_one = partition((2, 1), (2, 1), 2)
    fine = partition((2, 3), (2, 3), 2)
    image = image_of(led_by_a_fenced_one, electable, followed_by_a_fenced_one, fine, fenced=(1,))
    settled = after(image, elect_after_failover(image, CONFIG))
    assert [state(settled, number) for number in (0, 1, 2, 3)] == [
        ((2,), 2),
        ((2,), 2),
        ((2,), 2),
        ((2, 3), 2),
    ]
    assert elect_after_failover(settled, CONFIG).records == ()


def test_kafka_14170_a_topic_that_is_gone_is_in_no_election() -> None:
    emptied = replace(partition((1, 2), (), NO_LEADER), elr=(1,), last_known_elr=(2,))
    image = eligible(image_of(partition((1, 2), (1, 2), 1), emptied, fenced=(2,)))
    gone = advance(image, [RemoveTopicRecord(topic_id=TOPIC)])
    directories = frozenset({uuid("dir-1")})
    assert list(remove_from_isrs(gone, CONFIG, 1, unclean=True)) == []
    assert list(remove_offline_replicas(gone, CONFIG, 1, directories)) == []
    assert list(elect_after_unfencing(gone, CONFIG, 2)) == []
    assert not leads_anything(gone, 1)
    assert elect_uncleanly(gone, UNCLEAN).step.records == ()
    assert elect_after_failover(gone, CONFIG).records == ()
