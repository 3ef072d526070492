"""Who asks for more waits while too many bytes are held.

Method: tasks that wait, by hand; one that is cancelled.
"""

from typing import Any, cast

from ottla.broker.remote.dialogue import Dialogue, Task
from ottla.broker.remote.held_bytes import HeldBytes


def test_who_waits_goes_on_when_bytes_are_given_back() -> None:
    held, order = HeldBytes(10), list[str]()

    def asks(name: str, count: int) -> Dialogue[None]:
        yield from held.wait()
        order.append(name)
        held.take(count)

    def begun(name: str, count: int) -> Task:
        task = Task(asks(name, count), cast(Any, None), cast(Any, None))
        task.start()
        return task

    begun("a", 9)
    begun("b", 5)  # May exceed the bound: what comes is not known when it is asked for.
    assert (order, held.held) == (["a", "b"], 14)
    begun("c", 1)
    cancelled = begun("d", 1)
    begun("e", 20)
    begun("f", 1)
    cancelled.cancel()
    held.give_back(4)
    assert order == ["a", "b"]
    held.give_back(1)
    assert (order, held.held) == (["a", "b", "c"], 10)
    held.give_back(10)
    assert (order, held.held) == (["a", "b", "c", "e"], 20)
    held.give_back(20)
    assert order == ["a", "b", "c", "e", "f"]
