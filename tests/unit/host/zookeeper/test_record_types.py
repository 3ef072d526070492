"""Goal: no record type is forgotten by a back end, a snapshot, a delta or what brokers are sent.

Method: an example of each type, enumerated, so that a new one without an example fails. Each goes
through memory, the KRaft log and ZooKeeper (append, new reader, equal image), through a snapshot's
bytes, through the comparison of two images, and from a controller of ZooKeeper mode to a broker.
What a type is left out of is named here or in `normalise`, with the reason.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.controller.metadata_port import Committed
from ottla.controller.step import Step
from ottla.controller.zookeeper.broker_requests import delta_batch, initial_batches
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.request_batch import RequestBatch
from ottla.metadata.brokers import Endpoint, record_of
from ottla.metadata.deletions import DeletionState, Policy, Remote
from ottla.metadata.delta import ClusterDelta, delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    DeletionRecord,
    DeletionReplicasRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    ForgetDeletionRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    TopicTieringRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from ottla.metadata.znodes.normalise import NOT_HELD, OBSERVED, normalised
from ottla.metadata.znodes.write import writes_of
from ottla.wire.messages.topic_tiering import RestoredEpochData, RestoredPartitionData
from tests.metadata_port_checks import PortBench
from tests.unit.broker.zookeeper.test_zk_metadata_histories import Broker

from .port_benches import KraftBench, MemoryBench, ZooKeeperBench

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)
BENCHES = (MemoryBench, KraftBench, ZooKeeperBench)


@dataclass(frozen=True)
class Example:
    """A record, and what comes before it; functions of the image with the brokers 1 and 2."""

    record: Callable[[ClusterImage], Record]
    before: tuple[Record, ...] = ()
    after: tuple[Record, ...] = ()
    """What must follow: a topic needs a partition."""


def partition(topic_id: Uuid, partition_id: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(Uuid(bytes(16)), Uuid(bytes(16))),
    )


TOPIC: tuple[Record, ...] = (TopicRecord(name="t", topic_id=T), partition(T))
CONFIG = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="7")
ENABLED = TopicTieringRecord(topic_id=T, state=1, tiered_epoch=1)
DELETION = DeletionRecord(
    topic_id=T,
    name="t",
    policy=Policy.AT_ONCE,
    asked_ms=5,
    remote=Remote.PENDING,
    leader_epoch=0,
)
ELR = (*TOPIC, PartitionChangeRecord(partition_id=0, topic_id=T, eligible_leader_replicas=(2,)))

EXAMPLES: Mapping[type[Any], Example] = {
    RegisterBrokerRecord: Example(
        lambda image: record_of(
            replace(
                image.brokers[1],
                id=3,
                epoch=9_000,
                endpoints=(Endpoint("PLAINTEXT", "localhost", 9099),),
            )
        )
    ),
    UnregisterBrokerRecord: Example(
        lambda image: UnregisterBrokerRecord(broker_id=2, broker_epoch=image.brokers[2].epoch)
    ),
    FenceBrokerRecord: Example(lambda image: FenceBrokerRecord(id=2, epoch=image.brokers[2].epoch)),
    UnfenceBrokerRecord: Example(
        lambda image: UnfenceBrokerRecord(id=2, epoch=image.brokers[2].epoch)
    ),
    BrokerRegistrationChangeRecord: Example(
        lambda image: BrokerRegistrationChangeRecord(
            broker_id=2, broker_epoch=image.brokers[2].epoch, in_controlled_shutdown=1
        )
    ),
    TopicRecord: Example(lambda _: TopicRecord(name="u", topic_id=U), TOPIC, after=(partition(U),)),
    PartitionRecord: Example(lambda _: partition(T, 1), TOPIC),
    PartitionChangeRecord: Example(
        lambda _: PartitionChangeRecord(partition_id=0, topic_id=T, leader=2), TOPIC
    ),
    RemoveTopicRecord: Example(lambda _: RemoveTopicRecord(topic_id=T), (*TOPIC, CONFIG, ENABLED)),
    ClearElrRecord: Example(lambda _: ClearElrRecord(topic_name="t"), ELR),
    ConfigRecord: Example(lambda _: CONFIG, TOPIC),
    FeatureLevelRecord: Example(
        lambda _: FeatureLevelRecord(name="ottla.version", feature_level=2)
    ),
    ProducerIdsRecord: Example(lambda _: ProducerIdsRecord(broker_id=1, next_producer_id=1_000)),
    RegisterControllerRecord: Example(
        lambda _: RegisterControllerRecord(
            controller_id=3, incarnation_id=T, end_points=(), features=()
        )
    ),
    NoOpRecord: Example(lambda _: NoOpRecord()),
    DeletionRecord: Example(lambda _: DELETION, TOPIC),
    DeletionReplicasRecord: Example(
        lambda _: DeletionReplicasRecord(
            topic_id=T, broker_id=1, state=DeletionState.STARTED, partitions=(0,)
        ),
        (*TOPIC, DELETION),
    ),
    ForgetDeletionRecord: Example(lambda _: ForgetDeletionRecord(topic_id=T), (*TOPIC, DELETION)),
    TopicTieringRecord: Example(
        lambda _: TopicTieringRecord(
            topic_id=T,
            state=2,
            tiered_epoch=2,
            policy=2,
            remote_floor_epoch=1,
            purge_pending=True,
            restored=(
                RestoredPartitionData(
                    partition=0,
                    leader_epoch=4,
                    log_start_offset=3,
                    end_offset=9,
                    epochs=(RestoredEpochData(epoch=2, start_offset=3),),
                ),
            ),
        ),
        (*TOPIC, ENABLED),
    ),
}

each_type = pytest.mark.parametrize("cls", RECORD_TYPES, ids=lambda cls: cls.__name__)


def test_every_record_type_has_an_example() -> None:
    assert set(EXAMPLES) == set(RECORD_TYPES)


# -- the back ends -----------------------------------------------------------------------------


def comparable(image: ClusterImage) -> ClusterImage:
    """Return an image without what each back end counts by itself."""
    return replace(image, position=(0, 0))


def append(bench: PortBench, records: Iterable[Record]) -> None:
    answer = bench.wait(bench.port.append(Step(tuple(records)), bench.epoch))
    assert isinstance(answer, Committed)


@each_type
@pytest.mark.parametrize("make", BENCHES)
def test_a_new_reader_finds_it(make: Callable[[], PortBench], cls: type[Any]) -> None:
    bench = make()
    is_zookeeper = make is ZooKeeperBench
    bench.set_brokers((1, 2))
    example = EXAMPLES[cls]
    if example.before:
        append(bench, example.before)
    before = bench.port.image
    record = example.record(before)
    assert type(record) is cls
    if is_zookeeper and cls in OBSERVED:
        bench.set_brokers((1, 2, 3) if cls is RegisterBrokerRecord else (1,))
        assert comparable(bench.stored()) == comparable(bench.port.image) != comparable(before)
        return
    records = [record, *example.after]
    written = list(normalised(records)) if is_zookeeper else records
    if is_zookeeper:
        assert (cls in NOT_HELD) == (not written)
    expected = replay(before, written, offset=0, epoch=0).image
    if cls not in (NoOpRecord, UnfenceBrokerRecord) and written:
        assert comparable(expected) != comparable(before)
    append(bench, records)
    assert comparable(bench.port.image) == comparable(expected)
    assert comparable(bench.stored()) == comparable(expected)


@pytest.mark.parametrize("make", BENCHES)
@pytest.mark.parametrize("left", [(-1, -1), (3, 40)])
def test_an_abandoned_purge_is_found_by_a_new_reader(
    make: Callable[[], PortBench], left: tuple[int, int]
) -> None:
    bench = make()
    bench.set_brokers((1, 2))
    append(bench, [*TOPIC, DELETION])
    segments, size = left
    record = replace(DELETION, remote=Remote.ABANDONED, segments_left=segments, bytes_left=size)
    append(bench, [record])
    found = bench.stored().deletions.of(T)
    assert found is not None
    assert (found.remote, found.segments_left, found.bytes_left) == (Remote.ABANDONED, *left)
    assert comparable(bench.stored()) == comparable(bench.port.image)
    data = [encode_record(each) for each in bench.stored().to_records()]
    again = replay(EMPTY, map(decode_record, data), offset=0, epoch=0).image
    assert again.deletions.of(T) == found


def test_a_record_without_a_znode_writer_raises() -> None:
    class UnknownRecord:
        pass

    bench = ZooKeeperBench()
    with pytest.raises(AssertionError, match="UnknownRecord has no znode writer"):
        writes_of(
            EMPTY,
            [UnknownRecord()],  # type: ignore[list-item]
            bench.port.known,
            controller_epoch=1,
            epoch_version=1,
        )
    assert not set(NOT_HELD) & set(OBSERVED)
    assert set(NOT_HELD) | set(OBSERVED) < set(RECORD_TYPES)


# -- snapshots ---------------------------------------------------------------------------------


def images(cls: type[Any]) -> tuple[ClusterImage, Record, ClusterImage]:
    """Return the image before the example, the record, and the image after it."""
    example = EXAMPLES[cls]
    memory = MemoryBench()
    memory.set_brokers((1, 2))
    before = replay(memory.stored(), example.before, offset=1, epoch=1).image
    if cls is UnfenceBrokerRecord:
        fenced = FenceBrokerRecord(id=2, epoch=before.brokers[2].epoch)
        before = replay(before, [fenced], offset=1, epoch=1).image
    record = example.record(before)
    return before, record, replay(before, [record, *example.after], offset=1, epoch=1).image


@each_type
def test_a_snapshot_has_it(cls: type[Any]) -> None:
    before, record, after = images(cls)
    assert decode_record(encode_record(record)) == record
    assert (comparable(after) == comparable(before)) == (cls is NoOpRecord)
    data = [encode_record(each) for each in after.to_records()]
    again = replay(EMPTY, map(decode_record, data), offset=0, epoch=0).image
    assert comparable(again) == comparable(after)


UNNAMED = {
    NoOpRecord: "nothing changes",
    ProducerIdsRecord: "only the controller uses the next producer id, from its image",
    RegisterControllerRecord: "controllers' registrations are read from the image when asked for",
}
"""The types of which a delta says nothing."""


@each_type
def test_a_delta_between_two_snapshots_names_it(cls: type[Any]) -> None:
    before, record, after = images(cls)
    example = EXAMPLES[cls]
    for delta in (
        delta_between(before, after),
        replay(before, [record, *example.after], offset=2, epoch=1),
    ):
        named = {
            each.name
            for each in fields(ClusterDelta)
            if each.name not in ("before", "image") and getattr(delta, each.name)
        }
        assert bool(named) == (cls not in UNNAMED)


# -- what brokers are sent in ZooKeeper mode -----------------------------------------------------

NOT_SENT = {
    **NOT_HELD,
    BrokerRegistrationChangeRecord: "the broker's followers stop by StopReplica",
    ConfigRecord: "brokers read /config, of which notifications tell them",
    DeletionRecord: "UpdateMetadata has the leader -2 once the deletion begins",
    FeatureLevelRecord: "no broker depends on a level of its cluster",
    ForgetDeletionRecord: "brokers read the ledger at their start only",
    ProducerIdsRecord: "brokers ask for blocks of ids",
    RemoveTopicRecord: "a topic is removed by hand, or after its deletion, of which brokers know",
}
"""The types that no request to brokers carries, or by other means than their facts."""


def published(image: ClusterImage) -> tuple[Any, ...]:
    """Return the facts that requests carry."""
    return (
        {
            topic.name: (
                topic.id,
                {
                    number: replace(each, directories=(), elr=(), last_known_elr=())
                    for number, each in topic.in_order()
                },
            )
            for topic in image.topics
        },
        dict(image.tiering),
        {each.id: (each.endpoints, each.rack) for each in image.brokers.values()},
        [
            (each.topic_id, each.partitions(), each.replicas_are_over)
            for each in image.deletions.purges()
        ],
    )


def send(brokers: Mapping[int, Broker], batch: RequestBatch, view: ControllerView) -> None:
    for each in batch.send_requests_to_brokers(view):
        if each.broker_id in brokers:
            brokers[each.broker_id].receive(each)


@each_type
def test_brokers_are_sent_it(cls: type[Any]) -> None:
    before, record, after = images(cls)
    brokers = {each: Broker(each, before.brokers[each].epoch) for each in (1, 2)}
    view = ControllerView(image=before, controller_id=1, controller_epoch=5)
    for batch in initial_batches(view):
        send(brokers, batch, view)
    assert all(published(each.image) == published(before) for each in brokers.values())
    delta = replay(before, [record, *EXAMPLES[cls].after], offset=2, epoch=1)
    send(brokers, delta_batch(view, delta), replace(view, image=after))
    if cls not in NOT_SENT:
        assert published(after) != published(before)
        assert published(brokers[1].image) == published(after)
