"""A metadata change that failed in part is applied again and ends where one try would have.

Method: the broker of the tests, one part of which fails once; then the same change as the
difference between two images, as the host hands it over again.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.broker.core import ApplyError
from ottla.metadata.delta import delta_between
from ottla.metadata.records import PartitionChangeRecord

from .harness import BrokerHarness

OFFSETS_ID = Uuid(b"o" * 16)
T = Uuid(b"t" * 16)


def failing(real: Callable[..., Any], times: int = 1) -> Callable[..., Any]:
    """Return `real`, which fails so many times."""
    left = [times]

    def call(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise ZeroDivisionError
        return real(*args, **options)

    return call


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic(
        OFFSETS_TOPIC, OFFSETS_ID, partitions=3, replicas=(1, 2), isr=(1, 2), leader=2
    )
    assert harness.groups.calls == [("resigned", each) for each in range(3)]
    harness.groups.calls.clear()
    return harness


def leads_all(harness: BrokerHarness) -> list[PartitionChangeRecord]:
    return [
        PartitionChangeRecord(partition_id=each, topic_id=OFFSETS_ID, leader=1) for each in range(3)
    ]


def test_a_partition_that_fails_does_not_hold_up_the_others_and_leads_with_the_next_try(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = harness.broker.image
    first = harness.broker.replicas.partition(OFFSETS_TOPIC, 0)
    cls = type(first)
    applied_state = cls.apply

    def broken(self: Any, state: Any) -> bool:
        if self is first:
            self.leader, self.leader_epoch = state.leader, state.leader_epoch
            raise ZeroDivisionError
        return applied_state(self, state)

    monkeypatch.setattr(cls, "apply", broken)
    with pytest.raises(ApplyError, match=rf"failed for 1 partitions, first {OFFSETS_TOPIC}-0:"):
        harness.commit(*leads_all(harness))
    assert harness.groups.calls == [("became_leader", 1), ("became_leader", 2)]
    with pytest.raises(ApiError) as refused:
        first.leader_log()
    assert refused.value.error is Error.NOT_LEADER_OR_FOLLOWER

    monkeypatch.setattr(cls, "apply", applied_state)
    harness.broker.apply(delta_between(before, harness.broker.image))
    assert harness.groups.calls[2:] == [("became_leader", 0)]
    assert first.leader_log() is first.log
    assert first.leader_epoch == 1


def test_a_new_leadership_is_returned_again_where_a_later_part_failed(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = harness.broker.image
    monkeypatch.setattr(harness.broker.fetchers, "update", failing(harness.broker.fetchers.update))
    with pytest.raises(ZeroDivisionError):
        harness.commit(*leads_all(harness))
    assert harness.groups.calls == []
    # Another change comes first, and its delta has only itself.
    harness.add_topic("t", T)
    assert harness.groups.calls == []
    harness.broker.apply(delta_between(before, harness.broker.image))
    assert harness.groups.calls == [("became_leader", each) for each in range(3)]
    harness.groups.calls.clear()
    harness.broker.apply(delta_between(before, harness.broker.image))
    assert harness.groups.calls == [], "what was said once is not said again"


def test_who_has_given_up_meanwhile_does_not_begin(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = harness.broker.image
    monkeypatch.setattr(harness.broker.fetchers, "update", failing(harness.broker.fetchers.update))
    with pytest.raises(ZeroDivisionError):
        harness.commit(*leads_all(harness))
    harness.commit(PartitionChangeRecord(partition_id=1, topic_id=OFFSETS_ID, leader=2))
    harness.broker.apply(delta_between(before, harness.broker.image))
    began = [each for each in harness.groups.calls if each[0] == "became_leader"]
    assert began == [("became_leader", 0), ("became_leader", 2)]
