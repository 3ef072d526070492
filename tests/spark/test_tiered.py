"""A tiered topic is one table: remote records come from the object store, the rest from brokers.

Method: a cluster of its own with a directory as the store, segments of 16 KB and a local retention
of nothing, so that all but the last segments are remote only. Rows of tables and of streams are
compared with those of a plain consumer; brokers' metrics show what they served. The last test stops
the brokers.
"""

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.spark.jobs.export import ExportOptions, Source, export
from ottla.spark.jobs.replay import ReplayOptions, replay
from ottla.spark.tiers import tier_lookup
from ottla.spark.tiers.tier_planning import Tiers
from ottla.testing import Cluster
from tests.cluster import stored
from tests.exposition import Scrape
from tests.unit.spark.tiered_log import TieredLog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CONFIG = {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "300",
    "remote.log.manager.task.interval.ms": "300",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "log.retention.ms": "-1",
}
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}
PARTITIONS = 2
RECORDS = 400
REMOTE_MIN = 300
"""Offsets of each partition that are remote only."""
WITHIN_SECONDS = 60.0

Row = tuple[int, int, bytes, bytes, int, Any]


@pytest.fixture(scope="module")
def tiered() -> Iterator[Cluster]:
    with Cluster(brokers=1, config=CONFIG, remote_storage=True, metrics=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def orders(tiered: Cluster) -> str:
    return filled(tiered, "orders")


def created(cluster: Cluster, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=TOPIC)])[topic].result(30)
    return topic


def filled(cluster: Cluster, topic: str) -> str:
    """Create a topic, fill it, and wait until most of it is remote only."""
    fill(cluster, created(cluster, topic), range(RECORDS * PARTITIONS))
    until_remote(cluster, topic)
    return topic


def fill(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "batch.num.messages": 4}
    )
    for number in numbers:
        producer.produce(
            topic,
            b"%06d" % number + b"x" * 500,
            b"k%d" % number,
            number % PARTITIONS,
            headers=[("n", b"%d" % number)] if number % 3 else None,
            timestamp=1_700_000_000_000 + number,
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def until_remote(cluster: Cluster, topic: str) -> None:
    until(
        lambda: all(each.local_start >= REMOTE_MIN for each in tiers_of(cluster, topic).values()),
        "most records in the remote tier only",
    )


def until(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, f"no {what} within {WITHIN_SECONDS} s"
        time.sleep(0.1)


def tiers_of(cluster: Cluster, topic: str) -> dict[Any, Tiers]:
    with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:
        [found] = client.topics([topic])
        ids = {(topic, number): found.topic_id for number in range(PARTITIONS)}
        return tier_lookup.describe(client, ids)


@pytest.fixture
def read(spark: Any, tiered: Cluster) -> Callable[..., Any]:
    def read(topic: str, /, *, brokers: bool = True, store: str = "", **options: str) -> Any:
        reader = spark.read.format("ottla").option("subscribe", topic)
        reader = reader.option("ottla.remote.storage.uri", store or tiered.remote_dir.as_uri())
        if brokers:
            reader = reader.option("kafka.bootstrap.servers", tiered.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return read


def stream(
    spark: Any,
    cluster: Cluster,
    topic: str,
    directory: Path,
    *,
    brokers: bool = True,
    isolation: str = "read_uncommitted",
) -> Any:
    """Return what writes a topic's rows to a directory, in batches of 150 offsets."""
    reader = spark.readStream.format("ottla").option("subscribe", topic)
    reader = reader.option("ottla.remote.storage.uri", cluster.remote_dir.as_uri())
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    if brokers:
        reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
    reader = reader.option("kafka.isolation.level", isolation)
    frame = reader.option("maxOffsetsPerTrigger", "150").load()
    writer = frame.writeStream.format("parquet").option("path", str(directory / "rows"))
    return writer.option("checkpointLocation", str(directory / "checkpoint"))


def streamed(spark: Any, directory: Path) -> list[Row]:
    return rows(spark.read.parquet(str(directory / "rows")))


def consumed(cluster: Cluster, topic: str) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "plain"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Row] = []
    deadline = time.monotonic() + WITHIN_SECONDS
    while len(found) < RECORDS * PARTITIONS:
        assert time.monotonic() < deadline, "the consumer got too few records"
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            found.append(
                (
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    message.headers(),
                )
            )
    consumer.close()
    return sorted(found)


def rows(frame: Any) -> list[Row]:
    columns = ("partition", "offset", "key", "value", "unix_millis(timestamp) ms", "headers")
    found = frame.selectExpr(*columns).collect()
    return sorted(
        (
            each.partition,
            each.offset,
            bytes(each.key),
            bytes(each.value),
            each.ms,
            each.headers and [(one.key, bytes(one.value)) for one in each.headers],
        )
        for each in found
    )


def bytes_out(cluster: Cluster, topic: str) -> float:
    url = f"http://{cluster.metrics_address(1)}/metrics"
    with urllib.request.urlopen(url, timeout=20) as answer:
        found = Scrape(answer.read().decode())
    return found.value("kafka_server_broker_topic_metrics_bytes_out_total", topic=topic)


def test_it_is_the_whole_topic_and_brokers_serve_only_the_rest(
    read: Callable[..., Any], tiered: Cluster, orders: str
) -> None:
    expected = consumed(tiered, orders)
    tiers = tiers_of(tiered, orders)
    before = bytes_out(tiered, orders)
    remote_ends = {each[1]: tiers[each].segments[-1].end_offset for each in tiers}
    ends = ",".join(f'"{number}":{end}' for number, end in remote_ends.items())
    remote = read(orders, includeHeaders="true", endingOffsets=f'{{"{orders}":{{{ends}}}}}')
    assert rows(remote) == [each for each in expected if each[1] < remote_ends[each[0]]]
    assert bytes_out(tiered, orders) == before
    whole = read(orders, includeHeaders="true", minPartitions="4")
    assert rows(whole) == expected
    served = bytes_out(tiered, orders) - before
    assert 0 < served <= sum(each.local_bytes for each in tiers.values())
    # Within segments, at offsets and at a timestamp.
    inner = read(orders, startingOffsets=f'{{"{orders}":{{"0":77,"1":3}}}}')
    assert inner.count() == len(expected) - 80
    since = read(
        orders, startingTimestamp=str(1_700_000_000_000 + 500), maxRecordsPerPartition="60"
    )
    assert since.count() == len(expected) - 500


def test_a_stream_reads_both_tiers_while_the_boundary_moves(
    spark: Any, tiered: Cluster, tmp_path: Path
) -> None:
    topic = created(tiered, "streamed")
    running = stream(spark, tiered, topic, tmp_path / "tail").start()
    quarter = RECORDS * PARTITIONS // 4
    local_starts = set()
    for number in range(4):
        fill(tiered, topic, range(number * quarter, (number + 1) * quarter))
        running.processAllAvailable()
        local_starts |= {each.local_start for each in tiers_of(tiered, topic).values()}
    running.stop()
    expected = consumed(tiered, topic)
    assert streamed(spark, tmp_path / "tail") == expected
    until_remote(tiered, topic)
    tiers = tiers_of(tiered, topic).values()
    assert min(local_starts) < min(each.local_start for each in tiers)
    # One that begins in the object store goes on to the brokers by itself.
    before = bytes_out(tiered, topic)
    late = stream(spark, tiered, topic, tmp_path / "late").trigger(availableNow=True).start()
    late.awaitTermination()
    assert streamed(spark, tmp_path / "late") == expected
    assert len(late.recentProgress) > 4
    # A fetch may bring a little of what is behind a batch.
    served = bytes_out(tiered, topic) - before
    assert served < sum(each.size_bytes for tier in tiers for each in tier.segments) / 2


def test_one_trigger_reads_both_tiers_at_once(
    spark: Any, tiered: Cluster, orders: str, tmp_path: Path
) -> None:
    batches = []
    for _ in range(2):
        query = stream(spark, tiered, orders, tmp_path).trigger(once=True).start()
        query.awaitTermination()
        batches.append([each["numInputRows"] for each in query.recentProgress])
    # It ignores all limits; there is nothing left for the second one.
    assert [sum(each) for each in batches] == [RECORDS * PARTITIONS, 0]
    assert max(batches[0]) == RECORDS * PARTITIONS
    assert streamed(spark, tmp_path) == consumed(tiered, orders)


def append_transactions(cluster: Cluster, topic: str, *, is_last_open: bool) -> TieredLog:
    """Append transactions to the log of partition 0 while its broker is killed; return them.

    Brokers refuse those of producers, and serve those of a log that Kafka has written.
    """
    last = stored.batches(cluster, topic)[-1]
    begin = last.next_offset
    log = TieredLog(end=begin, start=begin, epochs=[(last.partition_leader_epoch, begin)])
    for _ in range(3):
        log.append(2, 11)
        log.append(3, 12)
        log.append(1)
        log.end_transaction(12, committed=False)
    log.end_transaction(11, committed=True)
    log.append(4, 13)
    log.append(5)
    if not is_last_open:
        log.end_transaction(13, committed=False)
    cluster.kill(1)
    with stored.segments(cluster, topic)[-1].open("ab") as file:
        file.write(b"".join(each.data for each in log.batches))
    cluster.start(1)
    cluster.wait_ready()
    return log


def offsets_of(frame: Any) -> list[tuple[int, int]]:
    found = frame.select("partition", "offset").collect()
    return sorted((each.partition, each.offset) for each in found)


def test_aborted_transactions_are_left_out_of_both_tiers(
    spark: Any, read: Callable[..., Any], tiered: Cluster, tmp_path: Path
) -> None:
    topic = created(tiered, "transactions")
    fill(tiered, topic, range(10))
    remote = append_transactions(tiered, topic, is_last_open=False)
    fill(tiered, topic, range(10, RECORDS * PARTITIONS))
    until_remote(tiered, topic)
    local = append_transactions(tiered, topic, is_last_open=True)
    assert remote.end < tiers_of(tiered, topic)[topic, 0].local_start <= local.start
    plain = {*range(remote.start), *range(remote.end, local.start)}
    for isolation in ("read_committed", "read_uncommitted"):
        committed = isolation == "read_committed"
        both = [
            offset
            for log in (remote, local)
            for offset, _ in log.expected(log.start, log.end, committed=committed)
        ]
        expected = [(0, offset) for offset in sorted({*plain, *both})]
        expected += [(1, offset) for offset in range(RECORDS)]
        assert offsets_of(read(topic, kafka__isolation__level=isolation)) == expected
        to = tmp_path / isolation
        query = stream(spark, tiered, topic, to, isolation=isolation)
        query.trigger(availableNow=True).start().awaitTermination()
        assert offsets_of(spark.read.parquet(str(to / "rows"))) == expected
    assert remote.aborted_rows
    assert local.aborted_rows
    assert local.stable_end < local.end


def test_what_expired_is_lost_and_named(read: Callable[..., Any], tiered: Cluster) -> None:
    topic = filled(tiered, "expiring")
    strict, lenient = read(topic), read(topic, failOnDataLoss="false")
    assert (strict.count(), lenient.count()) == (RECORDS * PARTITIONS,) * 2
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
    [future] = admin.delete_records([TopicPartition(topic, 0, 250)]).values()
    future.result(30)
    until(lambda: len(objects(tiered, topic, 0)) < 8, "expired segments deleted")
    with pytest.raises(Exception, match=f"{topic}-0: offsets 0 to .* are no longer available"):
        strict.count()
    # The segment with offset 250 is still there, and was planned as a whole.
    first = min(int(path.name[:20]) for path in objects(tiered, topic, 0))
    assert 200 < first <= 250
    assert lenient.count() == RECORDS * PARTITIONS - first


def objects(cluster: Cluster, topic: str, partition: int) -> list[Any]:
    return list(cluster.remote_dir.glob(f"{topic}-*/{partition}/*.log"))


def test_a_deleted_topic_and_a_missing_store(read: Callable[..., Any], tiered: Cluster) -> None:
    topic = filled(tiered, "deleted")
    quick = {"kafka__default__api__timeout__ms": "1000"}
    elsewhere = read(topic, store="file:///no/such/store", **quick)
    with pytest.raises(Exception, match="RemoteStorageError: the object store file:///no/such/st"):
        elsewhere.count()
    remote_only = {"endingOffsets": f'{{"{topic}":{{"0":200,"1":200}}}}'}
    strict, lenient = (
        read(topic, **quick, **remote_only),
        read(topic, failOnDataLoss="false", **quick, **remote_only),
    )
    assert (strict.count(), lenient.count()) == (400, 400)
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: not objects(tiered, topic, 0) + objects(tiered, topic, 1), "purged objects")
    with pytest.raises(Exception, match=f"{topic}-[01]: the topic was deleted, or deleted and re-"):
        strict.count()
    assert lenient.count() == 0


def exported_rows(spark: Any, source: Source, to: Path) -> list[Row]:
    export(spark, ExportOptions(source=source, to=str(to)))
    return rows(spark.read.parquet(str(to)))


def test_an_export_has_both_tiers(spark: Any, tiered: Cluster, orders: str, tmp_path: Path) -> None:
    source = Source(
        topic=orders,
        cluster=ClientConfig(bootstrap=tiered.bootstrap),
        remote_storage=tiered.remote_dir.as_uri(),
    )
    assert exported_rows(spark, source, tmp_path) == consumed(tiered, orders)


def test_without_brokers_it_is_what_the_store_holds(
    spark: Any,
    read: Callable[..., Any],
    load: Callable[..., Any],
    make_topic: Callable[..., str],
    cluster: Cluster,
    tiered: Cluster,
    orders: str,
    tmp_path: Path,
) -> None:
    ends = {key[1]: each.segments[-1].end_offset for key, each in tiers_of(tiered, orders).items()}
    expected = [each for each in consumed(tiered, orders) if each[1] < ends[each[0]]]
    tiered.stop()
    whole = read(orders, brokers=False, includeHeaders="true", minPartitions="3")
    assert rows(whole) == expected
    archive = Source(topic=orders, cluster=None, remote_storage=tiered.remote_dir.as_uri())
    assert exported_rows(spark, archive, tmp_path / "export") == expected
    # The archive, replayed into another cluster.
    target = make_topic(PARTITIONS)
    config = ClientConfig(bootstrap=cluster.bootstrap)
    state = str(tmp_path / "state")
    replay(spark, ReplayOptions(source=archive, to=target, target=config, state=state))
    assert rows(load(target, includeHeaders="true")) == expected
    since = read(orders, brokers=False, startingTimestamp=str(1_700_000_000_000 + 500))
    assert since.count() == len(expected) - 500
    committed = read(orders, brokers=False, isolation="read_committed")
    assert committed.count() == len(expected)
    with pytest.raises(Exception, match="has no topic nothing"):
        read("nothing", brokers=False).count()
    writer = stream(spark, tiered, orders, tmp_path, brokers=False)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert streamed(spark, tmp_path) == expected
