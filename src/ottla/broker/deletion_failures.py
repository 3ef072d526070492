"""What a broker's log says of replicas that cannot be deleted: a line a reason, and not each time.

The controller orders what failed again and again, for as long as a disk stays broken, and each
order names up to a thousand replicas. What was said of a replica is not repeated before the
longest pause between two orders is over, unless the reason is another one by then.
"""

import logging
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.controller.retry_queue import RETRY_MS_MAX

NAMED_MAX: Final = 3
"""How many replicas, and paths, a line names."""

log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """Why a replica cannot be deleted. `name`: what a reader calls the replica."""

    name: str
    error: OSError


class _Logged(NamedTuple):
    reason: str
    at_ms: int


class DeletionFailures:
    """See the module. Whatever tells a replica from others will do as its key."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, _Logged] = {}
        """What the log says of replicas already, the oldest first."""

    def log_new(
        self, failed: Mapping[Hashable, Failure], *, gone: Iterable[Hashable], now_ms: int
    ) -> None:
        """Log what is new of the replicas that `failed`; one that is `gone` may fail anew."""
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
                "replicas that cannot be deleted for certain: %d (%s): %s",
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
    """Return the first few words, and how many more there are."""
    more = len(words) - NAMED_MAX
    return ", ".join(words[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
