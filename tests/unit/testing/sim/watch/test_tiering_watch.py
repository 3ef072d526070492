"""Below which offset a log that was DISABLED with delete may never start again."""

from ottla.testing.sim.watch.tiering_watch import begin_of, goes_back
from tests.unit.log.support import Environment, append, batch


def test_a_start_that_a_crash_may_undo_is_not_held_to() -> None:
    log = Environment().open()
    for _ in range(10):
        append(log, batch(size=40))
    log.advance_high_watermark(10)
    log.delete_records(3)
    assert (log.log_start_offset, begin_of(log)) == (3, 0)


def test_records_that_are_gone_stay_so() -> None:
    log = Environment().open()
    log.truncate_fully_and_start_at(20)
    for _ in range(10):
        append(log, batch(size=40))
    assert begin_of(log) == 20
    log.advance_high_watermark(30)
    log.delete_records(25)
    assert (log.log_start_offset, begin_of(log)) == (25, 20)


def test_a_log_may_start_earlier_with_its_own_records_only() -> None:
    log = Environment().open()
    log.truncate_fully_and_start_at(20)
    append(log, batch(size=40))
    assert not goes_back(log, 20)
    assert not goes_back(log, 25)
    log.offsets.log_start_offset = 10  # Below, remote segments are counted on.
    assert goes_back(log, 20)
    assert goes_back(log, 15)
    assert not goes_back(log, 10)
