"""From when on nothing of a segment's copy can be executed is known once the copy has ended."""

import pytest

from ottla.broker.remote.store_calls import LATE_WRITE_MS
from ottla.broker.remote.tasks.leader_term import LeaderTerm, copy_ms_max
from ottla.tiered.segment_metadata import SegmentMetadata
from tests.unit.broker.remote.copy_bench import ENABLED, Bench, BenchBroker


def unfinished(bench: Bench, broker: BenchBroker) -> SegmentMetadata:
    """Return a segment whose copy has begun."""
    broker.fill(1)
    broker.lead(5)
    while not bench.segments():
        bench.run(0.005)
    broker.follow()
    return bench.segments()[0]


def term_of(broker: BenchBroker, epoch: int) -> LeaderTerm:
    """Return a term without tasks."""
    return LeaderTerm(broker.life.environment, broker.log, epoch, ENABLED)


@pytest.mark.parametrize("writes_unknown", [0, 1, 2])
def test_a_copy_is_awaited_for_its_whole_time_until_it_has_ended(writes_unknown: int) -> None:
    bench = Bench()
    broker = bench.broker(1)
    segment = unfinished(bench, broker)
    before, after = term_of(broker, 6), term_of(broker, 7)
    for _ in range(writes_unknown):
        before.write_unknown(segment)
        bench.run(10)
    whole_ms = broker.clock.monotonic_ms() + LATE_WRITE_MS + copy_ms_max(segment.size_bytes)
    after.inherit(before)
    assert [each.quiet_ms(segment) for each in (before, after)] == [whole_ms, whole_ms]


def test_a_copy_that_has_ended_is_awaited_since_its_last_unknown_write() -> None:
    bench = Bench()
    broker = bench.broker(1)
    segment = unfinished(bench, broker)
    before, after = term_of(broker, 6), term_of(broker, 7)
    for _ in range(2):
        bench.run(10)
        before.write_unknown(segment)
    late_ms = broker.clock.monotonic_ms() + LATE_WRITE_MS
    bench.run(10)
    before.copy_ended(segment)
    after.inherit(before)
    assert [each.quiet_ms(segment) for each in (before, after)] == [late_ms, late_ms]


def test_a_copy_that_has_ended_without_an_unknown_write_is_quiet() -> None:
    bench = Bench()
    broker = bench.broker(1)
    segment = unfinished(bench, broker)
    term = term_of(broker, 6)
    term.copy_ended(segment)
    assert term.quiet_ms(segment) <= broker.clock.monotonic_ms()
