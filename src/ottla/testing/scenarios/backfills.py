"""Which topics of a seed are backfilled, and by how many processes at once.

It has random streams of its own: a seed whose topics are not backfilled has the same history
without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ottla.testing.sim_clients import Dialogue, TopicSpec

if TYPE_CHECKING:
    from ottla.testing.scenarios.scenario import Story

QUOTA = "remote.log.manager.copy.max.bytes.per.second"
WINDOW = "remote.log.manager.copy.quota.window.num"
QUOTAS = (0, 0, 4_000)
"""Of the leaders' own copies, in bytes a second, so that something is left to grant; 0 = none."""

SHARE = 0.6
"""Of the topics with remote storage."""
START_MS_MAX = 30_000
"""Until when they begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Of one topic. `processes`: as many at once; for the others see `Backfiller`."""

    topic: str
    processes: int
    lease_ms: int
    interval_ms: int
    mishap_in: int


def draw_backfills(seed: int, names: Sequence[str]) -> tuple[Backfill, ...]:
    """Return the backfills of a seed."""
    random = Random(f"{seed}/backfills")
    drawn = [
        Backfill(
            topic=name,
            processes=random.choice((1, 2, 3)),
            lease_ms=random.choice((1_500, 5_000, 15_000)),
            interval_ms=random.choice((800, 2_000)),
            mishap_in=random.choice((0, 2, 4)),
        )
        if random.random() < SHARE
        else None
        for name in names
    ]
    return tuple(each for each in drawn if each is not None)


def backfill_config(seed: int, backfills: Sequence[Backfill]) -> tuple[tuple[str, str], ...]:
    """Return the brokers' properties of a seed with backfills."""
    quota = Random(f"{seed}/copy quota beside backfills").choice(QUOTAS)
    return ((QUOTA, str(quota)), (WINDOW, "2")) if backfills and quota else ()


def begin_backfill(story: "Story", topic: TopicSpec, drawn: Backfill) -> Dialogue[None]:
    """Start the processes of a backfill, one after the other."""
    random = Random(f"{story.sim.seed}/{topic.name} is backfilled")
    for _ in range(drawn.processes):
        yield 1 + random.randrange(START_MS_MAX // drawn.processes)
        if story.is_over:
            return
        story.backfill(
            topic,
            lease_ms=drawn.lease_ms,
            interval_ms=drawn.interval_ms,
            mishap_in=drawn.mishap_in,
        )
