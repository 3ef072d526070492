"""The standard mix finds out remote storage that breaks a rule.

Method: as `test_fault_variants`, with the variants of `tier_variants`, and only with the seeds that
have remote storage: one of twelve. Only soaks play it, since such a seed takes half a minute; each
run plays some in a story made for them (`test_tier_stories`).
"""

from collections.abc import Iterator
from itertools import count, islice

import pytest

from ottla.testing.scenarios.runner import PlayOptions, play
from ottla.testing.scenarios.tiering import draw_tiering

from ..drawn import SIM_VARIANTS
from .fault_variants import BY_PROMISE
from .found_out import STANDARD, find_out
from .tier_variants import TIER_VARIANTS, TierVariant

SEEDS_MAX = 100


def tiered_seeds() -> Iterator[int]:
    return (seed for seed in count(1) if draw_tiering(seed).topics)


@pytest.mark.parametrize("variant", TIER_VARIANTS, ids=lambda each: each.breaks.__name__)
def test_there_still_is_what_a_variant_breaks(variant: TierVariant) -> None:
    with variant.breaks():
        pass


@pytest.mark.soak(SIM_VARIANTS)
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("variant", TIER_VARIANTS, ids=lambda each: each.breaks.__name__)
def test_a_broken_rule_of_remote_storage_is_found_out(variant: TierVariant) -> None:
    find_out(
        variant.breaks,
        BY_PROMISE,
        islice(tiered_seeds(), SEEDS_MAX),
        lambda seed: play(seed, PlayOptions()),
        judged=STANDARD,
    )
