"""Where a fetcher's log diverges is found in a few steps, and never reported for a prefix.

Method: hypothesis makes up a leader's history and a follower that left it somewhere; the follower
truncates as the leader says, over and over, as a real one does. What a
read found is sent or released.
"""

from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID
from ottla.broker.fetch.fetch_sessions import FetchPartition
from ottla.broker.fetch.reading import PartitionRead, divergence
from ottla.broker.replication.follower_rules import truncation_offset
from ottla.log.epoch_cache import EpochCache, EpochEnd
from ottla.wire.frames import decode_response, encode_response
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.unit.log.support import Environment, batch

EPOCHS = st.lists(st.integers(0, 9), max_size=8).map(sorted)
"""The epoch of each record of a log."""


@dataclass
class Log:
    """As much of a log as the question needs: `records` holds each record's epoch."""

    records: list[int]
    log_start_offset: int = 0
    high_watermark: int = 0
    led: int | None = None
    """The epoch that its leader has begun, without records yet."""

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.records[-1] if self.records else -1

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        cache = EpochCache()
        for offset, each in enumerate(self.records):
            if each > cache.latest_epoch:
                cache.assign(each, offset)
        if self.led is not None:
            cache.assign(self.led, len(self.records))
        return cache.end_offset(epoch, len(self.records))


def ask(leader: Log, follower: Log) -> tuple[int, int] | None:
    asked = FetchPartition(
        "t", NO_UUID, 0, follower.log_end_offset, 1, last_fetched_epoch=follower.latest_epoch
    )
    return divergence(asked, cast(Any, leader))


@given(records=EPOCHS, kept=st.integers(0, 8))
def test_a_prefix_never_diverges(records: list[int], kept: int) -> None:
    follower = Log(records[:kept])
    if follower.records:
        assert ask(Log(records, led=10), follower) is None


@given(records=EPOCHS, kept=st.integers(0, 8), extra=EPOCHS)
def test_exactly_what_differs_is_truncated(records: list[int], kept: int, extra: list[int]) -> None:
    common = records[:kept]
    # One epoch has one leader, so what is not common is of epochs that the other log lacks.
    latest = common[-1] if common else -1
    own = [each for each in extra if each > latest and each not in records]
    leader, follower = Log(records, led=10), Log([*common, *own])
    for _ in range(20):
        if not follower.records:
            break
        found = ask(leader, follower)
        if found is None:
            break
        end = truncation_offset(cast(Any, follower), *found)
        assert len(common) <= end < len(follower.records)
        del follower.records[end:]
    assert follower.records == common


def test_an_epoch_that_the_leader_does_not_know_has_no_end() -> None:
    with pytest.raises(ApiError) as refusal:
        ask(Log([0, 0]), Log([0, 3]))
    assert refusal.value.error is Error.OFFSET_OUT_OF_RANGE


def test_an_offset_below_the_leaders_log_start_is_out_of_range() -> None:
    with pytest.raises(ApiError) as refusal:
        ask(Log([0] * 5, log_start_offset=4), Log([0, 0]))
    assert refusal.value.error is Error.OFFSET_OUT_OF_RANGE


def test_a_read_that_is_not_sent_unpins_its_slices_and_drops_its_bytes() -> None:
    env = Environment()
    log = env.open()
    log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
    (piece,) = log.read(0, max_bytes=1_000, upper_bound=1, at_least_one=True).slices
    log.close()
    assert len(log.ports.files) == 1
    read = PartitionRead(Error.NONE, records=(piece, b"ready"), size=piece.length + 5)
    read.release()
    assert len(log.ports.files) == 0


@pytest.mark.parametrize("version", [4, 17])
def test_slices_and_ready_bytes_are_sent_in_order(version: int) -> None:
    env = Environment()
    log = env.open()
    log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
    (piece,) = log.read(0, max_bytes=1_000, upper_bound=1, at_least_one=True).slices
    read = PartitionRead(Error.NONE, 1, 1, 0, records=(b"before", piece, b"behind"))
    response = FetchResponse(
        responses=(
            FetchableTopicResponse(
                topic="t",
                partitions=(
                    PartitionData(
                        partition_index=0, error_code=0, high_watermark=1, records=read.records
                    ),
                ),
            ),
        )
    )
    sent = encode_response(response, version, 7)
    frame = b"".join(each if isinstance(each, bytes) else piece.read() for each in sent)
    _, received = decode_response(FetchResponse, frame[4:], version)
    records = received.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"before" + piece.read() + b"behind"
    read.release()
