"""A dialogue goes on when what it waits for has come, in virtual time.

Method: generators over timers that the test moves.
"""

from ottla.base.pending import Pending, completed
from ottla.testing.sim_clients.dialogue import Dialogue, start

from .fake import Steps


def test_a_promise_gives_its_value_and_a_number_passes_time() -> None:
    steps, promise, seen = Steps(), Pending[int](), list[object]()

    def talk() -> Dialogue[str]:
        seen.append((yield promise))
        seen.append((yield 250))
        seen.append(steps.ms)
        return "end"

    end = start(talk(), steps.timers, steps)
    assert seen == []
    promise.complete(7)
    steps.run(249)
    assert (seen, end.done) == ([7], False)
    steps.run(1)
    assert (seen, end.value) == ([7, None, 250], "end")


def test_a_dialogue_waits_for_another() -> None:
    steps = Steps()

    def inner() -> Dialogue[int]:
        yield 10
        return 3

    def outer() -> Dialogue[int]:
        first = yield from inner()
        second = yield start(inner(), steps.timers, steps)
        return first + second

    end = start(outer(), steps.timers, steps)
    steps.run(20)
    assert end.value == 6


def test_promises_that_are_kept_already_do_not_nest() -> None:
    steps = Steps()

    def talk() -> Dialogue[int]:
        total = 0
        for _each in range(5_000):
            total += yield completed(1)
        return total

    assert start(talk(), steps.timers, steps).value == 5_000
