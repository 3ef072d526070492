"""The brokers as a client sees them: the endpoints of the listener by which it came.

Source: KIP-103 (listener names); Kafka's KRaftMetadataCache.
"""

from dataclasses import dataclass

from ottla.base.ids import NO_LEADER, NO_UUID, Uuid
from ottla.base.ports import Dice
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionImage,
)

NO_CONTROLLER = -1

TOPIC_OPERATIONS = (3, 4, 5, 6, 7, 8, 10, 11)
CLUSTER_OPERATIONS = (5, 7, 8, 9, 10, 11, 12)
GROUP_OPERATIONS = (3, 6, 8, 10, 11)
"""Bit numbers: read 3, write 4, create 5, delete 6, alter 7, describe 8, cluster action 9,
describe configs 10, alter configs 11, idempotent write 12 (AclOperation.java, AclEntry)."""

OPERATIONS_NOT_REQUESTED = -(2**31)
"""What a response says of authorized operations when nobody asked for them."""


def operations(numbers: tuple[int, ...]) -> int:
    """Return the bit field of operations. Without an authorizer everybody may do all."""
    return sum(1 << number for number in numbers)


@dataclass(frozen=True, slots=True)
class Node:
    """A live broker, by the address that the client's listener has."""

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
    """Return what clients are told of as the brokers: the live ones; where all have gone, this one.

    Where all brokers stop at once the last one knows of none that lives, itself included. A client
    that hears of none forgets where they were: librdkafka 2.16 stood still for five minutes.
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
    """Return a live broker's id by chance: clients take it for the controller, and any forwards.

    Source: KIP-590; KRaftMetadataCache.getRandomAliveBrokerId.
    """
    alive = sorted(node_id for node_id, broker in image.brokers.items() if not broker.fenced)
    return alive[dice.below(len(alive))] if alive else NO_CONTROLLER


def client_controller_id(image: ClusterImage, known: int, dice: Dice) -> int:
    """Return whom clients are told to be the controller: the one that this broker listens to.

    `known`: NO_CONTROLLER where it is told of changes by the metadata log, and any broker does.
    """
    if known == NO_CONTROLLER:
        return any_live_broker(image, dice)
    return known if known in image.brokers else NO_CONTROLLER


def leader_of(image: ClusterImage, partition: PartitionImage, listener_name: str) -> int:
    """Return the leader as far as a client of the listener can reach it, else -1.

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
    directory = partition.directory(broker.id)
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return False
    if directory == DIRECTORY_LOST:
        return True
    return bool(broker.log_dirs) and directory not in broker.log_dirs
