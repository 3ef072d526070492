"""Three replicas of everything: whoever dies, nothing acknowledged is lost, and copies are equal.

Method: three brokers in either mode; a topic with three replicas and min.insync.replicas 2 under
a workload with acks=all. Each test takes replicas away and gives them back; then all that was
acknowledged is read, and the .log files of the three are compared byte for byte. Some of the
stories are played, drawn by the commit; `make soak` plays them all.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import TopicPartition as LibraryPartition

from ottla.records.batch import iter_headers
from ottla.testing import Cluster

from .clients import Closing, Message, client_of, eventually, produce, read
from .conftest import BROKERS, QUICK_FENCING, Kind, NewCluster, kinds, known, new_name, revived
from .workload import Workload

pytestmark = [pytest.mark.timeout(300), pytest.mark.forms(1)]  # More than a workload's patience.

story = pytest.mark.drawn(2)
"""What one run plays a part of; the simulator plays such things at every moment."""

PARTITIONS = 3


@pytest.fixture(scope="module", params=[Kind.SEPARATE, Kind.ZOOKEEPER], ids=lambda kind: kind.value)
def three_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    """A cluster of its own: its offsets topic must have three replicas from the start."""
    config = QUICK_FENCING | {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}
    with new_cluster(request.param, 3, controllers=1, config=config) as cluster:
        yield cluster


@pytest.fixture
def three(three_of_module: Cluster) -> Cluster:
    """The same, with all nodes serving."""
    return revived(three_of_module)


@pytest.fixture
def topic(request: pytest.FixtureRequest, three: Cluster) -> str:
    return replicated(three, new_name(request.node.name), PARTITIONS)


def replicated(cluster: Cluster, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic with three replicas."""
    values = {key.replace("_", "."): value for key, value in config.items()}
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.create_topic(name, partitions=partitions, replication_factor=3, config=values)
        eventually(lambda: known(admin, name), within=30, what=f"{name} to be known")
    cluster.wait_in_sync(name)
    return name


def logs(cluster: Cluster, topic: str, partition: int) -> dict[int, bytes]:
    """Return the bytes of one partition's log by broker."""
    found = {}
    for node in BROKERS:
        directory = cluster.data_dir(node) / f"{topic}-{partition}"
        found[node] = b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))
    return found


def check_equal(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    """Wait until all replicas are in sync and have the same bytes."""
    cluster.wait_in_sync(topic)
    for partition in range(partitions):
        copies = eventually(
            lambda partition=partition: logs(cluster, topic, partition),  # type: ignore[misc]
            lambda copies: len(set(copies.values())) == 1,
            what=f"equal logs of {topic}-{partition}",
        )
        assert copies[1], "nothing was written: the test shows nothing"


def leader(cluster: Cluster, topic: str, partition: int = 0) -> int:
    return cluster.partitions(topic)[partition].leader


def follower(cluster: Cluster, topic: str) -> int:
    return next(node for node in BROKERS if node != leader(cluster, topic))


def test_the_copies_are_equal(three: Cluster, topic: str) -> None:
    load = Workload(three, topic, PARTITIONS)
    with load:
        load.wait_progress()
    load.check()
    check_equal(three, topic)


@story
def test_leaders_are_killed_one_after_the_other(three: Cluster, topic: str) -> None:
    load = Workload(three, topic, PARTITIONS)
    with load:
        for _ in range(2):
            victim = leader(three, topic)
            three.kill(victim)
            load.wait_progress()
            three.start(victim)
            three.wait_in_sync(topic)
            load.wait_progress()
    load.check()
    check_equal(three, topic)


@story
def test_a_follower_is_killed_and_catches_up(three: Cluster, topic: str) -> None:
    load = Workload(three, topic, PARTITIONS)
    with load:
        victim = follower(three, topic)
        three.kill(victim)
        load.wait_progress()
        three.start(victim)
        three.wait_in_sync(topic)
    load.check()
    check_equal(three, topic)


@story
def test_a_frozen_leader_wakes_and_cuts_what_nobody_else_has(three: Cluster, topic: str) -> None:
    load = Workload(three, topic, PARTITIONS)
    with load:
        victim = leader(three, topic)
        three.pause(victim)
        load.wait_progress()
        three.resume(victim)
        three.wait_in_sync(topic)
        load.wait_progress()
    load.check()
    check_equal(three, topic)


@story
def test_all_replicas_are_killed_at_once(three: Cluster, topic: str) -> None:
    load = Workload(three, topic, PARTITIONS)
    with load:
        for node in BROKERS:
            three.kill(node)
        for node in BROKERS:
            three.start(node)
        three.wait_ready()
        load.wait_progress()
    load.check()
    check_equal(three, topic)


@story
def test_a_torn_tail_of_a_killed_follower_is_mended(three: Cluster, topic: str) -> None:
    load = Workload(three, topic, PARTITIONS)
    with load:
        victim = follower(three, topic)
        three.kill(victim)
        newest = sorted((three.data_dir(victim) / f"{topic}-0").glob("*.log"))[-1]
        tear(newest)
        load.wait_progress()
        three.start(victim)
        three.wait_in_sync(topic)
    load.check()
    check_equal(three, topic)


def tear(log: Path) -> None:
    """Cut the last batch in two, as a crash in the middle of a write does."""
    data = log.read_bytes()
    log.write_bytes(data[: len(data) - 20])


@story
def test_a_broker_that_lost_its_copies_fetches_all_of_them(three: Cluster, topic: str) -> None:
    load = Workload(three, topic, PARTITIONS)
    with load:
        victim = follower(three, topic)
        three.kill(victim)
        eventually(
            lambda: all(victim not in each.isr for each in three.partitions(topic).values()),
            what="the victim to be out of sync",
        )
        for partition in range(PARTITIONS):
            shutil.rmtree(three.data_dir(victim) / f"{topic}-{partition}")
        load.wait_progress()
        three.start(victim)
        three.wait_in_sync(topic)
    load.check()
    check_equal(three, topic)


@story
@pytest.mark.parametrize("before", [15, 20])
def test_a_follower_that_was_away_too_long_begins_at_the_leaders_start(
    three: Cluster, before: int
) -> None:
    """What it has was deleted meanwhile, and more: its log starts over.

    The leader's start may lie within a batch, which it gives whole.
    """
    topic = replicated(three, new_name("away-too-long"))
    client = client_of("confluent")
    produce(client, three.bootstrap, [Message(topic=topic, value=b"old", partition=0)] * 10)
    victim = follower(three, topic)
    three.kill(victim)
    produce(client, three.bootstrap, [Message(topic=topic, value=b"gone", partition=0)] * 10)
    with Closing(client.admin(three.bootstrap)) as admin:
        # Only live replicas can delete; the dead one follows when it is back.
        eventually(lambda: victim not in three.partitions(topic)[0].isr, what="a smaller ISR")
        deleted = eventually(lambda: tried_delete(admin, topic, before), what="the deletion")
        assert deleted == before
    produce(client, three.bootstrap, [Message(topic=topic, value=b"new", partition=0)] * 10)
    three.start(victim)
    three.wait_in_sync(topic)
    batches = {
        node: [
            (header.base_offset, header.crc)
            for _, header in iter_headers(data)
            if header.next_offset > before
        ]
        for node, data in logs(three, topic, 0).items()
    }
    assert batches[1] == batches[2] == batches[3] != []
    first = next(iter_headers(logs(three, topic, 0)[victim]))[1]
    assert first.base_offset <= before < first.next_offset


def tried_delete(admin: Any, topic: str, before: int) -> int | None:
    try:
        low: int = admin.delete_records((topic, 0), before)
    except Exception:
        # A replica that is away keeps the low watermark back until the metadata drops it.
        return None
    return low


def test_a_group_goes_on_with_another_coordinator(three: Cluster, topic: str) -> None:
    client, group = client_of("confluent"), new_name("group")
    messages = [Message(topic=topic, value=b"%d" % n, partition=0) for n in range(20)]
    produce(client, three.bootstrap, messages[:10])
    with Closing(client.consumer(three.bootstrap, group=group)) as consumer:
        consumer.subscribe([topic])
        read(consumer, 10)
        consumer.commit()
        three.wait_in_sync("__consumer_offsets")
        victim = coordinator(three, group)
        three.kill(victim)
        eventually(
            lambda: coordinator(three, group) not in (victim, -1), what="another coordinator"
        )
        produce(client, three.bootstrap, messages[10:])
        assert [each.value for each in read(consumer, 10, within=60)] == [
            each.value for each in messages[10:]
        ]
        consumer.commit()
    with Closing(client.consumer(three.bootstrap, group=group)) as again:
        assert eventually(lambda: again.committed((topic, 0)), what="the offset") == 20
    three.start(victim)
    check_equal(three, topic, partitions=1)


def coordinator(cluster: Cluster, group: str) -> int:
    """Return who leads the group's partition of the offsets topic."""
    from ottla.broker.groups.group_service import positive_hash

    found = cluster.partitions("__consumer_offsets")
    return found[positive_hash(group) % len(found)].leader


@kinds(Kind.SEPARATE, Kind.ZOOKEEPER)
def test_a_consumer_reads_from_the_replica_in_its_rack(kind: Kind, new_cluster: NewCluster) -> None:
    """KIP-392: the leader tells it where, and it gets everything from there, in order."""
    config = QUICK_FENCING | {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    }
    with new_cluster(kind, 3, controllers=1, config=config) as cluster:
        for node in BROKERS:
            properties = cluster.data_dir() / f"node-{node}" / "node.properties"
            with properties.open("a", encoding="utf-8") as file:
                file.write(f"broker.rack=rack-{node}\n")
            cluster.restart(node)
        topic = replicated(cluster, "near")
        messages = [Message(topic=topic, value=b"%d" % n, partition=0) for n in range(500)]
        produce(client_of("confluent"), cluster.bootstrap, messages)
        chosen = follower(cluster, topic)
        values, served_by = read_in_rack(cluster, topic, f"rack-{chosen}", len(messages))
        assert values == [each.value for each in messages]
        assert chosen in served_by


def read_in_rack(
    cluster: Cluster, topic: str, rack: str, count: int
) -> tuple[list[bytes | None], set[int]]:
    """Read a partition; return its values, and the brokers that librdkafka fetched from."""
    seen: set[int] = set()

    def note(text: str) -> None:
        stats = json.loads(text)
        partition = stats["topics"].get(topic, {}).get("partitions", {}).get("0")
        if partition is not None:
            seen.add(partition["broker"])

    consumer = LibraryConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "near",
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    try:
        consumer.assign([LibraryPartition(topic, 0, 0)])
        values: list[bytes | None] = []

        def poll() -> int:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value())
            return len(values)

        while eventually(poll, lambda got: got > 0) < count:
            pass
        near = int(rack.rpartition("-")[2])
        eventually(lambda: (poll(), near in seen)[1], what=f"a fetch from broker {near}")
        return values, seen
    finally:
        consumer.close()
