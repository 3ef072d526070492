"""A topic whose metadata others removed ends its deletion, and no replica counts as deleted.

Method: a small cluster of ZooKeeper's kind; see `deletion_harness`.
"""

from ottla.base.ids import Uuid
from ottla.controller.manager_events import WorkRefused
from ottla.metadata.deletions import HaltReason, Policy
from tests.unit.controller.deletion_harness import DeletionHarness

ASSIGNMENT = {0: (1, 2), 1: (2, 1)}
VANISHED = "ABANDONED TOPIC_VANISHED"


def halted() -> tuple[DeletionHarness, Uuid]:
    """Return a deletion that waits for a reassignment."""
    harness = DeletionHarness(Policy.CLASSIC, (1, 2, 3))
    topic_id = harness.create("t", ASSIGNMENT)
    harness.settle()
    harness.reassign(topic_id, (2, 3))
    harness.mark("t")
    harness.settle()
    assert harness.entry(topic_id).halted is HaltReason.REASSIGNMENT
    return harness, topic_id


def test_the_receipt_of_a_deletion_that_had_not_begun_lists_what_there_was() -> None:
    harness, topic_id = halted()
    harness.remove_by_hand("t")
    harness.settle()
    entry = harness.entry(topic_id)
    assert entry.is_finished
    assert entry.halted is HaltReason.NONE
    assert harness.states(topic_id) == dict.fromkeys(
        [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)], VANISHED
    )


def test_partitions_that_were_added_after_the_beginning_are_listed_too() -> None:
    harness = DeletionHarness(Policy.CLASSIC, (1, 2, 3))
    topic_id = harness.create("t", {0: (1, 2)})
    harness.settle()
    harness.stop(2)
    harness.mark("t")
    harness.settle()
    harness.grow(topic_id, {7: (3, 1)})
    harness.remove_by_hand("t")
    harness.settle()
    assert harness.states(topic_id) == {
        (1, 0): "SUCCESSFUL", (1, 7): VANISHED, (2, 0): VANISHED, (3, 7): VANISHED,
    }  # fmt: skip


def test_what_nobody_saw_vanish_and_had_not_begun_is_no_receipt() -> None:
    harness, topic_id = halted()
    harness.is_active = False
    harness.remove_by_hand("t")
    harness.elect()
    harness.settle()
    assert harness.image.deletions.of(topic_id) is None


def test_a_decision_that_came_to_nothing_forgets_no_replica() -> None:
    harness, topic_id = halted()
    harness.remove_by_hand("t")
    assert harness.manager.take_work() is not None
    harness.step(WorkRefused())
    harness.settle()
    assert set(harness.states(topic_id).values()) == {VANISHED}
