"""Checkers demand of each topic what it promises, no more and no less.

Method: histories of a few lines under each promise, one that keeps it and one that breaks it.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import delete_records as checkers_promises
from ottla.testing.checkers import metadata as checkers_metadata
from ottla.testing.checkers import records as checkers
from ottla.testing.history.history import (
    Acknowledgement,
    History,
    LogSeen,
    PartitionSeen,
    PowerLoss,
    Read,
    Skipped,
    Watermark,
    Write,
)
from ottla.testing.history.topics import KEEPS_ALL, Outcome, Promise, Trim

TOPIC = Uuid(bytes(15) + b"\x09")
PARTITION = (TOPIC, 0)
COMPACTED = Promise(compacted=True)
FORGETFUL = Promise(compacted=True, keeps_tombstones=False)
TRIMMED = Promise(trimmed=True)
WEAK = Promise(weak=True)
UNCLEAN = Promise(unclean=True)


def keyed(value: bytes, key: bytes, offset: int, *, tombstone: bool = False) -> Write:
    outcome = Outcome.ACKNOWLEDGED if offset >= 0 else Outcome.UNKNOWN
    return Write(
        client="p",
        partition=PARTITION,
        values=(value,),
        number=offset,
        outcome=outcome,
        offset=offset,
        sent_ms=100,
        ended_ms=110,
        keys=(key,),
        tombstones=(tombstone,),
    )


def log_of(values: dict[int, bytes], *, start: int = 0, node: int = 1) -> LogSeen:
    return LogSeen(node, PARTITION, start, 10, values)


def history_of(promise: Promise, **parts: object) -> History:
    history = History(**parts)  # type: ignore[arg-type]
    history.promises[TOPIC] = promise
    return history


# -- compaction --------------------------------------------------------------------------------

WRITES = [keyed(b"old", b"k", 0), keyed(b"new", b"k", 1)]


@pytest.mark.parametrize(
    ("promise", "values", "lost"),
    [
        (COMPACTED, {1: b"new"}, 0),
        (COMPACTED, {0: b"old"}, 1),
        (COMPACTED, {}, 2),
        (COMPACTED, {0: b"other", 1: b"new"}, 1),
        (KEEPS_ALL, {1: b"new"}, 1),
    ],
)
def test_a_record_may_go_once_a_newer_one_of_its_key_is_there(
    promise: Promise, values: dict[int, bytes], lost: int
) -> None:
    history = history_of(promise, writes=WRITES, logs=[log_of(values)])
    assert len(checkers.acknowledged_writes_lost(history)) == lost


def test_another_keys_record_replaces_none() -> None:
    writes = [keyed(b"old", b"k", 0), keyed(b"new", b"other", 1)]
    history = history_of(COMPACTED, writes=writes, logs=[log_of({1: b"new"})])
    assert len(checkers.acknowledged_writes_lost(history)) == 1


@pytest.mark.parametrize("offset", [1, -1])
def test_a_tombstone_and_what_it_deleted_go_where_tombstones_may(offset: int) -> None:
    writes = [keyed(b"old", b"k", 0), keyed(b"gone", b"k", offset, tombstone=True)]
    logs = [log_of({})]
    kept = history_of(FORGETFUL, writes=writes, logs=logs)
    assert checkers.acknowledged_writes_lost(kept) == []
    lost = history_of(COMPACTED, writes=writes, logs=logs)
    assert len(checkers.acknowledged_writes_lost(lost)) == (2 if offset >= 0 else 1)


def test_a_tombstone_excuses_no_later_record() -> None:
    writes = [keyed(b"gone", b"k", 0, tombstone=True), keyed(b"new", b"k", 1)]
    history = history_of(FORGETFUL, writes=writes, logs=[log_of({})])
    (witness,) = checkers.acknowledged_writes_lost(history)
    assert "b'new'" in witness.text


@pytest.mark.parametrize(("sent_ms", "lost"), [(300, 0), (60_000, 0), (100_000, 1)])
@pytest.mark.parametrize("offset", [-1, 0])
def test_a_tombstone_excuses_no_record_that_was_sent_long_after_it(
    offset: int, sent_ms: int, lost: int
) -> None:
    """Its place is unknown: it was not acknowledged, or has a copy."""
    tombstone = keyed(b"gone", b"k", offset, tombstone=True)
    later = keyed(b"new", b"k", 1)._replace(sent_ms=sent_ms, ended_ms=sent_ms + 10)
    history = history_of(
        FORGETFUL, writes=[tombstone, later], logs=[log_of({})], requests_repeated=True
    )
    assert len(checkers.acknowledged_writes_lost(history)) == lost


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_tombstone_that_was_delivered_twice_may_go_with_what_is_between(
    is_repeated: bool,
) -> None:
    """A producer that is not idempotent: its request was appended at offset 0, and again at 2."""
    tombstone = keyed(b"gone", b"k", 0, tombstone=True)
    between = keyed(b"between", b"k", 1)
    reads = [Read("c", PARTITION, 2, b"gone", 200), Read("c", PARTITION, 1, b"between", 200)]

    def lost(*writes: Write) -> int:
        history = history_of(
            FORGETFUL,
            writes=list(writes),
            reads=reads,
            logs=[log_of({})],
            requests_repeated=is_repeated,
        )
        return len(checkers.reads_lost(history))

    assert lost(tombstone, between) == (0 if is_repeated else 2)
    # A broker recognizes the second copy of an idempotent producer's batch.
    assert lost(tombstone._replace(producer=(7, 0)), between) == 2


@pytest.mark.parametrize("is_repeated", [False, True])
def test_the_second_copy_of_a_rejected_tombstone_may_be_accepted(is_repeated: bool) -> None:
    old = keyed(b"old", b"k", 0)
    rejected = keyed(b"gone", b"k", -1, tombstone=True)._replace(outcome=Outcome.FAILED)
    history = history_of(
        FORGETFUL, writes=[old, rejected], logs=[log_of({})], requests_repeated=is_repeated
    )
    assert len(checkers.acknowledged_writes_lost(history)) == (0 if is_repeated else 1)


def test_a_read_record_may_be_cleaned_and_its_offset_be_skipped() -> None:
    reads = [Read("c", PARTITION, 0, b"old", 200)]
    skipped = [Skipped("c", PARTITION, 0, 1, 200)]
    for promise, found in ((COMPACTED, 0), (KEEPS_ALL, 2)):
        history = history_of(
            promise, writes=WRITES, reads=reads, skipped=skipped, logs=[log_of({1: b"new"})]
        )
        assert len(checkers.reads_lost(history)) == found


# -- records that go from the start on ---------------------------------------------------------


@pytest.mark.parametrize(
    ("promise", "skipped", "found"),
    [
        (TRIMMED, Skipped("c", PARTITION, 3, 7, 200, was_reset=True), 0),
        (TRIMMED, Skipped("c", PARTITION, 9, 3, 200, was_reset=True, end=9), 0),
        (TRIMMED, Skipped("c", PARTITION, 9, 3, 200, was_reset=True, end=8), 1),
        (TRIMMED, Skipped("c", PARTITION, 3, 7, 200), 1),
        (KEEPS_ALL, Skipped("c", PARTITION, 3, 7, 200, was_reset=True), 1),
        (COMPACTED, Skipped("c", PARTITION, 3, 7, 200, was_reset=True), 1),
    ],
)
def test_a_consumer_may_be_reset_to_the_log_start(
    promise: Promise, skipped: Skipped, found: int
) -> None:
    assert len(checkers.reads_lost(history_of(promise, skipped=[skipped]))) == found


def test_a_trim_is_done_by_all_replicas_in_sync_and_as_far_as_was_asked_for() -> None:
    done = Trim(PARTITION, 5, 5, ((1, 5), (2, 7)))
    to_the_end = Trim(PARTITION, -1, 9, ((1, 9),))
    too_little = Trim(PARTITION, 5, 4, ((1, 5),))
    too_soon = Trim(PARTITION, 5, 5, ((1, 5), (2, 4)))
    assert checkers_promises.trims_that_are_wrong(History(trims=[done, to_the_end])) == []
    for wrong in (too_little, too_soon):
        assert len(checkers_promises.trims_that_are_wrong(History(trims=[wrong]))) == 1


# -- weaker durability -------------------------------------------------------------------------


def lost_at(*times_ms: int) -> list[PowerLoss]:
    return [PowerLoss(1, at_ms) for at_ms in times_ms]


WRITE = Write("p", PARTITION, (b"a",), 0, Outcome.ACKNOWLEDGED, 0, sent_ms=100, ended_ms=110)


@pytest.mark.parametrize(
    ("promise", "losses", "lost"),
    [
        (WEAK, [], 1),
        (WEAK, [99], 1),
        (WEAK, [105], 0),
        (WEAK, [50, 500], 0),
        (KEEPS_ALL, [500], 1),
    ],
)
def test_a_weak_topic_may_lose_what_was_written_before_a_loss_of_power(
    promise: Promise, losses: list[int], lost: int
) -> None:
    history = history_of(promise, writes=[WRITE], logs=[log_of({})], losses=lost_at(*losses))
    assert len(checkers.acknowledged_writes_lost(history)) == lost


def test_a_failed_disk_excuses_a_weak_topic_as_well() -> None:
    for promise, lost in ((WEAK, 0), (KEEPS_ALL, 1)):
        history = history_of(promise, writes=[WRITE], logs=[log_of({})], disks_failed={1})
        assert len(checkers.acknowledged_writes_lost(history)) == lost


@pytest.mark.parametrize(("node", "lost"), [(1, 0), (2, 0), (3, 1), (101, 1)])
def test_only_what_befalls_a_replica_excuses_a_weak_topic(node: int, lost: int) -> None:
    moved = [state(1, 0, 10)._replace(replicas=(1,)), state(2, 1, 20)._replace(replicas=(2,))]
    parts: dict[str, object] = {"writes": [WRITE], "logs": [log_of({})], "partitions": moved}
    watermarks = [
        Watermark("c", PARTITION, offset, "list_offsets", at_ms=at_ms)
        for offset, at_ms in ((9, 600), (5, 700))
    ]
    for happened in ({"losses": [PowerLoss(node, 500)]}, {"disks_failed": {node}}):
        history = history_of(WEAK, watermarks=watermarks, **parts, **happened)
        assert len(checkers.acknowledged_writes_lost(history)) == lost
        assert len(checkers.watermarks_that_fell(history)) == lost


def state(leader: int, epoch: int, at_ms: int, *, isr: tuple[int, ...] = (1,)) -> PartitionSeen:
    return PartitionSeen(PARTITION, epoch, (1, 2), isr, leader, epoch, epoch, at_ms=at_ms)


def test_an_unclean_election_may_take_records_where_the_topic_allows_it() -> None:
    elections = [state(1, 0, 10), state(2, 1, 300, isr=(2,))]
    for promise, lost, broken in ((UNCLEAN, 0, 0), (KEEPS_ALL, 1, 1)):
        history = history_of(promise, writes=[WRITE], logs=[log_of({})], partitions=elections)
        assert len(checkers.acknowledged_writes_lost(history)) == lost
        assert len(checkers_metadata.partition_rules_broken(history)) == broken


@pytest.mark.parametrize(("epoch", "lost"), [(-1, 0), (0, 0), (1, 1), (2, 1)])
def test_what_a_leader_had_after_an_unclean_election_must_stay(epoch: int, lost: int) -> None:
    elections = [state(1, 0, 10), state(2, 1, 300, isr=(2,))]
    read = Read("c", PARTITION, 0, b"gone", at_ms=900, node=2, epoch=epoch)
    history = history_of(UNCLEAN, reads=[read], logs=[log_of({})], partitions=elections)
    assert len(checkers.reads_lost(history)) == lost


@pytest.mark.parametrize(
    ("acknowledged", "lost"),
    [
        ([], 0),
        ([(1, 0)], 0),
        ([(2, 1)], 1),
        ([(2, 2)], 1),
        ([(1, 0), (2, 1)], 1),
        ([(2, 2), (2, 0)], 0),
    ],
)
def test_what_is_acknowledged_after_an_unclean_election_must_stay(
    acknowledged: list[tuple[int, int]], lost: int
) -> None:
    elections = [state(1, 0, 10), state(2, 1, 300, isr=(2,))]
    history = history_of(
        UNCLEAN,
        writes=[WRITE._replace(node=2)],
        acknowledgements=[
            Acknowledgement(node, PARTITION, epoch, 0, crc=epoch) for node, epoch in acknowledged
        ],
        logs=[log_of({})],
        partitions=elections,
    )
    assert len(checkers.acknowledged_writes_lost(history)) == lost


def test_without_an_unclean_election_such_a_topic_keeps_all() -> None:
    clean = [state(1, 0, 10, isr=(1, 2)), state(2, 1, 300, isr=(2,))]
    history = history_of(UNCLEAN, writes=[WRITE], logs=[log_of({})], partitions=clean)
    assert len(checkers.acknowledged_writes_lost(history)) == 1


def test_a_watermark_may_fall_only_after_something_was_lost() -> None:
    watermarks = [
        Watermark("c", PARTITION, offset, "list_offsets", at_ms=at_ms)
        for offset, at_ms in ((9, 100), (5, 200))
    ]
    for losses, found in (([150], 0), ([250], 1)):
        history = history_of(WEAK, watermarks=watermarks, losses=lost_at(*losses))
        assert len(checkers.watermarks_that_fell(history)) == found


# -- acks --------------------------------------------------------------------------------------


def test_what_the_leader_alone_has_acknowledged_is_not_promised() -> None:
    history = History(writes=[WRITE._replace(acks=1)], logs=[log_of({0: b"other"})])
    assert checkers.acknowledged_writes_lost(history) == []
    assert checkers.two_values_at_one_offset(history) == []
