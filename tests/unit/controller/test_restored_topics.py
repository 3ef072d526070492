"""A topic that was put back under its old id is deleted like any other, whatever its receipt says.

Method: a small cluster of ZooKeeper's kind; see `deletion_harness`.
"""

from ottla.base.ids import Uuid
from ottla.metadata.deletions import Policy
from ottla.metadata.records import TopicRecord

from .deletion_harness import DeletionWorld

ASSIGNMENT = {0: (1, 2), 1: (2, 1)}


def restored() -> tuple[DeletionWorld, Uuid]:
    """Return a topic that lives again beside the receipt of its deletion."""
    world = DeletionWorld(Policy.CLASSIC, (1, 2, 3))
    topic_id = world.create("t", ASSIGNMENT)
    world.settle()
    world.mark("t")
    world.settle()
    assert world.entry(topic_id).is_finished
    world.write([TopicRecord(name="t", topic_id=topic_id)])
    world.grow(topic_id, ASSIGNMENT)
    world.settle()
    assert world.logs_of(topic_id) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    return world, topic_id


def test_it_is_looked_at_and_its_replicas_are_ordered_to_go() -> None:
    world, topic_id = restored()
    world.mark("t")
    assert not world.entry(topic_id).has_begun
    world.decide()
    assert set(world.states(topic_id).values()) == {"STARTED"}
    world.settle()
    assert world.entry(topic_id).is_finished
    assert not world.logs_of(topic_id)
    assert "t" not in world.image.topics
    assert not world.wrongs


def test_it_waits_for_a_broker_that_had_confirmed_and_is_down_now() -> None:
    world, topic_id = restored()
    world.stop(2)
    world.mark("t")
    world.settle()
    assert world.states(topic_id) == {
        (1, 0): "SUCCESSFUL",
        (1, 1): "SUCCESSFUL",
        (2, 0): "INELIGIBLE BROKER_DOWN",
        (2, 1): "INELIGIBLE BROKER_DOWN",
    }
    assert "t" in world.image.topics
    world.start(2)
    world.settle()
    assert world.entry(topic_id).is_finished
    assert not world.logs_of(topic_id)
