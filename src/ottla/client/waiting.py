"""Waiting under a deadline."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]

RETRY_SECONDS = 0.1
REPORT_SECONDS = 1.0
LAST_TRY_SECONDS = 0.05


class Waiting:
    """A deadline. Reports once, after REPORT_SECONDS, what is waited for.

    `report`: takes that line, maybe in another thread; None = not reported.
    """

    def __init__(self, timeout: float, report: Report | None = None) -> None:
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        self._report = report
        self._report_lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Tell whether the deadline has come."""
        return time.monotonic() >= self._deadline

    @property
    def seconds(self) -> float:
        """Return the time that has passed."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float:
        """Return the time left; at least LAST_TRY_SECONDS, so that a last try can succeed."""
        return max(LAST_TRY_SECONDS, self._deadline - time.monotonic())

    def share_of(self, tries: int) -> float:
        """Return the timeout of one of `tries` addresses: the others need time too."""
        return max(LAST_TRY_SECONDS, self.seconds_left / tries)

    def pause(self, what: str, seconds: float = RETRY_SECONDS) -> None:
        """Wait a little for `what`."""
        if self.seconds >= REPORT_SECONDS:
            self._say(what)
        time.sleep(seconds)

    @contextmanager
    def reporting(self, what: str) -> Iterator[None]:
        """Report what the caller waits for, also if that blocks."""
        if self._report is None:
            yield
            return
        wait_s = max(0.0, self._began + REPORT_SECONDS - time.monotonic())
        timer = threading.Timer(wait_s, self._say, [what])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _say(self, what: str) -> None:
        with self._report_lock:
            report, self._report = self._report, None
            if report is not None:
                report(f"waiting for {what}")
