"""The turns of flushes: each holds files open, and those of all logs at once would be too many.

A flush begins at once while those in progress hold less than their bound; else it waits, and
prepares its job when its turn comes. So a late one covers what was appended meanwhile.
"""

from collections import deque
from collections.abc import Callable

from ottla.base.limits import FILES_PER_FLUSH


class FlushQueue:
    """See the module. `files_max`: the bound; the last one that begins may exceed it by a few."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._files = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_advancing = False

    def enter(self, begin: Callable[[], None]) -> None:
        """Call `begin` when it is its turn: now, or later. It calls `take` if it holds files."""
        self._waiting.append(begin)
        self._advance()

    @property
    def room(self) -> int:
        """How many files the next flush may hold: half of what is left, for others come, too."""
        return max(FILES_PER_FLUSH, (self._files_max - self._files) // 2)

    def take(self, files: int) -> None:
        """Note that a flush which has begun holds so many files open; `leave` follows."""
        self._files += files

    def leave(self, files: int) -> None:
        """Note that a flush does not hold them any more."""
        self._files -= files
        self._advance()

    def _advance(self) -> None:
        if self._is_advancing:
            return  # The loop below goes on.
        self._is_advancing = True
        failure: Exception | None = None
        while self._waiting and self._has_room():
            try:
                self._waiting.popleft()()
            except Exception as error:
                failure = failure or error  # The others have their turns all the same.
        self._is_advancing = False
        if failure is not None:
            raise failure

    def _has_room(self) -> bool:
        return not self._files or self._files < self._files_max
