"""Runs the log cleaner's work in child processes, so that it does not hold the interpreter's lock.

One process per cleaning: its memory is released when it ends, and an aborted cleaning is killed.
One thread waits for it and passes its results to the loop.

Source: LogCleaner's threads, here processes: see docs/decisions/0011.
"""

import asyncio
import contextlib
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.ports import Dice
from ottla.host.node_ports import CleaningRunner
from ottla.log.cleaner.cleaner_job import CleanerDied, CleaningEnd, CleaningJob
from ottla.log.cleaner.log_cleaner import CleanerSettings, LogCleaner, Result
from ottla.log.dirs.log_dirs import LogDirs
from ottla.metadata.node_config import NodeConfig

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "ottla.host.log_dirs.cleaner_process")
END_TIMEOUT_S = 10.0


class ProcessRunner:
    """Runs each cleaning in a process of its own. `close` waits until all have ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads: set[threading.Thread] = set()

    def run(self, job: CleaningJob, on_result: Callable[[Result], None]) -> Callable[[], None]:
        """Begin a cleaning; return what kills it. See `ottla.log.cleaner.log_cleaner.Runner`."""
        child = _Child(job, lambda result: self._hand_over(on_result, result))
        thread = threading.Thread(target=child.run, name="ottla-cleaner", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            died = CleanerDied(f"no thread for the cleaning process: {error}")
            self._hand_over(on_result, died)
            return child.kill
        self._threads = {each for each in self._threads if each.is_alive()} | {thread}
        return child.kill

    def _hand_over(self, on_result: Callable[[Result], None], result: Result) -> None:
        # The loop may have closed; the result is dropped then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(on_result, result)

    def close(self) -> None:
        """Wait for the processes, which were all asked to end."""
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)


class _Child:
    def __init__(self, job: CleaningJob, on_result: Callable[[Result], None]) -> None:
        self._job = job
        self._on_result = on_result
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def run(self) -> None:
        try:
            self._work()
        except (OSError, MemoryError) as error:
            # Of the process or its pipes; one of the disk is a result.
            self._on_result(CleanerDied(f"the cleaning process failed: {error}"))
        except Exception as error:
            # Reported like any other end: the loop decides what it means.
            self._on_result(error)

    def _work(self) -> None:
        with self._lock:
            if self._killed:
                return
            # A session of its own: an interrupt from the terminal is for the broker to handle.
            process = self._process = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(self._job, process.stdin)
            process.stdin.flush()
            while True:
                result: Result = pickle.load(process.stdout)
                self._on_result(result)
                if isinstance(result, CleaningEnd | BaseException):
                    return
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            process.kill()
            raise CleanerDied(f"the cleaning process ended with {process.wait()}") from None
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdout.close()
            process.wait()


class Cleaner:
    """A broker's log cleaner over its runner. `config` returns the current properties."""

    def __init__(
        self,
        runner: CleaningRunner,
        log_dirs: LogDirs,
        dice: Dice,
        config: Callable[[], NodeConfig],
    ) -> None:
        self._runner = runner
        self._cleaner = LogCleaner(
            log_dirs, self._runner, dice, lambda: cleaner_settings(config().values)
        )

    def start(self) -> None:
        """Start the log cleaner."""
        self._cleaner.start()

    def close(self) -> None:
        """End all cleanings; return once they have ended."""
        self._cleaner.stop()
        self._runner.close()


def cleaner_settings(config: Mapping[str, Any]) -> CleanerSettings:
    """Return the cleaner settings of a broker's properties."""
    return CleanerSettings(
        enabled=config["log.cleaner.enable"] and config["log.cleaner.threads"] > 0,
        threads=max(1, config["log.cleaner.threads"]),
        backoff_ms=config["log.cleaner.backoff.ms"],
        map_bytes=config["log.cleaner.dedupe.buffer.size"],
        map_load_factor=min(0.95, max(0.01, config["log.cleaner.io.buffer.load.factor"])),
        write_bytes=config["log.cleaner.io.buffer.size"],
        bytes_per_second=max(1.0, config["log.cleaner.io.max.bytes.per.second"]),
    )
