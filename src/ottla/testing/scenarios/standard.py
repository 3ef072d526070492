"""The standard scenario: a seed draws the cluster's shape, its clients and their rates.

One seed in twenty has no faults, to find failures that need none.
"""

from random import Random

from ottla.testing.scenarios.groups import draw_groups
from ottla.testing.scenarios.scenario import Scenario
from ottla.testing.scenarios.storage import draw_storage
from ottla.testing.scenarios.tiering import draw_tiering
from ottla.testing.scenarios.workload import Workload
from ottla.testing.sim import Faults

FAULTLESS_EVERY = 20
ACKNOWLEDGED_MIN = 300
"""Fewer acknowledged writes prove nothing: under many faults clients get little done."""

SHAPES = ((3, 3, False), (3, 3, True), (3, 1, False), (4, 3, True))
"""Brokers, controllers, whether some nodes are both."""

WEIGHTS = (3, 5, 1, 1)


def draw_scenario(seed: int) -> Scenario:
    """Return what a seed plays."""
    # A stream of its own: another story can be played with the same faults.
    dice = Random(f"scenario {seed}")
    brokers, controllers, combined = dice.choices(SHAPES, WEIGHTS)[0]
    is_faultless = seed % FAULTLESS_EVERY == 0
    groups = draw_groups(seed, faultless=is_faultless)
    storage = draw_storage(seed)
    tiering = draw_tiering(seed, faultless=is_faultless)
    workload = Workload(
        partitions=dice.randrange(2, 5),
        passing_partitions=dice.randrange(1, 3),
        passing_replication_factor=dice.choice((2, 3)),
        producers=dice.randrange(1, 3),
        in_flight_max=dice.choice((1, 2, 5)),
        interval_ms=dice.choice((80, 100, 120)),
        change_ms=dice.choice((4_000, 8_000, 30_000)),
        groups=groups,
        storage=storage,
        tiering=tiering,
    )
    return Scenario(
        name="standard",
        story=workload.story,
        brokers=brokers,
        controllers=controllers,
        combined=combined,
        faults=Faults.NONE if is_faultless else Faults.ROUGH,
        store_faults=tiering.faults,
        config=dict(storage.config) | dict(tiering.config) | dict(groups.config),
        acknowledged_min=ACKNOWLEDGED_MIN,
    )
