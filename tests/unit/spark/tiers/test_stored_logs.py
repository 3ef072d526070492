"""What a store holds must be found without brokers, and what is in doubt refused.

Method: directories with the logs of `tiered_log`, some under other names and ids, some damaged.
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import boto3
import pytest

from ottla.base.ids import Uuid, uuid_text
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.options import ReadOptions, Subscribe
from ottla.spark.planner import plan
from ottla.spark.tiers.store_session import StoreSession
from ottla.spark.tiers.stored_logs import find_stored, list_topics, offsets_by_time, stored_log
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import encode_manifest
from ottla.tiered.object_names import manifest_name
from tests.unit.spark.fake_broker import ID, TOPIC
from tests.unit.spark.tiered_log import TieredLog, drawn_log
from tests.unit.spark.tiers.test_tiered_planner import read
from tests.unit.stores.moto_server import MotoServer

OTHER = Uuid(b"o" * 16)


def write_manifest(root: Path, topic: str, topic_id: Uuid, partition: int = 0) -> None:
    """Write a topic of which no segment is left."""
    manifest = Manifest(
        topic=topic, topic_id=topic_id, partition=partition, sequence=0, leader_epoch=1,
        tiered_epoch=1, floor=0, log_start_offset=9, epochs=((1, 0),), is_base=True,
        partition_count=3,
    )  # fmt: skip
    path = root / manifest_name(topic, topic_id, partition, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_manifest(manifest))


def options(root: Path, **raw: str) -> ReadOptions:
    base = {"ottla.remote.storage.uri": root.as_uri()}
    return ReadOptions.of(base | ({} if "subscribePattern" in raw else {"subscribe": TOPIC}) | raw)


def session_of(root: Path) -> StoreSession:
    return StoreSession(root.as_uri(), timeout_ms=2_000)


def filled(root: Path) -> TieredLog:
    log = TieredLog()
    for _ in range(4):
        log.append(5)
    log.copy(0, 2)
    log.copy(2, 3)
    log.write(root)
    return log


def test_topics_of_a_store(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in (f"{TOPIC}-archive", f"{TOPIC}-", "a", "zz"):
        write_manifest(tmp_path, name, OTHER)
    write_manifest(tmp_path, TOPIC, OTHER, partition=2)
    with session_of(tmp_path) as session:
        every = [(each.name, each.topic_id) for each in list_topics(session)]
        assert every == sorted(
            [(name, OTHER) for name in (f"{TOPIC}-archive", f"{TOPIC}-", "a", "zz", TOPIC)]
            + [(TOPIC, ID)]
        )
        named = list_topics(session, TOPIC)
        assert [(each.topic_id, each.partitions) for each in named] == [(ID, {0}), (OTHER, {2})]
        assert list_topics(session, "b") == []


def test_which_topic_of_a_name(tmp_path: Path) -> None:
    filled(tmp_path)
    write_manifest(tmp_path, TOPIC, OTHER, partition=2)
    with pytest.raises(OptionError, match=f"has 2 topics t: .*{uuid_text(OTHER)}"):
        plan(options(tmp_path))
    chosen = options(tmp_path, **{"ottla.topic.ids": uuid_text(ID)})
    assert [(each.start, each.end) for task in plan(chosen) for each in task.splits] == [
        (0, 10),
        (10, 15),
    ]
    assert plan(options(tmp_path, **{"ottla.topic.ids": uuid_text(OTHER)})) == []


def test_partitions_without_remote_records_are_there(tmp_path: Path) -> None:
    write_manifest(tmp_path, TOPIC, OTHER, partition=1)
    with session_of(tmp_path) as session:
        chosen = options(tmp_path)
        stored = find_stored(session, chosen.subscription, frozenset())
        assert sorted(stored) == [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)]
        logs = [stored_log(session, each, chosen) for each in stored.values()]
        ranges = [(each.facts.earliest, each.facts.latest) for each in logs]
        assert ranges == [(0, 0), (9, 9), (0, 0)]
    every = '{"t":{"0":-2,"1":-2,"2":-2}}'
    assert plan(options(tmp_path, startingOffsets=every)) == []
    assert plan(options(tmp_path, subscribePattern="x.*")) == []


def test_refusals(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(RemoteStorageError, match="has no topic nothing"):
        plan(replace(options(tmp_path), subscription=Subscribe(("nothing",))))
    assigned = {"ottla.remote.storage.uri": tmp_path.as_uri(), "assign": '{"t":[4]}'}
    with pytest.raises(RemoteStorageError, match="has no partition 4 of topic t"):
        plan(ReadOptions.of(assigned))
    (tmp_path / manifest_name(TOPIC, ID, 0, 0)).write_bytes(b"{}\n")
    with pytest.raises(RemoteStorageError, match=r"manifests of t-0 .* cannot be read: .*checksum"):
        plan(options(tmp_path))


def test_a_hole_between_segments_is_lost(tmp_path: Path) -> None:
    log = TieredLog()
    for _ in range(3):
        log.append(5)
    log.copy(0, 1)
    log.copy(2, 3)
    log.write(tmp_path)
    with pytest.raises(Exception, match="t-0: no remote segment has the offsets 5 to 9"):
        plan(options(tmp_path))
    [task] = plan(options(tmp_path, failOnDataLoss="false"))
    assert [(each.start, each.end) for each in task.splits] == [(0, 5), (10, 15)]


def test_segments_of_the_floor_are_not_read(tmp_path: Path) -> None:
    """Another partition's manifest may be the first to name it."""
    filled(tmp_path)
    with session_of(tmp_path) as session:
        chosen = options(tmp_path)
        [stored] = find_stored(session, chosen.subscription, frozenset()).values()
        assert stored_log(session, stored, chosen).facts.latest == 15
        given_up = replace(stored, floor=1)
        assert stored_log(session, given_up, chosen).tiers.segments == ()


def test_offsets_by_timestamp_are_those_of_the_whole_log(tmp_path: Path) -> None:
    """The timestamp of a record is its offset, but for a batch of old ones."""
    compared = 0
    for seed in range(30):
        root = tmp_path / str(seed)
        root.mkdir()
        log = drawn_log(Random(seed), compacted=False)
        log.write(root)
        chosen = options(root, **{"kafka.max.partition.fetch.bytes": "150"})
        with session_of(root) as session:
            [stored] = find_stored(session, chosen.subscription, frozenset()).values()
            found = stored_log(session, stored, chosen)
            remote = {offset for each in found.tiers.segments for offset in range(*each.own)}
            start, end = found.facts.earliest, found.facts.latest
            for since in range(0, log.end + 1, 3):
                times = offsets_by_time(session, [found], {(TOPIC, 0): since}, chosen)
                # Markers count, too: brokers find them as well.
                there = [each for each in range(max(since, start), end) if each in remote]
                assert times == {(TOPIC, 0): there[0] if there else None}
                compared += bool(there)
    assert compared > 50


def test_a_damaged_time_index_is_made_up_for(tmp_path: Path) -> None:
    filled(tmp_path)
    for kind in ("timeindex", "index"):
        for path in tmp_path.glob(f"*/0/*.{kind}"):
            path.write_bytes(b"123")
    chosen = options(tmp_path, startingTimestamp="12")
    [task] = plan(chosen)
    assert [(each.start, each.end) for each in task.splits] == [(12, 15)]


def test_a_damaged_producer_snapshot(tmp_path: Path) -> None:
    filled(tmp_path)
    for path in tmp_path.glob("*/0/*.snapshot"):
        path.write_bytes(b"123")
    with pytest.raises(RemoteStorageError, match=r"snapshot .* is damaged"):
        plan(options(tmp_path, isolation="read_committed"))


def test_a_lost_transaction_index(tmp_path: Path) -> None:
    log = TieredLog()
    log.append(2, 11)
    log.end_transaction(11, committed=False)
    log.copy(0, 2)
    log.write(tmp_path)
    [task] = plan(options(tmp_path, isolation="read_committed"))
    assert [each.remote and each.remote.aborted for each in task.splits] == [((11, 0),)]
    for path in tmp_path.glob("*/0/*.txnindex"):
        path.unlink()
    with pytest.raises(RemoteStorageError, match=r"\.txnindex, which is listed as readable"):
        plan(options(tmp_path, isolation="read_committed"))


def test_the_same_from_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: moto's server; credentials from the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    filled(tmp_path)
    write_manifest(tmp_path, f"{TOPIC}-archive", OTHER)
    chosen = replace(options(tmp_path), fetch_bytes=150, fail_on_data_loss=False)
    expected = read(plan(chosen), chosen)
    assert [offset for offset, _ in expected] == list(range(15))
    with MotoServer() as moto:
        client = boto3.client("s3", endpoint_url=moto.url, region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        for path in tmp_path.rglob("*"):
            if path.is_file():
                name = f"a/prefix/{path.relative_to(tmp_path)}"
                client.put_object(Bucket="bucket", Key=name, Body=path.read_bytes())
        uri = f"s3://bucket/a/prefix?region=us-east-1&endpoint={moto.url}"
        remote = replace(chosen, remote_storage=uri)
        assert read(plan(remote), remote) == expected
        gone = replace(remote, remote_storage=uri.replace("bucket", "other"), store_timeout_ms=500)
        with pytest.raises(RemoteStorageError, match="object store s3://other/a/prefix could not"):
            plan(gone)
