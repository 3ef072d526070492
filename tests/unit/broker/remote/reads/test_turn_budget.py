"""Remote reads of many small batches are checked over several turns, together within one budget.

Method: a real log of small batches behind the store's model. What `segment_reader` examines is
counted between the events of the store and the runs of the timers, each of which is a turn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.fetch.remote_port import RemoteData
from ottla.broker.remote.dialogue import Dialogue, Running
from ottla.broker.remote.reads import segment_reader
from ottla.broker.remote.reads.reads import RemoteReadLimits
from ottla.broker.remote.reads.turn_budget import (
    BYTES_PER_UNIT,
    NOTED_UNITS,
    UNITS_PER_STEP,
    UNITS_PER_TURN,
    TurnBudget,
)
from ottla.log.config import LogConfig
from tests.unit.broker.remote.support import Bench
from tests.unit.log.support import Environment, FakeClock, append, batch

BATCHES = 5_000
READERS = 6
LIMITS = RemoteReadLimits(chunk_bytes=1 << 20, chunk_cache_bytes_max=8 << 20)
CONFIG = LogConfig(segment_bytes=1 << 20, segment_index_bytes=1 << 20)


class Turns:
    """Counts checksums by turn. `most`: in one turn; `used`: turns with any."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.used = 0
        self.total = 0

    def end(self) -> None:
        self.most = max(self.most, self.now)
        self.used += self.now > 0
        self.total += self.now
        self.now = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    turns = Turns()
    real = segment_reader.check_crc

    def count(*arguments: Any) -> None:
        turns.now += 1
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(segment_reader, "check_crc", count)
        yield turns


def small_batches() -> Bench:
    log = Environment().open(CONFIG)
    for number in range(BATCHES):
        append(log, batch(1, size=20, timestamp=1_000_000 + number))
    log.roll(1_000_000)
    log.advance_high_watermark(log.log_end_offset)
    bench = Bench(log, LIMITS)
    bench.tier()
    return bench


def test_no_turn_checks_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = small_batches()
    owners: list[Pending[None]] = [Pending() for _ in range(READERS)]
    with counted(monkeypatch) as turns:
        for owner in owners:
            assert bench.reader.read(bench.wanted(0), owner, lambda: None) is None
        while bench.reader.under_way:
            bench.scheduler.run_until(bench.scheduler.now_us + 1_000)
            turns.end()
            bench.timers.run_due(bench.clock.monotonic_ms())
            turns.end()
    assert turns.total == READERS * BATCHES
    assert turns.most <= UNITS_PER_TURN + UNITS_PER_STEP
    assert turns.used >= turns.total // (UNITS_PER_TURN + UNITS_PER_STEP)
    for owner in owners:
        found = bench.reader.read(bench.wanted(0), owner, lambda: None)
        assert isinstance(found, RemoteData)
        assert found.data == bench.expected(0, 1 << 20, True)
    bench.run()
    bench.assert_idle()


def test_a_connection_that_closes_while_its_read_is_checked_frees_everything() -> None:
    bench = small_batches()
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    other: Pending[None] = Pending()
    assert bench.reader.read(bench.wanted(0), other, lambda: None) is None
    bench.run_until(lambda: bench.reader.budget.spent >= UNITS_PER_TURN)
    assert bench.reader.under_way == 2
    bench.closed.complete(None)
    assert bench.reader.under_way == 1
    bench.run_until(lambda: bench.reader.under_way == 0)
    assert isinstance(bench.reader.read(bench.wanted(0), other, lambda: None), RemoteData)
    bench.run()
    bench.assert_idle()


def test_a_small_read_needs_no_further_turn() -> None:
    bench = small_batches()
    bench.read(0)  # Now the chunk is in memory.
    bench.run()
    timers = len(bench.timers)
    for offset in range(3):
        found = bench.reader.read(bench.wanted(offset, 1_000), Pending(), lambda: None)
        assert isinstance(found, RemoteData)
        assert found.data == bench.expected(offset, 1_000, True)
    assert len(bench.timers) == timers
    assert 0 < bench.reader.budget.spent < NOTED_UNITS


def test_a_part_of_what_a_read_brought_ends_with_a_batch() -> None:
    bench = small_batches()
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    bench.run_until(lambda: bench.reader.under_way == 0)
    found = bench.reader.read(bench.wanted(0, 1_000), bench.closed, lambda: None)
    assert isinstance(found, RemoteData)
    assert found.data == bench.expected(0, 1_000, True)


def test_those_who_wait_go_on_in_order() -> None:
    clock, timers = FakeClock(), Timers()
    budget = TurnBudget(timers, clock, units_per_turn=10)
    order: list[int] = []

    def work(number: int, size: int) -> Dialogue[None]:
        yield from budget.wait()
        budget.spend(0, size)
        order.append(number)

    def start(number: int, units: int) -> Running[None]:
        work_of = work(number, units * BYTES_PER_UNIT)
        running: Running[None] = Running(work_of, timers, clock, on_bug=None)
        running.start()
        return running

    start(0, 9)
    start(1, 9)  # One more: the bound may be passed by one step.
    cancelled = start(2, 9)
    start(3, 1)
    start(4, 9)
    start(5, 1)
    assert order == [0, 1]
    cancelled.cancel()
    timers.run_due(clock.monotonic_ms())
    assert order == [0, 1, 3, 4]
    start(6, 1)
    timers.run_due(clock.monotonic_ms())
    assert order == [0, 1, 3, 4, 5, 6]
    timers.run_due(clock.monotonic_ms())
    assert len(timers) == 0
