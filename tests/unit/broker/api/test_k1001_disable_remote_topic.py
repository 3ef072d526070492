"""DisableRemoteTopic: when a broker may say that it follows a topic's tiering state.

Method: a broker with all of tiered storage. Its object store never answers; the segment metadata
are a list of records, replayed at once or when the test says so. Requests go through the codec.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.object_store import Call, SettableCall
from ottla.base.pending import Pending
from ottla.broker.api.k1001_disable_remote_topic import WAIT_MS
from ottla.broker.dispatch import advertised, load_apis
from ottla.broker.ports import CloseConnection, Listener
from ottla.broker.remote.metadata.settled import is_settled
from ottla.metadata.deletions import DeletionImage, Policy, header_record
from ottla.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord
from ottla.metadata.records.tiering import TopicTieringRecord
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.wire.messages import disable_remote_topic as wire
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness, config_record
from tests.unit.broker.remote.harness import TieredHarness
from tests.unit.broker.remote.reads.test_fetch import list_offsets

PROPERTIES = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "memory://store",
}
BROKER_EPOCH = 40
IN_PROGRESS = Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS
ENABLED = TopicTieringRecord(topic_id=TOPIC_ID, state=TieringState.ENABLED, tiered_epoch=1)
RETAIN = TopicTieringRecord(
    topic_id=TOPIC_ID, state=TieringState.DISABLING, tiered_epoch=2, policy=DisablePolicy.RETAIN
)
DELETE = TopicTieringRecord(
    topic_id=TOPIC_ID,
    state=TieringState.DISABLING,
    tiered_epoch=2,
    policy=DisablePolicy.DELETE,
    remote_floor_epoch=1,
    purge_pending=True,
)


class Metadata:
    """The segment metadata. `answers`: what is appended is replayed at once."""

    def __init__(self, tiering: Callable[[Uuid], TopicTiering | None]) -> None:
        self.tiering = tiering
        self.records: list[MetadataRecord] = []
        self.waiting: list[tuple[MetadataRecord, Pending[ApiError | None]]] = []
        self.answers = True
        self.logs: dict[tuple[Uuid, int], RemoteLog] = {}

    def append(self, record: MetadataRecord) -> Pending[ApiError | None]:
        done: Pending[ApiError | None] = Pending()
        self.waiting.append((record, done))
        if self.answers:
            self.answer()
        return done

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for record, done in waiting:
            self.records.append(record)
            key = record.topic_id, record.partition
            self.logs.setdefault(key, RemoteLog()).replay(record)
            done.complete(None)

    def copied(self, segment: SegmentMetadata) -> None:
        """Have a segment that is readable."""
        log = self.replayed(segment.topic_id, segment.partition)
        log.replay(replace(segment, state=SegmentState.COPY_STARTED))
        log.replay(
            SegmentUpdate(
                topic=segment.topic,
                topic_id=segment.topic_id,
                partition=segment.partition,
                segment_id=segment.segment_id,
                state=SegmentState.COPY_FINISHED,
                broker_id=1,
                event_timestamp_ms=0,
                leader_epoch=0,
                tiered_epoch=1,
            )
        )

    def replayed(self, topic_id: Uuid, partition: int) -> RemoteLog:
        return self.logs.setdefault((topic_id, partition), RemoteLog())

    def remote_log(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        found = self.replayed(topic_id, partition)
        return found if is_settled(found, self.tiering(topic_id), partition) else None


class SilentStore:
    """A store that never answers."""

    def __getattr__(self, operation: str) -> Callable[..., Call[Any]]:
        return lambda *_args, **_options: SettableCall()


class Disabled(TieredHarness):
    """Two partitions, tiered; partition 1 is led by broker 2."""

    def __init__(self) -> None:
        super().__init__(properties=PROPERTIES)
        self.broker.epoch = BROKER_EPOCH
        self.metadata = Metadata(lambda topic_id: self.broker.image.tiering.get(topic_id))
        remote = self.broker.remote
        assert remote is not None
        remote.environment.metadata = self.metadata
        remote.environment.calls._store = SilentStore()  # type: ignore[assignment]
        remote.metadata.remote_log = self.metadata.remote_log  # type: ignore[method-assign]
        for index in range(2):
            self.write(index)
            self.tier(index)
            for each in self.remote_logs[index].known:
                self.metadata.copied(each)
        self.commit(ENABLED)
        self.commit(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=2))

    def order(
        self,
        *partitions: int,
        tiered_epoch: int = 2,
        topic_id: Uuid = TOPIC_ID,
        controller_epoch: int = 7,
        broker_epoch: int = BROKER_EPOCH,
    ) -> Pending[Any]:
        topic = wire.DisableRemoteTopicTopic(
            topic_id=topic_id,
            tiered_epoch=tiered_epoch,
            policy=wire.DELETE,
            remote_floor_epoch=1,
            partitions=partitions or (0, 1),
        )
        request = wire.DisableRemoteTopicRequest(
            controller_id=3,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topics=(topic,),
        )
        return self.begin(request, 0)

    def results(self, *partitions: int, **how: Any) -> list[Any]:
        answer = self.order(*partitions, **how)
        self.clock.advance(WAIT_MS)
        response = answer.value
        assert response.error_code == Error.NONE
        [topic] = response.topics
        assert topic.topic_id == how.get("topic_id", TOPIC_ID)
        return list(topic.partitions)

    def codes(self, *partitions: int, **how: Any) -> list[Error]:
        return [Error(each.error_code) for each in self.results(*partitions, **how)]

    @property
    def fences(self) -> list[tuple[int, int, int, int]]:
        """Return partition, leader epoch, tiered epoch and floor; a repeated one does no harm."""
        return sorted(
            {
                (each.partition, each.leader_epoch, each.tiered_epoch, each.floor)
                for each in self.metadata.records
                if isinstance(each, Fence)
            }
        )


@pytest.fixture
def made() -> Disabled:
    return Disabled()


def test_retain_is_done_with_the_leader_s_fence(made: Disabled) -> None:
    made.commit(RETAIN)
    leads, follows = made.results()
    assert (leads.error_code, leads.role, leads.leader_epoch) == (Error.NONE, wire.LEADER, 0)
    assert (leads.log_start_offset, leads.remaining_segments) == (0, 3)
    assert (follows.error_code, follows.role) == (Error.NONE, wire.FOLLOWER)
    assert made.fences == [(0, 0, 2, 0)]


def test_rule_8_a_leader_is_in_progress_until_its_fence_is_replayed(made: Disabled) -> None:
    made.metadata.answers = False
    made.commit(DELETE)
    assert made.codes(0) == [IN_PROGRESS]
    answer = made.order(0)
    made.clock.advance(WAIT_MS - 1)
    assert not answer.done
    made.metadata.answer()
    assert answer.done
    [topic] = answer.value.topics
    assert topic.partitions[0].error_code == Error.NONE
    assert topic.partitions[0].log_start_offset == 15
    assert made.fences == [(0, 0, 2, 1)]


def test_rule_7_a_follower_waits_for_its_leader_s_log_start(made: Disabled) -> None:
    log = made.broker.replicas.partition("t", 1).log
    assert log is not None
    log.delete_expired_segments(15)
    made.commit(DELETE)
    assert made.codes(1) == [IN_PROGRESS]
    log.delete_records(10)  # Its leader's local log begins earlier than its own.
    assert made.codes(1) == [IN_PROGRESS]
    log.delete_records(15)
    assert made.codes(1) == [Error.NONE]
    # The records before its local log are here, but not durable yet.
    log.retention.prepends = True
    assert made.codes(1) == [IN_PROGRESS]
    assert made.fences == [(0, 0, 2, 1)]


def test_rule_5_a_configuration_alone_deletes_nothing(made: Disabled) -> None:
    made.commit(
        config_record("t", "remote_storage_enable", "false"),
        config_record("t", "remote_log_disable_policy", "delete"),
    )
    log = made.broker.replicas.partition("t", 0).leader_log()
    assert log.log_start_offset == 0
    assert log.config.remote_storage
    assert made.fences == []


def test_rule_35_produce_and_delete_records_go_on(made: Disabled) -> None:
    made.metadata.answers = False
    made.commit(DELETE)
    log = made.broker.replicas.partition("t", 0).leader_log()
    assert log.log_start_offset == 15
    end = log.log_end_offset
    made.write(0, 3)
    assert log.log_end_offset == end + 3
    assert log.delete_records(10) == 15  # It may only be raised.
    assert log.delete_records(17) == 17
    made.metadata.answer()
    assert made.codes(0) == [Error.NONE]


def test_earliest_is_not_available_before_it_can_be_read(made: Disabled) -> None:
    """A leader that was away while tiered storage was turned off, and on again."""
    made.metadata.answers = False
    again = TopicTieringRecord(
        topic_id=TOPIC_ID, state=TieringState.ENABLED, tiered_epoch=3, remote_floor_epoch=1
    )
    log = made.broker.replicas.partition("t", 0).leader_log()
    made.commit(again)
    assert log.log_start_offset == 0
    assert list_offsets(made, -2).value == [(Error.OFFSET_NOT_AVAILABLE, -1)]
    assert list_offsets(made, -1).value == [(Error.NONE, 20)]
    made.metadata.answers = True
    made.metadata.answer()
    made.clock.advance(100)
    assert list_offsets(made, -2).value == [(Error.NONE, 15)]


def test_rule_10_an_order_that_comes_before_the_metadata(made: Disabled) -> None:
    assert made.codes() == [Error.OPERATION_NOT_ATTEMPTED] * 2
    answer = made.order(0)
    made.clock.advance(WAIT_MS // 2)
    assert not answer.done
    made.commit(RETAIN)
    assert answer.done
    assert answer.value.topics[0].partitions[0].error_code == Error.NONE


def test_rule_10_a_repeated_order_is_acknowledged_again(made: Disabled) -> None:
    made.commit(RETAIN)
    assert made.codes() == made.codes() == [Error.NONE] * 2
    assert made.fences == [(0, 0, 2, 0)]


def test_rule_10_an_order_of_an_earlier_epoch_is_fenced(made: Disabled) -> None:
    made.commit(RETAIN)
    made.commit(TopicTieringRecord(topic_id=TOPIC_ID, state=1, tiered_epoch=3))
    assert made.codes() == [Error.FENCED_STATE_EPOCH] * 2


def test_rule_15_a_new_leader_has_to_fence_again(made: Disabled) -> None:
    made.commit(RETAIN)
    assert made.codes() == [Error.NONE] * 2
    made.metadata.answers = False
    change = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=1)
    made.commit(change)
    leads = made.results()[1]
    assert (leads.error_code, leads.role, leads.leader_epoch) == (IN_PROGRESS, wire.LEADER, 2)
    made.metadata.answer()
    assert made.codes() == [Error.NONE] * 2
    assert made.fences == [(0, 0, 2, 0), (1, 2, 2, 0)]


def test_rule_16_a_deleted_topic_counts_as_done(made: Disabled) -> None:
    deletion = DeletionImage(topic_id=TOPIC_ID, name="t", policy=Policy.AT_ONCE, asked_ms=1)
    made.commit(RETAIN)
    made.commit(RemoveTopicRecord(topic_id=TOPIC_ID), header_record(deletion))
    assert made.codes() == [Error.UNKNOWN_TOPIC_ID] * 2


def test_rule_16_a_topic_that_may_yet_come_is_not_a_deleted_one(made: Disabled) -> None:
    unknown = Uuid(b"u" * 16)
    assert made.codes(topic_id=unknown) == [Error.OPERATION_NOT_ATTEMPTED] * 2


def test_rule_17_a_partition_that_is_not_here_has_nothing_to_stop(made: Disabled) -> None:
    elsewhere = PartitionRecord(
        partition_id=2, topic_id=TOPIC_ID, replicas=(2,), isr=(2,), leader=2, leader_epoch=0,
        partition_epoch=0,
    )  # fmt: skip
    made.commit(RETAIN, elsewhere)
    assert made.codes(2, 99) == [Error.NONE] * 2


def test_a_leader_whose_log_is_offline_cannot_follow(made: Disabled) -> None:
    made.commit(RETAIN)
    for number in range(2):
        made.broker.replicas.partition("t", number).log = None
    assert made.codes() == [Error.KAFKA_STORAGE_ERROR, Error.NONE]


@pytest.mark.parametrize(
    ("epochs", "error"),
    [
        ({"broker_epoch": BROKER_EPOCH - 1}, Error.STALE_BROKER_EPOCH),
        ({"broker_epoch": BROKER_EPOCH + 1}, Error.NONE),
        ({"broker_epoch": -1}, Error.NONE),
        ({"controller_epoch": 6}, Error.STALE_CONTROLLER_EPOCH),
        ({"controller_epoch": 8}, Error.NONE),
    ],
)
def test_an_order_of_an_earlier_controller_or_for_an_earlier_process_is_refused(
    made: Disabled, epochs: dict[str, int], error: Error
) -> None:
    made.commit(RETAIN)
    assert made.codes() == [Error.NONE] * 2
    answer = made.order(**epochs)  # type: ignore[arg-type]
    made.clock.advance(WAIT_MS)
    assert answer.value.error_code == error
    assert bool(answer.value.topics) == (error is Error.NONE)


def test_no_order_waits_behind_another_topic_s_work(made: Disabled) -> None:
    made.metadata.answers = False
    made.commit(DELETE)
    answer = made.order(0)
    made.clock.advance(WAIT_MS)
    assert answer.done
    assert WAIT_MS <= 1_000
    # Nothing is left of it: no timer that would answer again.
    made.metadata.answer()
    assert made.broker.tiering_purgatory.count == 0


def test_an_order_whose_connection_is_closed_is_dropped(made: Disabled) -> None:
    answer = made.order(0)
    made.connection.closed.complete(None)
    made.commit(RETAIN)
    made.clock.advance(WAIT_MS)
    assert not answer.done
    assert made.broker.tiering_purgatory.count == 0


def test_it_is_for_nodes_alone() -> None:
    apis = load_apis()
    for listener in Listener:
        assert 1001 not in advertised(apis, listener)
    made = BrokerHarness(
        {
            "listeners": "PLAINTEXT://localhost:9092,INTERNAL://localhost:9094,"
            "CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
    )
    request = wire.DisableRemoteTopicRequest(
        controller_id=3, controller_epoch=7, broker_epoch=-1, topics=()
    )
    with pytest.raises(CloseConnection, match="between nodes"):
        made.begin(request, 0)
