"""Batches of a producer after a refused one get its error, until it is retried.

Method: a leader of three replicas whose in-sync replicas come and go; batches by their sequences.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.broker.partition import ACKS_ALL, Partition
from ottla.broker.produce.refused_batches import LATER_BATCHES_MAX, PRODUCERS_MAX, RefusedBatches
from ottla.records.builder import concatenate
from tests.unit.broker.harness import START_MS, BrokerHarness, batch
from tests.unit.broker.test_partition import state

TOO_FEW, ENOUGH = (1,), (1, 2)
LATER = ApiError(Error.NOT_ENOUGH_REPLICAS, "later")


def producer_batch(producer: int, epoch: int, sequence: int, value: str) -> bytes:
    return batch(value, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@pytest.fixture
def partition() -> Partition:
    """Broker 1 leads; two replicas must be in sync, and are not."""
    harness = BrokerHarness()
    harness.add_topic(replicas=(1,), leader=-1)
    log = harness.broker.replicas.partition("t", 0).log
    made = Partition("t", Uuid(b"t" * 16), 0, node_id=1, log=log)
    made.min_insync_replicas = 2
    in_sync(made, TOO_FEW)
    return made


def in_sync(partition: Partition, isr: tuple[int, ...]) -> None:
    changes = partition.partition_epoch + 1
    partition.apply(state(*isr, replicas=(1, 2, 3), changes=changes))


def produce(partition: Partition, sequence: int, *, producer: int = 7, epoch: int = 0) -> str:
    """Append a batch of one record; return the result."""
    data = producer_batch(producer, epoch, sequence, "value")
    try:
        info = partition.append(data, ACKS_ALL, START_MS)
    except ApiError as refusal:
        return refusal.error.name
    return f"duplicate of {info.first_offset}" if info.duplicate else f"at {info.first_offset}"


def copy(partition: Partition, sequence: int) -> None:
    """Append as a follower does what its leader took."""
    assert partition.log is not None
    data = concatenate(
        [producer_batch(7, 0, sequence, "value")],
        base_offset=partition.log.log_end_offset,
        leader_epoch=1,
    )
    partition.log.append_as_follower(data, now_ms=START_MS)


def test_a_batch_behind_a_refused_one_is_not_out_of_order(partition: Partition) -> None:
    in_sync(partition, ENOUGH)
    assert produce(partition, 0) == "at 0"
    in_sync(partition, TOO_FEW)
    assert produce(partition, 1) == "NOT_ENOUGH_REPLICAS"
    in_sync(partition, ENOUGH)
    assert produce(partition, 2) == "NOT_ENOUGH_REPLICAS"
    assert [produce(partition, each) for each in (1, 2, 3)] == ["at 1", "at 2", "at 3"]


def test_a_later_batch_is_not_taken_for_the_first_of_an_unknown_producer(
    partition: Partition,
) -> None:
    assert produce(partition, 0) == "NOT_ENOUGH_REPLICAS"
    in_sync(partition, ENOUGH)
    assert produce(partition, 1) == "NOT_ENOUGH_REPLICAS"
    assert [produce(partition, each) for each in (0, 1)] == ["at 0", "at 1"]


def test_a_new_leader_refuses_all_later_batches(partition: Partition) -> None:
    in_sync(partition, ENOUGH)
    assert produce(partition, 0) == "at 0"
    partition.apply(state(1, 2, replicas=(1, 2, 3), leader=2, epoch=1, changes=90))
    assert produce(partition, 1) == "NOT_LEADER_OR_FOLLOWER"
    partition.apply(state(1, 2, replicas=(1, 2, 3), epoch=2, changes=91))
    assert produce(partition, 2) == "NOT_LEADER_OR_FOLLOWER"
    assert [produce(partition, each) for each in (1, 2)] == ["at 1", "at 2"]


def test_what_came_by_another_leader_is_not_waited_for(partition: Partition) -> None:
    """A follower refused it; the leader appended it; this broker replicated it, and leads now."""
    in_sync(partition, ENOUGH)
    assert produce(partition, 0) == "at 0"
    partition.apply(state(1, 2, replicas=(1, 2, 3), leader=2, epoch=1, changes=90))
    assert produce(partition, 1) == "NOT_LEADER_OR_FOLLOWER"
    copy(partition, 1)
    copy(partition, 2)
    assert produce(partition, 9) == "NOT_LEADER_OR_FOLLOWER"
    partition.apply(state(1, 2, replicas=(1, 2, 3), epoch=2, changes=91))
    assert [produce(partition, each) for each in (2, 3)] == ["duplicate of 2", "at 3"]


def test_the_newest_refusal_counts_where_the_one_before_is_past(partition: Partition) -> None:
    partition.apply(state(1, 2, replicas=(1, 2, 3), leader=2, epoch=1, changes=90))
    assert produce(partition, 0) == "NOT_LEADER_OR_FOLLOWER"
    copy(partition, 0)
    assert produce(partition, 1) == "NOT_LEADER_OR_FOLLOWER"
    partition.apply(state(1, 2, replicas=(1, 2, 3), epoch=2, changes=91))
    assert produce(partition, 2) == "NOT_LEADER_OR_FOLLOWER"
    assert [produce(partition, each) for each in (1, 2)] == ["at 1", "at 2"]


def test_what_was_appended_before_is_found_again(partition: Partition) -> None:
    in_sync(partition, ENOUGH)
    assert [produce(partition, each) for each in (0, 1)] == ["at 0", "at 1"]
    in_sync(partition, TOO_FEW)
    assert produce(partition, 0) == "NOT_ENOUGH_REPLICAS"
    in_sync(partition, ENOUGH)
    assert [produce(partition, each) for each in (0, 1)] == ["duplicate of 0", "duplicate of 1"]


def test_another_producer_and_another_epoch_do_not_follow_it(partition: Partition) -> None:
    assert produce(partition, 0) == "NOT_ENOUGH_REPLICAS"
    in_sync(partition, ENOUGH)
    assert produce(partition, 4, producer=8) == "at 0"
    assert produce(partition, 3, epoch=1) == "at 1"
    assert produce(partition, 4, epoch=1) == "at 2"


def test_one_that_is_never_repeated_is_forgotten(partition: Partition) -> None:
    in_sync(partition, ENOUGH)
    assert produce(partition, 0) == "at 0"
    in_sync(partition, TOO_FEW)
    assert produce(partition, 1) == "NOT_ENOUGH_REPLICAS"
    in_sync(partition, ENOUGH)
    errors = [produce(partition, 2) for _ in range(LATER_BATCHES_MAX + 1)]
    assert errors == ["NOT_ENOUGH_REPLICAS"] * LATER_BATCHES_MAX + ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert partition.refused is None


def test_producers_without_ids_are_not_remembered() -> None:
    refused = RefusedBatches()
    refused.note(producer_batch(-1, -1, -1, "value"), LATER, {})
    assert not refused


def test_a_reason_that_does_not_pass_is_not_remembered() -> None:
    refused = RefusedBatches()
    refused.note(producer_batch(7, 0, 0, "value"), ApiError(Error.KAFKA_STORAGE_ERROR), {})
    assert not refused


def test_no_more_than_so_many_producers_are_remembered() -> None:
    refused = RefusedBatches()
    for producer in range(PRODUCERS_MAX + 1):
        refused.note(producer_batch(producer, 0, 5, "value"), LATER, {})
    refused.check(producer_batch(0, 0, 6, "value"), {})
    with pytest.raises(ApiError, match="later"):
        refused.check(producer_batch(1, 0, 6, "value"), {})


@given(st.integers(0, 2**31 - 1), st.integers(1, LATER_BATCHES_MAX))
def test_sequences_wrap_around(first: int, ahead: int) -> None:
    refused = RefusedBatches()
    refused.note(producer_batch(7, 0, first, "value"), LATER, {})
    with pytest.raises(ApiError, match="later"):
        refused.check(producer_batch(7, 0, (first + ahead) % 2**31, "value"), {})
    refused.check(producer_batch(7, 0, first, "value"), {})
    assert not refused
