"""Connect strings of `--zookeeper`, and errors when no server responds.

Method: nothing here needs a ZooKeeper; what does is in `tests/cluster/zookeeper`.
"""

import socket
from typing import Any, cast

import pytest

from ottla.cli.errors import CommandError
from ottla.cli.topics import topics_zookeeper
from ottla.cli.topics.topic_options import TopicOptions
from ottla.cli.zookeeper_client import ZooKeeperClient, parse_connect
from ottla.client.errors import Refusal
from ottla.metadata.tiering_config import DELETE_ON_DISABLE, DISABLE_POLICY
from ottla.metadata.znodes.topic import Assignment, TopicZnode
from ottla.testing.ports import free_ports

from .conftest import Run

TOPICS = ("topics", "--list")
CONFIGS = ("configs", "--describe", "--entity-type", "topics")
ELECTION = ("leader-election", "--election-type", "preferred", "--all-topic-partitions")


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("zk1", [("zk1", 2181)]),
        ("zk1:2182,zk2/a/b", [("zk1", 2182), ("zk2", 2181)]),
        ("[::1]:2182, [::1]", [("::1", 2182), ("::1", 2181)]),
    ],
)
def test_servers(text: str, servers: list[tuple[str, int]]) -> None:
    assert parse_connect(text) == servers


@pytest.mark.parametrize("text", ["", "/a", "zk1:", "zk1:x", "zk1:0", "zk1:99999", "a,,b", "a b"])
def test_invalid_connect_strings(run: Run, text: str) -> None:
    ran = run(*TOPICS, "--zookeeper", text)
    named = text if text else "''"
    assert ran == (
        2,
        "",
        f"ottla topics: --zookeeper {named}: expected HOST:PORT[,...][/CHROOT]\n"
        "See 'ottla topics --help'.\n",
    )


def test_a_path_that_is_none(run: Run) -> None:
    ran = run(*TOPICS, "--zookeeper", "localhost:1/a/../b")
    assert ran.code == 2
    assert ran.err.startswith("ottla topics: --zookeeper localhost:1/a/../b: ")


@pytest.mark.parametrize("command", [TOPICS, CONFIGS, ELECTION])
@pytest.mark.parametrize("timeout", ["-3", "0", "nan", "inf", "1e300"])
def test_a_timeout_is_checked_there_too(run: Run, command: tuple[str, ...], timeout: str) -> None:
    ran = run(*command, "--zookeeper", "localhost:1", "--timeout", timeout)
    assert (ran.code, ran.out) == (2, "")
    assert "expected more than 0 seconds, at most 1e+06" in ran.err


def test_connection_refused() -> None:
    (dead,) = free_ports(1)
    with pytest.raises(
        CommandError,
        match=rf"--zookeeper 127.0.0.1:{dead}: no ZooKeeper server answers within 0.2 s "
        rf"\(127.0.0.1:{dead}: connection refused\)",
    ):
        ZooKeeperClient(f"127.0.0.1:{dead}", 0.2)


def test_a_server_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(CommandError, match=rf"\({address}: no answer within 0.2 s\)"):
            ZooKeeperClient(address, 0.2)


CREATE = ("topics", "--zookeeper", "localhost:1", "--create", "--topic", "x")


def test_a_topic_of_too_many_partitions_is_refused_as_by_brokers(run: Run) -> None:
    """Before anything else: to place so many would not end."""
    ran = run(*CREATE, "--partitions", "10001", "--replication-factor", "1")
    assert ran == (
        1,
        "",
        "ottla topics: topic x: The request asks for 10001 partitions; 10000 is the most that one "
        "request may. (POLICY_VIOLATION)\n",
    )
    assert run(*CREATE, "--replica-assignment", ",".join(["1"] * 10_001)) == ran


class OneTopic:
    """What growing a topic reads."""

    def topic_names(self) -> list[str]:
        return ["x"]

    def marked_for_deletion(self) -> frozenset[str]:
        return frozenset()

    def topic(self, name: str) -> Any:
        return TopicZnode(partitions={0: Assignment((1,))}), 0


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("y", {DISABLE_POLICY: "retain", DELETE_ON_DISABLE: "true"}, "contradict each other"),
        ("__consumer_offsets", {"ottla.topic.ttl.ms": "1000"}, "never deleted automatically"),
    ],
)
def test_a_topic_whose_configuration_has_no_effect_is_refused(
    name: str, config: dict[str, str], reason: str
) -> None:
    client = cast(ZooKeeperClient, OneTopic())
    options = TopicOptions(
        topic=name, partitions=1, replication_factor=1, config=tuple(config.items())
    )
    with pytest.raises(CommandError, match=reason):
        topics_zookeeper.ACTIONS["create"](client, options)


def test_so_is_growth_by_too_many() -> None:
    client = cast(ZooKeeperClient, OneTopic())
    with pytest.raises(Refusal, match=r"topic x: The request asks for 10001 partitions; 10000 is"):
        topics_zookeeper.ACTIONS["alter"](client, TopicOptions(topic="x", partitions=10_002))
