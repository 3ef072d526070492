"""A broker copies what others lead, and nothing that a leader did not give for this very question.

Method: broker 1 with real logs; the test is the leader, broker 2 or 3, and answers by hand each
request as it comes out of the codec.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.log.partition_log import PartitionLog
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.wire.messages import fetch as wire
from ottla.wire.messages import list_offsets as offsets_wire
from tests.unit.broker.replication.test_follower_rules import content, emptied, lead, stamped
from tests.unit.broker.world import TOPIC_ID, FakeSender, World, batch
from tests.unit.log.support import append

SESSION = 77


class Following(World):
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


def sessionless(world: Following) -> FakeSender:
    return world.peers.to(2, 1)


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


def open_request(world: Following) -> wire.FetchRequest:
    """Return the one request that is under way."""
    ((request, _, _),) = world.leader.sent
    assert isinstance(request, wire.FetchRequest)
    return request


def test_the_first_fetch_opens_a_session_and_has_the_replica_id() -> None:
    world = Following(partitions=2)
    request = open_request(world)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.replica_state == wire.ReplicaState(replica_id=1, replica_epoch=40)
    assert positions(request) == {0: (0, -1), 1: (0, -1)}
    assert (request.max_wait_ms, request.min_bytes) == (500, 1)
    assert request.max_bytes == 10 << 20
    assert request.topics[0].partitions[0].partition_max_bytes == 1 << 20
    assert request.topics[0].partitions[0].current_leader_epoch == 0


def test_records_are_appended_and_only_changes_are_requested() -> None:
    world = Following(partitions=2)
    records = stamped(batch("a", "b"), 0, 0)
    world.leader.answer(answer(data(records, high=0), data(index=1)))
    assert content(world.log()) == records
    request = open_request(world)
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert positions(request) == {0: (2, 0)}
    world.leader.answer(answer(data(high=2)))
    assert open_request(world).topics == ()
    assert open_request(world).session_epoch == 2
    assert world.log().high_watermark == 2


def test_the_high_watermark_is_never_beyond_the_own_end_nor_goes_back() -> None:
    world = Following()
    world.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=9)))
    assert world.log().high_watermark == 1
    world.leader.answer(answer(data(high=0)))
    assert world.log().high_watermark == 1


def test_the_log_start_follows_the_leaders() -> None:
    world = Following()
    records = stamped(batch("a"), 0, 0) + stamped(batch("b"), 1, 0)
    world.leader.answer(answer(data(records, high=2, start=1)))
    assert world.log().log_start_offset == 1
    request = open_request(world)
    assert request.topics[0].partitions[0].log_start_offset == 1


def test_an_empty_log_starts_with_a_batch_that_spans_the_leaders_log_start() -> None:
    """DeleteRecords moved the leader's start into a batch, which comes whole."""
    world = Following()
    world.log().truncate_fully_and_start_at(3)
    world.change(leader=3, epoch=1)
    records = stamped(batch("a", "b", "c", "d"), 1, 0)
    world.peers.to(3).answer(answer(data(records, high=5, start=3)))
    log = world.log()
    assert content(log) == records
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 5, 5)
    assert world.broker.replicas.partition("t", 0).metrics.replication_bytes_in == len(records)


def test_a_batch_that_lies_before_the_end_of_a_log_with_records_is_refused() -> None:
    world = Following()
    lead(world.log(), 0, 2)
    world.change(leader=3, epoch=1)
    world.peers.to(3).answer(answer(data(stamped(batch("x", "y", "z"), 0, 0), high=3)))
    assert world.log().log_end_offset == 2


def test_emptied_batches_move_the_end() -> None:
    world = Following()
    world.leader.answer(answer(data(emptied(stamped(batch("a", "b"), 0, 0)), high=2)))
    assert world.log().log_end_offset == 2
    assert positions(open_request(world)) == {0: (2, 0)}


def test_a_diverging_epoch_truncates_and_fetches_again_at_once() -> None:
    world = Following()
    lead(world.log(), 0, 2, 3)
    world.change(leader=3, epoch=1)
    sender = world.peers.to(3)
    ((request, _, _),) = sender.sent
    assert positions(request) == {0: (5, 0)}
    sender.answer(answer(data(diverging_epoch=wire.EpochEndOffset(epoch=0, end_offset=2))))
    assert world.log().log_end_offset == 2
    assert positions(sender.sent[0][0]) == {0: (2, 0)}


def test_an_answer_from_before_a_new_epoch_is_dropped() -> None:
    world = Following()
    world.change(leader=2, epoch=1)
    world.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert world.log().log_end_offset == 0
    assert open_request(world).topics[0].partitions[0].current_leader_epoch == 1


def test_an_answer_that_comes_after_becoming_leader_is_dropped() -> None:
    world = Following()
    world.change(leader=1, epoch=1)
    append(world.log(), bytearray(batch("mine")), epoch=1)
    world.leader.answer(answer(data(stamped(batch("theirs", "too"), 0, 0), high=2)))
    assert world.log().log_end_offset == 1
    assert world.leader.sent == []  # There is nothing left to follow.


def test_batches_of_a_later_epoch_than_the_requests_are_rejected() -> None:
    """KAFKA-18723: appended they would hide that the logs part here."""
    world = Following()
    good, later = stamped(batch("a"), 0, 0), stamped(batch("b"), 1, 1)
    world.leader.answer(answer(data(good + later, high=2)))
    assert content(world.log()) == good


def test_a_partition_without_a_leader_is_not_fetched() -> None:
    world = Following()
    world.change(leader=-1, epoch=1)
    world.leader.answer(answer(data()))
    assert world.leader.sent == []
    world.change(leader=3, epoch=2)
    assert positions(world.peers.to(3).sent[0][0]) == {0: (0, -1)}


def test_a_deleted_topic_is_forgotten_in_the_session() -> None:
    world = Following(partitions=1)
    other = Uuid(b"o" * 16)
    world.add_topic("other", other, replicas=(1, 2), isr=(1, 2), leader=2)
    world.leader.answer(answer(data()))
    world.leader.answer(answer())
    world.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    world.leader.answer(answer())
    request = open_request(world)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [
        (TOPIC_ID, (0,))
    ]


def test_an_error_takes_one_partition_out_until_its_pause_is_over() -> None:
    world = Following(partitions=2)
    world.leader.answer(
        answer(data(error=Error.UNKNOWN_LEADER_EPOCH), data(stamped(batch("a"), 0, 0), 1))
    )
    request = open_request(world)
    assert positions(request) == {1: (1, 0)}
    assert request.forgotten_topics_data[0].partitions == (0,)
    world.clock.advance(49)
    assert sessionless(world).sent == []
    world.clock.advance(1)
    assert positions(sessionless(world).sent[0][0]) == {0: (0, -1)}


def test_pauses_grow_up_to_the_configured_one() -> None:
    world = Following(replica_fetch_backoff_ms="150")
    for pause_ms in (50, 100, 150, 150):
        world.leader.answer(answer(data(error=Error.NOT_LEADER_OR_FOLLOWER)))
        world.clock.advance(pause_ms - 1)
        assert world.leader.sent == []
        world.clock.advance(1)
        assert positions(open_request(world)) == {0: (0, -1)}


def test_a_damaged_batch_is_never_appended_and_is_fetched_again() -> None:
    world = Following()
    damaged = bytearray(stamped(batch("a"), 0, 0))
    damaged[-1] ^= 1
    world.leader.answer(answer(data(bytes(damaged), high=1)))
    assert world.log().log_end_offset == 0
    world.clock.advance(50)
    world.leader.answer(answer(data(bytes(damaged), high=1)))
    world.clock.advance(99)
    assert world.leader.sent == []  # The second pause is longer.
    world.clock.advance(1)
    world.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert world.log().log_end_offset == 1


def test_a_mistake_with_one_partition_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Following(partitions=2)
    monkeypatch.setattr(world.log(0), "append_as_follower", None)
    records = stamped(batch("a"), 0, 0)
    world.leader.answer(answer(data(records), data(records, 1)))
    assert (world.log(0).log_end_offset, world.log(1).log_end_offset) == (0, 1)
    assert positions(open_request(world)) == {1: (1, 0)}


def test_a_failed_fetch_opens_a_new_session_after_a_backoff() -> None:
    world = Following(partitions=2)
    world.leader.answer(answer(data(stamped(batch("a"), 0, 0)), data(index=1)))
    world.leader.answer(ApiError(Error.NETWORK_EXCEPTION, "gone"))
    assert world.leader.sent == []
    world.clock.advance(50)
    request = open_request(world)
    assert (request.session_id, request.session_epoch) == (SESSION, 0)
    # Whoever gave records goes last.
    assert list(positions(request).items()) == [(1, (0, -1)), (0, (1, 0))]


def test_a_newly_elected_leader_is_fetched_from_at_once() -> None:
    world = Following()
    for pause_ms in (50, 100, 200):
        world.leader.answer(ApiError(Error.NETWORK_EXCEPTION, "gone"))
        world.clock.advance(pause_ms)
    world.leader.answer(ApiError(Error.NETWORK_EXCEPTION, "gone"))
    assert world.leader.sent == []
    world.change(leader=2, epoch=1)
    assert positions(open_request(world)) == {0: (0, -1)}
    world.clock.advance(1_000)
    assert len(world.leader.sent) == 1


def test_a_session_that_the_leader_lost_is_reopened_at_once() -> None:
    world = Following()
    world.leader.answer(answer(data()))
    world.leader.answer(answer(session=0, error=Error.FETCH_SESSION_ID_NOT_FOUND))
    request = open_request(world)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert positions(request) == {0: (0, -1)}


def test_without_sessions_everything_is_named_each_time() -> None:
    world = Following(partitions=2)
    world.leader.answer(answer(data(), data(index=1), session=0))
    assert positions(open_request(world)) == {0: (0, -1), 1: (0, -1)}
    assert open_request(world).session_epoch == 0


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
    world = Following()
    lead(world.log(), 0, 2)
    world.change(leader=3, epoch=1)
    locate(world.peers.to(3), 100, 120)
    log = world.log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert positions(world.peers.to(3).sent[0][0]) == {0: (100, -1)}


def test_a_longer_log_is_truncated_to_an_unclean_leaders_end() -> None:
    world = Following()
    lead(world.log(), 0, 2, 2)
    world.log().advance_high_watermark(4)
    world.change(leader=3, epoch=1)
    locate(world.peers.to(3), 0, 2)
    assert world.log().log_end_offset == world.log().high_watermark == 2
    assert positions(world.peers.to(3).sent[0][0]) == {0: (2, 0)}


def test_a_failed_list_offsets_is_retried_later() -> None:
    world = Following()
    world.leader.answer(answer(data(error=Error.OFFSET_OUT_OF_RANGE)))
    for _ in range(2):
        world.leader.answer(ApiError(Error.REQUEST_TIMED_OUT))
    assert world.leader.sent == []
    world.clock.advance(50)
    assert positions(open_request(world)) == {0: (0, -1)}


# --- disks --------------------------------------------------------------------------------------


def test_a_failed_disk_takes_only_its_log_dir_offline() -> None:
    world = Following(partitions=2, log_dirs="/logs,/more")
    one, two = world.log(0), world.log(1)
    assert one.directory.rpartition("/")[0] != two.directory.rpartition("/")[0]
    world.fail_disk("append", one.directory)
    records = stamped(batch("a"), 0, 0)
    world.leader.answer(answer(data(records, high=1), data(records, 1, high=1)))
    assert world.broker.replicas.partition("t", 0).log is None
    assert two.log_end_offset == 1
    assert positions(open_request(world)) == {1: (1, 0)}
    assert open_request(world).forgotten_topics_data[0].partitions == (0,)


def test_a_due_flush_completes_before_the_next_fetch() -> None:
    world = Following()
    world.workers.inline = False
    log = world.log()
    log.reconfigure(replace(log.config, flush_messages=1))
    world.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert world.leader.sent == []
    world.workers.run()
    assert positions(open_request(world)) == {0: (1, 0)}


def test_no_fetch_is_sent_before_a_truncation_is_durable() -> None:
    """What the leader sends next lies behind it, and a loss of power must not part them."""
    world = Following()
    log = world.log()
    lead(log, 0, 2, 3)
    log.flush()
    world.change(leader=3, epoch=1)
    sender = world.peers.to(3)
    world.workers.inline = False
    sender.answer(answer(data(diverging_epoch=wire.EpochEndOffset(epoch=0, end_offset=2))))
    assert (log.log_end_offset, sender.sent) == (5, [])
    world.workers.run()
    assert (log.log_end_offset, log.truncation_unflushed) == (2, False)
    ((request, _, _),) = sender.sent
    assert positions(request) == {0: (2, 0)}


def test_a_log_that_leads_meanwhile_is_not_truncated() -> None:
    """A former leader's response no longer applies."""
    world = Following()
    lead(world.log(), 0, 2, 3)
    world.log().flush()
    world.change(leader=3, epoch=1)
    world.workers.inline = False
    diverging = wire.EpochEndOffset(epoch=0, end_offset=2)
    world.peers.to(3).answer(answer(data(diverging_epoch=diverging)))
    world.change(leader=1, epoch=2)
    world.workers.run()
    assert world.log().log_end_offset == 5


def test_a_disk_that_fails_below_a_truncation_takes_the_log_offline() -> None:
    world = Following()
    log = world.log()
    lead(log, 0, 2, 3)
    log.flush()
    world.change(leader=3, epoch=1)
    world.fail_disk("write_atomic", log.directory)
    diverging = wire.EpochEndOffset(epoch=0, end_offset=2)
    world.peers.to(3).answer(answer(data(diverging_epoch=diverging)))
    assert log.failed
    assert world.peers.to(3).sent == []


def test_no_fetch_is_sent_after_close() -> None:
    world = Following()
    world.broker.shutdown()
    world.leader.answer(answer(data(stamped(batch("a"), 0, 0), high=1)))
    assert world.leader.sent == []


def test_an_error_of_many_partitions_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A leader that gets thousands of elections late refuses them all at once."""
    caplog.set_level("INFO", logger="ottla.broker.replication.replica_fetcher")
    world = Following(partitions=5)
    refusals = [data(index=index, error=Error.FENCED_LEADER_EPOCH) for index in range(5)]
    world.leader.answer(answer(*refusals))
    (line,) = caplog.messages
    assert line == (
        "fetch from broker 2 failed with FENCED_LEADER_EPOCH, retrying: 5 partitions, such as "
        "t-0 in epoch 0, t-1 in epoch 0, t-2 in epoch 0"
    )
