"""Tiered topics: their configuration, what is in the store, and what clients read of them."""

import zlib
from collections.abc import Mapping
from pathlib import Path

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import check as raise_error
from ottla.testing import Cluster
from ottla.wire.messages import list_offsets as wire

from . import stored
from .clients import Closing, Message, Producer, client_of, eventually
from .conftest import BROKERS, QUICK_FENCING

TIERED = QUICK_FENCING | {
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
RECORDS = 42 * 16
VALUE_BYTES = 1_000
REMOTE_SEGMENTS_MIN = 40
LOCAL_SEGMENTS_MAX = 2
LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4


def produced(
    cluster: Cluster, topic: str, *, replicas: int = 3, config: Mapping[str, str] = TOPIC
) -> list[bytes]:
    """Create a tiered topic, and produce the records of 42 segments; return their values."""
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.create_topic(topic, replication_factor=replicas, config=dict(config))
    return produce(cluster, topic, range(RECORDS))


def produce(cluster: Cluster, topic: str, numbers: range) -> list[bytes]:
    """Produce one record a number, four a batch, each once; return their values."""
    with Closing(client_of("confluent").producer(cluster.bootstrap, idempotent=True)) as producer:
        return send(producer, topic, numbers)


def send(producer: Producer, topic: str, numbers: range) -> list[bytes]:
    """As `produce`, with a producer that has its id."""
    values = [b"%06d" % number + bytes([number % 251]) * VALUE_BYTES for number in numbers]
    for begin in range(0, len(values), 4):
        some = values[begin : begin + 4]
        producer.send([Message(topic=topic, value=value) for value in some])
    return values


def remote_segments(cluster: Cluster, topic: str, partition: int = 0) -> list[Path]:
    """Return the segment objects of a partition in the store, oldest first."""
    found = cluster.remote_dir.glob(f"{topic}-*/{partition}/*.log")
    return sorted(found, key=lambda path: path.name)


def wait_tiered(cluster: Cluster, topic: str) -> None:
    """Wait until all closed segments are in the remote tier, and local retention has followed."""

    def is_tiered() -> bool:
        return len(remote_segments(cluster, topic)) >= REMOTE_SEGMENTS_MIN and all(
            0 < len(stored.segments(cluster, topic, node=node)) <= LOCAL_SEGMENTS_MAX
            for node in BROKERS
        )

    eventually(is_tiered, within=60, what="all closed segments in the remote tier")


def crc(values: list[bytes]) -> int:
    found = 0
    for value in values:
        found = zlib.crc32(value, found)
    return found


def read_all(cluster: Cluster, topic: str, name: str = "confluent") -> list[bytes]:
    """Read a partition from offset 0 to the high watermark; offsets have no gap."""
    return read_from(cluster, topic, 0, name)


def read_from(cluster: Cluster, topic: str, start: int, name: str = "confluent") -> list[bytes]:
    """Read a partition from an offset to the high watermark; offsets have no gap."""
    with Closing(client_of(name).consumer(cluster.bootstrap)) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), start)
        end = latest(cluster, topic)
        values: list[bytes] = []

        def is_read() -> bool:
            for record in consumer.poll(1.0):
                assert record.offset == start + len(values)
                assert record.value is not None
                values.append(record.value)
            return start + len(values) >= end

        eventually(is_read, within=60, what="all records")
    return values


def check(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """Check the earliest offsets of both tiers, and read everything."""
    assert earliest(cluster, topic, EARLIEST) == 0
    assert earliest(cluster, topic, EARLIEST_LOCAL) > 0
    assert crc(read_all(cluster, topic)) == crc(values)


def earliest(cluster: Cluster, topic: str, timestamp: int, partition: int = 0) -> int:
    """Return an earliest offset: of both tiers (-2), or of local disks (-4)."""
    return _offset(cluster, topic, timestamp, partition)


def latest(cluster: Cluster, topic: str, partition: int = 0) -> int:
    """Return the high watermark. A new leader does not know it at once (KIP-207), for which
    librdkafka has a few hundred milliseconds' patience."""
    return _offset(cluster, topic, LATEST, partition)


def _offset(cluster: Cluster, topic: str, timestamp: int, partition: int) -> int:
    with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:

        def ask() -> int:
            leader = client.leader((topic, partition))
            asked = wire.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            request = wire.ListOffsetsRequest(
                replica_id=-1, topics=(wire.ListOffsetsTopic(name=topic, partitions=(asked,)),)
            )
            answer = client.ask(request, wire.ListOffsetsResponse, node=leader.node)
            found = answer.topics[0].partitions[0]
            raise_error(topic, found.error_code)
            return found.offset

        return client.with_retries(ask, repeatable=True)
