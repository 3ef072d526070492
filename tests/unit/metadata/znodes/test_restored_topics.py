"""Goal: a topic that is restored in ZooKeeper mode is there whole, or not at all.

Method: the bytes by hand; the step of a restore written to a tree of znodes with multis of a few
operations, and the controller dead after each of them. The next one reads the tree and elects what
is without a leader.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.context import DecisionContext
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.controller.topics.restore import RestoredTopic, restore_topic
from ottla.metadata.brokers import Endpoint
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.records import RemoveTopicRecord, TopicTieringRecord
from ottla.metadata.tiering import RestoredPartition, TopicTiering, tiering_record
from ottla.metadata.znodes import multis, paths
from ottla.metadata.znodes.broker import BrokerZnode, encode_broker
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.multis import Write
from ottla.metadata.znodes.tiering import decode_tiering, encode_tiering

from ...controller.builders import context, uuid
from .clusters import topic_of
from .tree import Cluster, Tree

ID = uuid("restored")
PARTITIONS = 12
GIVEN = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///store",
}
CONFIGS = {"remote.storage.enable": "true", "retention.ms": "5"}
FIRST = RestoredPartition(
    partition=0, leader_epoch=7, log_start_offset=10, end_offset=30, epochs=((1, 10), (6, 20))
)
WRITTEN = (
    b'{"version":1,"state":"ENABLED","tiered_epoch":4,"policy":"none","remote_floor_epoch":2,'
    b'"purge_pending":false,"restored":[{"partition":0,"leader_epoch":7,"log_start_offset":10,'
    b'"end_offset":30,"epochs":[[1,10],[6,20]]},{"partition":1,"leader_epoch":0,'
    b'"log_start_offset":0,"end_offset":0,"epochs":[]}]}'
)


def partition(number: int) -> RestoredPartition:
    return replace(FIRST, partition=number, leader_epoch=7 + number)


def topic(count: int = PARTITIONS) -> RestoredTopic:
    return RestoredTopic(
        name="t",
        topic_id=ID,
        tiered_epoch=4,
        floor=2,
        configs=CONFIGS,
        partitions=tuple(map(partition, range(count))),
        replication_factor=2,
    )


def cluster() -> Cluster:
    """Return three brokers that support remote storage; the topic's name has a stale config."""
    tree = Tree()
    for broker_id in (1, 2, 3):
        endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id)
        znode = BrokerZnode(
            endpoints=(endpoint,), features={OTTLA_VERSION: (1, OTTLA_VERSION_LEVEL)}
        )
        tree.put(paths.broker(broker_id), encode_broker(znode))
    tree.put(paths.config((2, "t")), encode_config({"cleanup.policy": "compact"}))
    return Cluster(tree)


def mode_context() -> DecisionContext:
    return replace(context(GIVEN), mode=ZOOKEEPER_MODE)


def planned(stored: Cluster, wanted: RestoredTopic) -> list[Write]:
    decided = restore_topic(stored.image, wanted, validate_only=False, context=mode_context())
    return stored.plan(decided.step.records)


def test_the_bytes() -> None:
    second = RestoredPartition(partition=1, leader_epoch=0, log_start_offset=0, end_offset=0)
    tiering = TopicTiering(
        topic_id=ID, tiered_epoch=4, remote_floor_epoch=2, restored=(FIRST, second)
    )
    assert encode_tiering(tiering) == WRITTEN
    read, extra = decode_tiering("t", ID, WRITTEN)
    assert (read, dict(extra)) == (tiering, {})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (b'"restored":[', b'"restored":[1,', "expected an object for each partition"),
        (b'"restored":[', b'"restored":{"a":[', "expected JSON"),
        (b'"partition":1', b'"partition":0', "each partition once, in order"),
        (b'"partition":0', b'"partition":-1', "expected a range of offsets"),
        (b'"partition":0,', b"", "partition is missing"),
        (b'"end_offset":30', b'"end_offset":9', "expected a range of offsets"),
        (b'"log_start_offset":10', b'"log_start_offset":-1', "expected a range of offsets"),
        (b'"leader_epoch":7', b'"leader_epoch":-1', "expected an epoch of 0 or more"),
        (b"[6,20]", b"[6]", "expected a leader epoch and an offset"),
        (b"[6,20]", b'[6,"20"]', "expected a list of integers"),
        (b"[6,20]", b"6", "expected a list of integers"),
        (b'"epochs":[]', b'"epochs":7', "expected a list"),
    ],
)
def test_what_cannot_be_meant(before: bytes, now: bytes, expected: str) -> None:
    with pytest.raises(ZnodeError, match=expected) as caught:
        decode_tiering("t", ID, WRITTEN.replace(before, now))
    assert caught.value.path == "/brokers/topics/t/tieredstorage/state"


def check_whole(stored: Cluster) -> None:
    """Check the topic, of which partitions may lack a leader."""
    found = topic_of(stored, "t")
    assert found.id == ID
    assert sorted(found.partitions) == list(range(PARTITIONS))
    assert dict(stored.image.configs.of(2, "t")) == CONFIGS
    assert stored.image.tiering[ID] == TopicTiering(
        topic_id=ID, tiered_epoch=4, remote_floor_epoch=2, restored=topic().partitions
    )


@pytest.mark.parametrize("operations_max", [11, 12, 14, 20, 1_000])
def test_a_controller_dies_after_each_write(
    operations_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multis, "ZOOKEEPER_MULTI_OPERATIONS_MAX", operations_max)
    count = len(planned(cluster(), topic()))
    assert (count > 1) == (operations_max < 1_000)
    for done in range(count + 1):
        stored = cluster()
        for write in planned(stored, topic())[:done]:
            assert len(write.operations) <= operations_max
            stored.done(write)
            stored.check()
            check_whole(stored)
        following = Cluster(stored.tree)
        if not done:
            assert not following.image.topics.by_id(ID)
            continue
        check_whole(following)
        following.write(bring_online(following.image, mode_context().config).records)
        following.check()
        check_whole(following)
        for number, each in topic_of(following, "t").partitions.items():
            # All replicas begin alike, in epochs above those of the remote segments.
            assert (each.leader_epoch, each.partition_epoch) == (7 + number, 0)
            assert len(each.isr) == len(each.replicas) == 2


def test_a_multi_that_is_nearly_full_gets_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two topics in one step, the second one is as whole as the first."""
    monkeypatch.setattr(multis, "ZOOKEEPER_MULTI_OPERATIONS_MAX", 14)
    stored = cluster()
    records: list[Any] = []
    for name in ("t", "u"):
        wanted = replace(topic(), name=name, topic_id=uuid(name))
        decided = restore_topic(stored.image, wanted, validate_only=False, context=mode_context())
        records += decided.step.records
    for write in stored.plan(records):
        stored.done(write)
        stored.check()
        for each in stored.image.topics:
            assert stored.image.tiering[each.id].restored == topic().partitions
            assert dict(stored.image.configs.of(2, each.name)) == CONFIGS
    assert len(list(stored.image.topics)) == 2


def test_more_than_a_multi_takes_is_refused_and_nothing_is_written() -> None:
    stored = cluster()
    many = replace(topic(1), partitions=tuple(map(partition, range(9_000))))
    with pytest.raises(ZnodeError, match="more than ZooKeeper takes") as refused:
        planned(stored, many)
    assert refused.value.path == paths.topic("t")
    fitting = planned(stored, replace(many, partitions=many.partitions[:4_000]))
    stored.done(fitting[0])
    stored.check()
    assert len(stored.image.tiering[ID].restored) == 4_000


def test_it_stays_with_the_topic_through_changes_of_the_state() -> None:
    stored = cluster()
    for write in planned(stored, topic()):
        stored.done(write)
    changed = replace(stored.image.tiering[ID], tiered_epoch=5, purge_pending=True)
    record = tiering_record(changed)
    assert isinstance(record, TopicTieringRecord)
    stored.write([record])
    stored.check()
    assert stored.image.tiering[ID].restored == topic().partitions
    stored.write([RemoveTopicRecord(topic_id=ID)])
    stored.check()
    assert not [path for path in stored.tree.nodes if path.startswith("/brokers/topics/t")]
