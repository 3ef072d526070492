"""Tiered storage of a seed's topics is turned off and on again, by both policies, under all faults.

It has random streams of its own: a seed whose topics stay tiered has the same history without it.
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.testing.sim_clients import Dialogue, TopicSpec

if TYPE_CHECKING:
    from ottla.testing.scenarios.scenario import Story

SHARE = 0.5
"""Of the topics with remote storage. Each one costs its history the minutes of a purge."""

FIRST_MS_MAX = 40_000
PAUSE_MS_MAX = 25_000

ENABLE, POLICY = "remote.storage.enable", "remote.log.disable.policy"
COPY_DISABLE = "remote.log.copy.disable"

RETAIN = {ENABLE: "false", POLICY: "retain"}
DELETE = {ENABLE: "false", POLICY: "delete"}
STOP_COPIES = {COPY_DISABLE: "true"}
"""Kafka's name for a disablement that retains what was copied."""
ON = {ENABLE: "true", COPY_DISABLE: "false"}

OFF = (RETAIN, DELETE, DELETE, STOP_COPIES)


def draw_switched(seed: int, names: Sequence[str]) -> tuple[str, ...]:
    """Return the topics of a seed whose tiered storage is turned off and on."""
    random = Random(f"{seed}/tiered storage off")
    return tuple(each for each in names if random.random() < SHARE)


def keep_switching(story: "Story", topic: TopicSpec) -> Dialogue[None]:
    """Turn a topic's tiered storage off and on until the history is over, and leave it somewhere.

    A change while the topic is DISABLING is refused; then the next one is tried later.
    """
    random = Random(f"{story.sim.seed}/{topic.name} is turned off")
    yield 1 + random.randrange(FIRST_MS_MAX)
    while not story.is_over:
        way = random.choice(OFF)
        if (yield from _set(story, topic, way)) and way is not DELETE and random.random() < 0.3:
            yield 1 + random.randrange(PAUSE_MS_MAX)
            yield from _set(story, topic, DELETE | {COPY_DISABLE: "false"})
        yield 1 + random.randrange(PAUSE_MS_MAX)
        while not story.is_over and not (yield from _set(story, topic, ON)):
            yield 1 + random.randrange(PAUSE_MS_MAX)
        yield 1 + random.randrange(PAUSE_MS_MAX)


def _set(story: "Story", topic: TopicSpec, values: dict[str, str]) -> Dialogue[bool]:
    """Change a topic; tell whether it was accepted."""
    if story.is_over:
        return False
    return (yield from story.admin.configure(topic.name, values)) is Error.NONE
