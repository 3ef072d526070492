"""A simulator that finds nothing proves nothing: Ottla with one rule broken must be found out.

Method: each variant (see `variants`) replaces one function of the product while a small cluster
is played, seed after seed, until a checker that knows the promise finds it. The product itself
keeps its promises in the very history that convicts the variant. `-s` shows how many seeds each
one took. Each run plays a part, drawn by the commit; `make soak` plays them all.
"""

import pytest

from ottla.testing.scenarios.report import Report
from ottla.testing.scenarios.runner import play_scenario

from ..drawn import SIM_VARIANTS, drawn
from .variants import SEEDS_MAX, VARIANTS, Variant

PLAYED = drawn(VARIANTS, 3, SIM_VARIANTS)


def found_by(report: Report, variant: Variant) -> list[str]:
    return [each.checker for each in report.judgement.violations if each.checker in variant.by]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_broken_rule_is_found_out(variant: Variant) -> None:
    for seed in range(1, SEEDS_MAX + 1):
        with variant.breaks():
            report = play_scenario(seed, variant.scenario)
        checkers = found_by(report, variant)
        if checkers:
            whole = play_scenario(seed, variant.scenario)
            assert whole.is_kept, "\n".join(whole.lines(full=True))
            print(f"{variant.breaks.__name__}: {seed} seeds, by {', '.join(checkers)}")
            return
    raise AssertionError(f"none of {SEEDS_MAX} seeds shows it")


def test_a_variant_is_gone_when_its_time_is_over() -> None:
    from ottla.broker.partition import Partition

    variant = next(each for each in VARIANTS if each.breaks.__name__.startswith("acknowledges"))
    before = Partition.committed
    with variant.breaks():
        assert Partition.committed is not before
    assert Partition.committed is before
