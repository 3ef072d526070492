"""A simulator that finds nothing proves nothing: Ottla with one rule broken must be found out.

Method: each variant (see `variants`) replaces one function of the product while a small cluster
is played, seed after seed, until a checker that knows the promise finds it. The product itself
keeps its promises in the very history that convicts the variant. `-s` shows how many seeds each
one took. Each run plays a part, drawn by the commit; `make soak` plays them all.
"""

import pytest

from ottla.testing.scenarios.runner import play_scenario

from ..drawn import SIM_VARIANTS, drawn
from .found_out import find_out
from .variants import SEEDS_MAX, VARIANTS, Variant

# A history without progress is played for minutes: the rule that shows so is left to soaks.
PLAYED = drawn(VARIANTS, 1, SIM_VARIANTS, suits=lambda each: "no progress" not in each.by)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_broken_rule_is_found_out(variant: Variant) -> None:
    find_out(
        variant.breaks,
        variant.by,
        range(1, SEEDS_MAX + 1),
        lambda seed: play_scenario(seed, variant.scenario),
    )


def test_a_variant_is_gone_when_its_time_is_over() -> None:
    from ottla.broker.partition import Partition

    variant = next(each for each in VARIANTS if each.breaks.__name__.startswith("acknowledges"))
    before = Partition.committed
    with variant.breaks():
        assert Partition.committed is not before
    assert Partition.committed is before
