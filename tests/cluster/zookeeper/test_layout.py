"""Every znode of a cluster is where Kafka has it, with Kafka's JSON and versions.

Method: three brokers that work; each znode is compared with the whole text that Kafka 3.9 would
have written, and its versions with what brokers say and accept on the wire. Last, the controller
dies, and what is written by whom shows whose epoch is in it.
"""

import json
import re
from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid, parse_uuid
from ottla.client.connection import Connection
from ottla.metadata.znodes import paths
from ottla.testing import Cluster
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

from ..ottla_command import ottla
from .operating import PATIENCE_SECONDS, Operator, operating, until

pytestmark = pytest.mark.cluster

BROKERS = (1, 2, 3)
UUID = r"[A-Za-z0-9_-]{22}"


@pytest.fixture(scope="module")
def operator(zookeeper: ZooKeeperServer) -> Iterator[Operator]:
    """A cluster with a topic, a producer's ids and nothing else, below a chroot."""
    config = {
        "zookeeper.session.timeout.ms": "2000",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    }
    with (
        Cluster(
            3, zookeeper=f"{zookeeper.connect}/layout", config=config, remote_storage=True
        ) as cluster,
        operating(cluster) as made,
    ):
        create(made, NewTopic("t", 2, 3, config={"retention.ms": "86400000"}))
        create(made, NewTopic("plain", 1, replica_assignment=[[1]]))
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        producer.produce("t", b"one", partition=0)
        assert producer.flush(PATIENCE_SECONDS) == 0
        yield made


def create(operator: Operator, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    admin.create_topics([topic])[topic.topic].result(PATIENCE_SECONDS)
    operator.cluster.wait_in_sync(topic.topic, PATIENCE_SECONDS)


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# -- what there is one of ------------------------------------------------------------------------


def test_the_first_level_is_kafka_s_and_one_of_ottla_s_own(operator: Operator) -> None:
    assert sorted(operator.client.get_children("/")) == [
        "admin",
        "brokers",
        "cluster",
        "config",
        "consumers",
        "controller",
        "controller_epoch",
        "feature",
        "isr_change_notification",
        "latest_producer_id_block",
        "log_dir_event_notification",
        "ottla",
    ]
    for parent, children in {
        "/admin": ["delete_topics"],
        "/brokers": ["ids", "seqid", "topics"],
        "/config": ["brokers", "changes", "clients", "ips", "topics", "users"],
        "/cluster": ["id"],
        "/ottla": ["deletions"],
    }.items():
        assert sorted(operator.client.get_children(parent)) == children
    for empty in ("/admin/delete_topics", "/brokers/seqid", "/brokers/ids", "/consumers"):
        assert operator.text(empty) == ""


def test_the_controller_and_its_epoch(operator: Operator) -> None:
    text = operator.text("/controller")
    match = re.fullmatch(
        r'\{"version":2,"brokerid":([123]),"timestamp":"(\d+)","kraftControllerEpoch":-1\}', text
    )
    assert match, text
    stat = operator.stat("/controller")
    owner = operator.stat(f"/brokers/ids/{match[1]}").ephemeralOwner
    assert stat.ephemeralOwner == owner != 0
    assert abs(int(match[2]) - stat.ctime) < 60_000
    # Created with 0; an election writes the next one, in one transaction with /controller.
    epoch = operator.stat("/controller_epoch")
    assert (operator.text("/controller_epoch"), epoch.version) == ("1", 1)
    assert epoch.mzxid == stat.czxid


def test_the_cluster_s_id_is_the_one_that_clients_see(operator: Operator) -> None:
    text = operator.text("/cluster/id")
    match = re.fullmatch(rf'\{{"version":"1","id":"({UUID})"\}}', text)
    assert match, text
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    assert admin.list_topics(timeout=PATIENCE_SECONDS).cluster_id == match[1]


def test_features_are_enabled_and_none_is_finalized(operator: Operator) -> None:
    assert operator.text("/feature") == '{"version":2,"status":1,"features":{}}'


def test_producer_ids_are_given_in_blocks(operator: Operator) -> None:
    text = operator.text("/latest_producer_id_block")
    match = re.fullmatch(
        r'\{"version":1,"broker":[123],"block_start":"(\d+)","block_end":"(\d+)"\}', text
    )
    assert match, text
    blocks = operator.stat("/latest_producer_id_block").version  # Made empty, then written.
    assert blocks >= 1
    assert (int(match[1]), int(match[2])) == (1_000 * (blocks - 1), 1_000 * blocks - 1)


# -- brokers -------------------------------------------------------------------------------------


def broker_epochs(operator: Operator, brokers: Iterable[int]) -> dict[str, int]:
    """Return the epochs of registered brokers, as a state has them."""
    return {str(each): operator.stat(f"/brokers/ids/{each}").czxid for each in sorted(brokers)}


@pytest.mark.parametrize("number", BROKERS)
def test_a_broker_s_registration(operator: Operator, number: int) -> None:
    port = int(operator.cluster.address(number).rpartition(":")[2])
    found = operator.json(f"/brokers/ids/{number}")
    assert found["timestamp"].isdecimal()
    assert operator.text(f"/brokers/ids/{number}") == compact(
        {
            "version": 5,
            "host": "127.0.0.1",
            "port": port,
            "jmx_port": -1,
            "timestamp": found["timestamp"],
            "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {"ottla.version": {"min_version": 1, "max_version": 3}},
        }
    )
    assert operator.stat(f"/brokers/ids/{number}").ephemeralOwner != 0


def test_a_registration_s_czxid_is_the_broker_s_epoch(operator: Operator) -> None:
    """Both ways: what a broker says of itself to the controller, and what it takes from there."""
    number = operator.others()[0]
    epoch = operator.stat(f"/brokers/ids/{number}").czxid
    nothing = RequestPartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)
    asked = {
        given: alter_partition(operator, number, given, Uuid(b"n" * 16), nothing).error_code
        for given in (epoch - 1, epoch)
    }
    assert asked == {epoch - 1: Error.STALE_BROKER_EPOCH, epoch: Error.NONE}
    notified = {given: update_metadata(operator, number, given) for given in (epoch - 1, epoch)}
    # With the right one the request gets as far as its controller epoch, which is none.
    assert notified == {epoch - 1: Error.STALE_BROKER_EPOCH, epoch: Error.STALE_CONTROLLER_EPOCH}


def alter_partition(
    operator: Operator,
    broker_id: int,
    broker_epoch: int,
    topic_id: Uuid,
    wanted: RequestPartitionData,
) -> AlterPartitionResponse:
    """Ask the controller for a partition's in-sync replicas, as its leader does."""
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=(RequestTopicData(topic_id=topic_id, partitions=(wanted,)),),
    )
    with connected(operator, operator.controller()) as broker:
        return broker.ask(request, AlterPartitionResponse, version=3, timeout=PATIENCE_SECONDS)


def update_metadata(operator: Operator, broker_id: int, broker_epoch: int) -> int:
    """Tell a broker nothing, as a controller of the epoch 0."""
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=0, broker_epoch=broker_epoch, live_brokers=()
    )
    with connected(operator, broker_id) as broker:
        answer = broker.ask(request, UpdateMetadataResponse, version=8, timeout=PATIENCE_SECONDS)
    return answer.error_code


def connected(operator: Operator, broker_id: int) -> Connection:
    host, _, port = operator.cluster.address(broker_id).rpartition(":")
    return Connection(host, int(port), client_id="layout", timeout=PATIENCE_SECONDS)


# -- topics and configurations -------------------------------------------------------------------


def test_a_topic_and_its_partitions(operator: Operator) -> None:
    facts = operator.cluster.partitions("t")
    found = operator.json("/brokers/topics/t")
    topic_id = parse_uuid(found["topic_id"])
    assert topic_id != NO_UUID
    assert operator.text("/brokers/topics/t") == compact(
        {
            "version": 3,
            "partitions": {str(number): list(facts[number].replicas) for number in (0, 1)},
            "adding_replicas": {},
            "removing_replicas": {},
            "topic_id": found["topic_id"],
        }
    )
    assert operator.text("/brokers/topics/t/partitions") == ""
    for number in (0, 1):
        each = facts[number]
        assert operator.text(f"/brokers/topics/t/partitions/{number}") == ""
        assert operator.text(f"/brokers/topics/t/partitions/{number}/state") == compact(
            {
                "version": 1,
                "leader": each.leader,
                "leader_epoch": 0,
                "controller_epoch": 1,
                "isr": list(each.isr),
                "ottla_broker_epochs": broker_epochs(operator, each.isr),
            }
        )
    for broker_id in BROKERS:
        kept = operator.cluster.data_dir(broker_id) / "t-0" / "partition.metadata"
        assert kept.read_text() == f"version: 0\ntopic_id: {found['topic_id']}"


def test_configurations_and_that_they_were_changed(operator: Operator) -> None:
    assert operator.text("/config/topics/t") == compact(
        {"version": 1, "config": {"retention.ms": "86400000"}}
    )
    assert operator.text("/config/topics/plain") == compact({"version": 1, "config": {}})
    configure(operator, "topics", "t", "segment.bytes=1048576")
    last = max(operator.client.get_children("/config/changes"))
    assert re.fullmatch(r"config_change_\d{10}", last)
    assert operator.text(f"/config/changes/{last}") == compact(
        {"version": 2, "entity_path": "topics/t"}
    )
    configure(operator, "brokers", None, "log.retention.ms=86400001")
    assert operator.text("/config/brokers/<default>") == compact(
        {"version": 1, "config": {"log.retention.ms": "86400001"}}
    )
    last = max(operator.client.get_children("/config/changes"))
    assert operator.json(f"/config/changes/{last}")["entity_path"] == "brokers/<default>"


def configure(operator: Operator, kind: str, name: str | None, change: str) -> None:
    """Set one value through a broker."""
    entity = ("--entity-default",) if name is None else ("--entity-name", name)
    ran = ottla(
        "configs", "--bootstrap-server", operator.cluster.bootstrap, "--alter",
        "--entity-type", kind, *entity, "--add-config", change,
    )  # fmt: skip
    assert ran.code == 0, ran.err


def test_a_tiering_state_in_one_transaction_with_its_configuration(operator: Operator) -> None:
    """The paths are those of KIP-950, which Kafka never had; Ottla's own are below `/ottla`."""
    create(operator, NewTopic("tiered", 1, 3, config={"remote.storage.enable": "true"}))
    create(operator, NewTopic("enabled", 1, 3))
    configure(operator, "topics", "enabled", "remote.storage.enable=true")
    for name in ("tiered", "enabled"):
        parent = f"/brokers/topics/{name}/tieredstorage"
        assert operator.text(parent) == ""
        assert operator.text(f"{parent}/tiered_epoch") == "1"
        assert operator.text(f"{parent}/state") == compact(
            {
                "version": 1,
                "state": "ENABLED",
                "tiered_epoch": 1,
                "policy": "none",
                "remote_floor_epoch": 0,
                "purge_pending": False,
            }
        )
        assert sorted(operator.client.get_children(parent)) == ["state", "tiered_epoch"]
        changed = operator.stat(f"/config/topics/{name}").mzxid
        for node in (parent, f"{parent}/tiered_epoch", f"{parent}/state"):
            assert operator.stat(node).czxid == operator.stat(node).mzxid == changed
    until(lambda: operator.stat("/brokers/topics/__remote_log_metadata/partitions/0/state"))
    assert operator.json("/config/topics/__remote_log_metadata")["config"] == {
        "cleanup.policy": "delete",
        "flush.messages": "1",
        "min.insync.replicas": "2",
        "remote.storage.enable": "false",
        "retention.bytes": "-1",
        "retention.ms": "-1",
    }
    found = operator.json("/brokers/topics/__remote_log_metadata")
    assert sorted(found["partitions"]["0"]) == [1, 2, 3]
    assert operator.stat("/brokers/topics/t/tieredstorage") is None


def test_a_deleted_topic_leaves_no_tiering_state(operator: Operator) -> None:
    create(operator, NewTopic("short", 1, 3, config={"remote.storage.enable": "true"}))
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    admin.delete_topics(["short"])["short"].result(PATIENCE_SECONDS)
    until(lambda: operator.stat("/brokers/topics/short") is None)
    create(operator, NewTopic("short", 1, 3))
    assert operator.client.get_children("/brokers/topics/short") == ["partitions"]


# -- versions and epochs -------------------------------------------------------------------------


def test_versions_and_epochs_say_who_wrote_what_and_how_often(operator: Operator) -> None:
    """The controller dies: what it led is written once more, by the next one; the rest stays."""
    first = operator.controller()
    one, other = operator.others()
    create(operator, NewTopic("stays", 1, replica_assignment=[[one, other]]))
    create(operator, NewTopic("moves", 1, replica_assignment=[[first, one, other]]))
    stays, moves = paths.state("stays", 0), paths.state("moves", 0)
    created = {path: operator.stat(path).version for path in (stays, moves)}
    assert created == {stays: 0, moves: 0}
    operator.cluster.kill(first)
    until(lambda: operator.stat(moves).version > 0)
    second = operator.controller()
    assert second != first
    assert (operator.text("/controller_epoch"), operator.stat("/controller_epoch").version) == (
        "2",
        2,
    )
    until(lambda: operator.json(moves)["isr"] == [one, other])
    assert operator.text(moves) == compact(
        {"version": 1, "leader": one, "leader_epoch": 1, "controller_epoch": 2,
         "isr": [one, other], "ottla_broker_epochs": broker_epochs(operator, (one, other))}
    )  # fmt: skip
    assert operator.json(stays)["controller_epoch"] == 1
    assert operator.stat(stays).version == 0
    before = operator.stat(moves).version
    operator.cluster.start(first)
    operator.cluster.wait_in_sync("moves", PATIENCE_SECONDS)
    assert sorted(operator.json(moves)["isr"]) == [1, 2, 3]
    assert operator.stat(moves).version == before + 1
    for name in ("stays", "moves"):
        assert partition_epoch(operator, name) == operator.stat(paths.state(name, 0)).version


def partition_epoch(operator: Operator, name: str) -> int:
    """Ask, as a partition's leader, for the in-sync replicas that are; return its epoch."""
    facts = operator.json(paths.state(name, 0))
    leader = facts["leader"]
    epochs = {each: operator.stat(paths.broker(each)).czxid for each in facts["isr"]}
    wanted = RequestPartitionData(
        partition_index=0,
        leader_epoch=facts["leader_epoch"],
        new_isr_with_epochs=tuple(
            BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in epochs.items()
        ),
        partition_epoch=operator.stat(paths.state(name, 0)).version,
    )
    topic_id = parse_uuid(operator.json(paths.topic(name))["topic_id"])
    answer = alter_partition(operator, leader, epochs[leader], topic_id, wanted)
    [topic] = answer.topics
    [partition] = topic.partitions
    assert partition.error_code == Error.NONE
    return partition.partition_epoch
