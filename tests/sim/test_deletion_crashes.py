"""Whoever crashes after whatever step of a deletion: it ends, truly, and its name is used again.

Method: a small cluster without other faults; a topic is deleted and made again, and one node
crashes right after a step (`ottla.testing.sim.watch.deletion_steps`): a broker with replicas, or
the controller. It is away for longer than its session lasts. The checkers judge. Every step is
played with both victims, and in KRaft two of the steps take their machines' power.
OTTLA_DELETION_STEPS=all plays every step both ways, and goes through every single write to a disk
and to ZooKeeper, of which a few are played otherwise. At these, and over ZooKeeper, it is the
process only that ends: where a step would take the power there, the process is back before its
session is over.
"""

import os
from functools import partial
from itertools import count
from typing import Any

import pytest

from ottla.controller.deletion.deletion_manager import FULL_CHECK_MS, DeletionManager
from ottla.controller.manager_events import Ready
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.report import Report
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.sim.watch.deletion_steps import STEPS, Crash, CrashPlan, Step, Victim

TWO_COPIES = {"min.insync.replicas": "2"}
BESIDE = TopicSpec(name="beside", partitions=1, replication_factor=3, configs=TWO_COPIES)
DOOMED = TopicSpec(name="doomed", partitions=2, replication_factor=3, configs=TWO_COPIES)
ANEW = TopicSpec(name="doomed", partitions=3, replication_factor=3, configs=TWO_COPIES)

CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "700",
    "log.segment.delete.delay.ms": "1000",
}
ZOOKEEPER_CONFIG = {"zookeeper.session.timeout.ms": "2000", "log.segment.delete.delay.ms": "1000"}

SUDDEN = (Step.RENAMED, Step.CONFIRMED)
"""Where a whole machine that goes dark may take something back, and not only a process."""

ALL = os.environ.get("OTTLA_DELETION_STEPS") == "all"
NAMED = [
    CrashPlan(step=step, victim=victim, power=power)
    for step in STEPS
    for victim in Victim
    for power in ((False, True) if ALL else (step in SUDDEN,))
]
FIRST, STRIDE = (1, 1) if ALL else (4, 60)
EVERY_WRITE = [
    (zookeeper, step, victim)
    for zookeeper in (False, True)
    for step in (Step.NTH_DISK, Step.NTH_ZNODE)
    for victim in Victim
    if step is Step.NTH_DISK or (zookeeper and victim is Victim.CONTROLLER)
]


def a_topic_is_deleted(plan: CrashPlan, story: Story) -> Dialogue[None]:
    admin = story.admin
    yield from story.create(BESIDE)
    story.produce(BESIDE, interval_ms=400)
    yield from story.create(DOOMED)
    story.produce(DOOMED, interval_ms=200, steady=False)
    yield 1_500
    yield admin.client.refresh()
    Crash(story.sim, plan, admin.client.ids[DOOMED.name])
    yield from admin.delete(DOOMED.name)
    yield from admin.create_anew(ANEW)


def play(plan: CrashPlan, *, zookeeper: bool) -> Report:
    scenario = Scenario(
        name=f"crash at {plan}",
        story=partial(a_topic_is_deleted, plan),
        combined=True,
        zookeeper=zookeeper,
        config=ZOOKEEPER_CONFIG if zookeeper else CONFIG,
        seconds=14,
        acknowledged_min=10,
    )
    return play_scenario(1, scenario)


def check(report: Report) -> None:
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks["deletion-finished"] == 1
    assert report.refusals == ()


@pytest.mark.forms(12)
@pytest.mark.parametrize("plan", NAMED, ids=str)
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_deletion_ends_whoever_crashes_after_a_step(plan: CrashPlan, zookeeper: bool) -> None:
    if zookeeper and plan.power:
        plan = CrashPlan(step=plan.step, victim=plan.victim, down_ms=200)
    report = play(plan, zookeeper=zookeeper)
    assert report.marks["crashed-at-step"] == 1, "the step was not reached"
    check(report)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("zookeeper", "step", "victim"), EVERY_WRITE)
def test_a_deletion_ends_whatever_write_was_the_last(
    zookeeper: bool, step: Step, victim: Victim
) -> None:
    for number in count(FIRST, STRIDE):
        plan = CrashPlan(step=step, victim=victim, nth=number)
        report = play(plan, zookeeper=zookeeper)
        if "crashed-at-step" not in report.marks:
            break
        check(report)
    assert number > FIRST


def does_nothing(
    _: DeletionManager, _event: object, *, now_ms: int, is_idle: bool = True
) -> Ready[Any, Any]:
    return Ready(now_ms + FULL_CHECK_MS, orders=(), work=None)


@pytest.mark.forms(1)
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_controller_that_does_not_go_on_with_what_it_finds_is_found_out(
    monkeypatch: pytest.MonkeyPatch, zookeeper: bool
) -> None:
    """Else the crashes would prove nothing (KAFKA-1681)."""
    monkeypatch.setattr(DeletionManager, "step", does_nothing)
    plan = CrashPlan(step=Step.ORDERED, victim=Victim.CONTROLLER)
    report = play(plan, zookeeper=zookeeper)
    found = {each.checker for each in report.judgement.violations}
    assert "deletion not finished" in found
