"""A former leader truncates its log, appends and rolls, and loses power within a second.

Method: a leader is cut off from everybody but its clients, whose writes fill segments that it
flushes; when it is back it truncates far below its recovery point and goes on as a follower.
Within a second of that it loses power, and what was not synced stays or not, page by page and name
by name. At most one broker has lost data at any time, so that nothing acknowledged may be gone and
all replicas must be equal in the end. Segments hold a few batches: the new ones begin at other
offsets than the old ones did. OTTLA_POWER_SEEDS=100, which `make soak` sets, plays more seeds.
"""

import os

import pytest

from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.scenarios.settling import brokers_of
from ottla.testing.sim import Faults

SECONDS = 60
SLOW_US = 1_000_000
"""How long the disk may take for a sync: so that power goes before what is to be durable is."""
SEEDS = range(1, 1 + int(os.environ.get("OTTLA_POWER_SEEDS", "1")))

ORDERS = TopicSpec(
    name="orders",
    partitions=1,
    replication_factor=3,
    configs={"min.insync.replicas": "2", "internal.segment.bytes": "1200"},
)

CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.socket.timeout.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.index.interval.bytes": "300",
}


def truncations(story: Story, node_id: int) -> int:
    """Return how often a broker's log of the topic was shortened in this life; -1 = not known."""
    broker = dict(brokers_of(story.sim)).get(node_id)
    logs = [] if broker is None else [each.log for each in broker.replicas.hosted()]
    counts = [log.truncation_count for log in logs if log is not None and log.topic == ORDERS.name]
    return counts[0] if counts else -1


def all_in_sync(story: Story) -> bool:
    found = story.sim.image.topics.by_name(ORDERS.name)
    return found is not None and all(
        set(state.isr) == set(state.replicas) for _, state in found.in_order()
    )


def power_goes_after_truncations(story: Story) -> Dialogue[None]:
    yield from story.create(ORDERS)
    story.produce(ORDERS, clients=6, interval_ms=150, idempotent=False)
    story.consume(ORDERS, interval_ms=100)
    sim = story.sim
    while story.now_ms < (SECONDS - 15) * 1_000:
        yield 2_000 + sim.dice.below(1_000)
        leader = story.leader_of(ORDERS.name)
        if leader not in sim.nodes or not all_in_sync(story):
            continue
        others = [each for each in sim.nodes if each != leader]
        links = {pair for each in others for pair in ((leader, each), (each, leader))}
        sim.net.cut |= links
        yield 2_500 + sim.dice.below(2_500)
        before = truncations(story, leader)
        pace = sim.nodes[leader].pace
        usual_us = pace.slowest_us
        pace.slowest_us = SLOW_US
        sim.net.cut -= links
        for _ in range(1_000):
            yield 10
            if truncations(story, leader) > before:
                break
        else:
            pace.slowest_us = usual_us
            continue
        yield sim.dice.below(1_000)
        sim.mark("power-after-truncation")
        sim.nodes[leader].crash(lose_unflushed=True)
        pace.slowest_us = usual_us
        yield 500
        sim.nodes[leader].restart()


SCENARIO = Scenario(
    name="power goes after truncations",
    story=power_goes_after_truncations,
    brokers=3,
    controllers=1,
    config=CONFIG,
    faults=Faults(slow=0.01),
    seconds=SECONDS,
    acknowledged_min=100,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_that_lose_power_after_a_truncation_hold_what_they_should(seed: int) -> None:
    report = play_scenario(seed, SCENARIO)
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["power-after-truncation"] > 0, "no truncation met a loss of power"
