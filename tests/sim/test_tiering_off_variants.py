"""Stories of tiered storage that is turned off break no promise, and show which checker finds a
broken rule.

Method: as `test_tier_stories`, in both modes: each story of `tiering_off_stories` with the whole
product, each variant of `tiering_off_variants` in the story that is made for it.
"""

from dataclasses import replace

import pytest

from ottla.testing.scenarios.runner import play_scenario

from ..drawn import SIM_STORIES, SIM_VARIANTS, drawn
from .found_out import BROKEN_SETTLE_SECONDS, find_out
from .tier_stories import OVER
from .tiering_off_stories import STORIES, scenario
from .tiering_off_variants import OFF_VARIANTS, OffVariant

SEEDS = (1, 2, 3)

WHOLE = drawn(
    [(name, zookeeper) for name in STORIES for zookeeper in (False, True)], 2, SIM_STORIES
)
PLAYED = drawn(OFF_VARIANTS, 1, SIM_VARIANTS)


@pytest.mark.parametrize("variant", OFF_VARIANTS, ids=lambda each: each.breaks.__name__)
def test_there_still_is_what_a_variant_breaks(variant: OffVariant) -> None:
    with variant.breaks():
        pass


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "zookeeper"), WHOLE)
def test_a_story_breaks_no_promise(name: str, zookeeper: bool) -> None:
    report = play_scenario(SEEDS[0], scenario(name, zookeeper=zookeeper))
    assert report.is_kept, "\n".join(report.lines(full=True))
    assert report.marks[OVER] == 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_checker_finds_a_broken_rule(variant: OffVariant) -> None:
    played = scenario(variant.story, zookeeper=variant.zookeeper)
    played = replace(played, settle_seconds=BROKEN_SETTLE_SECONDS)
    find_out(
        variant.breaks,
        (variant.by,),
        SEEDS,
        lambda seed: play_scenario(seed, played),
        judged=SEEDS,
    )
