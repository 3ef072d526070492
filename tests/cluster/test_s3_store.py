"""Brokers with an S3 store: copies, reads, a restart of the endpoint, deletions, and a restore.

Method: moto's server behind a gate, which refuses connections while it is away. What is in the
bucket is listed past the gate; consumers read everything from offset 0, and the CRC is compared.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from ottla.testing import Cluster
from tests.unit.stores.moto_server import MotoServer

from .clients import Closing, Message, client_of, eventually
from .conftest import new_name
from .ottla_command import ottla
from .store_gate import StoreGate
from .tiered import TIERED, TOPIC, crc, earliest, read_all

pytestmark = pytest.mark.timeout(300)

BUCKET = "brokers"
VALUE_BYTES = 1_000
RECORDS_PER_SEGMENT = 15
EARLIEST = -2
AWAY_SECONDS = 5


class Bucket:
    """The endpoint of the brokers, and the bucket as it is."""

    def __init__(self, moto: MotoServer) -> None:
        self._moto_port = int(moto.url.rpartition(":")[2])
        self._client = boto3.client("s3", endpoint_url=moto.url, region_name="us-east-1")
        self._client.create_bucket(Bucket=BUCKET)
        self._gate = ExitStack()
        self.port = 0
        self.come_back()

    @property
    def uri(self) -> str:
        return f"s3://{BUCKET}/tier?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"

    def go_away(self) -> None:
        """Refuse connections, and break those that there are."""
        self._gate.close()

    def come_back(self) -> None:
        gate = self._gate.enter_context(StoreGate(self._moto_port, port=self.port))
        self.port = gate.port

    def segments(self, topic: str) -> list[str]:
        """Return the names of a topic's segments, by offset."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"tier/{topic}-"
        )
        found: list[Any] = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return sorted(each for each in found if each.endswith(".log"))


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with MotoServer() as moto, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        made = Bucket(moto)
        yield made
        made.go_away()


@pytest.fixture(scope="module")
def cluster(bucket: Bucket) -> Iterator[Cluster]:
    with Cluster(remote_storage=bucket.uri, config=TIERED) as started:
        yield started


def produce(cluster: Cluster, topic: str, first: int, segments: int) -> list[bytes]:
    values = [
        b"%06d" % number + bytes([number % 251]) * VALUE_BYTES
        for number in range(first, first + segments * RECORDS_PER_SEGMENT)
    ]
    with Closing(client_of("confluent").producer(cluster.bootstrap)) as producer:
        for begin in range(0, len(values), 5):
            some = values[begin : begin + 5]
            producer.send([Message(topic=topic, value=value) for value in some])
    return values


def wait_copied(bucket: Bucket, topic: str, segments: int) -> None:
    eventually(
        lambda: len(bucket.segments(topic)) >= segments,
        within=90,
        what=f"{segments} segments in the bucket",
    )


def test_an_endpoint_that_is_restarted_while_segments_are_copied(
    bucket: Bucket, cluster: Cluster
) -> None:
    topic = new_name("s3")
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.create_topic(topic, replication_factor=1, config=TOPIC)
    values = produce(cluster, topic, 0, 10)
    wait_copied(bucket, topic, 2)
    bucket.go_away()
    copied = len(bucket.segments(topic))
    values += produce(cluster, topic, len(values), 10)
    time.sleep(AWAY_SECONDS)
    assert len(bucket.segments(topic)) <= copied + 1  # What was sent before may still arrive.
    bucket.come_back()
    wait_copied(bucket, topic, 17)
    assert crc(read_all(cluster, topic)) == crc(values)

    plan = ottla("tier", "restore", "--remote-storage", bucket.uri, "--topic", topic, "--plan")
    assert plan.code == 0, plan.err

    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.set_topic_config(topic, "retention.bytes", str(5 * 16_384))
    eventually(lambda: len(bucket.segments(topic)) <= 6, within=60, what="expired segments gone")
    assert earliest(cluster, topic, EARLIEST) > 0
