"""What a topic's entry in the ledger tells the next topic of the name: which epochs clients saw.

Method: a world of brokers that delete, over ZooKeeper, where a topic waits for all of them.
"""

from ottla.metadata.deletions import Policy
from ottla.metadata.records import PartitionChangeRecord

from .deletion_harness import DeletionWorld


def test_elections_while_a_topic_waits_to_go_count_for_the_next_topic_of_the_name() -> None:
    """Clients saw their epochs; the entry was written before them."""
    world = DeletionWorld(Policy.CLASSIC, (1, 2))
    topic_id = world.create("t", {0: (1, 2), 1: (2, 1)})
    world.stop(2)
    world.mark("t")
    world.settle()
    elected = PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=1)
    world.write([elected, elected])
    world.start(2)
    world.settle()
    assert "t" not in world.image.topics
    assert world.image.deletions.last_leader_epoch("t") == 2
