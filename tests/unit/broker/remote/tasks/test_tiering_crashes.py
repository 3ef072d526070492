"""A leader that dies at any step of turning tiered storage off, or on, leaves nothing behind.

Method: as `test_crashes`. A run without a crash counts the steps: before each operation of the
store or the metadata topic, right after it was sent, and when its result comes. Then one run for
each step ends the process there, and another one takes over. In the end the store, the metadata and
the manifests say the same, the log has no gap, and its start can be read.
"""

from collections.abc import Callable

import pytest

from ottla.metadata.tiering import TopicTiering
from tests.unit.broker.remote.copy_bench import HOUR_S, Bench, BenchBroker
from tests.unit.broker.remote.tasks.test_tiering_off import (
    EPOCH,
    delete,
    enabled,
    is_open,
    is_purged,
    retain,
)

TakeOver = Callable[[Bench, BenchBroker, TopicTiering], BenchBroker]

STORIES: dict[str, tuple[tuple[TopicTiering, ...], list[tuple[int, int]]]] = {
    "retain": ((retain(),), [(0, 10), (10, 20), (20, 30)]),
    "delete": ((delete(),), []),
    "retain, on": ((retain(), enabled(3, 0)), [(0, 10), (10, 20), (20, 30), (30, 40)]),
    "delete, on": ((delete(), enabled(3, 1)), [(10, 20), (20, 30), (30, 40)]),
}


def restarted(bench: Bench, broker: BenchBroker, tiering: TopicTiering) -> BenchBroker:
    broker.start()
    broker.lead(EPOCH, tiering)
    return broker


def elected_again(bench: Bench, broker: BenchBroker, tiering: TopicTiering) -> BenchBroker:
    broker.start()
    broker.lead(EPOCH + 1, tiering)
    return broker


def another(bench: Bench, broker: BenchBroker, tiering: TopicTiering) -> BenchBroker:
    """A follower that has not heard of the log start yet."""
    second = bench.broker(2)
    second.copy_of(broker)
    second.log.offsets.local_log_start_offset = 10
    second.lead(EPOCH + 1, tiering)
    return second


def run(name: str, crash_at: int | None, take_over: TakeOver) -> tuple[int, list[str]]:
    """Turn tiered storage off and perhaps on; return the count of steps, and what they were."""
    states, expected = STORIES[name]
    bench = Bench(metadata_lag_ms=30)
    broker = bench.broker(1)
    broker.fill(3)
    broker.lead(EPOCH - 1)
    bench.run(10)
    assert len(bench.readable()) == 3
    broker.log.offsets.local_log_start_offset = 10
    life = broker.start(crash_at=crash_at)
    broker.lead(EPOCH)
    broker.produce(7, epoch=EPOCH)
    broker.roll()
    bench.run(0.05)  # A copy is under way.
    for each in states:
        if not life.process.alive:
            broker = take_over(bench, broker, each)
            life = broker.life
        else:
            broker.retier(each)
        bench.run(150)
    counted = life.steps if crash_at is None else None
    if not life.process.alive:
        broker = take_over(bench, broker, states[-1])
    bench.run(0.3 * HOUR_S)
    bench.check(broker, None)
    readable = bench.readable()
    if name == "retain" and readable != expected:
        expected = [*expected, (30, 40)]  # The copy was finished before the fence.
    assert readable == expected
    assert is_open(broker)
    if states[-1].remote_floor_epoch:
        assert is_purged(broker, 1)
        assert broker.log.log_start_offset == 10
    if counted is None:
        return 0, []
    return counted.count, counted.names


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("take_over", [restarted, elected_again, another])
@pytest.mark.parametrize("name", STORIES)
def test_every_step_may_be_the_last(name: str, take_over: TakeOver) -> None:
    count, names = run(name, None, take_over)
    assert count > 15
    for crash_at in range(1, count + 1):
        try:
            run(name, crash_at, take_over)
        except AssertionError as error:
            step = f"crash at step {crash_at}, {names[crash_at - 1]}"
            raise AssertionError(f"{step}: {error}") from error
