"""The layout of a local cluster: its nodes, their ports, their property files.

Broker i has node id i and listens on port + i - 1. Controllers listen from port + 100 and are a
quorum together: the first brokers are combined nodes, one of fewer than three brokers and three of
more, or separate nodes with ids from 101 where a number of them is asked for. Metrics are on a
node's port + 1000.

A cluster over ZooKeeper has brokers alone, and where ZooKeeper is its own, one node more for it: it
has the id 201 and listens on port + 200.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.testing.ports import HOST

FIRST_CONTROLLER_ID = 101
ZOOKEEPER_ID = 201
CONTROLLER_PORT_OFFSET = 100
ZOOKEEPER_PORT_OFFSET = 200
METRICS_PORT_OFFSET = 1000
CONTROLLERS_MAX = 5
"""A quorum of five survives two losses; more only make every commit slower."""
COMBINED_MAX = 3
"""Combined nodes of a cluster: enough to survive the loss of one, and no more processes for it."""
REPLICAS_MAX = 3
MIN_ISR_MAX = 2
"""Of the internal topics, as in Kafka's own defaults; fewer brokers than that have fewer."""
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
    def is_zookeeper(self) -> bool:
        """Tell whether this node is the cluster's own ZooKeeper."""
        return self.id == ZOOKEEPER_ID

    @property
    def ports(self) -> tuple[int, ...]:
        """Return all ports that the node listens on."""
        return tuple(sorted(self.purposes))

    @property
    def purposes(self) -> dict[int, str]:
        """Return what each port that the node listens on is for."""
        first = (
            "ZooKeeper"
            if self.is_zookeeper
            else "the broker listener"
            if self.is_broker
            else "the controller listener"
        )
        named = {
            self.port: first,
            self.controller_port: "the controller listener",
            self.metrics_port: "the metrics",
        }
        return {port: purpose for port, purpose in named.items() if port is not None}


def check_size(brokers: int, controllers: int) -> None:
    """Raise ClusterError where no cluster of these numbers can be made."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise ClusterError(f"{brokers} brokers: expected 1 to {BROKERS_MAX}")
    if not 0 <= controllers <= CONTROLLERS_MAX:
        raise ClusterError(f"{controllers} controllers: expected 0 to {CONTROLLERS_MAX}")


def last_port_offset(controllers: int) -> int:
    """Return how far the highest port of a cluster can be from its first."""
    last_node = CONTROLLER_PORT_OFFSET + controllers - 1 if controllers else BROKERS_MAX - 1
    return last_node + METRICS_PORT_OFFSET


def combined_nodes(brokers: int) -> int:
    """Return how many of the brokers are controllers too where there are no separate ones.

    Two would be worse than one: the loss of either would end the quorum.
    """
    return COMBINED_MAX if brokers >= COMBINED_MAX else 1


def controller_count(brokers: int, controllers: int) -> int:
    """Return how many controllers, combined or separate, a cluster of these numbers has."""
    return controllers or combined_nodes(brokers)


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
    plans = place_nodes(
        brokers,
        controllers,
        [port + index for index in range(brokers)],
        [
            port + CONTROLLER_PORT_OFFSET + index
            for index in range(controller_count(brokers, controllers))
        ],
    )
    return tuple(with_metrics(plan, plan.port + METRICS_PORT_OFFSET) for plan in plans)


def with_metrics(plan: NodePlan, port: int) -> NodePlan:
    """Return the node with its metrics on a port."""
    return replace(plan, metrics_port=port)


def place_nodes(
    brokers: int, controllers: int, broker_ports: Sequence[int], controller_ports: Sequence[int]
) -> tuple[NodePlan, ...]:
    """Return the nodes of a cluster on given ports, brokers first."""
    check_size(brokers, controllers)
    assert len(controller_ports) == controller_count(brokers, controllers)
    combined = 0 if controllers else len(controller_ports)
    nodes = [
        NodePlan(
            id=index + 1,
            roles=("broker", "controller") if index < combined else ("broker",),
            port=broker_ports[index],
            controller_port=controller_ports[index] if index < combined else None,
        )
        for index in range(brokers)
    ]
    nodes += [
        NodePlan(
            id=FIRST_CONTROLLER_ID + index, roles=("controller",), port=port, controller_port=port
        )
        for index, port in enumerate(controller_ports[combined:])
    ]
    return tuple(nodes)


def place_brokers(ports: Sequence[int], zookeeper_port: int | None = None) -> tuple[NodePlan, ...]:
    """Return the nodes of a cluster over ZooKeeper, and its own ZooKeeper where it has one."""
    check_size(len(ports), 0)
    nodes = [
        NodePlan(id=index + 1, roles=("broker",), port=port) for index, port in enumerate(ports)
    ]
    if zookeeper_port is not None:
        nodes.append(NodePlan(id=ZOOKEEPER_ID, roles=("zookeeper",), port=zookeeper_port))
    return tuple(nodes)


def plan_brokers(
    brokers: int, port: int, zookeeper_port: int | None = None
) -> tuple[NodePlan, ...]:
    """Return the nodes of a cluster over ZooKeeper, from the first broker's port."""
    assert port + last_port_offset(0) <= PORT_MAX
    plans = place_brokers([port + index for index in range(brokers)], zookeeper_port)
    return tuple(
        with_metrics(plan, plan.port + METRICS_PORT_OFFSET) if plan.is_broker else plan
        for plan in plans
    )


def node_properties(
    node: NodePlan,
    nodes: Sequence[NodePlan],
    log_dir: str,
    config: Mapping[str, str],
    zookeeper: str | None = None,
) -> dict[str, str]:
    """Return the properties of one node; those of `config` win over Ottla's choices.

    `zookeeper`: where a cluster over ZooKeeper finds it.
    """
    if zookeeper is None:
        properties = _quorum_properties(node, nodes)
    else:
        properties = {
            "broker.id": str(node.id),
            "zookeeper.connect": zookeeper,
            "listeners": f"PLAINTEXT://{HOST}:{node.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            # The last brokers to stop have no broker to move their leaders to: controlled shutdown
            # fails after three attempts, 5 s apart by default.
            "controlled.shutdown.retry.backoff.ms": "1000",
        }
    brokers = sum(each.is_broker for each in nodes)
    copies = str(min(REPLICAS_MAX, brokers))
    properties |= {
        "log.dirs": log_dir,
        # Kafka's defaults, as far as there are brokers: a topic that needs more is not created.
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(MIN_ISR_MAX, brokers)),
        "rlmm.config.remote.log.metadata.topic.replication.factor": copies,
        # As in Kafka's sample properties: a first member does not wait 3 s.
        "group.initial.rebalance.delay.ms": "0",
    }
    if node.is_broker:
        properties["inter.broker.listener.name"] = "PLAINTEXT"
        properties["advertised.listeners"] = f"PLAINTEXT://{HOST}:{node.port}"
    if node.metrics_port is not None:
        properties["metrics.port"] = str(node.metrics_port)
    return {**properties, **config}


def _quorum_properties(node: NodePlan, nodes: Sequence[NodePlan]) -> dict[str, str]:
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
    return {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
    }
