"""Queries a running cluster for its active controller and its partitions.

Requests go to the nodes' own listeners, one after the other until one answers, so that they work
while other nodes are dead or paused. A response is from that node's metadata, which may be older
than another's.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from ottla.base.errors import Error
from ottla.base.ids import METADATA_TOPIC
from ottla.client.connection import Connection
from ottla.client.errors import NoSuchVersionError
from ottla.testing.layout import ClusterError, NodePlan
from ottla.testing.ports import HOST
from ottla.wire.errors import WireError
from ottla.wire.messages import describe_quorum as quorum_wire
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

T = TypeVar("T")

ASK_SECONDS = 2.0
POLL_SECONDS = 0.05

UNREACHABLE = (OSError, TimeoutError, WireError, NoSuchVersionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition of a Metadata response; `leader` -1 = it has none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def until(look: Callable[[], T | None], what: str, timeout: float) -> T:
    """Wait for `look` to find something; raise ClusterError, naming it, where it does not."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            raise ClusterError(f"waited {timeout:g} s for {what} in vain")
        time.sleep(POLL_SECONDS)


def quorum(nodes: Iterable[NodePlan]) -> quorum_wire.ResponsePartitionData | None:
    """Return the quorum as its leader describes it; None = none of the nodes leads.

    A resumed leader may still think that it leads: the newest epoch counts.
    """
    partition = quorum_wire.RequestPartitionData(partition_index=0)
    topic = quorum_wire.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    request = quorum_wire.DescribeQuorumRequest(topics=(topic,))
    newest: quorum_wire.ResponsePartitionData | None = None
    for node in nodes:
        if node.controller_port is None:
            continue
        with (
            suppress(*UNREACHABLE),
            Connection(
                HOST, node.controller_port, client_id="facts", timeout=ASK_SECONDS
            ) as connection,
        ):
            response = connection.ask(
                request, quorum_wire.DescribeQuorumResponse, timeout=ASK_SECONDS
            )
            found = response.topics[0].partitions[0]
            # A leader without a committed record of its own epoch is not active yet.
            leads = found.error_code == Error.NONE and found.high_watermark >= 0
            if leads and (newest is None or found.leader_epoch > newest.leader_epoch):
                newest = found
    return newest


def active_controller(nodes: Iterable[NodePlan], *, over_zookeeper: bool = False) -> int | None:
    """Return the id of the active controller; None where none of the nodes is.

    Over ZooKeeper it is the broker that names itself in Metadata: an active controller sends
    UpdateMetadata to itself, too. If two do, one does not know yet that it was deposed: None.
    """
    if over_zookeeper:
        themselves = [
            node.id
            for node in nodes
            if node.is_broker
            and (metadata := ask_cluster(node))
            and metadata.controller_id == node.id
        ]
        return themselves[0] if len(themselves) == 1 else None
    found = quorum(nodes)
    return None if found is None else found.leader_id


def ask_cluster(node: NodePlan) -> MetadataResponse | None:
    """Return a broker's Metadata response without topics; None = it does not answer."""
    with (
        suppress(*UNREACHABLE),
        Connection(HOST, node.port, client_id="facts", timeout=ASK_SECONDS) as broker,
    ):
        return broker.ask(MetadataRequest(topics=()), MetadataResponse, timeout=ASK_SECONDS)
    return None


def cluster_id(nodes: Iterable[NodePlan]) -> str | None:
    """Return the cluster id from the first broker that answers; None = none does."""
    for node in nodes:
        metadata = ask_cluster(node) if node.is_broker else None
        if metadata is not None:
            return metadata.cluster_id
    return None


def topics(
    nodes: Sequence[NodePlan], topic: str | None = None
) -> dict[str, dict[int, PartitionFacts]]:
    """Return the partitions of a topic, or of all, in a broker's metadata; by topic and partition.

    A topic that does not exist has none. Raises ClusterError where no broker answers.
    """
    asked = None if topic is None else (MetadataRequestTopic(name=topic),)
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    for node in nodes:
        if not node.is_broker:
            continue
        with (
            suppress(*UNREACHABLE),
            Connection(HOST, node.port, client_id="facts", timeout=ASK_SECONDS) as broker,
        ):
            response = broker.ask(request, MetadataResponse, timeout=ASK_SECONDS)
            return {
                str(found.name): {
                    each.partition_index: PartitionFacts(
                        leader=each.leader_id,
                        leader_epoch=each.leader_epoch,
                        replicas=each.replica_nodes,
                        isr=each.isr_nodes,
                    )
                    for each in found.partitions
                }
                for found in response.topics
            }
    raise ClusterError(f"no broker answered Metadata for {topic or 'all topics'}")


def partitions(nodes: Sequence[NodePlan], topic: str) -> dict[int, PartitionFacts]:
    """Return a topic's partitions in a broker's metadata, by partition; empty = no such topic.

    Raises ClusterError where no broker answers.
    """
    return topics(nodes, topic)[topic]


def all_in_sync(nodes: Sequence[NodePlan], topic: str | None = None) -> bool | None:
    """Return True where every partition has a leader and its full set in sync, else None.

    Each broker must say so, and of the same partitions: brokers learn of new ones one by one.
    `topic`: None = all topics, internal ones too. A named topic must have partitions.
    """
    brokers = [node for node in nodes if node.is_broker]
    try:
        views = [topics([broker], topic) for broker in brokers]
    except ClusterError:
        return None
    found = [each for view in views for facts in view.values() for each in facts.values()]
    whole = all(each.leader >= 0 and set(each.isr) == set(each.replicas) for each in found)
    agreed = len({_names(view) for view in views}) == 1
    return True if whole and agreed and (found or topic is None) else None


def _names(view: dict[str, dict[int, PartitionFacts]]) -> frozenset[tuple[str, int]]:
    return frozenset((name, partition) for name, facts in view.items() for partition in facts)
