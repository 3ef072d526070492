"""A resource's properties as DescribeConfigs returns them: value, source and synonyms.

Synonyms are all places where the value is set, the effective one first.
Source: ConfigHelper, KafkaConfigSchema, Kafka 4.0. Unlike there, a topic's synonyms include those
in a coarser unit (log.retention.hours): Kafka drops them and then names no source.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ottla.metadata.config_def import ConfigKey, Type, Update, format_value
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import DERIVED, NodeConfig
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.topic_config import DEFINITIONS, SYNONYMS, topic_values


class Source(IntEnum):
    """Where a value is set (DescribeConfigs' values)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place where a value is set."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """One property of one resource. `value` is None where it is not set, or secret."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    is_sensitive: bool
    type: Type
    documentation: str
    synonyms: tuple[Synonym, ...]


def describe_topic(
    image: ClusterImage, node_config: NodeConfig, overrides: Mapping[str, str]
) -> Iterator[Entry]:
    """Yield the properties of a topic of these overrides, by name."""
    values = topic_values(image, node_config, overrides)
    for name, key in sorted(DEFINITIONS.keys.items()):
        if key.internal and name not in overrides:
            continue
        synonyms = [
            synonym
            for broker_name, _ in SYNONYMS.get(name, ())
            for synonym in _synonyms_of(image, node_config, broker_name)
        ]
        # All of one source before any of the next: a dynamic value overrides a file's.
        synonyms.sort(key=lambda synonym: synonym.source)
        if name in overrides:
            synonyms.insert(0, Synonym(name, overrides[name], Source.TOPIC))
        yield _entry(key, values[name], synonyms, read_only=False)


def describe_broker(image: ClusterImage, node_config: NodeConfig) -> Iterator[Entry]:
    """Yield a broker's properties by name."""
    effective = node_config.dynamic(image)
    for name, key in sorted(NODE_DEFINITIONS.keys.items()):
        synonyms = [
            synonym
            for each in _broker_names(name)
            for synonym in _synonyms_of(image, node_config, each)
        ]
        synonyms.sort(key=lambda synonym: synonym.source)
        if key.internal and not any(synonym.source is not Source.DEFAULT for synonym in synonyms):
            continue
        read_only = key.update is Update.READ_ONLY
        value = effective[name]
        if name in _DERIVED and not any(synonym.name == name for synonym in synonyms):
            value = None  # Another property sets it, as its synonyms show; as in Kafka.
        yield _entry(key, value, synonyms, read_only=read_only)


def describe_all_brokers(image: ClusterImage) -> Iterator[Entry]:
    """Yield the dynamic defaults of all brokers, by name: only what was set."""
    for name, value in sorted(image.configs.of(ResourceType.BROKER, ALL_BROKERS).items()):
        key = NODE_DEFINITIONS.keys.get(name)
        if key is None:
            continue
        synonym = Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)
        default = format_value(key.type, key.default)
        synonyms = [synonym]
        if default is not None:
            synonyms.append(Synonym(name, default, Source.DEFAULT))
        read_only = key.update is Update.READ_ONLY
        yield Entry(
            name, value, synonym.source, read_only, False, key.type, key.doc, tuple(synonyms)
        )


_DERIVED = frozenset(name for name, _, _ in DERIVED)

_SAME = {"broker.id": "node.id", "node.id": "broker.id"}
"""Two names of one property: a file that sets one has set the other."""


def _broker_names(name: str) -> tuple[str, ...]:
    """Return the names under which a broker property can be set, the finest unit first."""
    return (name, *(source for derived, source, _ in DERIVED if derived == name))


def _synonyms_of(image: ClusterImage, node_config: NodeConfig, name: str) -> Iterator[Synonym]:
    """Yield where one broker property is set, the effective place first."""
    key = NODE_DEFINITIONS.keys[name]
    if key.update is not Update.READ_ONLY:
        for resource, source in (
            (str(node_config.node_id), Source.DYNAMIC_BROKER),
            (ALL_BROKERS, Source.DYNAMIC_DEFAULT_BROKER),
        ):
            value = image.configs.of(ResourceType.BROKER, resource).get(name)
            if value is not None:
                yield Synonym(name, value, source)
    for given in (name, _SAME.get(name, name)):
        if given in node_config.given:
            yield Synonym(name, node_config.given[given], Source.STATIC_BROKER)
            break
    if key.default is not None:
        yield Synonym(name, format_value(key.type, key.default), Source.DEFAULT)


def _entry(key: ConfigKey, value: object, synonyms: list[Synonym], *, read_only: bool) -> Entry:
    is_sensitive = key.type is Type.PASSWORD
    return Entry(
        name=key.name,
        value=None if is_sensitive else format_value(key.type, value),
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        read_only=read_only,
        is_sensitive=is_sensitive,
        type=key.type,
        documentation=key.doc,
        synonyms=tuple(
            Synonym(synonym.name, None, synonym.source) if is_sensitive else synonym
            for synonym in synonyms
        ),
    )
