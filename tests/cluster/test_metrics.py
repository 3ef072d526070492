"""Metrics of real nodes: what Prometheus would scrape agrees with what clients did.

Method: `ottla up`, a librdkafka client, texts read strictly. The ports are those that
`ottla status --json` tells.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.exposition import Scrape

from .ottla_command import ottla
from .test_cli_local import first_port

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(1)]

CONTROLLER = 101
TOPIC = "counted"
PARTITIONS = 4
RECORDS = 500

ACTIVE = "kafka_controller_kafka_controller_active_broker_count"
FENCED = "kafka_controller_kafka_controller_fenced_broker_count"
OFFLINE = "kafka_controller_kafka_controller_offline_partitions_count"
SILENT = "kafka_controller_kafka_controller_timed_out_broker_heartbeat_total"
LEADERS = "kafka_server_replica_manager_leader_count"
BYTES_IN = "kafka_server_broker_topic_metrics_bytes_in_total"
BYTES_OUT = "kafka_server_broker_topic_metrics_bytes_out_total"
MESSAGES_IN = "kafka_server_broker_topic_metrics_messages_in_total"
REQUESTS = "kafka_network_request_metrics_requests_total"
TOTAL = "kafka_network_request_metrics_total_time_seconds_count"


class Local:
    """Two brokers and a controller."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ran = ottla(
            "up", "--data-dir", str(directory), "--brokers", "2", "--controllers", "1",
            "--port", str(first_port(2)),
            "--config", "broker.session.timeout.ms=2000",
            "--config", "broker.heartbeat.interval.ms=200",
            "--detach",
        )  # fmt: skip
        assert ran.code == 0, ran.err
        facts = json.loads(ottla("status", "--data-dir", str(directory), "--json").out)
        self.bootstrap: str = facts["bootstrap"]
        self.ports: dict[int, int] = {node["id"]: node["metrics_port"] for node in facts["nodes"]}

    def scrape(self, node_id: int) -> Scrape:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.ports[node_id]}/metrics", timeout=10
        ) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return Scrape(answer.read().decode())

    def sum(self, name: str, **labels: str) -> float:
        return sum(self.scrape(node_id).value(name, **labels) for node_id in (1, 2))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    directory = tmp_path / "cluster"
    try:
        yield Local(directory)
    finally:
        if (directory / "cluster.json").exists():
            ottla("down", "--data-dir", str(directory), "--timeout", "5")


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"record {number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def read(bootstrap: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found = 0
    deadline = time.monotonic() + 30
    while found < RECORDS:
        assert time.monotonic() < deadline
        found += sum(not message.error() for message in consumer.consume(RECORDS, 0.5))
    consumer.commit(asynchronous=False)
    consumer.close()


def test_counters_are_what_a_client_did(local: Local) -> None:
    server = ("--bootstrap-server", local.bootstrap)
    create = ("topics", *server, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS))
    assert ottla(*create).code == 0
    before = local.sum(REQUESTS, request="Produce")
    write(local.bootstrap)
    assert local.sum(MESSAGES_IN, topic=TOPIC) == RECORDS
    sizes = sum(
        local.scrape(node_id).value("kafka_log_log_size_bytes", topic=TOPIC, partition=str(index))
        for node_id in (1, 2)
        for index in range(PARTITIONS)
    )
    assert local.sum(BYTES_IN, topic=TOPIC) == sizes > RECORDS * len("record 0")
    ends = [
        local.scrape(node_id).value("kafka_log_log_log_end_offset", topic=TOPIC, partition=str(i))
        for node_id in (1, 2)
        for i in range(PARTITIONS)
    ]
    assert sum(ends) == RECORDS
    produced = local.sum(REQUESTS, request="Produce")
    assert PARTITIONS / 2 <= produced - before <= RECORDS
    assert local.sum(TOTAL, request="Produce") == produced
    assert local.sum(BYTES_OUT, topic=TOPIC) == 0
    read(local.bootstrap)
    assert local.sum(BYTES_OUT, topic=TOPIC) >= sizes
    offsets = "kafka_coordinator_group_group_metadata_manager_num_offsets"
    assert local.sum(offsets) == PARTITIONS
    controller = local.scrape(CONTROLLER)
    assert controller.value("kafka_controller_kafka_controller_active_controller_count") == 1
    assert controller.value("kafka_server_raft_metrics_commit_latency_seconds_count") > 0
    applied = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
    committed = controller.value("kafka_controller_kafka_controller_last_committed_record_offset")
    until(lambda: all(local.scrape(node_id).value(applied) >= committed for node_id in (1, 2)))


def test_a_killed_broker_shows_in_the_controllers_metrics(local: Local) -> None:
    server = ("--bootstrap-server", local.bootstrap)
    create = ("topics", *server, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS))
    assert ottla(*create).code == 0
    until(lambda: local.sum(LEADERS) == PARTITIONS)
    led = local.scrape(2).value(LEADERS)
    assert led > 0
    found = local.scrape(CONTROLLER)
    assert (found.value(ACTIVE), found.value(FENCED), found.value(OFFLINE)) == (2, 0, 0)
    assert found.value(SILENT) == 0
    assert ottla("kill", "2", "--data-dir", str(local.directory)).code == 0
    with pytest.raises(urllib.error.URLError):
        local.scrape(2)
    until(lambda: local.scrape(CONTROLLER).value(FENCED) == 1)
    found = local.scrape(CONTROLLER)
    assert (found.value(ACTIVE), found.value(OFFLINE)) == (1, led)
    assert found.value(SILENT) == 1
    assert ottla("start", "2", "--data-dir", str(local.directory)).code == 0
    until(lambda: local.scrape(CONTROLLER).value(OFFLINE) == 0)
    found = local.scrape(CONTROLLER)
    assert (found.value(ACTIVE), found.value(FENCED), found.value(SILENT)) == (2, 0, 1)
