"""What is decided in parts is answered as one request, whether decisions come at once or later.

Method: hypothesis draws names, the size of parts, which decisions wait for their commit, and which
one fails; a controller whose answers the test gives.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.broker.api.parts import decide_in_parts
from ottla.controller.parts import in_parts

Outcome = tuple[bool, bool]
"""Whether a decision waits, and whether it fails."""


class ScriptedController:
    """Decides on lists of names; the answer is the names themselves."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = list(outcomes)
        self.waiting: list[Callable[[], object]] = []
        self.parts: list[tuple[str, ...]] = []
        self.later: list[Callable[[], None]] = []

    def run(self, decide: Callable[[Any], Any]) -> Pending[Any]:
        waits, fails = self.outcomes.pop(0) if self.outcomes else (False, False)
        reply = ApiError(Error.NOT_CONTROLLER) if fails else decide(None)
        if not fails:
            self.parts.append(reply)
        if not waits:
            return completed(reply)
        later: Pending[Any] = Pending()
        self.waiting.append(lambda: later.complete(reply))
        return later


def run(controller: ScriptedController, parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    context = SimpleNamespace(controller=controller, call_later=controller.later.append)
    steps = decide_in_parts(
        context,  # type: ignore[arg-type]
        parts,
        lambda _image, part: tuple(part),  # type: ignore[arg-type, return-value]
        lambda left, failure: tuple(f"{each}: {failure.error.name}" for each in left),
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
    if not isinstance(found, Pending):
        return tuple(found)
    while not found.done:
        assert len(controller.waiting) + len(controller.later) == 1, "one part after the other"
        before = len(controller.parts)
        (controller.waiting or controller.later).pop()()
        assert len(controller.parts) <= before + 1, "no more than one in a turn"
    return tuple(found.value)


@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=1),
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6),
)
def test_each_is_answered_once_in_order(
    names: list[str], size_max: int, outcomes: list[Outcome]
) -> None:
    parts = in_parts(names, lambda name: name, size_max)
    controller = ScriptedController(outcomes)
    answers = run(controller, parts)
    in_order = [each for name in dict.fromkeys(names) for each in names if each == name]
    done = sum(map(len, controller.parts))
    failed = [f"{name}: NOT_CONTROLLER" for name in in_order[done:]]
    assert list(answers) == in_order[:done] + failed
    assert controller.parts == parts[: len(controller.parts)]
