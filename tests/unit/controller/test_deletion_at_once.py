"""Deletions that free the name at once: nothing halts them, and the ledger keeps count.

Method: as `test_deletion_manager`, on a cluster of KRaft's kind, whose orders name topic ids.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.retry_queue import RETRY_FIRST_MS
from ottla.metadata.deletions import Policy

from .deletion_harness import DeletionWorld

ONE = {0: (1, 2)}


def deleted(*, down: int | None = None) -> tuple[DeletionWorld, Uuid]:
    """Return a cluster that has just deleted a topic, perhaps while a broker was down."""
    world = DeletionWorld(Policy.AT_ONCE, (1, 2, 3))
    topic_id = world.create("t", ONE)
    if down is not None:
        world.stop(down)
    world.delete("t")
    return world, topic_id


def test_the_name_is_free_and_the_entry_is_there_with_the_first_record() -> None:
    world, topic_id = deleted()
    assert "t" not in world.image.topics
    assert not world.image.is_queued_for_deletion("t")
    assert world.states(topic_id) == {(1, 0): "STARTED", (2, 0): "STARTED"}
    assert [len(world.machines[each].queue) for each in (1, 2, 3)] == [1, 1, 0]


def test_it_ends_when_all_have_answered() -> None:
    world, topic_id = deleted()
    world.settle()
    assert world.entry(topic_id).is_finished
    assert not world.logs_of(topic_id)


def test_a_broker_that_was_down_shows_in_the_ledger_until_it_is_back() -> None:
    world, topic_id = deleted(down=2)
    world.settle()
    assert world.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "INELIGIBLE BROKER_DOWN"}
    world.start(2)
    world.settle()
    assert world.entry(topic_id).is_finished
    assert not world.logs_of(topic_id)


def test_a_new_topic_of_the_name_is_not_touched_while_the_old_one_goes() -> None:
    world, old = deleted(down=2)
    new = world.create("t", {0: (1, 2), 1: (1, 2)})
    world.start(2)
    world.settle()
    assert world.entry(old).is_finished
    assert not world.logs_of(old)
    assert world.logs_of(new) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    assert not world.wrongs


def test_a_broker_that_is_unregistered_closes_its_rows_as_abandoned() -> None:
    world, topic_id = deleted(down=2)
    world.settle()
    world.unregister(2)
    world.settle()
    assert world.entry(topic_id).is_finished
    assert world.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "ABANDONED UNREGISTERED"}


def test_a_broker_that_is_unregistered_while_it_is_ordered_is_abandoned_too() -> None:
    world, topic_id = deleted()
    world.unregister(2)
    world.settle()
    assert world.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "ABANDONED UNREGISTERED"}


def test_a_replica_on_a_broker_that_nobody_knows_is_abandoned_from_the_first() -> None:
    world = DeletionWorld(Policy.AT_ONCE, (1, 2))
    topic_id = world.create("t", ONE)
    world.stop(2)
    world.unregister(2)
    world.delete("t")
    assert world.states(topic_id)[2, 0] == "ABANDONED UNREGISTERED"


def test_a_broker_that_has_not_heard_of_it_is_asked_again_without_a_record() -> None:
    world, topic_id = deleted()
    world.machines[1].is_late = True
    assert set(world.carry_out(1).values()) == {Error.OPERATION_NOT_ATTEMPTED}
    world.carry_out(2)
    world.decide()
    assert world.states(topic_id) == {(1, 0): "STARTED", (2, 0): "SUCCESSFUL"}
    world.written.clear()
    world.pass_time()
    assert len(world.machines[1].queue) == 1
    assert not world.written
    world.machines[1].is_late = False
    world.settle()
    assert world.entry(topic_id).is_finished


def test_neither_a_reassignment_nor_an_election_halts_it() -> None:
    world = DeletionWorld(Policy.AT_ONCE, (1, 2, 3))
    topic_id = world.create("t", ONE)
    world.reassign(topic_id, (2, 3))
    world.run_elections("t")
    world.delete("t")
    assert set(world.states(topic_id)) == {(1, 0), (2, 0), (3, 0)}
    world.settle()
    assert world.entry(topic_id).is_finished


def test_switching_deletions_off_does_not_stop_what_was_acknowledged() -> None:
    world, topic_id = deleted()
    world.enabled = False
    world.elect()
    world.settle()
    assert world.entry(topic_id).is_finished


def test_one_request_a_broker_carries_a_thousand_replicas() -> None:
    """And no more: a broker is to answer within its time."""
    world = DeletionWorld(Policy.AT_ONCE, (1,))
    for number in range(750):
        world.create(f"t{number}", {0: (1,), 1: (1,)})
    world.stop(1)
    for number in range(750):
        world.delete(f"t{number}")
    world.start(1)
    world.decide()
    assert [len(order.topics) for order in world.machines[1].queue] == [500, 250]  # type: ignore[union-attr]
    world.settle()
    assert world.image.deletions.pending_count() == 0


def test_a_broker_that_is_late_is_asked_again_soon_whatever_failed_on_it() -> None:
    world = DeletionWorld(Policy.AT_ONCE, (1,))
    failing, late = world.create("failing", {0: (1,)}), world.create("late", {0: (1,)})
    world.delete("failing")
    world.machines[1].is_failed = True
    for _ in range(9):
        world.carry_out(1)
        world.decide()
        world.pass_time()
        world.decide()
    world.carry_out(1)
    world.decide()
    assert world.states(failing)[1, 0] == "INELIGIBLE FOLDER_FAILED"
    world.machines[1].is_failed, world.machines[1].is_late = False, True
    world.delete("late")
    world.carry_out(1)
    due_ms = world.manager.next_due_ms
    assert due_ms is not None
    assert due_ms - world.now_ms == RETRY_FIRST_MS
    world.machines[1].is_late = False
    world.pass_time()
    world.carry_out(1)
    world.decide()
    assert world.entry(late).is_finished
    assert not world.entry(failing).is_finished
    world.settle()
    assert world.image.deletions.pending_count() == 0
