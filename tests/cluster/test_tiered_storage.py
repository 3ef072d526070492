"""Closed segments move to the remote tier, and clients notice nothing.

Method: three brokers in either mode and a directory as the store. What lies on local disks and in
the store is listed before anything is read; then three clients read everything from offset 0, and
the CRC of all values is compared. Brokers are killed one after the other, and all at once.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Cluster

from . import clients, stored
from .clients import Closing, client_of, eventually
from .conftest import BROKERS, Kind, NewCluster, new_name, revived
from .ottla_command import ottla
from .paced import scrape
from .tiered import (
    EARLIEST,
    RECORDS,
    REMOTE_SEGMENTS_MIN,
    TIERED,
    TOPIC,
    check,
    crc,
    earliest,
    produced,
    read_all,
    remote_segments,
    wait_tiered,
)

pytestmark = [pytest.mark.timeout(300), pytest.mark.forms(1), pytest.mark.drawn(3)]


@pytest.fixture(scope="module", params=[Kind.COMBINED, Kind.ZOOKEEPER], ids=["kraft", "zookeeper"])
def cluster_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(request.param, 3, config=TIERED, remote_storage=True, metrics=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(cluster_of_module: Cluster) -> Cluster:
    """Three brokers in either mode, with a store; all of them serve."""
    return revived(cluster_of_module)


def test_clients_read_across_the_tiers(cluster: Cluster) -> None:
    topic = new_name("tiered")
    values = produced(cluster, topic)
    wait_tiered(cluster, topic)
    copied = [each.start_offset for each in cluster.remote_events("copy", topic=topic)]
    assert copied == [int(path.name[:20]) for path in remote_segments(cluster, topic)]
    assert cluster.remote_events("fetch", topic=topic) == []
    for name in clients.NAMES:
        found = read_all(cluster, topic, name)
        assert crc(found) == crc(values), name
    fetched = {each.start_offset for each in cluster.remote_events("fetch", topic=topic)}
    assert {0, copied[-3]} <= fetched <= set(copied)
    assert cluster.remote_events("delete", topic=topic) == []


def test_brokers_are_killed_one_after_the_other(cluster: Cluster) -> None:
    topic = new_name("killed")
    values = produced(cluster, topic)
    wait_tiered(cluster, topic)
    check(cluster, topic, values)  # The first consumer: the offsets topic needs all three brokers.
    for node in BROKERS:
        cluster.kill(node)
        check(cluster, topic, values)
        cluster.start(node)
        cluster.wait_ready()
        # Of the groups' offsets too: their only replica in sync may be on the next broker.
        cluster.wait_in_sync()
        check(cluster, topic, values)


def test_all_brokers_are_killed_at_once(cluster: Cluster) -> None:
    topic = new_name("all")
    values = produced(cluster, topic)
    wait_tiered(cluster, topic)
    for node in BROKERS:
        cluster.kill(node)
    for node in BROKERS:
        cluster.start(node)
    cluster.wait_ready()
    cluster.wait_in_sync(topic)
    check(cluster, topic, values)


def test_the_controller_is_killed_after_an_existing_topic_was_enabled(cluster: Cluster) -> None:
    topic = new_name("enabled")
    values = produced(cluster, topic, config=TOPIC | {"remote.storage.enable": "false"})
    assert remote_segments(cluster, topic) == []
    assert len(stored.segments(cluster, topic)) > REMOTE_SEGMENTS_MIN
    controller = cluster.wait_controller()
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.set_topic_config(topic, "remote.storage.enable", "true")
    cluster.kill(controller)
    cluster.wait_controller(besides=controller)
    cluster.start(controller)
    cluster.wait_ready()
    wait_tiered(cluster, topic)
    check(cluster, topic, values)


def test_expired_segments_are_deleted_in_the_store(cluster: Cluster) -> None:
    topic = new_name("expired")
    produced(cluster, topic)
    wait_tiered(cluster, topic)
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.set_topic_config(topic, "retention.bytes", str(8 * 16_384))
    try:
        # A segment has 12 records or more, as batches fall: 128 KiB are 11 of them at most, and one
        # may be copied meanwhile. A leader waits up to 30 s for a live replica to have the log
        # start, then tries again.
        eventually(
            lambda: len(remote_segments(cluster, topic)) <= 12, within=75, what="12 segments left"
        )
    except AssertionError:
        for node in BROKERS:
            lines = [line for line in cluster.logs(node).splitlines() if topic in line]
            print(f"node {node}:", *lines[-25:], sep="\n")
        print(len(remote_segments(cluster, topic)), "segments are left")
        raise
    start = earliest(cluster, topic, EARLIEST)
    assert start > 0
    # The log start moved first: what is left begins there, or below it.
    first = int(remote_segments(cluster, topic)[0].name[:20])
    assert first <= start
    with Closing(client_of("confluent").consumer(cluster.bootstrap)) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), start)
        records = eventually(lambda: consumer.poll(1.0), within=30, what="the first records")
    assert records[0].offset == start


def test_a_quota_of_reads_is_set_and_removed_while_brokers_run(cluster: Cluster) -> None:
    topic = new_name("quota")
    values = produced(cluster, topic)
    wait_tiered(cluster, topic)
    brokers = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers")
    quota = "remote.log.manager.fetch.max.bytes.per.second"

    def configure(*change: str) -> None:
        ran = ottla("configs", "--alter", *brokers, "--entity-default", *change)
        assert ran.code == 0, ran.err

    def throttled() -> float:
        return sum(
            scrape(cluster, node).value("ottla_remote_reads_throttled_total") for node in BROKERS
        )

    assert throttled() == 0
    configure("--add-config", f"{quota}=1")
    shown = ottla("configs", "--describe", *brokers, "--entity-default").out
    assert f"{quota}=1" in shown
    try:
        with Closing(client_of("confluent").consumer(cluster.bootstrap)) as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek((topic, 0), 0)
            read = 0

            def is_throttled() -> bool:
                nonlocal read
                read += len(consumer.poll(0.2))  # Raises where the broker answers with an error.
                return throttled() > 0

            eventually(is_throttled, within=30, what="a read beyond the quota")
            assert read < len(values)
    finally:
        configure("--delete-config", quota)
    assert crc(read_all(cluster, topic)) == crc(values)


def test_the_tiers_are_described(cluster: Cluster) -> None:
    topic = new_name("described")
    produced(cluster, topic)
    wait_tiered(cluster, topic)
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)

    def described() -> dict[str, Any]:
        ran = ottla("tier", "describe", *where, "--json")
        assert ran.code == 0, ran.err
        found: dict[str, Any] = json.loads(ran.out)["topics"][0]
        return found

    found = eventually(
        described, lambda found: found["partitions"][0]["lag_segments"] == 0, within=30
    )
    row = found["partitions"][0]
    assert (found["topic"], found["state"], found["tiered_epoch"]) == (topic, "ENABLED", 1)
    assert (row["remote_start"], row["local_end"], row["last_error"]) == (0, RECORDS, None)
    assert row["remote_segments"] == len(remote_segments(cluster, topic))
    assert row["local_start"] <= row["remote_end"] + 1 < RECORDS
    # Log directories have local files only.
    ran = ottla("log-dirs", "--describe", *where[:2], "--topic-list", topic, "--broker-list", "1")
    (replica,) = json.loads(ran.out.splitlines()[-1])["brokers"][0]["logDirs"][0]["partitions"]
    local = sum(path.stat().st_size for path in stored.segments(cluster, topic, node=1))
    assert replica["size"] == local < row["remote_bytes"]
    table = ottla("tier", "describe", *where).out.splitlines()
    assert table[0].startswith(f"{topic} (")
    assert table[2].split()[:2] == ["0", str(row["leader"])]
