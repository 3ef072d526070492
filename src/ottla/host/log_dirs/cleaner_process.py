"""The process that rewrites segments for the log cleaner: one job, then it ends.

Started by `ottla.host.log_dirs.cleaner` as `python -m ottla.host.log_dirs.cleaner_process`. The job
comes pickled on standard input; each result goes pickled to standard output: new segments, then the
end or the exception. Standard input stays open while the broker runs: when it closes, this process
exits at once, so that it never writes beside the restarted broker.
"""

import os
import pickle
import sys
import threading
import time
import traceback
from typing import IO

from ottla.host.log_dirs.disk import OsDisk
from ottla.log.cleaner.cleaner_job import CleanerDied, CleaningJob
from ottla.log.cleaner.cleaner_rewrite import clean

LONGEST_SLEEP_S = 1.0


class RateLimit:
    """Sleeps so that the bytes passed to it stay below a rate; unused rate is not saved."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()

    def __call__(self, count: int) -> None:
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + count / self._rate
        while (wait := self._free_at - now) > 0.01:
            time.sleep(min(wait, LONGEST_SLEEP_S))
            now = time.monotonic()


def _end_with(stdin: IO[bytes]) -> None:
    stdin.read()
    os._exit(1)


def _send(output: IO[bytes], value: object) -> None:
    pickle.dump(value, output)
    output.flush()


def main() -> None:
    """Do the one job."""
    job = pickle.load(sys.stdin.buffer)
    assert isinstance(job, CleaningJob)
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    output = sys.stdout.buffer
    try:
        for result in clean(OsDisk(), job, RateLimit(job.bytes_per_second)):
            _send(output, result)
    except MemoryError:
        _send(output, CleanerDied("the cleaning process has no memory left"))
    except Exception as error:
        # The traceback itself cannot be sent.
        error.add_note(traceback.format_exc())
        _send(output, error)
    sys.stdout.flush()
    # The other thread waits for the broker, which may keep the pipe open.
    os._exit(0)


if __name__ == "__main__":
    main()
