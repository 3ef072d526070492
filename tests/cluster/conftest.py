"""Clusters that the tests share, topics of their own, and which client a test runs with.

A cluster that many tests share is never stopped or damaged by one; tests that kill or starve
nodes make their own.
"""

import gc
import itertools
import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ConnectionFailedError, NoBrokerError
from ottla.testing import Cluster
from ottla.testing.zookeeper_server import ZooKeeperServer

from . import clients
from .clients import Client
from .kafka_python_sockets import close_forgotten_sockets

if TYPE_CHECKING:
    from .bystander import Bystander

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "500",
}
"""What makes groups, their topic and deletions quick; semantics stay Kafka's."""

QUICK_FENCING = QUICK | {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
}
"""A killed broker may register again once its last session is over, as in Kafka."""

BROKERS = (1, 2, 3)
CONTROLLER = 101


class Kind(Enum):
    """Who decides in a cluster: its brokers, nodes of their own, or a broker over ZooKeeper."""

    COMBINED = "combined"
    SEPARATE = "separate"
    ZOOKEEPER = "zookeeper"


def kinds(*chosen: Kind) -> pytest.MarkDecorator:
    """Run a test with clusters of these kinds, all where none is named: its argument `kind`."""
    return pytest.mark.parametrize("kind", chosen or tuple(Kind), ids=lambda each: each.value)


close_forgotten_sockets()


@pytest.fixture(scope="module", autouse=True)
def _leaks_are_found_here() -> Iterator[None]:
    """Collect garbage after each file: a socket that it left open must not fail another file."""
    yield
    gc.collect()


MakeTopic = Callable[..., str]
NewCluster = Callable[..., Cluster]

_numbers = itertools.count(1)


class Reports:
    """What tests measured, to be printed at the end of the run."""

    def __init__(self) -> None:
        self.tables: list[tuple[str, list[str]]] = []

    def append(self, title: str, lines: list[str]) -> None:
        """Add a table."""
        self.tables.append((title, lines))


REPORTS = pytest.StashKey[Reports]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the place for reports."""
    config.stash[REPORTS] = Reports()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print them."""
    for title, lines in config.stash[REPORTS].tables:
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture
def reports(request: pytest.FixtureRequest) -> Reports:
    """Where a test leaves what it measured."""
    return request.config.stash[REPORTS]


@pytest.fixture(scope="session")
def shared() -> Iterator[Cluster]:
    """One broker for all tests that only talk to it.

    Some records are old on purpose; retention would delete them 30 s after the broker's start.
    """
    with Cluster(brokers=1, config=QUICK | {"log.retention.ms": "-1"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """One server for all that only talk to it; a cluster has a chroot of its own."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def new_cluster(request: pytest.FixtureRequest) -> NewCluster:
    """Make a cluster of a kind, to be started with `with`."""

    def make(
        kind: Kind,
        brokers: int = 3,
        *,
        controllers: int = 3,
        config: dict[str, str] | None = None,
        remote_storage: bool | str = False,
        metrics: bool = False,
    ) -> Cluster:
        given = dict(config or {})
        if kind is Kind.ZOOKEEPER:
            server: ZooKeeperServer = request.getfixturevalue("zookeeper")
            # What a broker's session is there; a cluster without it keeps its default.
            if "broker.session.timeout.ms" in given:
                given["zookeeper.session.timeout.ms"] = given["broker.session.timeout.ms"]
            chroot = f"/cluster-{next(_numbers)}"
            connect = f"{server.connect}{chroot}"
            return Cluster(
                brokers,
                zookeeper=connect,
                config=given,
                remote_storage=remote_storage,
                metrics=metrics,
            )
        separate = controllers if kind is Kind.SEPARATE else 0
        return Cluster(
            brokers, separate, config=given, remote_storage=remote_storage, metrics=metrics
        )

    return make


@pytest.fixture(
    scope="session", params=[Kind.SEPARATE, Kind.ZOOKEEPER], ids=lambda kind: kind.value
)
def trio_of_session(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    """Three brokers, with a controller or over ZooKeeper; use `trio`."""
    with new_cluster(request.param, 3, controllers=1, config=QUICK_FENCING) as cluster:
        yield cluster


@pytest.fixture
def trio(trio_of_session: Cluster) -> Cluster:
    """Three brokers in either mode, and all nodes serve: their lives are the tests' to play with.

    What a failed test left dead or frozen is brought back first.
    """
    return revived(trio_of_session)


def revived(cluster: Cluster) -> Cluster:
    """Return a cluster all of whose nodes serve again, whatever a failed test left."""
    for node in cluster.nodes:
        match cluster.state(node.id):
            case "paused":
                cluster.resume(node.id)
            case "dead" | "stopped":
                cluster.start(node.id)
    cluster.wait_ready()
    return cluster


def all_nodes(cluster: Cluster) -> tuple[int, ...]:
    """Return the ids of all nodes, brokers first."""
    return tuple(plan.id for plan in cluster.nodes)


def has_own_controller(cluster: Cluster) -> bool:
    """Tell whether the controller is a node that is no broker."""
    return any(not plan.is_broker for plan in cluster.nodes)


@pytest.fixture(params=clients.NAMES)
def client(request: pytest.FixtureRequest) -> Client:
    """Each of the three libraries."""
    return clients.client_of(request.param)


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, shared: Cluster) -> MakeTopic:
    """Create topics on the shared cluster; names carry the test's."""

    def make(partitions: int = 1, **config: str) -> str:
        return new_topic(shared.bootstrap, request.node.name, partitions, **config)

    return make


def new_name(test: str) -> str:
    """Return a name for a topic or group that no other test uses."""
    return re.sub(r"[^a-zA-Z0-9-]+", "-", test).strip("-") + f"-{next(_numbers)}"


def new_topic(bootstrap: str, test: str, partitions: int = 1, **config: str) -> str:
    """Create a topic; underscores in the names of `config` stand for dots."""
    values = {key.replace("_", "."): value for key, value in config.items()}
    return _new_topic(bootstrap, test, partitions, 1, values)


def new_replicated_topic(cluster: Cluster, test: str, partitions: int) -> str:
    """Create a topic of three replicas, of which two must have what is acknowledged."""
    topic = _new_topic(cluster.bootstrap, test, partitions, 3, {"min.insync.replicas": "2"})
    cluster.wait_in_sync(topic)
    return topic


def _new_topic(
    bootstrap: str, test: str, partitions: int, replicas: int, config: dict[str, str]
) -> str:
    name = new_name(test)
    with clients.Closing(clients.client_of("confluent").admin(bootstrap)) as admin:
        admin.create_topic(name, partitions=partitions, replication_factor=replicas, config=config)
    all_know = partial(known_to_all, bootstrap, name)
    clients.eventually(all_know, within=30, what=f"{name} to be known to all brokers")
    return name


def known_to_all(bootstrap: str, topic: str) -> bool:
    """Tell whether all brokers know the topic, but for those that do not answer."""
    for address in bootstrap.split(","):
        try:
            with ClusterClient(ClientConfig(bootstrap=address).with_timeout(3)) as client:
                found = client.topics([topic], skip_unknown=True)
        except (ConnectionFailedError, NoBrokerError):
            continue
        if not found or not found[0].partitions:
            return False
    return True


def known(admin: clients.Admin, topic: str) -> bool:
    """Tell whether the broker that the client asks knows the topic."""
    try:
        return bool(admin.partitions(topic))
    except clients.Refused:
        return False


@pytest.fixture(scope="module")
def victim() -> Iterator[Cluster]:
    """A broker that the tests of one file attack."""
    with Cluster(brokers=1, config=QUICK, metrics=True) as cluster:
        yield cluster
        cluster.kill(1)  # A clean stop would sync the thousands of logs that some attacks leave.


@pytest.fixture
def bystander(victim: Cluster) -> "Iterator[Bystander]":
    """Somebody who uses the victim meanwhile."""
    from .bystander import Bystander  # It needs `new_topic` from here.

    with Bystander(victim) as someone:
        yield someone
