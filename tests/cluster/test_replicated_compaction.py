"""Replicas of a compacted topic clean their own copies, and each has what was acknowledged.

Method: three brokers whose cleaners look every moment; one is killed, or loses its copy, while the
topic is written to and cleaned. Then each broker's files are read by themselves: whichever of
them leads next, a reader learns the same from it.
"""

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

from . import stored
from .conftest import BROKERS
from .test_compaction import EAGER, TOPIC, Writer, check, wait

pytestmark = pytest.mark.drawn(1)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3, controllers=1, config=EAGER) as cluster:
        yield cluster


def new_topic(cluster: Cluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = TOPIC | {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(name, 1, 3, config=config)])[name].result(20)
    cluster.wait_in_sync(name)
    return name


def is_cleaned(cluster: Cluster, topic: str, node: int) -> bool:
    path = cluster.data_dir(node) / "cleaner-offset-checkpoint"
    return path.exists() and f"{topic} 0 " in path.read_text()


def state_of(
    cluster: Cluster, topic: str, node: int
) -> dict[bytes, tuple[int, bytes | None]] | None:
    """Return the newest record of each key that one broker has, as its files have it.

    None where a cleaning took one of the files away meanwhile.
    """
    try:
        records = stored.records(cluster, topic, node=node)
    except FileNotFoundError:
        return None
    return {record.key or b"": (record.offset, record.value) for record in records}


def check_all(cluster: Cluster, writer: Writer) -> None:
    cluster.wait_in_sync(writer.topic)
    check(cluster, writer)
    live = {key: where for key, where in writer.state.items() if where[1] is not None}

    def has_all(node: int) -> bool:
        # A key whose tombstone is gone from one may still have it at another, never a value.
        found = state_of(cluster, writer.topic, node)
        return (
            found is not None
            and {key: where for key, where in found.items() if where[1] is not None} == live
        )

    for node in BROKERS:
        wait(lambda node=node: has_all(node), f"broker {node} has other records than others")  # type: ignore[misc]


def test_every_replica_cleans_its_copy_and_keeps_the_newest(three: Cluster) -> None:
    writer = Writer(three, new_topic(three, "cleaned"))
    for victim in BROKERS:
        three.kill(victim)
        writer.write(1500)
        writer.flush()
        three.start(victim)
        three.wait_in_sync(writer.topic)
        writer.write(1500)
        writer.flush()
    for node in BROKERS:
        wait(lambda node=node: is_cleaned(three, writer.topic, node), f"{node} never cleans")  # type: ignore[misc]
    check_all(three, writer)


def test_a_new_copy_of_a_cleaned_log_has_its_holes_and_its_emptied_batches(three: Cluster) -> None:
    """It is what the leader has, offsets and leader epochs included."""
    writer = Writer(three, new_topic(three, "copied"))
    for _ in range(4):
        writer.write(1500)
        writer.flush()
    victim = next(node for node in BROKERS if node != three.partitions(writer.topic)[0].leader)
    wait(lambda: is_cleaned(three, writer.topic, victim), "it is never cleaned")
    three.kill(victim)
    wait(lambda: victim not in three.partitions(writer.topic)[0].isr, "it stays in sync")
    shutil.rmtree(three.data_dir(victim) / f"{writer.topic}-0")
    three.start(victim)
    writer.write(500)
    writer.flush()
    check_all(three, writer)
    kept = sum(each.record_count for each in stored.batches(three, writer.topic, node=victim))
    assert kept < writer.number, "nothing was cleaned: the test shows nothing"
