"""A topic's properties: what is taken, and which of the places that say a value counts.

Method: tables of values; the order of places is built up from the lowest to the highest.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.metadata.config_def import format_value, parse_value
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage, ConfigsImage
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.records import ConfigRecord
from ottla.metadata.topic_config import (
    DEFINITIONS,
    NO_TTL,
    SYNONYMS,
    TTL,
    check_may_go,
    effective_topic_config,
    ttl_of,
    validate_topic_configs,
)

from .nodes import node

KAFKA = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Kafka 4.0's topic properties and their defaults, as its broker describes them."""
OWN = {"ottla.topic.ttl.ms": "-1", "remote.log.disable.policy": "retain"}


def test_properties_and_defaults_are_kafka_s() -> None:
    ours = {
        key.name: format_value(key.type, key.default)
        for key in DEFINITIONS.keys.values()
        if not key.internal
    }
    assert ours == KAFKA | OWN


def test_a_node_without_settings_has_the_same_defaults() -> None:
    values = effective_topic_config(EMPTY, node(), "t")
    for name, text in KAFKA.items():
        assert values[name] == parse_value(DEFINITIONS.keys[name], text), name


def test_synonyms_are_properties_of_nodes() -> None:
    for name, synonyms in SYNONYMS.items():
        for broker_name, convert in synonyms:
            key = NODE_DEFINITIONS.keys[broker_name]
            if convert is None:
                assert key.type is DEFINITIONS.keys[name].type


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", " compact , delete "),
        ("compression.type", "zstd"),
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "9"),
        ("compression.zstd.level", "-131072"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("local.retention.ms", "-2"),
        ("min.insync.replicas", "1"),
        ("segment.bytes", "1048576"),
        ("internal.segment.bytes", "100"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("message.timestamp.type", "LogAppendTime"),
        ("remote.storage.enable", "false"),
        ("preallocate", "TRUE"),
        ("ottla.topic.ttl.ms", "-1"),
        ("ottla.topic.ttl.ms", "1000"),
    ],
)
def test_taken(name: str, value: str) -> None:
    assert name in validate_topic_configs({name: value}, node(), EMPTY)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"retention.sm": "1"}, "Unknown topic config name: retention.sm. Did you mean"),
        ({"quite.other": "1"}, "Unknown topic config name: quite.other."),
        ({"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"),
        ({"retention.ms": "a week"}, "retention.ms=a week: expected a 64-bit integer"),
        ({"retention.ms": "-2"}, "retention.ms"),
        ({"cleanup.policy": "shrink"}, "cleanup.policy"),
        ({"compression.type": "lzma"}, "compression.type"),
        ({"compression.type": "ZSTD"}, "compression.type"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level"),
        ({"compression.lz4.level": "18"}, "compression.lz4.level"),
        ({"compression.zstd.level": "23"}, "compression.zstd.level"),
        ({"min.insync.replicas": "0"}, "min.insync.replicas"),
        ({"segment.bytes": "1048575"}, "segment.bytes"),
        ({"segment.ms": "0"}, "segment.ms"),
        ({"segment.index.bytes": "3"}, "segment.index.bytes"),
        ({"max.message.bytes": "-1"}, "max.message.bytes"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "min.cleanable.dirty.ratio"),
        ({"local.retention.bytes": "-3"}, "local.retention.bytes"),
        ({"preallocate": "maybe"}, "preallocate"),
        ({"ottla.topic.ttl.ms": "0"}, "ottla.topic.ttl.ms=0: expected"),
        ({"ottla.topic.ttl.ms": "999"}, "1000 or more, or -1"),
        ({"ottla.topic.ttl.ms": "-2"}, "1000 or more, or -1"),
        ({"leader.replication.throttled.replicas": "0"}, "partition:broker pairs"),
        ({"leader.replication.throttled.replicas": "*,0:1"}, "partition:broker pairs"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"remote.log.copy.disable": "yes"}, "remote.log.copy.disable=yes: expected"),
        ({"remote.log.delete.on.disable": "1"}, "remote.log.delete.on.disable=1: expected"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms (2) is larger than max.compaction.lag.ms (1)",
        ),
    ],
)
def test_refused(overrides: dict[str, str], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_configs(overrides, node(), EMPTY)
    assert caught.value.error is Error.INVALID_CONFIG
    assert text in caught.value.message


@pytest.mark.parametrize("policy", ["", "Retain", "delete,retain", "archive"])
def test_an_unsupported_policy_is_an_invalid_request(policy: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_configs({"remote.log.disable.policy": policy}, node(), EMPTY)
    assert caught.value.error is Error.INVALID_REQUEST
    assert "expected text out of retain, delete" in caught.value.message


TIERED = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///remote",
}


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact: a topic with"),
        ({"cleanup.policy": "delete,compact"}, "cannot be compacted"),
        ({"local.retention.ms": "-1"}, "local.retention.ms must not be -1 (no limit), since"),
        (
            {"local.retention.ms": "604800001"},
            "local.retention.ms (604800001) must not be more than retention.ms (604800000)",
        ),
        (
            {"local.retention.bytes": "11", "retention.bytes": "10"},
            "local.retention.bytes (11) must not be more than retention.bytes (10)",
        ),
        ({"local.retention.bytes": "-1", "retention.bytes": "10"}, "local.retention.bytes must"),
    ],
)
def test_refused_with_remote_storage(overrides: dict[str, str], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_configs({"remote.storage.enable": "true", **overrides}, node(TIERED), EMPTY)
    assert caught.value.error is Error.INVALID_CONFIG
    assert text in caught.value.message
    validate_topic_configs(overrides, node(TIERED), EMPTY)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"local.retention.ms": "-2", "retention.ms": "5"},
        {"local.retention.ms": "5", "retention.ms": "5"},
        {"local.retention.ms": "-1", "retention.ms": "-1"},
        {"local.retention.ms": "7", "retention.ms": "-1"},
        {"local.retention.bytes": "-1"},
        {"local.retention.bytes": "99"},
    ],
)
def test_taken_with_remote_storage(overrides: dict[str, str]) -> None:
    validate_topic_configs({"remote.storage.enable": "true", **overrides}, node(TIERED), EMPTY)


def test_a_compacting_default_of_the_broker_forbids_remote_storage() -> None:
    config = node({**TIERED, "log.cleanup.policy": "compact"})
    with pytest.raises(ApiError, match="cannot be compacted"):
        validate_topic_configs({"remote.storage.enable": "true"}, config, EMPTY)
    overrides = {"remote.storage.enable": "true", "cleanup.policy": "delete"}
    validate_topic_configs(overrides, config, EMPTY)


def test_the_node_s_value_counts_where_the_topic_is_silent() -> None:
    config = node({"log.cleaner.max.compaction.lag.ms": "10"})
    with pytest.raises(ApiError):
        validate_topic_configs({"min.compaction.lag.ms": "11"}, config, EMPTY)
    validate_topic_configs({"min.compaction.lag.ms": "11"}, node(), EMPTY)


def test_the_first_source_that_sets_a_value_counts() -> None:
    found = []
    configs = ConfigsImage()
    for given, resource, name, value in (
        ({}, None, "", ""),
        ({"log.retention.hours": "1"}, None, "", ""),
        ({"log.retention.minutes": "2"}, None, "", ""),
        ({"log.retention.ms": "3"}, None, "", ""),
        ({"log.retention.ms": "3"}, (4, ""), "log.retention.ms", "4"),
        ({"log.retention.ms": "3"}, (4, "1"), "log.retention.ms", "5"),
        ({"log.retention.ms": "3"}, (2, "t"), "retention.ms", "6"),
    ):
        if resource is not None:
            configs = configs.with_value(resource, name, value)
        image = ClusterImage(configs=configs)
        found.append(effective_topic_config(image, node(given), "t")["retention.ms"])
        other = effective_topic_config(image, node(given), "another")["retention.ms"]
        assert other == min(found[-1], 604_800_000) or resource == (2, "t")
    assert found == [604_800_000, 3_600_000, 120_000, 3, 4, 5, 6]


def test_the_internal_segment_size_wins() -> None:
    configs = ConfigsImage().with_value((2, "t"), "internal.segment.bytes", "100")
    values = effective_topic_config(ClusterImage(configs=configs), node(), "t")
    assert values["segment.bytes"] == 100


def test_what_a_newer_version_wrote_is_passed_over() -> None:
    configs = ConfigsImage().with_value((2, "t"), "un.heard", "1")
    configs = configs.with_value((2, "t"), "segment.bytes", "5")
    assert effective_topic_config(
        ClusterImage(configs=configs), node(), "t"
    ) == effective_topic_config(EMPTY, node(), "t")


def test_only_a_topics_own_override_sets_its_limit() -> None:
    """A default that makes topics go would be found out too late."""
    assert TTL not in SYNONYMS
    assert ttl_of(EMPTY, "t") == NO_TTL
    image = replay(
        EMPTY,
        [
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=topic, name=TTL, value=text
            )
            for topic, text in (("t", "5000"), ("newer", "1 day"))
        ],
        offset=1,
        epoch=1,
    ).image
    assert (ttl_of(image, "t"), ttl_of(image, "newer"), ttl_of(image, "u")) == (5_000, -1, -1)


def test_an_internal_topic_has_no_limit() -> None:
    for overrides in ({}, {TTL: "-1"}):
        check_may_go(OFFSETS_TOPIC, overrides)
    check_may_go("t", {TTL: "5000"})
    with pytest.raises(ApiError) as caught:
        check_may_go(OFFSETS_TOPIC, {TTL: "5000"})
    assert caught.value.error is Error.INVALID_CONFIG
    assert OFFSETS_TOPIC in caught.value.message
