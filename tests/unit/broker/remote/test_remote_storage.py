"""Remote reads end with what they depend on: the topic, its leadership, its tiering, the broker.

Method: a broker with all of tiered storage; the store answers no read. Metadata changes are applied
as committed records, and what waits is answered, with an error that clients retry.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.broker.remote.remote_storage import RemoteStorage
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord
from ottla.metadata.records.tiering import TopicTieringRecord
from ottla.metadata.tiering import DisablePolicy, TieringState
from tests.unit.broker.harness import START_MS, TOPIC_ID
from tests.unit.broker.remote.harness import TieredHarness, offsets_in
from tests.unit.broker.remote.reads.test_fetch import begin, list_offsets

PROPERTIES = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "memory://store",
}
ENABLED = TopicTieringRecord(topic_id=TOPIC_ID, state=TieringState.ENABLED, tiered_epoch=1)
DISABLING = TopicTieringRecord(
    topic_id=TOPIC_ID, state=TieringState.DISABLING, tiered_epoch=2, policy=DisablePolicy.DELETE
)


@pytest.fixture
def harness() -> TieredHarness:
    """Two partitions, both tiered up to their active segments."""
    harness = TieredHarness(properties=PROPERTIES)
    harness.commit(ENABLED)
    for index in range(2):
        harness.write(index)
        harness.tier(index)
    harness.store.held = True
    return harness


def waiting(harness: TieredHarness) -> tuple[Pending[Any], Pending[Any]]:
    """Return the promises of a fetch's partitions and of a lookup, which wait for the store."""
    fetch = begin(harness, 0, 0, max_wait_ms=5_000)
    lookup = list_offsets(harness, START_MS)
    assert harness.store.calls
    assert not fetch.done
    assert not lookup.done
    return fetch, lookup


def assert_nothing_is_left(harness: TieredHarness) -> None:
    reader = harness.reader
    assert harness.store.calls == []
    assert (reader.under_way, reader.reserved_bytes, len(reader.ranges)) == (0, 0, 0)
    assert reader._lookups == {}
    assert harness.broker.replicas.fetch_reader.count == 0


def test_a_deleted_topic_ends_its_reads(harness: TieredHarness) -> None:
    fetch, lookup = waiting(harness)
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    errors = {part.error_code for part in fetch.value}
    assert errors <= {Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert lookup.value == [(Error.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert_nothing_is_left(harness)


def test_a_partition_that_is_led_elsewhere_ends_its_reads(harness: TieredHarness) -> None:
    fetch, lookup = waiting(harness)
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    assert [part.error_code for part in fetch.value] == [Error.NOT_LEADER_OR_FOLLOWER, 0]
    assert lookup.value == [(Error.NOT_LEADER_OR_FOLLOWER, -1)]
    harness.connection.closed.complete(None)
    # The other partition's read goes on: only its own connection ends it.
    assert harness.reader.under_way == 1


def test_a_follower_goes_on_serving_consumers(harness: TieredHarness) -> None:
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    fetch = begin(harness, 0, max_wait_ms=5_000)
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1,)))
    assert not fetch.done
    harness.store.answer()
    assert offsets_in(fetch.value[0])[0] == 0


def test_a_tiering_state_without_reads_ends_them(harness: TieredHarness) -> None:
    fetch, lookup = waiting(harness)
    harness.commit(DISABLING)
    assert [part.error_code for part in fetch.value] == [Error.REPLICA_NOT_AVAILABLE] * 2
    assert lookup.value == [(Error.REPLICA_NOT_AVAILABLE, -1)]
    assert_nothing_is_left(harness)
    # Nothing below the local log is the partition's any more.
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    assert log.log_start_offset == log.local_log_start_offset == 15
    assert begin(harness, 14).value[0].error_code == Error.OFFSET_OUT_OF_RANGE
    assert offsets_in(begin(harness, 15).value[0])[0] == 15
    assert list_offsets(harness, START_MS).value == [(Error.NONE, 15)]
    assert_nothing_is_left(harness)


def test_a_follower_reads_nothing_remote_until_its_leader_s_log_start_comes(
    harness: TieredHarness,
) -> None:
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    fetch = begin(harness, 0, max_wait_ms=5_000)
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    log.delete_expired_segments(log.local_log_start_offset)
    harness.commit(DISABLING)
    assert fetch.value[0].error_code == Error.REPLICA_NOT_AVAILABLE
    assert begin(harness, 0).value[0].error_code == Error.REPLICA_NOT_AVAILABLE
    assert log.log_start_offset == 0
    log.delete_records(4)
    assert begin(harness, 3).value[0].error_code == Error.OFFSET_OUT_OF_RANGE
    assert_nothing_is_left(harness)
    harness.commit(TopicTieringRecord(topic_id=TOPIC_ID, state=1, tiered_epoch=3))
    again = begin(harness, 5)
    harness.store.answer()
    assert offsets_in(again.value[0])[0] == 5


def test_retained_segments_are_read_on(harness: TieredHarness) -> None:
    fetch, _ = waiting(harness)
    harness.commit(
        TopicTieringRecord(topic_id=TOPIC_ID, state=TieringState.DISABLED, tiered_epoch=2, policy=1)
    )
    assert not fetch.done
    harness.store.answer()
    assert offsets_in(fetch.value[0])[0] == 0


def test_what_a_read_brought_is_dropped_with_its_topic(harness: TieredHarness) -> None:
    fetch = begin(harness, 0, max_wait_ms=100)
    harness.clock.advance(500)
    assert fetch.done
    harness.store.answer()
    assert harness.reader.reserved_bytes > 0
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert_nothing_is_left(harness)


def test_a_shutdown_ends_all_reads(harness: TieredHarness) -> None:
    _, lookup = waiting(harness)
    harness.reader.chunks.read_ahead("segment", 10, -1)
    harness.broker.shutdown()
    assert lookup.value == [(Error.REPLICA_NOT_AVAILABLE, -1)]
    assert harness.store.calls == []
    assert (harness.reader.under_way, harness.reader.reserved_bytes) == (0, 0)
    begin(harness, 0)
    assert list_offsets(harness, START_MS).value == [(Error.REPLICA_NOT_AVAILABLE, -1)]
    assert harness.store.calls == []
    assert harness.reader.under_way == 0


# -- Dynamic configuration -------------------------------------------------------------------------


def broker_config(name: str, value: str | None, broker: str = "") -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER, resource_name=broker, name=name, value=value
    )


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("ottla.remote.chunk.cache.size.bytes", lambda remote: remote.reads.chunks.kept.bytes_max),
        ("ottla.remote.index.cache.size.bytes", lambda remote: remote.reads.indexes.kept.bytes_max),
        ("remote.fetch.max.wait.ms", lambda remote: remote.reads.max_wait_ms),
        (
            "remote.list.offsets.request.timeout.ms",
            lambda remote: remote.reads.list_offsets_timeout_ms,
        ),
        ("remote.log.reader.threads", lambda remote: remote.reads.ranges.calls_max),
        (
            "remote.log.manager.fetch.max.bytes.per.second",
            lambda remote: remote.reads.quota.per_second,
        ),
        (
            "remote.log.manager.copy.max.bytes.per.second",
            lambda remote: remote.environment.copy_quota.per_second,
        ),
        (
            "remote.log.manager.copier.thread.pool.size",
            lambda remote: remote.environment.copier_slots.free,
        ),
        (
            "remote.log.manager.expiration.thread.pool.size",
            lambda remote: remote.environment.expiration_slots.free,
        ),
    ],
)
def test_a_property_is_changed_while_the_broker_runs(
    name: str, read: Callable[[RemoteStorage], int]
) -> None:
    harness = TieredHarness(properties=PROPERTIES)
    remote = harness.broker.remote
    assert remote is not None
    before = read(remote)
    assert before == NODE_DEFINITIONS.defaults[name]
    harness.commit(broker_config(name, "123"))
    assert read(remote) == 123
    harness.commit(broker_config(name, "77", "1"))
    assert read(remote) == 77
    harness.commit(broker_config(name, "55", "2"))  # Another broker's.
    assert read(remote) == 77
    harness.commit(broker_config(name, None, "1"), broker_config(name, None))
    assert read(remote) == before


def test_a_broker_starts_with_its_dynamic_configuration() -> None:
    harness = TieredHarness(properties=PROPERTIES)
    harness.commit(broker_config("remote.fetch.max.wait.ms", "123"))
    again = TieredHarness(properties=PROPERTIES)
    again.broker.image = EMPTY
    again.broker.apply(delta_between(EMPTY, harness.broker.image))
    assert again.reader.max_wait_ms == 123
