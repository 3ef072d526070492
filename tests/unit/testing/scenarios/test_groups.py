"""The consumer groups that a seed draws are valid, and the same each time.

Method: many draws; they are played in tests/sim.
"""

from ottla.metadata.node_config import NodeConfig
from ottla.testing.history.history import History
from ottla.testing.scenarios.groups import NO_GROUPS, draw_groups, figures_of
from ottla.testing.scenarios.standard import draw_scenario
from ottla.testing.sim.layout import layout, rack_of, zookeeper_layout

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


def test_a_seed_draws_the_same_again() -> None:
    assert [draw_groups(seed) for seed in SEEDS] == [draw_groups(seed) for seed in SEEDS]


def test_nothing_happens_to_members_and_coordinators_without_faults() -> None:
    for seed in SEEDS:
        drawn = draw_groups(seed, faultless=True)
        assert drawn == NO_GROUPS or (drawn.change_ms, drawn.strike_ms) == (0, 0)
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
