"""Whoever crashes after whatever step of a disablement: it ends, and so does its purge.

Method: a small cluster without other faults; a topic's tiered storage is turned off, or off and on
again while the purge runs. A history without a crash tells its steps
(`ottla.testing.sim.watch.disabling_steps`). It is played again for each step, and the controller,
the partition's leader, a follower or the leader of the metadata partition crashes right there, for
longer than its session lasts. The checkers judge; in the end store, metadata and manifests list the
same segments. A run plays a part, drawn by the commit; OTTLA_DISABLING_STEPS=all plays every step.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import pytest

from ottla.base.ids import Uuid
from ottla.controller.disabling import disabling_manager
from ottla.controller.disabling.disabling_manager import DisablingManager
from ottla.controller.manager_events import Elected
from ottla.metadata.tiering import TieringState
from ottla.testing.scenarios.report import Report
from ottla.testing.scenarios.runner import play_scenario
from ottla.testing.scenarios.scenario import Story
from ottla.testing.scenarios.tiering_off import DELETE, ON, RETAIN
from ottla.testing.sim.watch.disabling_steps import (
    DisablingCrash,
    DisablingSteps,
    Role,
    Step,
)
from ottla.testing.sim_clients import Dialogue
from ottla.tiered.manifest import follow
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.object_names import parse_manifest_name, parse_object_name

from ..drawn import drawn
from .tier_stories import OVER, SEGMENT_BYTES, TOPIC, scenario_of, spec
from .tiering_off_stories import Switch

pytestmark = pytest.mark.timeout(3_600)

DISABLING_STEPS = "OTTLA_DISABLING_STEPS"
HISTORIES_DRAWN = 1
CRASHES_DRAWN = 1
SEED = 1
SECONDS_MAX = 1_500
AGREEMENT_LOOK_MS = 1_000
"""A look decodes every manifest, and a crash may delay the end by minutes."""


class Disablement(Switch):
    """A stage on which the leader has more local records than its followers.

    Fields: `steps`: those of the part of a history in which a node may crash.
    """

    def __init__(self, story: Story, plan: DisablingCrash | None) -> None:
        super().__init__(story)
        self.plan = plan
        self.steps: DisablingSteps | None = None

    def begin_disablement(self) -> Dialogue[None]:
        topic = spec(local_retention_bytes=str(2 * SEGMENT_BYTES))
        story = self.story
        yield from story.create(topic)
        story.produce(topic, interval_ms=40, steady=False)
        yield from self.until_more("COPY_FINISHED", 2)
        yield from self.lead_apart()
        leader = self.log_on(self.leader)
        yield from self.until(lambda: leader.local_log_start_offset > 0)
        config = replace(leader.config, local_retention_bytes=10**9, local_retention_ms=-1)
        leader.reconfigure(config)
        followers = [self.log_on(self.sim.nodes[each]) for each in self.isr]
        yield from self.until_more("COPY_FINISHED", 2)
        yield from self.until(
            lambda: all(
                each is leader or each.local_log_start_offset > leader.local_log_start_offset
                for each in followers
            )
        )
        yield from self.until_in_sync()
        story.producers[0].stop()
        story.produce(topic, interval_ms=3_000)
        story.read_tiers(topic, interval_ms=4_000)
        yield 500

    def begin_steps(self) -> None:
        """From now on the node of the plan may crash."""
        self.steps = DisablingSteps(self.sim, self.key[0], self.plan)

    def end_steps(self) -> None:
        """No node crashes any more."""
        assert self.steps is not None
        self.steps.end()

    @property
    def is_purged(self) -> bool:
        return not self.tiering.purge_pending

    @property
    def agree(self) -> bool:
        """Whether store, metadata and manifests list the same segments, all of them readable."""
        leader = self.sim.nodes.get(self.story.leader_of(TOPIC))
        broker = None if leader is None else leader.broker
        if broker is None or broker.remote is None:
            return False
        known = broker.remote.metadata.remote_log(*self.key)
        if known is None:
            return False
        objects = self.sim.object_store.objects
        parsed = [parse_object_name(name) for name in objects]
        stored = {each.segment_id for each in parsed if each is not None}
        manifests = [
            decode_manifest(data)
            for name, data in objects.items()
            if parse_manifest_name(name) is not None
        ]
        state = follow(manifests)
        listed = set() if state is None else set(state.segments)
        return stored == listed == {each.segment_id for each in known.segments()}


Play = Callable[[Disablement], Dialogue[None]]


def retained(stage: Disablement) -> Dialogue[None]:
    """Off with retain, and on again once it is DISABLED."""
    stage.begin_steps()
    yield from stage.off(RETAIN)
    yield 300
    yield from stage.set(ON)
    yield from stage.until_more("COPY_FINISHED")


def deleted(stage: Disablement) -> Dialogue[None]:
    """Off with delete, until the purge is over."""
    stage.begin_steps()
    yield from stage.off(DELETE)
    yield from stage.until(lambda: stage.is_purged)


def deleted_later(stage: Disablement) -> Dialogue[None]:
    """Off with delete after retain, until it is DISABLED."""
    yield from stage.off(RETAIN)
    stage.begin_steps()
    yield from stage.off(DELETE)
    stage.end_steps()
    yield from stage.until(lambda: stage.is_purged)


def enabled_again(stage: Disablement) -> Dialogue[None]:
    """Off with delete, and on again while the purge runs."""
    yield from stage.off(DELETE)
    stage.begin_steps()
    yield from stage.set(ON)
    yield from stage.until_state(TieringState.ENABLED)
    yield from stage.until_more("COPY_FINISHED", 2)
    yield from stage.until(lambda: stage.is_purged)


PLAYS = (retained, deleted, deleted_later, enabled_again)


@dataclass(slots=True)
class Played:
    """A history. `steps`: as they were seen."""

    report: Report
    steps: DisablingSteps


def play(
    acts: Play, *, zookeeper: bool, plan: DisablingCrash | None = None, seconds: int = SECONDS_MAX
) -> Played:
    """Play a history with a crash, or none."""
    stages: list[Disablement] = []

    def story(story: Story) -> Dialogue[None]:
        stage = Disablement(story, plan)
        stages.append(stage)
        yield from stage.begin_disablement()
        yield from acts(stage)
        stage.end_steps()
        yield from stage.until(lambda: stage.agree, look_ms=AGREEMENT_LOOK_MS)
        stage.over()

    story.__name__ = f"{acts.__name__}, {plan}"
    scenario = replace(scenario_of(story, zookeeper=zookeeper), seconds=seconds)
    report = play_scenario(SEED, scenario)
    steps = stages[0].steps
    assert steps is not None, "the history did not begin"
    return Played(report, steps)


def check(report: Report) -> None:
    assert report.is_proof, "\n".join(report.lines(full=True))
    assert report.marks[OVER] == 1, "the history does not come to its end"
    assert report.refusals == ()


HISTORIES = [(acts, zookeeper) for acts in PLAYS for zookeeper in (False, True)]


@pytest.mark.parametrize(
    ("acts", "zookeeper"), drawn(HISTORIES, HISTORIES_DRAWN, DISABLING_STEPS, name="disabling")
)
def test_a_disablement_ends_whoever_crashes_after_a_step(acts: Play, zookeeper: bool) -> None:
    whole = play(acts, zookeeper=zookeeper)
    check(whole.report)
    plans = [
        DisablingCrash(number=number, role=role)
        for number, victims in enumerate(whole.steps.victims, 1)
        for role in victims
    ]
    for plan in drawn(plans, CRASHES_DRAWN, DISABLING_STEPS, name=acts.__name__):
        report = play(acts, zookeeper=zookeeper, plan=plan).report
        assert report.marks["crashed-at-step"] == 1, "the step was not reached"
        check(report)


def test_a_controller_that_does_not_go_on_with_what_it_finds_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the crashes would prove nothing."""
    plain = disabling_manager.DisablingManager._elected

    def forgets(self: DisablingManager, event: Elected, now_ms: int) -> Collection[Uuid]:
        plain(self, event, now_ms)
        self._topics.clear()
        return ()

    steps = play(retained, zookeeper=False).steps
    number = steps.seen.index(Step.ORDERED) + 1
    assert Role.CONTROLLER in steps.victims[number - 1]
    monkeypatch.setitem(disabling_manager._HANDLERS, Elected, forgets)  # type: ignore[arg-type]
    plan = DisablingCrash(number=number, role=Role.CONTROLLER)
    report = play(retained, zookeeper=False, plan=plan, seconds=20).report
    found = {each.checker for each in report.judgement.violations}
    assert "disablement not finished" in found
