"""What counts for the high watermark while a proposed in-sync set is not answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.replication.isr import NOT_APPLIED, OVERTAKEN, IsrChange, expansion, reduction

NODES = st.lists(st.integers(1, 6), min_size=1, max_size=6, unique=True)


def members(change: IsrChange) -> tuple[int, ...]:
    return tuple(node for node, _ in change.isr)


@given(isr=NODES, joining=NODES)
def test_an_expansion_counts_at_once(isr: list[int], joining: list[int]) -> None:
    new = tuple(node for node in joining if node not in isr)
    if new:
        change = expansion(tuple(isr), new, {}, at=(3, 7))
        assert change.maximal == members(change) == (*isr, *new)
        assert (change.grows, change.leader_epoch, change.partition_epoch) == (True, 3, 7)


@given(isr=NODES, leaving=NODES)
def test_a_reduction_counts_when_it_is_done(isr: list[int], leaving: list[int]) -> None:
    out = tuple(node for node in leaving if node in isr)
    if out and len(out) < len(isr):
        change = reduction(tuple(isr), out, {}, at=(3, 7))
        assert set(members(change)) == set(isr) - set(out)
        assert change.maximal == tuple(isr)
        assert not change.grows


def test_members_carry_the_epochs_that_are_known() -> None:
    change = expansion((1, 2), (3,), {1: 11, 3: 13}, at=(0, 0))
    assert change.isr == ((1, 11), (2, -1), (3, 13))


def test_kafka_708_last_isr_member_stays() -> None:
    """KAFKA-708: an ISR that shrank to nothing left no replica to lead."""
    with pytest.raises(AssertionError):
        reduction((1, 2), (1, 2), {}, at=(0, 0))


def test_no_error_is_answered_in_two_ways() -> None:
    assert not NOT_APPLIED & OVERTAKEN
