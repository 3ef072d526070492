"""The sample property files of Kafka's distribution are taken as they are.

Method: what the files of 4.3 set (config/server.properties, broker.properties and
controller.properties), name by name; as text that is parsed as a node's file is.
"""

import pytest

from ottla.metadata.node_config import NodeConfig

COMMON = """
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
FILES = {
    "server": """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
log.dirs=/tmp/kraft-combined-logs
""",
    "broker": """
process.roles=broker
node.id=2
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
log.dirs=/tmp/kraft-broker-logs
""",
    "controller": """
process.roles=controller
node.id=1
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
log.dirs=/tmp/kraft-controller-logs
""",
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_sample_file_is_taken(name: str) -> None:
    config = NodeConfig.read(FILES[name] + COMMON)
    assert config["share.coordinator.state.topic.min.isr"] == 1
    assert config.quorum_bootstrap_servers == (("localhost", 9093),)


@pytest.mark.parametrize(
    "line",
    [
        "add.partitions.to.txn.retry.backoff.max.ms=100",
        "add.partitions.to.txn.retry.backoff.ms=20",
        "controller.quorum.fetch.max.bytes=1048576",
        "controller.quorum.fetch.snapshot.max.bytes=1048576",
        "group.coordinator.append.linger.ms=-1",
        "share.coordinator.append.linger.ms=-1",
    ],
)
def test_properties_that_came_with_the_last_versions_are_taken(line: str) -> None:
    """With their defaults, as Kafka 4.3.1 defines them."""
    name, _, value = line.partition("=")
    assert NodeConfig.read(FILES["server"] + COMMON + line)[name] == int(value)


def test_what_would_pretend_share_groups_is_refused() -> None:
    text = FILES["server"] + COMMON
    with pytest.raises(ValueError, match=r"group.share.enable=true: .*no share groups"):
        NodeConfig.read(text + "group.share.enable=true")
    with pytest.raises(ValueError, match=r"group.share.max.size=0: expected"):
        NodeConfig.read(text + "group.share.max.size=0")
    assert NodeConfig.read(text + "group.share.max.size=7")["group.share.max.size"] == 7
