"""Tiered storage beside a broker without it, in the same run, over a directory as the store.

What copying costs, how fast old records are read, what producers notice of copies, and how soon a
broker with many remote segments serves. "Cold" reads find nothing in the broker's memory, "warm"
ones all; the page cache has the objects in both cases, as it has the local log's files. Ratios
count, since the client shares the cores. Names of parts on the command line run only those.
"""

import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import psutil
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from rich.console import Console
from rich.table import Table

from clients import batches, new_consumer
from ottla.base.ids import Uuid
from ottla.client.connection import Connection
from ottla.records.batch import iter_headers
from ottla.records.builder import encode_batch
from ottla.testing import Cluster
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.metadata_records import encode
from ottla.tiered.segment_metadata import Fence, SegmentMetadata, SegmentState, SegmentUpdate
from ottla.wire.messages import describe_remote_log as wire
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from waiting import until

MB = 1_000_000
RECORD_BYTES = 1_000
SEGMENT_BYTES = 16 << 20
TOTAL_MB = 384
WARM_MB = 64
"""Less than ottla.remote.chunk.cache.size.bytes, and far less than TOTAL_MB."""
ROUNDS = 3
FETCH_BYTES = 1 << 20
"""As clients ask for by default."""

BULK_MB_PER_S = 20
PACE_SECONDS = 8.0
PACE_ROUNDS = 3

SEGMENTS = 100_000
TIERED_PARTITIONS = 100
METADATA_PARTITIONS = 50
METADATA_TOPIC = "__remote_log_metadata"

CONFIG = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}
TIERED = {"remote.storage.enable": "true"}
ROLLED = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "100"}


class Node:
    """One combined node with tiered storage."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.cluster.pid(1))

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        return float(self.process.memory_info().rss) / MB

    def create(self, partitions: int, config: dict[str, str]) -> str:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        wanted = NewTopic(topic, partitions, 1, config=config)
        self.admin.create_topics([wanted])[topic].result(30)
        return topic

    def topic_id(self, topic: str) -> Uuid:
        found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
        most, least = (
            each % (1 << 64)
            for each in (found.get_most_significant_bits(), found.get_least_significant_bits())
        )
        return Uuid(most.to_bytes(8, "big") + least.to_bytes(8, "big"))

    def configure(self, topic: str, **changes: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def described(self, topics: list[str] | None = None) -> list[wire.RemoteLogPartition]:
        """Return the partitions' tiers, of all tiered topics if none is named."""
        port = int(self.cluster.address(1).rpartition(":")[2])
        asked = None if topics is None else tuple(map(_all_partitions, topics))
        with Connection("127.0.0.1", port, client_id="bench", timeout=30) as connection:
            request = wire.DescribeRemoteLogRequest(topics=asked)
            answer = connection.ask(request, wire.DescribeRemoteLogResponse, timeout=30)
        return [each for topic in answer.topics for each in topic.partitions]


def _all_partitions(topic: str) -> wire.DescribeRemoteLogTopic:
    return wire.DescribeRemoteLogTopic(name=topic, partitions=(0,))


@contextmanager
def node(**config: str) -> Iterator[Node]:
    """Run one node in a temporary folder."""
    options = CONFIG | {name.replace("_", "."): value for name, value in config.items()}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        Cluster(brokers=1, remote_storage=True, data_dir=Path(folder), config=options) as cluster,
    ):
        cluster.wait_ready(60)
        yield Node(cluster)


def fill(bootstrap: str, topic: str, mb: int) -> int:
    """Write so many MB to partition 0; return the number of records."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 5_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "log_level": 0,
        }
    )
    messages = [{"value": b"x" * RECORD_BYTES}] * 1000
    for _ in range(mb):
        producer.produce_batch(topic, messages, partition=0)
    assert producer.flush(120) == 0
    return mb * 1000


def consumed_mb_per_s(bootstrap: str, topic: str, mb: int) -> float:
    """Read the first MB of partition 0; return the rate."""
    consumer = new_consumer(bootstrap, [TopicPartition(topic, 0, 0)])
    begun = time.perf_counter()
    for messages in batches(consumer, mb * 1000, silence_s=30):
        for each in messages:
            assert each.error() is None, each.error()
    elapsed_s = time.perf_counter() - begun
    consumer.close()
    return mb / elapsed_s


def fetched_mb_per_s(server: Node, topic_id: Uuid, mb: int) -> tuple[float, float]:
    """Fetch the first MB of partition 0 as fast as the broker sends them, one request at a time.

    Returns the rate, and the broker's CPU milliseconds for each MB. Nothing is decoded but the
    batches' headers, so that the client's time hides less of the broker's.
    """
    port = int(server.cluster.address(1).rpartition(":")[2])
    offset = received = 0
    with Connection("127.0.0.1", port, client_id="bench", timeout=30) as connection:
        cpu_s, begun = server.cpu_s(), time.perf_counter()
        while offset < mb * 1000:
            wanted = FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
            )
            request = FetchRequest(
                max_wait_ms=5_000,
                min_bytes=1,
                session_epoch=-1,
                topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
            )
            answer = connection.ask(request, FetchResponse, timeout=30)
            part = answer.responses[0].partitions[0]
            assert part.error_code == 0, part.error_code
            data = part.records or b""
            assert isinstance(data, bytes | memoryview), type(data)
            received += len(data)
            for _, header in iter_headers(data, allow_partial=True):
                offset = max(offset, header.next_offset)
        elapsed_s, cpu_s = time.perf_counter() - begun, server.cpu_s() - cpu_s
    return received / MB / elapsed_s, cpu_s * 1000 / (received / MB)


# -- Copies, and reads of what was copied ----------------------------------------------------------


def copies_and_reads(console: Console) -> None:
    """Fill a topic, read it, have it copied, and read it again from the store."""
    with node() as server:
        topic = server.create(1, ROLLED)
        fill(server.bootstrap, topic, TOTAL_MB)
        consumed_mb_per_s(server.bootstrap, topic, TOTAL_MB)  # Pays for connections.
        local = [consumed_mb_per_s(server.bootstrap, topic, TOTAL_MB) for _ in range(ROUNDS)]
        some = [consumed_mb_per_s(server.bootstrap, topic, WARM_MB) for _ in range(ROUNDS)]
        topic_id = server.topic_id(topic)
        raw_local = [fetched_mb_per_s(server, topic_id, TOTAL_MB) for _ in range(ROUNDS)]
        raw_some = [fetched_mb_per_s(server, topic_id, WARM_MB) for _ in range(ROUNDS)]
        cpu_s, begun = server.cpu_s(), time.perf_counter()
        server.configure(topic, remote_storage_enable="true")

        def is_copied() -> bool:
            (found,) = server.described([topic])
            return found.remote_segments > 0 and found.lag_segments == 0

        until(is_copied, within_s=300)
        elapsed_s, cpu_s = time.perf_counter() - begun, server.cpu_s() - cpu_s
        (found,) = server.described([topic])
        copied_mb = found.remote_bytes / MB
        server.configure(topic, local_retention_bytes="1")
        end = found.remote_end_offset
        until(lambda: server.described([topic])[0].local_start_offset > end, within_s=60)
        remote_mb = int(copied_mb) - 1
        resident_mb = server.resident_mb()
        cold = [consumed_mb_per_s(server.bootstrap, topic, remote_mb) for _ in range(ROUNDS)]
        warm = [consumed_mb_per_s(server.bootstrap, topic, WARM_MB) for _ in range(ROUNDS + 1)][1:]
        raw_cold = [fetched_mb_per_s(server, topic_id, remote_mb) for _ in range(ROUNDS)]
        raw_warm = [fetched_mb_per_s(server, topic_id, WARM_MB) for _ in range(ROUNDS + 1)][1:]
        grown_mb = server.resident_mb() - resident_mb
    table = Table(title=f"copies and reads: {TOTAL_MB} MB of 1000 B records, one partition")
    for heading in ("", "measured", "local", "ratio", "target"):
        table.add_column(heading, justify="right")
    table.add_row("copy, MB/s", f"{copied_mb / elapsed_s:.0f}")
    table.add_row("copy, CPU s per GB", f"{cpu_s / copied_mb * 1000:.2f}")
    for name, rates, against, target in (
        ("consume, cold, MB/s", cold, local, 0.5),
        ("consume, warm, MB/s", warm, some, 0.8),
        ("fetch, cold, MB/s", _rates(raw_cold), _rates(raw_local), 0.5),
        ("fetch, warm, MB/s", _rates(raw_warm), _rates(raw_some), 0.8),
    ):
        ratio = median(rates) / median(against)
        met = "met" if ratio >= target else "MISSED"
        table.add_row(
            name,
            f"{median(rates):.0f}",
            f"{median(against):.0f}",
            f"{ratio:.2f}",
            f"at least {target}: {met}",
        )
    for name, *measured in (
        ("fetch, cold, CPU ms per MB", raw_cold, raw_local),
        ("fetch, warm, CPU ms per MB", raw_warm, raw_some),
    ):
        costs = [median(cpu_ms for _, cpu_ms in each) for each in measured]
        table.add_row(name, *(f"{each:.2f}" for each in costs), f"{costs[0] / costs[1]:.1f}")
    table.add_row("memory grown by reading, MB", f"{grown_mb:.0f}")
    console.print(table)


def _rates(runs: list[tuple[float, float]]) -> list[float]:
    return [rate for rate, _ in runs]


# -- What producers notice of copies ---------------------------------------------------------------


def produce_beside_copies(console: Console) -> None:
    """Compare a paced producer beside another one whose topic is copied, and is not."""
    times: dict[bool, list[float]] = {False: [], True: []}
    with node() as server:
        bystander = server.create(1, {})
        for _ in range(PACE_ROUNDS):
            for tiered in (False, True):
                times[tiered].append(_paced_p99_ms(server, bystander, tiered=tiered))
    ratio = median(times[True]) / median(times[False])
    table = Table(
        title=f"p99 of a producer, acks=all, beside {BULK_MB_PER_S} MB/s to another topic"
    )
    for heading in ("", "ms", "rounds"):
        table.add_column(heading, justify="right")
    for name, tiered in (("not copied", False), ("copied", True)):
        rounds = ", ".join(f"{each:.2f}" for each in times[tiered])
        table.add_row(name, f"{median(times[tiered]):.2f}", rounds)
    table.add_row("ratio", f"{ratio:.2f}", f"at most 1.3: {'met' if ratio <= 1.3 else 'MISSED'}")
    console.print(table)


def _paced_p99_ms(server: Node, bystander: str, *, tiered: bool) -> float:
    bulk = server.create(1, ROLLED | (TIERED if tiered else {}))
    stop = Event()
    filling = Thread(target=_fill_at_rate, args=(server.bootstrap, bulk, stop))
    filling.start()
    if tiered:
        until(lambda: server.described([bulk])[0].remote_segments > 0, within_s=60)
    else:
        time.sleep(2.0)
    times: list[float] = []
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    )
    producer.list_topics(bystander, timeout=10)
    due = time.perf_counter()
    until_s = due + PACE_SECONDS
    while due < until_s:
        begun = time.perf_counter()
        producer.produce(bystander, b"x" * 100, partition=0)
        assert producer.flush(30) == 0
        times.append((time.perf_counter() - begun) * 1000)
        due += 0.005
        time.sleep(max(0.0, due - time.perf_counter()))
    stop.set()
    filling.join(60)
    if tiered:
        assert server.described([bulk])[0].remote_segments > 3, "nothing was copied meanwhile"
    server.admin.delete_topics([bulk])[bulk].result(30)
    return sorted(times)[len(times) * 99 // 100]


def _fill_at_rate(bootstrap: str, topic: str, stop: Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": 5_000_000,
            "log_level": 0,
        }
    )
    messages = [{"value": b"x" * RECORD_BYTES}] * 100
    due = time.perf_counter()
    while not stop.is_set():
        producer.produce_batch(topic, messages, partition=0)
        producer.poll(0)
        due += len(messages) * RECORD_BYTES / (BULK_MB_PER_S * MB)
        time.sleep(max(0.0, due - time.perf_counter()))
    producer.flush(60)


# -- A start with many remote segments -------------------------------------------------------------


def start_with_many_segments(console: Console) -> None:
    """Write the metadata of many segments into the log of their topic, and start the broker."""
    each = SEGMENTS // TIERED_PARTITIONS
    with node() as server:
        cluster = server.cluster
        topic = server.create(TIERED_PARTITIONS, TIERED | {"retention.ms": "-1"})
        topic_id = server.topic_id(topic)
        producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
        for partition in range(TIERED_PARTITIONS):
            messages = [{"value": b"x"}] * (each + 1)
            assert producer.produce_batch(topic, messages, partition=partition) == len(messages)
            assert producer.flush(60) == 0  # All together would be more than its queue holds.
        until(lambda: METADATA_TOPIC in server.admin.list_topics(timeout=10).topics, within_s=60)
        cluster.stop(1)
        rows = [("no remote segments", *_start(server, 0))]
        cluster.kill(1)
        written_mb = _write_metadata(cluster.data_dir(1), topic, topic_id, each) / MB
        name = f"{SEGMENTS:,} segments, {written_mb:.0f} MB of metadata read"
        rows.append((name, *_start(server, SEGMENTS)))
        cluster.stop(1)
        rows.append((f"{SEGMENTS:,} segments, from the checkpoint", *_start(server, SEGMENTS)))
    table = Table(title=f"start of a broker with {TIERED_PARTITIONS} tiered partitions")
    for heading in ("", "serving, s", "all segments known, s", "CPU s", "memory, MB"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row[0], *(f"{cell:.2f}" for cell in row[1:]))
    console.print(table)


def _start(server: Node, segments: int) -> tuple[float, float, float, float]:
    """Start the node; return the seconds until it serves and knows its segments, CPU, memory."""
    begun = time.perf_counter()
    server.cluster.start(1)
    server.cluster.wait_ready(120)
    serving_s = time.perf_counter() - begun

    def is_known() -> bool:
        found = server.described()
        return (
            len(found) == TIERED_PARTITIONS
            and sum(max(0, each.remote_segments) for each in found) == segments
            and all(each.remote_segments >= 0 for each in found)
        )

    until(is_known, within_s=300, every_s=0.5)
    return serving_s, time.perf_counter() - begun, server.cpu_s(), server.resident_mb()


def _write_metadata(data: Path, topic: str, topic_id: Uuid, each: int) -> int:
    """Append the records of all segments to the logs of a node that was killed; return bytes."""
    values: dict[int, list[bytes]] = {}
    for partition in range(TIERED_PARTITIONS):
        number = metadata_partition(topic_id, partition, METADATA_PARTITIONS)
        values.setdefault(number, []).extend(_metadata(topic, topic_id, partition, each))
    written = 0
    for number, own in sorted(values.items()):
        (path,) = (data / f"{METADATA_TOPIC}-{number}").glob("*.log")
        offset = epoch = 0
        for _, header in iter_headers(path.read_bytes()):
            offset, epoch = header.next_offset, header.partition_leader_epoch
        with path.open("ab") as log:
            for first in range(0, len(own), 500):
                rows = [(None, value, (), 1) for value in own[first : first + 500]]
                written += log.write(encode_batch(rows, base_offset=offset, leader_epoch=epoch))
                offset += len(rows)
    return written


def _metadata(topic: str, topic_id: Uuid, partition: int, each: int) -> Iterator[bytes]:
    """Yield the records of a partition's segments, of one offset each."""
    common: dict[str, Any] = {
        "topic": topic,
        "topic_id": topic_id,
        "partition": partition,
        "broker_id": 1,
        "leader_epoch": 0,
        "tiered_epoch": 1,
        "event_timestamp_ms": 1,
    }
    yield encode(Fence(**common, state=1, floor=0))
    for offset in range(each):
        segment_id = Uuid(uuid.uuid4().bytes)
        yield encode(
            SegmentMetadata(
                **common,
                segment_id=segment_id,
                start_offset=offset,
                end_offset=offset,
                max_timestamp_ms=1,
                size_bytes=100,
                epochs=((0, offset),),
                state=SegmentState.COPY_STARTED,
            )
        )
        yield encode(
            SegmentUpdate(**common, segment_id=segment_id, state=SegmentState.COPY_FINISHED)
        )


PARTS = {
    "copies": copies_and_reads,
    "produce": produce_beside_copies,
    "start": start_with_many_segments,
}


def main(console: Console, names: list[str]) -> None:
    """Run and print."""
    for name in names or PARTS:
        PARTS[name](console)


if __name__ == "__main__":
    main(Console(width=140), sys.argv[1:])
