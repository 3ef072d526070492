"""A restored partition's new log begins where its remote segments end, and only a new one."""

import errno

import pytest

from ottla.base.errors import Error
from ottla.broker.produce.delayed_produce import AppendResult
from ottla.log.partition_log import PartitionLog
from ottla.metadata.records import PartitionRecord, TopicRecord, TopicTieringRecord
from ottla.metadata.tiering import RestoredPartition, TopicTiering, tiering_record
from ottla.records.builder import encode_batch
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness
from tests.unit.log.support import make_complete

RESTORED = RestoredPartition(
    partition=0, leader_epoch=0, log_start_offset=10, end_offset=30, epochs=((0, 10),)
)


def tiering() -> TopicTieringRecord:
    return tiering_record(TopicTiering(topic_id=TOPIC_ID, restored=(RESTORED,)))


def create(harness: BrokerHarness, leader_epoch: int = 7) -> None:
    harness.commit(
        TopicRecord(name="t", topic_id=TOPIC_ID),
        tiering(),
        *(
            PartitionRecord(
                partition_id=each,
                topic_id=TOPIC_ID,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=leader_epoch,
                partition_epoch=0,
            )
            for each in range(2)
        ),
    )


def log_of(harness: BrokerHarness, partition: int) -> PartitionLog:
    log = harness.broker.replicas.partition("t", partition).log
    assert log is not None
    return log


def test_a_new_log_begins_behind_the_remote_prefix() -> None:
    harness = BrokerHarness()
    harness.add_broker()
    create(harness)
    log = log_of(harness, 0)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 30, 30)
    assert log.high_watermark == 30
    assert list(log.epochs.entries) == [(0, 10), (7, 30)]
    # A partition that was not restored, such as one that was added later.
    assert log_of(harness, 1).log_end_offset == 0
    make_complete(log)
    rows = [(None, b"v", (), 1_000)]
    harness.broker.replicas.append("t", 0, encode_batch(rows))
    assert log.log_end_offset == 31


def test_a_log_that_is_there_stays_at_a_restart() -> None:
    harness = BrokerHarness()
    harness.add_broker()
    create(harness)
    make_complete(log_of(harness, 0))
    harness.broker.replicas.append("t", 0, encode_batch([(None, b"v", (), 1_000)]))
    image = harness.broker.image
    harness.broker.shutdown()
    again = BrokerHarness(disk=harness.disk)
    again.load(image)
    again.offset = harness.offset
    again.commit(*image.to_records())
    log = log_of(again, 0)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 30, 31)


@pytest.mark.parametrize("operation", ["write_atomic", "sync_dir"])
def test_a_log_that_cannot_begin_there_is_offline(operation: str) -> None:
    """At another offset it would take records for offsets that remote segments have."""
    harness = BrokerHarness({"log.dirs": "/one,/two"})
    harness.add_broker()
    harness.disk.fail(operation, errno.ENOSPC, path="/one/t-0")
    create(harness)
    replicas = harness.broker.replicas
    assert replicas.partition("t", 0).log is None
    assert [each.path for each in replicas.log_dirs.online_dirs] == ["/two"]
    result = replicas.append("t", 0, encode_batch([(None, b"v", (), 1_000)]))
    assert isinstance(result, AppendResult)
    assert result.error is Error.KAFKA_STORAGE_ERROR
    assert log_of(harness, 1).directory == "/two/t-1"
