"""Snapshots: names, content, and which of them may go.

Method: Kafka's names written out; round trips; files cut and changed at every byte; the cleaning
rules against their definition.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.raft.snapshots import (
    RECORDS_PER_BATCH,
    CorruptSnapshot,
    StoredSnapshot,
    decode_snapshot,
    encode_snapshot,
    inspect_snapshot,
    parse_snapshot_name,
    plan_cleaning,
    snapshot_name,
)
from ottla.raft.values import OffsetAndEpoch
from ottla.records.batch import iter_headers


def encoded(values: list[bytes]) -> bytes:
    return b"".join(encode_snapshot(values, epoch=6, timestamp=100, last_contained_ms=90))


def test_names_are_kafkas() -> None:
    snapshot = OffsetAndEpoch(1234, 56)
    assert snapshot_name(snapshot) == "00000000000000001234-0000000056.checkpoint"
    assert parse_snapshot_name(snapshot_name(snapshot)) == (snapshot, ".checkpoint")


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("00000000000000001234-0000000056.checkpoint.part", ".checkpoint.part"),
        ("00000000000000001234-0000000056-8817272.checkpoint.part", ".checkpoint.part"),
        ("00000000000000001234-0000000056.checkpoint.deleted", ".checkpoint.deleted"),
    ],
)
def test_part_and_deleted_files_are_parsed(name: str, suffix: str) -> None:
    assert parse_snapshot_name(name) == (OffsetAndEpoch(1234, 56), suffix)


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.checkpoint",
        "leader-epoch-checkpoint",
        "00000000000000000000.log",
        "1-2.checkpoint",
        "00000000000000001234-0000000056.checkpoint.corrupt",
    ],
)
def test_other_files_are_not_snapshots(name: str) -> None:
    assert parse_snapshot_name(name) is None


@given(st.lists(st.binary(max_size=30), max_size=50))
def test_round_trip(values: list[bytes]) -> None:
    content = decode_snapshot(encoded(values))
    assert content.values == tuple(values)
    assert content.last_contained_ms == 90


def test_large_states_take_several_batches_with_offsets_from_0() -> None:
    values = [b"%d" % index for index in range(2 * RECORDS_PER_BATCH + 1)]
    data = encoded(values)
    headers = [header for _, header in iter_headers(data)]
    assert [header.record_count for header in headers] == [1, 1_000, 1_000, 1, 1]
    expected = 0
    for header in headers:
        assert (header.base_offset, header.partition_leader_epoch) == (expected, 6)
        expected = header.next_offset
    assert decode_snapshot(data).values == tuple(values)


def test_a_large_record_closes_its_batch() -> None:
    data = encoded([b"x" * 700_000] * 4)
    assert [header.record_count for _, header in iter_headers(data)] == [1, 2, 2, 1]


def test_every_cut_is_found() -> None:
    data = encoded([b"a", b"b"])
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:size])


def test_an_old_message_format_is_found() -> None:
    data = bytearray(encoded([b"a"]))
    data[16] = 1
    with pytest.raises(CorruptSnapshot, match="message format 1"):
        decode_snapshot(bytes(data))


def test_inspection_finds_the_same_damage_as_decoding() -> None:
    data = encoded([b"a", b"b"])
    assert inspect_snapshot(data) == 90
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            inspect_snapshot(data[:size])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        outcomes = []
        for read in (decode_snapshot, inspect_snapshot):
            try:
                read(bytes(damaged))
                outcomes.append("whole")
            except CorruptSnapshot:
                outcomes.append("damaged")
        assert outcomes[0] == outcomes[1], position


def test_a_missing_header_or_swapped_ends_are_found() -> None:
    data = encoded([b"a"])
    cuts = [position for position, _ in iter_headers(data)] + [len(data)]
    header, body, footer = (data[a:b] for a, b in pairwise(cuts))
    for wrong in (body + footer, header + body, footer + body + header, b"", header):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(wrong)


def stored(offset: int, size: int = 10, age_ms: int = 0) -> StoredSnapshot:
    return StoredSnapshot(
        id=OffsetAndEpoch(offset, 1), size_bytes=size, last_contained_ms=1_000_000 - age_ms
    )


def plan(
    *snapshots: StoredSnapshot, log_bytes: int = 0, size: int = -1, age_ms: int = -1
) -> int | None:
    found = plan_cleaning(
        snapshots,
        log_bytes=log_bytes,
        retention_bytes=size,
        retention_ms=age_ms,
        now_ms=1_000_000,
    )
    return None if found is None else found.offset


def test_cleaning() -> None:
    three = (stored(10, age_ms=300), stored(20, age_ms=200), stored(30, age_ms=100))
    assert plan(*three) is None, "no limits"
    assert plan(*three, size=30) is None
    assert plan(*three, size=29) == 20
    assert plan(*three, size=19) == 30
    assert plan(*three, size=0) == 30, "the newest stays"
    assert plan(*three, log_bytes=100, size=100) == 30
    assert plan(*three, age_ms=300) is None
    assert plan(*three, age_ms=299) == 20
    assert plan(*three, age_ms=0) == 30
    assert plan(stored(10, age_ms=900), size=0, age_ms=0) is None
    assert plan(size=0, age_ms=0) is None
