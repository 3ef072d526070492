"""Each anomaly of logs that run is found in a history that has it, and in no other.

Method: histories of a few lines, one that keeps the promise and one that breaks it.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import log_events as checkers
from ottla.testing.history.history import History, PartitionSeen, PowerLoss
from ottla.testing.history.log import (
    BatchTwice,
    ExpiredKept,
    LogCut,
    MemberPassed,
    StartMoved,
    WatermarkFell,
)
from ottla.testing.history.topics import KEEPS_ALL, Promise

PARTITION = (Uuid(bytes(15) + b"\x08"), 0)
CUT = LogCut(PARTITION, node=2, incarnation=1, before=12, end=9, high_watermark=10, at_ms=50)
LED = PartitionSeen(
    PARTITION,
    offset=3,
    replicas=(1, 2, 3),
    isr=(1, 2),
    leader=1,
    leader_epoch=4,
    partition_epoch=5,
    elr=(3,),
    at_ms=20,
)


def truncated(cut: LogCut, *partitions: PartitionSeen) -> int:
    history = History(log_events=[cut], partitions=list(partitions))
    return len(checkers.committed_records_truncated(history))


def test_a_log_may_be_cut_to_its_high_watermark() -> None:
    assert truncated(CUT._replace(end=10)) == 0


def test_a_log_cut_below_its_high_watermark_is_found() -> None:
    assert truncated(CUT) == 1


def test_a_clean_election_is_no_reason_for_a_cut() -> None:
    for leader in (2, 3):
        assert truncated(CUT, LED, LED._replace(leader=leader, at_ms=30)) == 1


def test_an_unclean_election_takes_what_was_committed() -> None:
    unclean = LED._replace(leader=4, isr=(4,), at_ms=30, unclean=True)
    assert truncated(CUT, LED, unclean) == 0
    assert truncated(CUT, LED, unclean._replace(at_ms=60)) == 1
    assert truncated(CUT, LED, unclean._replace(unclean=False)) == 1


@pytest.mark.parametrize("promise", [KEEPS_ALL, Promise(unclean=True)])
def test_the_election_that_ends_a_reassignment_is_no_reason_for_a_cut(promise: Promise) -> None:
    before = LED._replace(replicas=(3, 2, 1), elr=())
    moved = before._replace(replicas=(3, 2), isr=(2, 3), leader=3, at_ms=30)
    history = History(log_events=[CUT], partitions=[before, moved])
    history.promises[PARTITION[0]] = promise
    assert len(checkers.committed_records_truncated(history)) == 1


def test_a_compacted_replica_that_is_out_of_sync_may_cut_what_it_fetches_anew() -> None:
    assert truncated(CUT._replace(may_be=True)) == 0


def test_a_deletion_takes_what_was_committed() -> None:
    history = History(log_events=[CUT], deleted={PARTITION[0]})
    assert checkers.committed_records_truncated(history) == []


def test_a_weak_topic_may_lose_its_first_segments_with_power() -> None:
    opened = StartMoved(PARTITION, 2, 0, 5, "no reason", at_ms=50, may_be_lost=True)
    moved = opened._replace(may_be_lost=False)
    for promise, lost_ms, found in (
        (Promise(weak=True), 40, 1),
        (Promise(weak=True), 60, 2),
        (Promise(trimmed=True), 40, 2),
    ):
        history = History(log_events=[opened, moved], losses=[PowerLoss(2, lost_ms)])
        history.promises[PARTITION[0]] = promise
        assert len(checkers.log_starts_moved(history)) == found


def test_an_event_is_found_by_its_checker_alone() -> None:
    events = [
        BatchTwice(PARTITION, 7, 3, 1, 2, at_ms=1),
        CUT._replace(at_ms=2),
        MemberPassed(PARTITION, 1, 2, 3, 10, 9, at_ms=3),
        WatermarkFell(PARTITION, 1, 1, 3, 10, 9, at_ms=4),
        StartMoved(PARTITION, 2, 0, 5, "nothing that was asked for", at_ms=5),
        ExpiredKept(PARTITION, 2, 5, "retention.ms", at_ms=6),
    ]
    history = History(log_events=events)
    found = [
        [witness.at_ms for witness in checker(history)]
        for checker in (
            checkers.batches_that_do_not_match,
            checkers.committed_records_truncated,
            checkers.high_watermarks_wrong,
            checkers.log_starts_moved,
            checkers.expired_segments_kept,
        )
    ]
    assert found == [[1], [2], [3, 4], [5], [6]]
