"""Listeners and voters are taken and refused as Kafka takes and refuses them.

Method: whole property files in small tables; each refusal names the property and the rule.
"""

import pytest

from ottla.metadata.brokers import Endpoint
from ottla.metadata.config_def import ConfigError
from ottla.metadata.listeners import Voter, parse_ip_limits, parse_servers, parse_voters

from .nodes import BROKER, COMBINED, CONTROLLER, node

CLIENT = Endpoint("PLAINTEXT", "localhost", 9092)
QUORUM = Endpoint("CONTROLLER", "localhost", 9093)


def test_a_combined_node() -> None:
    config = node()
    assert config.listeners == (CLIENT, QUORUM)
    assert config.broker_listeners == (CLIENT,)
    assert config.controller_listeners == (QUORUM,)
    assert config.advertised_listeners == (CLIENT,)
    assert config.advertised_controller_listeners == (QUORUM,)
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.listener_set.controller_names == ("CONTROLLER",)


def test_a_controller_alone() -> None:
    config = node(base=CONTROLLER)
    assert config.advertised_listeners == ()
    assert config.advertised_controller_listeners == (QUORUM,)


def test_a_broker_alone_knows_the_controllers_listener_by_name_only() -> None:
    config = node(base=BROKER)
    assert config.controller_listeners == ()
    assert config.advertised_controller_listeners == ()
    assert config.listener_set.controller_names == ("CONTROLLER",)


def test_advertised_addresses_differ_from_bound_ones() -> None:
    config = node(
        {
            "listeners": "inner://:9092,outer://0.0.0.0:19092,CONTROLLER://:9093",
            "advertised.listeners": "INNER://broker-1:9092,OUTER://example.org:9092",
            "listener.security.protocol.map": (
                "INNER:PLAINTEXT,OUTER:plaintext,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "inner",
        }
    )
    assert [each.name for each in config.broker_listeners] == ["INNER", "OUTER"]
    assert config.broker_listeners[0].host == ""
    assert config.advertised_listeners[1] == Endpoint("OUTER", "example.org", 9092)
    assert config.inter_broker_listener_name == "INNER"


@pytest.mark.parametrize(
    "listeners",
    [
        "PLAINTEXT://[::1]:9092,CONTROLLER://127.0.0.1:9092",
        "PLAINTEXT://:0,CONTROLLER://:0",
        "PLAINTEXT://host-1.example_x.org:1,CONTROLLER://[fe80::1%eth0]:2",
    ],
)
def test_addresses_that_are_fine(listeners: str) -> None:
    node({"listeners": listeners})


@pytest.mark.parametrize(
    ("base", "given", "name", "text"),
    [
        (COMBINED, {"listeners": "PLAINTEXT:9092"}, "listeners", "expected NAME://host:port"),
        (COMBINED, {"listeners": "PLAINTEXT://:99999"}, "listeners", "at most 65535"),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3"},
            "listeners",
            "different name",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"},
            "listeners",
            "different port",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092"},
            "listeners",
            "different port",
        ),
        (
            COMBINED,
            {"listeners": "INNER://:9092,CONTROLLER://:9093"},
            "listeners",
            "no security protocol is defined for the listener INNER",
        ),
        (
            COMBINED,
            {"listeners": "SSL://:9092,CONTROLLER://:9093"},
            "listeners",
            "SSL is not supported yet",
        ),
        (
            COMBINED,
            {"listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT"},
            "listeners",
            "SASL_SSL is not supported yet",
        ),
        (
            COMBINED,
            {"listener.security.protocol.map": "PLAINTEXT"},
            "listener.security.protocol.map",
            "NAME:PROTOCOL",
        ),
        (
            COMBINED,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "listeners",
            "listener CONTROLLER",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:9092"},
            "controller.listener.names",
            "CONTROLLER is not in listeners",
        ),
        (
            COMBINED,
            {"controller.listener.names": ""},
            "controller.listener.names",
            "must name a listener",
        ),
        (
            COMBINED,
            {"listeners": "CONTROLLER://:9093"},
            "advertised.listeners",
            "at least one listener",
        ),
        (
            COMBINED,
            {
                "advertised.listeners": "OTHER://x:1",
                "listener.security.protocol.map": (
                    "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
            },
            "advertised.listeners",
            "OTHER is not a listener of this node",
        ),
        (
            COMBINED,
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners",
            "clients cannot connect to",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093"},
            "listeners",
            "clients cannot connect to",
        ),
        (
            COMBINED,
            {"inter.broker.listener.name": "CONTROLLER"},
            "inter.broker.listener.name",
            "must be an advertised listener: PLAINTEXT",
        ),
        (
            COMBINED,
            {"inter.broker.listener.name": "NOBODY"},
            "inter.broker.listener.name",
            "listener.security.protocol.map",
        ),
        (
            COMBINED,
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "inter.broker.listener.name",
            "only one of",
        ),
        (
            COMBINED,
            {"security.inter.broker.protocol": "TELNET"},
            "security.inter.broker.protocol",
            "expected one of",
        ),
        (
            BROKER,
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "controller.listener.names",
            "process.roles=broker",
        ),
        (
            BROKER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "controller.listener.names",
            "CONTROLLER is not in listener.security.protocol.map",
        ),
        (
            CONTROLLER,
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "listeners",
            "process.roles=controller",
        ),
    ],
)
def test_refusals(base: dict[str, str], given: dict[str, str], name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        node(given, base)
    [problem] = caught.value.problems
    assert problem.name == name
    assert text in problem.reason


def test_voters_come_by_id() -> None:
    voters = parse_voters(("3@c:3", "1@[::1]:1", "2@b.example:2"))
    assert voters == (Voter(1, "::1", 1), Voter(2, "b.example", 2), Voter(3, "c", 3))
    assert parse_servers(("a:1", "[::1]:2")) == (("a", 1), ("::1", 2))


@pytest.mark.parametrize(
    "entry", ["1", "1@host", "x@host:1", "-1@host:1", "1@:9", "1@host:99999", "1@a:1@b:2"]
)
def test_bad_voters(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"expected \{id\}@\{host\}:\{port\}"):
        parse_voters((entry,))


def test_a_voter_twice() -> None:
    with pytest.raises(ConfigError, match="comes twice"):
        parse_voters(("1@a:1", "1@b:2"))


@pytest.mark.parametrize("entry", ["host", ":1", "host:x", "host:70000"])
def test_bad_bootstrap_servers(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"expected \{host\}:\{port\}"):
        parse_servers((entry,))


def test_a_controller_may_leave_its_address_to_the_machine() -> None:
    config = node(
        {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093"}, base=COMBINED
    )
    assert config.controller_listeners == (Endpoint("CONTROLLER", "0.0.0.0", 9093),)
    assert config.advertised_controller_listeners == (Endpoint("CONTROLLER", "", 9093),)


def test_limits_of_single_addresses() -> None:
    assert parse_ip_limits("") == {}
    assert parse_ip_limits("127.0.0.1:5, ::1:6,[fe80::2]:0") == {
        "127.0.0.1": 5,
        "::1": 6,
        "fe80::2": 0,
    }


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "localhost:5", ":5"])
def test_malformed_limits_of_single_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides.*IP addresses"):
        node({"max.connections.per.ip.overrides": text})
