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


def seeds_needed(rule: Rule, seeds: Iterable[int]) -> tuple[int, list[str]] | None:
    """Return the first seed whose history shows that the rule is broken, and by which checkers."""
    options = PlayOptions(zookeeper=rule.zookeeper)
    for seed in seeds:
        if rule.needs_groups and not draw_groups(seed).groups:
            continue
        try:
            with rule.breaks():
                report = play(seed, options)
        except Exception:
            continue  # The story or a client cannot go on: nothing that a checker has found.
        names = (each.checker for each in report.judgement.violations)
        if found := [name for name in names if name in rule.by]:
            return seed, found
    return None


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
        found = seeds_needed(rule, range(options.first, options.first + options.seeds))
        took = f"{time.monotonic() - began:.0f} s"
        if found is None:
            print(f"{rule.name}: not in {options.seeds} seeds ({took})", flush=True)
        else:
            count = found[0] - options.first + 1
            print(f"{rule.name}: {count} seeds, by {', '.join(found[1])} ({took})", flush=True)


if __name__ == "__main__":
    main()
