"""The bucket keeps the rate on average, whatever the sizes, and lets one segment exceed it."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.metrics import latency_ms
from ottla.base.timers import Timers
from ottla.broker.remote.copy_quota import RECHECK_MS, UNLIMITED, TokenBucket, wait_to_spend
from ottla.broker.remote.dialogue import Running
from tests.unit.log.support import FakeClock


def test_unlimited_never_waits() -> None:
    bucket = TokenBucket(FakeClock(), per_second=UNLIMITED, window_seconds=11)
    for _ in range(100):
        assert bucket.wait_ms() == 0
        bucket.spend(1 << 31)


def test_a_segment_is_charged_as_a_whole_and_paid_afterwards() -> None:
    clock = FakeClock()
    bucket = TokenBucket(clock, per_second=100, window_seconds=2)
    assert bucket.wait_ms() == 0
    bucket.spend(1_000)
    wait_ms = bucket.wait_ms()
    assert 8_000 <= wait_ms <= 8_001
    clock.ms += wait_ms - 1
    assert bucket.wait_ms() > 0
    clock.ms += 1
    assert bucket.wait_ms() == 0


def test_what_is_unused_is_kept_for_the_window_only() -> None:
    clock = FakeClock()
    bucket = TokenBucket(clock, per_second=100, window_seconds=2)
    clock.ms += 1_000_000
    bucket.spend(200)
    assert bucket.wait_ms() > 0


def test_another_rate_counts_from_now_on() -> None:
    clock = FakeClock()
    bucket = TokenBucket(clock, per_second=100, window_seconds=1)
    bucket.spend(1_100)
    clock.ms += 5_000
    bucket.change_rate(1_000)
    assert 500 <= bucket.wait_ms() <= 501


@given(
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=40),
    rate=st.integers(1, 2_000),
    window=st.integers(1, 20),
)
def test_the_rate_is_kept(sizes: list[int], rate: int, window: int) -> None:
    clock = FakeClock(0)
    bucket = TokenBucket(clock, per_second=rate, window_seconds=window)
    spent = 0
    for size in sizes:
        clock.ms += bucket.wait_ms()
        assert bucket.wait_ms() == 0
        # Before it is spent: what was earned, and the window.
        assert spent < rate * window + rate * clock.ms / 1000
        bucket.spend(size)
        spent += size


def test_those_who_wait_see_a_raised_rate_within_a_second_and_are_counted() -> None:
    clock, timers = FakeClock(), Timers()
    bucket = TokenBucket(clock, per_second=1, window_seconds=1)
    throttle_time = latency_ms()
    bucket.spend(1_000)
    waiting: Running[None] = Running(
        wait_to_spend(bucket, throttle_time), timers, clock, on_bug=None
    )
    waiting.start()
    for _ in range(3):
        clock.ms += RECHECK_MS
        timers.run_due(clock.ms)
    assert not waiting.outcome.done
    bucket.change_rate(1_000_000)
    clock.ms += RECHECK_MS
    timers.run_due(clock.ms)
    assert waiting.outcome.done
    assert (throttle_time.count, throttle_time.total) == (1, 4 * RECHECK_MS)
    free: Running[None] = Running(wait_to_spend(bucket, throttle_time), timers, clock, on_bug=None)
    free.start()
    assert free.outcome.done
    assert throttle_time.count == 1


def test_what_was_charged_too_much_is_given_back() -> None:
    bucket = TokenBucket(FakeClock(), per_second=100, window_seconds=1)
    bucket.spend(1_000)
    assert bucket.wait_ms() > 0
    bucket.spend(-950)
    assert bucket.wait_ms() == 0
    bucket.spend(50)
    assert bucket.wait_ms() > 0
