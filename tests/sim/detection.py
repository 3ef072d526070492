"""How many seeds of the standard mix it takes to find each broken rule, by a checker of promises.

    python -m tests.sim.detection [--seeds 200] [--first 1] [--part K/N] [NAME ...]

Plays the mutants, and the variants of faults, logs and groups, with nothing tuned for them, and
prints a line for each as soon as it is found. `--part 1/2` and `--part 2/2` play each a half, in
two processes. What a checker may find differs: see `Rule`.
"""

import argparse
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from ottla.testing.scenarios.groups import draw_groups
from ottla.testing.scenarios.runner import PlayOptions, play

from .fault_variants import BY_PROMISE, FAULT_VARIANTS
from .found_out import Found, first_found
from .group_variants import GROUP_VARIANTS
from .log_variants import LOG_VARIANTS
from .mutants import MUTANTS


class Rule(NamedTuple):
    """A rule that can be broken.

    Fields: `by`: the checkers that count as having found it: neither the product's own assertions
            nor missing progress; `needs_groups`: seeds without consumer groups are passed over.
    """

    name: str
    breaks: Callable[[], AbstractContextManager[None]]
    by: Collection[str] = BY_PROMISE
    zookeeper: bool = False
    needs_groups: bool = False


def rules() -> Iterator[Rule]:
    """Yield all that the standard mix is to find."""
    for mutant in MUTANTS:
        yield Rule(mutant.name, mutant.applied, zookeeper=mutant.zookeeper)
    for variant in (*FAULT_VARIANTS, *LOG_VARIANTS):
        yield Rule(variant.breaks.__name__, variant.breaks, zookeeper=variant.zookeeper)
    for group in GROUP_VARIANTS:
        yield Rule(group.breaks.__name__, group.breaks, group.by, needs_groups=True)


def find(rule: Rule, seeds: Iterable[int]) -> Found | None:
    """Play seeds of the standard mix with the rule broken."""
    options = PlayOptions(zookeeper=rule.zookeeper)
    return first_found(
        rule.breaks,
        rule.by,
        (each for each in seeds if not rule.needs_groups or draw_groups(each).groups),
        lambda seed: play(seed, options),
        errors=(Exception,),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Break rules, and print the seeds that each needs."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.detection")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--part", default="1/1", metavar="K/N")
    options = parser.parse_args(arguments)
    part, parts = map(int, options.part.split("/"))
    chosen = [each for each in rules() if not options.names or each.name in options.names]
    for rule in chosen[part - 1 :: parts]:
        began = time.monotonic()
        found = find(rule, range(options.first, options.first + options.seeds))
        text = f"not in {options.seeds} seeds"
        if found is not None:
            text = f"{found.played} seeds, {found.seed}, by {', '.join(found.by)}"
        print(f"{rule.name}: {text} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
