"""A follower begins behind records in remote storage only if it still follows that very leader.

Method: as `test_replica_fetcher`; the states of logs are built by the test, which keeps what each
was asked for, and answers when it says so.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.broker.replication.remote_log_port import (
    AllLocal,
    AuxState,
    AuxStateFailed,
    AuxStateOutcome,
    LeaderLog,
    LeaderStarts,
    Problem,
)
from ottla.log.epoch_cache import EpochEnd, EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.log.producers.producer_state import ProducerEntry
from ottla.log.remote_prefix import RemotePrefix
from ottla.metadata.records import RemoveTopicRecord
from ottla.wire.messages import fetch as wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import offset_for_leader_epoch as epochs_wire
from tests.unit.broker.harness import TOPIC_ID, FakeSender, batch
from tests.unit.broker.replication.test_follower_rules import lead, stamped
from tests.unit.broker.replication.test_replica_fetcher import (
    Following,
    answer,
    data,
    open_request,
    positions,
    sessionless,
)

MOVED = Error.OFFSET_MOVED_TO_TIERED_STORAGE
STATE = AuxState(
    offset=40,
    prefix=RemotePrefix(
        log_start_offset=10,
        epochs=(EpochEntry(0, 10), EpochEntry(2, 30)),
        producers=encode_snapshot([ProducerEntry(producer_id=7, epoch=1, last_timestamp=5)]),
    ),
    leader_start=38,
)
FAILED = AuxStateFailed(Problem.STORE, "unavailable")


@dataclass
class FakeBuild:
    log: PartitionLog
    leader: LeaderLog
    outcome: Pending[AuxStateOutcome] = field(default_factory=Pending)
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = not self.outcome.done


class Tiered(Following):
    """A follower with tiered storage. `builds`: those begun, oldest first."""

    def __init__(self, partitions: int = 1, **properties: str) -> None:
        self.builds: list[FakeBuild] = []
        super().__init__(partitions, **properties)

    def add_topic(self, *args: Any, **how: Any) -> None:
        self.broker.fetchers.aux_states = self.build
        super().add_topic(*args, **how)

    def build(self, log: PartitionLog, leader: LeaderLog) -> FakeBuild:
        self.builds.append(FakeBuild(log, leader))
        return self.builds[-1]

    @property
    def built(self) -> FakeBuild:
        (only,) = self.builds
        return only

    def begin(self) -> None:
        """Begin the log of partition 0 behind remote records."""
        self.leader.answer(answer(data(error=MOVED)))
        self.built.outcome.complete(STATE)
        self.clock.advance(1)
        self.builds.clear()

    def starts(self, index: int = 0) -> tuple[int, int, int]:
        log = self.log(index)
        return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def test_a_log_begins_behind_the_records_in_remote_storage() -> None:
    harness = Tiered()
    lead(harness.log(), 0, 2)
    harness.change(leader=3, epoch=1)
    harness.change(leader=2, epoch=2)
    harness.leader.answer(answer())
    harness.leader.answer(answer(data(error=MOVED)))
    assert harness.built.log is harness.log()
    assert harness.leader.sent == [], "the partition is paused"
    harness.built.outcome.complete(STATE)
    harness.clock.advance(1)  # Its checkpoints are written.
    log = harness.log()
    assert harness.starts() == (10, 40, 40)
    assert log.high_watermark == 40
    assert log.epochs.entries == ((0, 10), (2, 30))
    assert [each.producer_id for each in log.producer_states()] == [7]
    request = open_request(harness)
    assert positions(request) == {0: (40, 2)}
    assert request.topics[0].partitions[0].log_start_offset == 10
    harness.leader.answer(answer(data(stamped(batch("a"), 40, 2), high=40, start=10)))
    assert harness.starts() == (10, 40, 41)
    assert log.high_watermark == 40


def test_nothing_is_fetched_before_the_new_log_is_durable() -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    harness.workers.inline = False
    harness.built.outcome.complete(STATE)
    harness.workers.run()
    assert harness.starts() == (10, 40, 40)
    assert harness.leader.sent == []
    harness.clock.advance(1)
    harness.workers.run()
    assert positions(open_request(harness)) == {0: (40, 2)}


def test_other_partitions_go_on_meanwhile() -> None:
    harness = Tiered(partitions=2)
    records = stamped(batch("a"), 0, 0)
    harness.leader.answer(answer(data(error=MOVED), data(records, 1)))
    assert positions(open_request(harness)) == {1: (1, 0)}
    harness.leader.answer(answer(data(stamped(batch("b"), 1, 0), 1)))
    assert harness.log(1).log_end_offset == 2
    harness.built.outcome.complete(STATE)
    harness.clock.advance(10)
    assert positions(sessionless(harness).sent[0][0]) == {0: (40, 2)}


def test_failures_are_retried_after_a_backoff_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Tiered()
    for pause_ms in (50, 100, 200):
        harness.leader.answer(answer(data(error=MOVED)))
        harness.builds.pop().outcome.complete(FAILED)
        harness.clock.advance(pause_ms - 1)
        assert harness.leader.sent == []
        harness.clock.advance(1)
        assert positions(open_request(harness)) == {0: (0, -1)}
    assert caplog.messages == [
        "t-0: could not begin behind the records in remote storage: the object store failed: "
        "unavailable; retrying"
    ]
    assert harness.starts() == (0, 0, 0)
    harness.leader.answer(answer(data(error=MOVED)))
    harness.builds.pop().outcome.complete(AuxStateFailed(Problem.NO_SEGMENT))
    assert len(caplog.messages) == 2, "another cause"


@pytest.mark.parametrize(
    "outcome", [AllLocal(0), replace(STATE, leader_start=0)], ids=["not remote", "local by now"]
)
def test_a_leader_that_has_the_records_by_now_is_asked_again(outcome: AuxStateOutcome) -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    harness.built.outcome.complete(outcome)
    assert harness.starts() == (0, 0, 0)
    harness.clock.advance(50)
    assert positions(open_request(harness)) == {0: (0, -1)}


# --- what changes meanwhile ---------------------------------------------------------------------


@pytest.mark.parametrize("leader", [1, 2, 3, -1])
def test_a_new_leader_epoch_cancels_it(leader: int) -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    build = harness.built
    harness.change(leader=leader, epoch=1)
    assert build.cancelled
    build.outcome.complete(STATE)  # It was on its way.
    assert harness.starts() == (0, 0, 0)
    if leader > 1:
        assert positions(harness.peers.to(leader).sent[0][0]) == {0: (0, -1)}


def test_a_new_leader_epoch_while_the_disk_is_slow() -> None:
    """The old leader's state must not be installed for the new one."""
    harness = Tiered()
    lead(harness.log(), 0, 2)
    harness.log().flush()
    harness.leader.answer(answer(data(error=MOVED)))
    harness.change(leader=2, epoch=1)
    harness.leader.answer(answer())
    harness.leader.answer(answer(data(error=MOVED)))
    harness.workers.inline = False
    harness.builds[-1].outcome.complete(STATE)  # The limits are written by a worker.
    harness.change(leader=1, epoch=2)
    harness.workers.run()
    harness.clock.advance(1)
    assert harness.starts() == (0, 0, 2)


def test_a_new_leader_hears_nothing_of_a_log_that_is_not_durable_yet() -> None:
    """It would count a replica whose log the next start removes: see `ottla.log.remote_prefix`."""
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    harness.workers.inline = False
    harness.built.outcome.complete(STATE)
    harness.workers.run()
    assert harness.log().is_incomplete
    harness.change(leader=3, epoch=1)
    harness.clock.advance(2_000)  # The checkpoints wait for a worker.
    assert harness.log().is_incomplete
    assert harness.peers.to(3).sent == []
    harness.workers.run()
    assert not harness.log().is_incomplete
    harness.clock.advance(1_000)
    assert positions(harness.peers.to(3).sent[0][0]) == {0: (40, 2)}


def test_a_deletion_of_the_topic_cancels_it() -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert harness.built.cancelled
    harness.built.outcome.complete(STATE)


def test_a_shutdown_cancels_it() -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    harness.broker.shutdown()
    assert harness.built.cancelled
    harness.built.outcome.complete(STATE)
    assert harness.starts() == (0, 0, 0)


def test_a_disk_that_fails_takes_the_log_offline() -> None:
    harness = Tiered()
    log = harness.log()
    harness.leader.answer(answer(data(error=MOVED)))
    harness.fail_disk("rename", log.directory)
    harness.built.outcome.complete(STATE)
    harness.clock.advance(1)
    assert log.failed
    assert harness.leader.sent == []


# --- truncations within the remote prefix -------------------------------------------------------


def diverging(offset: int, epoch: int = 2) -> wire.FetchResponse:
    return answer(data(diverging_epoch=wire.EpochEndOffset(epoch=epoch, end_offset=offset)))


def test_a_log_that_diverges_within_its_remote_prefix_begins_anew() -> None:
    """The producers' state at that offset is only in remote storage."""
    harness = Tiered()
    harness.begin()
    harness.leader.answer(diverging(35))
    assert harness.starts() == (10, 40, 40)
    prefix = replace(STATE.prefix, epochs=(EpochEntry(0, 10), EpochEntry(2, 30)))
    harness.built.outcome.complete(AuxState(offset=33, prefix=prefix, leader_start=33))
    harness.clock.advance(1)
    log = harness.log()
    assert harness.starts() == (10, 33, 33)
    assert [each.producer_id for each in log.producer_states()] == [7]
    assert positions(open_request(harness)) == {0: (33, 2)}


def test_all_is_fetched_again_where_the_leader_has_all_of_it() -> None:
    """Nothing local would be left anyway, and the producers' state would be unknown."""
    harness = Tiered()
    harness.begin()
    harness.leader.answer(diverging(35))
    harness.built.outcome.complete(AllLocal(5))
    assert harness.starts() == (5, 5, 5)
    assert harness.log().epochs.entries == ()
    assert positions(open_request(harness)) == {0: (5, -1)}


def test_it_is_tried_again_after_a_failure() -> None:
    harness = Tiered()
    harness.begin()
    harness.leader.answer(diverging(35))
    harness.built.outcome.complete(FAILED)
    assert harness.starts() == (10, 40, 40)
    harness.clock.advance(50)
    assert positions(open_request(harness)) == {0: (40, 2)}


@pytest.mark.parametrize("offset", [40, 10, 5])
def test_other_truncations_ask_nobody(offset: int) -> None:
    harness = Tiered()
    harness.begin()
    lead(harness.log(), 2, 2)
    harness.change(leader=3, epoch=1)
    harness.peers.to(3).answer(diverging(offset))
    assert harness.builds == []
    assert harness.log().log_end_offset == offset


def test_an_unclean_leader_that_ends_within_the_remote_prefix() -> None:
    harness = Tiered()
    harness.begin()
    harness.leader.answer(answer(data(error=Error.OFFSET_OUT_OF_RANGE)))
    offsets = {-2: 0, -1: 20}
    for _ in range(2):
        listed(harness.leader, offsets)
    assert harness.starts() == (10, 40, 40)
    harness.built.outcome.complete(AllLocal(0))
    assert harness.starts() == (0, 0, 0)


# --- the requests to the leader -----------------------------------------------------------------


def listed(sender: FakeSender, offsets: dict[int, int], error: int = 0) -> None:
    """Answer the next ListOffsets."""
    slot = next(
        slot
        for slot, (request, _, _) in enumerate(sender.sent)
        if isinstance(request, offsets_wire.ListOffsetsRequest)
    )
    request, version, promise = sender.sent.pop(slot)
    assert (request.replica_id, version >= 8) == (1, True)
    wanted = request.topics[0].partitions[0]
    assert wanted.current_leader_epoch == 0
    found = offsets_wire.ListOffsetsPartitionResponse(
        partition_index=0, error_code=error, offset=offsets[wanted.timestamp], leader_epoch=4
    )
    topic = offsets_wire.ListOffsetsTopicResponse(name="t", partitions=(found,))
    promise.complete(offsets_wire.ListOffsetsResponse(topics=(topic,)))


def ended(sender: FakeSender, response: Any) -> Any:
    request, _, promise = sender.sent.pop()
    assert isinstance(request, epochs_wire.OffsetForLeaderEpochRequest)
    promise.complete(response)
    return request


def epoch_end(epoch: int, offset: int, error: int = 0) -> Any:
    found = epochs_wire.EpochEndOffset(
        partition=0, error_code=error, leader_epoch=epoch, end_offset=offset
    )
    topic = epochs_wire.OffsetForLeaderTopicResult(topic="t", partitions=(found,))
    return epochs_wire.OffsetForLeaderEpochResponse(topics=(topic,))


def test_the_leader_is_asked_for_both_starts() -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    leader = harness.built.leader
    starts = leader.starts()
    asked = [request.topics[0].partitions[0].timestamp for request, _, _ in harness.leader.sent]
    assert asked == [-2, -4]
    for _ in range(2):
        listed(harness.leader, {-2: 10, -4: 38})
    assert starts.value == LeaderStarts(10, 38, 4)


@pytest.mark.parametrize("fails", [0, 1])
def test_a_refused_start_is_an_error(fails: int) -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    starts = harness.built.leader.starts()
    for number in range(2):
        error = Error.FENCED_LEADER_EPOCH if number == fails else Error.NONE
        listed(harness.leader, {-2: 10, -4: 38}, error)
    assert isinstance(starts.value, ApiError)
    assert starts.value.error is Error.FENCED_LEADER_EPOCH


def test_the_leader_is_asked_for_an_epochs_end() -> None:
    harness = Tiered()
    harness.leader.answer(answer(data(error=MOVED)))
    leader = harness.built.leader
    end = leader.epoch_end(3)
    request = ended(harness.leader, epoch_end(2, 30))
    assert request.replica_id == 1
    wanted = request.topics[0].partitions[0]
    assert (wanted.partition, wanted.current_leader_epoch, wanted.leader_epoch) == (0, 0, 3)
    assert end.value == EpochEnd(2, 30)
    refused = leader.epoch_end(3)
    ended(harness.leader, epoch_end(-1, -1, Error.NOT_LEADER_OR_FOLLOWER))
    assert isinstance(refused.value, ApiError)
    lost = leader.epoch_end(3)
    ended(harness.leader, ApiError(Error.NETWORK_EXCEPTION))
    assert isinstance(lost.value, ApiError)
    malformed = leader.epoch_end(3)
    ended(harness.leader, epochs_wire.OffsetForLeaderEpochResponse(topics=()))
    assert isinstance(malformed.value, ApiError)


def test_the_requests_do_not_wait_for_a_delayed_fetch() -> None:
    harness = Tiered(partitions=2)
    harness.leader.answer(answer(data(error=MOVED), data(stamped(batch("a"), 0, 0), 1)))
    assert len(harness.leader.sent) == 1, "the fetch of the other partition"
    harness.built.leader.epoch_end(3)
    assert len(harness.leader.sent) == 1
    assert len(sessionless(harness).sent) == 1
