"""Loading arrives at the state of the log, whatever its batches.

Method: logs made of real batches, cut into chunks at every batch; compaction is imitated by
keeping the last record of each key; transactions follow KIP-98 and KIP-447.
"""

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator import loading
from ottla.coordinator.group_states import State
from ottla.coordinator.records import (
    Fact,
    GroupFact,
    OffsetCommitValue,
    OffsetFact,
    encode_fact,
)
from ottla.records.batch import parse_header
from ottla.records.builder import encode_batch, seal
from ottla.records.compression import Codec
from ottla.records.control import build_marker
from ottla.records.errors import CorruptBatch
from tests.drawn import examples

from .harness import Harness, durable
from .test_records import EMPTY_GROUP, GROUP

P = "group"


def offset(number: int, partition: int = 0, *, group: str = P, gone: bool = False) -> OffsetFact:
    value = None if gone else OffsetCommitValue(offset=number, metadata="", commit_timestamp=1)
    return OffsetFact(group, "t", partition, value)


def batch(at: int, *facts: Fact, producer_id: int = -1, codec: Codec = Codec.NONE) -> bytes:
    rows = [(key, value, (), 1) for key, value in map(encode_fact, facts)]
    return encode_batch(
        rows,
        base_offset=at,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def marker(at: int, producer_id: int, *, committed: bool) -> bytes:
    return build_marker(
        committed=committed,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=1,
        base_offset=at,
    )


def load(*chunks: bytes) -> Harness:
    harness = Harness()
    loader = loading.Loader()
    for chunk in chunks:
        loading.apply(harness.shard, loader.decode(chunk))
    loading.finish(harness.shard)
    return harness


def number_of(harness: Harness, partition: int = 0, group: str = P) -> int | None:
    found = harness.shard.offsets.get(group, "t", partition)
    return None if found is None else found.offset


def test_the_last_commit_wins_and_a_tombstone_forgets() -> None:
    harness = load(
        batch(0, offset(1), offset(2)), batch(2, offset(3, 1), offset(4), offset(0, 1, gone=True))
    )
    assert number_of(harness) == 4
    assert number_of(harness, 1) is None
    assert harness.shard.offsets.get(P, "t", 0).record_offset == 3  # type: ignore[union-attr]


def test_a_group_is_stable_with_members_and_empty_without() -> None:
    stable = load(batch(0, GROUP)).shard.groups[P]
    assert (stable.state, stable.generation, stable.leader_id) == (State.STABLE, 12, "m-1")
    assert stable.static_members == {"i-1": "m-1"}
    assert stable.members["m-1"].assignment == b"assignment"
    empty = load(batch(0, GROUP), batch(1, EMPTY_GROUP)).shard.groups[P]
    assert (empty.state, empty.generation, empty.since_ms) == (State.EMPTY, 13, 1_234)
    assert not load(batch(0, GROUP, GroupFact(P, None))).shard.groups


def test_a_leader_that_is_no_member_does_not_lead() -> None:
    # Kafka never writes it; a log may be damaged all the same.
    assert GROUP.value is not None
    broken = GroupFact(P, replace(GROUP.value, leader="gone"))
    assert load(batch(0, broken)).shard.groups[P].leader_id == "m-1"


def test_unknown_types_and_other_control_batches_are_passed_over() -> None:
    strange = encode_batch([(struct.pack(">h", 5) + b"x", b"y", (), 1)], base_offset=0)
    control = encode_batch([(struct.pack(">hh", 0, 7), b"", (), 1)], base_offset=1, control=True)
    assert number_of(load(strange + control + batch(2, offset(5)))) == 5


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches(codec: Codec) -> None:
    assert number_of(load(batch(0, *(offset(n) for n in range(50)), codec=codec))) == 49


def test_damage_is_not_passed_over() -> None:
    whole = bytearray(batch(0, offset(1)))
    whole[-1] ^= 1
    with pytest.raises(CorruptBatch):
        load(bytes(whole))


def generation(**changed: Any) -> tuple[bytes, bytes | None]:
    """Return the record of a group with two members, changed."""
    assert GROUP.value is not None
    (member,) = GROUP.value.members
    other = replace(member, member_id="m-2", group_instance_id=None)
    value = replace(GROUP.value, members=(member, replace(other, **changed.pop("other", {}))))
    return encode_fact(GroupFact(P, replace(value, **changed)))


BAD_RECORDS: dict[str, tuple[bytes | None, bytes | None]] = {
    "no key": (None, b"value"),
    "a key that is too short": (b"\0", b"value"),
    "a group's key that is cut": (struct.pack(">h", 2) + b"\0\x09g", b""),
    "a group of an unknown version": (encode_fact(GROUP)[0], struct.pack(">h", 99) + b"x"),
    "a group's value that is cut": (encode_fact(GROUP)[0], encode_fact(GROUP)[1][:-3]),  # type: ignore[index]
    "members without a protocol": generation(protocol=None),
    "two members of one id": generation(other={"member_id": "m-1"}),
    "two members of one instance": generation(other={"group_instance_id": "i-1"}),
    "an offset's value that is empty": (encode_fact(offset(1))[0], b""),
    "an offset's value that is cut": (encode_fact(offset(1))[0], encode_fact(offset(1))[1][:9]),  # type: ignore[index]
}


@pytest.mark.parametrize("bad", BAD_RECORDS)
@pytest.mark.parametrize("producer_id", [-1, 5])
def test_a_bad_record_is_passed_over(bad: str, producer_id: int) -> None:
    """All others of its batch and chunk are taken, also those of the same key before it."""
    good = [offset(7), GROUP, offset(8, 1)]
    rows = [(*encode_fact(fact), (), 1) for fact in good]
    rows.insert(2, (*BAD_RECORDS[bad], (), 1))
    fields = {"producer_id": producer_id, "producer_epoch": 0} if producer_id >= 0 else {}
    data = encode_batch(rows, base_offset=40, transactional=producer_id >= 0, **fields)
    data += marker(44, producer_id, committed=True) if producer_id >= 0 else batch(44, offset(9, 2))
    harness, loader = Harness(), loading.Loader()
    loading.apply(harness.shard, loader.decode(data))
    loading.finish(harness.shard)
    assert [(each.offset, each.is_batch) for each in loader.skipped] == [(42, False)]
    assert loader.skipped[0].reason
    assert loader.position == 45
    assert (number_of(harness), number_of(harness, 1)) == (7, 8)
    assert harness.shard.groups[P].generation == 12
    assert loader.decode(batch(45, offset(10)))
    assert not loader.skipped


def test_a_batch_whose_records_cannot_be_read_is_passed_over() -> None:
    """Its checksum is right: it was written so, before records were checked."""
    bad = seal(parse_header(batch(1, offset(5))), b"no records at all")
    harness, loader = Harness(), loading.Loader()
    loading.apply(harness.shard, loader.decode(batch(0, offset(4)) + bad + batch(2, offset(6, 1))))
    assert [(each.offset, each.is_batch) for each in loader.skipped] == [(1, True)]
    assert (loader.position, number_of(harness), number_of(harness, 1)) == (3, 4, 6)


@settings(max_examples=examples(300))
@given(st.data())
def test_any_group_value_is_loaded_or_skipped(data: st.DataObject) -> None:
    key, value = encode_fact(GROUP)
    assert value is not None
    changed = bytearray(value)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(2, len(value) - 1))] = data.draw(st.integers(0, 255))
    load(encode_batch([(key, bytes(changed), (), 1)]), batch(1, offset(3)))


def test_batches_before_the_position_are_not_taken_twice() -> None:
    harness, loader = Harness(), loading.Loader()
    first, second = batch(0, offset(1)), batch(1, offset(2))
    loading.apply(harness.shard, loader.decode(first + second))
    loading.apply(harness.shard, loader.decode(first))
    assert (loader.position, loader.record_count, number_of(harness)) == (2, 2, 2)


# --- transactions ---------------------------------------------------------------------------


def test_a_transactions_offsets_show_when_it_commits() -> None:
    open_one = batch(0, offset(1), producer_id=9)
    harness = load(open_one)
    assert number_of(harness) is None
    assert harness.shard.offsets.is_pending(P, "t", 0)
    assert P in harness.shard.groups  # The group is kept for them.
    assert number_of(load(open_one, marker(1, 9, committed=True))) == 1
    aborted = load(open_one, marker(1, 9, committed=False))
    assert number_of(aborted) is None
    assert not aborted.shard.offsets.is_pending(P, "t", 0)


def test_a_later_plain_commit_outdoes_an_earlier_transactional_one() -> None:
    chunks = [
        batch(0, offset(1), producer_id=9),
        batch(1, offset(2)),
        marker(2, 9, committed=True),
    ]
    assert number_of(load(*chunks)) == 2
    assert number_of(load(b"".join(chunks))) == 2


def test_a_later_transactional_commit_outdoes_an_earlier_plain_one() -> None:
    harness = load(
        batch(0, offset(2)) + batch(1, offset(1), producer_id=9) + marker(2, 9, committed=True)
    )
    assert number_of(harness) == 1


def test_transactions_of_two_producers_are_apart() -> None:
    harness = load(
        batch(0, offset(1), producer_id=8)
        + batch(1, offset(2, 1), producer_id=9)
        + marker(2, 9, committed=True)
    )
    assert (number_of(harness, 0), number_of(harness, 1)) == (None, 2)
    assert harness.shard.offsets.is_pending(P, "t", 0)
    assert not harness.shard.offsets.is_pending(P, "t", 1)


def test_a_tombstone_forgets_pending_offsets_too() -> None:
    harness = load(
        batch(0, offset(1), producer_id=9)
        + batch(1, offset(0, gone=True))
        + marker(2, 9, committed=True)
    )
    assert number_of(harness) is None


def test_a_tombstone_and_a_commit_after_it_count_both_while_a_transaction_is_open() -> None:
    # One chunk: keeping only the key's last record would leave the offset pending.
    harness = load(
        batch(0, offset(1), producer_id=9) + batch(1, offset(0, gone=True)) + batch(2, offset(5))
    )
    assert number_of(harness) == 5
    assert not harness.shard.offsets.is_pending(P, "t", 0)


# --- any log --------------------------------------------------------------------------------

FACTS = st.one_of(
    st.builds(offset, st.integers(0, 99), st.integers(0, 2), group=st.sampled_from(["g", P])),
    st.builds(offset, st.just(0), st.integers(0, 2), gone=st.just(True)),
    st.sampled_from([GROUP, EMPTY_GROUP, GroupFact(P, None)]),
)
ENTRIES = st.one_of(
    st.tuples(st.just(-1), st.lists(FACTS, min_size=1, max_size=4)),
    st.tuples(st.sampled_from([8, 9]), st.lists(FACTS, min_size=1, max_size=3)),
    st.tuples(st.sampled_from([8, 9]), st.booleans()),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ENTRIES, max_size=12), st.integers(1, 5))
def test_chunks_do_not_matter(entries: list[tuple[int, object]], per_chunk: int) -> None:
    batches: list[bytes] = []
    at = 0
    for producer_id, content in entries:
        if isinstance(content, list):
            plain = [fact for fact in content if isinstance(fact, OffsetFact)]
            facts = content if producer_id < 0 else plain
            if not facts:
                continue
            batches.append(batch(at, *facts, producer_id=producer_id))
            at += len(facts)
        else:
            batches.append(marker(at, producer_id, committed=bool(content)))
            at += 1
    one_by_one = load(*batches)
    chunks = [
        b"".join(batches[start : start + per_chunk]) for start in range(0, len(batches), per_chunk)
    ]
    assert durable(load(*chunks).shard) == durable(one_by_one.shard)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(FACTS, max_size=30))
def test_a_compacted_log_replays_to_the_same_state(facts: list[Fact]) -> None:
    last = {encode_fact(fact)[0]: at for at, fact in enumerate(facts)}
    whole = load(*(batch(at, fact) for at, fact in enumerate(facts)))
    kept = load(*(batch(at, facts[at]) for at in sorted(last.values())))
    assert kept.shard.offsets.state() == whole.shard.offsets.state()
    # A group without a record of its own is there exactly while it has offsets.
    for harness in (kept, whole):
        for group_id, group in list(harness.shard.groups.items()):
            if not group.generation and not harness.shard.offsets.of_group(group_id):
                del harness.shard.groups[group_id]
    assert durable(kept.shard) == durable(whole.shard)
