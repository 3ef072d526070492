"""What a consumer takes from a fetch: records in order, without markers, with the gaps.

Method: batches as a broker returns them, with chosen offsets.
"""

from ottla.records.aborted import AbortedTransactions
from ottla.records.builder import encode_batch
from ottla.records.control import build_marker
from ottla.testing.sim_clients.fetched import Fetched, take

PRODUCER = 7


def batch(base_offset: int, *values: bytes, transactional: bool = False, epoch: int = 3) -> bytes:
    return encode_batch(
        [(None, value, (), 0) for value in values],
        base_offset=base_offset,
        producer_id=PRODUCER if transactional else -1,
        producer_epoch=0 if transactional else -1,
        transactional=transactional,
        leader_epoch=epoch,
    )


def marker(offset: int, *, committed: bool) -> bytes:
    return build_marker(
        committed=committed,
        producer_id=PRODUCER,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=offset,
    )


def values(found: Fetched) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for each in found.records]


def test_records_are_taken_from_the_position_on() -> None:
    found = take(batch(0, b"a", b"b") + batch(2, b"c", epoch=4), 1)
    assert values(found) == [(1, b"b"), (2, b"c")]
    assert (found.next_offset, found.gaps, found.epoch) == (3, [], 4)


def test_nothing_leaves_the_position() -> None:
    found = take(b"", 5)
    assert (values(found), found.next_offset, found.epoch) == ([], 5, -1)


def test_a_hole_before_a_batch_is_a_gap() -> None:
    assert take(batch(4, b"a"), 2).gaps == [(2, 4)]
    assert take(marker(4, committed=True), 2).gaps == [(2, 4)]


def test_a_marker_is_no_record_and_no_gap() -> None:
    found = take(batch(0, b"a") + marker(1, committed=True) + batch(2, b"b"), 0)
    assert values(found) == [(0, b"a"), (2, b"b")]
    assert (found.next_offset, found.gaps) == (3, [])


def test_records_of_aborted_transactions_are_dropped() -> None:
    data = batch(0, b"a") + batch(1, b"no", b"no", transactional=True)
    data += marker(3, committed=False) + batch(4, b"yes", transactional=True)
    found = take(data, 0, AbortedTransactions([(PRODUCER, 1)]))
    assert values(found) == [(0, b"a"), (4, b"yes")]
    assert (found.next_offset, found.gaps) == (5, [])
