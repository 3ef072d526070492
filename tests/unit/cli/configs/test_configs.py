"""`ottla configs`: entities, what is set and unset, and what is printed."""

from typing import Any

import pytest

from ottla.cli.configs.configs import choose_entity, parse_added
from ottla.cli.errors import UsageError
from ottla.wire.messages import describe_configs as describe_wire
from ottla.wire.messages import incremental_alter_configs as alter_wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic

NONE = (None, None, False, None, None, False)


def entity(**given: Any) -> tuple[str, str | None]:
    names = ("entity_type", "entity_name", "entity_default", "topic", "broker", "broker_defaults")
    values = dict(zip(names, NONE, strict=True)) | given
    return choose_entity(**values)


def test_entities() -> None:
    assert entity(entity_type="topics", entity_name="t") == ("topics", "t")
    assert entity(entity_type="topics") == ("topics", None)
    assert entity(entity_type="brokers", entity_default=True) == ("brokers", "")
    assert entity(topic="t") == ("topics", "t")
    assert entity(broker="1") == entity(broker="01") == ("brokers", "1")
    assert entity(broker_defaults=True) == ("brokers", "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "--entity-type is required: expected topics or brokers"),
        ({"entity_type": "users"}, "--entity-type users is not available in this version"),
        ({"entity_type": "cats"}, "--entity-type cats: expected topics or brokers"),
        ({"topic": "t", "broker": "1"}, "expected one of --topic, --broker and --broker-defaults"),
        ({"topic": "t", "entity_type": "topics"}, "--entity-\\* cannot be used with"),
        ({"broker": "one"}, "broker one: expected a broker's id, an integer"),
        ({"entity_type": "topics", "entity_default": True}, "topics have no default entity"),
    ],
)
def test_entities_that_make_no_sense(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        entity(**given)


def test_values_with_commas_are_held_by_brackets() -> None:
    assert parse_added("a=1, b=[x,y] ,c=") == {"a": "1", "b": "x,y", "c": ""}


@pytest.mark.parametrize("text", ["a", "a=b=c", "a b=1", "=1"])
def test_additions_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--add-config"):
        parse_added(text)


def described(request: describe_wire.DescribeConfigsRequest) -> Any:
    (asked,) = request.resources
    dynamic = {2: 1, 4: 2 if asked.resource_name else 3}[asked.resource_type]

    def config(name: str, value: str | None, source: int, sensitive: bool = False) -> Any:
        return describe_wire.DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=False,
            config_source=source,
            is_sensitive=sensitive,
            synonyms=(
                describe_wire.DescribeConfigsSynonym(name=name, value=value, source=source),
                describe_wire.DescribeConfigsSynonym(name=f"log.{name}", value="7", source=5),
            )
            if source != 5
            else (),
        )

    return describe_wire.DescribeConfigsResponse(
        results=(
            describe_wire.DescribeConfigsResult(
                error_code=0,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=(
                    config("retention.ms", "1", dynamic),
                    config("cleanup.policy", "delete", 5),
                    config("secret", None, 4, sensitive=True),
                ),
            ),
        )
    )


def configs(run: Run, broker: FakeBroker, *arguments: str) -> Ran:
    return run("configs", "--bootstrap-server", broker.address, *arguments)


LINE = (
    "  retention.ms=1 sensitive=false "
    "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1, DEFAULT_CONFIG:log.retention.ms=7}\n"
)


def test_describe_shows_dynamic_configs(run: Run, broker: FakeBroker) -> None:
    broker.answer(describe_wire.DescribeConfigsRequest, described)
    ran = configs(run, broker, "--describe", "--entity-type", "topics", "--entity-name", "t")
    assert ran == (0, "Dynamic configs for topic t are:\n" + LINE, "")


def test_describe_all(run: Run, broker: FakeBroker) -> None:
    broker.answer(describe_wire.DescribeConfigsRequest, described)
    ran = configs(run, broker, "--describe", "--topic", "t", "--all")
    assert ran.out == (
        "All configs for topic t are:\n"
        "  cleanup.policy=delete sensitive=false synonyms={}\n" + LINE + "  secret=null "
        "sensitive=true synonyms={STATIC_BROKER_CONFIG:secret=null, "
        "DEFAULT_CONFIG:log.secret=7}\n"
    )


def test_describe_without_a_name_shows_all_of_the_type(run: Run, broker: FakeBroker) -> None:
    broker.answer(describe_wire.DescribeConfigsRequest, described)
    broker.topics = [topic("b"), topic("a")]
    ran = configs(run, broker, "--describe", "--entity-type", "topics")
    headings = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    assert headings == ["Dynamic configs for topic a are:", "Dynamic configs for topic b are:"]
    ran = configs(run, broker, "--describe", "--entity-type", "brokers")
    headings = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    assert headings == [
        "Dynamic configs for broker 1 are:",
        "Default configs for brokers in the cluster are:",
    ]


def test_a_controller_describes_itself(run: Run, broker: FakeBroker) -> None:
    """It is found through another one; configs that are not a node's go to the active one."""
    other = FakeBroker()
    for each in (broker, other):
        each.answer(describe_wire.DescribeConfigsRequest, described)
    broker.be_controller(101, active=other)
    words = ("configs", "--bootstrap-controller", broker.address, "--describe")
    for entity_name, asked in (("101", broker), ("102", other)):
        ran = run(*words, "--entity-type", "brokers", "--entity-name", entity_name)
        assert ran.out.splitlines()[0] == f"Dynamic configs for broker {entity_name} are:"
        assert len(asked.requests(describe_wire.DescribeConfigsRequest)) == 1
    assert run(*words, "--topic", "t").code == 0
    assert len(other.requests(describe_wire.DescribeConfigsRequest)) == 2
    ran = run(*words, "--broker", "7")
    assert (ran.code, ran.err) == (
        1, "ottla configs: there is no controller 7: expected one of 101, 102\n"
    )  # fmt: skip
    assert run(*words, "--entity-type", "topics").code == 2
    assert run(*words, "--bootstrap-server", "x:1", "--topic", "t").code == 2
    other.close()


def test_the_active_controller_alters(run: Run, broker: FakeBroker) -> None:
    other = FakeBroker()
    other.answer(alter_wire.IncrementalAlterConfigsRequest, altered)
    broker.be_controller(101, active=other)
    ran = run(
        "configs", "--bootstrap-controller", broker.address, "--alter", "--broker", "102",
        "--add-config", "a=b",
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, "Completed updating config for broker 102.\n")
    other.close()


def altered(request: alter_wire.IncrementalAlterConfigsRequest) -> Any:
    return alter_wire.IncrementalAlterConfigsResponse(
        responses=tuple(
            alter_wire.AlterConfigsResourceResponse(
                error_code=0, resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in request.resources
        )
    )


def test_alter(run: Run, broker: FakeBroker) -> None:
    broker.answer(describe_wire.DescribeConfigsRequest, described)
    broker.answer(alter_wire.IncrementalAlterConfigsRequest, altered)
    ran = configs(
        run, broker, "--alter", "--topic", "t",
        "--add-config", "segment.ms=5,cleanup.policy=[compact,delete]",
        "--delete-config", "retention.ms",
    )  # fmt: skip
    assert ran == (0, "Completed updating config for topic t.\n", "")
    (request,) = broker.requests(alter_wire.IncrementalAlterConfigsRequest)
    operations = [
        (each.name, each.config_operation, each.value) for each in request.resources[0].configs
    ]
    assert operations == [
        ("segment.ms", 0, "5"),
        ("cleanup.policy", 0, "compact,delete"),
        ("retention.ms", 1, None),
    ]


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("remote.storage.enable=false", [("remote.storage.enable", 0, "false")]),
        (
            "remote.log.disable.policy=retain, remote.storage.enable=false",
            [("remote.log.disable.policy", 0, "retain"), ("remote.storage.enable", 0, "false")],
        ),
        (
            "remote.log.disable.policy=delete, remote.storage.enable=false",
            [("remote.log.disable.policy", 0, "delete"), ("remote.storage.enable", 0, "false")],
        ),
    ],
)
def test_kip_950s_examples(
    run: Run, broker: FakeBroker, added: str, expected: list[tuple[str, int, str]]
) -> None:
    broker.answer(alter_wire.IncrementalAlterConfigsRequest, altered)
    ran = configs(
        run, broker, "--alter", "--entity-type", "topics", "--entity-name", "orders",
        "--add-config", added,
    )  # fmt: skip
    assert ran == (0, "Completed updating config for topic orders.\n", "")
    (request,) = broker.requests(alter_wire.IncrementalAlterConfigsRequest)
    (resource,) = request.resources
    assert resource.resource_name == "orders"
    sent = [(each.name, each.config_operation, each.value) for each in resource.configs]
    assert sent == expected


def test_a_refusal_prints_the_reason_and_what_to_do(run: Run, broker: FakeBroker) -> None:
    message = (
        "Tiered storage of the topic orders is being disabled (…). Wait until 'ottla tier describe"
        " --topic orders' shows DISABLED, then try again."
    )

    def refused(request: alter_wire.IncrementalAlterConfigsRequest) -> Any:
        return alter_wire.IncrementalAlterConfigsResponse(
            responses=(
                alter_wire.AlterConfigsResourceResponse(
                    error_code=1071, error_message=message, resource_type=2, resource_name="orders"
                ),
            )
        )

    broker.answer(alter_wire.IncrementalAlterConfigsRequest, refused)
    ran = configs(
        run, broker, "--alter", "--topic", "orders", "--add-config", "remote.storage.enable=true"
    )
    assert ran.code == 1
    assert ran.err == (
        f"ottla configs: topic orders: {message} (TIERED_STORAGE_DISABLEMENT_IN_PROGRESS)\n"
    )


def test_alter_of_the_default_of_brokers(run: Run, broker: FakeBroker) -> None:
    broker.answer(alter_wire.IncrementalAlterConfigsRequest, altered)
    ran = configs(run, broker, "--alter", "--broker-defaults", "--add-config", "log.retention.ms=5")
    assert ran.out == "Completed updating default config for brokers in the cluster.\n"
    (request,) = broker.requests(alter_wire.IncrementalAlterConfigsRequest)
    assert (request.resources[0].resource_type, request.resources[0].resource_name) == (4, "")


def test_only_dynamic_configs_can_be_unset(run: Run, broker: FakeBroker) -> None:
    broker.answer(describe_wire.DescribeConfigsRequest, described)
    ran = configs(run, broker, "--alter", "--topic", "t", "--delete-config", "cleanup.policy")
    assert ran.code == 1
    assert ran.err == "ottla configs: Invalid config(s): cleanup.policy: not set on this entity\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--describe", "--topic", "t", "--add-config", "a=b"], "--add-config and --delete-config "
         "cannot be used with --describe"),
        (["--alter", "--topic", "t"], "--alter needs --add-config, --add-config-file or "
         "--delete-config"),
        (["--alter", "--entity-type", "topics", "--add-config", "a=b"], "--alter needs "
         "--entity-name, or --entity-default for brokers"),
    ],
)  # fmt: skip
def test_wrong_usage(run: Run, arguments: list[str], message: str) -> None:
    ran = run("configs", *arguments)
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"ottla configs: {message}")
