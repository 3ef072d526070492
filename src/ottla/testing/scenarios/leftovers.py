"""Counts the resources that nodes hold once a history is calm, and how many they may hold.

Checked when all clients have stopped and all replicas agree: resources for requests of dead
clients, broken connections and previous controllers must have been released.
"""

from collections.abc import Iterator
from typing import Any

from ottla.broker.core import Broker
from ottla.host.controller.controller_channel import ControllerChannels
from ottla.host.kraft.node_mode import KRaftMode
from ottla.host.node_core import NodeCore
from ottla.host.zookeeper.node_mode import ZooKeeperMode
from ottla.testing.history.nodes import LeftOver
from ottla.testing.sim import Sim
from ottla.testing.sim.net import MS
from ottla.testing.sim.node import SimNode

TIMERS_MAX = 40
TIMERS_PER_PARTITION = 4
FILES_BESIDE_LOGS = 8
"""Files that a node may have open besides those of its file caches."""

WAITING_KEYS = frozenset({1})
"""Fetch: followers and observers of the metadata log always have a fetch in purgatory."""

HELD_MS = 31_000
"""How long a request to a controller that does not answer may be pending."""


def left_over(sim: Sim) -> Iterator[LeftOver]:
    """Yield the resources of each node."""
    brokers = sum(node.is_broker for node in sim.nodes.values())
    for node in sim.nodes.values():
        core = node.core
        if core is None or not node.alive:
            continue
        kept = [*_of_node(node, core), *_of_requests(sim, node)]
        if node.broker is not None:
            kept += _of_broker(node, node.broker, brokers)
        for what, count, most in kept:
            yield LeftOver(node.id, what, count, most, sim.now_ms)


def _of_node(node: SimNode, core: NodeCore) -> Iterator[tuple[str, int, int]]:
    hosted = [] if node.broker is None else list(node.broker.replicas.hosted())
    # A topic that is cleaned often has a hundred segments with a delayed deletion.
    delayed = sum(each.log.local.delayed_deletions for each in hosted if each.log is not None)
    most = TIMERS_MAX + TIMERS_PER_PARTITION * len(hosted) + delayed
    yield "timers", len(core.ports.timers), most
    if node.broker is not None:
        caches = [node.broker.log_dirs.ports.files]
        if isinstance(core.mode, KRaftMode) and core._node_dirs is not None:
            metadata: Any = core._node_dirs.quorum.log  # A segmented log with a cache of its own.
            caches.append(metadata._log.ports.files)
        yield "open files", node.disk.open_files, sum(map(len, caches)) + FILES_BESIDE_LOGS
    channels = _channels(core)
    if channels is not None:
        yield "requests to brokers", sum(size for _, size in channels.queue_sizes()), 0


def _of_broker(node: SimNode, broker: Broker, brokers: int) -> Iterator[tuple[str, int, int]]:
    replicas = broker.replicas
    followers = (brokers - 1) * node.config["num.replica.fetchers"]
    yield "delayed produces", replicas.produce_purgatory.count, 0
    yield "delayed DeleteRecords", replicas.delete_records_purgatory.count, 0
    consumers = replicas.fetch_reader.consumer_purgatory.count
    yield "delayed fetches of consumers", consumers, _metadata_fetches(node, brokers)
    yield "delayed fetches of followers", replicas.fetch_reader.follower_purgatory.count, followers
    yield "requests that wait for deletions", broker.topic_deletion_purgatory.count, 0
    pending = sum(each.pending is not None for each in replicas.hosted())
    yield "AlterPartition proposals without an answer", pending, 0


def _metadata_fetches(node: SimNode, brokers: int) -> int:
    """Return how many fetches of brokers that read __remote_log_metadata there may be."""
    if not node.config["remote.log.storage.system.enable"]:
        return 0
    count: int = node.config["rlmm.config.remote.log.metadata.topic.num.partitions"]
    return brokers * count


def _of_requests(sim: Sim, node: SimNode) -> Iterator[tuple[str, int, int]]:
    """Yield how many requests of other nodes have been unanswered for long."""
    since_us = sim.scheduler.now_us - HELD_MS * MS
    held = [
        request
        for pipe in sim.net.pipes.values()
        if pipe.listener.place == node.id and (request := pipe.pending_request) is not None
        if request[1] < since_us and int.from_bytes(request[0][4:6], "big") not in WAITING_KEYS
    ]
    yield "requests without an answer", len(held), 0


def _channels(core: NodeCore) -> ControllerChannels | None:
    """Return the controller's channels to brokers; None where this node has none."""
    mode = core.mode
    if isinstance(mode, KRaftMode):
        return None if mode.controller is None else mode.controller.deletions.channels
    assert isinstance(mode, ZooKeeperMode)
    return None if mode.controller is None else mode.controller.channels
