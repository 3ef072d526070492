"""Sequences of requests as generators: they yield what to wait for.

A dialogue yields a promise and is given its value, or yields a number of milliseconds and is
given None when they have passed. Its return value completes another promise,
so that one dialogue can wait for another.
"""

from collections.abc import Generator
from typing import Any, TypeVar

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers

T = TypeVar("T")

Dialogue = Generator[Pending[Any] | int, Any, T]


def start(dialogue: Dialogue[T], timers: Timers, clock: Clock) -> Pending[T]:
    """Run a dialogue up to its first wait; return the promise of its end."""
    end: Pending[T] = Pending()

    def go_on(value: Any) -> None:
        while True:
            try:
                wanted = dialogue.send(value)
            except StopIteration as stop:
                end.complete(stop.value)
                return
            if isinstance(wanted, int):
                timers.at(clock.monotonic_ms() + wanted, lambda: go_on(None))
                return
            if not wanted.done:
                wanted.then(go_on)
                return
            value = wanted.value  # Not by `then`: many of these would nest too deep.

    go_on(None)
    return end
