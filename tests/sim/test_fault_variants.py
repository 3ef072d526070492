"""The standard mix finds out rules that are kept but off by one, applied too late, or forgotten.

Method: each variant (see `fault_variants`) replaces one function of the product while the standard
seeds are played; a checker of promises must find it, not an assertion, nor missing progress. Which
seed shows it shifts with every change of the product, so that without OTTLA_SIM_VARIANTS=all only
some of those are played that few seeds have shown (see `drawn`).
"""

import pytest

from ottla.testing.scenarios.runner import PlayOptions, play

from ..drawn import SIM_VARIANTS, drawn
from .fault_variants import BY_PROMISE, FAULT_VARIANTS, SEEDS_MAX, FaultVariant
from .found_out import STANDARD, ZOOKEEPER_STANDARD, find_out
from .group_variants import GROUP_VARIANTS, GroupVariant
from .log_variants import LOG_VARIANTS, LogVariant

FEW = 1
"""A variant that its first so many seeds show may be played in any run."""

PLAYED = drawn(
    FAULT_VARIANTS,
    1,
    SIM_VARIANTS,
    suits=lambda each: each.first is not None and each.first <= FEW,
)


@pytest.mark.parametrize(
    "variant",
    [*FAULT_VARIANTS, *LOG_VARIANTS, *GROUP_VARIANTS],
    ids=lambda each: each.breaks.__name__,
)
def test_there_still_is_what_a_variant_breaks(
    variant: FaultVariant | LogVariant | GroupVariant,
) -> None:
    with variant.breaks():
        pass


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_subtle_fault_is_found_out(variant: FaultVariant) -> None:
    options = PlayOptions(zookeeper=variant.zookeeper)
    find_out(
        variant.breaks,
        BY_PROMISE,
        range(1, SEEDS_MAX + 1),
        lambda seed: play(seed, options),
        judged=ZOOKEEPER_STANDARD if variant.zookeeper else STANDARD,
    )
