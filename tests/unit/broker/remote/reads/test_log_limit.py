"""A failure that repeats has one line in ten seconds, which counts the others."""

from ottla.broker.remote.reads.log_limit import INTERVAL_MS, LogLimit
from tests.unit.log.support import FakeClock


def test_one_line_an_interval() -> None:
    clock = FakeClock(0)
    limit = LogLimit(clock)
    assert limit.admit() == ""
    assert [limit.admit() for _ in range(3)] == [None] * 3
    clock.ms += INTERVAL_MS - 1
    assert limit.admit() is None
    clock.ms += 1
    assert limit.admit() == " (4 others failed since the last such line)"
    clock.ms += INTERVAL_MS
    assert limit.admit() == ""
