"""The group coordinator of a broker: which partition, when it serves, and what survives.

Method: broker 1 with real logs on a disk in memory; workers that hold loading back where a test
looks at it. Java's hashes were computed with a JVM.
"""

import logging
from collections.abc import Iterable

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.broker.groups.group_journal import WARNINGS_MAX
from ottla.broker.groups.group_service import positive_hash
from ottla.coordinator.group_states import State
from ottla.coordinator.records import RecordPair
from ottla.coordinator.shard import Written
from ottla.records.builder import encode_batch
from tests.unit.broker.group_harness import (
    OFFSETS_ID,
    GroupHarness,
    LateWorkers,
    beat_request,
    commit_request,
    fetch_all,
    join_request,
)
from tests.unit.broker.harness import TOPIC_ID


@pytest.fixture
def harness() -> GroupHarness:
    harness = GroupHarness()
    harness.add_topic("t", partitions=4)
    harness.add_offsets_topic()
    return harness


def offsets_of(harness: GroupHarness, group_id: str = "g") -> dict[tuple[str, int], int]:
    (group,) = harness.later(fetch_all(group_id), 9).groups
    assert group.error_code == 0
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in group.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("g", 103),
        ("my-group", 1_906_497_762),
        ("console-consumer-12345", 158_455_506),
        ("polygenelubricants", 0),  # Integer.MIN_VALUE, whose absolute value Kafka calls 0.
        ("grüße", 98_768_023),
        ("\U0001f600-group", 1_198_440_043),  # Two UTF-16 units.
    ],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    assert positive_hash(text) == value


def test_a_group_belongs_to_one_partition(harness: GroupHarness) -> None:
    assert harness.service.partition_of("g") == 103 % 3
    shard = harness.service.shard_of("g")
    assert harness.service.shards()[103 % 3] is shard


def test_the_topics_own_partition_count_decides(harness: GroupHarness) -> None:
    other = GroupHarness({"offsets.topic.num.partitions": "50"})
    assert other.service.partition_of("g") == 103 % 50
    other.add_offsets_topic(partitions=7)
    assert other.service.partition_of("g") == 103 % 7


# --- loading --------------------------------------------------------------------------------


def begin_loading(harness: GroupHarness) -> LateWorkers:
    """Let broker 1 lose and regain all offsets partitions, with loading held back."""
    late = LateWorkers()
    harness.broker.workers = late
    for partition in range(3):
        harness.elect(partition, 2)
        harness.elect(partition, 1)
    return late


def test_a_new_leader_has_what_the_old_one_had(harness: GroupHarness) -> None:
    joined = harness.stable(rebalance_timeout_ms=30_000)
    request = commit_request(
        {("t", 0): 5, ("t", 3): 8},
        generation_id_or_member_epoch=1,
        member_id=joined.member_id,
    )
    harness.later(request, 9)
    harness.later(commit_request({("t", 1): 9}, group_id="simple"), 9)
    before = harness.service.shard_of("g")
    begin_loading(harness).run()
    shard = harness.service.shard_of("g")
    assert shard is not before
    group = shard.groups["g"]
    assert (group.state, group.generation) == (State.STABLE, 1)
    assert group.members[joined.member_id].assignment == b"mine"
    assert offsets_of(harness) == {("t", 0): 5, ("t", 3): 8}
    assert offsets_of(harness, "simple") == {("t", 1): 9}
    assert harness.ask(beat_request(joined), 4).error_code == 0
    harness.clock.advance(10_000)  # The session restarted, and ends as usual.
    assert group.state is State.EMPTY


def test_while_a_partition_loads_clients_wait(harness: GroupHarness) -> None:
    joined = harness.stable()
    late = begin_loading(harness)
    loading = Error.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.ask(join_request(), 9).error_code == loading
    assert harness.ask(fetch_all(), 9).groups[0].error_code == loading
    committed = harness.ask(commit_request({("t", 0): 1, ("nope", 0): 1}), 9)
    codes = [part.error_code for topic in committed.topics for part in topic.partitions]
    assert codes == [loading, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert harness.ask(beat_request(joined), 4).error_code == 0  # Sessions restart afterwards.
    late.run()
    assert harness.ask(beat_request(joined), 4).error_code == 0


def test_a_partition_lost_while_it_loads_is_not_served(harness: GroupHarness) -> None:
    harness.stable()
    late = begin_loading(harness)
    for partition in range(3):
        harness.elect(partition, 2)
    late.run()
    assert harness.ask(join_request(), 9).error_code == Error.NOT_COORDINATOR
    assert not harness.service.shards()


def test_a_long_log_is_loaded_in_chunks() -> None:
    harness = GroupHarness({"offsets.load.buffer.size": "4096"})
    harness.add_topic("t", partitions=4)
    harness.add_offsets_topic()
    offsets = {("t", partition): 7 for partition in range(4)}
    for _ in range(300):
        harness.later(commit_request(offsets), 9)
    late = begin_loading(harness)
    chunks = 0
    while late.waiting:
        late.waiting.pop(0)()
        chunks += 1
    assert chunks > 15
    assert offsets_of(harness) == offsets


def test_a_record_that_cannot_be_read_is_passed_over_with_a_warning(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    partition = harness.service.partition_of("g")
    harness.later(commit_request({("t", 0): 5}), 9)
    log = harness.broker.replicas.partition(OFFSETS_TOPIC, partition).log
    assert log is not None
    at = log.log_end_offset
    garbage = bytearray(encode_batch([(b"\0\2\0\x09g", b"", (), 1)]))
    harness.broker.replicas.append(OFFSETS_TOPIC, partition, garbage, origin="coordinator")
    with caplog.at_level(logging.WARNING):
        begin_loading(harness).run()
    assert f"__consumer_offsets-{partition}: record at offset {at} cannot be decoded" in (
        caplog.text
    )
    assert offsets_of(harness) == {("t", 0): 5}
    assert len(harness.service.shards()) == 3


def test_only_the_first_of_many_are_named(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    partition = harness.service.partition_of("g")
    rows = [(b"\0\2\0\x09g%d" % number, b"", (), 1) for number in range(500)]
    garbage = bytearray(encode_batch(rows))
    harness.broker.replicas.append(OFFSETS_TOPIC, partition, garbage, origin="coordinator")
    with caplog.at_level(logging.WARNING):
        begin_loading(harness).run()
    assert caplog.text.count("cannot be decoded (") == WARNINGS_MAX
    assert caplog.text.count("further records") == 1
    assert len(harness.service.shards()) == 3


def test_a_partition_that_cannot_be_read_is_not_served(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage is not passed over."""
    partition = harness.service.partition_of("g")
    harness.later(commit_request({("t", 0): 5}), 9)
    log = harness.broker.replicas.partition(OFFSETS_TOPIC, partition).log
    assert log is not None
    file = log.segments.active.log.file()
    file.write_at(file.size() - 1, b"\xee")
    with caplog.at_level(logging.ERROR):
        begin_loading(harness).run()
    assert f"loading groups from __consumer_offsets-{partition} failed" in caplog.text
    assert harness.ask(join_request(), 9).error_code == Error.NOT_COORDINATOR
    assert len(harness.service.shards()) == 2


@pytest.mark.parametrize("when", ["as it begins", "in a worker"])
def test_a_disk_that_fails_while_a_partition_loads_is_offline(
    harness: GroupHarness, when: str
) -> None:
    """Else this broker would stay the leader of groups that nobody serves."""
    partition = harness.service.partition_of("g")
    harness.later(commit_request({("t", 0): 5}), 9)
    log = harness.broker.replicas.partition(OFFSETS_TOPIC, partition).log
    assert log is not None
    failed: list[None] = []
    harness.broker.replicas.on_all_log_dirs_failed = lambda: failed.append(None)
    if when == "as it begins":
        harness.fail_disk("read_at", log.directory)
    late = begin_loading(harness)
    assert bool(failed) is (when == "as it begins")
    harness.fail_disk("read_at", log.directory)
    late.run()
    assert failed == [None]
    assert harness.broker.replicas.is_offline(OFFSETS_TOPIC, partition)
    assert harness.ask(join_request(), 9).error_code == Error.NOT_COORDINATOR


def test_a_restarted_broker_has_its_groups(harness: GroupHarness) -> None:
    harness.later(commit_request({("t", 0): 5}), 9)
    harness.service.shutdown()
    harness.broker.shutdown()
    again = GroupHarness(disk=harness.disk)
    again.add_topic("t", partitions=4)
    again.add_offsets_topic()
    assert offsets_of(again) == {("t", 0): 5}


def test_a_clients_reason_is_logged_on_one_line(
    harness: GroupHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ottla.broker.groups.group_service"):
        harness.join(reason="metadata\n[2030-01-01] ERROR all is lost " + "!" * 5_000)
    lines = [record.getMessage() for record in caplog.records if "metadata" in record.getMessage()]
    assert len(lines) == 1
    assert "metadata?[2030-01-01] ERROR" in lines[0]
    assert len(lines[0]) == 1_000


# --- losing the leadership ------------------------------------------------------------------


def test_a_lost_partition_answers_who_waits_and_sends_others_away(harness: GroupHarness) -> None:
    asked = harness.ask(join_request(), 9)
    waiting = harness.begin(join_request(member_id=asked.member_id), 9)
    assert not waiting.done
    harness.elect(harness.service.partition_of("g"), 2)
    harness.settle(waiting)
    assert waiting.value.error_code == Error.NOT_COORDINATOR
    assert harness.ask(join_request(), 9).error_code == Error.NOT_COORDINATOR
    assert harness.ask(fetch_all(), 9).groups[0].error_code == Error.NOT_COORDINATOR


def test_a_deleted_offsets_topic_ends_all_groups(harness: GroupHarness) -> None:
    harness.stable()
    harness.remove_topic(OFFSETS_ID)
    assert not harness.service.shards()
    assert harness.ask(join_request(), 9).error_code == Error.NOT_COORDINATOR


# --- replication ----------------------------------------------------------------------------


def test_a_commit_waits_for_the_in_sync_replicas_and_a_fetch_for_the_commit() -> None:
    harness = GroupHarness()
    harness.add_topic("t")
    harness.add_offsets_topic(replicas=(1, 2), isr=(1, 2))
    committing = harness.begin(commit_request({("t", 0): 5}), 9)
    fetching = harness.begin(fetch_all(), 9)
    assert not committing.done
    assert not fetching.done
    harness.elect(harness.service.partition_of("g"), 1, isr=(1,))
    assert committing.value.topics[0].partitions[0].error_code == 0
    assert fetching.value.groups[0].topics[0].partitions[0].committed_offset == 5


def test_a_commit_that_is_not_replicated_in_time_fails() -> None:
    harness = GroupHarness({"offsets.commit.timeout.ms": "2000"})
    harness.add_topic("t")
    harness.add_offsets_topic(replicas=(1, 2), isr=(1, 2))
    committing = harness.begin(commit_request({("t", 0): 5}), 9)
    harness.clock.advance(2_000)
    error = committing.value.topics[0].partitions[0].error_code
    assert error == Error.COORDINATOR_NOT_AVAILABLE


def test_below_min_insync_replicas_a_commit_is_refused() -> None:
    harness = GroupHarness()
    harness.add_topic("t")
    harness.add_offsets_topic(replicas=(1, 2), isr=(1,), min_insync_replicas="2")
    answer = harness.ask(commit_request({("t", 0): 5}), 9)
    assert answer.topics[0].partitions[0].error_code == Error.COORDINATOR_NOT_AVAILABLE


# --- what happens by itself -----------------------------------------------------------------


def test_a_deleted_topics_offsets_are_forgotten(harness: GroupHarness) -> None:
    harness.later(commit_request({("t", 0): 5}), 9)
    harness.remove_topic(TOPIC_ID)
    assert offsets_of(harness) == {}
    begin_loading(harness).run()
    assert offsets_of(harness) == {}


def test_offsets_expire_by_the_clock() -> None:
    harness = GroupHarness(
        {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "10000"}
    )
    harness.add_topic("t")
    harness.add_offsets_topic()
    harness.later(commit_request({("t", 0): 5}), 9)
    harness.clock.advance(59_000)
    assert offsets_of(harness) == {("t", 0): 5}
    harness.clock.advance(11_000)
    assert offsets_of(harness) == {}
    assert not harness.service.shard_of("g").groups


class BrokenJournal:
    """Raises what no one expects."""

    def append(self, records: Iterable[RecordPair]) -> Written:
        raise RuntimeError("broken")


def test_a_partition_whose_expiry_fails_does_not_keep_others_from_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = GroupHarness(
        {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "70000"}
    )
    harness.add_topic("t")
    harness.add_offsets_topic()
    names = {harness.service.partition_of(name): name for name in "abcdef"}
    for name in names.values():
        harness.later(commit_request({("t", 0): 5}, group_id=name), 9)
    harness.service.shard_of(names[0]).journal = BrokenJournal()
    harness.clock.advance(70_000)
    left = [name for name in names.values() if harness.service.shard_of(name).groups]
    assert (len(names), left) == (3, [names[0]])
    text = f"expiry of offsets in {OFFSETS_TOPIC}-0 failed; retrying at the next expiry check"
    assert [each.getMessage() for each in caplog.records if each.exc_info] == [text]


def test_after_a_shutdown_nothing_happens_any_more(harness: GroupHarness) -> None:
    harness.stable()
    harness.service.shutdown()
    assert not harness.service.shards()
    assert len(harness.timers) == 0
