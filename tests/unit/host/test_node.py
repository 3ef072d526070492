"""A whole node in this process: it starts, serves, reports what breaks, and stops from anywhere.

Method: a combined node on real directories and free ports, with requests over real sockets.
`free_node` makes one that listens on port 0, so that it must advertise the port it got.
"""

import asyncio
import errno
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.host.log_dirs.disk import OsDisk
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.log_dirs.storage import format_storage
from ottla.host.net.channel import Channel
from ottla.host.net.dialer import AsyncioDialer
from ottla.host.node import Node, _run, socket_options
from ottla.host.steps import outcome_of
from ottla.host.system_ports import SystemClock, SystemDice
from ottla.log import names
from ottla.metadata.configs import ResourceType
from ottla.metadata.node_config import NodeConfig
from ottla.testing.ports import free_ports
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

from .harness import CLUSTER_ID


def free_node(directory: Path, **properties: str) -> NodeConfig:
    """Return the configuration of a formatted combined node; underscores stand for dots."""
    (controller_port,) = free_ports(1)
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": f"{directory}/a,{directory}/b",
        "broker.heartbeat.interval.ms": "50",
    }
    config = NodeConfig.parse(given | {k.replace("_", "."): v for k, v in properties.items()})
    format_storage(
        OsDisk(),
        log_dirs=config.log_dirs,
        metadata_log_dir=config.metadata_log_dir,
        node_id=config.node_id,
        cluster_id=CLUSTER_ID,
        dice=SystemDice(),
        clock=SystemClock(),
        ignore_formatted=True,
    )
    return config


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


async def eventually(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


async def started(config: NodeConfig) -> Node:
    node = Node(config, asyncio.get_running_loop())
    await node.start()
    return node


def channel_to(node: Node) -> Channel:
    """Return a channel to the address that the node advertised."""
    (endpoint,) = node.image.brokers[1].endpoints
    return Channel(
        AsyncioDialer(asyncio.get_running_loop()),
        lambda: (endpoint.host, endpoint.port),
        client_id="test",
    )


async def ask(channel: Channel, request: object, version: int) -> Any:
    answer = await outcome_of(channel.send(request, version, timeout_ms=20_000))
    assert not isinstance(answer, ApiError), answer
    return answer


def creation(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for name in names
        ),
        timeout_ms=20_000,
    )


def test_a_node_advertises_the_port_that_it_got(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path))
        (endpoint,) = node.image.brokers[1].endpoints
        assert endpoint.host == "127.0.0.1"
        assert endpoint.port > 0
        channel = channel_to(node)
        metadata = await ask(channel, MetadataRequest(topics=()), 12)
        assert [(each.host, each.port) for each in metadata.brokers] == [
            ("127.0.0.1", endpoint.port)
        ]
        channel.close()
        await node.stop()

    run(test)


def test_a_node_that_has_started_starts_no_worker_thread_any_more(tmp_path: Path) -> None:
    async def test() -> None:
        before = workers_of_nodes()
        node = await started(free_node(tmp_path, num_io_threads="5"))
        assert len(workers_of_nodes() - before) == 5
        await node.stop()
        assert not workers_of_nodes() - before

    run(test)


def workers_of_nodes() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("ottla-worker")}


def test_a_topic_created_deleted_and_created_again_is_the_new_one(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path))
        channel = channel_to(node)
        for _ in range(10):
            made = channel.send(creation("again"), 7, timeout_ms=20_000)
            gone = channel.send(
                DeleteTopicsRequest(topic_names=("again",), timeout_ms=20_000),
                5,
                timeout_ms=20_000,
            )
            assert (await outcome_of(made)).topics[0].error_code == 0
            assert (await outcome_of(gone)).responses[0].error_code == 0
        last = await ask(channel, creation("again"), 7)
        described = await ask(
            channel, MetadataRequest(topics=(MetadataRequestTopic(name="again"),)), 12
        )
        (topic,) = described.topics
        assert (topic.error_code, topic.topic_id) == (0, last.topics[0].topic_id)
        channel.close()
        await node.stop()
        again = await started(
            free_node(
                tmp_path,
                listeners=node.config.given["listeners"],
                controller_quorum_voters=node.config.given["controller.quorum.voters"],
            )
        )
        assert again.image.topics.names() == ["again"]
        await again.stop()

    run(test)


def test_a_failed_log_directory_is_reported_and_the_last_one_ends_the_node(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path))
        channel = channel_to(node)
        await ask(channel, creation(*"abcdefgh"), 7)
        assert node._node_dirs is not None
        log_dirs = node._node_dirs.log_dirs
        first, second = log_dirs.dirs
        await eventually(lambda: len(list(log_dirs.logs())) == 8)
        assert first.logs
        assert second.logs
        log_dirs._dir_failed(second, OSError(errno.EIO, "a test"))

        await eventually(lambda: node.image.brokers[1].log_dirs == (first.directory_id,))
        assert not node.stopping.done()
        log_dirs._dir_failed(first, OSError(errno.EIO, "a test"))
        assert await node.stopping == "all log directories have failed"
        channel.close()
        await node.stop()

    run(test)


def test_connection_limits_change_while_the_node_runs(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path))
        assert node._connection_limits().per_ip == 2**31 - 1
        channel = channel_to(node)
        change = IncrementalAlterConfigsRequest(
            validate_only=False,
            resources=(
                AlterConfigsResource(
                    resource_type=ResourceType.BROKER,
                    resource_name="",
                    configs=(
                        AlterableConfig(name="max.connections", config_operation=0, value="100"),
                        AlterableConfig(
                            name="max.connections.per.ip.overrides",
                            config_operation=0,
                            value="10.0.0.1:5",
                        ),
                    ),
                ),
            ),
        )
        answer = await ask(channel, change, 1)
        assert answer.responses[0].error_code == 0
        limits = node._connection_limits()
        assert (limits.total, limits.by_ip) == (100, {"10.0.0.1": 5})
        assert node._connection_limits() is limits
        channel.close()
        await node.stop()

    run(test)


def test_a_forwarded_request_that_fails_does_not_affect_others(tmp_path: Path) -> None:
    def broken(_ctx: Any, _request: Any) -> Any:
        raise RuntimeError("a bug in a handler")

    async def test() -> None:
        node = await started(free_node(tmp_path))
        endpoints: Any = node._dispatcher.endpoints
        endpoints[64] = replace(endpoints[64], handle=broken)
        mine, others = channel_to(node), channel_to(node)
        waiting = [
            others.send(creation(f"other-{index}"), 7, timeout_ms=20_000) for index in range(5)
        ]
        failed = await outcome_of(
            mine.send(UnregisterBrokerRequest(broker_id=9), 0, timeout_ms=20_000)
        )
        assert isinstance(failed, ApiError)
        assert failed.error is Error.NETWORK_EXCEPTION
        assert [(await outcome_of(each)).topics[0].error_code for each in waiting] == [0] * 5
        assert node.broker is not None
        forwarder: Any = node.broker.mode.forwarder
        assert forwarder._sender.connected
        for channel in (mine, others):
            channel.close()
        await node.stop()

    run(test)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
def test_a_stop_in_the_middle_of_a_start(tmp_path: Path, turns: int) -> None:
    config = free_node(tmp_path)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        trouble: list[Any] = []
        loop.set_exception_handler(lambda _loop, context: trouble.append(context))
        node = Node(config, loop)
        starting = loop.create_task(node.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait((starting,))
        await node.stop()
        await asyncio.sleep(0.05)
        assert trouble == []
        # Nothing is locked or half made: the same log directories start.
        await (await started(config)).stop()

    run(test)


def test_a_start_that_takes_too_long_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (nobody,) = free_ports(1)
    config = free_node(
        tmp_path,
        process_roles="broker",
        listeners="PLAINTEXT://127.0.0.1:0",
        controller_quorum_voters=f"9@127.0.0.1:{nobody}",
        server_max_startup_time_ms="50",
    )
    assert asyncio.run(_run(config)) == 1
    assert "server.max.startup.time.ms=50" in capsys.readouterr().err


@pytest.fixture
def hangup() -> Iterator[Callable[[Any], object]]:
    """Sets what a hangup does outside of a node, until the end of the test."""
    before = signal.getsignal(signal.SIGHUP)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


def run_until(signal_number: int, config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a node that gets a signal once it has started; return its exit code."""
    start = Node.start

    async def start_and_signal(node: Node) -> None:
        await start(node)
        signal.raise_signal(signal_number)

    monkeypatch.setattr(Node, "start", start_and_signal)
    return asyncio.run(_run(config))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_a_node_cleanly(
    tmp_path: Path,
    number: signal.Signals,
    hangup: Callable[[Any], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def not_taken(number: int, _: Any) -> None:
        raise RuntimeError(f"signal {number} is not taken by the node")

    hangup(not_taken)
    assert run_until(number, free_node(tmp_path), monkeypatch) == 0
    assert (tmp_path / "a" / names.CLEAN_SHUTDOWN).exists()


def test_a_node_under_nohup_outlives_its_terminal(
    tmp_path: Path, hangup: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangup(signal.SIG_IGN)
    stop = Node.stop

    async def check_and_stop(node: Node) -> None:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        await stop(node)

    monkeypatch.setattr(Node, "stop", check_and_stop)
    assert run_until(signal.SIGTERM, free_node(tmp_path), monkeypatch) == 0


def test_a_used_port_and_a_locked_log_directory_are_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        config = free_node(tmp_path / "one")
        node = await started(config)
        with pytest.raises(StartError, match="Failed to acquire lock"):
            await started(config)
        taken = config.given["controller.quorum.voters"].partition(":")[2]
        other = free_node(
            tmp_path / "two",
            listeners=f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{taken}",
            controller_quorum_voters=f"1@127.0.0.1:{taken}",
        )
        late = Node(other, asyncio.get_running_loop())
        with pytest.raises(StartError, match=f"CONTROLLER: port {taken} is in use"):
            await late.start()
        await late.stop()
        await node.stop()

    run(test)


def test_requests_in_flight_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(free_node(tmp_path))
        channels = [channel_to(node) for _ in range(5)]
        flying = [
            channel.send(creation(f"t{number}-{index}"), 7, timeout_ms=20_000)
            for number, channel in enumerate(channels)
            for index in range(20)
        ]
        await ask(channels[0], ApiVersionsRequest(), 2)
        await node.stop()
        for channel in channels:
            channel.close()
        outcomes = [await outcome_of(each) for each in flying]
        assert len(outcomes) == 100

    run(test)


def test_only_configured_socket_options_are_set(tmp_path: Path) -> None:
    plain = socket_options(free_node(tmp_path))
    assert (plain.backlog, plain.send_buffer_bytes, plain.receive_buffer_bytes) == (50, -1, -1)
    options = socket_options(
        free_node(
            tmp_path,
            socket_listen_backlog_size="7",
            socket_send_buffer_bytes="1000",
            socket_receive_buffer_bytes="2000",
        )
    )
    assert (options.backlog, options.send_buffer_bytes, options.receive_buffer_bytes) == (
        7,
        1000,
        2000,
    )
