"""The configuration of a simulated cluster's nodes, fixed and drawn from the seed."""

from collections.abc import Mapping
from random import Random

from ottla.testing.sim.faults.faults import Faults
from ottla.testing.sim.net import client_host

FIRST_CONTROLLER_ID = 101
BROKER_PORT = 9092
CONTROLLER_PORT = 9093


SELECTOR = "replica.selector.class"


def rack_of(node_id: int) -> str:
    """Return a broker's rack, in a cluster with follower fetching (KIP-392)."""
    return f"rack-{node_id}"


def layout(
    brokers: int, controllers: int, *, combined: bool, config: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return each node's properties, brokers first; `config` wins.

    `combined`: the first nodes are brokers and controllers at once.
    """
    assert brokers > 0
    assert controllers > 0
    assert not combined or controllers <= brokers
    broker_ids = list(range(1, brokers + 1))
    first = 1 if combined else FIRST_CONTROLLER_ID
    controller_ids = list(range(first, first + controllers))
    voters = ",".join(f"{each}@{client_host(each)}:{CONTROLLER_PORT}" for each in controller_ids)
    common = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        **_in_both_modes(brokers),
        # No-op records would take most of the run time.
        "metadata.max.idle.interval.ms": "5000",
    }
    nodes = []
    for node_id in [*broker_ids, *(each for each in controller_ids if each not in broker_ids)]:
        roles, listeners = [], []
        host = client_host(node_id)
        own = {"node.id": str(node_id)}
        if node_id in broker_ids:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{host}:{BROKER_PORT}")
            own["inter.broker.listener.name"] = "PLAINTEXT"
            own["advertised.listeners"] = f"PLAINTEXT://{host}:{BROKER_PORT}"
            if SELECTOR in config:
                own["broker.rack"] = rack_of(node_id)
        if node_id in controller_ids:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{host}:{CONTROLLER_PORT}")
        own["process.roles"] = ",".join(roles)
        own["listeners"] = ",".join(listeners)
        nodes.append({**common, **own, **config})
    return nodes


def _in_both_modes(brokers: int) -> dict[str, str]:
    copies = min(3, brokers)
    factor, min_isr = str(copies), str(max(1, copies - 1))
    return {
        "log.dirs": "/data",
        "default.replication.factor": factor,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": factor,
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
        "rlmm.config.remote.log.metadata.topic.replication.factor": factor,
        "rlmm.config.remote.log.metadata.topic.min.isr": min_isr,
        "num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
    }


def zookeeper_layout(brokers: int, *, config: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the properties of a ZooKeeper cluster's nodes; `config` wins."""
    assert brokers > 0
    common = {
        "zookeeper.connect": "zookeeper:2181",
        "inter.broker.listener.name": "PLAINTEXT",
        **_in_both_modes(brokers),
    }
    nodes = []
    for broker_id in range(1, brokers + 1):
        address = f"PLAINTEXT://{client_host(broker_id)}:{BROKER_PORT}"
        own = {
            "node.id": str(broker_id),
            "listeners": address,
            "advertised.listeners": address,
        }
        if SELECTOR in config:
            own["broker.rack"] = rack_of(broker_id)
        nodes.append({**common, **own, **config})
    return nodes


def zookeeper_tuning(random: Random, faults: Faults) -> dict[str, str]:
    """Return the properties that a seed draws for a ZooKeeper cluster."""
    if not faults.tuned:
        return {}
    drawn = {
        "zookeeper.session.timeout.ms": random.choice((3_000, 6_000, 9_000)),
        # A start waits so long for a connection: longer than most outages.
        "zookeeper.connection.timeout.ms": 18_000,
        "replica.lag.time.max.ms": random.choice((2_000, 5_000, 30_000)),
        "replica.fetch.wait.max.ms": random.choice((200, 500)),
        "replica.fetch.backoff.ms": random.choice((100, 1_000)),
        "log.roll.ms": random.choice((5_000, 60_000, 7 * 86_400_000)),
        "log.segment.delete.delay.ms": random.choice((1_000, 10_000)),
        "log.dirs": random.choice(("/data", "/data", "/data,/more")),
    }
    return {name: str(value) for name, value in drawn.items()}


def tuning(random: Random, faults: Faults) -> dict[str, str]:
    """Return the properties that a seed draws: what is rare with the defaults becomes common."""
    if not faults.tuned:
        return {}
    session_ms = random.choice((3_000, 6_000, 9_000))
    drawn = {
        "broker.session.timeout.ms": session_ms,
        "broker.heartbeat.interval.ms": session_ms // random.choice((3, 5)),
        "replica.lag.time.max.ms": random.choice((2_000, 5_000, 30_000)),
        "replica.fetch.wait.max.ms": random.choice((200, 500)),
        "replica.fetch.backoff.ms": random.choice((100, 1_000)),
        "log.roll.ms": random.choice((5_000, 60_000, 7 * 86_400_000)),
        "metadata.log.max.record.bytes.between.snapshots": random.choice((6_000, 60_000, 20 << 20)),
        "controller.quorum.election.timeout.ms": random.choice((300, 1_000)),
        "controller.quorum.fetch.timeout.ms": random.choice((700, 2_000)),
        "controller.quorum.election.backoff.max.ms": random.choice((100, 1_000)),
        "log.segment.delete.delay.ms": random.choice((1_000, 10_000)),
        "log.dirs": random.choice(("/data", "/data", "/data,/more")),
    }
    return {name: str(value) for name, value in drawn.items()}
