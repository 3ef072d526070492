"""A new topic of a deleted topic's name begins above the leader epochs in the ledger.

Method: a cluster of brokers that delete, over ZooKeeper, where a topic waits for all of them.
"""

from ottla.metadata.deletions import Policy
from ottla.metadata.records import PartitionChangeRecord
from tests.unit.controller.deletion_harness import DeletionHarness


def test_elections_while_a_topic_waits_to_go_count_for_the_next_topic_of_the_name() -> None:
    """Clients saw their epochs; the entry was written before them."""
    harness = DeletionHarness(Policy.CLASSIC, (1, 2))
    topic_id = harness.create("t", {0: (1, 2), 1: (2, 1)})
    harness.stop(2)
    harness.mark("t")
    harness.settle()
    elected = PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=1)
    harness.write([elected, elected])
    harness.start(2)
    harness.settle()
    assert "t" not in harness.image.topics
    assert harness.image.deletions.last_leader_epoch("t") == 2
