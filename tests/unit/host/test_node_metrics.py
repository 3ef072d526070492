"""A whole node's metrics, scraped over HTTP: they count its requests.

Method: a combined node in this process, on real directories and free ports; every text is parsed
strictly. Numbers are compared with what the test itself did.
"""

import asyncio
import socket
from pathlib import Path

import pytest

from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.node import Node
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.exposition import Scrape, documented

from .test_node import ask, channel_to, creation, free_node, run, started

REQUESTS = "kafka_network_request_metrics_requests_total"
BYTES = "kafka_network_request_metrics_request_bytes_total"
ERRORS = "kafka_network_request_metrics_errors_total"
TOTAL = "kafka_network_request_metrics_total_time_seconds"
LOCAL = "kafka_network_request_metrics_local_time_seconds"
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"


async def scrape(node: Node) -> Scrape:
    port = node.metrics.port
    assert port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    return Scrape(body.decode())


def test_a_nodes_metrics_are_what_it_did(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path, metrics_port="0"))
        before = await scrape(node)
        assert before.value("kafka_server_kafka_server_broker_state") == 3
        assert before.value(CONNECTIONS, listener="PLAINTEXT") == 0
        channel = channel_to(node)
        await ask(channel, creation("t", "u"), 7)
        refused = await ask(channel, creation("t"), 7)
        assert [each.error_code for each in refused.topics] == [36]
        wanted = MetadataRequest(
            topics=(MetadataRequestTopic(name="nowhere"),), allow_auto_topic_creation=False
        )
        for _ in range(3):
            await ask(channel, wanted, 12)
        found = await scrape(node)
        assert found.value(REQUESTS, request="CreateTopics") == 2
        assert found.value(REQUESTS, request="Metadata") == 3
        assert found.value(BYTES, request="Metadata") > 3 * len("nowhere")
        for name in (f"{TOTAL}_count", f"{LOCAL}_count"):
            assert found.value(name, request="CreateTopics") == 2
            assert found.value(name, request="Metadata") == 3
        # What waits for the controller takes longer than its handler holds the loop.
        create = {"request": "CreateTopics"}
        assert found.value(f"{TOTAL}_sum", **create) > found.value(f"{LOCAL}_sum", **create)
        assert found.value(ERRORS, request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1
        unknown = {"request": "Metadata", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert found.value(ERRORS, **unknown) == 3
        assert found.value("kafka_controller_kafka_controller_global_topic_count") == 2
        assert found.value("kafka_server_replica_manager_partition_count") == 2
        assert found.value(CONNECTIONS, listener="PLAINTEXT") == 1
        assert found.value("ottla_disk_sync_seconds_count") > 0
        channel.close()
        await node.stop()
        with pytest.raises(OSError):
            await scrape(node)

    run(test)


def test_the_docs_list_every_metric_and_no_other(tmp_path: Path) -> None:
    async def test() -> None:
        remote = {
            "remote.log.storage.system.enable": "true",
            "ottla.remote.storage.uri": (tmp_path / "store").as_uri(),
        }
        node = await started(free_node(tmp_path, metrics_port="0", **remote))
        found = await scrape(node)
        await node.stop()
        assert set(found.families) == documented(besides="ZooKeeper mode")

    run(test)


def test_without_a_port_nothing_listens(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path))
        assert node.metrics.port is None
        await node.stop()

    run(test)


def test_a_port_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            node = Node(free_node(tmp_path, metrics_port=str(port)), asyncio.get_running_loop())
            with pytest.raises(StartError, match=rf"^metrics.port={port}: port {port} is in use"):
                await node.start()
            await node.stop()

    run(test)


def test_what_is_no_request_counts_as_none(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path, metrics_port="0"))
        (endpoint,) = node.image.brokers[1].endpoints
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(b"\0\0\0\x0a" + b"\x7f\xff" + bytes(8))
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        found = await scrape(node)
        names = {dict(labels)["request"] for labels in found.labels(REQUESTS)}
        assert CreateTopicsRequest.__name__.removesuffix("Request") not in names
        assert found.value("kafka_server_socket_server_metrics_connection_creation_total") > 0
        await node.stop()

    run(test)
