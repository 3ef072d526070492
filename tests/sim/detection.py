"""How many seeds of the standard mix it takes to find each broken rule, by a checker of promises.

    python -m tests.sim.detection [--seeds 200] [--first 1] [--part K/N] [NAME ...]

Plays the rules of `standard_mix`, and prints a line for each as soon as it is found. `--part 1/2`
and `--part 2/2` play each a half, in two processes. Seeds that cannot show a rule are passed over.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from functools import partial

from .found_out import Found, first_found
from .rule import Rule
from .standard_mix import SEEDS_MAX, play_standard, rules


def find(rule: Rule, seeds: Iterable[int]) -> Found | None:
    """Play seeds of the standard mix with the rule broken."""
    suiting = filter(rule.suits, seeds)
    return first_found(
        rule.breaks, rule.by, suiting, partial(play_standard, rule), errors=(Exception,)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Break rules, and print the seeds that each needs."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.detection")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
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
