"""Goal: a step becomes multis that are guarded, no larger than ZooKeeper takes, and in an order
in which a controller may die after any of them.

Method: a tree of znodes takes each multi; what is stored is loaded and compared after each.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.base.ids import NO_EPOCH
from ottla.base.limits import ZOOKEEPER_MULTI_BYTES_MAX, ZOOKEEPER_MULTI_OPERATIONS_MAX
from ottla.base.zookeeper import Check, Create, Delete, SetData, ZkCode, ZkError
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.deletions import (
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    DeletionState,
    Policy,
    deletion_records,
    header_record,
    replicas_record,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    ForgetDeletionRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.multis import OPERATION_BYTES, Write

from ...controller.builders import context, uuid
from .clusters import brokers, three_brokers, topic_of, with_topic
from .tree import Cluster


def created(image: ClusterImage, *wanted: NewTopic) -> tuple[Record, ...]:
    decided = create_topics(image, wanted, validate_only=False, context=context())
    return decided.step.records


def check_sizes(writes: Sequence[Write]) -> None:
    """Check that each multi is as small as ZooKeeper wants it."""
    for write in writes:
        sizes = [
            len(each.path) + OPERATION_BYTES + len(getattr(each, "data", b""))
            for each in write.operations
        ]
        assert sum(sizes) <= ZOOKEEPER_MULTI_BYTES_MAX
        assert len(write.operations) <= ZOOKEEPER_MULTI_OPERATIONS_MAX


# -- guards ------------------------------------------------------------------------------------


def test_a_topic_is_one_multi() -> None:
    cluster = three_brokers()
    wanted = NewTopic(
        name="t", partition_count=3, replication_factor=3, configs=(("retention.ms", "5"),)
    )
    [write] = cluster.write(created(cluster.image, wanted))
    cluster.check()
    assert write.operations[0] == Check(paths.CONTROLLER_EPOCH, 0)
    assert set(write.keys) == {
        paths.topic("t"),
        paths.config((2, "t")),
        *(paths.state("t", number) for number in range(3)),
    }
    # Brokers are notified, as of any other change.
    notifications = [each for each in write.operations if each.path == paths.CONFIG_CHANGE]
    assert notifications == [
        Create(paths.CONFIG_CHANGE, b'{"version":2,"entity_path":"topics/t"}', sequential=True)
    ]


def test_kafka_6082_a_deposed_controller_writes_nothing() -> None:
    cluster = with_topic("t", 1)
    topic_id = topic_of(cluster, "t").id
    writes = [
        *cluster.plan([PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=2)]),
        *cluster.plan([ConfigRecord(resource_type=2, resource_name="t", name="x", value="y")]),
        *cluster.plan([ProducerIdsRecord(broker_id=1, next_producer_id=1_000)]),
        *cluster.plan([RemoveTopicRecord(topic_id=topic_id)]),
        *cluster.plan([TopicRecord(name="u", topic_id=uuid("u"))]),
        *cluster.plan([NoOpRecord(), BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1)]),
    ]
    cluster.tree.put(paths.CONTROLLER_EPOCH, b"8")
    before = dict(cluster.tree.nodes)
    assert len(writes) == 6
    for write in writes:
        with pytest.raises(ZkError) as caught:
            cluster.tree.multi(write.operations)
        assert (caught.value.code, caught.value.path) == (
            ZkCode.BAD_VERSION,
            paths.CONTROLLER_EPOCH,
        )
    assert cluster.tree.nodes == before


@pytest.mark.parametrize(
    ("path", "make"),
    [
        (
            paths.state("t", 0),
            lambda key: PartitionChangeRecord(topic_id=key, partition_id=0, leader=2),
        ),
        (
            paths.topic("t"),
            lambda key: PartitionChangeRecord(topic_id=key, partition_id=0, replicas=(3, 2, 1)),
        ),
        (
            paths.config((2, "t")),
            lambda _: ConfigRecord(resource_type=2, resource_name="t", name="x", value="y"),
        ),
        (
            paths.PRODUCER_IDS,
            lambda _: ProducerIdsRecord(broker_id=1, next_producer_id=1_000),
        ),
        (paths.FEATURE, lambda _: FeatureLevelRecord(name="f", feature_level=1)),
    ],
)
def test_what_somebody_else_wrote_is_not_written_over(path: str, make: object) -> None:
    cluster = with_topic("t", 1)
    cluster.write([FeatureLevelRecord(name="g", feature_level=1)])
    assert callable(make)
    [write] = cluster.plan([make(topic_of(cluster, "t").id)])
    assert path in write.keys
    cluster.tree.put(path, cluster.tree.nodes[path].data)
    with pytest.raises(ZkError) as caught:
        cluster.tree.multi(write.operations)
    assert (caught.value.code, caught.value.path) == (ZkCode.BAD_VERSION, path)


@pytest.mark.parametrize("path", [paths.topic("t"), paths.config((2, "t")), paths.config((4, "1"))])
def test_what_somebody_else_made_is_not_made_again(path: str) -> None:
    cluster = three_brokers()
    broker = ConfigRecord(resource_type=4, resource_name="1", name="x", value="y")
    [write] = cluster.plan([*created(cluster.image, NewTopic(name="t")), broker])
    cluster.tree.put(path, b"")
    with pytest.raises(ZkError) as caught:
        cluster.tree.multi(write.operations)
    assert (caught.value.code, caught.value.path) == (ZkCode.NODE_EXISTS, path)


# -- sizes -------------------------------------------------------------------------------------


def test_a_large_topic_exists_from_its_first_multi() -> None:
    cluster = three_brokers()
    wanted = NewTopic(name="big", partition_count=10_000, replication_factor=3)
    writes = cluster.plan(created(cluster.image, wanted))
    check_sizes(writes)
    assert len(writes) == 21
    first, *rest = writes
    cluster.done(first)
    cluster.check()
    topic = topic_of(cluster, "big")
    led = [number for number, each in topic.in_order() if each.leader_epoch == 0]
    assert len(topic.partitions) == 10_000
    assert led == list(range(len(led)))
    for write in rest:
        cluster.done(write)
    cluster.check()
    removal = cluster.plan([RemoveTopicRecord(topic_id=topic.id)])
    check_sizes(removal)
    assert Delete(paths.topic("big"), 0) in removal[-1].operations
    for write in removal[:-1]:
        cluster.done(write)
        assert "big" in cluster.image.topics
    cluster.check()
    # Whoever comes after a controller that died here removes the rest.
    cluster = Cluster(cluster.tree)
    cluster.write([RemoveTopicRecord(topic_id=topic.id)])
    cluster.check()
    assert not [path for path in cluster.tree.nodes if path.startswith(paths.topic("big"))]


def test_thousands_of_topics_in_one_step_are_not_split_themselves() -> None:
    cluster = three_brokers()
    wanted = [NewTopic(name=f"t-{number}", partition_count=2) for number in range(2_000)]
    writes = cluster.plan(created(cluster.image, *wanted))
    check_sizes(writes)
    assert len(writes) == 15
    made: set[str] = set()
    for write in writes:
        cluster.done(write)
        names = set(cluster.image.topics.names())
        for name in names - made:
            partitions = topic_of(cluster, name).partitions
            assert [each.leader_epoch for each in partitions.values()] == [0, 0]
        made = names
    cluster.check()


def test_long_names_and_many_moves_make_more_multis() -> None:
    cluster = brokers(4)
    name = "n" * 249
    wanted = NewTopic(name=name, partition_count=2_000, replication_factor=3)
    cluster.write(created(cluster.image, wanted))
    topic = topic_of(cluster, name)
    moves = [
        PartitionChangeRecord(
            topic_id=topic.id,
            partition_id=number,
            replicas=each.replicas[::-1],
            adding_replicas=each.replicas[1:],
        )
        for number, each in topic.in_order()
    ]
    writes = cluster.write(moves)
    cluster.check()
    check_sizes(writes)
    assert len(writes) == 3
    # Each of them moves some partitions: assignment and state in one.
    assert all(paths.topic(name) in write.keys for write in writes)


def test_a_topic_too_large_for_a_znode_is_refused() -> None:
    cluster = with_topic("t", 300)
    many = [
        PartitionChangeRecord(
            topic_id=topic_of(cluster, "t").id,
            partition_id=number,
            replicas=tuple(range(1_000_000, 1_000_400)),
        )
        for number in range(300)
    ]
    with pytest.raises(ZnodeError, match=r"/brokers/topics/t: .* more than ZooKeeper takes"):
        cluster.plan(many)
    large = ConfigRecord(resource_type=2, resource_name="t", name="x", value="y" * 1_000_000)
    with pytest.raises(ZnodeError, match=r"/config/topics/t: .* more than ZooKeeper takes"):
        cluster.plan([large])


def test_a_topic_goes_and_comes_in_one_step() -> None:
    cluster = with_topic("t", 2, {"retention.ms": "5"})
    before = topic_of(cluster, "t")
    removal = RemoveTopicRecord(topic_id=before.id)
    made = created(three_brokers().image, NewTopic(name="t", partition_count=1))
    again = [each.__class__(**{**_fields(each), "topic_id": uuid("again")}) for each in made]
    removed, written = cluster.write([removal, *again])
    cluster.check()
    assert Delete(paths.topic("t"), 0) in removed.operations
    assert isinstance(written.operations[1], Create)
    assert topic_of(cluster, "t").id == uuid("again")
    assert not cluster.image.configs.resources()


# -- partitions --------------------------------------------------------------------------------


def test_changes_of_one_partition_follow_one_another_in_one_multi() -> None:
    cluster = with_topic("t", 1)
    key = {"topic_id": topic_of(cluster, "t").id, "partition_id": 0}
    [write] = cluster.write(
        [
            PartitionChangeRecord(**key, isr=(1, 2)),
            PartitionChangeRecord(**key, leader=2, isr=(2,)),
            PartitionChangeRecord(**key, replicas=(2, 1), isr=(2,), leader=2),
        ]
    )
    cluster.check()
    sets = [each for each in write.operations if isinstance(each, SetData)]
    assert [(each.path, each.version) for each in sets] == [
        (paths.state("t", 0), 0),
        (paths.state("t", 0), 1),
        (paths.state("t", 0), 2),
        (paths.topic("t"), 0),
    ]
    partition = topic_of(cluster, "t").partitions[0]
    assert (partition.partition_epoch, partition.leader_epoch) == (3, 2)


def test_a_new_partition_that_gets_no_leader_stays_new() -> None:
    cluster = with_topic("t", 2)
    cluster.tree.drop(paths.state("t", 1))
    cluster = Cluster(cluster.tree)
    key = {"topic_id": topic_of(cluster, "t").id, "partition_id": 1}
    moved = PartitionChangeRecord(**key, replicas=(2,), leader=-1, isr=())
    [write] = cluster.write([moved])
    cluster.check()
    assert paths.state("t", 1) not in write.keys
    partition = topic_of(cluster, "t").partitions[1]
    assert (partition.replicas, partition.leader_epoch) == ((2,), NO_EPOCH)
    [write] = cluster.write([PartitionChangeRecord(**key, isr=(2,), leader=2)])
    cluster.check()
    version = cluster.known.topics["t"].version
    assert write.operations[2:] == (Check(paths.topic("t"), version),)
    assert write.operations[1].path == paths.state("t", 1)


def test_a_state_of_a_partition_that_nobody_assigned_is_written_anew() -> None:
    cluster = with_topic("t", 1)
    cluster.tree.put(paths.state("t", 1), cluster.tree.nodes[paths.state("t", 0)].data)
    cluster.tree.put(paths.state("t", 1), cluster.tree.nodes[paths.state("t", 0)].data)
    cluster = Cluster(cluster.tree)
    assert len(topic_of(cluster, "t").partitions) == 1
    grown = [*created(cluster.image, NewTopic(name="u", partition_count=2, replication_factor=1))]
    new = [
        each.__class__(**{**_fields(each), "topic_id": topic_of(cluster, "t").id})
        for each in grown
        if getattr(each, "partition_id", None) == 1
    ]
    cluster.write(new)
    cluster.check()
    assert topic_of(cluster, "t").partitions[1].partition_epoch == 0


def _fields(record: Record) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__slots__}


# -- configurations, and what there is one of ----------------------------------------------------


def test_a_configuration_is_written_once_and_notified_once() -> None:
    cluster = with_topic("t", 1, {"retention.ms": "5"})
    values = [("flush.ms", "1"), ("retention.ms", None), ("flush.ms", "2")]
    [write] = cluster.write(
        [
            ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)
            for name, value in values
        ]
    )
    cluster.check()
    assert write.operations[1:] == (
        SetData(paths.config((2, "t")), b'{"version":1,"config":{"flush.ms":"2"}}', 0),
        Create(paths.CONFIG_CHANGE, b'{"version":2,"entity_path":"topics/t"}', sequential=True),
    )
    last = ConfigRecord(resource_type=2, resource_name="t", name="flush.ms", value=None)
    cluster.write([last])
    cluster.check()
    assert cluster.tree.nodes[paths.config((2, "t"))].data == b'{"version":1,"config":{}}'


def test_blocks_of_producer_ids_follow_one_another() -> None:
    cluster = three_brokers()
    cluster.write(
        [
            ProducerIdsRecord(broker_id=1, next_producer_id=1_000),
            ProducerIdsRecord(broker_id=2, next_producer_id=2_000),
        ]
    )
    cluster.check()
    assert cluster.tree.nodes[paths.PRODUCER_IDS].data == (
        b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    )


def test_features_are_written_together() -> None:
    cluster = three_brokers()
    for name, level in (("g", 2), ("f", 1), ("g", 0)):
        cluster.write([FeatureLevelRecord(name=name, feature_level=level)])
        cluster.check()
    assert cluster.tree.nodes[paths.FEATURE].data == (
        b'{"version":2,"status":1,"features":{"f":{"max_version_level":1}}}'
    )


def test_records_without_a_znode_come_with_the_epoch_check() -> None:
    cluster = three_brokers()
    epoch = cluster.image.brokers[1].epoch
    leaving = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1
    )
    [write] = cluster.write([leaving])
    assert (write.operations, write.records, write.keys) == (
        (Check(paths.CONTROLLER_EPOCH, 0),),
        (leaving,),
        (),
    )
    assert cluster.plan([]) == cluster.plan([NoOpRecord()]) == []


# -- the ledger --------------------------------------------------------------------------------


def test_a_deletion_from_its_marker_to_its_receipt() -> None:
    cluster = with_topic("t", 1)
    topic_id = topic_of(cluster, "t").id
    asked = DeletionImage(topic_id=topic_id, name="t", policy=Policy.CLASSIC, asked_ms=5)
    [write] = cluster.write(list(deletion_records(asked)))
    cluster.check()
    assert set(write.keys) == {paths.marker("t"), paths.deletion(topic_id)}
    assert cluster.image.deletions.is_queued(topic_id)
    gone = [replicas_record(topic_id, each, SUCCESSFUL, (0,)) for each in (1, 2, 3)]
    [write] = cluster.write(gone[:1])
    assert write.keys == (paths.deletion(topic_id),)
    over = DeletionImage(
        topic_id=topic_id, name="t", policy=Policy.CLASSIC, asked_ms=5, finished_ms=9
    )
    # The receipt is written with the last of the topic.
    [write] = cluster.write([*gone[1:], RemoveTopicRecord(topic_id=topic_id), header_record(over)])
    cluster.check()
    assert {paths.topic("t"), paths.marker("t"), paths.deletion(topic_id)} <= set(write.keys)
    [receipt] = cluster.image.deletions.receipts()
    assert receipt.finished_ms == 9
    assert paths.marker("t") not in cluster.tree.nodes
    cluster.write([ForgetDeletionRecord(topic_id=topic_id)])
    cluster.check()
    assert paths.deletion(topic_id) not in cluster.tree.nodes


@pytest.mark.parametrize(
    ("partition_count", "listed", "multis"),
    [
        pytest.param(600, range(600), 2, id="a topic of two multis"),
        # No runs of neighbours: three such entries would be more than one multi.
        pytest.param(1, range(0, 40_000, 2), 1, id="a large entry"),
    ],
)
def test_a_topic_goes_with_its_receipt_and_after_its_replicas(
    partition_count: int, listed: Sequence[int], multis: int
) -> None:
    """A controller may die after any multi: what brokers confirmed must be known to the next."""
    cluster = with_topic("t", partition_count)
    topic_id = topic_of(cluster, "t").id
    deletion = DeletionImage(topic_id=topic_id, name="t", policy=Policy.CLASSIC, asked_ms=5)
    for broker_id in (1, 2, 3):
        deletion = deletion.with_status(broker_id, STARTED, listed)
    cluster.write(list(deletion_records(deletion)))
    writes = cluster.plan(
        [
            *(replicas_record(topic_id, each, SUCCESSFUL, listed) for each in (1, 2, 3)),
            RemoveTopicRecord(topic_id=topic_id),
            header_record(replace(deletion, finished_ms=9)),
        ]
    )
    check_sizes(writes)
    assert len(writes) == multis
    for write in writes:
        cluster.done(write)
        cluster.check()
        entry = cluster.image.deletions.of(topic_id)
        assert entry is not None
        assert entry.count(DeletionState.SUCCESSFUL) == 3 * len(listed)
        assert entry.is_finished == ("t" not in cluster.image.topics)
    assert entry.is_finished


def test_a_deletion_that_is_called_off_leaves_no_marker() -> None:
    cluster = with_topic("t", 1)
    cluster.tree.put(paths.marker("t"), b"")
    cluster = Cluster(cluster.tree)
    topic_id = topic_of(cluster, "t").id
    asked = DeletionImage(topic_id=topic_id, name="t", policy=Policy.CLASSIC, asked_ms=5)
    [write] = cluster.write(list(deletion_records(asked)))
    assert write.keys == (paths.deletion(topic_id),)
    cluster.write([ForgetDeletionRecord(topic_id=topic_id)])
    cluster.check()
    assert not cluster.known.marked


def test_a_marker_that_was_taken_away_is_not_put_back() -> None:
    cluster = with_topic("t", 1)
    topic_id = topic_of(cluster, "t").id
    asked = DeletionImage(topic_id=topic_id, name="t", policy=Policy.CLASSIC, asked_ms=5)
    cluster.write(list(deletion_records(asked)))
    cluster.tree.drop(paths.marker("t"))
    cluster = Cluster(cluster.tree)
    cluster.write([replicas_record(topic_id, 1, SUCCESSFUL, (0,))])
    cluster.check()
    assert not cluster.known.marked


def test_another_topics_marker_is_left_alone() -> None:
    cluster = with_topic("t", 1)
    old = DeletionImage(
        topic_id=uuid("old"), name="t", policy=Policy.CLASSIC, asked_ms=5, finished_ms=9
    )
    cluster.write(list(deletion_records(old)))
    cluster.tree.put(paths.marker("t"), b"")
    cluster = Cluster(cluster.tree)
    cluster.write([ForgetDeletionRecord(topic_id=old.topic_id)])
    cluster.check()
    assert cluster.known.marked == {"t"}
