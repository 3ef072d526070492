"""Divides the process's limit of file descriptors among log files, connections and the rest.

Connections are capped, so that peers can never take what logs need. Opening a file for a short use
when there is no descriptor all the same (the whole machine may be out of them) takes a spare one.

Source: getrlimit(2), open(2) EMFILE and ENFILE.
"""

import contextlib
import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.base.ports import is_shortage

T = TypeVar("T")
log = logging.getLogger(__name__)

OTHERS: Final = 64
"""The interpreter, listeners, metrics' connections, links to other nodes, a cleaner's process."""

ACCEPTS_PER_TURN_MIN: Final = 4
ACCEPTS_PER_TURN_MAX: Final = 50
ACCEPTS_HELD: Final = 8
"""For how many accepts of a listener connections that are closed at once may be open."""

METADATA_FILES: Final = 16
"""Open at once of the metadata log: a few segments of up to four files."""

LOG_FILES_MIN: Final = 32
CONNECTIONS_MIN: Final = 16

NEEDED: Final = (
    OTHERS + ACCEPTS_HELD * ACCEPTS_PER_TURN_MIN + METADATA_FILES + LOG_FILES_MIN + CONNECTIONS_MIN
)
"""The smallest limit that a node starts with."""

UNLIMITED: Final = 1 << 17
"""The limit that is assumed where the system sets none, and the most that a node asks for."""

SPARES_OF_OWNER: Final = 2
"""Spares that other threads leave to the one that may not wait."""

RETRY_SECONDS: Final = 0.05
LOG_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class DescriptorPlan:
    """How `limit` descriptors are divided.

    Fields: `log_files`: open files of all logs; `sockets`: connections, each of which takes a
            second one once it sends files; `accepts`: connections that a listener accepts in one
            turn of the loop, before it is seen that there are too many.
    """

    limit: int
    log_files: int
    sockets: int
    accepts: int


def plan(limit: int) -> DescriptorPlan:
    """Divide a limit; where it is below NEEDED, each part is its least."""
    accepts = min(max(limit // 64, ACCEPTS_PER_TURN_MIN), ACCEPTS_PER_TURN_MAX)
    rest = limit - OTHERS - ACCEPTS_HELD * accepts - METADATA_FILES
    log_files = max(LOG_FILES_MIN, rest // 2)
    return DescriptorPlan(limit, log_files, max(CONNECTIONS_MIN, rest - log_files), accepts)


def raise_limit() -> None:
    """Raise the soft limit towards the hard one, as a JVM does for Kafka.

    The usual soft limit, 1024, is for programs that use select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED if hard == resource.RLIM_INFINITY else min(hard, UNLIMITED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a limit of its own.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Return how many descriptors the process may have."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def check_limit(limit: int) -> str | None:
    """Return why a limit is too small, as a message; None = it is large enough."""
    if limit >= NEEDED:
        return None
    return (
        f"the process may have {limit} open files and sockets (ulimit -n), but a node needs at"
        f" least {NEEDED}, and many more for many connections and partitions"
    )


class SocketBudget:
    """Descriptors of the connections of a server."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self) -> bool:
        """Take one; return False where none is left."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    def give_back(self) -> None:
        """Return one."""
        self.used -= 1
        assert self.used >= 0


class SpareDescriptors:
    """Spare descriptors, for opens that must not fail for the lack of one. Thread-safe.

    Where no spare is left either, an open fails in the thread that made this object, the loop's,
    and waits in all others: what they open they close soon.

    `used`: how often one was needed.
    """

    def __init__(self, count: int = 8) -> None:
        self._lock = threading.Lock()
        self._owner = threading.get_ident()
        self._count = count
        self._spare: list[int] = []
        self.used = 0
        self._shortages = 0
        self._logged_s = -LOG_SECONDS
        self._refill()

    def _refill(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spare) < self._count:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def opening(self, open_it: Callable[[], T]) -> T:
        """Return what `open_it` does, tried again with a spare descriptor. Raises: OSError."""
        try:
            made = open_it()
        except OSError as error:
            if not is_shortage(error):
                raise
            self.note(error)
            return self._with_spare(open_it)
        if len(self._spare) < self._count:
            with self._lock:
                self._refill()
        return made

    def _with_spare(self, open_it: Callable[[], T]) -> T:
        may_wait = threading.get_ident() != self._owner
        kept = SPARES_OF_OWNER if may_wait else 0
        while True:
            with self._lock:
                # While the lock is held, no other such open takes the descriptor just closed.
                while len(self._spare) > kept:
                    os.close(self._spare.pop())
                    self.used += 1
                    with _without_shortage():
                        return open_it()
            if not may_wait or not self._count:
                return open_it()
            time.sleep(RETRY_SECONDS)
            with _without_shortage():
                return open_it()

    def note(self, error: OSError) -> None:
        """Count an open that failed for want of a descriptor; log it, once in LOG_SECONDS."""
        with self._lock:
            self._shortages += 1
            now_s = time.monotonic()
            if now_s - self._logged_s < LOG_SECONDS:
                return
            self._logged_s = now_s
        log.warning(
            "opening a file failed (%d times so far): %s; retrying with fewer open files; raise"
            " the limit (ulimit -n)",
            self._shortages,
            error,
        )

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            self._count = 0
            while self._spare:
                os.close(self._spare.pop())


@contextlib.contextmanager
def _without_shortage() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_shortage(error):
            raise
