"""The topics with weaker promises that a seed draws are valid, and the same each time.

Method: many draws; they are played in tests/sim.
"""

from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topic_config import parse_overrides
from ottla.testing.history.topics import KEEPS_ALL
from ottla.testing.scenarios.standard import draw_scenario
from ottla.testing.scenarios.storage import KINDS, NO_STORAGE, draw_storage
from ottla.testing.sim.layout import layout

SEEDS = range(200)
DRAWN = [draw_storage(seed) for seed in SEEDS]
TOPICS = [topic for each in DRAWN for topic in each.topics]


def test_most_seeds_have_such_topics_of_all_kinds() -> None:
    assert 0.1 < sum(each == NO_STORAGE for each in DRAWN) / len(DRAWN) < 0.3
    assert {topic.kind for topic in TOPICS} == set(KINDS)
    assert {topic.acks for topic in TOPICS} == {None, -1, 0, 1}
    assert {topic.spec.replication_factor for topic in TOPICS} == {1, 2, 3}
    assert len({topic.codec for topic in TOPICS}) == 3


def test_a_seed_draws_the_same_again() -> None:
    assert [draw_storage(seed) for seed in SEEDS] == DRAWN


def test_brokers_take_the_configurations() -> None:
    for topic in TOPICS:
        parse_overrides(topic.spec.configs)
    for seed in SEEDS:
        for properties in layout(3, 1, combined=False, config=draw_scenario(seed).config):
            NodeConfig.parse(properties)


def test_a_topic_that_may_lose_records_has_a_weaker_promise() -> None:
    for topic in TOPICS:
        configs, promise = topic.spec.configs, topic.spec.promise
        one_copy_is_enough = configs["min.insync.replicas"] == "1"
        is_flushed = configs.get("flush.messages") == "1"
        assert promise.weak == (one_copy_is_enough and not is_flushed)
        assert promise.unclean == (configs.get("unclean.leader.election.enable") == "true")
        assert (topic.keys > 0) == (topic.kind == "compacted")
        if topic.kind == "trimmed":
            assert promise == KEEPS_ALL._replace(trimmed=True)
        if "compact" in configs.get("cleanup.policy", ""):
            assert promise.compacted or configs["min.compaction.lag.ms"] == "86400000"
