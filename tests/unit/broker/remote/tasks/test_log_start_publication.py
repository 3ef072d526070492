"""A log start is published once it is durable here and every live replica has it."""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.broker.remote.tasks.log_start_publication import REPLICAS_MS_MAX, LogStartPublisher
from ottla.log import names
from ottla.log.partition_log import PartitionLog
from ottla.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_LOST
from tests.unit.broker.api.test_k21_delete_records import follow
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness, batch

WORKING, FAILED = Uuid(b"w" * 16), Uuid(b"f" * 16)


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    for node_id in (1, 2, 3):
        harness.add_broker(node_id)
    harness.add_topic(replicas=(1, 2, 3), isr=(1, 2, 3))
    harness.broker.replicas.append("t", 0, batch("a", "b", "c"), acks=1)
    for node in (2, 3):
        follow(harness, node, 0)
    return harness


def log_of(harness: BrokerHarness) -> PartitionLog:
    return harness.broker.replicas.partition("t", 0).leader_log()


def publish(harness: BrokerHarness, offset: int = 2) -> Pending[ApiError | None]:
    publisher = LogStartPublisher(harness.broker.replicas, harness.log_dirs, harness.clock)
    log = log_of(harness)
    log.advance_log_start(offset)
    return publisher.publish(log, offset)


def error_of(promise: Pending[ApiError | None]) -> Error | None:
    return None if promise.value is None else promise.value.error


def test_all_live_replicas_must_have_it(harness: BrokerHarness) -> None:
    promise = publish(harness)
    follow(harness, 2, 2)
    assert not promise.done
    follow(harness, 3, 3)
    assert error_of(promise) is None
    assert harness.broker.replicas.delete_records_purgatory.count == 0


def test_it_must_be_durable_here(harness: BrokerHarness) -> None:
    harness.workers.inline = False
    promise = publish(harness)
    for node in (2, 3):
        follow(harness, node, 2)
    assert not promise.done
    harness.workers.run()
    assert error_of(promise) is None
    directory = harness.config.log_dirs[0]
    assert b"t 0 2" in harness.disk.read_bytes(f"{directory}/{names.LOG_STARTS}")


def test_it_is_not_durable_while_a_truncation_limits_it(harness: BrokerHarness) -> None:
    """A start would take the limit, which was written before, for the log start."""
    harness.workers.inline = False
    log_of(harness).truncate_in_background(1, lambda: False)
    promise = publish(harness)
    assert error_of(promise) is Error.KAFKA_STORAGE_ERROR
    harness.workers.run()
    harness.clock.advance(1)
    harness.workers.run()
    promise = publish(harness)
    for node in (2, 3):
        follow(harness, node, 2)
    harness.workers.run()
    assert promise.done
    assert error_of(promise) is None


def test_dead_replicas_are_not_waited_for(harness: BrokerHarness) -> None:
    promise = publish(harness)
    follow(harness, 2, 2)
    harness.add_broker(3, fenced=True)
    assert error_of(promise) is None


@pytest.mark.parametrize("directory", [DIRECTORY_LOST, FAILED])
def test_replicas_in_an_offline_log_directory_are_not_waited_for(
    harness: BrokerHarness, directory: Uuid
) -> None:
    promise = publish(harness)
    follow(harness, 2, 2)
    harness.commit(
        PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, isr=(1, 2), directories=(WORKING, WORKING, directory)
        ),
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, log_dirs=(WORKING,)),
    )
    assert promise.done
    assert error_of(promise) is None


def test_a_replica_whose_log_directory_is_back_is_waited_for(harness: BrokerHarness) -> None:
    for directory in (DIRECTORY_LOST, WORKING):
        harness.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=TOPIC_ID, directories=(WORKING, WORKING, directory)
            )
        )
    promise = publish(harness)
    follow(harness, 2, 2)
    assert not promise.done


def test_a_live_replica_that_does_not_fetch_is_waited_for_until_the_time_is_over(
    harness: BrokerHarness,
) -> None:
    promise = publish(harness)
    follow(harness, 2, 2)
    harness.clock.advance(REPLICAS_MS_MAX - 1)
    assert not promise.done
    harness.clock.advance(1)
    assert error_of(promise) is Error.REQUEST_TIMED_OUT


def test_another_leader_ends_the_wait(harness: BrokerHarness) -> None:
    promise = publish(harness)
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    assert error_of(promise) is Error.NOT_LEADER_OR_FOLLOWER


def test_a_failed_checkpoint_is_an_error(harness: BrokerHarness) -> None:
    harness.fail_disk("write_atomic", names.LOG_STARTS)
    promise = publish(harness)
    harness.clock.advance(REPLICAS_MS_MAX)
    assert error_of(promise) is Error.KAFKA_STORAGE_ERROR
