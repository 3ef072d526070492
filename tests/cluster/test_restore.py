"""A topic comes back from the object store alone, in a cluster that never had it.

Method: a cluster produces with keys to three partitions, and copies all but the active segments.
It ends, and its directory is removed. Another cluster, of either mode, has the same store: `ottla
tier restore` creates the topic there, and clients find exactly the records of the remote segments,
at their offsets; the topic goes on from there.
"""

import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.testing import Cluster

from .clients import Closing, Message, client_of, eventually
from .conftest import Kind, NewCluster, kinds, new_name
from .ottla_command import ottla
from .tiered import EARLIEST, TIERED, TOPIC, earliest

pytestmark = [pytest.mark.timeout(300), pytest.mark.forms(1)]

PARTITIONS = 3
RECORDS = 40 * PARTITIONS * 4
VALUE_BYTES = 1_000
CONFIG = TOPIC | {"retention.ms": "-1", "max.message.bytes": "200000"}
Records = dict[int, list[tuple[int, bytes, bytes]]]


@dataclass(frozen=True)
class Stored:
    """A store with a topic, and what the topic's partitions had."""

    store: Path
    topic: str
    records: Records
    ends: dict[int, int]

    @property
    def where(self) -> tuple[str, str]:
        return "--remote-storage", self.store.as_uri()

    def expected(self) -> Records:
        """Return the records that the store has."""
        return {
            partition: [each for each in found if each[0] < self.ends[partition]]
            for partition, found in self.records.items()
        }


def segments(store: Path, topic: str, partition: int) -> list[Path]:
    return sorted(store.glob(f"{topic}-*/{partition}/*.log"), key=lambda path: path.name)


def read(cluster: Cluster, topic: str) -> Records:
    """Read all partitions from their earliest offsets."""
    found: Records = {each: [] for each in range(PARTITIONS)}
    with Closing(client_of("confluent").consumer(cluster.bootstrap)) as consumer:
        keys = [(topic, each) for each in range(PARTITIONS)]
        consumer.assign(keys)
        ends: dict[int, int] = {}
        for key in keys:
            start, ends[key[1]] = consumer.watermarks(key)
            consumer.seek(key, start)

        def is_read() -> bool:
            for record in consumer.poll(1.0):
                found[record.partition].append(
                    (record.offset, record.key or b"", record.value or b"")
                )
            return all(
                (found[each][-1][0] + 1 if found[each] else 0) >= ends[each] for each in ends
            )

        eventually(is_read, within=60, what="all records")
    return found


def crc(records: Records) -> int:
    found = 0
    for partition, rows in sorted(records.items()):
        for offset, key, value in rows:
            found = zlib.crc32(b"%d %d %s %s" % (partition, offset, key, value), found)
    return found


def produce(cluster: Cluster, topic: str, first: int, count: int) -> None:
    with Closing(client_of("confluent").producer(cluster.bootstrap)) as producer:
        for begin in range(first, first + count, 12):
            producer.send(
                [
                    Message(
                        topic=topic,
                        partition=number % PARTITIONS,
                        key=b"key-%d" % number,
                        value=b"%06d" % number + bytes([number % 251]) * VALUE_BYTES,
                    )
                    for number in range(begin, begin + 12)
                ]
            )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    store = tmp_path_factory.mktemp("store")
    topic = new_name("restored")
    with Cluster(brokers=2, remote_storage=store.as_uri(), config=TIERED) as cluster:
        with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
            admin.create_topic(topic, partitions=PARTITIONS, replication_factor=2, config=CONFIG)
        produce(cluster, topic, 0, RECORDS)
        where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)

        def is_copied() -> bool:
            if any(len(segments(store, topic, each)) < 8 for each in range(PARTITIONS)):
                return False
            ran = ottla("tier", "describe", *where, "--json")
            rows = json.loads(ran.out)["topics"][0]["partitions"]
            return all(row.get("lag_segments") == 0 for row in rows)

        eventually(is_copied, within=60, what="all closed segments in the remote tier")
        records = read(cluster, topic)
    before = {each: segments(store, topic, each) for each in range(PARTITIONS)}
    plan = ottla("tier", "restore", "--remote-storage", store.as_uri(), "--topic", topic, "--plan")
    assert plan.code == 0, plan.err
    rows = [line.split() for line in plan.out.splitlines() if line[:1].isdigit()]
    ends = {int(row[0]): int(row[1].partition("..")[2]) + 1 for row in rows}
    for partition, end in ends.items():
        # All but the active segment, which was not empty.
        assert 0 < end < len(records[partition])
        assert int(rows[partition][2]) == len(before[partition])
    return Stored(store, topic, records, ends)


@pytest.fixture
def copy(stored: Stored, tmp_path: Path) -> Stored:
    """A copy of the store, to be changed."""
    shutil.copytree(stored.store, tmp_path / "store")
    return Stored(tmp_path / "store", stored.topic, stored.records, stored.ends)


@kinds(Kind.COMBINED, Kind.ZOOKEEPER)
def test_a_restored_topic_has_its_records_and_goes_on(
    copy: Stored, kind: Kind, new_cluster: NewCluster
) -> None:
    topic, expected = copy.topic, copy.expected()
    with new_cluster(kind, 3, remote_storage=copy.store.as_uri(), config=TIERED) as cluster:
        where = (*copy.where, "--bootstrap-server", cluster.bootstrap, "--topic", topic)
        ran = ottla("tier", "restore", *where, "--replication-factor", "3")
        assert ran.code == 0, ran.err
        assert crc(read(cluster, topic)) == crc(expected)
        again = ottla("tier", "restore", *where)
        assert again.code == 1
        assert f"Topic '{topic}' exists" in again.err

        with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
            configs = admin.topic_config(topic)
        assert configs["max.message.bytes"] == "200000"
        cluster.wait_in_sync(topic)
        copied = {each: len(segments(copy.store, topic, each)) for each in range(PARTITIONS)}
        produce(cluster, topic, RECORDS, 36 * PARTITIONS)
        found = read(cluster, topic)
        for partition, rows in found.items():
            assert [offset for offset, _, _ in rows] == list(range(len(rows)))
            end = copy.ends[partition]
            assert rows[:end] == expected[partition]
            assert rows[end][1] == b"key-%d" % (RECORDS + partition)
        eventually(
            lambda: all(len(segments(copy.store, topic, each)) > copied[each] for each in copied),
            within=60,
            what="new segments in the store",
        )
        # A restart, and each replica as the leader.
        for node in (1, 2):
            cluster.kill(node)
            for partition in range(PARTITIONS):  # Waits for a leader.
                assert earliest(cluster, topic, EARLIEST, partition) == 0
            assert crc(read(cluster, topic)) == crc(found)
            cluster.start(node)
            cluster.wait_ready()
            cluster.wait_in_sync(topic)
        with Closing(client_of("confluent").consumer(cluster.bootstrap, group=new_name("g"))) as c:
            c.subscribe([topic])
            count = 0

            def is_read() -> bool:
                nonlocal count
                count += len(c.poll(1.0))
                return count == sum(map(len, found.values()))

            eventually(is_read, within=60, what="all records in a group")
        with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
            admin.set_topic_config(topic, "retention.bytes", str(3 * 16_384))
        eventually(
            lambda: all(len(segments(copy.store, topic, each)) <= 4 for each in range(PARTITIONS)),
            within=60,
            what="expired segments deleted",
        )


def test_what_a_store_has_is_listed_and_what_it_has_not_is_refused(copy: Stored) -> None:
    listed = ottla("tier", "restore", *copy.where, "--list")
    assert listed.code == 0, listed.err
    [titles, row] = listed.out.splitlines()
    assert titles.split()[:3] == ["TOPIC", "TOPIC", "ID"]
    assert (row.split()[0], row.split()[2]) == (copy.topic, str(PARTITIONS))
    unknown = ottla("tier", "restore", *copy.where, "--topic", "unknown")
    assert unknown.code == 1
    assert "has no topic unknown" in unknown.err
    last = sorted(copy.store.glob(f"{copy.topic}-*/1/manifest/*"))[-1]
    last.write_bytes(last.read_bytes()[:-20])
    damaged = ottla("tier", "restore", *copy.where, "--topic", copy.topic)
    assert damaged.code == 1
    assert "cannot be restored: partition 1:" in damaged.err
    assert last.name in damaged.err
