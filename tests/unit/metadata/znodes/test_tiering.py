"""Goal: a topic's tiering state is in its znodes exactly while the topic is, beside its config.

Method: the bytes by hand; steps written to a tree of znodes and read again; what others changed.
"""

from dataclasses import replace

import pytest

from ottla.base.ids import Uuid
from ottla.base.limits import ZOOKEEPER_MULTI_BYTES_MAX
from ottla.base.zookeeper import Create, SetData, ZkCode, ZkError
from ottla.metadata.records import ConfigRecord, RemoveTopicRecord, TopicTieringRecord
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering, tiering_of
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import observed
from ottla.metadata.znodes.multis import OPERATION_BYTES, Write
from ottla.metadata.znodes.tiering import (
    decode_tiered_epoch,
    decode_tiering,
    encode_tiered_epoch,
    encode_tiering,
)
from ottla.metadata.znodes.write import topic_rewrites

from .clusters import topic_of, with_topic
from .tree import EPOCH, Cluster

ID = Uuid(b"t" * 16)
DISABLING = TopicTiering(
    topic_id=ID,
    state=TieringState.DISABLING,
    tiered_epoch=3,
    policy=DisablePolicy.DELETE,
    remote_floor_epoch=2,
    purge_pending=True,
)
WRITTEN = (
    b'{"version":1,"state":"DISABLING","tiered_epoch":3,"policy":"delete",'
    b'"remote_floor_epoch":2,"purge_pending":true}'
)


def test_the_bytes() -> None:
    assert encode_tiering(DISABLING) == WRITTEN
    assert encode_tiered_epoch(DISABLING) == b"3"
    tiering, extra = decode_tiering("t", ID, WRITTEN[:-1] + b',"more":[1]}')
    assert (tiering, dict(extra)) == (DISABLING, {"more": [1]})
    assert encode_tiering(tiering, extra) == WRITTEN[:-1] + b',"more":[1]}'
    assert decode_tiered_epoch("t", b"3\n") == 3


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (b'"version":1', b'"version":0', "expected 1 or more"),
        (b"DISABLING", b"disabling", "expected ENABLED, DISABLING, DISABLED"),
        (b'"delete"', b'"DELETE"', "expected none, retain, delete"),
        (b'"tiered_epoch":3', b'"tiered_epoch":0', "expected an epoch of 1 or more"),
        (b'"tiered_epoch":3', b'"tiered_epoch":2147483648', "expected an epoch"),
        (b'"remote_floor_epoch":2', b'"remote_floor_epoch":-1', "expected an epoch of 0 or more"),
        (b"true", b"1", "expected true or false"),
        (b'"policy":"delete",', b"", "policy is missing"),
    ],
)
def test_what_cannot_be_meant(before: bytes, now: bytes, expected: str) -> None:
    with pytest.raises(ZnodeError, match=expected) as caught:
        decode_tiering("t", ID, WRITTEN.replace(before, now))
    assert caught.value.path == "/brokers/topics/t/tieredstorage/state"


@pytest.mark.parametrize("data", [b"", b"x", b"1.0", b"\xff"])
def test_an_epoch_is_a_decimal_number(data: bytes) -> None:
    with pytest.raises(ZnodeError, match="expected a decimal number"):
        decode_tiered_epoch("t", data)


# -- writing -----------------------------------------------------------------------------------


def tiered(partitions: int = 2) -> tuple[Cluster, Uuid]:
    """Return a cluster with the topic t, which has remote storage, and its id."""
    cluster = with_topic("t", partitions)
    topic_id = topic_of(cluster, "t").id
    cluster.write([config(), state(topic_id)])
    cluster.check()
    return cluster, topic_id


def config(value: str = "true", name: str = "remote.storage.enable") -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)


def state(topic_id: Uuid, epoch: int = 1) -> TopicTieringRecord:
    return TopicTieringRecord(topic_id=topic_id, state=1 + (epoch - 1) % 2, tiered_epoch=epoch)


def paths_of(write: Write) -> set[str]:
    return {each.path for each in write.operations if isinstance(each, Create | SetData)}


def test_state_and_configuration_are_one_multi() -> None:
    cluster, topic_id = tiered()
    assert cluster.image.tiering[topic_id] == TopicTiering(topic_id=topic_id)
    assert cluster.tree.nodes["/brokers/topics/t/tieredstorage/tiered_epoch"].data == b"1"
    for epoch in (2, 3):
        before = len(cluster.writes)
        cluster.write([config("false" if epoch == 2 else "true"), state(topic_id, epoch)])
        cluster.check()
        [write] = cluster.writes[before:]
        assert paths_of(write) >= {
            paths.config((2, "t")),
            paths.tiered_epoch("t"),
            paths.tiering_state("t"),
        }
    assert cluster.image.tiering[topic_id].tiered_epoch == 3


@pytest.mark.parametrize("spare", range(700, 2_500, 50))
def test_also_where_a_multi_is_nearly_full(spare: int) -> None:
    cluster = with_topic("t", 1)
    topic_id = topic_of(cluster, "t").id
    filling = "x" * ((ZOOKEEPER_MULTI_BYTES_MAX - spare) // 2)
    other = ConfigRecord(resource_type=4, resource_name="1", name="a", value=filling)
    written = cluster.write([other, config("7", "retention.ms"), config(), state(topic_id)])
    cluster.check()
    [both] = [each for each in written if paths.tiering_state("t") in paths_of(each)]
    assert [each for each in written if paths.config((2, "t")) in paths_of(each)] == [both]
    assert all(multi_bytes(each) <= ZOOKEEPER_MULTI_BYTES_MAX for each in written)


def multi_bytes(write: Write) -> int:
    return sum(
        OPERATION_BYTES
        + len(each.path)
        + (len(each.data) if isinstance(each, Create | SetData) else 0)
        for each in write.operations
    )


def test_a_topic_goes_with_its_state_and_its_name_begins_without() -> None:
    cluster, topic_id = tiered()
    cluster.write([RemoveTopicRecord(topic_id=topic_id)])
    cluster.check()
    assert not cluster.image.tiering
    assert not [path for path in cluster.tree.nodes if path.startswith("/brokers/topics/t")]


def test_a_state_is_not_written_below_another_topic_of_the_name() -> None:
    cluster = with_topic("t", 1)
    topic_id = topic_of(cluster, "t").id
    writes = cluster.plan([config(), state(topic_id)])
    cluster.tree.put(paths.topic("t"), cluster.tree.nodes[paths.topic("t")].data)
    with pytest.raises(ZkError) as caught:
        cluster.done(writes[0])
    assert caught.value.code is ZkCode.BAD_VERSION


# -- what others changed -----------------------------------------------------------------------


def read_again(cluster: Cluster) -> list[str]:
    """Read everything into the cluster's image; return the problems."""
    loaded = observed(cluster.image, cluster.known, cluster.tree.snapshot())
    assert loaded.records == ()
    cluster.known = loaded.known
    return [str(each) for each in loaded.problems]


def repair(cluster: Cluster) -> None:
    for write in topic_rewrites(
        cluster.image,
        cluster.known,
        controller_epoch=EPOCH,
        epoch_version=cluster.tree.epoch_version,
    ):
        cluster.done(write)
    cluster.check()


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        (paths.tiered_epoch("t"), b"7", "expected 1, as in"),
        (paths.tiered_epoch("t"), b"x", "expected a decimal number"),
        (paths.tiering_state("t"), b"{}", "version is missing"),
        (paths.tiered_epoch("t"), None, "expected 1, as in"),
        (paths.tiering_state("t"), None, None),
    ],
)
def test_an_invalid_znode_changes_nothing_and_is_written_again(
    path: str, data: bytes | None, problem: str | None
) -> None:
    cluster, topic_id = tiered()
    if data is None:
        cluster.tree.drop(path)
    else:
        cluster.tree.put(path, data)
    found = read_again(cluster)
    assert len(found) == (problem is not None)
    assert all(problem is not None and problem in each for each in found)
    assert cluster.known.to_rewrite() == ["t"]
    repair(cluster)
    assert cluster.known.to_rewrite() == []
    assert dict(cluster.image.tiering) == {topic_id: TopicTiering(topic_id=topic_id)}


def test_a_state_that_another_controller_wrote_is_taken() -> None:
    cluster, topic_id = tiered()
    written = replace(DISABLING, topic_id=topic_id)
    cluster.tree.put(paths.tiering_state("t"), encode_tiering(written))
    cluster.tree.put(paths.tiered_epoch("t"), encode_tiered_epoch(written))
    loaded = observed(cluster.image, cluster.known, cluster.tree.snapshot())
    [record] = loaded.records
    assert isinstance(record, TopicTieringRecord)
    assert tiering_of(record) == written


def test_nodes_that_a_tool_has_made_are_written_over() -> None:
    cluster = with_topic("t", 1)
    topic_id = topic_of(cluster, "t").id
    cluster.tree.put(paths.tiering_state("t"), b"what")
    found = read_again(cluster)
    assert len(found) == 1
    assert cluster.known.to_rewrite() == []
    cluster.write([config(), state(topic_id)])
    cluster.check()
