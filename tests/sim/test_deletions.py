"""Topics are deleted and made again all the time, and everything fails: each deletion ends, with a
receipt that is true.

Method: the story of `deletion_story` under every fault that a seed draws, in both modes. The
checkers judge it; at the end no deletion is left, nor a directory of a deleted replica.
"""

from dataclasses import replace
from functools import partial

import pytest

from ottla.metadata.deletions import HaltReason
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim import Faults
from ottla.testing.sim.watch.observations import DeletionSet

from .deletion_story import STEADY, TWO_COPIES, elect_by_znode, topics_come_and_go

SCENARIO = Scenario(
    name="topics come and go",
    story=topics_come_and_go,
    brokers=4,
    controllers=3,
    combined=True,
    faults=Faults.ROUGH,
    seconds=30,
    acknowledged_min=100,
)


@pytest.mark.forms(1)
@pytest.mark.parametrize("seed", [3, 5])
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_every_deletion_ends_with_a_true_receipt(seed: int, zookeeper: bool) -> None:
    report = play_scenario(seed, replace(SCENARIO, zookeeper=zookeeper))
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["deletion-finished"] >= 10


def a_broker_sleeps(story: Story) -> Dialogue[None]:
    """It sleeps through the end of its replica's move to another broker, and the deletion."""
    spec = TopicSpec(name="passing", partitions=1, replication_factor=3, configs=TWO_COPIES)
    admin, sim = story.admin, story.sim
    yield from story.create(STEADY)
    story.produce(STEADY, interval_ms=200)
    yield from story.create(spec)
    state = sim.image.topics.by_name(spec.name)
    assert state is not None
    replicas = state.partitions[0].replicas
    controller = -1 if sim.zookeeper is None else sim.zookeeper.controller_id
    sleeper = next(each for each in replicas if each != controller)
    other = next(each for each in story.broker_ids if each not in replicas)
    sim.nodes[sleeper].pause()
    yield 6_000
    target = tuple(other if each == sleeper else each for each in replicas)
    yield from admin.reassign(spec.name, 0, target)
    yield 3_000
    yield admin.client.refresh()
    yield from admin.delete(spec.name)
    yield from admin.create_anew(replace(spec, replication_factor=4))
    sim.nodes[sleeper].resume()


@pytest.mark.forms(1)
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_replica_without_a_ledger_row_is_still_deleted(zookeeper: bool) -> None:
    """The ledger has no row for it: its broker finds out for itself, and hosts the new topic."""
    scenario = replace(
        SCENARIO,
        story=a_broker_sleeps,
        zookeeper=zookeeper,
        faults=Faults.NONE,
        config={
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "zookeeper.session.timeout.ms": "3000",
            "log.segment.delete.delay.ms": "1000",
        },
        seconds=20,
        acknowledged_min=20,
    )
    report = play_scenario(1, scenario)
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["deletion-finished"] == 1
    assert report.marks["reassignment-done"] == 1


HALTED = tuple(TopicSpec(name=f"halted-{number}", partitions=1) for number in range(12))
WRITES = 20
"""Decisions that are asked for beside each deletion: they are written one after another, and the
controller gets the event of an election while the deletion is queued."""


def elections_while_deleting(observed: list[DeletionSet], story: Story) -> Dialogue[None]:
    """The controller has much to write; a tool asks for elections of topics that are to go."""
    admin = story.admin
    story.sim.observe(lambda each: observed.append(each) if isinstance(each, DeletionSet) else None)
    yield from story.create(STEADY)
    story.produce(STEADY, interval_ms=200)
    for spec in HALTED:
        yield from admin.create(spec)
    yield 1_000
    yield admin.client.refresh()
    for place, spec in enumerate(HALTED):
        for number in range(WRITES):
            retention_ms = str(3_600_000 + place * WRITES + number)
            story.run(admin.configure(STEADY.name, {"retention.ms": retention_ms}))
        deleted = story.run(admin.delete(spec.name))
        yield place  # A moment later each time: in some of them it is during the deletion's.
        story.run(elect_by_znode(story, spec.name))
        yield deleted
        yield 200


ZOOKEEPER_REACHED = ("deletion-halted-by-preferred-election", "deletion-finished")


def test_a_deletion_waits_for_the_elections_that_a_tool_asks_for() -> None:
    """And for no longer: it begins once they were tried, and comes to its end."""
    observed: list[DeletionSet] = []
    scenario = replace(
        SCENARIO,
        story=partial(elections_while_deleting, observed),
        zookeeper=True,
        faults=Faults.NONE,
        seconds=20,
        acknowledged_min=20,
    )
    report = play_scenario(1, scenario)
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert [name for name in ZOOKEEPER_REACHED if not report.marks[name]] == []
    assert report.marks["deletion-finished"] == len(HALTED)
    halted = [
        each.after for each in observed if each.after and each.after.halted is not HaltReason.NONE
    ]
    assert {each.halted for each in halted} == {HaltReason.PREFERRED_ELECTION}
    assert not any(each.has_begun for each in halted), "what has begun is not halted any more"
