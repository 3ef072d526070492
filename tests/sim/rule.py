"""A rule of the product that can be broken for a while, so that the standard mix has to find it."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ottla.testing.checkers.verdict import CHECKERS
from ottla.testing.scenarios.groups import draw_groups
from ottla.testing.scenarios.tiering import draw_tiering

BY_PROMISE = frozenset(CHECKERS) - {"assertion failed", "no progress"}
"""The checkers of promises."""


def any_seed(seed: int) -> bool:
    return True


def has_groups(seed: int) -> bool:
    """Tell whether a seed of the standard mix has consumer groups."""
    return bool(draw_groups(seed).groups)


def has_remote_storage(seed: int) -> bool:
    """Tell whether a seed of the standard mix has topics with remote storage."""
    return bool(draw_tiering(seed).topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that can be broken.

    Fields: `breaks`: the block in which it is. `by`: the checkers that count as having found it.
            `zookeeper`: it is one of clusters over ZooKeeper. `suits`: the seeds that can show it.
    """

    name: str
    breaks: Callable[[], AbstractContextManager[None]]
    by: Collection[str] = BY_PROMISE
    zookeeper: bool = False
    suits: Callable[[int], bool] = any_seed


def variant(
    breaks: Callable[[], AbstractContextManager[None]],
    *,
    by: Collection[str] = BY_PROMISE,
    zookeeper: bool = False,
    suits: Callable[[int], bool] = any_seed,
) -> Rule:
    """Return the rule that a block breaks, by the block's name."""
    return Rule(name=breaks.__name__, breaks=breaks, by=by, zookeeper=zookeeper, suits=suits)
