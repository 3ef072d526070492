"""Turning tiered storage off: how long it takes, and what it costs.

For `retain` and `delete`, with so many topics of one partition each: seconds until all are
DISABLED, and for `delete` until all are purged (the last minute waits for late writes). Beside it
for each topic: DisableRemoteTopic requests, bytes of cluster metadata, bytes of
`__remote_log_metadata`; and the brokers' CPU.

Run it as `python benches/disable.py [TOPICS …]` (1 and 100).
"""

import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import psutil
from confluent_kafka import Producer
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

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.metadata.tiering import TieringState
from ottla.testing import Cluster
from ottla.wire.messages import describe_topic_tiering as wire
from waiting import until

BROKERS = 3
SEGMENTS = 3
"""Copied ones of each topic."""
RECORDS_PER_SEGMENT = 4
VALUE = bytes(4_000)
REQUEST_TOPICS_MAX = 500
ENABLED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16000",
    "local.retention.bytes": "1",
}
CONFIG = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": "50",
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}
METADATA_DIRS = "__cluster_metadata-0", "__remote_log_metadata-*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What was used so far. `cluster_bytes` and `remote_bytes`: of the metadata of one replica."""

    cpu_s: float
    requests: int
    cluster_bytes: int
    remote_bytes: int


class Topics:
    """Tiered topics of one run, in a cluster."""

    def __init__(self, cluster: Cluster, count: int, prefix: str) -> None:
        self.cluster = cluster
        self.names = [f"{prefix}-{number}" for number in range(count)]
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.client = ClusterClient(ClientConfig(bootstrap=cluster.bootstrap))

    def create(self) -> None:
        """Create them, and wait until their segments are copied."""
        for first in range(0, len(self.names), REQUEST_TOPICS_MAX):
            some = self.names[first : first + REQUEST_TOPICS_MAX]
            created = self.admin.create_topics(
                [NewTopic(each, 1, BROKERS, config=ENABLED) for each in some]
            )
            for each in created.values():
                each.result(120)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        for _ in range(SEGMENTS * RECORDS_PER_SEGMENT + 1):
            for each in self.names:
                producer.produce(each, VALUE, partition=0)
            producer.flush(120)
        wanted = SEGMENTS * len(self.names)
        until(lambda: self.copied() >= wanted, within_s=600)

    def copied(self) -> int:
        """Return how many segments of these topics are in the store."""
        directory = self.cluster.remote_dir
        assert directory is not None
        prefix = self.names[0].rpartition("-")[0]
        return sum(1 for _ in directory.glob(f"{prefix}-*/0/*.log"))

    def alter(self, **changes: str) -> None:
        """Set configurations of all of them, in few requests."""
        for first in range(0, len(self.names), REQUEST_TOPICS_MAX):
            resources = [
                ConfigResource(
                    ResourceType.TOPIC,
                    name,
                    incremental_configs=[
                        ConfigEntry(
                            key.replace("_", "."),
                            value,
                            incremental_operation=AlterConfigOpType.SET,
                        )
                        for key, value in changes.items()
                    ],
                )
                for name in self.names[first : first + REQUEST_TOPICS_MAX]
            ]
            for each in self.admin.incremental_alter_configs(resources).values():
                each.result(120)

    def described(self) -> list[wire.DescribedTopicTiering]:
        """Return what the controller says of them."""

        def ask() -> wire.DescribeTopicTieringResponse:
            request = wire.DescribeTopicTieringRequest(topics=tuple(self.names))
            return self.client.ask(request, wire.DescribeTopicTieringResponse)

        return list(self.client.with_retries(ask, repeatable=True).topics)

    def are_disabled(self) -> bool:
        return all(each.state == TieringState.DISABLED for each in self.described())

    def are_purged(self) -> bool:
        return not any(each.purge_pending for each in self.described())


def cost(cluster: Cluster) -> Cost:
    """Return what all brokers have used; metadata of the first broker."""
    cpu_s, requests = 0.0, 0
    for node in range(1, BROKERS + 1):
        times = psutil.Process(cluster.pid(node)).cpu_times()
        cpu_s += times.user + times.system
        requests += _disable_requests(cluster.metrics_address(node))
    cluster_bytes, remote_bytes = (
        sum(each.stat().st_size for each in cluster.data_dir(1).glob(f"**/{name}/*.log"))
        for name in METADATA_DIRS
    )
    return Cost(
        cpu_s=cpu_s, requests=requests, cluster_bytes=cluster_bytes, remote_bytes=remote_bytes
    )


def _disable_requests(address: str) -> int:
    with urlopen(f"http://{address}/metrics", timeout=30) as response:
        text = response.read().decode()
    pattern = (
        r'^kafka_network_request_metrics_requests_total\{request="DisableRemoteTopic"\} (\S+)$'
    )
    lines = re.findall(pattern, text, re.MULTILINE)
    return int(sum(map(float, lines)))


def run(cluster: Cluster, count: int, policy: str, table: Table) -> None:
    """Disable so many topics, and add a row."""
    topics = Topics(cluster, count, f"{policy}-{count}")
    topics.create()
    before, began = cost(cluster), time.monotonic()
    topics.alter(remote_storage_enable="false", remote_log_disable_policy=policy)
    until(topics.are_disabled, within_s=600)
    disabled_s, used = time.monotonic() - began, cost(cluster)
    purged = "-"
    if policy == "delete":
        until(topics.are_purged, within_s=1_200)
        purged = f"{time.monotonic() - began:.1f}"
    after = cost(cluster)
    table.add_row(
        policy,
        str(count),
        f"{disabled_s:.2f}",
        purged,
        f"{(used.requests - before.requests) / count:.2f}",
        f"{(used.cluster_bytes - before.cluster_bytes) / count:.0f}",
        f"{(after.remote_bytes - before.remote_bytes) / count:.0f}",
        f"{used.cpu_s - before.cpu_s:.2f}",
        f"{after.cpu_s - before.cpu_s:.2f}",
    )


def main() -> None:
    """Run each policy with each number of topics, in a cluster of its own."""
    counts = [int(each) for each in sys.argv[1:]] or [1, 100]
    table = Table(title="Turning tiered storage off, three brokers")
    for title in ("policy", "topics", "s to DISABLED", "s to purged", "requests a topic",
                  "metadata B a topic", "remote metadata B a topic", "CPU s to DISABLED",
                  "CPU s to the end"):  # fmt: skip
        table.add_column(title, justify="right")
    for count in counts:
        for policy in ("retain", "delete"):
            with (
                tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
                Cluster(
                    brokers=BROKERS, remote_storage=True, metrics=True, data_dir=Path(directory),
                    config=CONFIG,
                ) as cluster,
            ):  # fmt: skip
                cluster.wait_ready(120)
                run(cluster, count, policy, table)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
