"""A value that comes later, without a loop: the promise of a delayed result.

Completed at most once; listeners run in the order of their registration, at once when the value is
already set. No thread, no task: `complete` runs the listeners.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Pending(Generic[T]):
    """A single-assignment value with listeners."""

    __slots__ = ("_listeners", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._listeners: list[Callable[[T], None]] | None = None

    def complete(self, value: T) -> bool:
        """Set the value and call the listeners; return False where it was set before.

        Every listener is called, also after one that raised; the first exception is raised then.
        """
        if self.done:
            return False
        self.done = True
        self._value = value
        listeners = self._listeners
        if listeners is None:
            return True
        self._listeners = None
        failure: Exception | None = None
        for listener in listeners:
            try:
                listener(value)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return True

    def then(self, listener: Callable[[T], None]) -> None:
        """Call `listener` with the value, now or when it comes."""
        if self.done:
            listener(self._value)
        elif self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[T], None]) -> None:
        """Remove `listener`; harmless where it was called before, or never added.

        A long-lived promise with short-lived listeners would collect them otherwise.
        """
        if self._listeners is not None and listener in self._listeners:
            self._listeners.remove(listener)

    def map(self, convert: Callable[[T], U]) -> "Pending[U]":
        """Return a promise of `convert(value)`."""
        converted: Pending[U] = Pending()

        def convert_and_keep(value: T) -> None:
            converted.complete(convert(value))

        self.then(convert_and_keep)
        return converted

    @property
    def value(self) -> T:
        """Return the value, which must be set."""
        assert self.done
        return self._value


def nothing(*_: object) -> None:
    """A listener, or another callback, that does nothing."""


def completed(value: T) -> Pending[T]:
    """Return a completed promise."""
    pending: Pending[T] = Pending()
    pending.complete(value)
    return pending


def gather(promises: Sequence[Pending[T]]) -> Pending[list[T]]:
    """Return the promise of all values, in the order of `promises`."""
    gathered: Pending[list[T]] = Pending()
    missing = len(promises)

    def arrived(_: T) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            gathered.complete([promise.value for promise in promises])

    if not promises:
        gathered.complete([])
    for promise in promises:
        promise.then(arrived)
    return gathered
