"""DescribeConfigs: each value, its source, and its synonyms.

Method: one property through all places that can say it; the lists are complete and in order.
"""

from ottla.metadata.config_def import Type
from ottla.metadata.config_describe import (
    Entry,
    Source,
    Synonym,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from ottla.metadata.image import EMPTY, ClusterImage, ConfigsImage
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.topic_config import DEFINITIONS

from .nodes import node

DYNAMIC = ClusterImage(
    configs=ConfigsImage()
    .with_value((4, ""), "log.retention.ms", "2000")
    .with_value((4, "1"), "log.retention.ms", "1000")
    .with_value((4, "2"), "log.retention.ms", "9")
    .with_value((4, ""), "message.max.bytes", "77")
)


def topic(
    name: str, image: ClusterImage, given: dict[str, str], overrides: dict[str, str]
) -> Entry:
    [found] = [each for each in describe_topic(image, node(given), overrides) if each.name == name]
    return found


def broker(name: str, image: ClusterImage, given: dict[str, str]) -> Entry:
    [found] = [each for each in describe_broker(image, node(given)) if each.name == name]
    return found


def test_a_topic_s_own_value_comes_first() -> None:
    entry = topic("retention.ms", DYNAMIC, {"log.retention.hours": "1"}, {"retention.ms": "5"})
    assert (entry.value, entry.source) == ("5", Source.TOPIC)
    assert not entry.read_only
    assert not entry.is_sensitive
    assert entry.type is Type.LONG
    assert entry.synonyms == (
        Synonym("retention.ms", "5", Source.TOPIC),
        Synonym("log.retention.ms", "1000", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "2000", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "1", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_without_it_the_next_place_counts() -> None:
    entry = topic("retention.ms", DYNAMIC, {}, {})
    assert (entry.value, entry.source) == ("1000", Source.DYNAMIC_BROKER)
    entry = topic("max.message.bytes", DYNAMIC, {}, {})
    assert (entry.value, entry.source) == ("77", Source.DYNAMIC_DEFAULT_BROKER)
    entry = topic("retention.ms", EMPTY, {"log.retention.minutes": "1"}, {})
    assert (entry.value, entry.source) == ("60000", Source.STATIC_BROKER)
    entry = topic("retention.ms", EMPTY, {}, {})
    assert (entry.value, entry.source) == ("604800000", Source.DEFAULT)


def test_a_property_without_a_broker_name_has_no_synonyms() -> None:
    entry = topic("remote.storage.enable", EMPTY, {}, {})
    assert (entry.value, entry.source, entry.synonyms) == ("false", Source.DEFAULT, ())


def test_a_topic_describes_all_properties_in_order() -> None:
    names = [each.name for each in describe_topic(EMPTY, node(), {})]
    public = sorted(name for name, key in DEFINITIONS.keys.items() if not key.internal)
    assert names == public
    names = [each.name for each in describe_topic(EMPTY, node(), {"internal.segment.bytes": "5"})]
    assert names == sorted([*public, "internal.segment.bytes"])


def test_a_broker_describes_its_file_its_defaults_and_changes() -> None:
    entry = broker("log.retention.ms", DYNAMIC, {"log.retention.ms": "3000"})
    assert (entry.value, entry.source, entry.read_only) == ("1000", Source.DYNAMIC_BROKER, False)
    assert [synonym.source for synonym in entry.synonyms] == [
        Source.DYNAMIC_BROKER,
        Source.DYNAMIC_DEFAULT_BROKER,
        Source.STATIC_BROKER,
        Source.DEFAULT,
    ]
    entry = broker("node.id", EMPTY, {})
    assert (entry.value, entry.source, entry.read_only) == ("1", Source.STATIC_BROKER, True)
    # The other name of the same property is set with it.
    entry = broker("broker.id", EMPTY, {})
    assert (entry.value, entry.source) == ("1", Source.STATIC_BROKER)
    entry = broker("num.partitions", EMPTY, {})
    assert (entry.value, entry.source, entry.read_only) == ("1", Source.DEFAULT, True)
    entry = broker("broker.rack", EMPTY, {})
    assert (entry.value, entry.source, entry.synonyms) == (None, Source.DEFAULT, ())


def test_a_broker_describes_all_properties_in_order() -> None:
    names = [each.name for each in describe_broker(EMPTY, node())]
    public = sorted(name for name, key in NODE_DEFINITIONS.keys.items() if not key.internal)
    assert names == public


def test_an_internal_property_shows_once_somebody_set_it() -> None:
    entry = broker("log.initial.task.delay.ms", EMPTY, {"log.initial.task.delay.ms": "5"})
    assert entry.value == "5"


def test_the_defaults_of_all_brokers_are_what_was_set() -> None:
    entries = list(describe_all_brokers(DYNAMIC))
    assert [(each.name, each.value, each.source) for each in entries] == [
        ("log.retention.ms", "2000", Source.DYNAMIC_DEFAULT_BROKER),
        ("message.max.bytes", "77", Source.DYNAMIC_DEFAULT_BROKER),
    ]
    assert entries[1].synonyms[1] == Synonym("message.max.bytes", "1048588", Source.DEFAULT)
    assert list(describe_all_brokers(EMPTY)) == []
