"""Committed offsets and groups outlive the brokers that keep them.

Method: three brokers, whose offsets topic has a partition or more on each; nodes are killed and
started again between a commit and its reading, or under members that go on.
"""

import pytest

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.testing import Cluster

from .clients import NAMES, Client, Closing, Message, client_of, eventually, produce, read
from .conftest import all_nodes, new_name, new_topic
from .members import group_of

pytestmark = pytest.mark.forms(2)

PARTITIONS = 3


def coordinator(cluster: Cluster, group: str) -> int:
    """Return the broker that keeps the group."""
    with ClusterClient(ClientConfig(bootstrap=cluster.address(1))) as client:
        return client.coordinator(group)[0]


def fill(cluster: Cluster, topic: str, begin: int, count: int) -> list[str]:
    """Produce `count` numbered values to all partitions; return the values."""
    values = [str(number) for number in range(begin, begin + count)]
    messages = [
        Message(topic=topic, partition=i % PARTITIONS, value=value.encode())
        for i, value in enumerate(values)
    ]
    produce(client_of("confluent"), cluster.bootstrap, messages)
    return values


def test_committed_offsets_outlive_kills(client: Client, trio: Cluster) -> None:
    topic, group = new_topic(trio.bootstrap, "kept"), new_name("kept")
    produce(client, trio.bootstrap, [Message(topic=topic, value=b"x")] * 20)
    for round_, victims in enumerate([(coordinator(trio, group),), all_nodes(trio)], 1):
        with Closing(client.consumer(trio.bootstrap, group=group)) as consumer:
            consumer.subscribe([topic])
            eventually(lambda: consumer.poll(0.2), what="records")
            consumer.commit_offset((topic, 0), 7 * round_)
        for node in victims:
            trio.kill(node)
        for node in victims:
            trio.start(node)
        trio.wait_ready()
        with Closing(client.consumer(trio.bootstrap, group=group)) as consumer:
            assert consumer.committed((topic, 0)) == 7 * round_
            consumer.subscribe([topic])
            records = read(consumer, 20 - 7 * round_)
            assert [each.offset for each in records] == list(range(7 * round_, 20))


@pytest.mark.parametrize("name", NAMES)
def test_members_go_on_when_their_coordinator_dies(name: str, trio: Cluster) -> None:
    """Nothing is lost; what was read but not yet committed may come twice."""
    topic, group_id = new_topic(trio.bootstrap, "goes-on", PARTITIONS), new_name("goes-on")
    with group_of(
        client=name,
        bootstrap=trio.bootstrap,
        group=group_id,
        topic=topic,
        session_timeout_ms=6000,
    ) as group:
        group.join()
        group.join()
        group.wait_covered(PARTITIONS)
        values = fill(trio, topic, 0, 60)
        group.wait_read(values)
        victims: tuple[int, ...]
        for victims in ((coordinator(trio, group_id),), all_nodes(trio)):
            for node in victims:
                trio.kill(node)
            for node in victims:
                trio.start(node)
            values += fill(trio, topic, len(values), 60)
            group.wait_read(values)
        trio.wait_ready()
        group.wait_covered(PARTITIONS)
        values += fill(trio, topic, len(values), 60)
        group.wait_read(values)
        for member in list(group.living):
            group.leave(member)
    assert set(group.read()) == set(values)
    with Closing(client_of("confluent").admin(trio.bootstrap)) as admin:
        committed = admin.group_offsets(group_id)
    assert sum(committed.values()) == len(values)
