"""Sequences of store operations as generators that yield the promises they wait for.

A procedure is given the value of each promise and ends with its result. Cancelling closes the
generator where it waits, so that its `finally` clauses give back what it holds: a place in a queue,
a timer, a call to the store.
"""

import logging
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from ottla.base.pending import Pending

logger = logging.getLogger(__name__)

T = TypeVar("T")

Procedure = Generator[Pending[Any], Any, T]


class Running(Generic[T]):
    """A procedure under way. `outcome`: its result; it stays open when the procedure is cancelled.

    Any exception is a bug, as procedures return the errors that they expect. It is logged, and the
    result is `on_bug`.
    """

    __slots__ = ("_awaited", "_is_stepping", "_on_bug", "_steps", "is_cancelled", "outcome")

    def __init__(self, steps: Procedure[T], on_bug: T) -> None:
        self.outcome: Pending[T] = Pending()
        self.is_cancelled = False
        self._steps = steps
        self._on_bug = on_bug
        self._awaited: Pending[Any] | None = None
        self._is_stepping = False

    def start(self) -> None:
        """Run up to the first promise that is open."""
        self._go_on(None)

    def cancel(self) -> None:
        """Close the procedure; harmless after its end."""
        if self.outcome.done or self.is_cancelled:
            return
        self.is_cancelled = True
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.forget(self._go_on)
        if not self._is_stepping:
            self._steps.close()

    def end(self, result: T) -> None:
        """Close the procedure and end it with `result`; harmless after its end."""
        if not self.outcome.done and not self.is_cancelled:
            self.cancel()
            self.outcome.complete(result)

    def _go_on(self, value: Any) -> None:
        self._awaited = None
        self._is_stepping = True
        try:
            # A loop, not recursion: many promises in a row may be kept already.
            while not self.is_cancelled:
                awaited = self._steps.send(value)
                if not awaited.done:
                    self._awaited = awaited
                    break
                value = awaited.value
        except StopIteration as end:
            result: T = end.value
            self._end(result)
            return
        except Exception:
            logger.exception("remote read failed")
            self._end(self._on_bug)
            return
        finally:
            self._is_stepping = False
        if self.is_cancelled:
            self._steps.close()
        elif self._awaited is not None:
            self._awaited.then(self._go_on)

    def _end(self, result: T) -> None:
        if not self.is_cancelled:
            self.outcome.complete(result)
