"""Requests to the controller that are decided in parts, so that a large one does not delay others.

The next part is decided when the previous one is committed, so that brokers can apply each part
before the next one comes. A part is atomic, as one decision is.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.turns import Steps
from ottla.broker.api.base import Context
from ottla.controller.step import Decision
from ottla.metadata.image import ClusterImage

P = TypeVar("P")
A = TypeVar("A")

Decide = Callable[[ClusterImage, Sequence[P]], Decision[tuple[A, ...]]]
Failed = Callable[[Sequence[P], ApiError], tuple[A, ...]]


def decide_in_parts(
    ctx: Context,
    parts: Sequence[Sequence[P]],
    decide: Decide[P, A],
    failed: Failed[P, A],
) -> Steps[tuple[A, ...] | Pending[tuple[A, ...]]]:
    """Return all results, in order, or the promise of them.

    Where a part fails, the later ones are not decided; `failed` returns the results of all these.
    """
    work = _Parts(ctx, parts, decide, failed)
    while work.left:
        decided = work.decide()
        if not decided.done:
            return work.go_on_after(decided)
        work.take(decided.value)
        yield
    return work.answers


class _Parts(Generic[P, A]):
    def __init__(
        self,
        ctx: Context,
        parts: Sequence[Sequence[P]],
        decide: Decide[P, A],
        failed: Failed[P, A],
    ) -> None:
        self._controller = ctx.controller
        self._call_later = ctx.call_later
        self._decide = decide
        self._failed = failed
        self._ended: Pending[tuple[A, ...]] = Pending()
        self._answers: list[A] = []
        self.left = deque(parts)

    @property
    def answers(self) -> tuple[A, ...]:
        return tuple(self._answers)

    def decide(self) -> Pending[tuple[A, ...] | ApiError]:
        part = self.left[0]
        return self._controller.run(lambda image: self._decide(image, part))

    def take(self, reply: tuple[A, ...] | ApiError) -> None:
        if isinstance(reply, ApiError):
            self._answers += self._failed([each for part in self.left for each in part], reply)
            self.left.clear()
        else:
            self._answers += reply
            self.left.popleft()

    def go_on_after(self, decided: Pending[tuple[A, ...] | ApiError]) -> Pending[tuple[A, ...]]:
        def go_on(reply: tuple[A, ...] | ApiError) -> None:
            self.take(reply)
            if not self.left:
                self._ended.complete(self.answers)
                return
            next_part = self.decide()
            if next_part.done:  # It wrote nothing: there is nothing to wait for.
                self._call_later(lambda: go_on(next_part.value))
            else:
                next_part.then(go_on)

        decided.then(go_on)
        return self._ended
