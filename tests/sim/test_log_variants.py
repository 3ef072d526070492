"""The standard mix finds out logs that are off by one, or durable too late.

Method: as `test_fault_variants`, with the variants of `log_variants`.
"""

import pytest

from ottla.testing.scenarios.runner import PlayOptions, play

from ..drawn import SIM_VARIANTS, drawn
from .fault_variants import BY_PROMISE, SEEDS_MAX
from .log_variants import LOG_VARIANTS, LogVariant

FEW = 3
"""A variant that its first so many seeds show may be played in any run."""

PLAYED = drawn(
    LOG_VARIANTS,
    1,
    SIM_VARIANTS,
    suits=lambda each: each.first is not None and each.first <= FEW,
)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_subtle_fault_of_a_log_is_found_out(variant: LogVariant) -> None:
    order = PlayOptions(zookeeper=variant.zookeeper)
    for seed in range(1, SEEDS_MAX + 1):
        with variant.breaks():
            report = play(seed, order)
        checkers = [each.checker for each in report.judgement.violations]
        found = [each for each in checkers if each in BY_PROMISE]
        if found:
            whole = play(seed, order)
            assert whole.is_kept, "\n".join(whole.lines(full=True))
            print(f"{variant.breaks.__name__}: seed {seed}, by {', '.join(found)}")
            return
    raise AssertionError(f"none of {SEEDS_MAX} seeds shows it")
