"""A rule is broken, and seed after seed is played, until a checker of promises finds it."""

import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager

from ottla.testing.scenarios.report import Report

# fmt: off
STANDARD = (1, *(1_000_000 + each for each in (
    1, 2, 9, 10, 43, 59, 61, 69, 70, 71, 73, 95, 97, 99, 101, 104, 106, 109, 130, 131, 145, 148,
    150, 156, 228, 252, 306, 312, 335, 498, 511, 513, 538, 556, 558, 578, 590, 625, 652, 670,
)))
ZOOKEEPER_STANDARD = (1, *(1_000_000 + each for each in (
    12, 36, 49, 50, 91, 101, 104, 116, 124, 133, 150, 201, 212, 226, 228, 252,
)))
# fmt: on
"""The seeds of the standard mix that `test_seeds` plays with the product as it is. They are the
shortest of a thousand that together go each path, twice, that one seed of thirty goes. Seed 1
is the first that broken rules are tried with."""

BROKEN_SETTLE_SECONDS = 5
"""For stories: what is broken need not settle."""


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
    tried = 0
    for tried, seed in enumerate(seeds, 1):
        with breaks():
            report = play(seed)
        found = [each.checker for each in report.judgement.violations if each.checker in by]
        if found:
            if seed not in judged:
                whole = play(seed)
                assert whole.is_kept, "\n".join(whole.lines(full=True))
            # To the standard error, which the workers of xdist share.
            print(
                f"{breaks.__name__}: {tried} seeds, {seed}, by {', '.join(found)}", file=sys.stderr
            )
            return
    raise AssertionError(f"none of {tried} seeds shows {breaks.__name__} to {', '.join(by)}")
