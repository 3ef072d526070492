"""Topics are deleted and made again all the time, and everything fails: each deletion ends, with a
receipt that is true.

Method: the story of `deletion_story` under every fault that a seed draws, in both modes. The
checkers judge it; at the end no deletion is left, nor a folder of what was deleted.
"""

from dataclasses import replace

import pytest

from ottla.testing.scenarios import Scenario
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim import Faults

from .deletion_story import topics_come_and_go

SCENARIO = Scenario(
    name="topics come and go",
    story=topics_come_and_go,
    brokers=4,
    controllers=3,
    combined=True,
    faults=Faults.ROUGH,
    seconds=40,
    acknowledged_min=100,
)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_every_deletion_ends_with_a_true_receipt(seed: int, zookeeper: bool) -> None:
    report = play_scenario(seed, replace(SCENARIO, zookeeper=zookeeper))
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["deletion-finished" if zookeeper else "controller-elected"] >= 1
