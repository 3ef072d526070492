"""Groups share partitions, survive members that leave or die, and lose nothing.

Method: members are processes (`member.py`) that commit after each poll and say what they read.
Between two changes of the group everything produced is read and committed, so that what follows
must begin exactly at the committed offsets: a record read twice or never is a failure.
"""

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError

from ottla.coordinator.records import GroupFact, decode_fact, decode_key
from ottla.testing import Cluster

from . import stored
from .clients import Client, Closing, Message, client_of, eventually, produce
from .conftest import QUICK, MakeTopic, new_name
from .members import Group, flat, group_of

pytestmark = pytest.mark.forms(1)

PARTITIONS = 6
BATCH = 120
SESSION_MS = 3000


def feed(cluster: Cluster, topic: str, begin: int) -> list[str]:
    """Produce the values `begin` to `begin + BATCH` over all partitions; return them."""
    values = [str(number) for number in range(begin, begin + BATCH)]
    messages = [
        Message(topic=topic, partition=i % PARTITIONS, value=value.encode())
        for i, value in enumerate(values)
    ]
    produce(client_of("confluent"), cluster.bootstrap, messages)
    return values


def wait_committed(cluster: Cluster, group: str, topic: str, total: int) -> None:
    """Wait until the group has committed all of the `total` records."""
    ends = {(topic, partition): total // PARTITIONS for partition in range(PARTITIONS)}
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        eventually(
            lambda: admin.group_offsets(group), lambda found: found == ends, what="the commits"
        )


def step(cluster: Cluster, topic: str, name: str, group: Group) -> None:
    """Feed the group, and check that it reads and commits all of it, each record once."""
    total = len(group.read())
    values = feed(cluster, topic, total)
    group.wait_read(values)
    wait_committed(cluster, name, topic, total + BATCH)
    assert set(group.read().values()) == {1}
    assert len(group.read()) == total + BATCH


def test_members_come_go_and_crash(client: Client, shared: Cluster, make_topic: MakeTopic) -> None:
    topic, name = make_topic(PARTITIONS), new_name("group")
    with group_of(
        client=client.NAME,
        bootstrap=shared.bootstrap,
        group=name,
        topic=topic,
        session_timeout_ms=SESSION_MS,
    ) as group:
        first, second, third = group.join(), group.join(), group.join()
        group.wait_covered(PARTITIONS)
        assert sorted(map(len, (first.assignment, second.assignment, third.assignment))) == [2] * 3
        step(shared, topic, name, group)

        group.leave(third)
        group.wait_covered(PARTITIONS)
        step(shared, topic, name, group)

        group.kill(first)
        step(shared, topic, name, group)
        assert second.assignment == list(range(PARTITIONS))

        group.join()
        group.wait_covered(PARTITIONS)
        step(shared, topic, name, group)

        with Closing(client.admin(shared.bootstrap)) as admin:
            assert admin.describe_group(name) == ("Stable", 2)
            for member in list(group.living):
                group.leave(member)
            assert admin.describe_group(name) == ("Empty", 0)
            assert name in admin.groups()


def rebalances(cluster: Cluster, group: str) -> list[str]:
    """Return the lines of the broker's log about the group's rebalances."""
    text = f"preparing to rebalance group {group} in"
    return [line for line in cluster.logs(1).splitlines() if text in line]


def generation(cluster: Cluster, group: str) -> int:
    """Return the newest generation of the group that the offsets topic has."""
    newest = -1
    for partition in range(int(QUICK["offsets.topic.num.partitions"])):
        for record in stored.records(cluster, "__consumer_offsets", partition):
            key = decode_key(record.key)
            if key is None or key.group != group:
                continue
            fact = decode_fact(key, record.value)
            if isinstance(fact, GroupFact) and fact.value is not None:
                newest = fact.value.generation
    return newest


def test_a_static_member_returns_to_its_place(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    """KIP-345: killed and started again within its session, it causes no rebalance.

    kafka-python 3.0 may ask for one: where the response to its JoinGroup comes just between two of
    its polls, it sends another one (`join_group_async` takes a task that is done for none). From
    the group's leader that begins a rebalance, in Kafka, too.
    """
    topic, name = make_topic(PARTITIONS), new_name("static")
    with group_of(
        client=client.NAME,
        bootstrap=shared.bootstrap,
        group=name,
        topic=topic,
        session_timeout_ms=30_000,
    ) as group:
        # One after the other: of two kafka-python members that start at once, one now and then
        # falls silent after it was answered, and this test is about coming back.
        first = group.join("one")
        group.wait_covered(PARTITIONS)
        second = group.join("two")
        group.wait_covered(PARTITIONS)
        for member, instance in ((first, "one"), (second, "two")):
            others = [each for each in group.living if each is not member]
            seen = [len(other.assignments) for other in others]
            before, known = generation(shared, name), len(rebalances(shared, name))
            group.kill(member)
            again = group.join(instance)
            group.wait_covered(PARTITIONS)
            assert again.assignment == member.assignment
            begun = rebalances(shared, name)[known:]
            if client.NAME == "kafka_python" and begun:
                assert all(" joins again: " in line for line in begun), begun
                continue
            assert begun == []
            assert generation(shared, name) == before
            assert [len(other.assignments) for other in others] == seen
        step(shared, topic, name, group)


def test_a_second_owner_of_an_instance_id_fences_the_first(
    shared: Cluster, make_topic: MakeTopic
) -> None:
    topic, name = make_topic(), new_name("fenced")
    config = {
        "bootstrap.servers": shared.bootstrap,
        "group.id": name,
        "group.instance.id": "same",
        "heartbeat.interval.ms": 300,
        "log_level": 0,
    }
    first, second = ConfluentConsumer(config), ConfluentConsumer(config)
    with Closing(first, second):
        first.subscribe([topic])
        eventually(lambda: first.poll(0.1) or first.assignment(), what="the first to be assigned")
        second.subscribe([topic])

        def fenced() -> bool:
            second.poll(0.05)
            message = first.poll(0.05)
            error = None if message is None else message.error()
            return (
                error is not None
                and error.code() == KafkaError._FATAL
                and "Static consumer fenced" in error.str()
            )

        eventually(fenced, what="the first to be fenced")
        eventually(lambda: second.poll(0.1) or second.assignment(), what="the second to take over")


def test_cooperative_members_keep_what_does_not_move(
    shared: Cluster, make_topic: MakeTopic
) -> None:
    """KIP-429: a new member takes partitions over; nobody else stops reading meanwhile."""
    topic, name = make_topic(PARTITIONS), new_name("cooperative")
    revoked: dict[int, list[set[int]]] = {0: [], 1: [], 2: []}
    consumers = []
    for index in range(3):
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": shared.bootstrap,
                "group.id": name,
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 300,
            }
        )

        def lose(_: object, partitions: list[object], index: int = index) -> None:
            revoked[index].append({each.partition for each in partitions})  # type: ignore[attr-defined]

        consumer.subscribe([topic], on_revoke=lose)
        consumers.append(consumer)

        def shares() -> list[list[int]]:
            for each in consumers:
                each.poll(0.02)
            return [sorted(part.partition for part in each.assignment()) for each in consumers]

        eventually(
            shares,
            lambda found: all(found) and flat(found) == list(range(PARTITIONS)),
            what=f"{index + 1} members to share the partitions",
        )
    assert [sorted(len(each) for each in revoked[index]) for index in range(3)] == [[1, 3], [1], []]
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_group_goes_on_where_it_committed(
    client: Client, reset: str, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic, name = make_topic(), new_name("resume")
    produce(client, shared.bootstrap, [Message(topic=topic, value=b"old")] * 10)
    with Closing(client.consumer(shared.bootstrap, group=name)) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.2), what="records")
        consumer.commit_offset((topic, 0), 4)
    with Closing(client.consumer(shared.bootstrap, group=name, reset=reset)) as consumer:
        assert consumer.committed((topic, 0)) == 4
        consumer.subscribe([topic])
        assert eventually(lambda: consumer.poll(0.2), what="records")[0].offset == 4
