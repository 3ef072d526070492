"""Partitions move all the time, to new targets before the last were reached, and everything fails.

Method: a story that every few hundred milliseconds gives a partition of a written topic other
replicas, more or fewer, or cancels its move; under faults of every kind that the seed draws. The
checkers judge the clients' results; at the end no move is under way and all replicas are equal.
"""

from dataclasses import replace

import pytest

from ottla.controller.elections import partition_change
from ottla.metadata.image import PartitionImage
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim import Faults

from ..drawn import drawn_seeds

PARTITIONS = 3

ORDERS = TopicSpec(
    name="orders",
    partitions=PARTITIONS,
    replication_factor=3,
    configs={"min.insync.replicas": "2"},
)


def partitions_move(story: Story) -> Dialogue[None]:
    yield from story.create(ORDERS)
    story.produce(ORDERS, clients=3, interval_ms=100)
    story.consume(ORDERS)
    below = story.sim.dice.below
    while True:
        yield 50 + below(500)
        left = list(story.broker_ids)
        target = tuple(left.pop(below(len(left))) for _ in range(2 + below(3)))
        cancels = below(3) == 0
        yield from story.admin.reassign(ORDERS.name, below(PARTITIONS), None if cancels else target)


SCENARIO = Scenario(
    name="partitions move",
    story=partitions_move,
    brokers=5,
    controllers=3,
    faults=Faults.ROUGH,
    seconds=40,
    acknowledged_min=300,
)


@pytest.mark.parametrize("seed", drawn_seeds(1, of=4))
def test_moving_partitions_lose_nothing(seed: int) -> None:
    report = play_scenario(seed, SCENARIO)
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["reassignment-done"] >= 5
    assert report.marks["error-no-reassignment-in-progress"] > 0, "nothing was cancelled"


def ended_early(goal: PartitionImage) -> PartitionImage:
    """End a reassignment whoever is in sync: what must never be."""
    staying = tuple(each for each in goal.replicas if each not in goal.removing_replicas)
    if not goal.removing_replicas and not goal.adding_replicas:
        return goal
    return replace(
        goal,
        replicas=staying,
        directories=tuple(goal.directory(each) for each in staying),
        isr=staying,
        elr=(),
        removing_replicas=(),
        adding_replicas=(),
    )


def test_a_move_that_ends_before_its_targets_are_in_sync_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the story above would prove nothing. One seed is enough."""
    monkeypatch.setattr(partition_change, "_complete_reassignment", ended_early)
    report = play_scenario(1, SCENARIO)
    found = {each.checker for each in report.judgement.violations}
    assert "acknowledged write lost" in found
