"""The objects of a deleted tiered topic go, whatever is down; those of the next topic stay.

Method: brokers and controllers of their own processes, a directory as the store. The store is gone
while a topic is deleted whose leaders were killed for good; its name is another topic's at once.
Then three controllers fail, and the store comes back. Objects are counted by listing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Cluster

from .clients import Closing, Message, client_of, eventually
from .conftest import QUICK_FENCING
from .ottla_command import ottla

pytestmark = pytest.mark.timeout(600)

CONFIG = QUICK_FENCING | {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.manager.task.retry.backoff.max.ms": "2000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
    "offsets.topic.num.partitions": "1",
    # Two brokers are left when the first consumer asks for its coordinator.
    "offsets.topic.replication.factor": "2",
}
TOPIC_CONFIG = ("remote.storage.enable=true", "internal.segment.bytes=16384")
NAME = "orders"
LOST = 3
SEGMENTS = 6
RECORDS = 16 * SEGMENTS + 2
PURGE_SECONDS = 330.0
"""Two minutes, or more than four if a copy was interrupted."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, controllers=3, remote_storage=True, config=CONFIG) as started:
        yield started


def run(cluster: Cluster, *words: str) -> str:
    ran = ottla(*words, "--bootstrap-server", cluster.bootstrap)
    assert ran.code == 0, ran.err
    return ran.out


def create(cluster: Cluster, assignment: str) -> str:
    """Create the topic; return its id."""
    configs = [word for each in TOPIC_CONFIG for word in ("--config", each)]
    words = ("--topic", NAME, "--replica-assignment", assignment)
    run(cluster, "topics", "--create", *words, *configs)

    def found() -> str | None:
        ran = ottla(
            "tier", "describe", "--topic", NAME, "--json", "--bootstrap-server", cluster.bootstrap
        )
        topics = json.loads(ran.out)["topics"] if ran.code == 0 else []
        return str(topics[0]["topic_id"]) if topics else None

    topic_id = eventually(found, within=30, what="the new topic's tiers")
    assert topic_id is not None
    return topic_id


def produce(cluster: Cluster, partition: int) -> None:
    with Closing(client_of("confluent").producer(cluster.bootstrap)) as producer:
        for begin in range(0, RECORDS, 2):
            producer.send(
                [
                    Message(topic=NAME, partition=partition, value=b"%04d" % number + bytes(1_000))
                    for number in (begin, begin + 1)
                ]
            )


def is_copied(cluster: Cluster) -> bool:
    """Tell whether no copy is under way, nor to come."""
    tiers = json.loads(run(cluster, "tier", "describe", "--topic", NAME, "--json"))
    rows = tiers["topics"][0]["partitions"]
    return all(row["remote_segments"] and row["lag_segments"] == 0 for row in rows)


def objects(store: Path, topic_id: str, end: str = "") -> list[Path]:
    found = store.glob(f"{NAME}-{topic_id}/**/*{end}")
    return [each for each in found if each.is_file()]


def deletion(cluster: Cluster, topic_id: str) -> dict[str, Any]:
    """Return the ledger's entry."""
    words = ("--describe-deletions", "--topic-id", topic_id, "--json")
    found: dict[str, Any] = json.loads(run(cluster, "topics", *words))["deletions"][0]
    return found


def fail_controller(cluster: Cluster) -> None:
    failed = cluster.wait_controller()
    cluster.kill(failed)
    cluster.wait_controller(besides=failed)
    cluster.start(failed)


def test_nothing_of_the_old_topic_is_left(cluster: Cluster) -> None:
    store, away = cluster.remote_dir, cluster.remote_dir.with_name("away")
    old = create(cluster, f"{LOST},{LOST}")
    produce(cluster, 0)
    produce(cluster, 1)
    eventually(lambda: is_copied(cluster), within=60, what="copied segments")
    assert len(objects(store, old, ".log")) >= 2 * SEGMENTS
    cluster.kill(LOST)
    store.rename(away)
    store.touch()
    run(cluster, "topics", "--delete", "--topic", NAME)
    new = create(cluster, "1:2")
    assert new != old
    produce(cluster, 0)
    run(cluster, "cluster", "unregister", "--id", str(LOST))
    failed = eventually(
        lambda: deletion(cluster, old),
        lambda entry: entry["purge"]["last_error"] is not None,
        within=60,
    )
    assert failed["remote"] == "pending"
    assert failed["purge"]["partitions"] == failed["purge"]["partitions_left"] == 2
    assert failed["purge"]["last_error"].startswith("unavailable")
    assert NAME in run(cluster, "tier", "purge-status")

    for _ in range(3):
        fail_controller(cluster)
        assert deletion(cluster, old)["remote"] == "pending"
    store.unlink()
    away.rename(store)
    assert len(objects(store, old, ".log")) >= 2 * SEGMENTS

    receipt = eventually(
        lambda: deletion(cluster, old),
        lambda entry: entry["state"] == "finished",
        within=PURGE_SECONDS,
    )
    assert receipt["remote"] == "purged"
    states = {(row["broker"], row["state"]) for row in receipt["replicas"]}
    assert states == {(LOST, "abandoned")}
    assert objects(store, old) == []
    assert run(cluster, "tier", "purge-status") == "No purge is pending.\n"

    eventually(lambda: len(objects(store, new, ".log")) >= SEGMENTS, within=60)
    with Closing(client_of("confluent").consumer(cluster.bootstrap)) as consumer:
        consumer.assign([(NAME, 0)])
        consumer.seek((NAME, 0), 0)
        numbers: list[int] = []

        def is_read() -> bool:
            numbers.extend(int((each.value or b"")[:4]) for each in consumer.poll(1.0))
            return len(numbers) >= RECORDS

        eventually(is_read, within=60, what="all records of the new topic")
    assert numbers == list(range(RECORDS))
    fail_controller(cluster)
    assert deletion(cluster, old)["remote"] == "purged"
