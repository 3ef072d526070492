"""Node configurations for tests."""

from ottla.metadata.node_config import NodeConfig

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}
ZOOKEEPER = {
    "broker.id": "3",
    "listeners": "PLAINTEXT://localhost:9092",
    "zookeeper.connect": "zk1:2181,zk2:2181/kafka",
}


def node(given: dict[str, str] | None = None, base: dict[str, str] = COMBINED) -> NodeConfig:
    """Return the configuration of `base` with `given` over it."""
    return NodeConfig.parse({**base, **(given or {})})
