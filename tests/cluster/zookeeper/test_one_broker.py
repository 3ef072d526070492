"""One broker by a property file of ZooKeeper mode, as an operator of Kafka 3.9 would write it.

Method: a real ZooKeeper, a process of `ottla server`, clients' libraries, and kazoo to look at
the znodes. The server is the directory's shared one; each test has a chroot of its own.
"""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla.testing.ports import HOST, free_ports
from ottla.testing.zookeeper_server import ZooKeeperServer

from ..clients import Client, Closing, Message, client_of, eventually, produce, read
from ..ottla_command import ottla_arguments

pytestmark = pytest.mark.drawn(5)

START_SECONDS = 30.0
SESSION_MS = 4_000
SERVES = "started (broker, ZooKeeper mode)"

PROPERTIES = """\
broker.id={id}
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={directory}
zookeeper.connect={connect}
zookeeper.session.timeout.ms={session_ms}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
"""


class Server:
    """A process of `ottla server`, its file, and what it prints."""

    def __init__(
        self, directory: Path, connect: str, *, broker_id: int = 1, extra: str = ""
    ) -> None:
        [self.port] = free_ports(1)
        self.data = directory / f"data-{broker_id}"
        self.file = directory / f"{broker_id}.properties"
        self.file.write_text(
            PROPERTIES.format(
                id=broker_id,
                port=self.port,
                directory=self.data,
                connect=connect,
                session_ms=SESSION_MS,
            )
            + extra
        )
        self.log = directory / f"{broker_id}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> "Server":
        self.close()
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                ottla_arguments("server", str(self.file), "--until-stdin-closes"),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return self

    @property
    def lines(self) -> list[str]:
        """Return what was printed since the last start."""
        return self.log.read_text().splitlines()

    def wait_for(self, text: str) -> str:
        """Wait until a line with `text` is printed; return it."""

        def look() -> str:
            ended = self.process is None or self.process.poll() is not None
            found = [line for line in self.lines if text in line]
            assert found or not ended, "\n".join(self.lines)
            return found[-1] if found else ""

        return eventually(look, within=START_SECONDS, what=text)

    def serve(self) -> "Server":
        self.start().wait_for(SERVES)
        return self

    def fails(self) -> str:
        """Start, and return the last line of a start that fails."""
        assert self.start().wait() == 1
        return self.lines[-1]

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        assert self.process is not None
        assert self.process.stdin is not None
        code = self.process.wait(START_SECONDS)
        self.process.stdin.close()
        self.process = None
        return code

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send(number)
        return self.wait()

    def close(self) -> None:
        if self.process is not None:
            self.end(signal.SIGKILL)


@pytest.fixture
def connect(zookeeper: ZooKeeperServer, chroot: str) -> str:
    return f"{zookeeper.connect}{chroot}"


@pytest.fixture
def server(tmp_path: Path, connect: str) -> Iterator[Server]:
    made = Server(tmp_path, connect)
    yield made
    made.close()


class Look:
    """The cluster's part of ZooKeeper, as an operator sees it."""

    def __init__(self, client: KazooClient, chroot: str) -> None:
        self._client = client
        self._chroot = chroot

    def data(self, path: str) -> bytes:
        data: bytes = self._client.get(self._chroot + path)[0]
        return data

    def json(self, path: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.data(path))
        return said

    def czxid(self, path: str) -> int:
        """Return a node's czxid; 0 = it is not there."""
        stat = self._client.exists(self._chroot + path)
        return 0 if stat is None else int(stat.czxid)


@pytest.fixture
def look(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Look]:
    client = KazooClient(zookeeper.connect)
    client.start()
    yield Look(client, chroot)
    client.stop()
    client.close()


def confluent() -> Client:
    return client_of("confluent")


def make_topic(server: Server, name: str, partitions: int) -> None:
    with Closing(confluent().admin(server.address)) as admin:
        admin.create_topic(name, partitions=partitions)


# -- the first start ---------------------------------------------------------------------------


def test_a_file_and_a_zookeeper_are_all_that_it_needs(server: Server, look: Look) -> None:
    """No formatting: the first start makes the chroot, the cluster's id and meta.properties."""
    server.serve()
    cluster_id = look.json("/cluster/id")["id"]
    said = (server.data / "meta.properties").read_text().splitlines()
    assert said == ["#", "broker.id=1", f"cluster.id={cluster_id}", "version=0"]
    registered = look.json("/brokers/ids/1")
    assert registered["endpoints"] == [f"PLAINTEXT://{server.address}"]
    assert registered["version"] == 5
    assert look.json("/controller")["brokerid"] == 1
    assert look.data("/controller_epoch") == b"1"
    assert server.end() == 0
    assert not look.czxid("/brokers/ids/1")
    assert not look.czxid("/controller")


def test_clients_work_with_it_and_it_comes_back_with_all_that_it_had(
    server: Server, look: Look
) -> None:
    server.serve()
    make_topic(server, "t", 2)
    sent = [Message(topic="t", partition=n % 2, value=f"v{n}".encode()) for n in range(200)]
    produce(confluent(), server.address, sent)
    assert sorted(look.json("/brokers/topics/t")["partitions"]) == ["0", "1"]
    for number in (signal.SIGTERM, signal.SIGKILL):
        server.end(number)
        server.serve()
        with Closing(confluent().consumer(server.address, group=f"g-{number}")) as consumer:
            consumer.subscribe(["t"])
            records = read(consumer, len(sent))
        assert sorted(each.value or b"" for each in records) == sorted(
            each.value or b"" for each in sent
        )


def test_a_killed_broker_comes_back_at_once(server: Server, look: Look) -> None:
    """Its last session lives on for a while, and holds /brokers/ids/1 and /controller."""
    server.serve()
    before = look.czxid("/brokers/ids/1")
    server.end(signal.SIGKILL)
    began = time.monotonic()
    server.serve()
    taken = time.monotonic() - began
    assert look.czxid("/brokers/ids/1") > before > 0
    # A start on a busy machine may outlast the rest of the session, up to a heartbeat shorter.
    if taken < SESSION_MS / 2_000:
        owned = "is owned by a previous session of this broker"
        assert any(owned in line for line in server.lines)
    print(f"a killed broker serves again after {taken:.1f} s")


def test_an_expired_session_is_followed_by_another_one(server: Server, look: Look) -> None:
    """The process stands still for longer than its session: it goes on, under a new epoch."""
    server.serve()
    make_topic(server, "t", 1)
    server.send(signal.SIGSTOP)
    eventually(lambda: not look.czxid("/brokers/ids/1"), within=START_SECONDS, what="expiry")
    server.send(signal.SIGCONT)
    eventually(lambda: look.czxid("/controller"), what="a controller")
    eventually(lambda: look.czxid("/brokers/ids/1"), what="the registration")
    assert look.data("/controller_epoch") == b"2"
    produce(confluent(), server.address, [Message(topic="t", partition=0, value=b"after")])


# -- refusals ----------------------------------------------------------------------------------


def test_a_zookeeper_that_is_not_there_is_named(tmp_path: Path) -> None:
    [port] = free_ports(1)
    made = Server(tmp_path, f"{HOST}:{port}", extra="zookeeper.connection.timeout.ms=1000\n")
    assert made.fails() == (
        f"ottla server: zookeeper.connect={HOST}:{port}: no connection within"
        " zookeeper.connection.timeout.ms=1000"
    )


def test_an_id_that_another_broker_has_is_waited_for_and_then_refused(
    server: Server, tmp_path: Path, connect: str
) -> None:
    server.serve()
    (tmp_path / "other").mkdir()
    other = Server(tmp_path / "other", connect)
    reason = other.fails()
    assert reason.startswith("ottla server: broker.id=1: a broker of this id is registered already")
    assert any("waiting until that session ends" in line for line in other.lines)


def test_a_directory_of_another_cluster_is_refused(
    server: Server, tmp_path: Path, connect: str
) -> None:
    server.serve()
    server.end()
    moved = Server(tmp_path, f"{connect}/elsewhere")
    assert "the broker is trying to join the wrong cluster" in moved.fails()


def test_a_directory_of_another_broker_is_refused(
    server: Server, tmp_path: Path, connect: str
) -> None:
    server.serve()
    server.end()
    server.file.write_text(server.file.read_text().replace("broker.id=1", "broker.id=2"))
    assert "Stored node id 1 doesn't match the configured node id 2" in server.fails()


def test_a_directory_that_was_formatted_for_kraft_mode_is_refused(server: Server) -> None:
    server.data.mkdir()
    (server.data / "meta.properties").write_text(
        "version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\n"
    )
    assert "was formatted for KRaft mode" in server.fails()
