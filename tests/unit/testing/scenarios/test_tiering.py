"""The topics with remote storage that a seed draws are valid, and the same each time.

Method: many draws; they are played in tests/sim.
"""

from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topic_config import parse_overrides
from ottla.testing.scenarios.backfills import QUOTA
from ottla.testing.scenarios.standard import draw_scenario
from ottla.testing.scenarios.tiering import (
    AGED,
    ENABLE,
    KINDS,
    NO_TIERING,
    TRANSACTIONAL_KINDS,
    draw_tiering,
)
from ottla.testing.scenarios.tiering_off import OFF, ON
from ottla.testing.sim import StoreFaults
from ottla.testing.sim.layout import layout

SEEDS = range(600)
DRAWN = {seed: drawn for seed in SEEDS if (drawn := draw_tiering(seed)) != NO_TIERING}
TOPICS = [topic for each in DRAWN.values() for topic in each.topics]


def test_some_seeds_have_remote_storage_and_topics_of_all_kinds() -> None:
    assert len(SEEDS) / 10 < len(DRAWN) < len(SEEDS) / 5
    assert {topic.kind for topic in TOPICS} == {*KINDS, AGED}
    assert {each.kind for each in TOPICS if each.transactional} == set(TRANSACTIONAL_KINDS)
    assert {each.faults for each in DRAWN.values()} == {StoreFaults.ROUGH}
    seed = next(iter(DRAWN))
    assert draw_tiering(seed) == DRAWN[seed]
    assert draw_tiering(seed, faultless=True).faults == StoreFaults.NONE


def test_some_topics_are_turned_off_in_valid_ways() -> None:
    names = {topic.spec.name for topic in TOPICS}
    switched = [each.switched for each in DRAWN.values()]
    assert {name for each in switched for name in each} == names
    assert () in switched
    for values in (*OFF, ON):
        parse_overrides(values)


def test_some_topics_are_backfilled() -> None:
    backfills = [backfill for each in DRAWN.values() for backfill in each.backfills]
    assert len(DRAWN) / 4 < len([each for each in DRAWN.values() if each.backfills]) < len(DRAWN)
    assert {each.processes for each in backfills} == {1, 2, 3}
    assert {each.mishap_in == 0 for each in backfills} == {True, False}
    for each in DRAWN.values():
        assert {one.topic for one in each.backfills} <= {one.spec.name for one in each.topics}
        assert (QUOTA in dict(each.config)) <= bool(each.backfills)
    assert {QUOTA in dict(each.config) for each in DRAWN.values() if each.backfills} == {
        True,
        False,
    }


def test_nodes_take_the_configurations() -> None:
    for topic in TOPICS:
        parse_overrides(topic.spec.configs)
        assert (topic.kind == "late") == (topic.spec.configs.keys().isdisjoint(ENABLE))
    for seed in DRAWN:
        for properties in layout(3, 1, combined=False, config=draw_scenario(seed).config):
            assert NodeConfig.parse(properties)["remote.log.storage.system.enable"]
