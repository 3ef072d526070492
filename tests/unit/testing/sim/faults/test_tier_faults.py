"""Directed faults follow events of remote storage, in both modes, and break no promise.

Method: a small cluster with a tiered topic whose segments expire, and these faults at their full
chance; the marks say what was done.
"""

from random import Random

import pytest

from ottla.testing.history.topics import Promise
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import Run
from ottla.testing.sim.faults.tier_faults import TierFaults

TIERED = TopicSpec(
    name="tiered",
    configs={
        "remote.storage.enable": "true",
        "internal.segment.bytes": "1500",
        "local.retention.bytes": "1",
        "retention.bytes": "6000",
        "min.insync.replicas": "2",
    },
    promise=Promise(trimmed=True),
)
CONFIG = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "memory://simulated",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "1000",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}
SESSIONS = {
    False: {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"},
    True: {"zookeeper.session.timeout.ms": "3000"},
}


def written(story: Story) -> Dialogue[None]:
    yield from story.create(TIERED)
    story.produce(TIERED, interval_ms=80)
    story.read_tiers(TIERED, interval_ms=2_000)


@pytest.mark.forms(1)
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_faults_follow_copies_and_deletions(zookeeper: bool) -> None:
    scenario = Scenario(
        name="tier faults",
        story=written,
        controllers=1,
        zookeeper=zookeeper,
        config=CONFIG | SESSIONS[zookeeper],
        seconds=45,
    )
    run = Run(1, scenario)
    directed = run.sim.directed
    directed.parts[:] = [TierFaults(directed, Random(2), 1.0)]
    run.rough()
    run.calm()
    report = run.report()
    assert report.is_kept, "\n".join(report.lines(full=True))
    marks = {name: times for name, times in report.marks.items() if "directed-tier" in name}
    assert sum(marks.values()) >= 3, marks
