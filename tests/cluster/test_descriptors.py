"""However many connect to a node that may have few descriptors, its logs can be written and read.

Method: a broker under a small limit of open files, and more connections than that allows, while a
bystander uses it and topics are made, which opens files of the metadata log and of partitions; then
a topic of more partitions than files may be open, all of which are fetched and flushed at once.
"""

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.request import urlopen

import pytest

from ottla.host.log_dirs.descriptors import NEEDED, plan
from ottla.testing import Cluster, ClusterError
from ottla.testing.node_forks import can_fork
from ottla.wire.messages.api_versions import ApiVersionsRequest

from .bystander import Bystander
from .clients import Closing, Message, client_of, eventually, produce, read
from .conftest import QUICK, QUICK_FENCING, new_topic
from .raw import answered, connect, encoded

pytestmark = [
    pytest.mark.alone,
    pytest.mark.drawn(5, of="alone"),
    pytest.mark.skipif(not can_fork(), reason="a node gets a limit of its own in a fork"),
]
"""The limit is the process's own: it may have no files of other tests open."""

LIMIT = 256
CONNECTIONS = 400
VERSIONS = encoded(ApiVersionsRequest(), 0)


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Let nodes that are started meanwhile have so many descriptors, and no more.

    Forks get the limits that this process seems to have: its own hard one could not be restored.
    """
    limit_of = resource.getrlimit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            resource,
            "getrlimit",
            lambda kind: (count, count) if kind == resource.RLIMIT_NOFILE else limit_of(kind),
        )
        yield


@pytest.fixture
def small() -> Iterator[Cluster]:
    with ExitStack() as stack:
        with descriptors(LIMIT):
            cluster = stack.enter_context(Cluster(brokers=1, config=QUICK, metrics=True))
        yield cluster


def is_served(raw: socket.socket) -> bool:
    with suppress(ConnectionError):
        return answered(raw, VERSIONS) is not None
    return False


def refused(cluster: Cluster) -> int:
    with urlopen(f"http://{cluster.metrics_address(1)}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'ottla_refused_total\{listener="\w+",reason="descriptors"\} (\d+)', text)
    assert found
    return sum(map(int, found))


def test_more_connections_than_descriptors(small: Cluster) -> None:
    allowed = plan(LIMIT).sockets
    with Bystander(small) as bystander, ExitStack() as stack:
        sockets = [stack.enter_context(connect(small)) for _ in range(CONNECTIONS)]
        served = sum(is_served(raw) for raw in sockets)
        assert allowed // 2 < served <= allowed
        assert refused(small) >= CONNECTIONS - allowed
        assert bystander.descriptors < LIMIT
        held = [raw for raw in sockets if is_served(raw)]
        for raw in held[:16]:
            raw.close()  # Room for the clients below.
        for number in range(8):
            bystander.wait_round()
            name = new_topic(small.bootstrap, f"many-{number}", partitions=4)
            sent = [Message(topic=name, partition=each, value=b"x") for each in range(4)]
            produce(client_of("confluent"), small.bootstrap, sent)
        log = small.logs(1)
        assert log.count("refused or closed") <= 2, "one line a minute"
        for raw in sockets:
            raw.close()
        eventually(lambda: served_now(small), within=20, what="new connections to be served")


def served_now(cluster: Cluster) -> bool:
    with connect(cluster) as raw:
        return is_served(raw)


def test_too_few_descriptors_are_reported_at_start() -> None:
    with descriptors(NEEDED - 1), pytest.raises(ClusterError, match=f"{NEEDED - 1} .* {NEEDED}"):
        Cluster(brokers=1, config=QUICK, timeout=20).__enter__()


PARTITIONS = 300
FLUSHING = {"log.flush.interval.ms": "500", "log.flush.scheduler.interval.ms": "500"}


def test_more_partitions_are_fetched_and_flushed_than_files_may_be_open() -> None:
    """A follower that came back took its leader's only log directory offline, and so did a consumer
    of many partitions, or a flush of them."""
    assert plan(LIMIT).log_files < PARTITIONS // 2
    client, config = client_of("confluent"), QUICK_FENCING | FLUSHING
    with descriptors(LIMIT), Cluster(brokers=2, controllers=1, config=config) as two:
        with Closing(client.admin(two.bootstrap)) as admin:
            admin.create_topic("many", partitions=PARTITIONS, replication_factor=2)
        two.wait_in_sync("many")
        leader = two.pid(1)
        two.kill(2)
        sent = [Message(topic="many", partition=each, value=b"x") for each in range(PARTITIONS)]
        produce(client, two.bootstrap, sent, linger_ms=50)
        two.start(2)
        two.wait_in_sync("many")
        with Closing(client.consumer(two.bootstrap)) as consumer:
            consumer.assign([("many", each) for each in range(PARTITIONS)])
            read(consumer, PARTITIONS)
        assert two.pid(1) == leader
        two.restart(1)  # With the last flush of all logs.
        two.wait_in_sync("many")
        for node in (1, 2):
            log = two.logs(node)
            assert "its logs are offline" not in log
            assert "opening a file failed" not in log
