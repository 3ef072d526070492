"""DescribeConfigs describes topics, this broker and the default of all, in every version.

Method: an image with overrides; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import ConfigRecord, TopicRecord
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)

from ..controller_harness import Controller, versions_of

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 3, 4, 5


def harness() -> Controller:
    controller = Controller({"num.partitions": "3"})
    controller.write(
        TopicRecord(name="t", topic_id=Uuid(b"topic-----------")),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="5"),
        ConfigRecord(resource_type=BROKER, resource_name="", name="message.max.bytes", value="9"),
    )
    return controller


def ask(
    resource_type: int, name: str, version: int, keys: tuple[str, ...] | None = None, **how: bool
) -> tuple[int, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=(resource,), **how)  # type: ignore[arg-type]
    [result] = harness().ask(request, version).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result.error_code, {each.name: each for each in result.configs}


@pytest.mark.parametrize("version", versions_of(32))
def test_a_topic_in_every_version(version: int) -> None:
    error, configs = ask(TOPIC, "t", version)
    assert error == Error.NONE
    own, other = configs["retention.ms"], configs["max.message.bytes"]
    assert (own.value, own.read_only, own.is_sensitive) == ("5", False, False)
    assert other.value == "9"
    if version == 0:
        assert (own.is_default, configs["segment.ms"].is_default) == (False, True)
    else:
        assert (own.config_source, other.config_source) == (DYNAMIC_TOPIC, DYNAMIC_DEFAULT)
        assert configs["segment.ms"].config_source == DEFAULT
        assert own.synonyms == ()
    if version >= 3:
        assert (own.config_type, own.documentation) == (5, None)


def test_synonyms_and_documentation_on_demand() -> None:
    _, configs = ask(
        TOPIC, "t", 4, ("retention.ms",), include_synonyms=True, include_documentation=True
    )
    assert list(configs) == ["retention.ms"]
    entry = configs["retention.ms"]
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("retention.ms", "5", DYNAMIC_TOPIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert entry.documentation


def test_a_key_that_does_not_exist_is_left_out() -> None:
    assert ask(TOPIC, "t", 4, ("nobody",)) == (Error.NONE, {})


def test_empty_keys_return_everything() -> None:
    assert ask(TOPIC, "t", 4, ()) == ask(TOPIC, "t", 4)


def test_this_broker() -> None:
    error, configs = ask(BROKER, "1", 4)
    assert error == Error.NONE
    entry = configs["num.partitions"]
    assert (entry.value, entry.config_source, entry.read_only) == ("3", STATIC, True)
    assert configs["message.max.bytes"].value == "9"
    assert not configs["message.max.bytes"].read_only


def test_the_value_of_a_derived_property_is_null_as_in_kafka() -> None:
    _, configs = ask(BROKER, "1", 4, include_synonyms=True)
    for name in (
        "log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms",
    ):  # fmt: skip
        assert configs[name].value is None, name
    entry = configs["log.retention.ms"]
    assert [(each.name, each.value) for each in entry.synonyms] == [("log.retention.hours", "168")]
    assert configs["log.retention.hours"].value == "168"


def test_the_default_of_all_brokers() -> None:
    error, configs = ask(BROKER, "", 4)
    assert (error, list(configs)) == (Error.NONE, ["message.max.bytes"])


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "nobody", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", Error.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a b", Error.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", Error.INVALID_REQUEST),
        (BROKER, "one", Error.INVALID_REQUEST),
        (8, "1", Error.INVALID_REQUEST),
        (16, "x", Error.INVALID_REQUEST),
        (32, "g", Error.INVALID_REQUEST),
        (0, "", Error.INVALID_REQUEST),
    ],
)
def test_refusals(resource_type: int, name: str, error: Error) -> None:
    assert ask(resource_type, name, 4) == (error, {})


def test_a_resource_that_is_named_often_is_described_once() -> None:
    def resource(kind: int, name: str, *keys: str) -> DescribeConfigsResource:
        return DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys or None
        )

    resources = [resource(BROKER, "1")] * 1000
    resources += [resource(TOPIC, "t", "retention.ms"), resource(TOPIC, "t", "segment.ms")]
    resources += [resource(BROKER, "1", "num.partitions"), resource(TOPIC, "missing")] * 10
    results = harness().ask(DescribeConfigsRequest(resources=tuple(resources)), 4).results
    assert [each.resource_name for each in results] == ["1", "t", "missing"]
    broker, topic, _missing = results
    assert len(broker.configs) > 100, "one that asked for all gets all"
    assert {each.name for each in topic.configs} == {"retention.ms", "segment.ms"}
