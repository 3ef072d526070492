"""A rule is broken, and seed after seed is played, until a checker of promises finds it."""

import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from ottla.testing.scenarios.report import Report

# fmt: off
STANDARD = (1, *(1_000_000 + each for each in (
    1, 10, 43, 59, 61, 69, 70, 71, 73, 95, 97, 99, 101, 104, 106, 109, 130, 131, 148, 150, 156,
    228, 252, 335, 498, 513, 538, 556, 558, 578, 590, 670, 2072, 2179, 2412, 2570, 2596, 2635,
    2667, 2675,
)))
ZOOKEEPER_STANDARD = (1, *(1_000_000 + each for each in (
    12, 36, 49, 50, 91, 101, 104, 116, 124, 133, 150, 201, 212, 226, 228, 252,
)))
# fmt: on
"""The seeds of the standard mix that `test_seeds` plays with the product as it is: of a thousand,
short ones with enough acknowledged writes to count, which together go nearly each path that one
seed of thirty goes. Seed 1 is the first that broken rules are tried with."""

BROKEN_SETTLE_SECONDS = 5
"""For stories: what is broken need not settle."""


class Found(NamedTuple):
    """The seed that shows a broken rule, how many were played up to it, and by which checkers."""

    seed: int
    played: int
    by: list[str]


def first_found(
    breaks: Callable[[], AbstractContextManager[None]],
    by: Collection[str],
    seeds: Iterable[int],
    play: Callable[[int], Report],
    *,
    errors: tuple[type[Exception], ...] = (),
) -> Found | None:
    """Return what the first seed shows to the checkers `by`; None = no seed shows anything.

    `errors`: of a story or a client that cannot go on, which is nothing that a checker has found.
    """
    for played, seed in enumerate(seeds, 1):
        with suppress(*errors), breaks():
            violations = play(seed).judgement.violations
            if found := [each.checker for each in violations if each.checker in by]:
                return Found(seed, played, found)
    return None


def find_out(
    breaks: Callable[[], AbstractContextManager[None]],
    by: Collection[str],
    seeds: Iterable[int],
    play: Callable[[int], Report],
    *,
    judged: Collection[int] = (),
) -> None:
    """Fail unless one of the seeds shows the broken rule, and the product keeps its promises there.

    `by`: the checkers that count. `judged`: seeds that another test plays with the whole product.
    """
    found = first_found(breaks, by, seeds, play)
    assert found is not None, f"no seed shows {breaks.__name__} to {', '.join(by)}"
    if found.seed not in judged:
        whole = play(found.seed)
        assert whole.is_kept, "\n".join(whole.lines(full=True))
    # To the standard error, which the workers of xdist share.
    text = f"{found.played} seeds, {found.seed}, by {', '.join(found.by)}"
    print(f"{breaks.__name__}: {text}", file=sys.stderr)
