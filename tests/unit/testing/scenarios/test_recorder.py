"""A recorder turns observations into a history, record by record, with what differs.

Method: observations made by hand.
"""

from dataclasses import replace

from ottla.base.ids import Uuid
from ottla.metadata.image import EMPTY
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
    encode_record,
)
from ottla.raft.batches import LogBatch
from ottla.testing.checkers.metadata import images_that_differ, metadata_lost_or_reordered
from ottla.testing.history.history import (
    History,
    PartitionDirAppeared,
    PowerLoss,
    ReplicaConfirmed,
    ReplicaSetAside,
    TopicSeen,
)
from ottla.testing.scenarios.recorder import Recorder
from ottla.testing.sim.watch.observations import (
    Acknowledged,
    DeletionConfirmed,
    HighWatermarkMoved,
    ImagePublished,
    MetadataCommitted,
    NodeChanged,
    PartitionDirGone,
    PartitionDirSeen,
    QuorumLed,
    TopicKnown,
    TopicSet,
)

TOPIC = Uuid(bytes(15) + b"\x09")
CREATED = PartitionRecord(
    partition_id=0,
    topic_id=TOPIC,
    replicas=(1, 2, 3),
    isr=(1, 2),
    leader=1,
    leader_epoch=0,
    partition_epoch=0,
)


def batch(offset: int, *records: Record, epoch: int = 1) -> LogBatch:
    return LogBatch(
        base_offset=offset,
        next_offset=offset + len(records),
        epoch=epoch,
        timestamp=5,
        size_bytes=100,
        values=tuple(map(encode_record, records)),
    )


def committed(node: int, what: LogBatch) -> MetadataCommitted:
    return MetadataCommitted(7, node, 1, what)


def test_partitions_are_recorded_record_by_record_and_once() -> None:
    recorder = Recorder(History())
    shrunk = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2,), leader=2)
    grown = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2, 3))
    for node in (1, 2):
        recorder.observe(committed(node, batch(10, CREATED)))
        recorder.observe(committed(node, batch(11, shrunk, grown)))
    seen = recorder.history.partitions
    assert [(each.offset, each.isr, each.leader, each.leader_epoch) for each in seen] == [
        (10, (1, 2), 1, 0),
        (11, (2,), 2, 1),
        (12, (2, 3), 2, 1),
    ]
    assert [(each.node, each.epoch) for each in recorder.history.leader_terms] == [(1, 0), (2, 1)]
    assert recorder.history.leader_changes() == 1
    assert len(recorder.history.metadata) == 4
    assert metadata_lost_or_reordered(recorder.history) == []


def test_in_sync_replicas_that_are_not_active_are_recorded() -> None:
    """Record by record: a broker counts as it is at the offset of the partition's change."""
    recorder = Recorder(History())
    brokers = [
        RegisterBrokerRecord(
            broker_id=each,
            incarnation_id=TOPIC,
            broker_epoch=each,
            end_points=(),
            features=(),
            rack=None,
            fenced=False,
        )
        for each in (1, 2, 3)
    ]
    recorder.observe(committed(1, batch(1, *brokers)))
    fenced = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=1)
    stopping = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1)
    gone = UnregisterBrokerRecord(broker_id=3, broker_epoch=3)
    unfenced = replace(fenced, fenced=-1)
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1, 2, 3))
    recorder.observe(committed(1, batch(10, CREATED, fenced, change, stopping, change)))
    recorder.observe(committed(1, batch(15, gone, unfenced, change)))
    seen = recorder.history.partitions
    assert [each.inactive for each in seen] == [(), (2,), (1, 2), (1, 3)]


def test_batches_that_differ_at_one_offset_have_different_hashes() -> None:
    recorder = Recorder(History())
    recorder.observe(committed(1, batch(10, CREATED)))
    recorder.observe(committed(2, batch(10, replace(CREATED, leader=2))))
    assert len(metadata_lost_or_reordered(recorder.history)) == 1


def test_a_change_without_its_partition_is_recorded_without_an_error() -> None:
    """As where two nodes commit different logs: a checker finds that in the history."""
    recorder = Recorder(History())
    recorder.observe(committed(1, batch(10, replace(CREATED, topic_id=Uuid(bytes(16))))))
    recorder.observe(committed(2, batch(10, CREATED)))
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(2,))
    recorder.observe(committed(2, batch(11, change)))
    assert len(metadata_lost_or_reordered(recorder.history)) == 1


def test_a_deleted_topics_partitions_are_dropped() -> None:
    recorder = Recorder(History())
    recorder.observe(committed(1, batch(10, CREATED, RemoveTopicRecord(topic_id=TOPIC))))
    recorder.observe(committed(1, batch(12, CREATED)))
    assert [each.offset for each in recorder.history.partitions] == [10, 12]


def test_only_images_that_differ_are_recorded() -> None:
    recorder = Recorder(History())
    image = replace(EMPTY, position=(4, 1))
    for node, published in ((1, image), (2, replace(image)), (3, replace(EMPTY, position=(5, 1)))):
        recorder.observe(ImagePublished(7, node, 1, published))
    assert recorder.history.images == []
    recorder.observe(ImagePublished(8, 3, 1, replace(image, features=image.features.set("x", 1))))
    assert [witness.at_ms for witness in images_that_differ(recorder.history)] == [8]


def test_acknowledgements_with_acks_1_are_not_recorded() -> None:
    recorder = Recorder(History())
    word = Acknowledged(7, 1, 1, TOPIC, 0, 3, 40, 99, -1)
    recorder.observe(word)
    recorder.observe(word._replace(acks=1))
    assert [(each.offset, each.crc) for each in recorder.history.acknowledgements] == [(40, 99)]


def test_quorum_leaders_are_recorded() -> None:
    recorder = Recorder(History())
    for node, epoch in ((1, 1), (2, 2), (2, 3), (1, 4)):
        recorder.observe(QuorumLed(7, node, 1, epoch))
    assert recorder.history.controller_changes() == 2


def test_topics_are_recorded_with_the_node_whose_image_has_them() -> None:
    history = History()
    recorder = Recorder(history)
    recorder.observe(TopicSet(5, 9, TOPIC, False))
    recorder.observe(TopicKnown(6, 2, 3, 8, TOPIC, True))
    assert history.topics_seen == [
        TopicSeen(TOPIC, False, offset=9, at_ms=5),
        TopicSeen(TOPIC, True, node=2, incarnation=3, offset=8, at_ms=6),
    ]


def test_over_zookeeper_images_have_no_offset() -> None:
    history = History()
    Recorder(history, zookeeper=True).observe(TopicKnown(6, 2, 3, 8, TOPIC, True))
    assert [seen.offset for seen in history.topics_seen] == [-1]


def test_directories_of_deleted_replicas_are_recorded() -> None:
    history = History()
    recorder = Recorder(history)
    recorder.observe(DeletionConfirmed(5, 2, TOPIC, 0, ("/data/t-0",)))
    recorder.observe(PartitionDirSeen(6, 2, TOPIC, 0, "/data/t-0"))
    recorder.observe(PartitionDirGone(7, 2, TOPIC, 0, True, False))
    recorder.observe(PartitionDirGone(8, 3, TOPIC, 0, False, True))
    assert history.confirmed == [ReplicaConfirmed(2, (TOPIC, 0), ("/data/t-0",), 5)]
    assert history.partition_dirs == [PartitionDirAppeared(2, (TOPIC, 0), "/data/t-0", 6)]
    assert history.set_aside == [
        ReplicaSetAside(2, (TOPIC, 0), True, False, 7),
        ReplicaSetAside(3, (TOPIC, 0), False, True, 8),
    ]


def test_the_epochs_in_which_nodes_lead_are_recorded_as_they_change() -> None:
    recorder = Recorder(History())
    moves = [(1, 0, True, 5), (1, 0, True, 7), (2, 0, False, 6), (1, 1, False, 7), (2, 1, True, 7)]
    for at_ms, (node, epoch, leads, offset) in enumerate(moves):
        recorder.observe(HighWatermarkMoved(at_ms, node, 1, TOPIC, 0, epoch, leads, offset))
    groups = recorder.history.groups
    assert groups.epochs_led == {
        (1, (TOPIC, 0)): [(0, 0), (3, -1)],
        (2, (TOPIC, 0)): [(2, -1), (4, 1)],
    }
    assert groups.high_watermarks == {(TOPIC, 0): [(0, 5), (1, 7)]}


def test_a_loss_of_power_is_recorded_with_its_node() -> None:
    recorder = Recorder(History())
    for what in ("started", "lost power", "crashed"):
        recorder.observe(NodeChanged(9, 101, 1, what))
    assert recorder.history.losses == [PowerLoss(101, 9)]
