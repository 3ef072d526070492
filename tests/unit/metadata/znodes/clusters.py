"""Clusters to write to, for tests."""

from collections.abc import Mapping

from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.brokers import Endpoint
from ottla.metadata.image import TopicImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.broker import BrokerZnode, encode_broker

from ...controller.builders import context
from .tree import Cluster, Tree


def register(tree: Tree, broker_id: int) -> None:
    """Let a broker be there, as a new one where it was there before."""
    if paths.broker(broker_id) in tree.nodes:
        tree.drop(paths.broker(broker_id))
    endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id)
    tree.put(paths.broker(broker_id), encode_broker(BrokerZnode(endpoints=(endpoint,))))


def three_brokers() -> Cluster:
    """Return a cluster of three brokers without a topic."""
    return brokers(3)


def brokers(count: int) -> Cluster:
    """Return a cluster of that many brokers, from 1 up, without a topic."""
    tree = Tree()
    for broker_id in range(1, count + 1):
        register(tree, broker_id)
    return Cluster(tree)


def with_topic(
    name: str, partition_count: int, configs: Mapping[str, str] | None = None
) -> Cluster:
    """Return a cluster of three brokers that hold one topic."""
    cluster = three_brokers()
    wanted = NewTopic(
        name=name,
        partition_count=partition_count,
        replication_factor=3,
        configs=tuple((configs or {}).items()),
    )
    decided = create_topics(cluster.image, [wanted], validate_only=False, context=context())
    cluster.write(decided.step.records)
    cluster.check()
    return cluster


def topic_of(cluster: Cluster, name: str) -> TopicImage:
    """Return a topic that must be there."""
    topic = cluster.image.topics.by_name(name)
    assert topic is not None
    return topic
