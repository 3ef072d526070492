"""A rule is broken, and seed after seed is played, until a checker of promises finds it."""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager

from ottla.testing.scenarios.report import Report

STANDARD = (*range(1, 25), 41, 285)
ZOOKEEPER_STANDARD = range(1, 13)
"""The seeds of the standard mix that `test_seeds` plays with the product as it is. The last two of
STANDARD have remote storage, as one seed of twelve has: few would be left to expire segments."""

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
            print(f"{breaks.__name__}: {tried} seeds, {seed}, by {', '.join(found)}")
            return
    raise AssertionError(f"none of {tried} seeds shows {breaks.__name__} to {', '.join(by)}")
