"""What is to be done, until it was without a failure, and none of it waits for what fails.

Things are taken to be done together, some at a time. Where that fails nobody knows for which of
them, so they are taken again in halves, until the one that it fails for is alone; that one gets a
pause, and is taken alone after it. Pauses grow while it fails.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

RETRY_FIRST_MS: Final = 500
RETRY_MS_MAX: Final = 60_000
"""How long what failed is left alone: twice as long each time, within these."""

TAKEN_MAX: Final = 1_000
"""Others have their turn on the loop between two takings."""

K = TypeVar("K", bound=Any)  # Hashed, and ordered among its like.


@dataclass(slots=True)
class Pause:
    """How long something that failed is left alone. `due_ms`: until when, None = it is not."""

    due_ms: int | None = None
    _failures: int = 0
    _ended_ms: int = 0

    def begin(self, now_ms: int) -> None:
        """Leave it alone, unless it is."""
        if self.due_ms is not None:
            return
        if now_ms - self._ended_ms > RETRY_MS_MAX:
            self.forget()  # The last attempt did not fail.
        self.due_ms = now_ms + min(RETRY_FIRST_MS << min(self._failures, 20), RETRY_MS_MAX)
        self._failures += 1

    def forget(self) -> None:
        """Let the next pause be short: it works again."""
        self._failures = 0

    def end(self, now_ms: int) -> bool:
        """End the pause where its time has come; tell whether it has."""
        if self.due_ms is None or now_ms < self.due_ms:
            return False
        self.due_ms, self._ended_ms = None, now_ms
        return True


class RetryQueue(Generic[K]):
    """See the module. One taking at a time. What it costs does not grow with how many are paused:
    it is asked after each event and each attempt, and each of those is taken by itself."""

    def __init__(self) -> None:
        self._waiting: set[K] = set()
        self._unpaused: set[K] = set()
        """Those that wait and have no pause."""
        self._parts: list[list[K]] = []
        self._pauses: dict[K, Pause] = {}
        """Of what failed alone, until it does not."""
        self._due: list[tuple[int, K]] = []
        """A heap of the pauses that are not over."""

    def add(self, keys: Iterable[K]) -> None:
        """Have things taken; one that has a pause, after it."""
        keys = set(keys) - self._waiting
        self._waiting |= keys
        self._unpaused.update(key for key in keys if key not in self._pauses)

    @property
    def has_any(self) -> bool:
        """Tell whether there is something to take now."""
        return bool(self._parts or self._unpaused)

    def take(self) -> list[K]:
        """Return what is to be done together, at most `TAKEN_MAX`; empty = nothing is, now."""
        keys = self._parts.pop() if self._parts else sorted(self._unpaused)[:TAKEN_MAX]
        self._waiting.difference_update(keys)
        self._unpaused.difference_update(keys)
        return keys

    def done(self, keys: Iterable[K]) -> None:
        """Hear that what was taken did not fail."""
        for key in keys:
            if self._pauses.pop(key, None) is not None and key in self._waiting:
                self._unpaused.add(key)

    def failed(self, keys: Sequence[K], now_ms: int) -> None:
        """Hear that what was taken failed, or some of it."""
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
        """Return when the first pause is over, None = there is none."""
        return self._due[0][0] if self._due else None

    def end_pauses(self, now_ms: int) -> None:
        """Have those taken again whose pause is over."""
        while self._due and self._due[0][0] <= now_ms:
            _, key = heappop(self._due)
            is_over = self._pauses[key].end(now_ms)
            assert is_over
            self._parts.append([key])
