"""Groups and readers with one rule broken must be found out by the standard mix of histories.

Method: as `test_variants`, but what is played is what every seed draws by itself: each variant
(see `group_variants`) replaces one function of the product, and a checker of groups must find it
within SEEDS_MAX seeds. Seeds without groups are passed over. `-s` shows how many each one took.
Each run plays a few of those that few seeds have shown, drawn by the commit (see `drawn`).
"""

import pytest

from ottla.testing.scenarios.groups import draw_groups
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.scenarios.standard import draw_scenario

from ..drawn import SIM_VARIANTS, drawn
from .found_out import STANDARD, find_out
from .group_variants import GROUP_VARIANTS, GroupVariant

SEEDS_MAX = 200
FEW = 1
"""A variant that its first so many seeds have shown may be played in any run."""

PLAYED = drawn(
    GROUP_VARIANTS,
    1,
    SIM_VARIANTS,
    suits=lambda each: each.seeds is not None and each.seeds <= FEW,
)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_broken_rule_is_found_out(variant: GroupVariant) -> None:
    find_out(
        variant.breaks,
        variant.by,
        (seed for seed in range(1, SEEDS_MAX + 1) if draw_groups(seed).groups),
        lambda seed: play_scenario(seed, draw_scenario(seed)),
        judged=STANDARD,
    )
