"""The scenario that a seed draws by itself: a cluster's shape, its clients, and how busy they are.

Two topics: one that stays, whose records must all be there in the end, and one that is grown,
deleted and made anew. Producers of both kinds write, a consumer reads, an administrator changes
things. One seed in twenty has no faults: what fails there is no fault's doing.
"""

from random import Random

from ottla.testing.scenarios.scenario import Scenario, Story
from ottla.testing.sim import Faults
from ottla.testing.sim_clients import Dialogue, TopicSpec

FAULTLESS_EVERY = 20
ACKNOWLEDGED_MIN = 500

SHAPES = ((3, 3, False), (3, 3, True), (3, 1, False), (4, 3, True))
"""Brokers, controllers, whether some nodes are both."""

WEIGHTS = (3, 5, 1, 1)


def draw_scenario(seed: int) -> Scenario:
    """Return what a seed plays."""
    # Not the simulation's own stream: the same faults may be wished for with another story.
    dice = Random(f"scenario {seed}")
    brokers, controllers, combined = dice.choices(SHAPES, WEIGHTS)[0]
    faultless = seed % FAULTLESS_EVERY == 0
    steady = TopicSpec(
        name="steady",
        partitions=dice.randrange(2, 5),
        replication_factor=3,
        configs={"min.insync.replicas": "2"},
    )
    passing = TopicSpec(
        name="passing",
        partitions=dice.randrange(1, 3),
        replication_factor=dice.choice((2, 3)),
        configs={"min.insync.replicas": "2"},
    )
    clients = dice.randrange(1, 3)
    in_flight_max = dice.choice((1, 2, 5))
    interval_ms = dice.choice((90, 120, 150))
    change_ms = dice.choice((4_000, 8_000, 30_000))

    def story(story: Story) -> Dialogue[None]:
        yield from story.create(steady)
        story.produce(
            steady,
            clients=clients,
            interval_ms=interval_ms * clients,
            in_flight_max=in_flight_max,
        )
        story.produce(steady, interval_ms=6 * interval_ms, idempotent=False)
        story.consume(steady, interval_ms=600)
        yield from story.create(passing)
        story.produce(passing, interval_ms=10 * interval_ms, steady=False)
        yield from story.admin.keep_changing(
            steady, passing, brokers=story.broker_ids, interval_ms=change_ms
        )

    return Scenario(
        name="standard",
        story=story,
        brokers=brokers,
        controllers=controllers,
        combined=combined,
        faults=Faults.NONE if faultless else Faults.ROUGH,
        acknowledged_min=ACKNOWLEDGED_MIN,
    )
