"""The standard mix finds out logs that are off by one, or durable too late.

Method: as `test_fault_variants`, with the variants of `log_variants`.
"""

import pytest

from ottla.testing.scenarios.runner import PlayOptions, play

from ..drawn import SIM_VARIANTS, drawn
from .fault_variants import BY_PROMISE, SEEDS_MAX
from .found_out import STANDARD, ZOOKEEPER_STANDARD, find_out
from .log_variants import LOG_VARIANTS, LogVariant

FEW = 1
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
    options = PlayOptions(zookeeper=variant.zookeeper)
    find_out(
        variant.breaks,
        BY_PROMISE,
        range(1, SEEDS_MAX + 1),
        lambda seed: play(seed, options),
        judged=ZOOKEEPER_STANDARD if variant.zookeeper else STANDARD,
    )
