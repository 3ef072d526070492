"""Short stories of a backfill break no promise, and show which checker finds a broken rule.

Method: as `test_tier_stories`, with the stories of `backfill_stories` and the leaders of
`backfill_variants`. A run plays a part, drawn by the commit.
"""

from dataclasses import replace

import pytest

from ottla.testing.scenarios.runner import play_scenario

from ..drawn import SIM_VARIANTS, drawn
from .backfill_stories import STORIES, scenario
from .backfill_variants import BACKFILL_VARIANTS
from .found_out import BROKEN_SETTLE_SECONDS, find_out
from .tier_stories import OVER
from .tier_variants import TierVariant

SEEDS = (1, 2, 3)
REACHED = {
    "dead_holder": ("backfill-died", "backfill-kept"),
    "other_store": ("backfill-other store",),
    "stalled_holder": ("backfill-stalled", "backfill-failed"),
    "dead_leader": ("backfill-stalled", "backfill-failed", "backfill-finished"),
}
"""The marks of each story."""

KEPT = drawn(
    [(name, zookeeper) for zookeeper in (False, True) for name in STORIES], 2, SIM_VARIANTS
)
PLAYED = drawn(BACKFILL_VARIANTS, 1, SIM_VARIANTS)


@pytest.mark.parametrize(("name", "zookeeper"), KEPT)
def test_a_story_breaks_no_promise(name: str, zookeeper: bool) -> None:
    report = play_scenario(SEEDS[0], scenario(name, zookeeper=zookeeper))
    assert report.is_kept, "\n".join(report.lines(full=True))
    assert report.marks[OVER] == 1
    missing = [each for each in REACHED[name] if not report.marks[each]]
    assert missing == []


@pytest.mark.parametrize("variant", PLAYED, ids=lambda each: each.breaks.__name__)
def test_a_checker_finds_a_broken_rule(variant: TierVariant) -> None:
    played = replace(scenario(variant.story), settle_seconds=BROKEN_SETTLE_SECONDS)
    find_out(
        variant.breaks,
        (variant.by,),
        SEEDS,
        lambda seed: play_scenario(seed, played),
        judged=SEEDS,
    )
