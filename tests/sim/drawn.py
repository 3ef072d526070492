"""Which of many broken variants a run plays: a few, drawn by the commit, so that a failure replays.

All of them take the better part of an hour; `make soak` plays them all (OTTLA_SIM_VARIANTS=all).
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

T = TypeVar("T")

ALL = os.environ.get("OTTLA_SIM_VARIANTS") == "all"


def drawn(variants: Sequence[T], count: int) -> list[T]:
    """Return so many of the variants, in their order; all where the environment says so."""
    if ALL or count >= len(variants):
        return list(variants)
    chosen = Random(_commit()).sample(range(len(variants)), count)
    return [variants[each] for each in sorted(chosen)]


def _commit() -> str:
    completed = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return (
        completed.stdout.strip()
    )  # Empty where there is no repository: then always the same ones.
