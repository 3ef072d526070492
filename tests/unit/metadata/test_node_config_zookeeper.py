"""A property file of ZooKeeper mode, as Kafka 3.9's brokers have it, and what it must not say.

Method: small files in tables, over one that is as short as it can be.
"""

import pytest

from ottla.metadata.config_def import ConfigError
from ottla.metadata.node_config import NodeConfig

from .nodes import COMBINED, ZOOKEEPER, node


def test_it_is_a_broker_without_a_quorum() -> None:
    config = node(base=ZOOKEEPER)
    assert config.zookeeper_connect == "zk1:2181,zk2:2181/kafka"
    assert (config.is_broker, config.is_controller) == (True, False)
    assert config.node_id == config["broker.id"] == config["node.id"] == 3
    assert [each.name for each in config.broker_listeners] == ["PLAINTEXT"]
    assert config.controller_listeners == ()
    assert config.quorum_voters == ()
    assert config.inter_broker_listener_name == "PLAINTEXT"


def test_kraft_mode_has_none() -> None:
    assert node().zookeeper_connect is None


def test_timeouts() -> None:
    assert node(base=ZOOKEEPER)["zookeeper.session.timeout.ms"] == 18_000
    assert node(base=ZOOKEEPER)["zookeeper.connection.timeout.ms"] == 18_000
    longer = node({"zookeeper.session.timeout.ms": "30000"}, ZOOKEEPER)
    assert longer["zookeeper.connection.timeout.ms"] == 30_000
    patient = node({"zookeeper.connection.timeout.ms": "60000"}, ZOOKEEPER)
    assert patient["zookeeper.connection.timeout.ms"] == 60_000


@pytest.mark.parametrize("level", ["3.9", "3.9-IV0"])
def test_the_one_level(level: str) -> None:
    assert node({"inter.broker.protocol.version": level}, ZOOKEEPER).is_broker


def test_a_large_id_where_none_are_generated() -> None:
    given = {"broker.id": "5000", "broker.id.generation.enable": "false"}
    assert node(given, ZOOKEEPER).node_id == 5000
    assert node({"broker.id": "5000", "reserved.broker.max.id": "9000"}, ZOOKEEPER).node_id == 5000


@pytest.mark.parametrize(
    ("given", "name", "text"),
    [
        ({"process.roles": "broker"}, "process.roles", "zookeeper.connect=zk1:2181"),
        ({"broker.id": "-1"}, "broker.id", "generates no ids"),
        ({"broker.id": "1001"}, "broker.id", "reserved.broker.max.id=1000"),
        ({"node.id": "4"}, "node.id", "same value as broker.id=3"),
        ({"inter.broker.protocol.version": "3.8"}, "inter.broker.protocol.version", "3.9-IV0"),
        ({"controller.listener.names": "C"}, "controller.listener.names", "of KRaft mode"),
        (
            {"controller.quorum.voters": "1@localhost:9093"},
            "controller.quorum.voters",
            "of KRaft mode",
        ),
    ],
)
def test_refused(given: dict[str, str], name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        node(given, ZOOKEEPER)
    [problem] = caught.value.problems
    assert problem.name == name
    assert text in problem.reason


@pytest.mark.parametrize("connect", ["zk", "zk:2181", "a:1,b:2/x/y", "[::1]:2181", "1.2.3.4:2181/"])
def test_where_zookeeper_may_be(connect: str) -> None:
    assert node({"zookeeper.connect": connect}, ZOOKEEPER).zookeeper_connect == connect


@pytest.mark.parametrize("connect", ["/kafka", "zk:port", "a:1,,b:2", "zk:70000", "a b:1"])
def test_where_it_cannot_be(connect: str) -> None:
    with pytest.raises(ConfigError, match="host:port,host:port/path"):
        node({"zookeeper.connect": connect}, ZOOKEEPER)


def test_a_level_between_brokers_is_not_of_kraft_mode() -> None:
    with pytest.raises(ConfigError, match=r"metadata\.version stands for it"):
        NodeConfig.parse({**COMBINED, "inter.broker.protocol.version": "3.9"})
