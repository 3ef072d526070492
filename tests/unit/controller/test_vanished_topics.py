"""A topic whose metadata somebody else removed ends its deletion, and nothing is said to be gone.

Method: a small cluster of ZooKeeper's kind; see `deletion_harness`.
"""

from ottla.base.ids import Uuid
from ottla.metadata.deletions import HaltReason, Policy

from .deletion_harness import DeletionWorld

ASSIGNMENT = {0: (1, 2), 1: (2, 1)}
VANISHED = "ABANDONED TOPIC_VANISHED"


def halted() -> tuple[DeletionWorld, Uuid]:
    """Return a deletion that waits for a reassignment."""
    world = DeletionWorld(Policy.CLASSIC, (1, 2, 3))
    topic_id = world.create("t", ASSIGNMENT)
    world.settle()
    world.reassign(topic_id, (2, 3))
    world.mark("t")
    world.settle()
    assert world.entry(topic_id).halted is HaltReason.REASSIGNMENT
    return world, topic_id


def test_the_receipt_of_a_deletion_that_had_not_begun_lists_what_there_was() -> None:
    world, topic_id = halted()
    world.remove_by_hand("t")
    world.settle()
    entry = world.entry(topic_id)
    assert entry.is_finished
    assert entry.halted is HaltReason.NONE
    assert world.states(topic_id) == dict.fromkeys(
        [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)], VANISHED
    )


def test_partitions_that_were_added_after_the_beginning_are_listed_too() -> None:
    world = DeletionWorld(Policy.CLASSIC, (1, 2, 3))
    topic_id = world.create("t", {0: (1, 2)})
    world.settle()
    world.stop(2)
    world.mark("t")
    world.settle()
    world.grow(topic_id, {7: (3, 1)})
    world.remove_by_hand("t")
    world.settle()
    assert world.states(topic_id) == {
        (1, 0): "SUCCESSFUL", (1, 7): VANISHED, (2, 0): VANISHED, (3, 7): VANISHED,
    }  # fmt: skip


def test_what_nobody_saw_vanish_and_had_not_begun_is_no_receipt() -> None:
    world, topic_id = halted()
    world.manager.resigned()
    world.remove_by_hand("t")
    world.elect()
    world.settle()
    assert world.image.deletions.of(topic_id) is None


def test_a_decision_that_came_to_nothing_forgets_no_replica() -> None:
    world, topic_id = halted()
    world.remove_by_hand("t")
    assert world.manager.take_work() is not None
    world.manager.refused(now_ms=world.now_ms)
    world.settle()
    assert set(world.states(topic_id).values()) == {VANISHED}
