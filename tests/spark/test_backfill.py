"""`ottla pipeline backfill` copies what a topic had before tiered storage was turned on.

Method: three brokers whose own copies are slowed by their quota, a directory as the store, topics
of many small segments. After a backfill the audit reads every byte and finds nothing, and a
consumer reads the same records from offset 0 on. A leader is killed during a
backfill; a backfill's driver is killed, and the brokers and another run copy what is left. The
commands run in this process, in its Spark session, but for the driver that is killed.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.main import main
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.testing import Cluster
from ottla.wire.messages import describe_remote_log as wire
from tests.spark.conftest import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
a_kill = pytest.mark.drawn(1)

CONFIG = {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
    # A segment in some seconds: what is copied faster is copied by the backfill.
    "remote.log.manager.copy.max.bytes.per.second": "200",
}
TOPIC = {
    "internal.segment.bytes": "16384",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}
PARTITIONS = 2
VALUE_BYTES = 1_000
RECORDS_PER_SEGMENT = 14


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG, remote_storage=True) as running:
        yield running


Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(spark: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a job in the session of the tests; return code and JSON."""
    assert spark is not None

    def run(name: str, *words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(["pipeline", name, *options(cluster), "--json", *words])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else None

    return run


def options(cluster: Cluster) -> list[str]:
    return [
        "--bootstrap-server", cluster.bootstrap, "--remote-storage", cluster.remote_dir.as_uri(),
    ]  # fmt: skip


def produced(cluster: Cluster, topic: str, segments: int) -> None:
    """Create a topic that is not tiered, and fill so many segments of each partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3, config=TOPIC)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 4,
        }
    )
    for number in range(segments * RECORDS_PER_SEGMENT):
        for partition in range(PARTITIONS):
            value = b"%d-%d " % (partition, number) + os.urandom(VALUE_BYTES)
            producer.produce(topic, value, partition=partition)
        if number % 4 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0


def tier(cluster: Cluster, topic: str) -> None:
    words = ["--alter", "--entity-type", "topics", "--entity-name", topic]
    code = main(
        ["configs", "--bootstrap-server", cluster.bootstrap, *words,
         "--add-config", "remote.storage.enable=true"]
    )  # fmt: skip
    assert code == 0


def checksums(cluster: Cluster, topic: str) -> dict[int, tuple[int, int]]:
    """Read all records from offset 0 on; return their number and CRC by partition."""
    found: dict[int, tuple[int, int]] = {}
    for partition in range(PARTITIONS):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        count = checksum = 0
        while True:
            message = consumer.poll(30)
            assert message is not None, "records lack"
            if message.error():
                break  # The end of the partition.
            count, checksum = count + 1, zlib.crc32(message.value(), checksum)
        consumer.close()
        found[partition] = count, checksum
    return found


def described(cluster: Cluster, topic: str) -> list[wire.RemoteLogPartition]:
    def ask(client: ClusterClient) -> list[wire.RemoteLogPartition]:
        rows = []
        for partition in range(PARTITIONS):
            asked = wire.DescribeRemoteLogTopic(name=topic, partitions=(partition,))
            request = wire.DescribeRemoteLogRequest(topics=(asked,), include_segments=True)
            node = client.leader((topic, partition)).node
            (found,) = client.ask(request, wire.DescribeRemoteLogResponse, node=node).topics
            rows += found.partitions
        return rows

    with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:
        return client.with_retries(lambda: ask(client), repeatable=True)


def lag(cluster: Cluster, topic: str) -> int:
    return sum(each.lag_segments for each in described(cluster, topic))


def objects(cluster: Cluster, topic: str) -> set[str]:
    return {path.name for path in cluster.remote_dir.glob(f"{topic}-*/*/*.*")}


def eventually(is_true: Callable[[], bool], what: str, within_s: float = 90) -> None:
    until = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < until, what
        time.sleep(0.2)


def check(cluster: Cluster, topic: str, run: Run, before: dict[int, tuple[int, int]]) -> None:
    """Check that all is copied, that nothing is wrong with it, and that it is read as before."""
    eventually(lambda: lag(cluster, topic) == 0, "all closed segments are copied")
    eventually(
        lambda: all(each.local_start_offset > 0 for each in described(cluster, topic)),
        "local retention follows",
    )
    assert all(each.log_start_offset == 0 for each in described(cluster, topic))
    code, found = run("audit", "--deep", "--topic", topic, "--grace", "3600")
    assert (code, found["findings"]) == (0, [])
    assert checksums(cluster, topic) == before


@pytest.mark.drawn(1, of="long tests of Spark")
def test_a_topic_that_was_large_before_it_was_tiered(cluster: Cluster, run: Run) -> None:
    topic = "large"
    produced(cluster, topic, 40)
    before = checksums(cluster, topic)
    assert run("backfill", "--topic", topic)[0] == 1  # It is not tiered.
    tier(cluster, topic)
    eventually(lambda: lag(cluster, topic) > 40, "the leaders know of the segments")
    code, found = run("backfill", "--topic", topic, "--plan")
    assert code == 0
    plan = found["plan"]
    assert plan["segments"] > 60
    assert plan["bytes"] > plan["segments"] * 10_000
    assert [each["partition"] for each in plan["partitions"]] == [0, 1]
    copied = len(objects(cluster, topic))
    assert copied < 30, "a plan copies nothing"
    code, found = run("backfill", "--topic", topic, "--partitions", "1", "--parallelism", "3")
    assert code == 0
    assert {each["partition"] for each in found["partitions"]} == {1}
    code, found = run("backfill", "--topic", topic)
    assert code == 0
    assert found["segments"] > plan["segments"] // 3
    assert found["segments_left"] == 0
    assert lag(cluster, topic) == 0
    code, found = run("backfill", "--topic", topic)
    assert (code, found["segments"]) == (0, 0)
    check(cluster, topic, run, before)


def test_another_store_is_refused(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    topic = "elsewhere"
    produced(cluster, topic, 4)
    tier(cluster, topic)
    eventually(lambda: lag(cluster, topic) > 0, "the leaders know of the segments")
    words = ["pipeline", "backfill", "--bootstrap-server", cluster.bootstrap, "--topic", topic]
    assert main([*words, "--remote-storage", (tmp_path / "missing").as_uri()]) == 1
    assert main([*words, "--remote-storage", tmp_path.as_uri()]) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def leader_of(cluster: Cluster, topic: str) -> int:
    with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:
        client.topics([topic])
        return client.leader((topic, 0)).node


@a_kill
def test_the_leader_is_killed_during_a_backfill(cluster: Cluster, run: Run) -> None:
    topic = "leaderless"
    produced(cluster, topic, 60)
    before = checksums(cluster, topic)
    tier(cluster, topic)
    eventually(lambda: lag(cluster, topic) > 60, "the leaders know of the segments")
    victim = leader_of(cluster, topic)
    already = len(objects(cluster, topic))

    def kill() -> None:
        eventually(lambda: len(objects(cluster, topic)) > already + 60, "the backfill copies")
        cluster.kill(victim)

    killer = threading.Thread(target=kill)
    killer.start()
    code, found = run("backfill", "--topic", topic)
    killer.join()
    if code:  # A run may fail where no leader is elected in time; it is repeated.
        code, found = run("backfill", "--topic", topic)
    assert code == 0, found
    cluster.start(victim)
    cluster.wait_ready()
    cluster.wait_in_sync()
    check(cluster, topic, run, before)


@a_kill
def test_the_driver_is_killed_during_a_backfill(cluster: Cluster, run: Run) -> None:
    topic = "driverless"
    produced(cluster, topic, 60)
    before = checksums(cluster, topic)
    tier(cluster, topic)
    eventually(lambda: lag(cluster, topic) > 60, "the leaders know of the segments")
    already = len(objects(cluster, topic))
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    driver = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "pipeline", "backfill", *options(cluster),
         "--topic", topic, "--lease", "5"],
        env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        eventually(lambda: len(objects(cluster, topic)) > already + 30, "the backfill copies", 120)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # With its JVM and its tasks.
        driver.wait(30)
    assert lag(cluster, topic) > 0, "it was killed too late"
    code, found = run("backfill", "--topic", topic)
    assert code == 0
    assert found["segments"] > 0
    check(cluster, topic, run, before)
    known = {
        name.partition("/")[2]
        for each in described(cluster, topic)
        for name in (f"/{segment.start_offset:020d}" for segment in each.segments)
    }
    assert {name[:20] for name in objects(cluster, topic)} == known
