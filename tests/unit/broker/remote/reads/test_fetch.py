"""Fetch and ListOffsets of a log whose older part is in the remote tier.

Method: requests and responses pass their codecs; the log's files are whole, and count as deleted
below the local log start; the test answers the store's calls, or they are answered at once.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.object_store import Failure
from ottla.base.pending import Pending
from ottla.broker.remote.reads.reads import RemoteReadLimits
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.messages.fetch import ReplicaState
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.unit.broker.harness import START_MS, TOPIC_ID
from tests.unit.broker.remote.harness import VERSION, TieredHarness, offsets_in
from tests.unit.broker.remote.support import tiered


@pytest.fixture
def harness() -> TieredHarness:
    """Two partitions; the first is tiered up to its active segment, the second wholly local."""
    harness = TieredHarness()
    harness.write(0)
    harness.write(1)
    harness.tier(0)
    return harness


def ask(harness: TieredHarness, *offsets: int, **how: Any) -> list[Any]:
    """Return the response's partitions; the fetch must not have to wait."""
    (topic,) = harness.ask(harness.request(offsets, **how), VERSION).responses
    return list(topic.partitions)


def begin(harness: TieredHarness, *offsets: int, **how: Any) -> Pending[Any]:
    """Return the promise of the response's partitions."""
    pending = harness.begin(harness.request(offsets, **how), VERSION)
    return pending.map(lambda response: list(response.responses[0].partitions))


def test_a_consumer_reads_through_both_tiers(harness: TieredHarness) -> None:
    offset, seen = 0, []
    while offset < 20:
        (part,) = ask(harness, offset, room=200)
        assert (part.error_code, part.high_watermark, part.log_start_offset) == (0, 20, 0)
        found = offsets_in(part)
        seen += found
        offset = found[-1] + 1
    assert seen == list(range(20))
    assert harness.reader.requests > 0


def test_remote_and_local_partitions_in_one_response(harness: TieredHarness) -> None:
    remote, local = ask(harness, 0, 7)
    assert offsets_in(remote)[0] == 0
    assert offsets_in(local)[0] == 7


def test_several_remote_partitions_are_read_at_once(harness: TieredHarness) -> None:
    harness.tier(1)
    harness.store.held = True
    waiting = begin(harness, 0, 3, min_bytes=10_000)
    assert len(harness.store.calls) == 2
    harness.store.answer("/0/")
    (first, second) = waiting.value
    assert (offsets_in(first)[0], offsets_in(second)) == (0, [])
    harness.store.answer()
    assert harness.reader.under_way == 0


def test_the_fetch_is_woken_when_the_read_has_ended(harness: TieredHarness) -> None:
    harness.store.held = True
    waiting = begin(harness, 0)
    harness.clock.advance(30)
    assert not waiting.done
    harness.store.answer()
    assert offsets_in(waiting.value[0])[0] == 0
    assert harness.broker.replicas.fetch_reader.count == 0


@pytest.mark.parametrize(("max_wait_ms", "waits_ms"), [(0, 500), (100, 500), (900, 900)])
def test_a_slow_read_ends_the_wait_with_no_records_and_no_error(
    harness: TieredHarness, max_wait_ms: int, waits_ms: int
) -> None:
    harness.store.held = True
    waiting = begin(harness, 0, max_wait_ms=max_wait_ms)
    harness.clock.advance(waits_ms - 1)
    assert not waiting.done
    harness.clock.advance(1)
    (part,) = waiting.value
    assert (part.error_code, offsets_in(part)) == (0, [])


def test_the_next_request_of_the_connection_gets_what_the_read_brought() -> None:
    harness = TieredHarness()
    harness.write(0)
    harness.tier(0)
    harness.store.held = True
    request = harness.request((0,))
    # One connection: `closed` is what a read belongs to.
    first = harness.begin(request, VERSION)
    connection = harness.connection
    harness.clock.advance(500)
    assert first.done
    harness.store.answer()
    count = harness.store.count
    reads = harness.broker.replicas.fetch_reader
    assert reads.remote is not None
    assert harness.reader.reserved_bytes > 0
    again = harness.begin_on(connection, request, VERSION)
    assert offsets_in(again.value.responses[0].partitions[0])[0] == 0
    assert (harness.store.count, harness.reader.reserved_bytes) == (count, 0)


def test_local_records_do_not_wait_for_remote_ones(harness: TieredHarness) -> None:
    harness.store.held = True
    remote, local = ask(harness, 0, 7)
    assert (remote.error_code, offsets_in(remote)) == (0, [])
    assert offsets_in(local)[0] == 7
    assert harness.reader.under_way == 1


def test_a_closed_connection_frees_its_reads(harness: TieredHarness) -> None:
    timers = len(harness.timers)
    harness.store.held = True
    waiting = begin(harness, 0)
    harness.connection.closed.complete(None)
    assert harness.store.calls == []
    assert (harness.reader.under_way, harness.reader.reserved_bytes) == (0, 0)
    assert len(harness.timers) == timers
    assert not waiting.done


def test_a_store_that_is_down_is_a_storage_error(harness: TieredHarness) -> None:
    harness.store.failure = Failure.UNAVAILABLE
    waiting = begin(harness, 0, max_wait_ms=5_000)
    harness.clock.advance(5_000)
    (part,) = waiting.value
    assert (part.error_code, offsets_in(part)) == (Error.KAFKA_STORAGE_ERROR, [])


def test_a_broker_without_a_remote_tier_refuses(harness: TieredHarness) -> None:
    harness.broker.replicas.fetch_reader.remote = None
    assert ask(harness, 0)[0].error_code == Error.REPLICA_NOT_AVAILABLE


def test_offsets_below_the_log_start_are_out_of_range(harness: TieredHarness) -> None:
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    log.delete_records(2)
    assert ask(harness, 1)[0].error_code == Error.OFFSET_OUT_OF_RANGE
    assert offsets_in(ask(harness, 2)[0])[0] == 2
    harness.store.held = True
    waiting = begin(harness, 7, max_wait_ms=5_000)
    log.delete_records(9)
    harness.broker.replicas.fetch_reader.wake_each([harness.broker.replicas.partition("t", 0)])
    assert waiting.value[0].error_code == Error.OFFSET_OUT_OF_RANGE


def test_a_fetch_fails_with_its_read(harness: TieredHarness) -> None:
    harness.store.held = True
    waiting = begin(harness, 0, max_wait_ms=5_000)
    harness.reader.fail(TOPIC_ID, 0, Error.NOT_LEADER_OR_FOLLOWER)
    assert waiting.value[0].error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_a_follower_serves_consumers_from_the_remote_tier(harness: TieredHarness) -> None:
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    assert not harness.broker.replicas.partition("t", 0).is_leader
    assert offsets_in(ask(harness, 0)[0])[0] == 0


def test_followers_are_told_that_the_offset_has_moved() -> None:
    harness = TieredHarness()
    other = type(TOPIC_ID)(b"f" * 16)
    harness.add_topic("f", other, replicas=(1, 2), isr=(1, 2))
    log = harness.broker.replicas.partition("f", 0).log
    assert log is not None
    harness.write(0)
    partition = harness.broker.replicas.partition("t", 0)
    partition.replicas = (1, 2)
    partition.followers = dict(harness.broker.replicas.partition("f", 0).followers)
    harness.tier(0)
    replica = ReplicaState(replica_id=2, replica_epoch=2)
    (part,) = ask(harness, 0, replica_state=replica)
    assert (part.error_code, offsets_in(part)) == (Error.OFFSET_MOVED_TO_TIERED_STORAGE, [])
    assert harness.reader.requests == 0


def test_a_response_holds_a_bounded_number_of_remote_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.broker.fetch.delayed_fetch.REMOTE_BYTES_PER_FETCH_MAX", 150)
    harness = TieredHarness(partitions=4)
    for index in range(4):
        harness.write(index)
        harness.tier(index)
    sizes = [len(part.records or b"") for part in ask(harness, 0, 0, 0, 0)]
    assert 0 < sum(sizes) <= 150
    assert sizes[2:] == [0, 0]


def test_reads_beyond_the_limit_return_nothing_and_no_error() -> None:
    harness = TieredHarness(limits=RemoteReadLimits(reads_max=1))
    for index in range(2):
        harness.write(index)
        harness.tier(index)
    harness.store.held = True
    waiting = begin(harness, 0, 0)
    harness.store.answer()
    first, second = waiting.value
    # The second was begun with the attempt that the first one's end has woken.
    assert (first.error_code, second.error_code) == (0, 0)
    assert harness.reader.refused == 1
    assert offsets_in(first)[0] == 0


def test_reads_beyond_the_quota_return_nothing_and_no_error() -> None:
    harness = TieredHarness(limits=RemoteReadLimits(bytes_per_second=1, window_seconds=100))
    for index in range(2):
        harness.write(index)
    harness.tier(0)
    assert offsets_in(ask(harness, 0)[0])[0] == 0
    assert harness.reader.quota.wait_ms() > 0
    waiting = begin(harness, 0)  # The consumer waits as for new records.
    harness.clock.advance(99)
    assert not waiting.done
    harness.clock.advance(1)
    (part,) = waiting.value
    assert (part.error_code, part.high_watermark, offsets_in(part)) == (0, 20, [])
    remote, local = ask(harness, 0, 7)
    assert (remote.error_code, offsets_in(remote)) == (0, [])
    assert offsets_in(local)[0] == 7


def test_fetches_that_wait_in_vain_for_remote_reads_are_counted(harness: TieredHarness) -> None:
    harness.store.held = True
    begin(harness, 0)
    harness.clock.advance(500)
    assert harness.broker.replicas.fetch_reader.remote_expires == 1
    begin(harness, 20)  # At the log's end.
    harness.clock.advance(500)
    assert harness.broker.replicas.fetch_reader.remote_expires == 1


# -- ListOffsets -----------------------------------------------------------------------------------

LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -4, -5, -6


def list_offsets(
    harness: TieredHarness, *timestamps: int, version: int = 11, timeout_ms: int = 0
) -> Pending[list[tuple[int, int]]]:
    """Return (error, offset) of partition 0 for one timestamp, of 0 and 1 for two."""
    partitions = tuple(
        ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index, timestamp in enumerate(timestamps)
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=(ListOffsetsTopic(name="t", partitions=partitions),),
        timeout_ms=timeout_ms,
    )
    return harness.begin(request, version).map(
        lambda response: [(p.error_code, p.offset) for p in response.topics[0].partitions]
    )


def test_the_ends_of_both_tiers(harness: TieredHarness) -> None:
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    local = log.local_log_start_offset
    assert 0 < local < 20
    found = [list_offsets(harness, each).value[0] for each in (LATEST, EARLIEST, EARLIEST_LOCAL)]
    assert found == [(0, 20), (0, 0), (0, local)]
    assert list_offsets(harness, LATEST_TIERED).value == [(0, local - 1)]


def test_the_first_offset_that_is_to_be_tiered(harness: TieredHarness) -> None:
    partition = harness.broker.replicas.partition("t", 0)
    log, other = partition.log, harness.broker.replicas.partition("t", 1).log
    assert log is not None
    assert other is not None
    assert list_offsets(harness, PENDING).value == [(0, -1)]  # Not a tiered topic.
    object.__setattr__(log.config, "remote_storage", True)
    assert other.config is not log.config or other.config.remote_storage
    assert list_offsets(harness, PENDING).value == [(0, log.local_log_start_offset)]
    object.__setattr__(other.config, "remote_storage", True)
    assert list_offsets(harness, PENDING, PENDING).value[1] == (0, 0)


@pytest.mark.parametrize("remote", [1, 2, None])
def test_a_time_is_looked_up_in_both_tiers(remote: int | None) -> None:
    harness = TieredHarness()
    harness.write(0)
    harness.tier(0, remote)
    for number in range(20):
        assert list_offsets(harness, START_MS + number).value == [(0, number)]
    assert list_offsets(harness, START_MS + 20).value == [(0, -1)]
    assert list_offsets(harness, 0, START_MS).value[0] == (0, 0)


@pytest.mark.parametrize(
    ("version", "timeout_ms", "waits_ms"), [(11, 800, 800), (11, 0, 30_000), (9, 0, 30_000)]
)
def test_a_slow_lookup_is_timed_out_and_the_others_are_answered(
    harness: TieredHarness, version: int, timeout_ms: int, waits_ms: int
) -> None:
    harness.store.held = True
    found = list_offsets(harness, START_MS, START_MS + 4, version=version, timeout_ms=timeout_ms)
    harness.clock.advance(waits_ms - 1)
    assert not found.done
    harness.clock.advance(1)
    assert found.value == [(Error.REQUEST_TIMED_OUT, -1), (0, 4)]
    assert harness.reader.lookups_expired == 1


def test_lookups_of_several_partitions_run_at_once(harness: TieredHarness) -> None:
    harness.tier(1)
    harness.store.held = True
    found = list_offsets(harness, START_MS, START_MS + 4)
    assert {name.split("/")[1] for name, _ in harness.store.calls} == {"0", "1"}
    harness.store.answer()
    assert found.value == [(0, 0), (0, 4)]
    assert not harness.store.calls


def test_what_leaves_the_local_log_during_a_lookup_is_found() -> None:
    """The remote part of a partition is over when the local one waits for another partition."""
    harness = TieredHarness()
    harness.write(0)
    harness.write(1)
    harness.tier(0)
    log = harness.tier(1, 1)
    harness.store.held = True
    found = list_offsets(harness, START_MS, START_MS + 7)
    assert {name.split("/")[1] for name, _ in harness.store.calls} == {"0"}
    tiered(log, 2)  # Local retention.
    harness.store.answer()
    assert found.value == [(0, 0), (0, 7)]


def test_what_leaves_the_local_log_for_the_first_time_during_a_lookup_is_found() -> None:
    harness = TieredHarness()
    harness.write(0)
    harness.write(1)
    harness.tier(0)
    log = harness.tier(1, 0)
    harness.store.held = True
    found = list_offsets(harness, START_MS, START_MS + 3)
    tiered(log, 1)
    harness.store.answer()
    assert found.value == [(0, 0), (0, 3)]
