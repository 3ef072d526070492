"""A broker logs each deletion failure once, in few lines, and again while it lasts.

Method: failures written out; time by hand; the log is read.
"""

import errno

import pytest

from ottla.broker.logs.deletion_failures import NAMED_MAX, DeletionFailures, Failure
from ottla.controller.retry_queue import RETRY_MS_MAX


class Reporter:
    """Failures of one broker, and the lines logged since the last call."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.failures = DeletionFailures()
        self._caplog = caplog

    def fail(
        self, *names: str, why: str = "broken", gone: tuple[str, ...] = (), now_ms: int = 0
    ) -> list[str]:
        """Have replicas fail; return the lines that gave."""
        self._caplog.clear()
        failed = {each: Failure(each, OSError(errno.EIO, why, "/logs")) for each in names}
        self.failures.log_new(dict(failed), gone=gone, now_ms=now_ms)
        return [each.getMessage() for each in self._caplog.records]


@pytest.fixture
def reporter(caplog: pytest.LogCaptureFixture) -> Reporter:
    return Reporter(caplog)


def test_a_thousand_replicas_are_one_line_that_names_some(reporter: Reporter) -> None:
    names = [f"t-{number}" for number in range(1_000)]
    [line] = reporter.fail(*names)
    assert f" 1000 replicas (t-0, t-1, t-2 and {1_000 - NAMED_MAX} more): broken: /logs;" in line


def test_each_reason_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """A reason at many paths is one line: all directories of a disk have the same."""
    failures = DeletionFailures()
    failed = {
        f"t-{number}": Failure(f"t-{number}", OSError(errno.EACCES, "refused", f"/logs/t-{number}"))
        for number in range(5)
    }
    failures.log_new({**failed, "u-0": Failure("u-0", OSError("of no kind"))}, gone=(), now_ms=0)
    assert [each.getMessage().partition(";")[0] for each in caplog.records] == [
        "cannot delete 5 replicas (t-0, t-1, t-2 and 2 more): "
        "refused: /logs/t-0, /logs/t-1, /logs/t-2 and 2 more",
        "cannot delete 1 replicas (u-0): of no kind",
    ]


def test_a_failure_is_not_logged_again_before_the_longest_backoff_is_over(
    reporter: Reporter,
) -> None:
    assert reporter.fail("t-0", "t-1")
    assert not reporter.fail("t-1", "t-0", now_ms=RETRY_MS_MAX - 1)
    assert reporter.fail("t-0", "t-1", now_ms=RETRY_MS_MAX)
    assert not reporter.fail("t-0", "t-1", now_ms=2 * RETRY_MS_MAX - 1)


def test_only_new_failures_of_a_request_are_logged(reporter: Reporter) -> None:
    reporter.fail("t-0", "t-1")
    [line] = reporter.fail("t-0", "t-1", "t-2", now_ms=RETRY_MS_MAX - 1)
    assert "1 replicas (t-2)" in line
    [line] = reporter.fail("t-0", "t-1", "t-2", now_ms=RETRY_MS_MAX)
    assert "2 replicas (t-0, t-1)" in line


def test_another_reason_is_logged_at_once_and_lasts_from_then(reporter: Reporter) -> None:
    """Who mends one thing must see that another one is left."""
    reporter.fail("t-0", "t-1")
    [line] = reporter.fail("t-0", "t-1", why="refused", now_ms=10)
    assert "refused" in line
    assert not reporter.fail("t-0", "t-1", why="refused", now_ms=RETRY_MS_MAX)
    assert reporter.fail("t-0", "t-1", why="refused", now_ms=RETRY_MS_MAX + 10)


def test_another_reason_of_one_replica_does_not_delay_lines_about_others(
    reporter: Reporter,
) -> None:
    reporter.fail("t-0", "t-1")
    reporter.fail("t-0", why="refused", now_ms=10)
    [line] = reporter.fail("t-1", now_ms=RETRY_MS_MAX)
    assert "1 replicas (t-1)" in line


def test_a_deleted_replica_that_fails_again_is_logged(reporter: Reporter) -> None:
    """As one of the same name that was deleted after it."""
    reporter.fail("t-0")
    assert not reporter.fail(gone=("t-0",))
    assert reporter.fail("t-0")


def test_old_entries_are_dropped(reporter: Reporter) -> None:
    for number in range(100):
        reporter.fail(f"t-{number}", now_ms=number * RETRY_MS_MAX)
    assert len(reporter.failures.__dict__["_logged"]) == 1
