"""Which of many cases a run plays: a few, drawn by the commit, so that a failure replays.

All of them would take hours; `make soak` plays them all.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeVar

T = TypeVar("T")

SIM_VARIANTS = "OTTLA_SIM_VARIANTS"
"""Broken rules that the simulator must find out."""

SIM_STORIES = "OTTLA_SIM_STORIES"
"""Seeds of stories that the simulator plays with each of many seeds."""

FAULT_ROUNDS = "OTTLA_FAULT_ROUNDS"
"""Failures that real clusters go through under load."""

EXAMPLES = "OTTLA_EXAMPLES"
"""Examples that Hypothesis makes for a property."""


def drawn(
    cases: Sequence[T],
    count: int,
    variable: str,
    *,
    suits: Callable[[T], bool] | None = None,
    name: str = "",
) -> list[T]:
    """Return so many of the cases, in their order; all where the environment's variable is `all`.

    `suits`: what may be drawn, None = any. `name`: others draw others.
    """
    if os.environ.get(variable) == "all":
        return list(cases)
    cases = list(filter(suits, cases)) if suits else list(cases)
    if count >= len(cases):
        return cases
    chosen = Random(_commit() + name).sample(range(len(cases)), count)
    return [cases[each] for each in sorted(chosen)]


def examples(count: int) -> int:
    """Return how many of so many examples a run gives a property: a quarter, but not under ten.

    All of them where OTTLA_EXAMPLES is `all`. Each run has others, which Hypothesis makes.
    """
    if os.environ.get(EXAMPLES) == "all":
        return count
    return max(count // 4, min(count, 10))


def drawn_seeds(count: int, of: int) -> list[int]:
    """Return so many of the seeds 1 to `of` of a simulated story."""
    return drawn(range(1, of + 1), count, SIM_STORIES)


@cache
def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()  # Empty where there is no repository: then always the same ones.
