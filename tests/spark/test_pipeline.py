"""`ottla pipeline audit`, `retention-report` and `purge-check` over a real cluster and its store.

Method: one broker, a directory as the store, two topics whose tiered storage was turned off, with
both policies, and on again. The audit runs while segments are copied, and after that: nothing is
found. What a retention is said to keep is what it keeps once it is set. Then objects are damaged,
one for each kind, and each is named. At last a topic goes, and the purge check says so. The
commands run in this process, in its Spark session.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.main import main
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.offsets import EARLIEST, list_offsets
from ottla.spark.jobs.audit import AuditOptions, audit
from ottla.spark.jobs.purge_check import PurgeOptions, purge_check
from ottla.spark.jobs.retention_report import RetentionOptions, retention_report
from ottla.testing import Cluster
from ottla.tiered.manifest_codec import decode_manifest, encode_manifest
from ottla.wire.messages import describe_remote_log as wire

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

CONFIG = {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
}
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}
BATCH = 4
VALUE_BYTES = 1_000
LONG_AGO_S = 7_200


def produce(cluster: Cluster, topic: str, count: int) -> None:
    """Produce records to two partitions, four a batch."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 100})
    for number in range(0, count, BATCH):
        for _ in range(BATCH):
            producer.produce(topic, os.urandom(VALUE_BYTES), partition=number // BATCH % 2)
        assert producer.flush(30) == 0


def create(cluster: Cluster, topic: str, config: Mapping[str, str] = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config=dict(config))])[topic].result(30)


def alter(cluster: Cluster, topic: str, added: str) -> None:
    code = main(
        ["configs", "--bootstrap-server", cluster.bootstrap, "--alter", "--entity-type", "topics",
         "--entity-name", topic, "--add-config", added]
    )  # fmt: skip
    assert code == 0
    code = main(
        ["tier", "describe", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--wait"]
    )
    assert code == 0


def logs(cluster: Cluster, topic: str, partition: int = 0) -> list[Path]:
    found = cluster.remote_dir.glob(f"{topic}-*/{partition}/*.log")
    return sorted(found, key=lambda path: path.name)


def eventually(is_true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < until, what
        time.sleep(0.2)


def wait_copied(
    cluster: Cluster, topic: str, listed: Callable[[], Collection[Any]] | None = None
) -> None:
    """Wait until all closed segments are copied, and the manifests say so.

    `listed`: lists the store, None = the directory.
    """
    listed = listed or (lambda: sorted(cluster.remote_dir.rglob("*")))

    def lag() -> list[int]:
        with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:
            request = wire.DescribeRemoteLogRequest(
                topics=(wire.DescribeRemoteLogTopic(name=topic, partitions=(0, 1)),)
            )
            (found,) = client.ask(request, wire.DescribeRemoteLogResponse).topics
        return [each.lag_segments for each in found.partitions]

    eventually(lambda: lag() == [0, 0], f"{topic} is copied")
    before: Collection[Any] = ()
    while (now := listed()) != before:
        before = now
        time.sleep(1)


@pytest.fixture(scope="module")
def tiered() -> Iterator[Cluster]:
    """A broker whose topics' tiered storage was turned off with both policies, and on again."""
    with Cluster(brokers=1, config=CONFIG, remote_storage=True) as running:
        create(running, "orders")
        create(running, "clicks")
        produce(running, "orders", 160)
        produce(running, "clicks", 240)
        eventually(lambda: len(logs(running, "clicks")) >= 6, "clicks are copied")
        alter(running, "orders", "remote.storage.enable=false")
        alter(running, "orders", "remote.storage.enable=true")
        alter(running, "clicks", "remote.log.disable.policy=delete, remote.storage.enable=false")
        alter(running, "clicks", "remote.storage.enable=true")
        yield running


@pytest.fixture
def job(
    spark: Any, tiered: Cluster, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    """Run a job of `ottla pipeline` in the session of the tests; return code and JSON."""
    assert spark is not None

    def run(name: str, *words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(
            ["pipeline", name, "--bootstrap-server", tiered.bootstrap,
             "--remote-storage", tiered.remote_dir.as_uri(), "--json", *words]
        )  # fmt: skip
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_sound_store(tiered: Cluster, job: Callable[..., Any]) -> None:
    for topic in ("orders", "clicks"):
        produce(tiered, topic, 160)
    # While segments are copied.
    code, found = job("audit", "--deep")
    assert (code, found["findings"]) == (0, [])
    wait_copied(tiered, "orders")
    code, found = job("audit", "--deep", "--grace", "600")
    assert (code, found["findings"]) == (0, [])
    assert found["summary"]["segments"] >= 16
    assert found["summary"]["read_bytes"] > 16 * 12_000
    assert main(
        ["pipeline", "audit", "--remote-storage", tiered.remote_dir.as_uri(), "--topic", "orders"]
    ) == 0  # fmt: skip


def log_starts(cluster: Cluster, topic: str) -> dict[int, int]:
    with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:
        found = list_offsets(client, {(topic, 0): EARLIEST, (topic, 1): EARLIEST})
    return {partition: each.offset for (_, partition), each in found.items()}


def test_retention_keeps_what_the_report_says(
    spark: Any, tiered: Cluster, job: Callable[..., Any]
) -> None:
    topic, limit = "measured", 60_000
    create(tiered, topic)
    produce(tiered, topic, 240)
    wait_copied(tiered, topic)
    store = tiered.remote_dir.as_uri()
    size = sum(path.stat().st_size for part in (0, 1) for path in logs(tiered, topic, part))
    code, found = job("retention-report", "--topic", topic, "--retention-bytes", f"{limit},1")
    assert code == 0
    present, some, nothing = found["topics"]
    assert (present["kept_bytes"], present["cost"]) == (size, None)
    assert (present["retention_ms"], present["retention_bytes"]) == (604_800_000, -1)
    assert 0 < some["kept_bytes"] <= 2 * limit
    assert some["kept_bytes"] + some["deleted_bytes"] == size
    assert (nothing["kept_segments"], nothing["local_only_bytes"] > 0) == (0, True)
    # The same as a function, and without brokers: then the local log does not count.
    options = {"remote_storage": store, "topics": (topic,), "retention_bytes": (limit,)}
    cluster = ClientConfig(bootstrap=tiered.bootstrap)
    rows = retention_report(spark, RetentionOptions(**options, cluster=cluster)).collect()
    foreseen = {
        row.partition: row.log_start_offset
        for row in rows
        if row.setting == f"retention.bytes={limit}"
    }
    alone = retention_report(spark, RetentionOptions(**options)).groupBy("setting")
    kept = {row.setting: row.kept_bytes for row in alone.agg({"kept_bytes": "sum"})
            .withColumnRenamed("sum(kept_bytes)", "kept_bytes").collect()}  # fmt: skip
    assert kept["current"] == size
    assert kept[f"retention.bytes={limit}"] >= some["kept_bytes"]
    assert min(foreseen.values()) > 0
    alter(tiered, topic, f"retention.bytes={limit}")
    eventually(lambda: log_starts(tiered, topic) == foreseen, f"the log starts are {foreseen}")
    code, found = job("retention-report", "--topic", topic, "--retention-ms", "unlimited")
    assert found["topics"][0]["kept_bytes"] == some["kept_bytes"]
    assert found["topics"][0]["deleted_segments"] == 0


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage(cluster: Cluster) -> dict[str, str]:
    """Damage the store of `orders`; return the kinds that are to be found, by object."""
    root = cluster.remote_dir
    expected: dict[str, str] = {}

    def expect(kind: str, path: Path) -> Path:
        expected[str(path.relative_to(root))] = kind
        return path

    first = logs(cluster, "orders")
    expect("missing-object", first[1]).unlink()
    expect("missing-auxiliary", first[2].with_suffix(".snapshot")).unlink()
    flip(expect("crc-mismatch", first[3]))
    path = expect("wrong-size", first[4])
    path.write_bytes(path.read_bytes()[:-10])
    expect("damaged-auxiliary", first[5].with_suffix(".epochs")).write_bytes(b"0\n1\n")
    # The batches of another segment: whole, but of other offsets.
    path = expect("offsets-not-covered", first[0])
    size = path.stat().st_size
    other = next(each for each in first[6:] if each.stat().st_size == size)
    path.write_bytes(other.read_bytes())
    path.with_suffix(".index").write_bytes(b"")
    orphan = first[0].with_name(f"{0:020}-AAAAAAAAAAAAAAAAAAAABA.log")
    expect("orphan-object", orphan).write_bytes(b"x")
    old = time.time() - LONG_AGO_S
    os.utime(orphan, (old, old))
    expect("foreign-object", first[0].with_name("notes.txt")).write_bytes(b"x")
    expect("foreign-object", root / "README").write_bytes(b"x")
    unknown = root / "gone-AAAAAAAAAAAAAAAAAAAABA" / "0" / orphan.name
    unknown.parent.mkdir(parents=True)
    expect("unknown-topic", unknown).write_bytes(b"x")
    os.utime(unknown, (old, old))

    manifests = sorted(first[0].parent.glob("manifest/*"))
    expect("manifest-missing", manifests[-2]).unlink()
    last = expect("manifest-chain-broken", manifests[-1])
    assert not decode_manifest(last.read_bytes()).is_base
    # The other partition: its last manifest lists too much, and is of epochs without a fence.
    second = logs(cluster, "orders", 1)
    last = sorted(second[0].parent.glob("manifest/*"))[-1]
    ahead = decode_manifest(last.read_bytes())
    fields = {name: getattr(ahead, name) for name in ahead.__slots__}
    fields |= {"sequence": ahead.sequence + 1, "leader_epoch": ahead.leader_epoch + 7}
    fields |= {"added": (), "removed": (), "is_base": False, "partition_count": None}
    path = expect("manifest-ahead", last.with_name(f"{ahead.sequence + 1:020}"))
    path.write_bytes(encode_manifest(type(ahead)(**fields | {"configs": None})))
    return expected


def test_each_damage_is_named(spark: Any, tiered: Cluster, job: Callable[..., Any]) -> None:
    produce(tiered, "orders", 160)
    wait_copied(tiered, "orders")
    expected = damage(tiered)
    code, found = job("audit", "--deep")
    assert code == 1
    by_object: dict[str, set[str]] = {}
    for each in found["findings"]:
        by_object.setdefault(each["object"], set()).add(each["kind"])
    assert {name: kind for name, kind in expected.items() if kind not in by_object[name]} == {}
    assert set(by_object) <= set(expected)
    assert len(set(expected.values())) >= 12
    # The same as a function, with objects alone.
    options = AuditOptions(remote_storage=tiered.remote_dir.as_uri(), topics=("orders",))
    kinds = {each.kind for each in audit(spark, options).select("kind").collect()}
    assert {"missing-object", "orphan-object", "manifest-chain-broken"} <= kinds


def test_purge_check(spark: Any, tiered: Cluster, job: Callable[..., Any]) -> None:
    create(tiered, "deleted")
    produce(tiered, "deleted", 40)
    unknown = tiered.remote_dir / "gone-AAAAAAAAAAAAAAAAAAAABA" / "0" / "x.log"
    unknown.parent.mkdir(parents=True, exist_ok=True)
    unknown.write_bytes(b"x")
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
    admin.delete_topics(["deleted"])["deleted"].result(30)
    eventually(lambda: not logs(tiered, "deleted"), "objects are deleted")
    code, found = job("purge-check")
    assert (code, found["proven"]) == (1, False)
    rows = {(each["topic"], each["what"]): each for each in found["topics"]}
    # Nothing is left, but a late write may come: the receipt waits for two minutes.
    assert rows["deleted", "deleted"]["receipt"] == "pending, not finished"
    assert not rows["deleted", "deleted"]["signed_off"]
    assert rows["clicks", "disabled"]["receipt"].startswith("ENABLED, floor 1: ")
    assert rows["gone", "unknown"]["objects_left"] >= 1
    assert " gone-AAAA" in rows["gone", "unknown"]["reason"]
    with ClusterClient(ClientConfig(bootstrap=tiered.bootstrap)) as client:
        options = PurgeOptions(
            remote_storage=tiered.remote_dir.as_uri(), cluster=client.config, topics=("clicks",)
        )
        (only,) = purge_check(spark, options).collect()
    assert (only.topic, only.objects_left, only.error) == ("clicks", 0, None)
