"""Short stories of remote storage break no promise, and show which checker finds a broken rule.

Method: each story of `tier_stories` is played with the whole product in both modes, and each of
`tier_variants`, with a rule broken, in the one story that is made for it. The checker of the
promise that the rule keeps must find it with one of few seeds. One history takes one to five
seconds of CPU. A run plays a part, drawn by the commit.
"""

from dataclasses import replace

import pytest

from ottla.testing.scenarios.runner import play_scenario

from ..drawn import SIM_VARIANTS, drawn
from .found_out import BROKEN_SETTLE_SECONDS, find_out
from .tier_stories import OVER, STORIES, scenario
from .tier_variants import TIER_VARIANTS, TierVariant

SEEDS = (1, 2, 3)
OF_THE_END = ("manifest wrong",)
"""Checkers that may find something where a history ends before everything has settled."""

KEPT = drawn(
    [(name, zookeeper) for zookeeper in (False, True) for name in STORIES], 4, SIM_VARIANTS
)
PLAYED = drawn(TIER_VARIANTS, 3, SIM_VARIANTS)


@pytest.mark.parametrize(("name", "zookeeper"), KEPT)
def test_a_story_breaks_no_promise(name: str, zookeeper: bool) -> None:
    report = play_scenario(SEEDS[0], scenario(name, zookeeper=zookeeper))
    assert report.is_kept, "\n".join(report.lines(full=True))
    assert report.marks[OVER] == 1


@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_checker_finds_a_broken_rule(variant: TierVariant) -> None:
    played = scenario(variant.story)
    if variant.by not in OF_THE_END:
        played = replace(played, settle_seconds=BROKEN_SETTLE_SECONDS)
    find_out(
        variant.breaks,
        (variant.by,),
        SEEDS,
        lambda seed: play_scenario(seed, played),
        judged=SEEDS,
    )
