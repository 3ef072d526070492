"""Znodes that nobody can read harm nothing but what they are about, and are named in a log.

Method: a cluster of three brokers, and garbage in one znode after another: in new ones, and in
those that were good before. Clients go on with all the rest, and so does a controller that is
elected and brokers that start while the garbage is there; what is put right counts at once.
"""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.base.errors import Error
from ottla.client.connection import Connection
from ottla.metadata.znodes import paths
from ottla.testing import Cluster
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

from .operating import PATIENCE_SECONDS, Operator, operating, until

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(4)]

GARBAGE = (b"{", b"", b"\xff\xfe", b"[]", b'{"version":"x"}')
CONFIG = {"zookeeper.session.timeout.ms": "2000", "auto.create.topics.enable": "false"}


@pytest.fixture(scope="module")
def operator(zookeeper: ZooKeeperServer) -> Iterator[Operator]:
    """A cluster that each test leaves without garbage."""
    with (
        Cluster(3, zookeeper=f"{zookeeper.connect}/garbage", config=CONFIG) as cluster,
        operating(cluster) as made,
    ):
        made.place("good", {0: [1, 2, 3], 1: [2, 3, 1]})
        yield made


def check_it_goes_on(operator: Operator) -> None:
    """Clients and tools get what they want."""
    assert [operator.produce("good", each) for each in (0, 1)] == [None, None]
    name = f"new-{operator.stat('/brokers/topics').cversion}"
    operator.place(name, {0: [1, 2, 3]})
    assert operator.produce(name) is None


def rule_anew(operator: Operator) -> None:
    """Have a controller elected that reads everything."""
    epoch = operator.epoch()
    operator.client.delete(paths.CONTROLLER)
    until(lambda: operator.epoch() > epoch)
    operator.cluster.wait_controller()


def created(operator: Operator, name: str) -> str:
    """Create a topic by a broker; return what is said against it."""
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    try:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_SECONDS)
    except KafkaException as refused:
        return str(refused.args[0].str())
    return ""


# -- what was never good -------------------------------------------------------------------------


def test_topics(operator: Operator) -> None:
    """A name is taken by a znode that says nothing, until somebody writes what it shall be."""
    names = [f"bad-{number}" for number in range(len(GARBAGE))]
    for name, garbage in zip(names, GARBAGE, strict=True):
        operator.write(paths.topic(name), garbage)
    for name in names:
        until(lambda name=name: operator.logged(f"{paths.topic(name)}: "))  # type: ignore[misc]
    check_it_goes_on(operator)
    rule_anew(operator)
    check_it_goes_on(operator)
    assert paths.topic(names[0]) in created(operator, names[0])
    for name in names:
        operator.place(name, {0: [1, 2]})
        assert operator.produce(name) is None


@pytest.mark.parametrize("garbage", GARBAGE)
def test_requests_and_notifications(operator: Operator, garbage: bytes) -> None:
    """They go, since nobody could ever act on them; a changed configuration's stays a while."""
    for path in (paths.REASSIGN_PARTITIONS, paths.PREFERRED_ELECTION):
        before = operator.times_logged(f"{path}: ")
        operator.client.create(path, garbage)
        until(lambda path=path: operator.stat(path) is None)  # type: ignore[misc]
        assert operator.times_logged(f"{path}: ") == before + 1
    for path, parent in (
        (paths.ISR_CHANGE, paths.ISR_CHANGES),
        (paths.LOG_DIR_EVENT, paths.LOG_DIR_EVENTS),
    ):
        made = operator.client.create(path, garbage, sequence=True)
        until(lambda parent=parent: not operator.client.get_children(parent))  # type: ignore[misc]
        assert operator.logged(f"{made}: ")
    made = operator.client.create(paths.CONFIG_CHANGE, garbage, sequence=True)
    name = made.rpartition("/")[2]
    until(lambda: operator.logged(name))
    operator.client.create("/admin/delete_topics/nobody", garbage)
    until(lambda: operator.stat("/admin/delete_topics/nobody") is None)
    operator.run("configs", "--alter", "--topic", "good", "--add-config", "max.message.bytes=2000")
    until(lambda: operator.produce("good", size=3_000) is not None, "what a good one tells")
    operator.run("configs", "--alter", "--topic", "good", "--delete-config", "max.message.bytes")
    until(lambda: operator.produce("good", size=3_000) is None)


def test_registrations(operator: Operator) -> None:
    """Nobody who is read, and names that are no numbers at all."""
    names = [f"{paths.BROKER_IDS}/{name}" for name in ("7", "8", "x")]
    for path, garbage in zip(names, GARBAGE[:3], strict=True):
        operator.client.create(path, garbage)
    until(lambda: all(operator.logged(f"{path}: ") for path in names[:2]))
    check_it_goes_on(operator)
    rule_anew(operator)
    check_it_goes_on(operator)
    assert created(operator, "placed") == ""
    for path in names:
        operator.client.delete(path)


# -- what was good before ------------------------------------------------------------------------


def test_a_topic_that_is_in_use(operator: Operator) -> None:
    """Clients notice nothing; what the controller knows is written by its next change."""
    operator.place("used", {0: [1, 2]})
    operator.write(paths.topic("used"), b"{")
    until(lambda: operator.logged(f"{paths.topic('used')}: "))
    assert operator.produce("used") is None
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    admin.create_partitions([NewPartitions("used", 2)])["used"].result(PATIENCE_SECONDS)
    assert sorted(operator.json(paths.topic("used"))["partitions"]) == ["0", "1"]
    operator.cluster.wait_in_sync("used")
    assert operator.produce("used", 1) is None


def test_a_state_and_a_configuration(operator: Operator) -> None:
    """The last good ones count for as long as anybody knows them."""
    operator.place("kept", {0: [1, 2, 3]})
    operator.run("configs", "--alter", "--topic", "kept", "--add-config", "max.message.bytes=2000")
    until(lambda: operator.produce("kept", size=3_000) is not None)
    operator.write("/config/topics/kept", b"{")
    operator.notify("topics/kept")
    until(lambda: operator.logged("/config/topics/kept: "))
    assert operator.produce("kept", size=3_000) is not None
    operator.write(paths.state("kept", 0), b"{")
    notification = {"version": 1, "partitions": [{"topic": "kept", "partition": 0}]}
    operator.client.create(paths.ISR_CHANGE, json.dumps(notification).encode(), sequence=True)
    until(lambda: operator.logged(f"{paths.state('kept', 0)}: "))
    assert operator.produce("kept") is None
    # The leader's next change of who is in sync writes it again.
    follower = next(each for each in (2, 3) if each != operator.controller())
    operator.cluster.restart(follower)
    until(lambda: operator.text(paths.state("kept", 0)) != "{")
    operator.cluster.wait_in_sync("kept", PATIENCE_SECONDS)


def test_features(operator: Operator) -> None:
    feature = operator.text("/feature")
    for garbage in GARBAGE:
        operator.write("/feature", garbage)
    until(lambda: operator.logged("/feature: "))
    rule_anew(operator)
    check_it_goes_on(operator)
    operator.write("/feature", feature.encode())


def test_producer_ids(operator: Operator) -> None:
    """A controller that knows where they go on goes on; one that does not gives none away."""
    path = paths.PRODUCER_IDS
    first = allocated(operator)
    assert first.error_code == Error.NONE
    operator.write(path, b"{")
    until(lambda: operator.logged(f"{path}: "))
    second = allocated(operator)
    assert (second.error_code, second.producer_id_start) == (0, first.producer_id_start + 1_000)
    good = operator.text(path)
    operator.write(path, b"{")
    rule_anew(operator)
    until(lambda: allocated(operator).error_code != Error.NOT_CONTROLLER)
    assert allocated(operator).error_code != Error.NONE
    assert operator.text(path) == "{"
    operator.write(path, good.encode())
    until(lambda: allocated(operator).error_code == Error.NONE)
    assert operator.json(path)["block_start"] == str(second.producer_id_start + 1_000)
    check_it_goes_on(operator)


def allocated(operator: Operator) -> AllocateProducerIdsResponse:
    """Ask the controller for a block of producer ids, as itself."""
    broker_id = operator.controller()
    request = AllocateProducerIdsRequest(
        broker_id=broker_id, broker_epoch=operator.stat(paths.broker(broker_id)).czxid
    )
    host, _, port = operator.cluster.address(broker_id).rpartition(":")
    with Connection(host, int(port), client_id="garbage", timeout=PATIENCE_SECONDS) as broker:
        return broker.ask(request, AllocateProducerIdsResponse, version=0, timeout=PATIENCE_SECONDS)
