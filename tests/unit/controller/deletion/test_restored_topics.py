"""A topic that was put back under its old id is deleted like any other, whatever its receipt says.

Method: a small cluster of ZooKeeper's kind; see `deletion_harness`.
"""

from ottla.base.ids import Uuid
from ottla.metadata.deletions import Policy
from ottla.metadata.records import TopicRecord
from tests.unit.controller.deletion_harness import DeletionHarness

ASSIGNMENT = {0: (1, 2), 1: (2, 1)}


def restored() -> tuple[DeletionHarness, Uuid]:
    """Return a topic that lives again beside the receipt of its deletion."""
    harness = DeletionHarness(Policy.CLASSIC, (1, 2, 3))
    topic_id = harness.create("t", ASSIGNMENT)
    harness.settle()
    harness.mark("t")
    harness.settle()
    assert harness.entry(topic_id).is_finished
    harness.write([TopicRecord(name="t", topic_id=topic_id)])
    harness.grow(topic_id, ASSIGNMENT)
    harness.settle()
    assert harness.logs_of(topic_id) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    return harness, topic_id


def test_it_is_checked_and_its_replicas_are_ordered() -> None:
    harness, topic_id = restored()
    harness.mark("t")
    assert not harness.entry(topic_id).has_begun
    harness.decide()
    assert set(harness.states(topic_id).values()) == {"STARTED"}
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert not harness.logs_of(topic_id)
    assert "t" not in harness.image.topics
    assert not harness.wrongs


def test_it_waits_for_a_broker_that_had_confirmed_and_is_down_now() -> None:
    harness, topic_id = restored()
    harness.stop(2)
    harness.mark("t")
    harness.settle()
    assert harness.states(topic_id) == {
        (1, 0): "SUCCESSFUL",
        (1, 1): "SUCCESSFUL",
        (2, 0): "INELIGIBLE BROKER_DOWN",
        (2, 1): "INELIGIBLE BROKER_DOWN",
    }
    assert "t" in harness.image.topics
    harness.start(2)
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert not harness.logs_of(topic_id)
