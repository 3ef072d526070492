"""10,000 partitions on three nodes, Ottla and Apache Kafka, one after the other.

Creation in ten topics, memory, a broker killed, the active controller killed. The nodes are brokers
and controllers alike, so a killed controller takes its leaders with it, too; the next CreateTopics
is sent to a node that lives, over a plain socket, so that no client's own retries count.
`OTTLA_BENCH_PARTITIONS` sets another number.
"""

import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_peer import KafkaNodes, NoPeerError
from maven_jars import NoJarsError
from ottla.base.errors import error_name
from ottla.testing import Cluster
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages import create_topics, describe_quorum
from ottla.wire.registry import response_type
from ottla.wire.schema import spec_of
from rows import Row
from waiting import until

PARTITIONS = int(os.environ.get("OTTLA_BENCH_PARTITIONS", "10000"))
TOPICS = 10
NODES = (1, 2, 3)
HEAP = "2G"
"""Of each of Kafka's nodes."""
WAIT_S_MAX = 600.0
REQUEST_S_MAX = 5.0
CREATION_S_MAX = 10.0
FAILOVER_S_MAX = 3.0
"""The timeout of 2 s after which voters give a silent leader up, and one second."""
ELECTIONS_S_MAX = 1.0
METADATA_TOPIC = "__cluster_metadata"
QUORUM_VERSION, CREATE_VERSION = 0, 5


class Nodes(Protocol):
    """Three nodes that can be killed."""

    name: str
    bootstrap: str

    def start(self, node: int) -> None: ...
    def kill(self, node: int) -> None: ...
    def wait_ready(self, within_s: float) -> None: ...
    def processes(self) -> tuple[psutil.Process, ...]: ...


class OttlaNodes:
    """Ottla's."""

    name = "Ottla"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap
        self.start, self.kill = cluster.start, cluster.kill

    def wait_ready(self, within_s: float) -> None:
        """Wait until all serve."""
        self._cluster.wait_ready(within_s)

    def processes(self) -> tuple[psutil.Process, ...]:
        """Return the processes of the running nodes."""
        pids = [self._cluster.pid(node) for node in NODES]
        return tuple(psutil.Process(pid) for pid in pids if pid is not None)


def many_partitions() -> Iterator[Row]:
    """Measure both."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, ExitStack() as running:
        cluster = running.enter_context(Cluster(brokers=3, data_dir=Path(directory) / "ottla"))
        cluster.wait_ready(60)
        yield from _measured(OttlaNodes(cluster), own=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, ExitStack() as running:
        try:
            kafka = KafkaNodes(len(NODES), Path(directory), HEAP)
            running.callback(kafka.close)
            for node in NODES:
                kafka.start(node)
            kafka.wait_ready(WAIT_S_MAX)
            yield from _measured(kafka, own=False)
        except NoJarsError:
            return
        except (NoPeerError, TimeoutError) as error:
            yield Row(f"{KafkaNodes.name}: {PARTITIONS} partitions, RF 3", f"gave up: {error}")


def _measured(nodes: Nodes, *, own: bool) -> Iterator[Row]:
    def seconds(what: str, took_s: float, limit_s: float | None = None) -> Row:
        if limit_s is None or not own:
            return Row(f"{nodes.name}: {what}", f"{took_s:.1f} s")
        met = took_s <= limit_s
        return Row(f"{nodes.name}: {what}", f"{took_s:.1f} s", f"at most {limit_s:g} s", met)

    bench = _Bench(nodes)
    before_mb = bench.resident_mb()
    took_s = bench.create()
    yield seconds(
        f"create {PARTITIONS} partitions, RF 3, every leader named", took_s, CREATION_S_MAX
    )
    bench.until_in_sync()
    grown_mb = bench.resident_mb() - before_mb
    yield Row(f"{nodes.name}: memory of the three", f"{before_mb + grown_mb:.0f} MB")
    replicas = PARTITIONS * len(NODES)
    yield Row(f"{nodes.name}: memory, by replica", f"{grown_mb * 1e3 / replicas:.1f} kB")
    lost, took_s, elected_s = bench.kill_broker()
    yield seconds(f"broker with {lost} leaders killed, all elsewhere", took_s)
    yield seconds("  of these, from the first one to the last", elected_s, ELECTIONS_S_MAX)
    bench.restart()
    took_s = bench.kill_controller()
    yield seconds("active controller killed, next CreateTopics", took_s, FAILOVER_S_MAX)


class _Bench:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._topics = [f"many-{number}" for number in range(TOPICS)]
        self._admin = _admin(nodes.bootstrap)
        brokers = self._admin.list_topics("none", timeout=30).brokers
        self._addresses = {each.id: (each.host, each.port) for each in brokers.values()}
        assert set(self._addresses) == set(NODES)
        self._dead = 0

    def resident_mb(self) -> float:
        return float(sum(each.memory_info().rss for each in self._nodes.processes())) / 1e6

    def create(self) -> float:
        began = time.perf_counter()
        made = []
        for each in self._topics:  # All at once are too many for Kafka: POLICY_VIOLATION.
            wanted = [NewTopic(each, PARTITIONS // TOPICS, 3)]
            made += self._admin.create_topics(wanted, request_timeout=WAIT_S_MAX).values()
        for future in made:
            future.result(WAIT_S_MAX)
        seen = until(lambda: sum(self._leaders().values()) == PARTITIONS, within_s=WAIT_S_MAX)
        return seen - began

    def until_in_sync(self) -> None:
        until(self._in_sync, within_s=WAIT_S_MAX, every_s=0.5)

    def kill_controller(self) -> float:
        victim = self._controller()
        self._kill(victim)
        began = time.perf_counter()
        name = f"after-{time.time_ns()}"
        return until(lambda: self._creates(name), within_s=WAIT_S_MAX) - began

    def restart(self) -> None:
        """Start what was killed, and let it lead again."""
        self._nodes.start(self._dead)
        self._nodes.wait_ready(WAIT_S_MAX)
        self._dead = 0
        self._admin = _admin(self._nodes.bootstrap)
        self.until_in_sync()

    def kill_broker(self) -> tuple[int, float, float]:
        """Kill a broker that is not the active controller, and leads most.

        Return how many it led, the seconds until all are elsewhere, and those of the elections.
        """
        controller, leaders = self._controller(), self._leaders()
        victim, lost = next(each for each in leaders.most_common() if each[0] != controller)
        self._admin = _admin(self._bootstrap_without(victim))
        self._leaders()  # Its connections are there.
        self._kill(victim)
        began = time.perf_counter()
        first = until(lambda: self._leaders()[victim] < lost, within_s=WAIT_S_MAX, every_s=0.01)

        def all_elsewhere() -> bool:
            found = self._leaders()
            return not found[victim] and sum(found.values()) == PARTITIONS

        last = until(all_elsewhere, within_s=WAIT_S_MAX, every_s=0.01)
        return lost, last - began, last - first

    def _kill(self, node: int) -> None:
        self._dead = node
        self._nodes.kill(node)

    def _bootstrap_without(self, node: int) -> str:
        left = [each for number, each in self._addresses.items() if number != node]
        return ",".join(f"{host}:{port}" for host, port in left)

    def _leaders(self) -> Counter[int]:
        """Return how many of the partitions each broker leads."""
        topics = self._admin.list_topics(timeout=60).topics
        return Counter(
            each.leader
            for name in self._topics
            if name in topics
            for each in topics[name].partitions.values()
            if each.leader >= 0
        )

    def _in_sync(self) -> bool:
        topics = self._admin.list_topics(timeout=60).topics
        return all(
            len(each.isrs) == len(NODES)
            for name in self._topics
            for each in topics[name].partitions.values()
        )

    def _controller(self) -> int:
        partition = describe_quorum.RequestPartitionData(partition_index=0)
        topic = describe_quorum.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = describe_quorum.DescribeQuorumRequest(topics=(topic,))
        response = self._ask(request, QUORUM_VERSION)
        return int(response.topics[0].partitions[0].leader_id)

    def _creates(self, name: str) -> bool:
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        request = create_topics.CreateTopicsRequest(
            topics=(topic,), timeout_ms=int(REQUEST_S_MAX * 1000)
        )
        try:
            found = self._ask(request, CREATE_VERSION).topics[0]
        except OSError:
            return False
        return found.error_code == 0 or error_name(found.error_code) == "TOPIC_ALREADY_EXISTS"

    def _ask(self, request: object, version: int) -> Any:
        """Send a request to the first node that lives; return the response. Raises: OSError."""
        node = next(each for each in NODES if each != self._dead)
        with socket.create_connection(self._addresses[node], timeout=REQUEST_S_MAX) as connection:
            connection.sendall(encode_request(request, version, 1, "bench"))
            with connection.makefile("rb") as stream:
                size = int.from_bytes(stream.read(4), "big")
                body = stream.read(size)
        key = spec_of(type(request)).key
        assert key is not None
        return decode_response(response_type(key), body, version)[1]


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
