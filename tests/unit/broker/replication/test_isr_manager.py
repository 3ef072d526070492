"""Proposals of in-sync sets reach the controller one request at a time, until they are answered.

Method: a broker whose controller channel the test answers by hand; followers fetch by hand, too.
"""

from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.fetch.fetch_sessions import FetchPartition
from ottla.broker.partition import REFUSED_PAUSE_MS, Partition
from ottla.broker.replication.isr import IsrChange
from ottla.broker.replication.isr_manager import RETRY_MS
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.messages.alter_partition import (
    AlterPartitionResponse,
    BrokerState,
    ResponsePartitionData,
    ResponseTopicData,
)
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness, batch, config_record

if TYPE_CHECKING:
    from ottla.broker.zookeeper.zk_metadata import ZkMetadataPort

OTHER_ID = Uuid(b"o" * 16)


@pytest.fixture
def harness() -> BrokerHarness:
    """Return a broker 1 that leads three partitions, alone in sync of three replicas."""
    harness = BrokerHarness()
    for node_id in (1, 2, 3):
        harness.add_broker(node_id)
    harness.broker.epoch = 1
    harness.add_topic(partitions=3, replicas=(1, 2, 3), isr=(1,))
    return harness


def partition(harness: BrokerHarness, index: int = 0) -> Partition:
    return harness.broker.replicas.partition("t", index)


def fetch(harness: BrokerHarness, node: int, index: int = 0, *, offset: int = 0) -> None:
    """Let a follower fetch; its broker epoch is its id, as the harness registers it."""
    asked = FetchPartition("t", NO_UUID, index, offset, 1_000, -1, -1, 0)
    found = partition(harness, index)
    if found.note_fetch(found.follower(asked, node, node), asked, node):
        harness.broker.replicas.follower_moved(found)
    harness.clock.advance(0)


def proposed(harness: BrokerHarness) -> list[tuple[int, tuple[int, ...]]]:
    """Return (partition, members) of the oldest request that is out."""
    request, _ = harness.controller.calls[0]
    return [
        (each.partition_index, tuple(one.broker_id for one in each.new_isr_with_epochs))
        for topic in request.topics
        for each in topic.partitions
    ]


def answered(index: int, *isr: int, error: Error = Error.NONE, epoch: int = 1) -> Any:
    return AlterPartitionResponse(
        error_code=0,
        topics=(
            ResponseTopicData(
                topic_id=TOPIC_ID,
                partitions=(
                    ResponsePartitionData(
                        partition_index=index,
                        error_code=error,
                        leader_id=1,
                        leader_epoch=0,
                        isr=isr,
                        partition_epoch=epoch,
                    ),
                ),
            ),
        ),
    )


class TestAsking:
    """One request out at a time, with all that waits."""

    def test_a_follower_at_the_high_watermark_is_proposed(self, harness: BrokerHarness) -> None:
        fetch(harness, 2)
        ((request, _),) = harness.controller.calls
        assert (request.broker_id, request.broker_epoch) == (1, 1)
        ((each,),) = (topic.partitions for topic in request.topics)
        assert (each.partition_index, each.leader_epoch, each.partition_epoch) == (0, 0, 0)
        assert each.new_isr_with_epochs == (
            BrokerState(broker_id=1, broker_epoch=1),
            BrokerState(broker_id=2, broker_epoch=2),
        )
        assert partition(harness).maximal_isr == (1, 2)

    def test_one_behind_it_is_not(self, harness: BrokerHarness) -> None:
        harness.broker.replicas.append("t", 0, batch("a"), acks=1)
        fetch(harness, 2, offset=0)
        assert harness.controller.calls == []

    def test_one_behind_the_start_of_the_leaders_epoch_is_not(self, harness: BrokerHarness) -> None:
        """What was committed before the election may lie above this leader's high watermark."""
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        for _ in range(2):
            harness.broker.replicas.append("t", 0, batch("a"), acks=1)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        assert (partition(harness).high_watermark, partition(harness).epoch_start_offset) == (0, 2)
        fetch(harness, 3, offset=1)
        assert harness.controller.calls == []
        fetch(harness, 3, offset=2)
        assert proposed(harness) == [(0, (1, 2, 3))]

    def test_what_waits_meanwhile_goes_together(self, harness: BrokerHarness) -> None:
        fetch(harness, 2, 0)
        fetch(harness, 2, 1)
        fetch(harness, 3, 2)
        assert len(harness.controller.calls) == 1
        harness.controller.answer(answered(0, 1, 2))
        harness.clock.advance(0)
        assert proposed(harness) == [(1, (1, 2)), (2, (1, 3))]

    def test_a_partition_proposes_one_change_at_a_time(self, harness: BrokerHarness) -> None:
        fetch(harness, 2)
        fetch(harness, 3)
        harness.controller.answer(answered(0, 1, 2))
        harness.clock.advance(0)
        assert harness.controller.calls == []
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        harness.clock.advance(0)
        assert proposed(harness) == [(0, (1, 2, 3))]

    def test_what_the_metadata_overtook_is_left_out(self, harness: BrokerHarness) -> None:
        fetch(harness, 2, 0)
        fetch(harness, 2, 1)
        harness.commit(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=2))
        harness.controller.answer(answered(0, 1, 2))
        harness.clock.advance(0)
        assert harness.controller.calls == []

    def test_many_partitions_are_one_line_in_the_log(
        self, harness: BrokerHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A broker that dies or comes back would bury everything else."""
        caplog.set_level("INFO", logger="ottla.broker.replication.isr_manager")
        harness.add_topic("u", OTHER_ID, partitions=9, replicas=(1, 2, 3), isr=(1, 2, 3))
        harness.clock.advance(30_001)
        harness.broker.replicas.recheck(shrink=True)
        harness.clock.advance(0)
        (line,) = caplog.messages
        assert line.startswith(
            "shrinking ISR by: 9 partitions, such as u-0 [2, 3] (high watermark 0, "
        )

    def test_nothing_is_sent_after_the_end(self, harness: BrokerHarness) -> None:
        harness.broker.isr.close()
        fetch(harness, 2)
        assert harness.controller.calls == []


class TestAnswers:
    """What each answer makes of the proposal."""

    @pytest.fixture
    def proposing(self, harness: BrokerHarness) -> BrokerHarness:
        fetch(harness, 2)
        return harness

    def change(self, harness: BrokerHarness) -> IsrChange | None:
        return partition(harness).pending

    def test_done(self, proposing: BrokerHarness) -> None:
        """The metadata before the change may say more than the answer does: it is waited for."""
        found, change = partition(proposing), self.change(proposing)
        proposing.controller.answer(answered(0, 1, 2))
        proposing.clock.advance(60_000)
        assert (found.isr, found.maximal_isr, found.pending) == ((1,), (1, 2), change)
        assert proposing.controller.calls == []
        proposing.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        assert (found.isr, found.pending, found.partition_epoch) == ((1, 2), None, 1)
        isr = proposing.broker.isr
        assert (isr.expands, isr.shrinks, isr.failures) == (1, 0, 0)

    def test_done_over_zookeeper(self, proposing: BrokerHarness) -> None:
        """There is no metadata log: the response takes effect at once."""
        proposing.broker.zk_metadata = cast("ZkMetadataPort", object())
        proposing.controller.answer(answered(0, 1, 2))
        found = partition(proposing)
        assert (found.isr, found.pending, found.partition_epoch) == ((1, 2), None, 1)

    def test_nothing_to_be_done(self, proposing: BrokerHarness) -> None:
        """The image is where the answer is: nothing else will end the proposal."""
        change = self.change(proposing)
        proposing.controller.answer(answered(0, 1, epoch=0))
        assert partition(proposing).isr == (1,)
        assert self.change(proposing) is not change

    def test_done_and_known_from_the_metadata_already(self, proposing: BrokerHarness) -> None:
        proposing.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        assert self.change(proposing) is None
        proposing.controller.answer(answered(0, 1, 2))
        assert partition(proposing).isr == (1, 2)
        assert proposing.broker.isr.expands == 1

    def test_the_metadata_does_not_undo_a_newer_proposal(self, proposing: BrokerHarness) -> None:
        """Over ZooKeeper the answer comes first; then another proposal is out when the metadata
        says the same."""
        proposing.broker.zk_metadata = cast("ZkMetadataPort", object())
        proposing.controller.answer(answered(0, 1, 2))
        fetch(proposing, 3)
        newer = self.change(proposing)
        assert newer is not None
        proposing.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        assert self.change(proposing) is newer
        assert partition(proposing).maximal_isr == (1, 2, 3)

    @pytest.mark.parametrize("error", [Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED])
    def test_not_done(self, proposing: BrokerHarness, error: Error) -> None:
        proposing.controller.answer(answered(0, error=error))
        assert partition(proposing).maximal_isr == (1,)
        fetch(proposing, 2)
        assert proposing.controller.calls == []  # Not at once, or refusals would chase each other.
        proposing.clock.advance(REFUSED_PAUSE_MS)
        fetch(proposing, 2)
        assert proposed(proposing) == [(0, (1, 2))]

    def test_a_refusal_that_comes_after_the_metadata_is_not_answered_by_a_proposal(
        self, proposing: BrokerHarness
    ) -> None:
        """A refusal bumps the partition epoch, and the metadata may be faster than the response:
        the controller wrote an epoch for each of the proposals that followed, without a pause."""
        for _ in range(2):  # With the first metadata it proposes once more.
            proposing.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1,)))
            proposing.controller.answer(answered(0, error=Error.INELIGIBLE_REPLICA))
            proposing.clock.advance(0)
        assert self.change(proposing) is None
        fetch(proposing, 2)
        assert proposing.controller.calls == []
        proposing.clock.advance(REFUSED_PAUSE_MS)
        fetch(proposing, 2)
        assert proposed(proposing) == [(0, (1, 2))]

    def test_one_that_was_refused_is_proposed_again_only_once_it_has_fetched(
        self, proposing: BrokerHarness
    ) -> None:
        """Over ZooKeeper: it had restarted, was registered under another epoch, and could not reach
        the leader. Proposed with each fetch of another follower, it kept that one out, too."""
        proposing.controller.answer(answered(0, error=Error.INELIGIBLE_REPLICA))
        proposing.clock.advance(REFUSED_PAUSE_MS)
        fetch(proposing, 3)
        assert proposed(proposing) == [(0, (1, 3))]
        proposing.controller.answer(answered(0, 1, 3))
        proposing.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 3)))
        fetch(proposing, 2)
        assert proposed(proposing) == [(0, (1, 3, 2))]

    @pytest.mark.parametrize(
        "error",
        [
            Error.FENCED_LEADER_EPOCH,
            Error.INVALID_UPDATE_VERSION,
            Error.INVALID_REQUEST,
            Error.NEW_LEADER_ELECTED,
            Error.UNKNOWN_TOPIC_ID,
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        ],
    )
    def test_a_possibly_applied_proposal_stays_in_effect_until_newer_metadata(
        self, proposing: BrokerHarness, error: Error
    ) -> None:
        proposing.controller.answer(answered(0, error=error))
        proposing.clock.advance(1_000)
        assert proposing.controller.calls == []
        assert partition(proposing).maximal_isr == (1, 2)
        proposing.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        assert self.change(proposing) is None
        assert proposing.broker.isr.failures == 1

    @pytest.mark.parametrize(
        "response",
        [
            ApiError(Error.REQUEST_TIMED_OUT),
            AlterPartitionResponse(error_code=Error.STALE_BROKER_EPOCH, topics=()),
            AlterPartitionResponse(error_code=0, topics=()),
            answered(0, error=Error.NOT_CONTROLLER),
            answered(0, error=Error.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_a_failed_proposal_is_retried(self, proposing: BrokerHarness, response: Any) -> None:
        proposing.controller.answer(response)
        proposing.clock.advance(RETRY_MS - 1)
        assert proposing.controller.calls == []
        proposing.broker.epoch = 9
        proposing.clock.advance(1)
        ((request, _),) = proposing.controller.calls
        assert request.broker_epoch == 9
        assert proposed(proposing) == [(0, (1, 2))]

    @pytest.mark.parametrize("whole", [True, False])
    def test_an_unknown_error_of_a_newer_controller_is_retried(
        self, proposing: BrokerHarness, whole: bool
    ) -> None:
        """No such number here: the proposal was lost, and the partition waited for ever."""
        unknown: Any = 32_000
        proposing.controller.answer(
            AlterPartitionResponse(error_code=unknown, topics=())
            if whole
            else answered(0, 1, error=unknown)
        )
        proposing.clock.advance(RETRY_MS)
        assert proposed(proposing) == [(0, (1, 2))]

    def test_a_response_of_another_epoch_is_ignored(self, proposing: BrokerHarness) -> None:
        proposing.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        proposing.controller.answer(answered(0, 1, 2))
        assert partition(proposing).isr == (1,)


class TestWhatIsCommittedMeanwhile:
    """The high watermark depends on every replica that may be in the controller's ISR."""

    def test_a_newcomer_counts_before_the_answer(self, harness: BrokerHarness) -> None:
        fetch(harness, 2)
        harness.broker.replicas.append("t", 0, batch("a"), acks=1)
        assert partition(harness).high_watermark == 0
        fetch(harness, 2, offset=1)
        assert partition(harness).high_watermark == 1

    def test_a_laggard_counts_until_the_answer(self, harness: BrokerHarness) -> None:
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        fetch(harness, 2)
        waiting = harness.broker.replicas.append("t", 0, batch("a"))
        harness.clock.advance(30_001)
        harness.broker.replicas.recheck(shrink=True)
        harness.clock.advance(0)
        assert proposed(harness) == [(0, (1,))]
        assert partition(harness).high_watermark == 0
        harness.controller.answer(answered(0, 1, epoch=2))
        assert partition(harness).high_watermark == 0
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1,)))
        assert partition(harness).high_watermark == 1
        assert waiting.done  # type: ignore[union-attr]

    @pytest.mark.parametrize("at_once", [False, True])
    def test_a_raised_minimum_counts_before_the_smaller_set(
        self, harness: BrokerHarness, at_once: bool
    ) -> None:
        """With two as the minimum the controller may elect who left: nothing is acknowledged
        alone, neither after the answer, nor between two halves of one change of the metadata."""
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        fetch(harness, 2)
        waiting = harness.broker.replicas.append("t", 0, batch("a"), timeout_ms=60_000)
        harness.clock.advance(30_001)
        harness.broker.replicas.recheck(shrink=True)
        harness.clock.advance(0)
        harness.controller.answer(answered(0, 1, epoch=2))
        raised = config_record("t", "min_insync_replicas", "2")
        left = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1,))
        if at_once:
            harness.commit(raised, left)
        else:
            harness.commit(raised)
            harness.commit(left)
        assert partition(harness).high_watermark == 0
        assert not waiting.done  # type: ignore[union-attr]
        fetch(harness, 2, offset=1)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        assert partition(harness).high_watermark == 1
        assert waiting.value.error is Error.NONE  # type: ignore[union-attr]

    def test_one_that_keeps_up_is_waited_for_though_it_is_not_in_sync(
        self, harness: BrokerHarness
    ) -> None:
        """Else the high watermark would run before it, and it could never join."""
        harness.broker.replicas.append("t", 0, batch("a"), acks=1)
        fetch(harness, 2, offset=0)
        fetch(harness, 2, offset=1)
        harness.controller.answer(ApiError(Error.REQUEST_TIMED_OUT))
        harness.broker.replicas.append("t", 0, batch("b"), acks=1)
        assert partition(harness).high_watermark == 1

    def test_one_that_was_waited_for_and_died_is_not_for_ever(self, harness: BrokerHarness) -> None:
        fetch(harness, 2)
        harness.controller.answer(answered(0, error=Error.INELIGIBLE_REPLICA))
        fetch(harness, 2)
        harness.broker.replicas.append("t", 0, batch("a"), acks=1)
        assert partition(harness).high_watermark == 0
        harness.clock.advance(30_001)
        harness.broker.replicas.recheck()
        assert partition(harness).high_watermark == 1

    def test_one_that_the_controller_dropped_counts_again_only_once_it_has_fetched(
        self, harness: BrokerHarness
    ) -> None:
        """Its directory may have failed: for as long as it may lag, acks=all waited for it, and
        another's fetch brought it back among those in sync, of which one had nothing any more."""
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2, 3)))
        harness.broker.replicas.append("t", 0, batch("a"), acks=1)
        fetch(harness, 2, offset=1)
        fetch(harness, 3, offset=1)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 3)))
        fetch(harness, 3, offset=1)
        assert harness.controller.calls == []
        waiting = harness.broker.replicas.append("t", 0, batch("b"))
        fetch(harness, 3, offset=2)
        assert partition(harness).high_watermark == 2
        assert waiting.done  # type: ignore[union-attr]
        fetch(harness, 2, offset=2)
        assert proposed(harness) == [(0, (1, 3, 2))]

    def test_another_leader_in_between_resets_all_followers(self, harness: BrokerHarness) -> None:
        """Two elections in one change: broker 3 cut off what it had, as broker 2 lacked it, but
        still counted with it; what was acknowledged then could be lost with brokers 1 and 2."""
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2, 3)))
        waiting = harness.broker.replicas.append("t", 0, batch("a", "b"))
        fetch(harness, 2, offset=0)
        fetch(harness, 3, offset=2)
        harness.commit(
            *(
                PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=leader)
                for leader in (2, 1)
            )
        )
        assert partition(harness).leader_epoch == 2
        fetch(harness, 2, offset=2)
        assert partition(harness).high_watermark == 0
        fetch(harness, 3, offset=2)
        assert partition(harness).high_watermark == 2
        assert waiting.done  # type: ignore[union-attr]
