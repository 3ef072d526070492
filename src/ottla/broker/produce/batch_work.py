"""Worker threads for the records of batches: work that could block the loop or exhaust memory.

The size to which a batch decompresses is the peer's choice. All such tasks of a node share one
queue, round-robin over their owners (connections), so that a request with a thousand of them does
not delay others. At most two run at a time, while the bytes that they may take stay within
`BATCH_WORK_BYTES_MAX`; a larger task runs alone. Threads share one interpreter: more of them would
gain nothing and delay the loop.

Source: no counterpart in Kafka, whose request threads do this work inline.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from ottla.base.errors import ApiError, Error
from ottla.base.limits import BATCH_WORK_BYTES_MAX, BATCHES_WAITING_BYTES_MAX
from ottla.base.pending import Pending
from ottla.base.ports import Workers

logger = logging.getLogger(__name__)

T = TypeVar("T")

RUNNING_MAX = 2


class _Piece(Generic[T]):
    __slots__ = ("bytes", "held", "outcome", "work")

    def __init__(self, work: Callable[[], T], count: int, held: int) -> None:
        self.work = work
        self.bytes = count
        self.held = held
        self.outcome: Pending[T | ApiError | OSError] = Pending()


class BatchWork:
    """The queue. Fields: `done`: tasks completed; `reserved_bytes`: of all tasks started so far."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._waiting: dict[object, deque[_Piece[object]]] = {}
        """By owner, the next owner first."""
        self._bytes = 0
        self._held = 0
        self._running = 0
        self.done = 0
        self.reserved_bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether the waiting tasks hold as many bytes as they may."""
        return self._held >= BATCHES_WAITING_BYTES_MAX

    @property
    def waiting(self) -> int:
        """Return how many tasks have not completed."""
        return sum(map(len, self._waiting.values())) + self._running

    def submit(
        self, work: Callable[[], T], *, expands_to: int, owner: object = None, held: int = 0
    ) -> Pending[T | ApiError | OSError]:
        """Run `work` in a worker; return the promise of its result, or of what it raised.

        Fields: `expands_to`: bytes that it takes at most while it runs; `owner`: for the
                round-robin order, None = one of its own; `held`: bytes kept until it completes.
        Any exception besides ApiError and OSError is a bug: it is logged, and becomes an ApiError
        (UNKNOWN_SERVER_ERROR).
        """
        piece = _Piece(work, expands_to, held)
        self._held += held
        waiting = self._waiting.setdefault(piece if owner is None else owner, deque())
        waiting.append(cast("_Piece[object]", piece))
        self._advance()
        return piece.outcome

    def _advance(self) -> None:
        while self._waiting:
            owner, pieces = next(iter(self._waiting.items()))
            piece = pieces[0]
            is_too_much = self._bytes + piece.bytes > BATCH_WORK_BYTES_MAX
            if self._running and (is_too_much or self._running == RUNNING_MAX):
                return
            pieces.popleft()
            del self._waiting[owner]
            if pieces:
                self._waiting[owner] = pieces  # Behind all others.
            self._running += 1
            self._bytes += piece.bytes
            self.reserved_bytes += piece.bytes
            self._begin(piece)

    def _begin(self, piece: _Piece[object]) -> None:
        def ended(outcome: object) -> None:
            self._running -= 1
            self._bytes -= piece.bytes
            self._held -= piece.held
            self.done += 1
            if isinstance(outcome, BaseException) and not isinstance(outcome, ApiError | OSError):
                logger.error("batch task failed", exc_info=outcome)
                outcome = ApiError(Error.UNKNOWN_SERVER_ERROR)
            try:
                piece.outcome.complete(outcome)
            finally:
                self._advance()

        self._workers.submit(piece.work, ended)
