"""Idempotent and transactional producers: the table of the module, row by row.

Method: a state is led to a known point, then one batch is offered; small stories for transactions
and the last stable offset.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.log.producers.producer_state import ProducerState
from ottla.records.batch import INT32_MAX, BatchHeader, parse_header
from ottla.records.control import Marker
from tests.unit.log.support import batch

PRODUCER = 7
COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


def header(
    epoch: int,
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    producer: int = PRODUCER,
    transactional: bool = False,
    timestamp: int = 50,
) -> BatchHeader:
    data = batch(
        count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        base_offset=offset,
        transactional=transactional,
        timestamp=timestamp,
    )
    return parse_header(data)


def known() -> ProducerState:
    """A producer of epoch 3 that has written sequences 0 to 6 in six batches."""
    state = ProducerState("t-0")
    for sequence, count in ((0, 1), (1, 1), (2, 2), (4, 1), (5, 1), (6, 1)):
        state.appended(header(3, sequence, count, offset=100 + sequence))
    return state


@pytest.mark.parametrize(
    ("epoch", "sequence", "count", "answer"),
    [
        (3, 7, 1, None),
        (3, 7, 5, None),
        (3, 6, 1, (106, 106)),
        (3, 2, 2, (102, 103)),
        (3, 1, 1, (101, 101)),
        (3, 0, 1, Error.OUT_OF_ORDER_SEQUENCE_NUMBER),  # The sixth last is forgotten.
        (3, 2, 1, Error.OUT_OF_ORDER_SEQUENCE_NUMBER),  # Not the batch it was.
        (3, 8, 1, Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, 7, 1, Error.INVALID_PRODUCER_EPOCH),
        (2, 6, 1, Error.INVALID_PRODUCER_EPOCH),
        (4, 0, 1, None),
        (4, 7, 1, Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_a_clients_batch(
    epoch: int, sequence: int, count: int, answer: Error | tuple[int, int] | None
) -> None:
    state = known()
    offered = header(epoch, sequence, count)
    if isinstance(answer, Error):
        with pytest.raises(ApiError) as caught:
            state.check(offered, "client")
        assert caught.value.error is answer
        return
    found = state.check(offered, "client")
    assert (found and (found.first_offset, found.last_offset)) == answer


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert ProducerState("t-0").check(header(3, 42), "client") is None


def test_coordinators_have_epochs_but_no_sequences() -> None:
    state = known()
    assert state.check(header(3, 42), "coordinator") is None
    with pytest.raises(ApiError) as caught:
        state.check(header(2, 7), "coordinator")
    assert caught.value.error is Error.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_after_the_largest() -> None:
    state = ProducerState("t-0")
    state.appended(header(0, INT32_MAX - 1, 3, offset=10))
    assert state.entries[PRODUCER].last_sequence == 0
    assert state.check(header(0, 1), "client") is None
    found = state.check(header(0, INT32_MAX - 1, 3), "client")
    assert found is not None
    assert (found.first_offset, found.last_offset) == (10, 12)
    state = ProducerState("t-0")
    state.appended(header(0, INT32_MAX))
    assert state.check(header(0, 0), "client") is None


def test_a_new_epoch_forgets_the_old_batches() -> None:
    state = known()
    state.appended(header(4, 0, offset=200))
    assert len(state.entries[PRODUCER].batches) == 1
    with pytest.raises(ApiError):
        state.check(header(3, 6), "client")


def test_a_transaction_holds_the_stable_offset_until_its_end_is_replicated() -> None:
    state = ProducerState("t-0")
    assert state.first_unstable_offset is None
    state.appended(header(0, 0, 3, offset=10, transactional=True))
    state.appended(header(0, 3, 3, offset=13, transactional=True))
    assert state.first_unstable_offset == state.first_open_offset == 10
    done = state.marker_appended(header(0, -1, offset=16), ABORT, 99)
    assert done == (PRODUCER, 10, 16, True)
    assert state.first_open_offset is None
    assert state.first_unstable_offset == 10
    state.replicated_to(16)
    assert state.first_unstable_offset == 10
    state.replicated_to(17)
    assert state.first_unstable_offset is None
    assert state.entries[PRODUCER].last_timestamp == 99


def test_the_oldest_open_transaction_counts() -> None:
    state = ProducerState("t-0")
    state.appended(header(0, 0, offset=5, producer=1, transactional=True))
    state.appended(header(0, 0, offset=8, producer=2, transactional=True))
    done = state.marker_appended(header(0, -1, offset=11, producer=1), COMMIT, 0)
    assert done is not None
    assert state.stable_after(done) == 8
    state.replicated_to(12)
    assert state.first_unstable_offset == 8
    done = state.marker_appended(header(0, -1, offset=12, producer=2), COMMIT, 0)
    assert done is not None
    assert state.stable_after(done) == 13


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    state = known()
    assert state.marker_appended(header(4, -1, offset=300), Marker(True, 9), 0) is None
    entry = state.entries[PRODUCER]
    assert (entry.epoch, entry.coordinator_epoch, len(entry.batches)) == (4, 9, 0)
    assert state.check(header(4, 0), "client") is None
    with pytest.raises(ApiError):
        state.check(header(4, 1), "client")


def test_a_marker_of_the_same_epoch_keeps_the_batches() -> None:
    state = known()
    state.marker_appended(header(3, -1, offset=300), Marker(True, 9), 0)
    assert state.check(header(3, 6), "client") is not None
    assert state.check(header(3, 7), "client") is None


def test_markers_of_the_past_are_refused() -> None:
    state = known()
    state.marker_appended(header(3, -1, offset=300), Marker(True, 9), 0)
    state.check_marker(header(3, -1), Marker(True, 9))
    state.check_marker(header(0, -1, producer=99), Marker(True, 0))
    with pytest.raises(ApiError) as caught:
        state.check_marker(header(3, -1), Marker(True, 8))
    assert caught.value.error is Error.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(ApiError) as caught:
        state.check_marker(header(2, -1), Marker(True, 9))
    assert caught.value.error is Error.INVALID_PRODUCER_EPOCH


def test_plain_writes_within_a_transaction_are_refused() -> None:
    state = ProducerState("t-0")
    state.appended(header(0, 0, offset=5, transactional=True))
    with pytest.raises(ApiError) as caught:
        state.check(header(0, 1), "client")
    assert caught.value.error is Error.INVALID_TXN_STATE
    assert state.check(header(0, 1, transactional=True), "client") is None


def test_silent_producers_expire_but_not_within_a_transaction() -> None:
    state = ProducerState("t-0")
    state.appended(header(0, 0, producer=1), 100)
    state.appended(header(0, 0, producer=2), 200)
    state.appended(header(0, 0, producer=3, transactional=True), 0)
    assert state.expire(149, 50) == 0
    assert state.expire(150, 50) == 1
    assert sorted(state.entries) == [2, 3]
    state.clear()
    assert not state.entries
    assert state.first_unstable_offset is None


@pytest.mark.parametrize("timestamp", [0, 10_000])
def test_expiration_counts_from_the_append_not_from_record_timestamps(timestamp: int) -> None:
    """A producer of historic data expired at once, and its retry was appended twice."""
    state = ProducerState("t-0")
    state.appended(header(0, 0, timestamp=timestamp), 1_000)
    assert state.expire(1_049, 50) == 0
    state.appended(header(0, 1, timestamp=timestamp), 1_020)
    assert state.expire(1_069, 50) == 0
    assert state.expire(1_070, 50) == 1


def test_a_marker_counts_from_its_append_too() -> None:
    state = ProducerState("t-0")
    state.marker_appended(header(0, -1, offset=3), COMMIT, 0, 1_000)
    assert state.expire(1_049, 50) == 0
    assert state.expire(1_050, 50) == 1


def test_a_producer_without_append_time_expires_from_the_first_check_on() -> None:
    state = ProducerState("t-0")
    state.appended(header(0, 0))
    assert state.expire(1_000, 50) == 0
    assert state.expire(1_050, 50) == 1
