"""However many connect to a node that may have few descriptors, its logs can be written.

Method: a broker under a small limit of open files, and more connections than that allows, while a
bystander uses it and topics are made, which opens files of the metadata log and of partitions.
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
from ottla.wire.messages.api_versions import ApiVersionsRequest

from .bystander import Bystander
from .clients import Message, client_of, eventually, produce
from .conftest import QUICK, new_topic
from .raw import answered, connect, encoded

pytestmark = [pytest.mark.alone, pytest.mark.drawn(5, of="alone")]
"""The limit is the process's own: it may have no files of other tests open."""

LIMIT = 256
CONNECTIONS = 400
VERSIONS = encoded(ApiVersionsRequest(), 0)


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Let processes that are started meanwhile have so many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
