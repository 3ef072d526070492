"""The brokers as a client sees them: the endpoints of the listener that it is connected to.

Source: KIP-103 (listener names); Kafka's KRaftMetadataCache.
"""

from dataclasses import dataclass

from ottla.base.ids import NO_LEADER, NO_UUID, Uuid
from ottla.base.ports import Dice
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import PartitionImage

NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A live broker, with its address on the client's listener."""

    id: int
    host: str
    port: int
    rack: str | None


def node_of(image: ClusterImage, node_id: int, listener_name: str) -> Node | None:
    """Return where a client reaches a broker; None where it is fenced or lacks the listener."""
    broker = image.brokers.get(node_id)
    return None if broker is None or broker.fenced else _node(broker, listener_name)


def _node(broker: BrokerImage, listener_name: str) -> Node | None:
    endpoint = broker.endpoint(listener_name)
    return None if endpoint is None else Node(broker.id, endpoint.host, endpoint.port, broker.rack)


def live_nodes(image: ClusterImage, listener_name: str) -> list[Node]:
    """Return the live brokers that have the listener, by id."""
    found = (node_of(image, node_id, listener_name) for node_id in image.broker_ids())
    return [node for node in found if node is not None]


def live_nodes_or_self(image: ClusterImage, listener_name: str, own_id: int) -> list[Node]:
    """Return the live brokers that have the listener, or this broker alone where none is live.

    When all brokers stop at once the last one knows no live broker, itself included. A client that
    gets an empty list forgets all addresses: librdkafka 2.16 hung for five minutes.
    """
    live = live_nodes(image, listener_name)
    own = image.brokers.get(own_id)
    node = None if live or own is None else _node(own, listener_name)
    return live if node is None else [node]


def partition_state(
    image: ClusterImage, topic: str, topic_id: Uuid, partition_id: int
) -> PartitionImage | None:
    """Return a partition as the image has it; by name where the id is the zero one."""
    topics = image.topics
    found = topics.by_name(topic) if topic_id == NO_UUID else topics.by_id(topic_id)
    return None if found is None else found.partitions.get(partition_id)


def any_live_broker(image: ClusterImage, dice: Dice) -> int:
    """Return a random live broker's id. Clients use it as the controller, and any broker forwards.

    Source: KIP-590; KRaftMetadataCache.getRandomAliveBrokerId.
    """
    alive = sorted(node_id for node_id, broker in image.brokers.items() if not broker.fenced)
    return alive[dice.below(len(alive))] if alive else NO_CONTROLLER


def client_controller_id(image: ClusterImage, known: int, dice: Dice) -> int:
    """Return the controller's id for clients: `known`, where it is registered.

    Where it is NO_CONTROLLER (KRaft), any live broker will do.
    """
    if known == NO_CONTROLLER:
        return any_live_broker(image, dice)
    return known if known in image.brokers else NO_CONTROLLER


def leader_of(image: ClusterImage, partition: PartitionImage, listener_name: str) -> int:
    """Return the leader where a client of the listener can reach it, else -1.

    A fenced leader still counts, as in Kafka: fencing and the next election are one batch.
    """
    broker = image.brokers.get(partition.leader)
    if broker is None or broker.endpoint(listener_name) is None:
        return NO_LEADER
    return partition.leader


def offline_replicas(
    image: ClusterImage, partition: PartitionImage, listener_name: str
) -> tuple[int, ...]:
    """Return the replicas that a client of the listener cannot use."""
    return tuple(
        node_id
        for node_id in partition.replicas
        if _is_offline(image.brokers.get(node_id), partition, listener_name)
    )


def _is_offline(broker: BrokerImage | None, partition: PartitionImage, listener: str) -> bool:
    if broker is None or broker.fenced or broker.endpoint(listener) is None:
        return True
    return not broker.has_online_dir(partition.directory(broker.id))
