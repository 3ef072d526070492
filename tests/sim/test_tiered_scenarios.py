"""What Kafka's integration tests of tiered storage play, and bugs that show in a cluster only.

docs/tiered-scenarios.md lists all of them.

Method: a simulated cluster of three brokers without faults but those of the test, segments of one
record, and `local.retention.bytes=1`, as there. What was copied, deleted and read in the store is
counted by segments.
"""

import pytest

from ottla.metadata.tiering import TieringState
from ottla.wire.messages import fetch as fetch_wire

from .tiered_cluster import (
    EARLIEST,
    EARLIEST_LOCAL,
    PLAIN,
    TIERED,
    TWO_RECORDS,
    Cluster,
)

pytestmark = [pytest.mark.drawn(6), pytest.mark.forms(1)]

MODES = pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
DAY_MS = 86_400_000


def tiered(cluster: Cluster, topic: str, local: int, partition: int = 0) -> None:
    """Wait until the segments below `local` are in remote storage alone, durably."""
    cluster.until(lambda: cluster.log(topic, partition).segments.first.base_offset == local)
    assert cluster.offset(topic, EARLIEST_LOCAL, partition) == local
    assert cluster.offset(topic, EARLIEST, partition) == 0


@MODES
def test_segments_are_copied_and_read_after_a_bounce(zookeeper: bool) -> None:
    """OffloadAndConsumeFromLeaderTest."""
    cluster = Cluster(zookeeper=zookeeper)
    cluster.create("one", [(1,)], TIERED)
    cluster.create("two", [(1,)], TIERED | {"internal.segment.bytes": TWO_RECORDS})
    cluster.produce("one", 3)
    cluster.produce("two", 5)
    tiered(cluster, "one", 2)
    tiered(cluster, "two", 4)
    assert cluster.copied("one") == [0, 1]
    assert cluster.copied("two") == [0, 2]
    cluster.bounce(1)
    before = cluster.events
    assert cluster.read("one", 1) == [1, 2]
    assert cluster.fetched("one", before) == [1]
    assert cluster.read("two", 1) == [1, 2, 3, 4]
    assert cluster.fetched("two", before) == [0, 2]
    assert cluster.copied("one") == [0, 1]
    assert not cluster.sim.problems


def test_the_active_segment_is_rolled_and_copied() -> None:
    """RollAndOffloadActiveSegmentTest."""
    cluster = Cluster()
    cluster.create("t", [(1,)], TIERED | {"local.retention.ms": "1"})
    cluster.produce("t", 4)
    tiered(cluster, "t", 4)
    assert cluster.copied("t") == [0, 1, 2, 3]
    before = cluster.events
    assert cluster.read("t", 0) == [0, 1, 2, 3]
    assert cluster.fetched("t", before) == [0, 1, 2, 3]
    assert cluster.offset("t", EARLIEST_LOCAL) == 4


@MODES
def test_an_existing_topic_is_enabled(zookeeper: bool) -> None:
    """EnableRemoteLogOnTopicTest."""
    cluster = Cluster(zookeeper=zookeeper)
    cluster.create("t", [(1, 2), (2, 3)], PLAIN)
    for partition in range(2):
        cluster.produce("t", 3, partition)
    cluster.sim.run(5_000)
    assert [cluster.copied("t", partition) for partition in range(2)] == [[], []]
    cluster.configure("t", remote_storage_enable="true", local_retention_bytes="1")
    for partition in range(2):
        tiered(cluster, "t", 2, partition)
        assert cluster.copied("t", partition) == [0, 1]
        cluster.produce("t", 1, partition)
        tiered(cluster, "t", 3, partition)
        assert cluster.copied("t", partition) == [0, 1, 2]
        assert cluster.read("t", 0, partition) == [0, 1, 2, 3]


def switch(cluster: Cluster, topic: str, state: TieringState, **config: str) -> None:
    """Turn tiered storage of a topic on or off, and wait until that is done."""
    cluster.configure(topic, **config)
    cluster.until(lambda: cluster.tiering(topic) == {state})


@MODES
def test_copies_are_disabled_and_enabled_and_the_remote_tier_is_emptied(zookeeper: bool) -> None:
    """DisableRemoteLogOnTopicTest, with Kafka's names of the properties."""
    cluster = Cluster(zookeeper=zookeeper)
    config = TIERED | {"local.retention.bytes": "-2"}
    cluster.create("t", [(1, 2), (2, 3)], config)
    for partition in range(2):
        cluster.produce("t", 3, partition)
        cluster.until(lambda log=cluster.log("t", partition): log.highest_remote_offset == 1)  # type: ignore[misc]
    switch(cluster, "t", TieringState.DISABLED, remote_log_copy_disable="true")
    cluster.produce("t", 2)
    cluster.sim.run(10_000)
    assert cluster.copied("t") == [0, 1]
    assert cluster.read("t", 0) == list(range(5))
    switch(cluster, "t", TieringState.ENABLED, remote_log_copy_disable="false")
    # Not only its objects: a copy that the disablement interrupts does not count.
    cluster.until(lambda: cluster.log("t").highest_remote_offset == 3)
    assert cluster.copied("t") == [0, 1, 2, 3]
    switch(cluster, "t", TieringState.DISABLED, remote_log_copy_disable="true")
    cluster.delete_records("t", 1)
    cluster.until(lambda: cluster.copied("t") == [1, 2, 3], limit_ms=600_000)
    cluster.configure("t", remote_log_delete_on_disable="true", remote_storage_enable="false")
    cluster.until(lambda: not cluster.copied("t") + cluster.copied("t", 1), limit_ms=600_000)
    before = cluster.events
    for partition, (first, end) in enumerate(((1, 5), (0, 3))):
        assert cluster.offset("t", EARLIEST, partition) == first
        assert cluster.read("t", first, partition) == list(range(first, end))
    assert cluster.fetched("t", before) == []
    assert not cluster.sim.problems


@MODES
def test_tiered_storage_is_disabled_with_both_policies(zookeeper: bool) -> None:
    """DisableRemoteLogOnTopicTest as KIP-950 had it at first: retain, on again, retain, delete."""
    cluster = Cluster(zookeeper=zookeeper)
    cluster.create("t", [(1, 2)], TIERED)
    cluster.produce("t", 4)
    tiered(cluster, "t", 3)
    switch(cluster, "t", TieringState.DISABLED, remote_storage_enable="false")
    cluster.produce("t", 2)
    assert cluster.read("t", 0) == list(range(6))
    assert cluster.copied("t") == [0, 1, 2]
    switch(cluster, "t", TieringState.ENABLED, remote_storage_enable="true")
    tiered(cluster, "t", 5)
    assert cluster.copied("t") == list(range(5))
    switch(cluster, "t", TieringState.DISABLED, remote_storage_enable="false")
    sizes = sum(each.size_bytes for each in cluster.log("t").local_segments())
    cluster.configure("t", retention_bytes=str(5 * sizes), local_retention_bytes="-2")
    cluster.until(lambda: cluster.copied("t") == [1, 2, 3, 4], limit_ms=600_000)
    assert cluster.read("t", 1) == list(range(1, 6))
    switch(
        cluster,
        "t",
        TieringState.DISABLED,
        retention_bytes="-1",
        remote_log_disable_policy="delete",
    )
    cluster.until(lambda: cluster.copied("t") == [], limit_ms=600_000)
    assert cluster.offset("t", EARLIEST) == 5
    assert cluster.read("t", 5) == [5]


@pytest.mark.parametrize("limit", ["retention_bytes", "retention_ms"])
def test_segments_are_deleted_by_retention(limit: str) -> None:
    """DeleteSegmentsByRetentionSizeTest, DeleteSegmentsByRetentionTimeTest."""
    cluster = Cluster()
    cluster.create("t", [(1, 2)], TIERED | {"message.timestamp.after.max.ms": str(2**62)})
    cluster.produce("t", 3)
    cluster.produce("t", 1, timestamp=cluster.leader("t").clock.now_ms() + DAY_MS)
    tiered(cluster, "t", 3)
    assert cluster.copied("t") == [0, 1, 2]
    cluster.configure("t", **{limit: "1", f"local_{limit}": "1"})
    cluster.until(lambda: cluster.copied("t") == [], limit_ms=300_000)
    before = cluster.events
    assert cluster.offset("t", EARLIEST) == 3
    assert cluster.read("t", 3) == [3]
    assert cluster.fetched("t", before) == []
    for node in (1, 2):
        replica = cluster.replica("t", 0, node)
        assert replica is not None
        assert replica.log is not None
        assert replica.log.epochs.entries == ((0, 3),)
        assert replica.log.log_start_offset == 3


@MODES
def test_partitions_are_added(zookeeper: bool) -> None:
    """PartitionsExpandTest."""
    cluster = Cluster(zookeeper=zookeeper)
    cluster.create("t", [(1,)], TIERED)
    cluster.produce("t", 3)
    tiered(cluster, "t", 2)
    cluster.expand("t", 2, 3)
    for partition in range(3):
        cluster.produce("t", 3, partition)
        tiered(cluster, "t", 2 if partition else 5, partition)
    assert [cluster.copied("t", partition) for partition in range(3)] == [
        [0, 1, 2, 3, 4],
        [0, 1],
        [0, 1],
    ]
    for partition in range(3):
        cluster.bounce(partition + 1)
        before = cluster.events
        end = 3 if partition else 6
        assert cluster.read("t", 0, partition) == list(range(end))
        assert cluster.fetched("t", before) == list(range(end - 1))


@MODES
def test_a_partition_is_moved(zookeeper: bool) -> None:
    """ReassignReplicaExpandTest, ReassignReplicaMoveTest, ReassignReplicaShrinkTest.

    All partitions share one partition of the metadata topic.
    """
    cluster = Cluster(zookeeper=zookeeper)
    cluster.create("other", [(1,), (2,), (3,)], TIERED)
    cluster.create("t", [(1,)], TIERED)
    for partition in range(3):
        cluster.produce("other", 3, partition)
    end = 0
    for replicas in ((1, 2), (2,), (3,), (3, 1), (1,)):
        cluster.produce("t", 3)
        end += 3
        tiered(cluster, "t", end - 1)
        cluster.reassign("t", *replicas)
        if replicas == (1, 2):
            cluster.bounce(1)
        assert cluster.read("t", 0) == list(range(end))
        assert cluster.leader("t").id in replicas
        # The new leader copies what follows, and nothing again.
        assert cluster.copied("t") == list(range(end - 1))
    for partition in range(3):
        tiered(cluster, "other", 2, partition)
        assert cluster.read("other", 0, partition) == [0, 1, 2]
    assert not cluster.sim.problems


def test_another_segment_size() -> None:
    """DynamicSegmentSizeChangeTest: what was copied stays as it is, and is read as before."""
    cluster = Cluster()
    cluster.create("t", [(1,)], TIERED)
    cluster.produce("t", 3)
    tiered(cluster, "t", 2)
    cluster.configure("t", internal_segment_bytes=TWO_RECORDS)
    cluster.produce("t", 4)
    tiered(cluster, "t", 6)
    copied = cluster.copied("t")
    assert copied == [0, 1, 2, 4]
    for _ in range(2):
        cluster.bounce(1)
        before = cluster.events
        assert cluster.read("t", 0) == list(range(7))
        assert cluster.fetched("t", before) == copied


# -- known bugs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["is_down", "hanging"])
def test_after_an_outage_of_the_store_nothing_stays_local(fault: str) -> None:
    """All replicas delete what they have been keeping, without a restart."""
    cluster = Cluster()
    cluster.create("t", [(1, 2)], TIERED)
    cluster.produce("t", 3)
    tiered(cluster, "t", 2)
    faults = cluster.sim.object_store.faults
    setattr(faults, fault, True if fault == "is_down" else 1.0)
    cluster.produce("t", 3)
    cluster.sim.run(150_000)
    assert cluster.log("t").segments.first.base_offset == 2
    setattr(faults, fault, False if fault == "is_down" else 0.0)

    def is_local_only(node: int) -> bool:
        replica = cluster.replica("t", 0, node)
        assert replica is not None
        return replica.log is not None and replica.log.segments.first.base_offset == 5

    cluster.until(lambda: is_local_only(1) and is_local_only(2), limit_ms=600_000)
    cluster.until(lambda: cluster.copied("t") == list(range(5)), limit_ms=3_600_000)
    assert cluster.read("t", 0) == list(range(6))


@MODES
def test_a_consumer_of_old_records_survives_each_leader(zookeeper: bool) -> None:
    """A new leader that has not read the metadata of remote segments yet answers an error that
    clients retry. With OFFSET_OUT_OF_RANGE a consumer would skip to the end of the log.
    """
    cluster = Cluster(zookeeper=zookeeper)
    cluster.create("t", [(1, 2, 3)], TIERED)
    cluster.produce("t", 12)
    tiered(cluster, "t", 11)
    brokers = [each for each in cluster.sim.nodes.values() if each.is_broker]
    for start in range(0, 12, 4):
        first = brokers[start // 4]
        for node in brokers:
            node.crash(lose_unflushed=False)
        first.restart()
        cluster.sim.run(10_000)
        for node in brokers:
            if node is not first:
                node.restart()
        # As soon as one leads: most of its metadata partitions have no leader yet.
        assert cluster.offset("t", EARLIEST) == 0
        assert cluster.read("t", start) == list(range(start, 12))
        cluster.until(lambda: all(node.serves for node in brokers))
        cluster.sim.run(5_000)


def test_a_broker_stops_while_the_store_hangs() -> None:
    """Its copies, reads and deletions are under way, and none of them is waited for."""
    cluster = Cluster()
    cluster.create("t", [(1, 2)], TIERED)
    cluster.produce("t", 3)
    tiered(cluster, "t", 2)
    cluster.sim.object_store.faults.hanging = 1.0
    cluster.produce("t", 3)
    wanted = fetch_wire.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topic = fetch_wire.FetchTopic(topic_id=cluster.topic_id("t"), partitions=(wanted,))
    request = fetch_wire.FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=(topic,))
    cluster.port.send(1, request, 13, 60_000)
    cluster.sim.run(2_000)
    node = cluster.sim.nodes[1]
    assert node.broker is not None
    assert node.broker.remote is not None
    assert node.broker.remote.reads.under_way
    node.stop()
    cluster.until(lambda: node.core is None, limit_ms=15_000)
    cluster.until(lambda: cluster.leader("t").id == 2)
    cluster.sim.object_store.faults.hanging = 0.0
    assert cluster.read("t", 0) == list(range(6))
