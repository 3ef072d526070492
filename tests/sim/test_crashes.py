"""Nodes crash all the time, half of them during a disk operation; some lose power.

Method: a written topic whose segments and metadata snapshots are young, under crashes far more
frequent than a seed draws elsewhere. The checkers judge the clients' results; at the end all
replicas are equal. That the story finds something out is shown by taking a rule away.
"""

import pytest

from ottla.host.log_dirs import node_dirs
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim import Faults

from ..drawn import SIM_STORIES, drawn_seeds

ORDERS = TopicSpec(
    name="orders",
    partitions=3,
    replication_factor=3,
    configs={"min.insync.replicas": "2"},
)


def orders_are_written(story: Story) -> Dialogue[None]:
    yield from story.create(ORDERS)
    story.produce(ORDERS, clients=3, interval_ms=150)
    story.consume(ORDERS)


SCENARIO = Scenario(
    name="nodes crash",
    story=orders_are_written,
    brokers=3,
    controllers=3,
    faults=Faults(
        crashes=14.0, writing=0.7, power=0.4, elected=0.2, jumps=2.0, wall_ms=100_000, slow=0.01
    ),
    config={"log.roll.ms": "5000", "metadata.log.max.record.bytes.between.snapshots": "4000"},
    acknowledged_min=100,
)


SHOWN_BY = 5
"""A seed that is played first, since it showed a broken rule when this was written."""


@pytest.mark.parametrize("seed", drawn_seeds(1, of=4))
def test_nodes_that_crash_lose_nothing(seed: int) -> None:
    report = play_scenario(seed, SCENARIO)
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["crashed-while-writing"] > 5
    assert report.marks["unsynced-lost"] > 0


@pytest.mark.soak(SIM_STORIES)
@pytest.mark.timeout(600)
def test_killed_brokers_that_count_as_unclean_lose_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's rule, under which a killed process and a dark machine are the same to the controller.

    Which seeds find it out changes with every change of what nodes do: about one of six does.
    """
    monkeypatch.setattr(node_dirs, "decode_running", lambda data, boot_id: -1)
    for seed in (SHOWN_BY, *range(1, 31)):
        report = play_scenario(seed, SCENARIO)
        found = {each.checker for each in report.judgement.violations}
        if "elected-last-known" in report.marks and "acknowledged write lost" in found:
            return
    raise AssertionError("no seed has found it out")
