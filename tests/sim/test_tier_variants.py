"""The standard mix finds out remote storage that breaks a rule.

Method: as `test_fault_variants`, with the variants of `tier_variants`, and only with the seeds that
have remote storage: one of twelve.
"""

from collections.abc import Iterator
from itertools import count, islice

import pytest

from ottla.testing.scenarios.runner import PlayOptions, play
from ottla.testing.scenarios.tiering import draw_tiering

from ..drawn import SIM_VARIANTS, drawn
from .fault_variants import BY_PROMISE
from .tier_variants import TIER_VARIANTS, TierVariant

SEEDS_MAX = 100

FEW = 1
"""A variant that its first so many seeds show may be played in any run."""

PLAYED = drawn(
    TIER_VARIANTS,
    1,
    SIM_VARIANTS,
    suits=lambda each: each.first is not None and each.first <= FEW,
)


def tiered_seeds() -> Iterator[int]:
    return (seed for seed in count(1) if draw_tiering(seed).topics)


@pytest.mark.parametrize("variant", TIER_VARIANTS, ids=lambda each: each.breaks.__name__)
def test_there_still_is_what_a_variant_breaks(variant: TierVariant) -> None:
    with variant.breaks():
        pass


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_broken_rule_of_remote_storage_is_found_out(variant: TierVariant) -> None:
    for number, seed in enumerate(islice(tiered_seeds(), SEEDS_MAX), 1):
        with variant.breaks():
            report = play(seed, PlayOptions())
        checkers = [each.checker for each in report.judgement.violations]
        found = [each for each in checkers if each in BY_PROMISE]
        if found:
            whole = play(seed, PlayOptions())
            assert whole.is_kept, "\n".join(whole.lines(full=True))
            print(f"{variant.breaks.__name__}: {number} seeds, {seed}, by {', '.join(found)}")
            return
    raise AssertionError(f"none of {SEEDS_MAX} seeds shows it")
