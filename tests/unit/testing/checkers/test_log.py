"""Each anomaly of logs is found in a log that has it, and in no other.

Method: logs of a few batches, a sound one and the same with one thing changed.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.testing.checkers import log as checkers_log
from ottla.testing.checkers import log_files as checkers_log_files
from ottla.testing.history.history import History, Write
from ottla.testing.history.log import (
    BatchSeen,
    ProducerSeen,
    RecordSeen,
    ReplicaLog,
    SegmentSeen,
)
from ottla.testing.history.topics import KEEPS_ALL, Outcome, Promise

FORGETFUL = Promise(compacted=True, keeps_tombstones=False)
PARTITION = (Uuid(bytes(15) + b"\x07"), 0)
FIRST = BatchSeen(4, 5, 1, 41, 2, 900, 0, 1, 1_000, position=0, size=80)
SECOND = BatchSeen(6, 6, 1, 42, 1, 900, 0, 2, 1_005, position=80, size=70)
THIRD = BatchSeen(7, 9, 3, 43, 3, 901, 2, 2, 1_003, position=0, size=90)
SEALED = SegmentSeen(4, 150, 150, (FIRST, SECOND), None, ((6, 80),), ((1_005, 6),))
ACTIVE = SegmentSeen(7, 90, 90, (THIRD,), is_active=True, largest=1_003)
LOG = ReplicaLog(
    node=1,
    partition=PARTITION,
    start=4,
    end=10,
    high_watermark=10,
    segments=(SEALED, ACTIVE),
    epochs=((1, 4), (3, 7)),
    epochs_stored=((1, 4), (3, 7)),
    producers=(ProducerSeen(900, 0, ((1, 5), (2, 6))), ProducerSeen(901, 2, ((2, 9),))),
    at_ms=12,
)


def with_third(**change: object) -> ReplicaLog:
    batch = THIRD._replace(**change)  # type: ignore[arg-type]
    return LOG._replace(segments=(SEALED, ACTIVE._replace(batches=(batch,))))


def with_sealed(**change: object) -> ReplicaLog:
    return LOG._replace(segments=(SEALED._replace(**change), ACTIVE))  # type: ignore[arg-type]


# -- log is damaged ----------------------------------------------------------------------------


def damages(log: ReplicaLog) -> list[str]:
    return [each.text for each in checkers_log.damaged_logs(History(replica_logs=[log]))]


@pytest.mark.parametrize(
    "log",
    [
        LOG,
        LOG._replace(start=5),
        LOG._replace(start=8),
        with_third(base_offset=8, record_count=2)._replace(compacted=True),
        with_third(record_count=1)._replace(compacted=True),
        with_third(base_offset=8, record_count=2)._replace(start=8),
        LOG._replace(end=12, compacted=True),
        LOG._replace(start=10, segments=(SegmentSeen(10, 0, 0, is_active=True),)),
    ],
    ids=str,
)
def test_a_sound_log_is_well(log: ReplicaLog) -> None:
    assert damages(log) == []


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (with_third(base_offset=8, record_count=2), "7 to 8 are missing"),
        (with_third(base_offset=6, record_count=4), "offset 6 follows offset 6"),
        (with_third(epoch=0), "epoch 0 follows"),
        (with_third(record_count=2), "2 of 3"),
        (with_third(record_count=4), "has 4 records"),
        (LOG._replace(end=12), "end at 10"),
        (LOG._replace(end=9, high_watermark=9), "end at 10"),
        (LOG._replace(high_watermark=11), "its high watermark is 11"),
        (LOG._replace(start=3), "first segment begins at 4"),
        (LOG._replace(strange=("00.log",)), "file 00.log is of none"),
        (with_sealed(damage="CRC"), "segment 4: CRC"),
        (with_sealed(file_size=151), "has 151 bytes"),
        (with_sealed(base_offset=5), "begins with offset 4"),
        (
            with_sealed(batches=(FIRST, SECOND._replace(last_offset=7, record_count=2))),
            "holds offset 7",
        ),
    ],
    ids=str,
)
def test_damage_is_found(log: ReplicaLog, text: str) -> None:
    found = damages(log)
    assert any(text in each for each in found), found


# -- logs differ -------------------------------------------------------------------------------


def differences(one: ReplicaLog, other: ReplicaLog) -> int:
    history = History(replica_logs=[one, other._replace(node=2)])
    return len(checkers_log.logs_that_differ(history))


def test_equal_logs_are_well_wherever_they_begin() -> None:
    assert differences(LOG, LOG) == 0
    later = LOG._replace(start=7, segments=(ACTIVE,))
    assert differences(LOG, later) == differences(later, LOG) == 0


@pytest.mark.parametrize("change", [{"crc": 44}, {"epoch": 4}, {"last_offset": 8}])
def test_another_batch_is_found(change: dict[str, int]) -> None:
    assert differences(LOG, with_third(**change)) == 1


def test_what_is_not_committed_may_differ() -> None:
    assert differences(LOG, with_third(crc=44)._replace(high_watermark=7)) == 0


def test_a_batch_that_one_lacks_is_found() -> None:
    assert differences(LOG, LOG._replace(segments=(SEALED,))) == 1


def compacted(*records: RecordSeen, epoch: int = 1) -> ReplicaLog:
    batches = tuple(
        BatchSeen(each.offset, each.offset, epoch, each.offset, records=(each,)) for each in records
    )
    return LOG._replace(compacted=True, segments=(SegmentSeen(4, 9, 9, batches, is_active=True),))


OLD, NEW = RecordSeen(4, b"k", b"1", 7), RecordSeen(6, b"k", b"2", 8)
TOMBSTONE = RecordSeen(9, b"k", None, 9)


def test_one_replica_may_be_cleaned_further() -> None:
    assert differences(compacted(OLD, NEW), compacted(NEW)) == 0
    assert differences(compacted(OLD, TOMBSTONE), compacted(OLD)) == 0


def test_a_replica_that_missed_a_tombstone_may_keep_what_it_deleted() -> None:
    tombstone = Write(
        "p", LOG.partition, (b"t",), 0, Outcome.ACKNOWLEDGED, 9, keys=(b"k",), tombstones=(True,)
    )
    logs = [compacted(NEW), compacted()]
    for promise, found in ((FORGETFUL, 0), (KEEPS_ALL, 1)):
        history = History(replica_logs=logs, writes=[tombstone])
        history.promises[LOG.partition[0]] = promise
        assert len(checkers_log.logs_that_differ(history)) == found


@pytest.mark.parametrize(
    "other",
    [compacted(OLD), compacted(NEW._replace(value=b"3")), compacted(NEW, epoch=2)],
    ids=["newest gone", "other value", "other epoch"],
)
def test_other_values_of_compacted_logs_are_found(other: ReplicaLog) -> None:
    assert differences(compacted(OLD, NEW), other) == differences(other, compacted(OLD, NEW)) == 1


# -- index wrong -------------------------------------------------------------------------------


def wrong(log: ReplicaLog) -> list[str]:
    return [each.text for each in checkers_log_files.indexes_wrong(History(replica_logs=[log]))]


@pytest.mark.parametrize(
    "log",
    [
        LOG,
        LOG._replace(epochs=((1, 4), (3, 7), (5, 10)), epochs_stored=None),
        LOG._replace(start=5, epochs=((1, 5), (3, 7)), epochs_stored=None),
        LOG._replace(
            epochs=((2, 4), (3, 6)),
            epochs_stored=None,
            compacted=True,
            segments=(ACTIVE,),
            producers=LOG.producers[1:],
        ),
        LOG._replace(producers=LOG.producers[1:], forgets=True),
        LOG._replace(producers=(ProducerSeen(900, 0, ((2, 6),)), LOG.producers[1])),
        LOG._replace(producers=(*LOG.producers, ProducerSeen(902, 0, ((1, 3),)))),
        with_sealed(offset_index=(), time_index=((1_000, 5), (1_005, 6))),
    ],
    ids=str,
)
def test_what_the_batches_say_is_well(log: ReplicaLog) -> None:
    assert wrong(log) == []


def test_a_cleaning_that_leaves_nothing_of_a_producer_is_found() -> None:
    log = LOG._replace(compacted=True, segments=(ACTIVE,), epochs=((2, 4), (3, 6)))
    assert any("producer 900 has batch" in text for text in wrong(log))


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (with_sealed(offset_index=((6, 81),)), "the offset index has 6 at 81"),
        (with_sealed(offset_index=((4, 0),)), "the offset index has 4"),
        (with_sealed(time_index=((1_006, 6),)), "the time index has 1006"),
        (with_sealed(time_index=((1_000, 5),)), "the time index ends with 1000"),
        (with_sealed(time_index=()), "the time index ends with -1"),
        (
            LOG._replace(segments=(SEALED, ACTIVE._replace(largest=1_002))),
            "in memory is 1002, in the file 1003",
        ),
        (LOG._replace(epochs_stored=((1, 4),)), "their file has"),
        (LOG._replace(epochs=((1, 4), (3, 8)), epochs_stored=None), "offset 7 of epoch 3"),
        (LOG._replace(epochs=((1, 4), (3, 6)), epochs_stored=None), "offset 6 of epoch 1"),
        (LOG._replace(epochs=((1, 4),), epochs_stored=None), "in epoch 1 of the cache"),
        (
            LOG._replace(epochs=((1, 4), (2, 5), (3, 7)), epochs_stored=None),
            "epoch 2 begins at 5",
        ),
        (LOG._replace(producers=LOG.producers[1:]), "producer 900 is forgotten"),
        (
            LOG._replace(producers=(ProducerSeen(900, 0, ((3, 6),)), LOG.producers[1])),
            "producer 900",
        ),
        (
            LOG._replace(producers=(ProducerSeen(900, 1, ((2, 6),)), LOG.producers[1])),
            "producer 900",
        ),
        (
            LOG._replace(producers=(*LOG.producers, ProducerSeen(902, 0, ((1, 8),)))),
            "producer 902 has batch",
        ),
    ],
    ids=str,
)
def test_what_the_batches_do_not_say_is_found(log: ReplicaLog, text: str) -> None:
    found = wrong(log)
    assert any(text in each for each in found), found


# -- aborted transactions ----------------------------------------------------------------------

DATA = BatchSeen(0, 1, 0, 51, 2, 900, 0, 1, 1_000, is_transactional=True)
OTHER = BatchSeen(2, 2, 0, 52, 1, 901, 0, 0, 1_000, is_transactional=True)
MARKER = BatchSeen(3, 3, 0, 53, 1, 900, 0, -1, 1_000, is_control=True, aborts=True)
AGAIN = BatchSeen(4, 4, 0, 54, 1, 900, 0, 2, 1_000, is_transactional=True)
COMMITTED = BatchSeen(5, 5, 0, 55, 1, 901, 0, -1, 1_000, is_control=True)
ABORTED_AGAIN = BatchSeen(6, 6, 0, 56, 1, 900, 0, -1, 1_000, is_control=True, aborts=True)
ENTRY = AbortedTransaction(900, 0, 3, 2)
ENTRY_AGAIN = AbortedTransaction(900, 4, 6, 7)
TRANSACTIONS = (DATA, OTHER, MARKER, AGAIN, COMMITTED, ABORTED_AGAIN)


def transactions_wrong(
    batches: tuple[BatchSeen, ...],
    entries: tuple[AbortedTransaction, ...] | None,
    **log: object,
) -> list[str]:
    base = batches[0].base_offset
    segment = SegmentSeen(base, 1, 1, batches, is_active=True, aborted=entries)
    seen = ReplicaLog(1, PARTITION, base, 7, 7, (segment,), **log)  # type: ignore[arg-type]
    return [*checkers_log_files._aborted(seen)]


@pytest.mark.parametrize(
    ("batches", "entries"),
    [
        (TRANSACTIONS, (ENTRY, ENTRY_AGAIN)),
        (TRANSACTIONS[2:], (ENTRY, ENTRY_AGAIN)),
        (TRANSACTIONS[2:], (ENTRY_AGAIN,)),
        (TRANSACTIONS[1:], (ENTRY, ENTRY_AGAIN)),
        (TRANSACTIONS[:3], (ENTRY._replace(last_stable_offset=1),)),
    ],
    ids=["whole", "begins below", "not known", "the other began below", "too careful"],
)
def test_what_was_aborted_is_in_the_index(
    batches: tuple[BatchSeen, ...], entries: tuple[AbortedTransaction, ...]
) -> None:
    assert transactions_wrong(batches, entries) == []


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ((ENTRY,), "no entry"),
        ((ENTRY, ENTRY_AGAIN, ENTRY._replace(last_offset=5)), "of no marker"),
        ((ENTRY._replace(producer_id=901), ENTRY_AGAIN), "the transaction index has"),
        ((ENTRY._replace(first_offset=1), ENTRY_AGAIN), "what it began at 0"),
        ((ENTRY, ENTRY_AGAIN._replace(first_offset=3)), "what it began at 4"),
        ((ENTRY._replace(last_stable_offset=3), ENTRY_AGAIN), "where 2 is the last stable offset"),
        (None, "cannot be decoded"),
    ],
    ids=["left out", "too many", "another's", "late", "early", "unstable", "damaged"],
)
def test_an_index_unlike_the_markers_is_found(
    entries: tuple[AbortedTransaction, ...] | None, text: str
) -> None:
    (found,) = transactions_wrong(TRANSACTIONS, entries)
    assert text in found


def test_a_transaction_that_begins_below_the_log_is_not_known_to_begin_later() -> None:
    batches = (AGAIN, ABORTED_AGAIN)
    assert transactions_wrong(batches, (ENTRY_AGAIN._replace(first_offset=1),)) == []
    (found,) = transactions_wrong(batches, (ENTRY_AGAIN._replace(first_offset=5),))
    assert "what it began at 4" in found


def test_a_cleaned_log_has_no_more_of_its_transactions() -> None:
    assert transactions_wrong(TRANSACTIONS, (), compacted=True) == []
