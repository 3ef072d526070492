"""A queue of keys to process until each succeeds; a key that fails does not delay the others.

Keys are taken together, some at a time. A failure does not tell which of them failed, so they are
taken again in halves, until the failing one is alone; that one gets a
backoff, and is taken alone after it. Backoffs grow while it fails.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

RETRY_FIRST_MS: Final = 500
RETRY_MS_MAX: Final = 60_000
"""The backoff after a failure: doubled each time, within these."""

TAKEN_MAX: Final = 1_000
"""Other tasks of the event loop run between two takings."""

K = TypeVar("K", bound=Any)  # Hashed, and ordered among its like.


@dataclass(slots=True)
class Pause:
    """A backoff after failures. `due_ms`: until when, None = there is none."""

    due_ms: int | None = None
    _failures: int = 0
    _ended_ms: int = 0

    def begin(self, now_ms: int) -> None:
        """Begin the backoff, unless it has begun."""
        if self.due_ms is not None:
            return
        if now_ms - self._ended_ms > RETRY_MS_MAX:
            self.forget()  # The last attempt did not fail.
        self.due_ms = now_ms + min(RETRY_FIRST_MS << min(self._failures, 20), RETRY_MS_MAX)
        self._failures += 1

    def forget(self) -> None:
        """Let the next backoff be short: the last attempt succeeded."""
        self._failures = 0

    def end(self, now_ms: int) -> bool:
        """End the backoff if it is due; tell whether it was."""
        if self.due_ms is None or now_ms < self.due_ms:
            return False
        self.due_ms, self._ended_ms = None, now_ms
        return True


class RetryQueue(Generic[K]):
    """See the module. One taken set at a time. The cost does not grow with the number of keys in
    backoff: the queue is polled after each event and each attempt, and each of those is alone.
    """

    def __init__(self) -> None:
        self._waiting: set[K] = set()
        self._unpaused: set[K] = set()
        """Waiting keys without a backoff."""
        self._parts: list[list[K]] = []
        self._pauses: dict[K, Pause] = {}
        """Of keys that failed alone, until they succeed."""
        self._due: list[tuple[int, K]] = []
        """A heap of the running backoffs."""

    def add(self, keys: Iterable[K]) -> None:
        """Add keys; one that is backed off is taken after its backoff."""
        keys = set(keys) - self._waiting
        self._waiting |= keys
        self._unpaused.update(key for key in keys if key not in self._pauses)

    @property
    def has_any(self) -> bool:
        """Tell whether there is something to take now."""
        return bool(self._parts or self._unpaused)

    def take(self, count: Callable[[Sequence[K]], int] = len) -> list[K]:
        """Return the keys to process together, at most `TAKEN_MAX`; empty = none now.

        `count`: returns how many of the first ones to take, where keys differ in size.
        """
        is_part = bool(self._parts)
        found = self._parts.pop() if is_part else sorted(self._unpaused)[:TAKEN_MAX]
        keys = found[: count(found)]
        if is_part and len(keys) < len(found):
            self._parts.append(found[len(keys) :])
        self._waiting.difference_update(keys)
        self._unpaused.difference_update(keys)
        return keys

    def done(self, keys: Iterable[K]) -> None:
        """The taken keys succeeded."""
        for key in keys:
            if self._pauses.pop(key, None) is not None and key in self._waiting:
                self._unpaused.add(key)

    def failed(self, keys: Sequence[K], now_ms: int) -> None:
        """The taken keys failed, or some of them."""
        self.add(keys)
        if len(keys) == 1:
            self._pause(keys[0], now_ms)
        elif keys:
            middle = len(keys) // 2
            self._parts += [list(keys[middle:]), list(keys[:middle])]

    def _pause(self, key: K, now_ms: int) -> None:
        pause = self._pauses.setdefault(key, Pause())
        assert pause.due_ms is None, "it was taken before its pause was over"
        pause.begin(now_ms)
        assert pause.due_ms is not None
        heappush(self._due, (pause.due_ms, key))
        self._unpaused.discard(key)

    @property
    def due_ms(self) -> int | None:
        """Return when the first backoff ends, None = there is none."""
        return self._due[0][0] if self._due else None

    def end_pauses(self, now_ms: int) -> None:
        """Have the keys taken again whose backoff is over."""
        while self._due and self._due[0][0] <= now_ms:
            _, key = heappop(self._due)
            is_over = self._pauses[key].end(now_ms)
            assert is_over
            self._parts.append([key])
