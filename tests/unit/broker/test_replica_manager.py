"""The replica manager hosts partitions by the metadata, from creation to deletion and disk failure.

Method: records replayed into deltas; real logs on a disk in memory.
"""

import errno
from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.broker.core import ApplyError
from ottla.metadata.delta import delta_between
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    TopicTieringRecord,
)
from ottla.metadata.topics import DIRECTORY_UNASSIGNED
from ottla.testing.disk import Fault

from .harness import LOG_DIR, TOPIC_ID, BrokerHarness, batch, config_record

NEW_ID = Uuid(b"n" * 16)


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    return harness


def partition_dirs(harness: BrokerHarness) -> list[str]:
    return [name for name in harness.disk.listdir(LOG_DIR) if "-" in name and "check" not in name]


def error_of(harness: BrokerHarness, topic: str = "t", index: int = 0) -> Error | None:
    """Return why a partition is not here, or None where it is."""
    try:
        harness.broker.replicas.partition(topic, index)
    except ApiError as refusal:
        return refusal.error
    return None


def append(harness: BrokerHarness, *values: str, topic: str = "t") -> int:
    """Return the offset of the first record."""
    result = harness.broker.replicas.append(topic, 0, batch(*values))
    assert not isinstance(result, Pending)
    assert result.error is Error.NONE
    return result.base_offset


class TestHosting:
    """Which partitions are here."""

    def test_only_what_is_assigned_here_is_made(self, harness: BrokerHarness) -> None:
        harness.add_topic("mine", TOPIC_ID, partitions=2)
        harness.add_topic("theirs", NEW_ID, replicas=(2,), isr=(2,), leader=2)
        assert partition_dirs(harness) == ["mine-0", "mine-1"]
        assert error_of(harness, "theirs") is Error.NOT_LEADER_OR_FOLLOWER
        assert error_of(harness, "mine", 2) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert [one.partition_id for one in harness.broker.replicas.hosted()] == [0, 1]

    def test_a_partition_added_later_is_made(self, harness: BrokerHarness) -> None:
        harness.add_topic()
        harness.commit(
            PartitionRecord(
                partition_id=1,
                topic_id=TOPIC_ID,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
        )
        assert partition_dirs(harness) == ["t-0", "t-1"]

    def test_a_dropped_assignment_deletes_the_log(self, harness: BrokerHarness) -> None:
        harness.add_topic(replicas=(1, 2), isr=(1, 2))
        harness.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=(2,), isr=(2,), leader=2
            )
        )
        assert error_of(harness) is Error.NOT_LEADER_OR_FOLLOWER
        assert [name for name in partition_dirs(harness) if name.endswith("-delete")]
        assert list(harness.broker.replicas.hosted()) == []

    def test_kafka_13972_a_cancelled_reassignment_leaves_no_log(
        self, harness: BrokerHarness
    ) -> None:
        harness.add_topic(replicas=(2,), isr=(2,), leader=2)
        adding = PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2), adding_replicas=(1,)
        )
        harness.commit(adding)
        assert partition_dirs(harness) == ["t-0"]
        cancelled = PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=(2,), adding_replicas=(), leader=2
        )
        harness.commit(cancelled)
        harness.clock.advance(60_000)
        assert partition_dirs(harness) == []

    def test_kafka_9539_a_replica_that_comes_back_keeps_its_new_log(
        self, harness: BrokerHarness
    ) -> None:
        """The old log's deletion is on its way when the partition is assigned here again."""
        harness.add_topic()
        append(harness, "old")
        gone = PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=(2,), isr=(2,), leader=2
        )
        back = PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader=1
        )
        harness.commit(gone)
        harness.commit(back)
        assert append(harness, "new") == 0, "it must not begin with what it had before"
        harness.clock.advance(60_000)
        assert partition_dirs(harness) == ["t-0"]
        assert append(harness, "newer") == 1

    @pytest.mark.parametrize(
        ("end", "error"),
        [
            (
                PartitionChangeRecord(
                    partition_id=0, topic_id=TOPIC_ID, replicas=(2,), isr=(2,), leader=2
                ),
                Error.NOT_LEADER_OR_FOLLOWER,
            ),
            (RemoveTopicRecord(topic_id=TOPIC_ID), Error.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    def test_a_delayed_append_gets_the_error_of_its_removed_partition(
        self, harness: BrokerHarness, end: Record, error: Error
    ) -> None:
        """By UNKNOWN_TOPIC_OR_PARTITION a producer would take the records for not stored."""
        harness.add_topic(replicas=(1, 2), isr=(1, 2))
        pending = harness.broker.replicas.append("t", 0, batch("a"))
        assert isinstance(pending, Pending)
        harness.commit(end)
        assert pending.value.error is error

    def test_a_followers_log_is_made_but_does_not_lead(self, harness: BrokerHarness) -> None:
        harness.add_topic(replicas=(1, 2), isr=(1, 2), leader=2)
        partition = harness.broker.replicas.partition("t", 0)
        assert partition.log is not None
        assert not partition.is_leader

    def test_settings_follow_the_topics(self, harness: BrokerHarness) -> None:
        harness.add_topic(max_message_bytes="100", min_insync_replicas="2")
        partition = harness.broker.replicas.partition("t", 0)
        assert partition.leader_log().config.max_message_bytes == 100
        assert partition.min_insync_replicas == 2
        harness.commit(config_record("t", "max_message_bytes", "200"))
        assert partition.leader_log().config.max_message_bytes == 200

    def test_a_log_has_remote_storage_by_the_topics_tiering_state(
        self, harness: BrokerHarness
    ) -> None:
        """Not by its configuration, which only asks for it."""
        harness.add_topic(retention_ms="9", remote_storage_enable="true")
        log = harness.broker.replicas.partition("t", 0).leader_log()
        assert not log.config.remote_storage
        assert log.config.local_retention_ms == 9
        enabled = TopicTieringRecord(topic_id=TOPIC_ID, state=1, tiered_epoch=1)
        harness.commit(enabled, config_record("t", "local_retention_ms", "7"))
        assert log.config.remote_storage
        assert (log.config.retention_ms, log.config.local_retention_ms) == (9, 7)
        for state, policy in ((2, 1), (3, 1), (2, 2), (3, 2)):
            # Nothing else of the topic changes. What is retained expires with the whole log.
            harness.commit(replace(enabled, state=state, tiered_epoch=2, policy=policy))
            assert not log.config.remote_storage
            harness.commit(replace(enabled, tiered_epoch=3))
            assert log.config.remote_storage

    def test_a_log_with_remote_storage_is_not_compacted(self, harness: BrokerHarness) -> None:
        """Its segments are copied. In ZooKeeper mode a tool can write any configuration."""
        harness.add_topic(cleanup_policy="compact")
        log = harness.broker.replicas.partition("t", 0).leader_log()
        assert (log.config.compacts, log.config.deletes) == (True, False)
        harness.commit(TopicTieringRecord(topic_id=TOPIC_ID, state=1, tiered_epoch=1))
        assert (log.config.compacts, log.config.deletes) == (False, True)
        retained = TopicTieringRecord(topic_id=TOPIC_ID, state=3, tiered_epoch=2, policy=1)
        harness.commit(retained)
        assert (log.config.compacts, log.config.deletes) == (False, True)


class TestDeletion:
    """A deleted topic's name is free at once, and its log never comes back."""

    def test_the_partition_dir_is_removed_after_a_while(self, harness: BrokerHarness) -> None:
        harness.add_topic()
        harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
        assert error_of(harness) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert [name.endswith("-delete") for name in partition_dirs(harness)] == [True]
        harness.clock.advance(60_000)
        assert partition_dirs(harness) == []

    def test_a_topic_recreated_within_the_same_change_is_empty(
        self, harness: BrokerHarness
    ) -> None:
        harness.add_topic()
        append(harness, "old")
        harness.commit(
            RemoveTopicRecord(topic_id=TOPIC_ID),
            TopicRecord(name="t", topic_id=NEW_ID),
            PartitionRecord(
                partition_id=0,
                topic_id=NEW_ID,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            ),
        )
        assert harness.broker.replicas.partition("t", 0).topic_id == NEW_ID
        assert append(harness, "new") == 0
        with pytest.raises(ApiError) as refusal:
            harness.broker.replicas.partition_by_id(TOPIC_ID, 0)
        assert refusal.value.error is Error.UNKNOWN_TOPIC_ID

    def test_a_disk_that_cannot_rename_goes_offline(self, harness: BrokerHarness) -> None:
        harness.add_topic()
        harness.add_topic("u", NEW_ID)
        harness.disk.faults.append(Fault(operation="rename"))
        harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
        assert error_of(harness) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert harness.broker.replicas.partition("u", 0).log is None


class TestDiskFailure:
    """A failed log directory takes its own logs offline, no others."""

    @pytest.fixture
    def two(self) -> BrokerHarness:
        harness = BrokerHarness({"log.dirs": "/one,/two"})
        harness.add_broker()
        harness.add_topic("a", TOPIC_ID)
        harness.add_topic("b", NEW_ID)
        return harness

    def path(self, harness: BrokerHarness, topic: str) -> str:
        return harness.broker.replicas.partition(topic, 0).leader_log().directory

    def test_the_other_log_dir_stays_online(self, two: BrokerHarness) -> None:
        assert (self.path(two, "a"), self.path(two, "b")) == ("/one/a-0", "/two/b-0")
        two.disk.faults.append(Fault(path="/one"))
        result = two.broker.replicas.append("a", 0, batch("x"))
        assert not isinstance(result, Pending)
        assert result.error is Error.KAFKA_STORAGE_ERROR
        assert append(two, "x", topic="b") == 0

    def test_a_partition_in_an_offline_log_dir_is_not_created_in_another_one(
        self, two: BrokerHarness
    ) -> None:
        partition = two.broker.replicas.partition("a", 0)
        two.broker.replicas.storage_failed(partition, OSError(5, "broken"))
        two.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        assert partition.log is None
        assert not two.disk.exists("/two/a-0")

    def test_a_partition_moved_away_and_back_is_not_created_in_another_log_dir(
        self, two: BrokerHarness
    ) -> None:
        replicas = two.broker.replicas
        replicas.storage_failed(replicas.partition("a", 0), OSError(5, "broken"))
        for hosts in ((2,), (2, 1)):
            moved = PartitionChangeRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=hosts,
                directories=(DIRECTORY_UNASSIGNED,) * len(hosts),
            )
            two.commit(moved)
        assert replicas.partition("a", 0).log is None
        assert not two.disk.exists("/two/a-0")

    def test_kafka_7313_a_lost_replica_gives_the_same_answer_every_time(
        self, two: BrokerHarness
    ) -> None:
        """KAFKA-7313: after a change of the leader an offline replica was taken for unknown."""
        replicas = two.broker.replicas
        replicas.storage_failed(replicas.partition("a", 0), OSError(5, "broken"))
        for leader in (1, -1, 2, 1):
            two.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=leader))
            result = replicas.append("a", 0, batch("x"))
            assert not isinstance(result, Pending)
            assert result.error is Error.KAFKA_STORAGE_ERROR

    def test_the_partitions_of_an_offline_log_dir_are_one_line_in_the_log(
        self, two: BrokerHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        """At the start of a broker with an offline log directory, of thousands of partitions."""
        for topic in ("a", "b"):
            partition = two.broker.replicas.partition(topic, 0)
            two.broker.replicas.storage_failed(partition, OSError(5, "broken"))
        caplog.clear()
        caplog.set_level("INFO", logger="ottla.broker.replica_manager")
        two.add_topic("c", Uuid(b"c" * 16), partitions=9)
        (line,) = caplog.messages
        assert line.startswith("log creation failed: 9 partitions, such as c-0 (")

    def test_a_failure_in_a_worker_is_handled(self, two: BrokerHarness) -> None:
        append(two, "x", topic="a")
        two.disk.faults.append(Fault(operation="sync", path="/one"))
        two.broker.replicas.partition("a", 0).leader_log().flush()
        assert two.broker.replicas.partition("a", 0).log is None
        assert two.broker.replicas.partition("b", 0).log is not None

    def test_the_last_log_dir_ends_the_broker(self, two: BrokerHarness) -> None:
        ended: list[bool] = []
        two.broker.replicas.on_all_log_dirs_failed = lambda: ended.append(True)
        for topic, times in (("a", 0), ("b", 1)):
            partition = two.broker.replicas.partition(topic, 0)
            two.broker.replicas.storage_failed(partition, OSError(5, "broken"))
            assert len(ended) == times

    @pytest.mark.parametrize("shortage", [errno.EMFILE, errno.ENFILE])
    def test_a_shortage_of_descriptors_is_no_failure_of_a_disk(
        self, two: BrokerHarness, shortage: int
    ) -> None:
        partition = two.broker.replicas.partition("a", 0)
        two.broker.replicas.storage_failed(partition, OSError(shortage, "none left"))
        partition.leader_log().segments.active.close()
        fault = two.disk.fail("open", shortage, times=None)
        result = two.broker.replicas.append("a", 0, batch("x"))
        assert not isinstance(result, Pending)
        assert result.error is Error.KAFKA_STORAGE_ERROR, "retriable"
        two.disk.faults.remove(fault)
        assert append(two, "x", topic="a") == 0
        assert two.log_dirs.online_dirs == two.log_dirs.dirs

    def test_a_log_that_finds_no_descriptor_is_created_with_the_next_try(
        self, two: BrokerHarness
    ) -> None:
        before = two.broker.image
        fault = two.disk.fail("open", errno.EMFILE, times=None, path="new-0/")
        with pytest.raises(ApplyError, match="No file descriptor is left"):
            two.add_topic("new", Uuid(b"c" * 16))
        assert error_of(two, "new") is Error.NOT_LEADER_OR_FOLLOWER
        two.disk.faults.remove(fault)
        two.broker.apply(delta_between(before, two.broker.image))
        assert append(two, "x", topic="new") == 0
        found = [*two.disk.listdir("/one"), *two.disk.listdir("/two")]
        assert [name for name in found if name.startswith("new")] == ["new-0"]

    def test_delayed_requests_are_answered(self, two: BrokerHarness) -> None:
        two.add_topic("r", Uuid(b"r" * 16), replicas=(1, 2), isr=(1, 2))
        waiting = two.broker.replicas.append("r", 0, batch("x"))
        assert isinstance(waiting, Pending)
        partition = two.broker.replicas.partition("r", 0)
        two.broker.replicas.storage_failed(partition, OSError(5, "broken"))
        assert waiting.value.error is Error.KAFKA_STORAGE_ERROR


def test_a_coordinators_append_to_a_partition_elsewhere_is_refused(harness: BrokerHarness) -> None:
    result = harness.broker.replicas.append("nowhere", 0, batch("x"), origin="coordinator")
    assert not isinstance(result, Pending)
    assert result.error is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_an_append_waits_for_its_flush_where_the_topic_wants_it() -> None:
    """`flush.messages=1` means that an acknowledged record is on the disk."""
    harness = BrokerHarness()
    harness.workers.inline = False
    harness.add_broker()
    harness.add_topic(flush_messages="1")
    waiting = harness.broker.replicas.append("t", 0, batch("x"), acks=1)
    assert isinstance(waiting, Pending)
    assert not waiting.done
    harness.workers.run()
    assert waiting.value.error is Error.NONE


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_nothing_is_committed_before_the_flush_that_the_topic_wants(acks: int) -> None:
    """A consumer must not read what a loss of power would take."""
    harness = BrokerHarness()
    harness.workers.inline = False
    harness.add_broker()
    harness.add_topic(flush_messages="2")
    replicas = harness.broker.replicas
    partition = replicas.partition("t", 0)
    replicas.append("t", 0, batch("a"), acks=acks)
    assert partition.high_watermark == 1  # One record may be unflushed.
    replicas.append("t", 0, batch("b"), acks=acks)
    assert partition.high_watermark == 1
    harness.workers.run()
    assert partition.high_watermark == 2


def test_a_leader_that_begins_with_unflushed_records_flushes_them() -> None:
    """Nobody may append, and flush, for long; until then they could not be read."""
    harness = BrokerHarness()
    harness.workers.inline = False
    harness.add_broker()
    harness.add_topic(replicas=(1, 2), isr=(1, 2))
    replicas = harness.broker.replicas
    replicas.append("t", 0, batch("a"), acks=1)
    partition = replicas.partition("t", 0)
    assert partition.high_watermark == 0
    harness.commit(
        config_record("t", "flush_messages", "1"),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1, isr=(1,)),
    )
    assert partition.high_watermark == 0
    harness.workers.run()
    assert partition.high_watermark == 1


@pytest.mark.parametrize("leader", [1, 2])
def test_what_a_replica_has_is_flushed_once_the_topic_wants_it(leader: int) -> None:
    """The leader counts a follower's log end as flushed, whenever it was copied."""
    harness = BrokerHarness()
    harness.workers.inline = False
    for node_id in (1, 2):
        harness.add_broker(node_id)
    harness.add_topic(replicas=(1, 2), isr=(1, 2))
    harness.broker.replicas.append("t", 0, batch("a"), acks=1)
    partition = harness.broker.replicas.partition("t", 0)
    harness.commit(
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=leader, isr=(1, 2))
    )
    log = partition.log
    assert log is not None
    harness.workers.run()
    assert log.recovery_point == 0
    harness.commit(config_record("t", "flush_messages", "1"))
    harness.workers.run()
    assert log.recovery_point == log.log_end_offset == 1


def test_a_failed_flush_fails_the_append() -> None:
    harness = BrokerHarness()
    harness.workers.inline = False
    harness.add_broker()
    harness.add_topic(flush_messages="1")
    waiting = harness.broker.replicas.append("t", 0, batch("x"), acks=1)
    assert isinstance(waiting, Pending)
    harness.disk.faults.append(Fault(operation="sync"))
    harness.workers.run()
    assert waiting.value.error is Error.KAFKA_STORAGE_ERROR
