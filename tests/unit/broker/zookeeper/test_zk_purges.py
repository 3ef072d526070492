"""In ZooKeeper mode brokers know which deleted topics' objects are to be deleted.

Method: the controller's image changes; each request that follows is encoded, decoded and applied to
the image of one broker. What that says of purges is what the controller's says, and each topic has
one row, of no broker.
"""

from collections.abc import Iterable
from dataclasses import replace

from ottla.base.ids import NO_LEADER, Uuid
from ottla.broker.zookeeper.zk_metadata import ZkMetadata
from ottla.controller.zookeeper.broker_requests import full_batch, live_brokers_batch
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    Policy,
    Remote,
    deletion_records,
    header_record,
)
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import ForgetDeletionRecord, Record, RemoveTopicRecord
from ottla.metadata.tiering import TopicTiering, tiering_record
from ottla.wire.codec import decode, encode
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from tests.unit.controller.model_brokers import (
    change,
    cluster_image,
    led,
    requests_of,
    sent,
    topic,
    topic_id,
    view,
)

ID, OTHER_ID = topic_id("t"), topic_id("u")
NODE = 2


class Both:
    """The controller's image, and that of broker 2. `told`: how many requests had purges."""

    def __init__(self) -> None:
        self.image = cluster_image([1, 2, 3], topic("t", led([1, 2]), led([2, 3])))
        self.facts = ZkMetadata(NODE, broker_epoch=100 + NODE)
        self.here: ClusterImage = EMPTY
        self.told = 0
        self.receive(sent(full_batch(view(self.image)), view(self.image)))

    def write(self, *records: Record) -> None:
        delta = change(self.image, records)
        self.image = delta.image
        self.receive(requests_of(delta))

    def receive(self, requests: Iterable[BrokerRequest]) -> None:
        for each in requests:
            if each.broker_id != NODE or not isinstance(each.request, UpdateMetadataRequest):
                continue
            data = memoryview(encode(each.request, each.version))
            request = decode(UpdateMetadataRequest, data, each.version)
            self.told += request.pending_purges is not None
            records = self.facts.update_metadata(self.here, request).records
            offset = self.here.position[0] + 1
            self.here = replay(self.here, records, offset=offset, epoch=5).image
        self.check()

    def check(self) -> None:
        for deletion in self.here.deletions:
            assert set(deletion.replicas) == {NO_LEADER}
            assert len(deletion.replicas[NO_LEADER]) == 1
            assert not self.here.deletions.is_queued(deletion.topic_id)
        assert _said(self.here) == _said(self.image)


def _said(image: ClusterImage) -> list[tuple[Uuid, str, frozenset[int], bool]]:
    return [
        (each.topic_id, each.name, each.partitions(), each.replicas_are_over)
        for each in image.deletions.purges()
    ]


def entry(topic_id: Uuid = ID, name: str = "t") -> DeletionImage:
    return DeletionImage(
        topic_id=topic_id, name=name, policy=Policy.CLASSIC, asked_ms=5, remote=Remote.PENDING
    )


def test_a_purge_from_its_begin_to_its_end() -> None:
    both = Both()
    both.write(tiering_record(TopicTiering(topic_id=ID)))
    told = both.told
    both.write(header_record(entry()))
    assert both.told == told  # It may still be cancelled.
    begun = entry().with_status(1, STARTED, [0]).with_status(2, STARTED, [0, 1])
    begun = begun.with_status(3, BROKER_DOWN, [1])
    both.write(*deletion_records(begun))
    assert both.told == told + 1
    assert not both.here.deletions.purges()[0].replicas_are_over
    both.write(*deletion_records(begun.with_status(1, SUCCESSFUL, [0])))
    assert both.told == told + 1  # Nothing that purgers need has changed.
    over = begun.with_status(1, SUCCESSFUL, [0]).with_status(2, SUCCESSFUL, [0, 1])
    over = over.with_status(3, SUCCESSFUL, [1])
    both.write(*deletion_records(over), RemoveTopicRecord(topic_id=ID))
    assert both.told == told + 2
    assert both.here.deletions.purges()[0].replicas_are_over
    assert both.here.topics.by_id(ID) is None
    both.write(*deletion_records(entry(OTHER_ID, "u").with_status(1, SUCCESSFUL, [0])))
    assert len(both.here.deletions) == 2
    purged = DeletionImage(
        topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=5, remote=Remote.PURGED
    )
    both.write(header_record(purged))
    assert [each.topic_id for each in both.here.deletions] == [OTHER_ID]
    both.write(ForgetDeletionRecord(topic_id=OTHER_ID))
    assert len(both.here.deletions) == 0


def test_a_purge_is_abandoned() -> None:
    both = Both()
    begun = entry().with_status(1, STARTED, [0, 1])
    both.write(*deletion_records(begun))
    told = both.told
    both.write(header_record(replace(begun, remote=Remote.ABANDONED)))
    assert both.told == told + 1
    assert len(both.here.deletions) == 0
    both.write(*deletion_records(replace(begun, remote=Remote.ABANDONED)))
    assert both.told == told + 1


def test_partitions_are_added() -> None:
    both = Both()
    both.write(*deletion_records(entry().with_status(1, SUCCESSFUL, [0])))
    both.write(*deletion_records(entry().with_status(1, STARTED, [1])))
    assert both.here.deletions.purges()[0].partitions() == {0, 1}


def test_a_broker_that_starts_is_sent_all_and_others_keep_what_they_know() -> None:
    both = Both()
    both.write(*deletion_records(entry().with_status(1, SUCCESSFUL, [0, 1])))
    both.receive(sent(live_brokers_batch(view(both.image)), view(both.image)))
    both.facts, both.here = ZkMetadata(NODE, broker_epoch=100 + NODE), EMPTY
    both.receive(sent(full_batch(view(both.image)), view(both.image)))
    assert len(both.here.deletions) == 1


def test_local_topics_are_not_named() -> None:
    both = Both()
    told = both.told
    local = DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=5)
    both.write(*deletion_records(local.with_status(1, STARTED, [0])))
    assert both.told == told
    assert len(both.here.deletions) == 0
