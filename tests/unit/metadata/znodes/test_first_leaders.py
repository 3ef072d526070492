"""A topic that a tool made gets its first leaders only while it is the one that was read.

Method: a tree of znodes takes the multis of a step, or refuses them.
"""

import pytest

from ottla.base.zookeeper import Check, SetData, ZkCode, ZkError
from ottla.metadata.records import PartitionChangeRecord, Record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.topic import Assignment, encode_topic

from ...controller.builders import uuid
from .clusters import three_brokers, topic_of
from .test_write import check_sizes
from .tree import Cluster


def without_states(*names: str) -> Cluster:
    """Return a cluster with topics that are assigned and not led yet, as tools make them."""
    cluster = three_brokers()
    for name in names:
        data = encode_topic([(each, Assignment((1,))) for each in range(3)], uuid(name))
        cluster.tree.put(paths.topic(name), data)
    return Cluster(cluster.tree)


def first_leaders(cluster: Cluster, name: str) -> list[Record]:
    key = topic_of(cluster, name).id
    return [
        PartitionChangeRecord(topic_id=key, partition_id=each, leader=1, isr=(1,))
        for each in range(3)
    ]


def test_the_first_leader_of_a_topic_is_none_of_the_next_one_of_its_name() -> None:
    """Its state would name replicas that the new topic does not have: nobody could lead it."""
    cluster = without_states("t")
    cluster.tree.put(paths.topic("t"), cluster.tree.nodes[paths.topic("t")].data)
    cluster = Cluster(cluster.tree)
    [write] = cluster.plan(first_leaders(cluster, "t"))
    cluster.tree.drop(paths.topic("t"))
    cluster.tree.put(paths.topic("t"), encode_topic([(0, Assignment((2, 3)))], None))
    before = dict(cluster.tree.nodes)
    with pytest.raises(ZkError) as caught:
        cluster.tree.multi(write.operations)
    assert (caught.value.code, caught.value.path) == (ZkCode.BAD_VERSION, paths.topic("t"))
    assert cluster.tree.nodes == before


def test_a_topic_is_checked_once_where_its_znode_is_not_written() -> None:
    cluster = without_states("t", "u")
    led = [*first_leaders(cluster, "t"), *first_leaders(cluster, "u")]
    moved = PartitionChangeRecord(
        topic_id=topic_of(cluster, "u").id, partition_id=1, replicas=(1, 2)
    )
    [write] = cluster.write([*led, moved])
    cluster.check()
    ours = [each for each in write.operations if each.path in (paths.topic("t"), paths.topic("u"))]
    assert [type(each) for each in ours] == [Check, SetData]
    assert ours[0].path == paths.topic("t")


def test_each_multi_of_first_leaders_is_checked() -> None:
    cluster = three_brokers()
    name = "n" * 249
    data = encode_topic([(each, Assignment((1,))) for each in range(3_000)], uuid("n"))
    cluster.tree.put(paths.topic(name), data)
    cluster = Cluster(cluster.tree)
    key = topic_of(cluster, name).id
    writes = cluster.plan(
        PartitionChangeRecord(topic_id=key, partition_id=each, leader=1, isr=(1,))
        for each in range(3_000)
    )
    check_sizes(writes)
    assert len(writes) > 2
    for write in writes:
        assert write.operations[-1] == Check(paths.topic(name), 0)
        cluster.done(write)
    cluster.check()
