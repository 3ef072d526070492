"""What a local cluster is made of: its nodes, their ports, their property files.

Broker i has node id i and listens on port + i - 1; separate controllers, which together are a
quorum, have ids from 101 and ports from port + 100. A single broker is a combined node, whose
controller listens on port + 100. Metrics are on a node's port + 1000.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.testing.ports import HOST

FIRST_CONTROLLER_ID = 101
CONTROLLER_PORT_OFFSET = 100
METRICS_PORT_OFFSET = 1000
CONTROLLERS_MAX = 5
"""A quorum of five survives two losses; more only make every commit slower."""
LAST_PORT_OFFSET = CONTROLLER_PORT_OFFSET + METRICS_PORT_OFFSET
"""Where the first controller's metrics are; those of further ones follow."""
BROKERS_MAX = CONTROLLER_PORT_OFFSET
PORT_MAX = 65_535

OWN_PROPERTIES = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "metrics.port",
        "node.id",
        "process.roles",
        "zookeeper.connect",
    }
)
"""What makes a node one of its cluster: the layout decides these, not the caller."""


class ClusterError(Exception):
    """A local cluster cannot do what was asked; the message is for people and is one line,
    unless the end of a node's log follows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node: `port` is where its clients connect, for a separate controller the brokers."""

    id: int
    roles: tuple[str, ...]
    port: int
    controller_port: int | None = None
    """Where its controller listens, if it has one."""
    metrics_port: int | None = None
    """Where Prometheus finds its metrics, if it serves any."""

    @property
    def is_broker(self) -> bool:
        """Tell whether clients may use this node."""
        return "broker" in self.roles

    @property
    def ports(self) -> tuple[int, ...]:
        """Return all ports that the node listens on."""
        given = (self.port, self.controller_port, self.metrics_port)
        return tuple(sorted({port for port in given if port is not None}))


def check_size(brokers: int, controllers: int) -> None:
    """Raise ClusterError where no cluster of these numbers can be made."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise ClusterError(f"{brokers} brokers: expected 1 to {BROKERS_MAX}")
    if not 0 <= controllers <= CONTROLLERS_MAX:
        raise ClusterError(f"{controllers} controllers: expected 0 to {CONTROLLERS_MAX}")


def last_port_offset(controllers: int) -> int:
    """Return how far the highest port of a cluster is from its first."""
    return LAST_PORT_OFFSET + max(0, controllers - 1)


def check_config(config: Mapping[str, str]) -> None:
    """Raise ClusterError where `config` holds what the layout decides."""
    for name in sorted(OWN_PROPERTIES & set(config)):
        raise ClusterError(
            f"{name}={config[name]} cannot be set for a whole cluster: "
            "it follows from the number of nodes and the ports"
        )


def plan_nodes(brokers: int, controllers: int, port: int) -> tuple[NodePlan, ...]:
    """Return the nodes of a cluster, brokers first."""
    check_size(brokers, controllers)
    last_offset = last_port_offset(controllers)
    if not 1 <= port <= PORT_MAX - last_offset:
        raise ClusterError(
            f"port {port}: expected 1 to {PORT_MAX - last_offset}, "
            f"since the last node's metrics are on port + {last_offset}"
        )
    broker_ports = [port + index for index in range(brokers)]
    plans = place_nodes(brokers, controllers, broker_ports, port + CONTROLLER_PORT_OFFSET)
    return tuple(replace(plan, metrics_port=plan.port + METRICS_PORT_OFFSET) for plan in plans)


def place_nodes(
    brokers: int, controllers: int, broker_ports: Sequence[int], controller_port: int
) -> tuple[NodePlan, ...]:
    """Return the nodes of a cluster on given ports, brokers first, controllers side by side."""
    check_size(brokers, controllers)
    if brokers == 1 and controllers == 0:
        combined = ("broker", "controller")
        return (
            NodePlan(id=1, roles=combined, port=broker_ports[0], controller_port=controller_port),
        )
    nodes = [
        NodePlan(id=index + 1, roles=("broker",), port=broker_ports[index])
        for index in range(brokers)
    ]
    nodes += [
        NodePlan(
            id=FIRST_CONTROLLER_ID + index,
            roles=("controller",),
            port=controller_port + index,
            controller_port=controller_port + index,
        )
        for index in range(max(1, controllers))
    ]
    return tuple(nodes)


def node_properties(
    node: NodePlan, nodes: Sequence[NodePlan], log_dir: str, config: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties of one node; those of `config` win over Ottla's choices."""
    listeners = []
    if node.is_broker:
        listeners.append(f"PLAINTEXT://{HOST}:{node.port}")
    if node.controller_port is not None:
        listeners.append(f"CONTROLLER://{HOST}:{node.controller_port}")
    voters = ",".join(
        f"{each.id}@{HOST}:{each.controller_port}"
        for each in nodes
        if each.controller_port is not None
    )
    properties = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "log.dirs": log_dir,
        # Brokers do not copy each other's partitions yet, so a second replica would never be
        # in sync.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        # As in the sample properties that come with Kafka: nobody waits 3 s for a first member.
        "group.initial.rebalance.delay.ms": "0",
    }
    if node.is_broker:
        properties["inter.broker.listener.name"] = "PLAINTEXT"
        properties["advertised.listeners"] = f"PLAINTEXT://{HOST}:{node.port}"
    if node.metrics_port is not None:
        properties["metrics.port"] = str(node.metrics_port)
    return {**properties, **config}
