"""A consumer records every record once, in order, and the offsets out of range.

Method: a fake broker, in virtual time.
"""

from ottla.base.errors import Error
from ottla.testing.checkers.records import reads_lost, watermarks_that_fell
from ottla.testing.sim_clients.consumer import Consumer

from .fake import FETCH, LOST_BEFORE, NODE, TOPIC, FakeCluster


def consumer_of(cluster: FakeCluster) -> Consumer:
    consumer = Consumer(cluster.client("c"), TOPIC, interval_ms=50)
    consumer.begin()
    return consumer


def test_all_records_are_recorded_in_order() -> None:
    cluster = FakeCluster()
    cluster.log = [b"a", b"b", b"c"]
    consumer = consumer_of(cluster)
    cluster.steps.run(1_000)
    cluster.log.append(b"d")
    cluster.steps.run(1_000)
    assert [(read.offset, read.value) for read in cluster.history.reads] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
        (3, b"d"),
    ]
    (leader,) = consumer.client.leaders.values()
    assert {(read.node, read.epoch) for read in cluster.history.reads} == {leader}
    assert cluster.history.progress[-1].what == "reads of orders-0"
    assert reads_lost(cluster.history) == watermarks_that_fell(cluster.history) == []
    assert {each.api for each in cluster.history.watermarks} == {"fetch", "list_offsets"}


def test_failures_are_retried() -> None:
    cluster = FakeCluster()
    cluster.log = [b"a"]
    cluster.script[FETCH] = [LOST_BEFORE, Error.NOT_LEADER_OR_FOLLOWER]
    consumer_of(cluster)
    cluster.steps.run(2_000)
    assert [read.value for read in cluster.history.reads] == [b"a"]


def test_a_partition_without_a_leader_is_looked_for_again() -> None:
    cluster = FakeCluster()
    cluster.log = [b"a"]
    cluster.leader = -1
    consumer_of(cluster)
    cluster.steps.run(2_000)
    assert cluster.history.reads == []
    cluster.leader = NODE
    cluster.steps.run(2_000)
    assert [read.value for read in cluster.history.reads] == [b"a"]


def test_an_offset_out_of_range_is_recorded() -> None:
    cluster = FakeCluster()
    cluster.log = [b"a", b"b"]
    consumer_of(cluster)
    cluster.steps.run(1_000)
    cluster.log = []
    cluster.steps.run(1_000)
    assert cluster.history.skipped[0][2:4] == (2, 2)
    assert len(reads_lost(cluster.history)) > 0


def test_a_watermark_that_falls_is_recorded() -> None:
    cluster = FakeCluster()
    cluster.log = [b"a", b"b"]
    consumer_of(cluster)
    cluster.steps.run(1_000)
    cluster.high_watermark_lag = 1
    cluster.steps.run(1_000)
    assert len(watermarks_that_fell(cluster.history)) > 0


def test_a_stopped_consumer_sends_no_more() -> None:
    cluster = FakeCluster()
    consumer = consumer_of(cluster)
    cluster.steps.run(1_000)
    consumer.stop()
    cluster.steps.run(1_000)
    count = len(cluster.requests)
    cluster.steps.run(1_000)
    assert len(cluster.requests) == count


def test_a_reset_to_the_log_start_is_recorded_with_the_old_position() -> None:
    cluster = FakeCluster()
    cluster.log = [b"a", b"b"]
    consumer = Consumer(cluster.client("c"), TOPIC, interval_ms=50, resets=True)
    consumer.begin()
    cluster.steps.run(1_000)
    cluster.script[FETCH] = [Error.OFFSET_OUT_OF_RANGE]
    cluster.steps.run(1_000)
    (gap,) = cluster.history.skipped
    assert (gap.first, gap.next, gap.end, gap.was_reset) == (2, 0, 2, True)
    assert [read.offset for read in cluster.history.reads] == [0, 1, 0, 1]
