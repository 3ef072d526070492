"""Consumers are sent to an in-sync replica of their rack, and may read from any follower.

Method: a real broker that leads, then one that follows; requests pass the codec.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.broker.fetch.read_replica import RACK_AWARE, same_rack
from ottla.metadata.config_def import ConfigError
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness, batch, node_config, reach


def make(*, leader: int = 1, selector: str = RACK_AWARE) -> BrokerHarness:
    """Return broker 1 of three; broker n is in rack n."""
    harness = BrokerHarness({"replica.selector.class": selector})
    for node_id in (1, 2, 3):
        harness.add_broker(node_id)
    harness.add_topic(replicas=(1, 2, 3), isr=(1, 2, 3), leader=leader)
    if leader == 1:
        harness.broker.replicas.append("t", 0, batch("a"), acks=1)
        harness.broker.replicas.append("t", 0, batch("b"), acks=1)
        reach(harness.broker.replicas.partition("t", 0), {2: 1, 3: 2})
    return harness


def fetch(
    harness: BrokerHarness, offset: int = 0, *, rack: str = "", version: int = 17, **how: Any
) -> Any:
    """Return the promise of the one partition of the answer."""
    by_id = version >= 13
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000, **how)
    topic = FetchTopic(
        topic="" if by_id else "t",
        topic_id=TOPIC_ID if by_id else bytes(16),  # type: ignore[arg-type]
        partitions=(part,),
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=(topic,),
        session_epoch=-1,
        rack_id=rack if version >= 11 else "",
    )
    return harness.begin(request, version).map(lambda answer: answer.responses[0].partitions[0])


class TestSelecting:
    """Which replica it is."""

    def test_the_one_in_the_rack(self) -> None:
        part = fetch(make(), rack="rack2").value
        assert (part.error_code, part.preferred_read_replica) == (Error.NONE, 2)
        assert (len(part.records or b""), part.high_watermark) == (0, 1)

    @pytest.mark.parametrize("rack", ["", "rack1", "rack9"])
    def test_else_the_leader(self, rack: str) -> None:
        part = fetch(make(), rack=rack).value
        assert part.preferred_read_replica == -1
        assert len(part.records) > 0

    def test_not_one_that_lacks_the_offset(self) -> None:
        part = fetch(make(), 2, rack="rack2")
        assert not part.done

    def test_not_one_that_is_out_of_sync_or_fenced(self) -> None:
        harness = make()
        harness.add_broker(2, fenced=True)
        assert fetch(harness, rack="rack2").value.preferred_read_replica == -1
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        assert fetch(harness, rack="rack3").value.preferred_read_replica == -1

    def test_not_one_without_the_consumers_listener(self) -> None:
        harness = make()
        harness.add_broker(2, listener="OTHER")
        assert fetch(harness, rack="rack2").value.preferred_read_replica == -1

    def test_not_where_it_is_not_configured(self) -> None:
        assert fetch(make(selector=""), rack="rack2").value.preferred_read_replica == -1

    def test_consumers_of_versions_without_preferred_replica_read_here(self) -> None:
        assert len(fetch(make(), rack="rack2", version=10).value.records) > 0

    def test_of_several_the_one_that_is_furthest(self) -> None:
        harness = make()
        partition = harness.broker.replicas.partition("t", 0)
        brokers = partition.environment.brokers
        partition.environment.brokers = {
            node: broker if node == 1 else replace(broker, rack="r")
            for node, broker in brokers.items()
        }
        assert same_rack(partition, 0, "r", "PLAINTEXT") == 3
        partition.followers[2].log_end_offset = 2
        partition.followers[2].last_caught_up_ms = 10
        partition.followers[3].last_caught_up_ms = 5
        assert same_rack(partition, 0, "r", "PLAINTEXT") == 2

    def test_only_kafkas_own_selector_can_be_had(self) -> None:
        with pytest.raises(ConfigError, match=r"replica\.selector\.class"):
            node_config({"replica.selector.class": "com.example.Mine"})


class TestReadingFromAFollower:
    """Up to the follower's own high watermark."""

    @pytest.fixture
    def harness(self) -> BrokerHarness:
        harness = make(leader=2)
        partition = harness.broker.replicas.partition("t", 0)
        log = partition.log
        assert log is not None
        for offset, value in enumerate("abc"):
            data = bytearray(batch(value))
            data[:8] = offset.to_bytes(8, "big")
            log.append_as_follower(data, now_ms=harness.clock.now_ms())
        log.advance_high_watermark(2)
        return harness

    @pytest.mark.parametrize("version", [11, 12, 17])
    def test_what_it_knows_to_be_committed(self, harness: BrokerHarness, version: int) -> None:
        part = fetch(harness, version=version).value
        assert (part.error_code, part.high_watermark) == (Error.NONE, 2)
        assert len(part.records) == 2 * len(batch("a"))

    def test_older_consumers_must_go_to_the_leader(self, harness: BrokerHarness) -> None:
        assert fetch(harness, version=10).value.error_code == Error.NOT_LEADER_OR_FOLLOWER

    @pytest.mark.parametrize("offset", [2, 3])
    def test_what_is_not_committed_yet_is_waited_for(
        self, harness: BrokerHarness, offset: int
    ) -> None:
        """The leader's high watermark may be there already: the offset is not out of range."""
        waiting = fetch(harness, offset)
        assert not waiting.done
        harness.clock.advance(500)
        assert (waiting.value.error_code, waiting.value.records) == (Error.NONE, b"")

    def test_a_record_is_returned_once_the_follower_has_the_high_watermark(
        self, harness: BrokerHarness
    ) -> None:
        waiting = fetch(harness, 2)
        partition = harness.broker.replicas.partition("t", 0)
        assert partition.log is not None
        partition.log.advance_high_watermark(3)
        harness.broker.replicas.follower_advanced(partition)
        assert len(waiting.value.records) == len(batch("c"))

    @pytest.mark.parametrize("offset", [-1, 4])
    def test_other_offsets_are_out_of_range(self, harness: BrokerHarness, offset: int) -> None:
        assert fetch(harness, offset).value.error_code == Error.OFFSET_OUT_OF_RANGE

    @pytest.mark.parametrize(("epoch", "error"), [(1, Error.UNKNOWN_LEADER_EPOCH), (0, Error.NONE)])
    def test_the_epoch_is_checked(self, harness: BrokerHarness, epoch: int, error: Error) -> None:
        assert fetch(harness, current_leader_epoch=epoch).value.error_code == error

    def test_followers_return_no_preferred_replica(self, harness: BrokerHarness) -> None:
        assert fetch(harness, rack="rack3").value.preferred_read_replica == -1

    def test_becoming_leader_serves_on(self, harness: BrokerHarness) -> None:
        waiting = fetch(harness, 3, current_leader_epoch=0)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        assert waiting.value.error_code == Error.FENCED_LEADER_EPOCH
