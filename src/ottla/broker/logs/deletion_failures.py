"""Log lines about replicas that cannot be deleted: one a reason, without repetitions.

The controller retries failed deletions for as long as a disk stays broken, and each request names
up to a thousand replicas. A replica is not logged again before the controller's longest backoff is
over, unless the reason has changed.
"""

import logging
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.controller.retry_queue import RETRY_MS_MAX

NAMED_MAX: Final = 3
"""How many replicas, and paths, a line names."""

log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """Why a replica cannot be deleted. `name`: the replica's name in the log."""

    name: str
    error: OSError


class _Logged(NamedTuple):
    reason: str
    at_ms: int


class DeletionFailures:
    """See the module. Any hashable value that identifies a replica may be its key."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, _Logged] = {}
        """What was logged of each replica, the oldest first."""

    def log_new(
        self, failed: Mapping[Hashable, Failure], *, gone: Iterable[Hashable], now_ms: int
    ) -> None:
        """Log new failures. A replica that is `gone` was deleted: a later failure is a new one."""
        for key in gone:
            self._logged.pop(key, None)
        self._forget_until(now_ms - RETRY_MS_MAX)
        unlogged: dict[str, list[Failure]] = {}
        for key, failure in failed.items():
            reason = failure.error.strerror or str(failure.error)
            logged = self._logged.get(key)
            if logged is not None and logged.reason == reason:
                continue
            self._logged.pop(key, None)  # To be put at the end.
            self._logged[key] = _Logged(reason, now_ms)
            unlogged.setdefault(reason, []).append(failure)
        for reason, listed in unlogged.items():
            found = (each.error.filename for each in listed)
            paths = [str(each) for each in dict.fromkeys(found) if each is not None]
            log.error(
                "cannot delete %d replicas (%s): %s; the controller retries",
                len(listed),
                _some([each.name for each in listed]),
                f"{reason}: {_some(paths)}" if paths else reason,
            )

    def _forget_until(self, at_ms: int) -> None:
        while self._logged:
            key, logged = next(iter(self._logged.items()))
            if logged.at_ms > at_ms:
                return
            del self._logged[key]


def _some(words: list[str]) -> str:
    """Return the first few words, and the count of the others."""
    more = len(words) - NAMED_MAX
    return ", ".join(words[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
