"""Remote storage in ZooKeeper mode: what tools write, older brokers, ZooKeeper frozen meanwhile.

Method: three brokers over a server of their own, and a directory as the store; the znodes, what is
in the store and on local disks, and what a consumer reads. What is the same in both modes is in
tests/cluster/test_tiered_storage.py.
"""

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.base.errors import Error
from ottla.metadata.znodes import paths
from ottla.testing import Cluster

from ..clients import Closing, Refused, client_of, eventually
from ..conftest import new_name, revived
from ..tiered import (
    RECORDS,
    TIERED,
    TOPIC,
    check,
    produce,
    produced,
    remote_segments,
    send,
    wait_tiered,
)
from .operating import PATIENCE_SECONDS, Operator, operating, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.drawn(2)]

SESSION_MS = 2_000
ENABLE = "remote.storage.enable"
PLAIN = TOPIC | {ENABLE: "false"}


@pytest.fixture(scope="module")
def operator_of_module() -> Iterator[Operator]:
    config = TIERED | {
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        # No broker hosts all partitions: it learns of the others later.
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    }
    with (
        Cluster(3, zookeeper=True, config=config, remote_storage=True) as cluster,
        operating(cluster) as made,
    ):
        yield made


@pytest.fixture
def operator(operator_of_module: Operator) -> Operator:
    """All brokers serve, whatever a failed test left."""
    server = operator_of_module.cluster.zookeeper
    assert server is not None
    server.resume()
    revived(operator_of_module.cluster)
    return operator_of_module


def is_enabled(operator: Operator, topic: str) -> bool:
    """Tell whether a topic has a tiering state; its parts are written together."""
    # The parent first: what is written between two looks is then no part that is missing.
    if operator.stat(paths.tiering(topic)) is None:
        return False
    assert operator.json(paths.tiering_state(topic))["state"] == "ENABLED"
    return True


def test_the_old_tools_enable_remote_storage(operator: Operator) -> None:
    topic, made = new_name("configured"), new_name("made")
    values = produced(operator.cluster, topic, config=PLAIN)
    operator.run("configs", "--alter", "--topic", topic, "--add-config", f"{ENABLE}=true")
    until(lambda: is_enabled(operator, topic))
    words = [word for name, value in TOPIC.items() for word in ("--config", f"{name}={value}")]
    operator.run(
        "topics", "--create", "--topic", made, "--partitions", "1", "--replication-factor", "3",
        *words,
    )  # fmt: skip
    until(lambda: is_enabled(operator, made))
    operator.cluster.wait_in_sync(made, PATIENCE_SECONDS)
    made_values = produce(operator.cluster, made, range(RECORDS))
    wait_tiered(operator.cluster, topic)
    wait_tiered(operator.cluster, made)
    check(operator.cluster, topic, values)
    check(operator.cluster, made, made_values)


def test_a_configuration_that_a_request_is_refused_for_has_no_effect(operator: Operator) -> None:
    plain = new_name("plain")
    produced(operator.cluster, plain, config=PLAIN)
    path = paths.config((2, plain))
    config = TOPIC | {"cleanup.policy": "compact"}
    operator.write(path, {"version": 1, "config": config})
    operator.notify(f"topics/{plain}")
    until(lambda: operator.logged(f"ignoring remote storage in a configuration: {path}: "))
    assert not is_enabled(operator, plain)
    assert remote_segments(operator.cluster, plain) == []


def test_a_configuration_that_a_tool_writes_turns_it_off(operator: Operator) -> None:
    """And what is remote stays readable, as with a request: the default policy is retain."""
    topic = new_name("off")
    values = produced(operator.cluster, topic)
    wait_tiered(operator.cluster, topic)
    before = len(remote_segments(operator.cluster, topic))
    operator.write(paths.config((2, topic)), {"version": 1, "config": PLAIN})
    operator.notify(f"topics/{topic}")
    until(lambda: operator.logged(f"tiered storage of topic {topic} is DISABLED (retain)"))
    assert operator.json(paths.tiering_state(topic))["state"] == "DISABLED"
    assert len(remote_segments(operator.cluster, topic)) >= before
    check(operator.cluster, topic, values)


def test_beside_an_older_broker_nothing_is_enabled_nor_half_done(operator: Operator) -> None:
    topic, other = new_name("older"), new_name("refused")
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    with Closing(client_of("confluent").admin(operator.cluster.bootstrap)) as client:
        client.create_topic(topic, replication_factor=3, config=PLAIN)
    values = produce(operator.cluster, topic, range(RECORDS))
    config_before = operator.text(paths.config((2, topic)))
    registered = operator.json(paths.broker(1))
    registered["features"] = {"ottla.version": {"min_version": 1, "max_version": 1}}
    # It serves nothing: its address is that of no listener.
    registered |= {"port": 1, "endpoints": ["PLAINTEXT://127.0.0.1:1"]}
    operator.client.create(paths.broker(9), json.dumps(registered).encode(), ephemeral=True)
    try:
        eventually(lambda: 9 in admin.list_topics(timeout=PATIENCE_SECONDS).brokers, within=20)
        assignment = [[1, 2, 3]]
        new = NewTopic(other, 1, replica_assignment=assignment, config={ENABLE: "true"})
        with pytest.raises(KafkaException) as caught:
            admin.create_topics([new])[other].result(PATIENCE_SECONDS)
        assert caught.value.args[0].code() == KafkaError.UNSUPPORTED_VERSION
        assert "needs the feature ottla.version at level 2" in caught.value.args[0].str()
        with (
            Closing(client_of("confluent").admin(operator.cluster.bootstrap)) as client,
            pytest.raises(Refused) as refused,
        ):
            client.set_topic_config(topic, ENABLE, "true")
        assert refused.value.code == Error.UNSUPPORTED_VERSION
        assert operator.stat(paths.topic(other)) is None
        assert operator.stat(paths.config((2, other))) is None
        assert operator.text(paths.config((2, topic))) == config_before
        # A tool cannot be refused: it takes effect when the last older broker is gone.
        operator.run("configs", "--alter", "--topic", topic, "--add-config", f"{ENABLE}=true")
        until(lambda: operator.logged(f"{paths.config((2, topic))}: {ENABLE}=true needs the"))
        assert not is_enabled(operator, topic)
    finally:
        operator.client.delete(paths.broker(9))
    until(lambda: is_enabled(operator, topic))
    wait_tiered(operator.cluster, topic)
    check(operator.cluster, topic, values)


def test_segments_are_copied_while_zookeeper_is_frozen_and_after_it(operator: Operator) -> None:
    """Copies need the store and the brokers only."""
    topic, cluster = new_name("frozen"), operator.cluster
    third = RECORDS // 3
    with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
        admin.create_topic(topic, replication_factor=3, config=TOPIC)
    # One producer for all: a broker may need ZooKeeper for the id of another one.
    with Closing(client_of("confluent").producer(cluster.bootstrap, idempotent=True)) as producer:
        values = send(producer, topic, range(third))
        eventually(lambda: bool(remote_segments(cluster, topic)), within=30, what="the first copy")
        assert cluster.zookeeper is not None
        cluster.zookeeper.pause()
        values += send(producer, topic, range(third, 2 * third))
        copied = 2 * third // 16 - 2
        eventually(
            lambda: len(remote_segments(cluster, topic)) >= copied,
            within=60,
            what="copies meanwhile",
        )
        time.sleep(2 * SESSION_MS / 1_000)
        cluster.zookeeper.resume()
        values += send(producer, topic, range(2 * third, RECORDS))
    cluster.wait_ready()
    cluster.wait_in_sync(topic)
    wait_tiered(cluster, topic)
    check(cluster, topic, values)
    assert not operator.logged("partitions instead of")
