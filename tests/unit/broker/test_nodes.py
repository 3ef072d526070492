"""What clients see of brokers depends on their listener, and on which brokers live.

Method: a small image of three brokers: one plain, one fenced, one without the listener.
"""

import pytest
from immutables import Map

from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.nodes import (
    Node,
    any_live_broker,
    leader_of,
    live_nodes,
    live_nodes_or_self,
    node_of,
    offline_replicas,
    partition_state,
)
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionImage,
    TopicImage,
    TopicsImage,
)

from .harness import FakeDice

DIR = Uuid(b"d" * 16)
GONE = Uuid(b"g" * 16)
TOPIC = Uuid(b"t" * 16)


def broker(node_id: int, listener: str = "PLAINTEXT", *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        id=node_id,
        epoch=1,
        incarnation_id=Uuid(b"i" * 16),
        endpoints=(Endpoint(listener, f"host{node_id}", 9000 + node_id),),
        rack=f"rack{node_id}",
        fenced=fenced,
        log_dirs=(DIR,),
    )


def partition(leader: int, *directories: Uuid) -> PartitionImage:
    return PartitionImage(
        replicas=(1, 2, 3, 4)[: len(directories) or 4],
        directories=directories or (DIR,) * 4,
        isr=(1,),
        leader=leader,
    )


@pytest.fixture
def image() -> ClusterImage:
    brokers = (broker(1), broker(2, fenced=True), broker(3, "OTHER"))
    topic = TopicImage(name="t", id=TOPIC, partitions=Map({0: partition(1)}))
    return ClusterImage(
        brokers=Map({one.id: one for one in brokers}), topics=TopicsImage().with_topic(topic)
    )


def test_only_live_brokers_with_the_listener_are_returned(image: ClusterImage) -> None:
    assert live_nodes(image, "PLAINTEXT") == [Node(1, "host1", 9001, "rack1")]
    assert node_of(image, 2, "PLAINTEXT") is None
    assert node_of(image, 9, "PLAINTEXT") is None


def test_where_no_broker_is_live_the_responding_one_is_returned(image: ClusterImage) -> None:
    """A client that got an empty list, as all brokers stopped, did not find them again."""
    assert live_nodes_or_self(image, "PLAINTEXT", 2) == live_nodes(image, "PLAINTEXT")
    stopped = ClusterImage(brokers=Map({2: broker(2, fenced=True), 4: broker(4, fenced=True)}))
    assert live_nodes_or_self(stopped, "PLAINTEXT", 2) == [Node(2, "host2", 9002, "rack2")]
    assert (
        live_nodes_or_self(stopped, "PLAINTEXT", 9) == live_nodes_or_self(stopped, "OTHER", 2) == []
    )


def test_the_controller_is_any_live_broker(image: ClusterImage) -> None:
    dice = FakeDice()
    assert {any_live_broker(image, dice) for _ in range(50)} == {1, 3}
    assert any_live_broker(EMPTY, dice) == -1


def test_a_leader_out_of_reach_is_none(image: ClusterImage) -> None:
    returned = [leader_of(image, partition(node), "PLAINTEXT") for node in (1, 2, 3, 4, -1)]
    assert returned == [1, 2, -1, -1, -1]


def test_offline_replicas_are_dead_fenced_or_out_of_reach(image: ClusterImage) -> None:
    assert offline_replicas(image, partition(1), "PLAINTEXT") == (2, 3, 4)


@pytest.mark.parametrize(
    ("directory", "offline"),
    [
        (DIR, ()),
        (GONE, (1,)),
        (DIRECTORY_LOST, (1,)),
        (DIRECTORY_UNASSIGNED, ()),
        (DIRECTORY_MIGRATING, ()),
    ],
)
def test_a_replica_in_a_lost_directory_is_offline(
    image: ClusterImage, directory: Uuid, offline: tuple[int, ...]
) -> None:
    assert offline_replicas(image, partition(1, directory), "PLAINTEXT") == offline


def test_partitions_are_found_by_id_or_by_name(image: ClusterImage) -> None:
    found = partition_state(image, "t", NO_UUID, 0)
    assert found is not None
    assert found is partition_state(image, "", TOPIC, 0)
    assert partition_state(image, "t", GONE, 0) is None
    assert partition_state(image, "t", NO_UUID, 1) is None
