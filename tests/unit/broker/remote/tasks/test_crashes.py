"""A broker that dies at any step of a copy or a deletion leaves nothing behind.

Method: a run without a crash counts the steps: before each operation of the store or the metadata
topic, right after it was sent, and when its result comes. Then one run for each step ends the
process there, and another one takes over: the same broker in the same leader epoch, the same one in
the next epoch, or another broker. In the end there is no object without metadata, no metadata
without objects, no gap, and no segment that can be read twice.
"""

from collections.abc import Callable

import pytest

from tests.unit.broker.remote.copy_bench import HOUR_S, TOPIC_ID, Bench, BenchBroker

TakeOver = Callable[[Bench, BenchBroker], BenchBroker]

EPOCH = 6

ALL = [(0, 10), (10, 20)]


def restarted(bench: Bench, broker: BenchBroker) -> BenchBroker:
    broker.start()
    broker.lead(EPOCH)
    return broker


def elected_again(bench: Bench, broker: BenchBroker) -> BenchBroker:
    broker.start()
    broker.lead(EPOCH + 1)
    return broker


def another(bench: Bench, broker: BenchBroker) -> BenchBroker:
    second = bench.broker(2)
    second.copy_of(broker)
    second.log.advance_log_start(broker.log.log_start_offset)
    second.lead(EPOCH + 1)
    return second


TAKE_OVERS = [restarted, elected_again, another]


def copy(crash_at: int | None, take_over: TakeOver | None) -> tuple[int, list[str]]:
    """Copy two segments; return the count of steps, and what they were."""
    bench = Bench(metadata_lag_ms=30)
    broker = bench.broker(1)
    broker.fill(2)
    life = broker.start(crash_at=crash_at)
    broker.lead(EPOCH)
    bench.run(5)
    if take_over is not None:
        assert not life.process.alive
        broker = take_over(bench, broker)
    bench.run(1.2 * HOUR_S)
    bench.check(broker, ALL)
    assert broker.log.highest_remote_offset == 19
    return life.steps.count, life.steps.names


def delete(crash_at: int | None, take_over: TakeOver | None) -> tuple[int, list[str]]:
    """Delete one of two copied segments, as `copy`."""
    bench = Bench(metadata_lag_ms=30)
    broker = bench.broker(1)
    broker.fill(2)
    broker.lead(EPOCH - 1)
    bench.run(20)
    life = broker.start(crash_at=crash_at)
    broker.lead(EPOCH)
    bench.run(5)
    broker.log.delete_records(10)
    if life.process.alive:
        broker.do(lambda: life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(100)
    if take_over is not None:
        assert not life.process.alive
        broker = take_over(bench, broker)
    bench.run(1.2 * HOUR_S)
    bench.check(broker, ALL[1:])
    return life.steps.count, life.steps.names


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("take_over", TAKE_OVERS)
@pytest.mark.parametrize("work", [copy, delete])
def test_every_step_may_be_the_last(
    work: Callable[[int | None, TakeOver | None], tuple[int, list[str]]], take_over: TakeOver
) -> None:
    count, names = work(None, None)
    assert count > 20
    for crash_at in range(1, count + 1):
        try:
            work(crash_at, take_over)
        except AssertionError as error:
            step = f"crash at step {crash_at}, {names[crash_at - 1]}"
            raise AssertionError(f"{step}: {error}") from error


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("take_over", TAKE_OVERS)
def test_an_upload_in_flight_is_executed_after_its_broker_s_death(take_over: TakeOver) -> None:
    late = 0
    for crash_at in range(1, 30):
        bench = Bench(crash_at)
        bench.model.faults.slow = 1.0
        broker = bench.broker(1)
        broker.fill(2)
        life = broker.start(crash_at=crash_at)
        broker.lead(EPOCH)
        while life.process.alive:
            bench.run(1)
        bench.model.faults.slow = 0.0
        broker = take_over(bench, broker)
        bench.run(1)
        executed = len(bench.model.history)
        bench.run(1.2 * HOUR_S)
        bench.check(broker, ALL)
        late += any(
            event.operation == "put" and event.client == "broker-1"
            for event in bench.model.history[executed:]
            if take_over is another
        )
    assert late or take_over is not another


@pytest.mark.drawn(8, of="every step")
def test_an_upload_that_timed_out_is_executed_after_its_deletion() -> None:
    for seed in range(20):
        bench = Bench(seed)
        broker = bench.broker(1)
        broker.fill(2)
        broker.lead(EPOCH)
        bench.run(0.1)
        bench.model.faults.hanging = 1.0
        bench.model.faults.slow = 1.0
        bench.run(45)
        bench.model.faults.hanging = bench.model.faults.slow = 0.0
        bench.run(HOUR_S)
        bench.check(broker, ALL)
