"""Whether the driver of a job that has not ended still runs: an object that it rewrites.

It only keeps two runs of one job from getting in each other's way. What keeps their results apart
is decided by the job's own state, so that a wrong answer costs work, never records.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.target_store import TargetStore

INTERVAL_S: Final = 4.0
PATIENCE_S: Final = 14.0
"""How long a heartbeat is watched before its driver counts as dead: some intervals."""
STOP_S: Final = 5.0
PAUSE: Callable[[float], None] = time.sleep


class RunningError(OptionError):
    """Another run of the same job is under way."""


class Heartbeat:
    """Rewrites an object in a thread. Use as a context manager."""

    def __init__(self, uri: str, name: str, timeout_s: float) -> None:
        self._uri = uri
        self._name = name
        self._timeout_s = timeout_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        with TargetStore(self._uri, self._timeout_s) as store:
            store.put(self._name, self._content(0))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        count = 0
        with TargetStore(self._uri, self._timeout_s) as store:
            while not self._stop.wait(INTERVAL_S):
                count += 1
                try:
                    store.put(self._name, self._content(count))
                except RemoteStorageError:
                    continue  # The job itself fails if the store stays away.

    @staticmethod
    def _content(count: int) -> bytes:
        return f"{socket.gethostname()} {os.getpid()} {count}".encode()


def check_not_running(
    store: TargetStore,
    name: str,
    what: str,
    *,
    patience_s: float = PATIENCE_S,
    report: Callable[[str], object],
) -> None:
    """Raise RunningError where the object of a run that has not ended is still rewritten."""
    first = store.read_whole(name)
    if first is None or _has_died(first):
        return
    owner = owner_text(first)
    report(f"{what} of {owner} has not ended: waiting {patience_s:g} s for a sign of it")
    PAUSE(patience_s)
    if store.read_whole(name) != first:
        raise RunningError(f"{what} is under way, by {owner}")


def owner_text(content: bytes) -> str:
    """Return who rewrites it."""
    host, pid, *_ = [*content.decode(errors="replace").split(" "), "?", "?"]
    return f"process {pid} on {host}"


def _has_died(content: bytes) -> bool:
    """Tell whether its process was one of this machine and is not there any more."""
    host, pid, *_ = [*content.decode(errors="replace").split(" "), "", ""]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    if int(pid) == os.getpid():
        return True  # This process: its earlier run has failed.
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
