"""What the state of a partition says is believed only if it can be that partition's.

Method: states are put into a tree of znodes, and read by who knows the partition and who does not.
"""

from dataclasses import replace

import pytest

from ottla.metadata.znodes import paths
from ottla.metadata.znodes.partition_state import StateZnode, encode_state

from .clusters import with_topic
from .test_load import led, observe, reread
from .tree import Cluster


@pytest.mark.parametrize("isr", [(4,), (4, 5)])
def test_a_state_of_another_topics_replicas_is_invalid(isr: tuple[int, ...]) -> None:
    """It was left by a topic that bore the name before; nobody in it can be elected."""
    cluster = with_topic("t", 1)
    before = led(cluster)
    foreign = StateZnode(leader=4, leader_epoch=7, controller_epoch=1, isr=isr)
    cluster.tree.put(paths.state("t", 0), encode_state(foreign))
    found, _ = observe(cluster, reread(cluster))
    assert [each.path for each in found.problems] == [paths.state("t", 0)]
    assert led(cluster) == replace(before, partition_epoch=1)
    bad = led(Cluster(cluster.tree))
    assert (bad.leader, bad.isr, bad.leader_epoch, bad.partition_epoch) == (-1, (), 0, 1)


def test_a_state_with_some_replicas_of_the_partition_counts() -> None:
    """Whoever is in sync has every record, also where somebody took another replica away."""
    cluster = with_topic("t", 1)
    some = StateZnode(leader=2, leader_epoch=7, controller_epoch=1, isr=(2, 4))
    cluster.tree.put(paths.state("t", 0), encode_state(some))
    found, _ = observe(cluster, reread(cluster))
    assert found.problems == ()
    assert led(cluster).leader == 2
