"""Followers copy in small pieces while leaders change, logs roll and lose their beginning.

Method: a story in the simulator in which a leader dies, hangs or is cut from a follower every few
seconds. Fetches are so small that they seldom hold a whole batch, segments hold a few batches, and
retention takes them away; at the end the replicas must be equal.
"""

import pytest

from ottla.testing.history.topics import Promise
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim import Faults

from ..drawn import drawn_seeds

BROKERS = (1, 2, 3)
PARTITIONS = 6

ORDERS = TopicSpec(
    name="orders",
    partitions=PARTITIONS,
    replication_factor=3,
    configs={
        "min.insync.replicas": "2",
        "internal.segment.bytes": "2000",
        "retention.bytes": "6000",
        "file.delete.delay.ms": "500",
    },
    promise=Promise(trimmed=True),
)

CONFIG = {
    "replica.fetch.max.bytes": "300",
    "replica.fetch.response.max.bytes": "900",
    "replica.fetch.wait.max.ms": "300",
    "num.replica.fetchers": "3",
    "replica.lag.time.max.ms": "3000",
    "log.retention.check.interval.ms": "3000",
    "broker.session.timeout.ms": "2500",
    "broker.heartbeat.interval.ms": "500",
}


def leaders_come_and_go(story: Story) -> Dialogue[None]:
    yield from story.create(ORDERS)
    story.produce(ORDERS, clients=3, interval_ms=120)
    sim, turn = story.sim, 0
    while True:
        yield 2_000
        turn += 1
        leader = story.leader_of(ORDERS.name, turn % PARTITIONS)
        if leader not in sim.nodes or not sim.nodes[leader].alive:
            continue
        if turn % 3 == 0:
            sim.nodes[leader].crash(lose_unflushed=False)
            yield 1_500
            sim.nodes[leader].restart()
        elif turn % 3 == 1:
            sim.nodes[leader].pause()
            yield 6_000
            sim.nodes[leader].resume()
        else:
            link = leader, next(node for node in BROKERS if node != leader)
            sim.net.cut.add(link)
            yield 4_000
            sim.net.cut.discard(link)


SCENARIO = Scenario(
    name="leaders come and go",
    story=leaders_come_and_go,
    brokers=3,
    controllers=1,
    config=CONFIG,
    faults=Faults(slow=0.02, broken=0.002, twice=0.005),
    seconds=90,
    acknowledged_min=300,
)


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_replicas_end_up_equal(seed: int) -> None:
    report = play_scenario(seed, SCENARIO)
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["log-truncated"] > 0, "nothing was cut: the story shows nothing"
