"""Each damage of a segment's bytes is found by its name, however the bytes are cut into ranges."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.epoch_cache import EpochCache, EpochEntry
from ottla.log.indexes.transaction_index import AbortedTransaction, encode_entry
from ottla.records.batch import HEADER_SIZE, iter_headers
from ottla.spark.jobs.rules.findings import Kind
from ottla.spark.jobs.rules.segment_bytes import check_auxiliary, check_log, index_entries
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata

from ..support import finished, index_bytes, log_bytes, objects_of, offsets

EPOCHS = ((1, 20), (3, 30))


def made() -> tuple[SegmentMetadata, bytes]:
    return finished(1, 20, 39, EPOCHS)


def positions(log: bytes) -> list[int]:
    return [position for position, _ in iter_headers(log)]


def damaged(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]


def test_a_sound_segment() -> None:
    segment, log = made()
    index = index_entries(segment, index_bytes(20, log))
    assert sorted(index) == positions(log)[1:]
    assert check_log(segment, [log], index) == []


@given(st.lists(st.integers(1, 200), min_size=1, max_size=20), st.integers(0, 500))
def test_ranges_of_any_length_say_the_same(sizes: list[int], at: int) -> None:
    segment, log = made()
    log = damaged(log, at % len(log))
    cut, begin = [], 0
    while begin < len(log):
        size = sizes[len(cut) % len(sizes)]
        cut.append(log[begin : begin + size])
        begin += size
    index = index_entries(segment, index_bytes(20, made()[1]))
    assert check_log(segment, cut, index) == check_log(segment, [log], index)


def test_no_flipped_bit_is_overlooked() -> None:
    segment, log = made()
    index = index_entries(segment, index_bytes(20, log))
    for at in range(len(log)):
        assert check_log(segment, [damaged(log, at)], index), at


def test_a_damaged_record() -> None:
    segment, log = made()
    second = positions(log)[1]
    (found,) = check_log(segment, [damaged(log, second + HEADER_SIZE + 3)])
    assert (found.kind, offsets([found])) == (Kind.CRC_MISMATCH, [(25, 29)])
    assert found.object == object_name(segment, ObjectKind.LOG)
    assert f"at byte {second}" in found.detail


def test_a_length_that_leads_nowhere() -> None:
    segment, log = made()
    second = positions(log)[1]
    found = check_log(segment, [damaged(log, second + 8)])
    assert [each.kind for each in found][:1] == [Kind.CRC_MISMATCH]
    (found,) = check_log(segment, [log[:second] + bytes(len(log) - second)])
    assert (found.kind, offsets([found])) == (Kind.CRC_MISMATCH, [(25, 39)])


@pytest.mark.parametrize("size", [1, HEADER_SIZE - 1, HEADER_SIZE + 1])
def test_a_batch_that_is_cut(size: int) -> None:
    segment, log = made()
    last = positions(log)[-1]
    (found,) = check_log(segment, [log[: last + size]])
    assert found.kind is Kind.CRC_MISMATCH
    assert "is cut" in found.detail


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((25, 39), [(20, 24)]),
        ((20, 34), [(35, 39)]),
        ((15, 39), [(15, 19)]),
        ((20, 44), [(40, 44)]),
    ],
)
def test_batches_of_other_offsets(bounds: tuple[int, int], expected: list[tuple[int, int]]) -> None:
    segment, _ = made()
    found = check_log(segment, [log_bytes(*bounds, EPOCHS)])
    assert {each.kind for each in found} == {Kind.OFFSETS_NOT_COVERED}
    assert offsets(found) == expected


def test_a_hole_between_batches() -> None:
    segment, log = made()
    at = positions(log)
    (found,) = check_log(segment, [log[: at[1]] + log[at[2] :]])
    assert (found.kind, offsets([found])) == (Kind.OFFSETS_NOT_COVERED, [(25, 29)])
    (found,) = check_log(segment, [b""])
    assert offsets([found]) == [(20, 39)]


def test_batches_of_another_leader_epoch() -> None:
    segment, _ = made()
    found = check_log(segment, [log_bytes(20, 39, ((1, 20), (2, 30)))])
    assert [each.kind for each in found] == [Kind.WRONG_LEADER_EPOCH] * 2
    # Below the first epoch that is known nothing is compared.
    later = replace(segment, epochs=((3, 30),))
    assert check_log(later, [log_bytes(20, 39, ((2, 20), (3, 30)))]) == []


def test_an_index_that_is_not_the_logs() -> None:
    segment, log = made()
    at = positions(log)
    found = check_log(segment, [log], {at[1] + 1: 29})
    assert [each.kind for each in found] == [Kind.DAMAGED_AUXILIARY]
    assert found[0].object == object_name(segment, ObjectKind.OFFSET_INDEX)
    found = check_log(segment, [log], {at[1]: 30})
    assert [each.kind for each in found] == [Kind.DAMAGED_AUXILIARY]


# Auxiliary objects


def test_sound_auxiliary_objects() -> None:
    segment, log = made()
    objects = objects_of(segment, log)
    for kind in set(ObjectKind) - {ObjectKind.LOG, ObjectKind.TXN_INDEX}:
        assert list(check_auxiliary(segment, kind, objects[object_name(segment, kind)])) == []
    entry = AbortedTransaction(producer_id=1, first_offset=5, last_offset=25, last_stable_offset=20)
    assert list(check_auxiliary(segment, ObjectKind.TXN_INDEX, encode_entry(entry))) == []


def time_entry(timestamp: int, relative: int) -> bytes:
    return timestamp.to_bytes(8, "big") + relative.to_bytes(4, "big")


def offset_entry(relative: int, position: int) -> bytes:
    return relative.to_bytes(4, "big") + position.to_bytes(4, "big")


def late_transaction() -> bytes:
    return encode_entry(
        AbortedTransaction(producer_id=1, first_offset=5, last_offset=40, last_stable_offset=20)
    )


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (ObjectKind.OFFSET_INDEX, lambda: bytes(7)),
        (ObjectKind.OFFSET_INDEX, lambda: offset_entry(9, 90) + offset_entry(9, 99)),
        (ObjectKind.OFFSET_INDEX, lambda: offset_entry(20, 90)),
        (ObjectKind.OFFSET_INDEX, lambda: offset_entry(9, 1 << 20)),
        (ObjectKind.TIME_INDEX, lambda: bytes(11)),
        (ObjectKind.TIME_INDEX, lambda: time_entry(900, 20)),
        (ObjectKind.TIME_INDEX, lambda: time_entry(1_001, 5)),
        (ObjectKind.TIME_INDEX, lambda: time_entry(900, 5) + time_entry(800, 6)),
        (ObjectKind.TXN_INDEX, lambda: bytes(33)),
        (ObjectKind.TXN_INDEX, late_transaction),
        (ObjectKind.PRODUCER_SNAPSHOT, lambda: b""),
        (ObjectKind.PRODUCER_SNAPSHOT, lambda: bytes(10)),
        (ObjectKind.LEADER_EPOCHS, lambda: b"0\n1\n"),
        (ObjectKind.LEADER_EPOCHS, lambda: EpochCache([EpochEntry(1, 20)]).encode()),
        (ObjectKind.LEADER_EPOCHS, lambda: b"\xff\xfe"),
    ],
)
def test_a_damaged_auxiliary_object(kind: ObjectKind, content: Callable[[], bytes]) -> None:
    segment, _ = made()
    (found,) = check_auxiliary(segment, kind, content())
    assert (found.kind, found.object) == (Kind.DAMAGED_AUXILIARY, object_name(segment, kind))
    assert found.detail


def test_the_leader_epochs_go_back_to_the_logs_beginning() -> None:
    segment, _ = made()
    cache = EpochCache([EpochEntry(0, 0), EpochEntry(1, 7), EpochEntry(3, 30)])
    assert list(check_auxiliary(segment, ObjectKind.LEADER_EPOCHS, cache.encode())) == []
