"""The consumer groups that a seed draws are valid, and the same each time; their faults end.

Method: many draws, which are played in tests/sim; a small cluster whose coordinators fail.
"""

from dataclasses import replace

import pytest

from ottla.metadata.node_config import NodeConfig
from ottla.testing.checkers.verdict import Verdict
from ottla.testing.history.history import History
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.groups import (
    NO_GROUPS,
    GroupSpec,
    GroupsWorkload,
    draw_groups,
    figures_of,
)
from ottla.testing.scenarios.runner import Run, play_scenario
from ottla.testing.scenarios.standard import draw_scenario
from ottla.testing.sim.layout import layout, rack_of, zookeeper_layout
from ottla.testing.sim_clients.group_member import MemberConfig
from ottla.testing.sim_clients.offset_queries import EARLIEST

SEEDS = range(120)


def test_most_seeds_have_groups_and_some_have_none() -> None:
    drawn = [draw_groups(seed) for seed in SEEDS]
    assert 0.15 < sum(each == NO_GROUPS for each in drawn) / len(drawn) < 0.35
    assert {len(each.groups) for each in drawn} == {0, 1, 2}
    members = [member for each in drawn for group in each.groups for member in group.members]
    assert {member.commit_version for member in members} == {8, 9, 10}
    assert any(member.instance for member in members)
    assert any(member.rack for member in members)
    assert any(len(member.topics) > 1 for member in members)
    assert any(each.seekers for each in drawn)
    assert any(each.move_ms for each in drawn)


def test_a_seed_draws_the_same_again() -> None:
    assert [draw_groups(seed) for seed in SEEDS] == [draw_groups(seed) for seed in SEEDS]


def test_nothing_happens_to_members_and_coordinators_without_faults() -> None:
    for seed in SEEDS:
        drawn = draw_groups(seed, faultless=True)
        assert drawn == NO_GROUPS or (drawn.change_ms, drawn.strike_ms, drawn.move_ms) == (0, 0, 0)
        assert drawn.groups == draw_groups(seed).groups


def test_every_draw_is_a_configuration_that_a_node_takes() -> None:
    for seed in SEEDS:
        config = draw_scenario(seed).config
        nodes = layout(3, 1, combined=False, config=config)
        nodes += zookeeper_layout(3, config=config)
        with_selector = "replica.selector.class" in config
        for properties in nodes:
            parsed = NodeConfig.parse(properties)
            is_racked = with_selector and parsed.is_broker
            assert properties.get("broker.rack") == (rack_of(parsed.node_id) if is_racked else None)


def test_a_history_without_groups_has_no_figures() -> None:
    assert figures_of(History()) == {}


SMALL = {"offsets.load.buffer.size": "300", "group.min.session.timeout.ms": "1000"}
STEADY = TopicSpec(name="steady", partitions=1, replication_factor=3)
MEMBERS = (MemberConfig(topics=(STEADY.name,), reset=EARLIEST, session_ms=3_000),)
STRUCK = GroupsWorkload(
    groups=(GroupSpec(name="group", members=MEMBERS),), change_ms=0, strike_ms=6_000
)


@pytest.mark.drawn(8, of="every step")
@pytest.mark.parametrize("seed", range(1, 7))
def test_no_link_of_a_coordinator_is_cut_after_the_healing(seed: int) -> None:
    """The faults have ended, and the logs are about to be read."""

    def story(story: Story) -> Dialogue[None]:
        yield from story.create(STEADY)
        STRUCK.begin(story, STEADY)

    run = Run(seed, Scenario(name="struck", story=story, combined=True, seconds=5))
    run.rough()
    run.sim.heal()
    run.history.healed_ms = run.story.now_ms
    for _look in range(1_300):
        run.sim.run(ms=10)
        assert run.sim.net.cut == set()


MOVED = replace(STRUCK, strike_ms=0, move_ms=3_000)


@pytest.mark.parametrize("zookeeper", [False, True])
def test_coordinators_move_and_are_asked_while_they_load(zookeeper: bool) -> None:
    def story(story: Story) -> Dialogue[None]:
        yield from story.create(STEADY)
        story.produce(STEADY)
        MOVED.begin(story, STEADY)

    scenario = Scenario(
        name="moved", story=story, combined=True, seconds=40, zookeeper=zookeeper, config=SMALL
    )
    report = play_scenario(3, scenario)
    assert report.judgement.verdict is Verdict.TRUE
    assert report.marks["coordinator-moved"] > 3
    assert report.marks["error-coordinator-load-in-progress"] > 0
    assert report.marks["error-not-coordinator"] > 0
