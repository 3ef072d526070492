"""Deletions that free the name at once: nothing halts them, and the ledger keeps count.

Method: as `test_deletion_manager`, on a cluster of KRaft's kind, whose orders name topic ids.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.retry_queue import RETRY_FIRST_MS
from ottla.metadata.deletions import Policy
from tests.unit.controller.deletion_harness import DeletionHarness

ONE = {0: (1, 2)}


def deleted(*, down: int | None = None) -> tuple[DeletionHarness, Uuid]:
    """Return a cluster that has just deleted a topic, perhaps while a broker was down."""
    harness = DeletionHarness(Policy.AT_ONCE, (1, 2, 3))
    topic_id = harness.create("t", ONE)
    if down is not None:
        harness.stop(down)
    harness.delete("t")
    return harness, topic_id


def test_the_name_is_free_and_the_entry_is_there_with_the_first_record() -> None:
    harness, topic_id = deleted()
    assert "t" not in harness.image.topics
    assert not harness.image.is_queued_for_deletion("t")
    assert harness.states(topic_id) == {(1, 0): "STARTED", (2, 0): "STARTED"}
    assert [len(harness.machines[each].queue) for each in (1, 2, 3)] == [1, 1, 0]


def test_it_ends_when_all_have_answered() -> None:
    harness, topic_id = deleted()
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert not harness.logs_of(topic_id)


def test_a_broker_that_was_down_shows_in_the_ledger_until_it_is_back() -> None:
    harness, topic_id = deleted(down=2)
    harness.settle()
    assert harness.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "INELIGIBLE BROKER_DOWN"}
    harness.start(2)
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert not harness.logs_of(topic_id)


def test_a_new_topic_of_the_name_is_not_touched_while_the_old_one_goes() -> None:
    harness, old = deleted(down=2)
    new = harness.create("t", {0: (1, 2), 1: (1, 2)})
    harness.start(2)
    harness.settle()
    assert harness.entry(old).is_finished
    assert not harness.logs_of(old)
    assert harness.logs_of(new) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    assert not harness.wrongs


def test_a_broker_that_is_unregistered_closes_its_rows_as_abandoned() -> None:
    harness, topic_id = deleted(down=2)
    harness.settle()
    harness.unregister(2)
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert harness.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "ABANDONED UNREGISTERED"}


def test_a_broker_that_is_unregistered_while_it_is_ordered_is_abandoned_too() -> None:
    harness, topic_id = deleted()
    harness.unregister(2)
    harness.settle()
    assert harness.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "ABANDONED UNREGISTERED"}


def test_a_replica_on_a_broker_that_nobody_knows_is_abandoned_from_the_first() -> None:
    harness = DeletionHarness(Policy.AT_ONCE, (1, 2))
    topic_id = harness.create("t", ONE)
    harness.stop(2)
    harness.unregister(2)
    harness.delete("t")
    assert harness.states(topic_id)[2, 0] == "ABANDONED UNREGISTERED"


def test_a_broker_that_has_not_replayed_the_removal_is_retried_without_a_record() -> None:
    harness, topic_id = deleted()
    harness.machines[1].is_late = True
    assert set(harness.carry_out(1).values()) == {Error.OPERATION_NOT_ATTEMPTED}
    harness.carry_out(2)
    harness.decide()
    assert harness.states(topic_id) == {(1, 0): "STARTED", (2, 0): "SUCCESSFUL"}
    harness.written.clear()
    harness.pass_time()
    assert len(harness.machines[1].queue) == 1
    assert not harness.written
    harness.machines[1].is_late = False
    harness.settle()
    assert harness.entry(topic_id).is_finished


def test_neither_a_reassignment_nor_an_election_halts_it() -> None:
    harness = DeletionHarness(Policy.AT_ONCE, (1, 2, 3))
    topic_id = harness.create("t", ONE)
    harness.reassign(topic_id, (2, 3))
    harness.run_elections("t")
    harness.delete("t")
    assert set(harness.states(topic_id)) == {(1, 0), (2, 0), (3, 0)}
    harness.settle()
    assert harness.entry(topic_id).is_finished


def test_switching_deletions_off_does_not_stop_what_was_acknowledged() -> None:
    harness, topic_id = deleted()
    harness.enabled = False
    harness.elect()
    harness.settle()
    assert harness.entry(topic_id).is_finished


def test_one_request_a_broker_carries_a_thousand_replicas() -> None:
    """And no more: a broker is to answer within its time."""
    harness = DeletionHarness(Policy.AT_ONCE, (1,))
    for number in range(750):
        harness.create(f"t{number}", {0: (1,), 1: (1,)})
    harness.stop(1)
    for number in range(750):
        harness.delete(f"t{number}")
    harness.start(1)
    harness.decide()
    assert [len(order.topics) for order in harness.machines[1].queue] == [500, 250]  # type: ignore[union-attr]
    harness.settle()
    assert harness.image.deletions.pending_count() == 0


def test_a_delayed_order_is_retried_soon_despite_the_backoff_of_failures() -> None:
    harness = DeletionHarness(Policy.AT_ONCE, (1,))
    failing, late = harness.create("failing", {0: (1,)}), harness.create("late", {0: (1,)})
    harness.delete("failing")
    harness.machines[1].is_failed = True
    for _ in range(9):
        harness.carry_out(1)
        harness.decide()
        harness.pass_time()
        harness.decide()
    harness.carry_out(1)
    harness.decide()
    assert harness.states(failing)[1, 0] == "INELIGIBLE FOLDER_FAILED"
    harness.machines[1].is_failed, harness.machines[1].is_late = False, True
    harness.delete("late")
    harness.carry_out(1)
    due_ms = harness.manager.next_due_ms
    assert due_ms - harness.now_ms == RETRY_FIRST_MS
    harness.machines[1].is_late = False
    harness.pass_time()
    harness.carry_out(1)
    harness.decide()
    assert harness.entry(late).is_finished
    assert not harness.entry(failing).is_finished
    harness.settle()
    assert harness.image.deletions.pending_count() == 0
