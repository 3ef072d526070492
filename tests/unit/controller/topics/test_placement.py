"""Replicas are spread: over racks, over brokers, over leaders; fenced brokers come last.

Method: properties that must hold for any cluster, drawn by hypothesis; small cases by hand.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.controller.topics.placement import Candidate, alternate, candidates, place
from tests.drawn import examples

from ..builders import CountingDice, broker, cluster


@st.composite
def clusters(draw: st.DrawFn) -> list[Candidate]:
    """Draw brokers of which at least one is unfenced."""
    count = draw(st.integers(1, 9))
    racks = st.sampled_from(["a", "b", "c"])
    with_racks = draw(st.booleans())
    found = [
        Candidate(each, draw(racks) if with_racks else None, draw(st.integers(0, 4)) == 0)
        for each in range(count)
    ]
    first = found[0]
    return [Candidate(first.id, first.rack, False), *found[1:]]


@settings(max_examples=examples(200))
@given(clusters(), st.integers(1, 9), st.integers(0, 5), st.integers(0, 20), st.integers(0, 99))
def test_what_always_holds(
    brokers: list[Candidate], factor: int, first: int, count: int, number: int
) -> None:
    if factor > len(brokers):
        return
    placed = place(
        brokers, first=first, count=count, replication_factor=factor, dice=CountingDice(number)
    )
    unfenced = {each.id for each in brokers if not each.fenced}
    racks = {each.id: each.rack for each in brokers}
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in unfenced
        assert len(unfenced & set(replicas)) == min(factor, len(unfenced))
        if factor <= len(unfenced) and None not in racks.values():
            available = {racks[each] for each in unfenced}
            used = {racks[each] for each in replicas}
            assert len(used) == min(factor, len(available))
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[each] for each in unfenced]
    assert max(counts) - min(counts) <= 1


def test_leaders_go_round_from_a_random_start() -> None:
    brokers = [Candidate(each, None, False) for each in (1, 2, 3)]
    placed = place(brokers, first=0, count=4, replication_factor=1, dice=CountingDice(1))
    assert placed == ((2,), (3,), (1,), (2,))


def test_the_same_throws_give_the_same_places() -> None:
    brokers = [Candidate(each, "ab"[each % 2], False) for each in range(5)]
    runs = [
        place(list(order), first=0, count=9, replication_factor=3, dice=CountingDice(7))
        for order in (brokers, brokers[::-1])
    ]
    assert runs[0] == runs[1]


def test_followers_of_one_leader_differ_from_turn_to_turn() -> None:
    brokers = [Candidate(each, None, False) for each in range(4)]
    placed = place(brokers, first=0, count=12, replication_factor=2, dice=CountingDice())
    followers = {replicas[1] for replicas in placed if replicas[0] == 0}
    assert followers == {1, 2, 3}


@pytest.mark.parametrize("number", range(9))
def test_three_replicas_lie_in_three_racks(number: int) -> None:
    brokers = [Candidate(each, "abc"[each // 3], False) for each in range(9)]
    placed = place(brokers, first=0, count=27, replication_factor=3, dice=CountingDice(number))
    assert {tuple(sorted(each // 3 for each in replicas)) for replicas in placed} == {(0, 1, 2)}
    held = Counter(each for replicas in placed for each in replicas)
    assert set(held) == set(range(9))


def test_racks_alternate_in_the_ring() -> None:
    brokers = [
        Candidate(each, rack, False) for each, rack in enumerate(["a", "a", "a", "b", "b", "c"])
    ]
    assert [each.rack for each in alternate(brokers)] == ["a", "b", "c", "a", "b", "a"]


@pytest.mark.parametrize(
    ("brokers", "factor", "text"),
    [
        ([], 1, "only 0 broker"),
        ([Candidate(1, None, False)], 2, "only 1 broker"),
        ([Candidate(1, None, True)], 1, "fenced"),
    ],
)
def test_too_few_brokers(brokers: list[Candidate], factor: int, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        place(brokers, first=0, count=1, replication_factor=factor, dice=CountingDice())
    assert caught.value.error is Error.INVALID_REPLICATION_FACTOR
    assert text in caught.value.message


def test_brokers_that_are_leaving_take_nothing_new() -> None:
    image = cluster(
        broker(2, rack="r"), broker(1, fenced=True), broker(3, in_controlled_shutdown=True)
    )
    assert candidates(image) == (Candidate(1, None, True), Candidate(2, "r", False))


def test_a_broker_that_has_left_in_order_is_one_that_is_fenced() -> None:
    """Topics of three replicas could not be made while one of three brokers restarted."""
    image = cluster(broker(1), broker(2, fenced=True, in_controlled_shutdown=True))
    assert candidates(image) == (Candidate(1, None, False), Candidate(2, None, True))
