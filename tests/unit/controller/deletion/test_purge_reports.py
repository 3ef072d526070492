"""A deletion of a tiered topic has its receipt once all partitions are reported as purged.

Method: as `test_deletion_manager`, in both policies where they agree; the purgers' reports come
from the test. `test_deletion_walk` has all orders of events.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.controller.deletion.purge_reports import (
    NOT_PENDING,
    PartitionPurge,
    PurgeProgress,
    PurgeReport,
    take_report,
)
from ottla.metadata.deletions import Policy, Remote
from tests.unit.controller.deletion_harness import DeletionHarness

POLICIES = pytest.mark.parametrize("policy", [Policy.CLASSIC, Policy.AT_ONCE])
TWO = {0: (1, 2), 1: (2, 1)}


def deleted(policy: Policy, assignment: dict[int, tuple[int, ...]] = TWO) -> tuple[
    DeletionHarness, Uuid
]:  # fmt: skip
    """Return a cluster that has just been asked to delete a tiered topic."""
    harness = DeletionHarness(policy, (1, 2, 3))
    topic_id = harness.create("t", assignment)
    harness.tier(topic_id)
    harness.settle()
    if policy is Policy.CLASSIC:
        harness.mark("t")
    else:
        harness.delete("t")
    return harness, topic_id


@POLICIES
def test_it_is_pending_from_the_first_record_on(policy: Policy) -> None:
    harness, topic_id = deleted(policy)
    assert harness.entry(topic_id).remote is Remote.PENDING


@POLICIES
def test_a_topic_that_was_never_tiered_has_nothing_to_purge(policy: Policy) -> None:
    harness = DeletionHarness(policy, (1, 2))
    topic_id = harness.create("t", TWO)
    if policy is Policy.CLASSIC:
        harness.mark("t")
    else:
        harness.delete("t")
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert harness.entry(topic_id).remote is Remote.NONE


@POLICIES
def test_the_name_is_free_before_the_purge_and_the_receipt_comes_after_it(policy: Policy) -> None:
    harness, topic_id = deleted(policy)
    harness.settle()
    assert "t" not in harness.image.topics
    assert harness.entry(topic_id).replicas_are_over
    assert not harness.entry(topic_id).is_finished
    new = harness.create("t", TWO)
    harness.settle()
    assert harness.report(topic_id, 0) is Error.NONE
    harness.settle()
    assert harness.entry(topic_id).remote is Remote.PENDING
    assert harness.report(topic_id, 1) is Error.NONE
    assert harness.entry(topic_id).remote is Remote.PURGED
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert harness.logs_of(new) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    assert not harness.wrongs


@POLICIES
def test_a_purge_that_ends_first_waits_for_the_replicas(policy: Policy) -> None:
    harness, topic_id = deleted(policy)
    harness.decide()
    harness.stop(2)
    harness.settle()
    harness.report(topic_id, 0, 1)
    harness.settle()
    assert harness.entry(topic_id).remote is Remote.PURGED
    assert not harness.entry(topic_id).is_finished
    harness.start(2)
    harness.settle()
    assert harness.entry(topic_id).is_finished


def test_an_abandoned_replica_does_not_hold_up_the_purge() -> None:
    harness, topic_id = deleted(Policy.AT_ONCE)
    harness.stop(2)
    harness.unregister(2)
    harness.settle()
    assert harness.entry(topic_id).replicas_are_over
    harness.report(topic_id, 0, 1)
    harness.settle()
    assert harness.entry(topic_id).is_finished


@POLICIES
def test_the_purge_survives_failovers_and_reports_are_repeated(policy: Policy) -> None:
    harness, topic_id = deleted(policy)
    harness.settle()
    for _ in range(3):
        harness.report(topic_id, 0)
        harness.elect()  # What was reported is forgotten.
        harness.report(topic_id, 1)
        harness.settle()
        assert harness.entry(topic_id).remote is Remote.PENDING
        harness.elect()
    harness.report(topic_id, 1)
    harness.report(topic_id, 0)
    harness.elect()
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert harness.entry(topic_id).remote is Remote.PURGED


@POLICIES
def test_a_report_twice_or_late_changes_nothing(policy: Policy) -> None:
    harness, topic_id = deleted(policy)
    harness.settle()
    assert harness.report(topic_id, 0, 0) is Error.NONE
    assert harness.report(topic_id, 0, broker_id=2) is Error.NONE
    # An older report of another broker, which takes over, does not take it back.
    harness.report(topic_id, PartitionPurge(partition=0, segments_left=9), broker_id=3)
    harness.written.clear()
    harness.report(topic_id, 1)
    assert len(harness.written) == 1
    assert harness.report(topic_id, 0, 1) is Error.UNKNOWN_TOPIC_ID
    assert len(harness.written) == 1
    harness.settle()
    before = harness.entry(topic_id)
    assert harness.report(topic_id, 0, 1) is Error.UNKNOWN_TOPIC_ID
    assert harness.entry(topic_id) == before


def test_other_topics_are_not_known() -> None:
    harness, topic_id = deleted(Policy.AT_ONCE)
    living = harness.create("u", TWO)
    harness.tier(living)
    assert harness.report(living, 0, 1) is Error.UNKNOWN_TOPIC_ID
    assert harness.report(Uuid(b"x" * 16), 0) is Error.UNKNOWN_TOPIC_ID
    # A partition that the topic never had, and a floor below the whole topic, prove nothing.
    harness.report(topic_id, 7, PartitionPurge(partition=0, floor=3, is_purged=True), 1)
    assert harness.entry(topic_id).remote is Remote.PENDING


def test_a_queued_deletion_may_still_be_cancelled_so_nothing_is_purged() -> None:
    harness = DeletionHarness(Policy.CLASSIC, (1, 2))
    topic_id = harness.create("t", TWO)
    harness.tier(topic_id)
    harness.run_elections("t")
    harness.mark("t")
    harness.settle()
    entry = harness.entry(topic_id)
    assert (entry.remote, entry.has_begun) == (Remote.PENDING, False)
    assert not harness.image.deletions.purges()
    assert harness.report(topic_id, 0, 1) is Error.UNKNOWN_TOPIC_ID
    harness.run_elections()
    harness.decide()
    assert harness.image.deletions.purges() == [harness.entry(topic_id)]


def test_partitions_that_a_tool_adds_meanwhile_are_purged_too() -> None:
    harness, topic_id = deleted(Policy.CLASSIC)
    harness.decide()
    harness.stop(2)
    harness.report(topic_id, 0, 1)
    assert harness.entry(topic_id).remote is Remote.PURGED
    harness.grow(topic_id, {2: (1,)})
    harness.elect()
    harness.decide()
    assert harness.entry(topic_id).remote is Remote.PENDING
    harness.start(2)
    harness.settle()
    assert not harness.entry(topic_id).is_finished
    assert harness.report(topic_id, 2) is Error.NONE
    assert harness.entry(topic_id).remote is Remote.PENDING  # The new controller's reports.
    harness.report(topic_id, 0, 1)
    harness.settle()
    assert harness.entry(topic_id).is_finished


def test_a_topic_that_became_tiered_while_it_was_queued_is_purged() -> None:
    """By a znode that was written by hand, or by a controller that did not know of purges."""
    harness = DeletionHarness(Policy.CLASSIC, (1, 2))
    topic_id = harness.create("t", TWO)
    harness.mark("t")
    harness.tier(topic_id)
    assert harness.entry(topic_id).remote is Remote.NONE
    harness.settle()
    assert harness.entry(topic_id).remote is Remote.PENDING
    assert not harness.entry(topic_id).is_finished


def test_a_topic_that_was_removed_by_hand_is_purged() -> None:
    harness, topic_id = deleted(Policy.CLASSIC)
    harness.remove_by_hand("t")
    harness.settle()
    assert harness.entry(topic_id).replicas_are_over
    harness.report(topic_id, 0, 1)
    harness.settle()
    assert harness.entry(topic_id).is_finished


def test_a_topic_put_back_under_its_old_id_is_purged_again() -> None:
    harness, topic_id = deleted(Policy.CLASSIC)
    harness.settle()
    harness.report(topic_id, 0, 1)
    harness.settle()
    harness.now_ms += 1
    assert harness.create_again(topic_id, "t", TWO) == topic_id
    harness.tier(topic_id)
    harness.mark("t")
    harness.settle()
    assert harness.entry(topic_id).remote is Remote.PENDING
    assert harness.report(topic_id, 0) is Error.NONE
    assert harness.entry(topic_id).remote is Remote.PENDING


def test_a_process_that_is_not_registered_is_refused() -> None:
    harness, topic_id = deleted(Policy.AT_ONCE)
    broker = harness.image.brokers[1]
    for broker_id, epoch in ((1, broker.epoch - 1), (9, 1)):
        report = PurgeReport(broker_id=broker_id, broker_epoch=epoch, topics={topic_id: ()})
        with pytest.raises(ApiError) as refusal:
            take_report(harness.image, harness.purges, report)
        assert refusal.value.error is Error.STALE_BROKER_EPOCH


def test_the_progress_of_a_purge() -> None:
    harness, topic_id = deleted(Policy.AT_ONCE, {0: (1,), 1: (1,), 2: (1,)})
    entry = harness.entry(topic_id)
    assert harness.purges.progress(entry) == PurgeProgress(partitions=3, partitions_left=3)
    left = PartitionPurge(partition=1, segments_left=4, bytes_left=40, error="unavailable: 503")
    harness.report(topic_id, 0, left, PartitionPurge(partition=2, segments_left=1, bytes_left=2))
    assert harness.purges.progress(entry) == PurgeProgress(
        partitions=3, partitions_left=2, segments_left=5, bytes_left=42, error="unavailable: 503"
    )
    harness.report(topic_id, replace(left, segments_left=0, bytes_left=0, error=None))
    assert harness.purges.progress(entry) == PurgeProgress(
        partitions=3, partitions_left=2, segments_left=1, bytes_left=2
    )
    assert NOT_PENDING.partitions == -1
