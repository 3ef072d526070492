"""A follower truncates exactly what the leader does not have, whatever happened before.

Method: real logs side by side; `converge` is what a fetcher and a leader do with each other, in
one loop. The classic stories are told one by one, then Hypothesis makes up histories of leaders.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.broker.replication.follower_rules import (
    OffsetReset,
    Reaction,
    decide_offset_reset,
    position_of,
    prepare,
    reaction_to,
    start_at_first_batch,
    truncation_offset,
)
from ottla.log.epoch_cache import EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.log.remote_prefix import RemotePrefix
from ottla.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, batch_crc, iter_headers
from tests.drawn import examples
from tests.unit.log.support import Environment, append, batch

ROUNDS_MAX = 20


def new_log() -> PartitionLog:
    return Environment().open()


def lead(log: PartitionLog, epoch: int, *sizes: int) -> None:
    """Make `log` the leader's in an epoch, in which it appends batches of so many records."""
    log.assign_epoch(epoch)
    for size in sizes:
        append(log, batch([b"%d" % epoch] * size), epoch=epoch)


def content(log: PartitionLog) -> bytes:
    """Return all bytes of the log, emptied batches too."""
    return b"".join(each.log.file().read_at(0, each.size) for each in log.segments)


def copy(source: PartitionLog, target: PartitionLog, *, upto: int | None = None) -> None:
    """Append what `target` lacks, as one fetch after another would."""
    data = content(source)
    for start, header in iter_headers(data):
        if header.base_offset >= target.log_end_offset and (
            upto is None or header.next_offset <= upto
        ):
            target.append_as_follower(data[start : start + header.size_in_bytes], now_ms=0)


def divergence(leader: PartitionLog, follower: PartitionLog) -> tuple[int, int] | None:
    """Return what a leader answers to the follower's position: see `Partition.read`."""
    offset, epoch = position_of(follower)
    if epoch < 0:
        return None
    found = leader.epoch_end_offset(epoch)
    assert found.end_offset >= 0, "a leader knows all epochs up to its own"
    if found.epoch < epoch or found.end_offset < offset:
        return found
    return None


def converge(leader: PartitionLog, follower: PartitionLog) -> int:
    """Follow `leader` until both are equal; return the number of truncations."""
    prepare(follower)
    for cuts in range(ROUNDS_MAX):
        found = divergence(leader, follower)
        if found is None:
            copy(leader, follower)
            assert content(follower) == content(leader)
            assert follower.log_end_offset == leader.log_end_offset
            return cuts
        before = position_of(follower)
        follower.truncate_to(truncation_offset(follower, *found))
        assert position_of(follower) != before, "the same question would be asked for ever"
    raise AssertionError("the logs do not converge")


# --- the classic stories -----------------------------------------------------------------------


def test_equal_logs_truncate_nothing() -> None:
    one, two = new_log(), new_log()
    lead(one, 0, 3, 2)
    assert converge(one, two) == 0
    lead(one, 1, 1)
    assert converge(one, two) == 0


def test_a_fenced_leaders_longer_log_is_truncated() -> None:
    """KIP-101, scenario 2: what the old leader wrote alone must go, though it is longer."""
    old, new = new_log(), new_log()
    lead(old, 0, 2)
    copy(old, new)
    append(old, batch([b"never acknowledged"] * 5))
    lead(new, 1, 1)
    assert converge(new, old) == 1
    assert old.log_end_offset == 3


def test_no_acknowledged_record_is_truncated_where_the_high_watermark_lags() -> None:
    """KIP-101, scenario 1: both restart, and the follower never got the high watermark."""
    one, two = new_log(), new_log()
    lead(one, 0, 1, 1)
    copy(one, two)
    two.advance_high_watermark(1)
    assert converge(one, two) == 0
    assert two.log_end_offset == 2
    lead(two, 1)
    assert converge(two, one) <= 1
    assert one.log_end_offset == 2


def test_two_leaders_in_quick_succession() -> None:
    """KIP-279: the follower lacks the epochs in the responses, and fetches again."""
    one, two, three = new_log(), new_log(), new_log()
    lead(one, 0, 10)
    copy(one, two)
    copy(one, three)
    lead(two, 1, 5)  # No follower has this,
    lead(one, 2, 3, 3)  # nor this.
    lead(three, 3, 1)
    assert converge(three, one) >= 1
    assert converge(three, two) >= 1
    assert one.log_end_offset == two.log_end_offset == 11


def test_epochs_interleaved_so_that_several_rounds_are_needed() -> None:
    one, two = new_log(), new_log()
    lead(one, 0, 4)
    copy(one, two)
    for epoch in range(1, 9, 2):
        lead(one, epoch, 2)
        lead(two, epoch + 1, 2)
    lead(one, 9, 1)
    assert converge(one, two) > 1


def test_a_leader_without_records_does_not_cause_endless_fetches() -> None:
    """Its empty epoch is at the log's end, where no truncation removes it."""
    one, two = new_log(), new_log()
    lead(one, 0, 2)
    copy(one, two)
    lead(two, 1)
    lead(one, 2)
    assert converge(one, two) == 1
    assert two.log_end_offset == 2
    assert two.latest_epoch == 0


def test_an_unclean_leader_that_lacks_records_wins() -> None:
    old, late = new_log(), new_log()
    lead(old, 0, 2, 2)
    copy(old, late, upto=2)
    old.advance_high_watermark(4)
    lead(late, 1, 1)
    assert converge(late, old) == 1
    assert old.log_end_offset == old.high_watermark + 1 == 3


def test_a_log_without_epochs_keeps_only_what_is_committed() -> None:
    one, two = new_log(), new_log()
    lead(one, 0, 1, 1, 1)
    copy(one, two)
    two.advance_high_watermark(2)
    two.epochs.clear()
    assert prepare(two)
    assert two.log_end_offset == 2


def test_an_empty_log_has_nothing_to_prepare() -> None:
    assert not prepare(new_log())


def test_a_log_that_was_fully_truncated_continues_from_there() -> None:
    log = new_log()
    log.truncate_fully_and_start_at(50)
    assert not prepare(log)
    assert position_of(log) == (50, -1)


def test_the_first_batch_of_an_empty_log_leaves_its_remote_prefix() -> None:
    log = new_log()
    prefix = RemotePrefix(log_start_offset=10, epochs=(EpochEntry(0, 10),))
    log.truncate_fully_and_start_at(51, prefix)
    assert start_at_first_batch(log, memoryview(stamped(batch(3), 50, 1)))
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 50, 50)
    assert log.epochs.entries == ((0, 10),)


# --- compacted and emptied batches -------------------------------------------------------------


def emptied(data: bytes) -> bytes:
    """Return a batch as compaction leaves it that kept none of its records."""
    header = list(HEADER.unpack_from(data))
    header[1], header[12] = HEADER_SIZE - LOG_OVERHEAD, 0
    raw = bytearray(HEADER.pack(*header))
    header[4] = batch_crc(raw, 0, HEADER_SIZE)
    return HEADER.pack(*header)


def stamped(data: bytes | bytearray, offset: int, epoch: int) -> bytes:
    fields = list(HEADER.unpack_from(data))
    fields[0], fields[2] = offset, epoch
    return HEADER.pack(*fields) + bytes(data[HEADER_SIZE:])


def test_gaps_of_compaction_are_replicated() -> None:
    leader, follower = new_log(), new_log()
    for offset, epoch in ((0, 0), (7, 1), (20, 3)):
        leader.append_as_follower(stamped(batch(2), offset, epoch), now_ms=0)
    lead(leader, 4)
    assert converge(leader, follower) == 0
    assert [entry.epoch for entry in follower.epochs.entries] == [0, 1, 3]


def test_emptied_batches_are_replicated_with_their_offsets_and_epochs() -> None:
    leader, follower = new_log(), new_log()
    leader.append_as_follower(stamped(batch(2), 0, 0), now_ms=0)
    leader.append_as_follower(emptied(stamped(batch(3), 2, 1)), now_ms=0)
    lead(leader, 2)
    assert converge(leader, follower) == 0
    assert position_of(follower) == (5, 1)


def test_a_truncation_into_a_gap_goes_back_to_its_beginning() -> None:
    """A compacted record may be superseded by truncated ones: it must be fetched again."""
    leader, follower = new_log(), new_log()
    lead(leader, 0, 5, 5)
    copy(leader, follower, upto=5)
    follower.append_as_follower(stamped(batch(2), 15, 1), now_ms=0)
    lead(leader, 2, 1)
    found = divergence(leader, follower)
    assert found == (0, 10)
    follower.truncate_to(truncation_offset(follower, *found))
    assert position_of(follower) == (5, 0)
    assert converge(leader, follower) == 0


@pytest.mark.parametrize("between", [6, 7, 9])
def test_a_former_leader_keeps_no_record_where_another_follower_has_a_gap(between: int) -> None:
    """The leader has replicated a compacted log: it does not know where its epochs began."""
    former, leader = new_log(), new_log()
    lead(former, 0, 5)
    copy(former, leader, upto=5)
    former.append_as_follower(stamped(batch(between - 5), 5, 0), now_ms=0)
    leader.append_as_follower(stamped(batch(2), 10, 1), now_ms=0)
    lead(leader, 2, 1)
    assert converge(leader, former) == 1


def test_a_whole_epoch_compacted_away_at_the_follower() -> None:
    leader, follower = new_log(), new_log()
    lead(leader, 0, 3)
    lead(leader, 1, 3)
    copy(leader, follower, upto=3)
    follower.append_as_follower(stamped(batch(1), 6, 5), now_ms=0)  # Led alone, without epoch 1.
    lead(leader, 6, 1)
    converge(leader, follower)


# --- made-up histories -------------------------------------------------------------------------

STEP = st.tuples(
    st.integers(0, 2),  # who leads
    st.lists(st.integers(1, 4), max_size=3),  # what it appends
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=3),  # who follows how far
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8), st.integers(0, 2))
def test_whatever_the_leaders_were_the_last_one_is_followed(
    history: list[tuple[int, list[int], list[tuple[int, int]]]], last: int
) -> None:
    """Followers converge to the leader, and keep all that both have: only its rival's goes."""
    logs = [new_log(), new_log(), new_log()]
    epoch = 0
    for leader, sizes, followers in history:
        lead(logs[leader], epoch, *sizes)
        epoch += 1
        for node, upto in followers:
            if node == leader:
                continue
            while (found := divergence(logs[leader], logs[node])) is not None:
                logs[node].truncate_to(truncation_offset(logs[node], *found))
            copy(logs[leader], logs[node], upto=upto)
    lead(logs[last], epoch, 1)
    expected = content(logs[last])
    for node in range(3):
        if node != last:
            shared = common_bytes(content(logs[node]), expected)
            cut_to = follow_without_copying(logs[last], logs[node])
            assert cut_to >= shared, "a record that both have was cut"
            converge(logs[last], logs[node])
    assert all(content(log) == expected for log in logs)


def common_bytes(one: bytes, other: bytes) -> int:
    """Return how many bytes of whole batches both begin with."""
    same = 0
    for start, header in iter_headers(one):
        end = start + header.size_in_bytes
        if other[start:end] != one[start:end]:
            break
        same = end
    return same


def follow_without_copying(leader: PartitionLog, follower: PartitionLog) -> int:
    while (found := divergence(leader, follower)) is not None:
        follower.truncate_to(truncation_offset(follower, *found))
    return follower.size_bytes


# --- error codes and lost offsets ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reaction"),
    [
        (Error.NONE, Reaction.APPEND),
        (Error.OFFSET_OUT_OF_RANGE, Reaction.RESET_OFFSET),
        (Error.FENCED_LEADER_EPOCH, Reaction.RETRY),
        (Error.UNKNOWN_LEADER_EPOCH, Reaction.RETRY),
        (Error.UNKNOWN_TOPIC_ID, Reaction.RETRY),
        (Error.OFFSET_MOVED_TO_TIERED_STORAGE, Reaction.BUILD_AUX_STATE),
        (Error.CORRUPT_MESSAGE, Reaction.RETRY_UNEXPECTED),
        (12_345, Reaction.RETRY_UNEXPECTED),
    ],
)
def test_what_is_done_about_an_error(error: int, reaction: Reaction) -> None:
    assert reaction_to(error) is reaction


@pytest.mark.parametrize(
    ("own", "leaders", "what"),
    [
        ((0, 10), (0, 4), OffsetReset.TRUNCATE),
        ((0, 10), (20, 30), OffsetReset.TRUNCATE_FULLY),
        ((0, 10), (5, 30), OffsetReset.KEEP),
        ((0, 10), (10, 10), OffsetReset.KEEP),
        ((8, 10), (0, 4), OffsetReset.TRUNCATE_FULLY),
    ],
)
def test_where_to_go_on(own: tuple[int, int], leaders: tuple[int, int], what: OffsetReset) -> None:
    log = new_log()
    log.truncate_fully_and_start_at(own[0])
    lead(log, 0, own[1] - own[0])
    assert decide_offset_reset(log, *leaders) is what


def test_an_unknown_end_truncates_to_the_high_watermark() -> None:
    log = new_log()
    lead(log, 0, 3)
    log.advance_high_watermark(1)
    assert truncation_offset(log, -1, -1) == 1
