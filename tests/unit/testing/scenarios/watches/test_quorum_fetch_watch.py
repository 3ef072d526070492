"""Fetches of the metadata log are compared with the log of the leader that answers them.

Method: a cluster that elects a leader; requests and responses by hand.
"""

import pytest

from ottla.base.ids import METADATA_TOPIC_ID, Uuid
from ottla.testing.history.history import History
from ottla.testing.scenarios.watches.quorum_fetch_watch import REPEATS_MAX, QuorumFetchWatch
from ottla.testing.sim import Sim
from ottla.testing.sim.net import joined
from ottla.testing.sim.watch.observations import QuorumLed
from ottla.wire.frames import encode_request, encode_response
from ottla.wire.messages import fetch

VERSION = 17
REPLICA = 1
VALID = fetch.PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"")
REFUSED = fetch.PartitionData(partition_index=0, error_code=74, high_watermark=-1, records=b"")
SNAPSHOT = fetch.PartitionData(
    partition_index=0,
    error_code=0,
    high_watermark=0,
    snapshot_id=fetch.SnapshotId(end_offset=9, epoch=1),
    records=b"",
)
DIVERGING = fetch.PartitionData(
    partition_index=0,
    error_code=0,
    high_watermark=0,
    diverging_epoch=fetch.EpochEndOffset(epoch=0, end_offset=0),
    records=b"",
)


class Bench:
    """A watch of a cluster whose leader has records of its epoch alone."""

    def __init__(self) -> None:
        self.history = History()
        self.sim = Sim(1, brokers=1)
        QuorumFetchWatch(self.sim, self.history)
        self.leaders: list[QuorumLed] = []
        self.sim.observe(
            lambda seen: self.leaders.append(seen) if isinstance(seen, QuorumLed) else None
        )
        self.sim.run(ms=5_000)
        assert self.reasons == []
        self.number = 0

    @property
    def epoch(self) -> int:
        return self.leaders[-1].epoch

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.history.rules_broken]

    def fetch(
        self,
        answered: fetch.PartitionData,
        offset: int,
        last_epoch: int,
        *,
        epoch: int | None = None,
        topic_id: Uuid = METADATA_TOPIC_ID,
    ) -> None:
        self.number += 1
        leader = self.leaders[-1].node
        partition = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=self.epoch if epoch is None else epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1,
        )
        topic = fetch.FetchTopic(topic_id=topic_id, partitions=(partition,))
        request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=(topic,))
        responses = (fetch.FetchableTopicResponse(topic_id=topic_id, partitions=(answered,)),)
        response = fetch.FetchResponse(throttle_time_ms=0, responses=responses)
        arrived, number = self.sim.net.frame_arrived, self.number
        frame = encode_request(request, VERSION, number, "test")
        arrived("request", REPLICA, leader, frame, connection=99)
        frame = joined(encode_response(response, VERSION, number))
        arrived("response", leader, REPLICA, frame, connection=99)


@pytest.mark.parametrize("offset", [1, 2, 1_000], ids=["first", "second", "appended since"])
@pytest.mark.parametrize("epochs_older", [0, 1])
def test_a_leader_has_the_record_before_a_valid_fetch(offset: int, epochs_older: int) -> None:
    bench = Bench()
    bench.fetch(VALID, offset, bench.epoch - epochs_older)
    assert bool(bench.reasons) is bool(epochs_older)


@pytest.mark.parametrize("answered", [REFUSED, SNAPSHOT, DIVERGING])
def test_other_responses_say_nothing_of_the_log(answered: fetch.PartitionData) -> None:
    bench = Bench()
    bench.fetch(answered, 1, bench.epoch - 1)
    assert bench.reasons == []


def test_an_empty_log_a_former_epoch_and_another_topic_are_not_compared() -> None:
    bench = Bench()
    bench.fetch(VALID, 0, 0)
    bench.fetch(VALID, 1, bench.epoch - 1, epoch=bench.epoch - 1)
    bench.fetch(VALID, 1, bench.epoch - 1, topic_id=Uuid(bytes(15) + b"\x09"))
    assert bench.reasons == []


def test_a_log_that_diverges_is_truncated() -> None:
    bench = Bench()
    for offset in range(2 * REPEATS_MAX, 0, -1):
        bench.fetch(DIVERGING, offset, bench.epoch)
    assert bench.reasons == []
    for _ in range(REPEATS_MAX - 1):
        bench.fetch(DIVERGING, 1, bench.epoch)
    assert bench.reasons == []
    for _ in range(REPEATS_MAX):
        bench.fetch(DIVERGING, 1, bench.epoch)
    assert len(bench.reasons) == 1
