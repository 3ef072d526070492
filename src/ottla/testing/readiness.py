"""Readiness of a local cluster, and formatting a node before its start."""

from collections.abc import Mapping, Sequence

from ottla.testing import ports, zookeeper_process
from ottla.testing.layout import ClusterError, NodePlan
from ottla.testing.ports import HOST

ASK_SECONDS = 2.0
ZOOKEEPER_PORT = "2181"
"""The default port of servers given without one."""


def absent_zookeeper(connect: str | None) -> str | None:
    """Return the ensemble if none of its servers accepts connections; None = one does.

    `connect`: `host:port,...` and perhaps a path; None or "" = there is no ensemble.
    """
    if not connect:
        return None
    for server in connect.partition("/")[0].split(","):
        host, separator, port = server.strip().rpartition(":")
        if not separator or not port.isdecimal():
            host, port = server.strip(), ZOOKEEPER_PORT
        if ports.accepts(int(port), host.strip("[]")):
            return None
    return f"ZooKeeper at {connect}"


def missing(plans: Sequence[NodePlan], *, over_zookeeper: bool = False) -> str | None:
    """Return what the nodes still lack to serve; None = they serve.

    A broker serves when its Metadata response has all brokers of `plans`: only unfenced ones are
    in it, or registered ones in a cluster over ZooKeeper. There it must also have a controller,
    which was elected and has sent UpdateMetadata.
    """
    for plan in plans:
        if plan.is_zookeeper:
            if zookeeper_process.mode_of(plan.port) is None:
                return f"ZooKeeper to serve at {HOST}:{plan.port}"
        elif not plan.is_broker and not ports.accepts(plan.port):
            return f"controller {plan.id} to listen at {HOST}:{plan.port}"
    brokers = [plan for plan in plans if plan.is_broker]
    for plan in brokers:
        found = ask_brokers(plan.port)
        if found is None:
            return f"broker {plan.id} to answer at {HOST}:{plan.port}"
        known, controller = found
        absent = sorted({each.id for each in brokers} - known)
        if absent:
            named = ", ".join(map(str, absent))
            noun = "broker" if len(absent) == 1 else "brokers"
            return f"{noun} {named} to be known to broker {plan.id}"
        if over_zookeeper and controller not in known:
            return f"a controller to be known to broker {plan.id}"
    return None


def known_brokers(port: int) -> set[int] | None:
    """Return the broker ids of the Metadata response at `port`; None = no response."""
    found = ask_brokers(port)
    return None if found is None else found[0]


def ask_brokers(port: int) -> tuple[set[int], int] | None:
    """Return the broker ids and the controller id of a Metadata response; None = no response."""
    from ottla.client.connection import Connection
    from ottla.client.errors import NoSuchVersionError
    from ottla.wire.errors import WireError
    from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

    if not ports.accepts(port):
        return None
    try:
        with Connection(HOST, port, client_id="ottla-readiness", timeout=ASK_SECONDS) as broker:
            answer = broker.ask(MetadataRequest(topics=()), MetadataResponse, timeout=ASK_SECONDS)
    except (OSError, WireError, NoSuchVersionError):
        return None
    return {each.node_id for each in answer.brokers}, answer.controller_id


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise ClusterError for properties that no node takes."""
    from ottla.metadata.config_def import ConfigError
    from ottla.metadata.node_config import NodeConfig

    try:
        NodeConfig.parse(properties)
    except ConfigError as error:
        raise ClusterError(str(error)) from None


def format_node(properties: Mapping[str, str], cluster_id: str) -> None:
    """Format a node's storage; what is formatted already stays as it is.

    Raises ClusterError for directories of another cluster.
    """
    from ottla.host.log_dirs.disk import OsDisk
    from ottla.host.log_dirs.storage import StorageError, format_storage
    from ottla.host.system_ports import SystemClock, SystemDice
    from ottla.metadata.node_config import NodeConfig

    config = NodeConfig.parse(properties)
    try:
        format_storage(
            OsDisk(),
            log_dirs=config.log_dirs,
            metadata_log_dir=config.metadata_log_dir,
            node_id=config.node_id,
            cluster_id=cluster_id,
            dice=SystemDice(),
            clock=SystemClock(),
            ignore_formatted=True,
        )
    except StorageError as error:
        raise ClusterError(str(error)) from None
