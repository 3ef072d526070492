"""An idle topic is deleted by itself, and one that is written to all the time is kept.

Method: the product's own brokers and controllers in virtual time, in both modes. Without faults
the idle one goes; under every fault that a seed draws, clocks that jump among them, the used one
still takes writes at the end, or its story is no proof.
"""

from dataclasses import replace

import pytest

from ottla.metadata.topic_config import TTL
from ottla.testing.checkers.verdict import Tolerance
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim import Faults

from ..drawn import drawn_seeds
from .deletion_story import STEADY, TWO_COPIES

USED = replace(STEADY, configs=TWO_COPIES | {TTL: "40000"})
LONELY = TopicSpec(
    name="lonely", partitions=2, replication_factor=3, configs=TWO_COPIES | {TTL: "5000"}
)


def one_is_used_and_one_is_not(story: Story) -> Dialogue[None]:
    yield from story.create(USED)
    story.produce(USED, interval_ms=200)
    yield from story.admin.create_anew(LONELY)


GOES_BY_ITSELF = Tolerance(
    "acknowledged topic lost",
    f"its {TTL} was over",
    lambda _history, witness: witness.text.startswith(f"topic {LONELY.name} "),
)
SCENARIO = Scenario(
    name="idle topics",
    story=one_is_used_and_one_is_not,
    brokers=4,
    controllers=3,
    combined=True,
    config={"ottla.topic.idle.check.interval.ms": "500", "log.segment.delete.delay.ms": "1000"},
    seconds=60,
    acknowledged_min=20,
    tolerated=(GOES_BY_ITSELF,),
)


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_the_idle_one_goes_with_a_true_receipt(zookeeper: bool) -> None:
    report = play_scenario(1, replace(SCENARIO, zookeeper=zookeeper))
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks.get("deletion-finished") == 1


@pytest.mark.parametrize("seed", drawn_seeds(1, of=4))
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_the_used_one_stays_whatever_goes_wrong(seed: int, zookeeper: bool) -> None:
    report = play_scenario(seed, replace(SCENARIO, zookeeper=zookeeper, faults=Faults.ROUGH))
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks.get("deletion-finished", 0) <= 1
