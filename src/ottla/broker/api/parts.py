"""Requests to the controller that are decided in parts, so that none holds up the others.

The next part is decided when the last one is committed: what a part has changed, brokers have taken
in before the next one comes. A part stands or falls as one decision does.
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
    """Return all answers, in order, or the promise of them.

    Where a part cannot be decided, neither are those after it; `failed` answers for all of these.
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
            following = self.decide()
            if following.done:  # It wrote nothing, and there is nothing to wait for.
                self._call_later(lambda: go_on(following.value))
            else:
                following.then(go_on)

        decided.then(go_on)
        return self._ended
