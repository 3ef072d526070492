"""Partitions move all the time, to new targets before the last were reached, and everything fails.

Method: a story that every few hundred milliseconds gives a partition of a written topic other
replicas, more or fewer, or cancels its move; under faults of every kind that the seed draws. The
checkers judge what clients were told; at the end no move is under way and all replicas are equal.
"""

import pytest

from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim import Faults

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


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_moving_partitions_lose_nothing(seed: int) -> None:
    report = play_scenario(seed, SCENARIO)
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["reassignment-done"] > 10
    assert report.marks["told-no-reassignment-in-progress"] > 0, "nothing was cancelled"
