"""Classic deletions, as TopicDeletionManager does them, without its bugs.

Method: a small cluster in one value, `deletion_harness`; events by hand, then what the ledger, the
brokers' queues and their disks say. Tests that are named after a bug fail where it is put back.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion import deletion_policy
from ottla.controller.deletion.deletion_events import (
    DeletionsAnswered,
    IneligibleTopics,
    OrdersDropped,
)
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.manager_events import Elected, WorkRefused
from ottla.metadata.deletions import HaltReason, Policy
from ottla.metadata.records import ForgetDeletionRecord
from tests.unit.controller.deletion_harness import RETENTION_MS, DeletionHarness

ONE = {0: (1, 2)}
TWO = {0: (1, 2), 1: (2, 1)}


def classic(*broker_ids: int, enabled: bool = True) -> DeletionHarness:
    """Return a cluster of ZooKeeper's kind."""
    return DeletionHarness(Policy.CLASSIC, broker_ids or (1, 2, 3), enabled=enabled)


def begun(assignment: dict[int, tuple[int, ...]] | None = None) -> tuple[DeletionHarness, Uuid]:
    """Return a cluster with a topic whose deletion has begun."""
    harness = classic()
    topic_id = harness.create("t", assignment or ONE)
    harness.settle()
    harness.mark("t")
    harness.decide()
    return harness, topic_id


def is_gone(harness: DeletionHarness, topic_id: Uuid) -> bool:
    """Tell whether a topic is finished, everywhere."""
    entry = harness.image.deletions.of(topic_id)
    return (
        entry is not None
        and entry.is_finished
        and harness.image.topics.by_id(entry.topic_id) is None
        and not harness.logs_of(entry.topic_id)
    )


# -- TopicDeletionManagerTest ------------------------------------------------------------------


def test_basic_deletion() -> None:
    harness = classic()
    first, second = harness.create("bar", TWO), harness.create("foo", TWO)
    harness.settle()
    harness.mark("bar")
    harness.mark("foo")
    harness.decide()
    assert (
        set(harness.states(first).values()) == set(harness.states(second).values()) == {"STARTED"}
    )
    # One order a broker and decision, not one a replica.
    assert {each: len(machine.queue) for each, machine in harness.machines.items()} == {
        1: 1, 2: 1, 3: 0,
    }  # fmt: skip
    harness.settle()
    assert is_gone(harness, first)
    assert is_gone(harness, second)
    assert "t" not in harness.image.topics


def test_deletion_with_broker_offline() -> None:
    harness = classic()
    topic_id = harness.create("t", TWO)
    harness.stop(2)
    harness.mark("t")
    harness.settle()
    dead = "INELIGIBLE BROKER_DOWN"
    assert harness.states(topic_id) == {
        (1, 0): "SUCCESSFUL", (1, 1): "SUCCESSFUL", (2, 0): dead, (2, 1): dead,
    }  # fmt: skip
    assert "t" in harness.image.topics  # The name is not free.
    harness.start(2)
    harness.settle()
    assert is_gone(harness, topic_id)


def test_broker_failure_after_deletion_started_is_retried_without_waiting_for_others() -> None:
    harness, topic_id = begun()
    harness.stop(2)
    harness.decide()
    harness.start(2)
    harness.decide()
    assert harness.states(topic_id) == {(1, 0): "STARTED", (2, 0): "STARTED"}
    harness.settle()
    assert is_gone(harness, topic_id)


def test_topic_without_partitions_goes_at_once() -> None:
    harness = classic()
    topic_id = harness.create("t", {})
    harness.mark("t")
    harness.decide()
    assert is_gone(harness, topic_id)


# -- what halts and resumes --------------------------------------------------------------------


def test_latent_1_reassignment_that_runs_when_the_topic_is_marked_halts_its_deletion() -> None:
    harness = classic()
    topic_id = harness.create("t", ONE)
    harness.reassign(topic_id, (2, 3))
    harness.mark("t")
    harness.settle()
    assert harness.entry(topic_id).halted is HaltReason.REASSIGNMENT
    assert not harness.image.is_being_deleted("t")  # It is served, or the move would never end.
    assert harness.orders == 0
    harness.end_reassignment(topic_id)
    harness.settle()
    assert is_gone(harness, topic_id)
    assert set(harness.states(topic_id)) == {(2, 0), (3, 0)}  # The set that the move led to.


def test_a_requested_reassignment_makes_it_ineligible_too() -> None:
    harness = classic()
    topic_id = harness.create("t", ONE)
    harness.step(IneligibleTopics(reassignments=frozenset({"t"})))
    harness.mark("t")
    harness.decide()
    assert harness.entry(topic_id).halted is HaltReason.REASSIGNMENT
    harness.step(IneligibleTopics())
    harness.settle()
    assert is_gone(harness, topic_id)


def test_preferred_election_halts_a_deletion_and_its_end_resumes_it() -> None:
    harness = classic()
    topic_id = harness.create("t", ONE)
    harness.run_elections("t")
    harness.mark("t")
    harness.decide()
    assert harness.entry(topic_id).halted is HaltReason.PREFERRED_ELECTION
    harness.run_elections()
    harness.settle()
    assert is_gone(harness, topic_id)


def test_kafka_1558_one_deletion_that_waits_holds_up_no_other() -> None:
    harness = classic()
    waits, goes = harness.create("a", ONE), harness.create("b", ONE)
    harness.run_elections("a")
    harness.mark("a")
    harness.mark("b")
    harness.settle()
    assert harness.orders > 0
    assert is_gone(harness, goes)
    assert not harness.entry(waits).has_begun


def test_latent_2_a_broker_that_dies_after_it_confirmed_marks_nothing() -> None:
    harness, topic_id = begun()
    harness.carry_out(2)
    harness.decide()
    harness.stop(2)
    harness.settle()
    assert is_gone(harness, topic_id)
    again = harness.create("t", {0: (1,)})  # And the next one of the name is not held up by it.
    harness.mark("t")
    harness.settle()
    assert is_gone(harness, again)


def test_latent_3_a_failed_log_dir_is_retried_by_a_timer() -> None:
    harness, topic_id = begun()
    harness.machines[2].is_failed = True
    harness.carry_out(1)
    harness.carry_out(2)
    harness.decide()
    assert harness.states(topic_id)[2, 0] == "INELIGIBLE FOLDER_FAILED"
    due_ms = harness.manager.next_due_ms
    assert due_ms > harness.now_ms
    harness.machines[2].is_failed = False
    harness.settle()
    assert is_gone(harness, topic_id)


def test_backoffs_grow_to_a_bound_while_a_log_dir_stays_failed() -> None:
    harness, topic_id = begun({0: (1,)})
    harness.machines[1].is_failed = True
    pauses = []
    for _ in range(9):
        harness.carry_out(1)
        harness.decide()
        due_ms = harness.manager.next_due_ms
        pauses.append(due_ms - harness.now_ms)
        harness.pass_time()
        assert harness.states(topic_id) == {(1, 0): "INELIGIBLE FOLDER_FAILED"}
        assert len(harness.machines[1].queue) == 1
    assert pauses[:3] == [500, 1_000, 2_000]
    assert pauses[-1] == 60_000


def test_the_ledger_has_the_reason_why_a_replica_waits() -> None:
    harness, topic_id = begun()
    harness.stop(2)
    harness.decide()
    assert harness.states(topic_id) == {(1, 0): "STARTED", (2, 0): "INELIGIBLE BROKER_DOWN"}


def test_a_broker_that_comes_back_is_tried_at_once_whatever_it_failed_with() -> None:
    harness, topic_id = begun()
    harness.machines[2].is_failed = True
    harness.carry_out(2)
    harness.decide()
    harness.start(2)
    assert [each.broker_epoch for each in harness.machines[2].queue] == [harness.machines[2].epoch]
    harness.machines[2].is_failed = False
    harness.carry_out(2)
    harness.decide()
    assert harness.states(topic_id)[2, 0] == "SUCCESSFUL"


def test_a_replica_in_a_failed_log_dir_is_not_ordered_before_a_backoff() -> None:
    harness = classic()
    topic_id = harness.create("t", ONE)
    harness.fail_log_dir(topic_id, 2)
    harness.mark("t")
    harness.decide()
    assert harness.states(topic_id) == {(1, 0): "STARTED", (2, 0): "INELIGIBLE FOLDER_FAILED"}
    harness.settle()  # The log directory is back, or never was what failed.
    assert is_gone(harness, topic_id)


def test_a_log_dir_that_fails_during_a_deletion_makes_no_second_order() -> None:
    """The answer to the first one would be taken for the second's."""
    harness, topic_id = begun()
    harness.fail_log_dir(topic_id, 2)
    harness.decide()
    assert harness.states(topic_id)[2, 0] == "INELIGIBLE FOLDER_FAILED"
    harness.pass_time()
    assert len(harness.machines[2].queue) == 1
    harness.settle()
    assert is_gone(harness, topic_id)


def test_a_result_counts_though_the_log_dir_failed_meanwhile() -> None:
    """It says that nothing is left: the operator need not mend a disk for what is gone."""
    harness, topic_id = begun()
    harness.fail_log_dir(topic_id, 2)
    harness.decide()
    harness.carry_out(2)
    harness.decide()
    assert harness.states(topic_id)[2, 0] == "SUCCESSFUL"
    assert not harness.illegal
    harness.settle()
    assert is_gone(harness, topic_id)


def test_latent_5_a_decision_that_came_to_nothing_is_made_up_for() -> None:
    harness, topic_id = begun()
    harness.carry_out(1)
    harness.carry_out(2)
    assert harness.manager.take_work() is not None
    harness.step(WorkRefused())
    assert harness.decide() == 0  # It is given a pause.
    harness.pass_time()
    harness.settle()
    assert is_gone(harness, topic_id)


def test_latent_6_a_new_controller_repeats_orders_and_the_results_are_the_same() -> None:
    harness, topic_id = begun()
    harness.carry_out(1, answer=False)
    harness.elect()
    assert [len(harness.machines[each].queue) for each in (1, 2)] == [1, 1]
    harness.settle()
    assert is_gone(harness, topic_id)


def test_kafka_1681_a_new_controller_checks_pending_deletions() -> None:
    harness = classic()
    topic_id = harness.create("t", ONE)
    harness.mark("t")
    harness.elect()  # Before the first one decided anything.
    harness.settle()
    assert is_gone(harness, topic_id)


def test_a_new_controller_remembers_what_was_confirmed() -> None:
    harness, topic_id = begun()
    harness.carry_out(1)
    harness.decide()
    harness.elect()
    harness.decide()
    assert harness.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "STARTED"}
    assert not harness.machines[1].queue
    assert harness.machines[2].queue


# -- orders and answers ------------------------------------------------------------------------


def test_kafka_9946_an_answer_to_nothing_that_was_ordered_counts_for_nothing() -> None:
    harness, topic_id = begun()
    never = Replica(1, topic_id, 7)
    epoch = harness.image.brokers[1].epoch
    harness.step(DeletionsAnswered(1, epoch, {never: Error.NONE}))
    harness.step(DeletionsAnswered(3, epoch, {never: Error.NONE}))
    old = Replica(1, topic_id, 0)
    harness.step(DeletionsAnswered(1, epoch - 1, {old: Error.NONE}))
    assert harness.manager.take_work() is None


@pytest.mark.parametrize("when", ["cancelled", "queued again"])
def test_an_answer_for_a_cancelled_deletion_blocks_no_later_one(when: str) -> None:
    """The ledger's znode was removed by hand; then the topic is deleted again."""
    harness, topic_id = begun()
    harness.carry_out(1)
    harness.write([ForgetDeletionRecord(topic_id=topic_id)])
    if when == "queued again":
        harness.mark("t")
    harness.carry_out(2)
    if when == "cancelled":
        harness.mark("t")
    harness.decide()
    assert harness.states(topic_id) == {(1, 0): "STARTED", (2, 0): "STARTED"}
    assert harness.machines[2].queue, "it is ordered at once, not by the next full check"
    harness.settle()
    assert is_gone(harness, topic_id)


def test_an_answer_counts_once() -> None:
    harness, topic_id = begun()
    results = harness.carry_out(1)
    epoch = harness.image.brokers[1].epoch
    harness.decide()
    harness.step(DeletionsAnswered(1, epoch, results))
    assert harness.manager.take_work() is None
    assert harness.states(topic_id)[1, 0] == "SUCCESSFUL"


def test_kafka_7235_a_bounce_voids_the_orders_of_the_old_process() -> None:
    harness, topic_id = begun()
    before = harness.machines[2].queue[0]
    harness.start(2)
    harness.decide()
    assert harness.states(topic_id)[2, 0] == "STARTED"
    assert [each.broker_epoch for each in harness.machines[2].queue] == [harness.machines[2].epoch]
    late = dict.fromkeys(before.replicas(), Error.NONE)
    harness.step(DeletionsAnswered(2, before.broker_epoch, late))
    assert harness.manager.take_work() is None


def test_a_bounce_repeats_no_order_whose_answer_is_being_decided() -> None:
    """The second order would be out when the first one's answer ends the deletion."""
    harness, topic_id = begun()
    harness.carry_out(1)
    harness.carry_out(2)
    harness.stop(1)
    harness.start(1)
    assert not harness.machines[1].queue
    harness.decide()
    assert is_gone(harness, topic_id)
    again = harness.create("t", ONE)
    harness.settle()
    assert harness.logs_of(again) == {(1, 0), (2, 0)}


def test_an_order_that_was_dropped_goes_out_again_after_a_pause() -> None:
    harness, topic_id = begun()
    order = harness.machines[1].queue.pop()
    harness.step(OrdersDropped(1, order.broker_epoch, tuple(order.replicas())))
    assert harness.decide() == 0
    assert not harness.machines[1].queue
    harness.settle()
    assert is_gone(harness, topic_id)


def test_not_yet_is_retried_and_nothing_is_written() -> None:
    harness, topic_id = begun()
    order = harness.machines[1].queue.pop()
    not_yet = dict.fromkeys(order.replicas(), Error.OPERATION_NOT_ATTEMPTED)
    harness.written.clear()
    harness.step(DeletionsAnswered(1, order.broker_epoch, not_yet))
    assert harness.decide() == 0
    assert not harness.written
    harness.settle()
    assert is_gone(harness, topic_id)


def test_an_error_is_kept_beside_the_replica() -> None:
    harness, topic_id = begun()
    order = harness.machines[1].queue.pop()
    stale = dict.fromkeys(order.replicas(), Error.STALE_CONTROLLER_EPOCH)
    harness.step(DeletionsAnswered(1, order.broker_epoch, stale))
    harness.decide()
    [(_, standing, _)] = [row for row in harness.entry(topic_id).rows() if row[0] == 1]
    assert (standing.reason.name, standing.error) == ("REFUSED", Error.STALE_CONTROLLER_EPOCH)


# -- what happens meanwhile --------------------------------------------------------------------


def test_kafka_6612_partitions_that_a_tool_adds_go_with_their_topic() -> None:
    harness, topic_id = begun()
    harness.grow(topic_id, {1: (3, 1)})
    harness.settle()
    assert is_gone(harness, topic_id)
    assert harness.states(topic_id).keys() == {(1, 0), (1, 1), (2, 0), (3, 1)}


def test_kafka_13572_marking_twice_is_marking_once() -> None:
    harness, topic_id = begun()
    before = harness.image.deletions
    assert harness.mark("t") is Error.NONE
    assert harness.image.deletions == before
    harness.settle()
    assert is_gone(harness, topic_id)


def test_kafka_3175_and_5975_switched_off_deletions_are_called_off() -> None:
    harness = classic(enabled=False)
    topic_id = harness.create("t", ONE)
    assert harness.mark("t") is Error.TOPIC_DELETION_DISABLED
    harness.enabled = True
    harness.mark("t")  # By a controller that allowed it and died.
    harness.enabled = False
    harness.elect()
    harness.settle()
    assert harness.image.deletions.of(topic_id) is None
    assert harness.logs_of(topic_id) == {(1, 0), (2, 0)}


def test_what_is_half_gone_goes_on_though_deletions_are_switched_off() -> None:
    harness, topic_id = begun()
    harness.enabled = False
    harness.elect()
    harness.settle()
    assert is_gone(harness, topic_id)


def test_kafka_10548_a_dead_broker_holds_the_name_but_a_topic_removed_by_hand_ends_it() -> None:
    """What operators do about it: the topic's nodes removed with a ZooKeeper client."""
    harness, topic_id = begun()
    harness.stop(2)
    harness.settle()
    assert "t" in harness.image.topics
    harness.remove_by_hand("t")
    harness.settle()
    entry = harness.entry(topic_id)
    assert entry.is_finished
    assert harness.states(entry.topic_id) == {
        (1, 0): "SUCCESSFUL", (2, 0): "ABANDONED TOPIC_VANISHED",
    }  # fmt: skip
    again = harness.create("t", {0: (1,)})
    harness.settle()
    assert harness.logs_of(again) == {(1, 0)}
    assert not harness.wrongs


def test_receipts_are_kept_for_their_time() -> None:
    harness, topic_id = begun()
    harness.settle()
    assert is_gone(harness, topic_id)
    harness.now_ms += RETENTION_MS - 1_000
    harness.pass_time()
    harness.decide()
    assert len(harness.image.deletions) == 1
    harness.now_ms += 60_000
    harness.pass_time()
    harness.decide()
    assert len(harness.image.deletions) == 0


def test_many_receipts_are_purged_in_consecutive_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not at the next look: as many as come in five minutes would never be caught up with."""
    monkeypatch.setattr(deletion_policy, "RECEIPTS_PER_STEP_MAX", 2)
    harness = classic()
    for name in "abcde":
        harness.create(name, TWO)
        harness.mark(name)
    harness.settle()
    harness.now_ms += RETENTION_MS + 60_000
    harness.pass_time()
    assert [harness.decide() for _ in range(5)] == [2, 2, 1, 0, 0]
    assert len(harness.image.deletions) == 0


def test_a_manager_is_of_one_term() -> None:
    """Or events and orders of one term would count in another, for replicas of another image."""
    harness, _ = begun()
    with pytest.raises(AssertionError, match="one term"):
        harness.manager.step(Elected(harness.image), now_ms=harness.now_ms)


def test_no_step_was_illegal_and_no_order_wrong() -> None:
    harness = classic()
    topic_id = harness.create("t", TWO)
    harness.stop(1)
    harness.mark("t")
    harness.machines[2].is_failed = True
    harness.settle()
    harness.start(1)
    harness.stop(2)
    harness.start(2)
    harness.machines[2].is_failed = False
    harness.settle()
    assert is_gone(harness, topic_id)
    assert not harness.illegal
    assert not harness.wrongs
