"""A broker copies what others lead, and nothing that a leader did not give for this very question.

Method: broker 1 with real logs; the test is the leader, broker 2 or 3, and answers by hand each
request as it comes out of the codec.
"""

import errno
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.log.partition_log import PartitionLog
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.wire.messages import fetch as wire
from ottla.wire.messages import list_offsets as offsets_wire
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness, FakeSender, batch
from tests.unit.broker.replication.test_follower_rules import content, emptied, lead, stamped
from tests.unit.log.support import append

SESSION = 77


class Following(BrokerHarness):
    """Broker 1 as a follower, of broker 2 unless said otherwise."""

    def __init__(self, partitions: int = 1, **properties: str) -> None:
        super().__init__({key.replace("_", "."): value for key, value in properties.items()})
        self.add_broker()
        self.broker.epoch = 40
        self.add_topic(replicas=(1, 2, 3), isr=(1, 2, 3), leader=2, partitions=partitions)

    @property
    def leader(self) -> FakeSender:
        return self.peers.to(2)

    def log(self, index: int = 0) -> PartitionLog:
        log = self.broker.replicas.partition("t", index).log
        assert log is not None
        return log

    def change(self, leader: int, epoch: int, index: int = 0) -> None:
        # A change of the leader takes the next epoch by itself.
        assert epoch == self.broker.image.topics.by_id(TOPIC_ID).partitions[index].leader_epoch + 1  # type: ignore[union-attr]
        self.commit(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=index, leader=leader))


def sessionless(harness: Following) -> FakeSender:
    return harness.peers.to(2, 1)


def answer(
    *partitions: wire.PartitionData, session: int = SESSION, error: int = 0
) -> wire.FetchResponse:
    topic = wire.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
    return wire.FetchResponse(
        error_code=error, session_id=session, responses=(topic,) if partitions else ()
    )


def data(
    records: bytes = b"",
    index: int = 0,
    *,
    high: int = 0,
    start: int = 0,
    error: int = 0,
    **how: Any,
) -> wire.PartitionData:
    return wire.PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high,
        log_start_offset=start,
        records=memoryview(records),
        **how,
    )


def positions(request: wire.FetchRequest) -> dict[int, tuple[int, int]]:
    """Return offset and last epoch by partition."""
    return {
        each.partition: (each.fetch_offset, each.last_fetched_epoch)
        for topic in request.topics
        for each in topic.partitions
    }


def open_request(harness: Following) -> wire.FetchRequest:
    """Return the one request that is under way."""
    ((request, _, _),) = harness.leader.sent
    assert isinstance(request, wire.FetchRequest)
    return request


def test_the_first_fetch_opens_a_session_and_has_the_replica_id() -> None:
    harness = Following(partitions=2)
    request = open_request(harness)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.replica_state == wire.ReplicaState(replica_id=1, replica_epoch=40)
    assert positions(request) == {0: (0, -1), 1: (0, -1)}
    assert (request.max_wait_ms, request.min_bytes) == (500, 1)
    assert request.max_bytes == 10 << 20
    assert request.topics[0].partitions[0].partition_max_bytes == 1 << 20
    assert request.topics[0].partitions[0].current_leader_epoch == 0


def test_records_are_appended_and_only_changes_are_requested() -> None:
    harness = Following(partitions=2)
    records = stamped(batch("a", "b"), 0, 0)
    harness.leader.answer(answer(data(records, high=0), data(index=1)))
    assert content(harness.log()) == records
    request = open_request(harness)
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert positions(request) == {0: (2, 0)}
    harness.leader.answer(answer(data(high=2)))
    assert open_request(harness).topics == ()
    assert open_request(harness).session_epoch == 2
    assert harness.log().high_watermark == 2


def test_the_high_watermark_is_never_beyond_the_own_end_nor_goes_back() -> None:
    harness = Following()
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=9)))
    assert harness.log().high_watermark == 1
    harness.leader.answer(answer(data(high=0)))
    assert harness.log().high_watermark == 1


def test_the_log_start_follows_the_leaders() -> None:
    harness = Following()
    records = stamped(batch("a"), 0, 0) + stamped(batch("b"), 1, 0)
    harness.leader.answer(answer(data(records, high=2, start=1)))
    assert harness.log().log_start_offset == 1
    request = open_request(harness)
    assert request.topics[0].partitions[0].log_start_offset == 1


def test_a_log_start_that_the_followers_own_retention_moved_is_named() -> None:
    """Both expire their segments by themselves, and the leader waits until it knows that they
    have: nothing else changes in an idle partition."""
    harness = Following()
    records = stamped(batch("a"), 0, 0) + stamped(batch("b"), 1, 0)
    harness.leader.answer(answer(data(records, high=2)))
    harness.leader.answer(answer(data(high=2)))
    assert open_request(harness).topics == ()
    harness.log().delete_records(1)
    harness.leader.answer(answer(data(high=2, start=1)))
    request = open_request(harness)
    assert request.topics[0].partitions[0].log_start_offset == 1
    harness.leader.answer(answer(data(high=2, start=1)))
    assert open_request(harness).topics == ()


def test_an_empty_log_starts_with_a_batch_that_spans_the_leaders_log_start() -> None:
    """DeleteRecords moved the leader's start into a batch, which comes whole."""
    harness = Following()
    harness.log().truncate_fully_and_start_at(3)
    harness.change(leader=3, epoch=1)
    records = stamped(batch("a", "b", "c", "d"), 1, 0)
    harness.peers.to(3).answer(answer(data(records, high=5, start=3)))
    log = harness.log()
    assert content(log) == records
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 5, 5)
    assert harness.broker.replicas.partition("t", 0).metrics.replication_bytes_in == len(records)


def test_a_batch_that_lies_before_the_end_of_a_log_with_records_is_refused() -> None:
    harness = Following()
    lead(harness.log(), 0, 2)
    harness.change(leader=3, epoch=1)
    harness.peers.to(3).answer(answer(data(stamped(batch("x", "y", "z"), 0, 0), high=3)))
    assert harness.log().log_end_offset == 2


def test_emptied_batches_move_the_end() -> None:
    harness = Following()
    harness.leader.answer(answer(data(emptied(stamped(batch("a", "b"), 0, 0)), high=2)))
    assert harness.log().log_end_offset == 2
    assert positions(open_request(harness)) == {0: (2, 0)}


def test_a_diverging_epoch_truncates_and_fetches_again_at_once() -> None:
    harness = Following()
    lead(harness.log(), 0, 2, 3)
    harness.change(leader=3, epoch=1)
    sender = harness.peers.to(3)
    ((request, _, _),) = sender.sent
    assert positions(request) == {0: (5, 0)}
    sender.answer(answer(data(diverging_epoch=wire.EpochEndOffset(epoch=0, end_offset=2))))
    assert harness.log().log_end_offset == 2
    assert positions(sender.sent[0][0]) == {0: (2, 0)}


def test_an_answer_from_before_a_new_epoch_is_dropped() -> None:
    harness = Following()
    harness.change(leader=2, epoch=1)
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert harness.log().log_end_offset == 0
    assert open_request(harness).topics[0].partitions[0].current_leader_epoch == 1


def test_a_high_watermark_that_is_not_used_is_requested_again() -> None:
    """The leader sends it once in a session: an idle partition would have the former one for ever.

    The response is of the former epoch, in which the same broker led.
    """
    harness = Following(partitions=2)
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0)), data(index=1)))
    harness.commit(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=(2, 1), leader=2))
    harness.leader.answer(answer(data(high=1)))
    assert harness.log().high_watermark == 0
    request = open_request(harness)
    assert (request.session_id, request.session_epoch) == (SESSION, 0)
    assert positions(request) == {0: (1, 0), 1: (0, -1)}
    harness.leader.answer(answer(data(high=1), data(index=1), session=SESSION + 1))
    assert harness.log().high_watermark == 1
    assert open_request(harness).session_epoch == 1


def test_an_error_that_is_not_used_needs_no_new_session() -> None:
    """Else each leader that moves away would cost a fetch of all other partitions."""
    harness = Following(partitions=2)
    harness.leader.answer(answer(data(), data(index=1)))
    harness.change(leader=3, epoch=1)
    harness.leader.answer(answer(data(error=Error.NOT_LEADER_OR_FOLLOWER)))
    request = open_request(harness)
    assert (request.session_id, request.session_epoch) == (SESSION, 2)
    assert request.forgotten_topics_data[0].partitions == (0,)


def test_an_answer_that_comes_after_becoming_leader_is_dropped() -> None:
    harness = Following()
    harness.change(leader=1, epoch=1)
    append(harness.log(), bytearray(batch("mine")), epoch=1)
    harness.leader.answer(answer(data(stamped(batch("theirs", "too"), 0, 0), high=2)))
    assert harness.log().log_end_offset == 1
    assert harness.leader.sent == []  # There is nothing left to follow.


def test_batches_of_a_later_epoch_than_the_requests_are_rejected() -> None:
    """KAFKA-18723: appended they would hide that the logs part here."""
    harness = Following()
    good, later = stamped(batch("a"), 0, 0), stamped(batch("b"), 1, 1)
    harness.leader.answer(answer(data(good + later, high=2)))
    assert content(harness.log()) == good


def test_a_partition_without_a_leader_is_not_fetched() -> None:
    harness = Following()
    harness.change(leader=-1, epoch=1)
    harness.leader.answer(answer(data()))
    assert harness.leader.sent == []
    harness.change(leader=3, epoch=2)
    assert positions(harness.peers.to(3).sent[0][0]) == {0: (0, -1)}


def test_a_deleted_topic_is_forgotten_in_the_session() -> None:
    harness = Following(partitions=1)
    other = Uuid(b"o" * 16)
    harness.add_topic("other", other, replicas=(1, 2), isr=(1, 2), leader=2)
    harness.leader.answer(answer(data()))
    harness.leader.answer(answer())
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    harness.leader.answer(answer())
    request = open_request(harness)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [
        (TOPIC_ID, (0,))
    ]


def test_an_error_takes_one_partition_out_until_its_pause_is_over() -> None:
    harness = Following(partitions=2)
    harness.leader.answer(
        answer(data(error=Error.UNKNOWN_LEADER_EPOCH), data(stamped(batch("a"), 0, 0), 1))
    )
    request = open_request(harness)
    assert positions(request) == {1: (1, 0)}
    assert request.forgotten_topics_data[0].partitions == (0,)
    harness.clock.advance(49)
    assert sessionless(harness).sent == []
    harness.clock.advance(1)
    assert positions(sessionless(harness).sent[0][0]) == {0: (0, -1)}


def test_pauses_grow_up_to_the_configured_one() -> None:
    harness = Following(replica_fetch_backoff_ms="150")
    for pause_ms in (50, 100, 150, 150):
        harness.leader.answer(answer(data(error=Error.NOT_LEADER_OR_FOLLOWER)))
        harness.clock.advance(pause_ms - 1)
        assert harness.leader.sent == []
        harness.clock.advance(1)
        assert positions(open_request(harness)) == {0: (0, -1)}


def test_an_offset_in_remote_storage_only_is_retried_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Following()
    for pause_ms in (50, 100):
        harness.leader.answer(answer(data(error=Error.OFFSET_MOVED_TO_TIERED_STORAGE)))
        harness.clock.advance(pause_ms)
        assert positions(open_request(harness)) == {0: (0, -1)}
    assert caplog.messages == [
        "fetch from broker 2 failed with OFFSET_MOVED_TO_TIERED_STORAGE, retrying: t-0 in epoch 0"
    ]


def test_a_damaged_batch_is_never_appended_and_is_fetched_again() -> None:
    harness = Following()
    damaged = bytearray(stamped(batch("a"), 0, 0))
    damaged[-1] ^= 1
    harness.leader.answer(answer(data(bytes(damaged), high=1)))
    assert harness.log().log_end_offset == 0
    harness.clock.advance(50)
    harness.leader.answer(answer(data(bytes(damaged), high=1)))
    harness.clock.advance(99)
    assert harness.leader.sent == []  # The second pause is longer.
    harness.clock.advance(1)
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert harness.log().log_end_offset == 1


def test_a_mistake_with_one_partition_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Following(partitions=2)
    monkeypatch.setattr(harness.log(0), "append_as_follower", None)
    records = stamped(batch("a"), 0, 0)
    harness.leader.answer(answer(data(records), data(records, 1)))
    assert (harness.log(0).log_end_offset, harness.log(1).log_end_offset) == (0, 1)
    assert positions(open_request(harness)) == {1: (1, 0)}


def test_a_failed_fetch_opens_a_new_session_after_a_backoff() -> None:
    harness = Following(partitions=2)
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0)), data(index=1)))
    harness.leader.answer(ApiError(Error.NETWORK_EXCEPTION, "gone"))
    assert harness.leader.sent == []
    harness.clock.advance(50)
    request = open_request(harness)
    assert (request.session_id, request.session_epoch) == (SESSION, 0)
    # Whoever gave records goes last.
    assert list(positions(request).items()) == [(1, (0, -1)), (0, (1, 0))]


def test_a_newly_elected_leader_is_fetched_from_at_once() -> None:
    harness = Following()
    for pause_ms in (50, 100, 200):
        harness.leader.answer(ApiError(Error.NETWORK_EXCEPTION, "gone"))
        harness.clock.advance(pause_ms)
    harness.leader.answer(ApiError(Error.NETWORK_EXCEPTION, "gone"))
    assert harness.leader.sent == []
    harness.change(leader=2, epoch=1)
    assert positions(open_request(harness)) == {0: (0, -1)}
    harness.clock.advance(1_000)
    assert len(harness.leader.sent) == 1


def test_a_session_that_the_leader_lost_is_reopened_at_once() -> None:
    harness = Following()
    harness.leader.answer(answer(data()))
    harness.leader.answer(answer(session=0, error=Error.FETCH_SESSION_ID_NOT_FOUND))
    request = open_request(harness)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert positions(request) == {0: (0, -1)}


def test_without_sessions_everything_is_named_each_time() -> None:
    harness = Following(partitions=2)
    harness.leader.answer(answer(data(), data(index=1), session=0))
    assert positions(open_request(harness)) == {0: (0, -1), 1: (0, -1)}
    assert open_request(harness).session_epoch == 0


# --- an offset that the leader does not have ---------------------------------------------------


def locate(sender: FakeSender, start: int, end: int) -> None:
    """Refuse the offset; answer where the leader's log begins and ends."""
    sender.answer(answer(data(error=Error.OFFSET_OUT_OF_RANGE)))
    offsets = {-2: start, -1: end}
    for _ in range(2):
        position = next(
            slot
            for slot, (request, _, _) in enumerate(sender.sent)
            if isinstance(request, offsets_wire.ListOffsetsRequest)
        )
        request, _version, pending = sender.sent.pop(position)
        assert request.replica_id == 1
        wanted = request.topics[0].partitions[0]
        found = offsets_wire.ListOffsetsPartitionResponse(
            partition_index=0, error_code=0, offset=offsets[wanted.timestamp]
        )
        topic = offsets_wire.ListOffsetsTopicResponse(name="t", partitions=(found,))
        pending.complete(offsets_wire.ListOffsetsResponse(topics=(topic,)))


def test_a_follower_that_was_away_long_begins_at_the_leaders_start() -> None:
    harness = Following()
    lead(harness.log(), 0, 2)
    harness.change(leader=3, epoch=1)
    locate(harness.peers.to(3), 100, 120)
    log = harness.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert positions(harness.peers.to(3).sent[0][0]) == {0: (100, -1)}


def test_a_longer_log_is_truncated_to_an_unclean_leaders_end() -> None:
    harness = Following()
    lead(harness.log(), 0, 2, 2)
    harness.log().advance_high_watermark(4)
    harness.change(leader=3, epoch=1)
    locate(harness.peers.to(3), 0, 2)
    assert harness.log().log_end_offset == harness.log().high_watermark == 2
    assert positions(harness.peers.to(3).sent[0][0]) == {0: (2, 0)}


def test_a_failed_list_offsets_is_retried_later() -> None:
    harness = Following()
    harness.leader.answer(answer(data(error=Error.OFFSET_OUT_OF_RANGE)))
    for _ in range(2):
        harness.leader.answer(ApiError(Error.REQUEST_TIMED_OUT))
    assert harness.leader.sent == []
    harness.clock.advance(50)
    assert positions(open_request(harness)) == {0: (0, -1)}


# --- disks --------------------------------------------------------------------------------------


def test_a_failed_disk_takes_only_its_log_dir_offline() -> None:
    harness = Following(partitions=2, log_dirs="/logs,/more")
    one, two = harness.log(0), harness.log(1)
    assert one.directory.rpartition("/")[0] != two.directory.rpartition("/")[0]
    harness.fail_disk("append", one.directory)
    records = stamped(batch("a"), 0, 0)
    harness.leader.answer(answer(data(records, high=1), data(records, 1, high=1)))
    assert harness.broker.replicas.partition("t", 0).log is None
    assert two.log_end_offset == 1
    assert positions(open_request(harness)) == {1: (1, 0)}
    assert open_request(harness).forgotten_topics_data[0].partitions == (0,)


@pytest.mark.parametrize("operation", ["open", "write_atomic"])
def test_a_follower_without_descriptors_fetches_again(operation: str) -> None:
    harness = Following()
    log = harness.log()
    lead(log, 0, 1)
    log.flush()
    harness.change(leader=3, epoch=1)
    log.segments.active.close()
    fault = harness.disk.fail(operation, errno.EMFILE, times=None)
    cut = answer(data(diverging_epoch=wire.EpochEndOffset(epoch=0, end_offset=0)))
    harness.peers.to(3).answer(cut)
    assert harness.peers.to(3).sent == []
    harness.disk.faults.remove(fault)
    harness.clock.advance(100)
    harness.peers.to(3).answer(cut)
    assert (log.log_end_offset, log.failed) == (0, False)
    assert harness.log_dirs.online_dirs == harness.log_dirs.dirs


def test_a_due_flush_completes_before_the_next_fetch() -> None:
    harness = Following()
    harness.workers.inline = False
    log = harness.log()
    log.reconfigure(replace(log.config, flush_messages=1))
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert harness.leader.sent == []
    harness.workers.run()
    assert positions(open_request(harness)) == {0: (1, 0)}


def test_what_a_former_leader_appended_is_flushed_before_its_first_fetch() -> None:
    """1. Broker 1 appends as the leader; the records count once they are flushed.

    2. Broker 3 is elected before the flush has ended, and has the records, too.
    3. A fetch at their end would commit them at once: a loss of power here and an election of this
       broker would lose what was acknowledged.
    """
    harness = Following()
    harness.workers.inline = False
    log = harness.log()
    log.reconfigure(replace(log.config, flush_messages=1))
    harness.change(leader=1, epoch=1)
    lead(log, 1, 2)
    assert log.flush_due
    harness.change(leader=3, epoch=2)
    sender = harness.peers.to(3)
    assert sender.sent == []
    harness.workers.run()
    assert not log.flush_due
    ((request, _, _),) = sender.sent
    assert positions(request) == {0: (log.log_end_offset, 1)}


def test_a_copy_is_flushed_before_it_is_fetched_from_the_next_leader() -> None:
    harness = Following()
    harness.workers.inline = False
    log = harness.log()
    log.reconfigure(replace(log.config, flush_messages=1))
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    harness.change(leader=3, epoch=1)
    sender = harness.peers.to(3)
    assert (log.log_end_offset, sender.sent) == (1, [])
    harness.workers.run()
    ((request, _, _),) = sender.sent
    assert positions(request) == {0: (1, 0)}


def test_a_flush_that_fails_before_the_first_fetch_ends_the_replication() -> None:
    harness = Following()
    harness.workers.inline = False
    log = harness.log()
    log.reconfigure(replace(log.config, flush_messages=1))
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    harness.change(leader=3, epoch=1)
    harness.fail_disk("sync", log.directory)
    harness.workers.run()
    assert log.failed
    assert harness.peers.to(3).sent == []


def test_no_fetch_is_sent_before_a_truncation_is_durable() -> None:
    """What the leader sends next lies behind it, and a loss of power must not part them."""
    harness = Following()
    log = harness.log()
    lead(log, 0, 2, 3)
    log.flush()
    harness.change(leader=3, epoch=1)
    sender = harness.peers.to(3)
    harness.workers.inline = False
    sender.answer(answer(data(diverging_epoch=wire.EpochEndOffset(epoch=0, end_offset=2))))
    assert (log.log_end_offset, sender.sent) == (5, [])
    harness.workers.run()
    assert (log.log_end_offset, log.flusher.truncation_unflushed) == (2, False)
    ((request, _, _),) = sender.sent
    assert positions(request) == {0: (2, 0)}


def test_a_log_that_leads_meanwhile_is_not_truncated() -> None:
    """A former leader's response no longer applies."""
    harness = Following()
    lead(harness.log(), 0, 2, 3)
    harness.log().flush()
    harness.change(leader=3, epoch=1)
    harness.workers.inline = False
    diverging = wire.EpochEndOffset(epoch=0, end_offset=2)
    harness.peers.to(3).answer(answer(data(diverging_epoch=diverging)))
    harness.change(leader=1, epoch=2)
    harness.workers.run()
    assert harness.log().log_end_offset == 5


def test_a_disk_that_fails_below_a_truncation_takes_the_log_offline() -> None:
    harness = Following()
    log = harness.log()
    lead(log, 0, 2, 3)
    log.flush()
    harness.change(leader=3, epoch=1)
    harness.fail_disk("write_atomic", log.directory)
    diverging = wire.EpochEndOffset(epoch=0, end_offset=2)
    harness.peers.to(3).answer(answer(data(diverging_epoch=diverging)))
    assert log.failed
    assert harness.peers.to(3).sent == []


def test_no_fetch_is_sent_after_close() -> None:
    harness = Following()
    harness.broker.shutdown()
    harness.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert harness.leader.sent == []


def test_an_error_of_many_partitions_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A leader that gets thousands of elections late refuses them all at once."""
    caplog.set_level("INFO", logger="ottla.broker.replication.replica_fetcher")
    harness = Following(partitions=5)
    refusals = [data(index=index, error=Error.FENCED_LEADER_EPOCH) for index in range(5)]
    harness.leader.answer(answer(*refusals))
    (line,) = caplog.messages
    assert line == (
        "fetch from broker 2 failed with FENCED_LEADER_EPOCH, retrying: 5 partitions, such as "
        "t-0 in epoch 0, t-1 in epoch 0, t-2 in epoch 0"
    )
