"""Groups and readers with one rule broken must be found out by the standard mix of histories.

Method: as `test_variants`, but what is played is what every seed draws by itself: each variant
(see `group_variants`) replaces one function of the product, and a checker of groups must find it
within SEEDS_MAX seeds. Seeds without groups are passed over. `-s` shows how many each one took.
Each run plays a few of those that few seeds have shown, drawn by the commit (see `drawn`).
"""

import pytest

from ottla.testing.scenarios.groups import draw_groups
from ottla.testing.scenarios.report import Report
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.scenarios.standard import draw_scenario

from ..drawn import SIM_VARIANTS, drawn
from .group_variants import GROUP_VARIANTS, GroupVariant

SEEDS_MAX = 200
FEW = 3
"""A variant that its first so many seeds have shown may be played in any run."""

PLAYED = drawn(
    GROUP_VARIANTS,
    2,
    SIM_VARIANTS,
    suits=lambda each: each.seeds is not None and each.seeds <= FEW,
)


def found_by(report: Report, variant: GroupVariant) -> list[str]:
    return [each.checker for each in report.judgement.violations if each.checker in variant.by]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_broken_rule_is_found_out(variant: GroupVariant) -> None:
    for seed in (seed for seed in range(1, SEEDS_MAX + 1) if draw_groups(seed).groups):
        with variant.breaks():
            report = play_scenario(seed, draw_scenario(seed))
        checkers = found_by(report, variant)
        if checkers:
            whole = play_scenario(seed, draw_scenario(seed))
            assert whole.is_kept, "\n".join(whole.lines(full=True))
            print(f"{variant.breaks.__name__}: {seed} seeds, by {', '.join(checkers)}")
            return
    raise AssertionError(f"none of {SEEDS_MAX} seeds shows it")
