"""Damaged logs: a follower's is truncated or goes offline; a leader's is reported.

Method: broker 1 with real logs follows brokers 2 and 3, which the test plays; bytes of a batch in
its log are overwritten. What a leader does is asked of the broker by fetches.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID
from ottla.base.pending import Pending
from ottla.broker.fetch.delayed_fetch import FetchLimits
from ottla.broker.fetch.fetch_sessions import Fetching, FetchPartition
from ottla.broker.fetch.reading import PartitionRead
from ottla.broker.fetch.remote_port import RemoteData
from ottla.broker.metric_families import broker_families
from ottla.log.dirs.damaged_checkpoints import read_checkpoints
from ottla.log.results import DamagedLog
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_LOST
from ottla.records.batch import iter_headers
from ottla.wire.messages import fetch as wire
from ottla.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from tests.unit.broker.harness import LOG_DIR, TOPIC_ID, BrokerHarness, batch
from tests.unit.broker.replication.test_follower_rules import stamped
from tests.unit.broker.replication.test_replica_fetcher import (
    Following,
    answer,
    data,
    locate,
    positions,
)

LENGTH_AT = 8


def damage(harness: BrokerHarness, *offsets: int) -> None:
    """Overwrite the lengths of the batches that begin at these offsets."""
    path = f"{LOG_DIR}/t-0/{0:020d}.log"
    found = list(iter_headers(harness.disk.read_bytes(path)))
    for position, header in found:
        if header.base_offset in offsets:
            harness.disk.corrupt(path, position + LENGTH_AT, b"\xff\xff\xff\xff")


def diverging(end_offset: int) -> wire.FetchResponse:
    return answer(data(diverging_epoch=wire.EpochEndOffset(epoch=0, end_offset=end_offset)))


def corruptions(harness: BrokerHarness) -> int:
    [family] = [
        each
        for each in broker_families(harness.broker)
        if each.name == "ottla_log_corruptions_total"
    ]
    [(_, value)] = family.samples
    return int(value)


@pytest.fixture
def harness() -> Following:
    """Five batches of leader epoch 0 from broker 2; then broker 3 leads in epoch 1."""
    harness = Following()
    records = b"".join(stamped(batch("x", "y"), offset, 0) for offset in range(0, 10, 2))
    harness.leader.answer(answer(data(records, high=4)))
    return harness


def change_leader(harness: Following, isr: tuple[int, ...], **how: Any) -> None:
    harness.commit(
        PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=3, isr=isr, **how)
    )


def assert_offline(harness: Following, caplog: pytest.LogCaptureFixture) -> None:
    partition = harness.broker.replicas.partition("t", 0)
    assert partition.log is None
    assert harness.disk.exists(f"{LOG_DIR}/t-0")
    assert harness.broker.log_dirs.online_dirs
    assert corruptions(harness) == 1
    [line] = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith("t-0: log is damaged after offset 4 (position ")
    assert f"of {LOG_DIR}/t-0/{0:020d}.log" in line
    assert "this replica is offline until the broker's next start" in line


def test_an_in_sync_replica_that_would_lose_records_is_offline(
    harness: Following, caplog: pytest.LogCaptureFixture
) -> None:
    """It asked the same again for ever. Cut at the damage, which lies above its high watermark, it
    could be elected without what it had helped to commit."""
    change_leader(harness, (1, 2, 3))
    damage(harness, 4, 6, 8)
    harness.peers.to(3).answer(diverging(8))
    harness.clock.advance(0)
    assert_offline(harness, caplog)
    [(request, _)] = harness.controller.calls
    assert isinstance(request, AssignReplicasToDirsRequest)
    [notified] = request.directories
    assert notified.id == DIRECTORY_LOST
    assert [topic.topic_id for topic in notified.topics] == [TOPIC_ID]
    harness.clock.advance(60_000)
    assert harness.peers.to(3).sent == [] or positions(harness.peers.to(3).sent[0][0]) == {}
    assert corruptions(harness) == 1


@pytest.mark.parametrize(
    "counted", [{"eligible_leader_replicas": (1,)}, {"last_known_elr": (1,)}], ids=str
)
def test_a_replica_that_may_be_elected_is_offline(
    harness: Following, caplog: pytest.LogCaptureFixture, counted: Any
) -> None:
    change_leader(harness, (3,), **counted)
    damage(harness, 4, 6, 8)
    harness.peers.to(3).answer(diverging(8))
    assert_offline(harness, caplog)


def test_a_replica_whose_fetch_the_leader_has_accepted_is_offline(
    harness: Following, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader may be taking it in just now."""
    change_leader(harness, (3,))
    damage(harness, 4, 6, 8)
    harness.peers.to(3).answer(answer(data()))
    harness.peers.to(3).answer(diverging(8))
    assert_offline(harness, caplog)


def test_every_damaged_replica_over_zookeeper_is_offline(
    harness: Following, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers have no epochs there, and a leader may count a previous process's fetch."""
    calls: list[str] = []
    harness.broker.zk_metadata = object()  # type: ignore[assignment]
    harness.broker.replicas.on_log_dir_failed = lambda: calls.append("lost")
    harness.add_broker(epoch=-1)
    change_leader(harness, (3,))
    damage(harness, 4, 6, 8)
    harness.peers.to(3).answer(diverging(8))
    assert_offline(harness, caplog)
    assert calls == ["lost"]
    assert harness.controller.calls == []


def test_a_replica_that_is_not_needed_is_truncated_and_fetched_again(
    harness: Following, caplog: pytest.LogCaptureFixture
) -> None:
    change_leader(harness, (3,))
    damage(harness, 4, 6, 8)
    leader = harness.peers.to(3)
    leader.answer(diverging(8))
    harness.clock.advance(0)
    log = harness.log()
    assert log.log_end_offset == 4
    [line] = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith("t-0: log is damaged after offset 4 (position ")
    assert line.endswith("truncating to that offset and fetching the rest from the leader again")
    assert corruptions(harness) == 1
    (request, _, _), *_ = leader.sent
    while positions(request) == {}:
        leader.answer(answer())
        (request, _, _), *_ = leader.sent
    assert positions(request) == {0: (4, 0)}
    leader.answer(answer(data(stamped(batch("new"), 4, 1), high=5)))
    assert log.log_end_offset == 5
    assert log.high_watermark == 5
    assert harness.controller.calls == []


def test_damage_beyond_the_truncation_offset_does_not_matter(
    harness: Following, caplog: pytest.LogCaptureFixture
) -> None:
    change_leader(harness, (1, 2, 3))
    damage(harness, 8)
    harness.peers.to(3).answer(diverging(8))
    assert harness.log().log_end_offset == 8
    assert corruptions(harness) == 0
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_truncation_to_an_unclean_leaders_end_finds_damage(
    harness: Following, caplog: pytest.LogCaptureFixture
) -> None:
    """It was retried for ever, without a log line."""
    change_leader(harness, (3,))
    damage(harness, 4, 6, 8)
    locate(harness.peers.to(3), 0, 8)
    harness.clock.advance(0)
    assert harness.log().log_end_offset == 4
    assert corruptions(harness) == 1
    assert any("fetching the rest from the leader again" in each.message for each in caplog.records)


def test_the_next_start_finds_the_replica_and_its_checkpoints(
    harness: Following,
) -> None:
    change_leader(harness, (1, 2, 3))
    damage(harness, 4, 6, 8)
    log = harness.log()
    point = log.recovery_point
    harness.peers.to(3).answer(diverging(8))
    harness.broker.shutdown()
    harness.clock.advance(0)
    assert not harness.disk.exists(f"{LOG_DIR}/.kafka_cleanshutdown")
    entries, _ = read_checkpoints(harness.disk, LOG_DIR)
    assert entries["recovery-point-offset-checkpoint"] == {("t", 0): point}
    assert entries["replication-offset-checkpoint"] == {("t", 0): 4}


@pytest.mark.parametrize("replica_id", [-1, 2])
def test_a_leader_logs_an_unreadable_log_once(
    caplog: pytest.LogCaptureFixture, replica_id: int
) -> None:
    """The fetcher got CORRUPT_MESSAGE repeatedly, and nothing was logged."""
    harness = BrokerHarness()
    for node in (1, 2):
        harness.add_broker(node)
    harness.broker.epoch = 1
    harness.add_topic(replicas=(1, 2), isr=(1, 2))
    for _ in range(200):
        harness.broker.replicas.append("t", 0, batch("x"), acks=1)
    partition = harness.broker.replicas.partition("t", 0)
    assert partition.log is not None
    partition.log.advance_high_watermark(200)
    damage(harness, 3)
    for _ in range(3):
        fetched = FetchPartition("t", NO_UUID, 0, 5, 1_000, -1, -1, 0)
        fetching = Fetching({fetched.key: fetched})
        limits = FetchLimits(0, 1, 1_000, committed_only=False, replica_id=replica_id)
        limits = limits._replace(replica_epoch=2 if replica_id > 0 else -1)
        found = harness.broker.replicas.fetch_reader.fetch(fetching, limits, Pending())
        [(_, read)] = found  # type: ignore[misc]
        assert read.error is Error.CORRUPT_MESSAGE
    [line] = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith(
        f"t-0: log is damaged at or after offset 5 ({LOG_DIR}/t-0/{0:020d}.log: "
    )
    assert corruptions(harness) == 1
    assert partition.log is not None


def fetch(harness: BrokerHarness, offset: int, *, committed_only: bool) -> PartitionRead:
    fetched = FetchPartition("t", NO_UUID, 0, offset, 1_000, -1, -1, 0)
    limits = FetchLimits(0, 1, 1_000, committed_only=committed_only)
    closed: Pending[None] = Pending()
    found = harness.broker.replicas.fetch_reader.fetch(
        Fetching({fetched.key: fetched}), limits._replace(closed=closed), closed
    )
    [(_, read)] = found  # type: ignore[misc]
    return read


@pytest.fixture
def unreadable() -> BrokerHarness:
    """A leader of ten records, whose transaction index was damaged since its start."""
    harness = BrokerHarness()
    harness.add_topic()
    for _ in range(10):
        harness.broker.replicas.append("t", 0, batch("x"), acks=1)
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    log.advance_high_watermark(10)
    harness.disk.write_atomic(f"{LOG_DIR}/t-0/{0:020d}.txnindex", b"0123456789")
    return harness


def test_a_damaged_transaction_index_fails_the_fetches_that_need_it(
    unreadable: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """It took the whole log directory offline."""
    for _ in range(3):
        assert fetch(unreadable, 5, committed_only=True).error is Error.CORRUPT_MESSAGE
    assert fetch(unreadable, 5, committed_only=False).size > 0
    [line] = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith(
        f"t-0: log is damaged at or after offset 5 ({LOG_DIR}/t-0/{0:020d}.txnindex: "
    )
    assert line.endswith("the broker's next start rebuilds it from the batches")
    assert corruptions(unreadable) == 1
    assert unreadable.log_dirs.online_dirs


def test_reads_that_fail_for_a_transaction_index_release_the_records(
    unreadable: BrokerHarness,
) -> None:
    log = unreadable.broker.replicas.partition("t", 0).log
    assert log is not None
    fetch(unreadable, 5, committed_only=True)
    handle = log.segments.active.log
    assert handle.is_open
    handle.close()
    assert not handle.is_open, "it is pinned"


def test_damage_behind_remote_records_fails_the_fetch(unreadable: BrokerHarness) -> None:
    """Compaction has left no remote record from the offset on, so the local log is read."""

    class NothingBefore5:
        max_wait_ms = 500

        def read(self, *_: object) -> RemoteData:
            return RemoteData(b"", local_offset=5)

    unreadable.broker.replicas.fetch_reader.remote = NothingBefore5()  # type: ignore[assignment]
    log = unreadable.broker.replicas.partition("t", 0).log
    assert log is not None
    log.offsets.local_log_start_offset = 5
    assert fetch(unreadable, 2, committed_only=True).error is Error.CORRUPT_MESSAGE
    assert corruptions(unreadable) == 1


def test_damage_that_keeps_a_segment_from_being_copied_is_logged_once_in_an_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = BrokerHarness()
    harness.add_topic()
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    for epoch, good_end in ((1, 3), (1, 3), (2, 3), (2, 3), (2, 7)):
        damage = DamagedLog("CRC", path="/logs/t-0/0.log", good_end=good_end)
        harness.broker.replicas.damaged.found_by_copy(log, epoch, damage)
    lines = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert [each.partition(" (")[0] for each in lines] == [
        "t-0: log is damaged at or after offset 3",
        "t-0: log is damaged at or after offset 3",
        "t-0: log is damaged at or after offset 7",
    ]
    assert corruptions(harness) == 3


def test_checkpoints_that_the_start_found_damaged_are_counted(harness: Following) -> None:
    [directory] = harness.log_dirs.dirs
    directory.damaged_checkpoints = {"replication-offset-checkpoint": "garbage"}
    assert corruptions(harness) == 1
