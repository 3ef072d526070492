"""The watch of logs reports what no log may do, and nothing else.

Method: logs that are only what the watch reads of them, and a cluster without nodes that run.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.testing.history.log import LogCut, LogEvent, StartMoved, WatermarkFell
from ottla.testing.sim.watch.log_watch import LogWatch, WatchedLog
from ottla.testing.sim.watch.observations import LogOpened

KEY = (Uuid(bytes(15) + b"\x08"), 0)
NODE, INCARNATION, EPOCH, NOW_MS = 1, 2, 5, 9


class Bench:
    """A watch, and what it has reported."""

    def __init__(self, *, tiering: bool = False) -> None:
        topics = {KEY[0]: object()} if tiering else {}
        image = SimpleNamespace(tiering=topics, topics=SimpleNamespace(by_id=lambda topic_id: None))
        nodes = {NODE: SimpleNamespace(disk=None)}
        sim: Any = SimpleNamespace(
            observe=lambda observer: None, now_ms=NOW_MS, nodes=nodes, image=image
        )
        self.events: list[LogEvent] = []
        self.watch = LogWatch(sim, self.events.append)

    def open(self, *, start: int = 0, end: int = 200, remote_storage: bool = False) -> WatchedLog:
        log: Any = SimpleNamespace(
            log_start_offset=start,
            log_end_offset=end,
            high_watermark=end,
            truncation_count=0,
            segments=SimpleNamespace(active=SimpleNamespace(base_offset=start, size=0)),
            config=SimpleNamespace(remote_storage=remote_storage, compacts=False),
            append_as_leader=None,
            append_as_follower=None,
            delete_records=None,
            advance_log_start=None,
            expire_segments=None,
        )
        hosted: Any = SimpleNamespace(leader_epoch=EPOCH)
        return WatchedLog(
            self.watch, LogOpened(NOW_MS, NODE, INCARNATION, *KEY, hosted=hosted, log=log)
        )


@pytest.mark.parametrize("remote_storage", [False, True])
def test_a_log_that_begins_too_late_when_it_is_opened_is_found(remote_storage: bool) -> None:
    bench = Bench(tiering=remote_storage)
    bench.open()
    bench.open(start=100, remote_storage=remote_storage)
    (moved,) = bench.events
    assert isinstance(moved, StartMoved)
    assert (moved.before, moved.start, moved.may_be_lost) == (0, 100, not remote_storage)
    assert bench.watch.start_of(KEY) == 0  # It is no reason for others to begin there.


def test_a_log_may_begin_where_a_leaders_log_began() -> None:
    bench = Bench()
    bench.watch.log_started(KEY, 100)
    bench.open(start=100)
    bench.open(start=50)
    assert bench.events == []


def test_the_first_log_of_a_partition_may_begin_anywhere() -> None:
    bench = Bench()
    bench.open(start=100)
    assert bench.events == []
    assert bench.watch.start_of(KEY) == 100


def test_a_log_may_begin_later_where_tiered_storage_was_turned_off() -> None:
    bench = Bench(tiering=True)
    bench.open()
    bench.open(start=100)
    assert bench.events == []


@pytest.mark.parametrize(
    ("end", "high_watermark", "fell"),
    [(95, 90, False), (95, 95, False), (95, 89, True), (80, 80, False), (80, 79, True)],
)
def test_a_truncation_takes_no_more_of_the_high_watermark_than_it_takes_of_the_log(
    end: int, high_watermark: int, fell: bool
) -> None:
    bench = Bench()
    watched = bench.open(end=100)
    log: Any = watched.log
    watched.high_watermark_moved(EPOCH, 90)
    log.truncation_count, log.log_end_offset, log.high_watermark = 1, end, high_watermark
    watched.high_watermark_moved(EPOCH, high_watermark)
    found = [each for each in bench.events if isinstance(each, WatermarkFell)]
    assert [(each.epoch, each.before, each.high_watermark) for each in found] == (
        [(EPOCH, 90, high_watermark)] if fell else []
    )
    assert any(isinstance(each, LogCut) for each in bench.events) is (end < 90)


def test_a_high_watermark_that_falls_within_an_epoch_is_found() -> None:
    bench = Bench()
    watched = bench.open(end=100)
    for epoch, offset in ((EPOCH, 90), (EPOCH, 95), (EPOCH + 1, 93), (EPOCH + 1, 92)):
        watched.high_watermark_moved(epoch, offset)
    (fell,) = bench.events
    assert isinstance(fell, WatermarkFell)
    assert (fell.epoch, fell.before, fell.high_watermark) == (EPOCH + 1, 93, 92)
