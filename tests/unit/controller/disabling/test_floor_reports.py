"""Goal: a purge is pending until all partitions are reported as purged up to the topic's floor.

Method: reports to a controller, in every state in which a purge may run; what is written, what a
repeated, late or wrong report does, and what a new controller epoch forgets.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.controller.deletion.purge_reports import (
    PartitionPurge,
    PurgeProgress,
    PurgeReport,
    PurgeReports,
    take_report,
)
from ottla.metadata.deletions import DeletionImage, Policy, deletion_records
from ottla.metadata.records import Record
from ottla.metadata.tiering import (
    WHOLE_TOPIC,
    DisablePolicy,
    RestoredPartition,
    TieringState,
    TopicTiering,
    tiering_record,
)
from tests.unit.controller.builders import uuid
from tests.unit.controller.disabling_harness import MODES, DisablingHarness

T = uuid("t")
TWO = {0: (1, 2), 1: (2, 1)}


class Purges:
    """A cluster whose topic has two partitions, and the reports of its purgers."""

    def __init__(self, mode: str = "kraft") -> None:
        self.cluster = DisablingHarness(MODES[mode])
        self.cluster.create(assignment=TWO)
        self.reports = PurgeReports()
        self.written: list[Record] = []

    @property
    def state(self) -> TopicTiering:
        return self.cluster.state()

    def report(self, *partitions: PartitionPurge, broker_id: int = 1) -> Error:
        """Report, as a broker does; decided twice, as after a conflict."""
        report = PurgeReport(
            broker_id=broker_id,
            broker_epoch=self.cluster.image.brokers[broker_id].epoch,
            topics={T: partitions},
        )
        first = take_report(self.cluster.image, self.reports, report)
        decided = take_report(self.cluster.image, self.reports, report)
        assert decided == first
        self.written += decided.step.records
        self.cluster.write(decided.step.records)
        return decided.reply[T]

    def purged(self, floor: int, numbers: Sequence[int] = (0, 1)) -> Error:
        return self.report(
            *(PartitionPurge(partition=each, floor=floor, is_purged=True) for each in numbers)
        )

    def progress(self) -> PurgeProgress:
        topic = self.cluster.image.topics.by_id(T)
        assert topic is not None
        return self.reports.progress_of_existing(topic, self.state)


@pytest.fixture(params=sorted(MODES))
def purges(request: pytest.FixtureRequest) -> Purges:
    return Purges(request.param)


@pytest.mark.parametrize("state", ["DISABLING", "DISABLED", "ENABLED"])
def test_hole_9_a_purge_is_pending_until_all_partitions_are_purged(
    purges: Purges, state: str
) -> None:
    """Also one that runs while the topic is enabled again: hole 20."""
    purges.cluster.disable("delete")
    if state != "DISABLING":
        purges.cluster.settle()
    if state == "ENABLED":
        purges.cluster.enable()
    before = purges.state
    assert before.state.name == state
    assert (before.purge_pending, before.remote_floor_epoch) == (True, 1)
    assert purges.purged(1, [0]) is Error.NONE
    assert purges.state == before
    assert not purges.written
    assert purges.purged(1, [1]) is Error.NONE
    assert purges.state == replace(before, purge_pending=False)
    assert purges.state.age > before.age
    assert len(purges.written) == 1
    assert purges.purged(1) is Error.UNKNOWN_TOPIC_ID, "the broker may stop reporting"
    purges.cluster.settle()
    if state == "DISABLING":
        assert purges.cluster.is_disabled()


def test_a_report_of_a_lower_floor_does_not_count(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    assert purges.purged(1) is Error.NONE
    purges.cluster.enable()
    purges.cluster.disable("delete")
    assert purges.state.remote_floor_epoch == 3
    assert purges.purged(1) is Error.NONE
    assert purges.purged(2) is Error.NONE
    assert purges.state.purge_pending
    assert purges.purged(3) is Error.NONE
    assert not purges.state.purge_pending


def test_a_report_of_a_higher_floor_counts(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    assert purges.purged(2) is Error.NONE
    assert not purges.state.purge_pending
    assert purges.state.remote_floor_epoch == 1


def test_the_floor_of_a_deleted_topic_does_not_count(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    assert purges.purged(WHOLE_TOPIC) is Error.NONE
    assert purges.state.purge_pending


def test_a_late_report_takes_nothing_back(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    purges.purged(1, [0])
    late = PartitionPurge(partition=0, floor=1, segments_left=9, error="the store is down")
    purges.report(late, broker_id=2)
    assert purges.progress().partitions_left == 1
    purges.purged(1, [1])
    assert not purges.state.purge_pending


def test_new_partitions_are_to_be_reported_too(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    purges.purged(1, [0])
    purges.cluster.grow("t", {2: (1, 2)})
    purges.purged(1, [1])
    assert purges.state.purge_pending
    purges.purged(1, [2])
    assert not purges.state.purge_pending


def test_a_new_controller_epoch_begins_without_reports(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    purges.purged(1, [0])
    offset, epoch = purges.cluster.image.position
    purges.cluster.image = replace(purges.cluster.image, position=(offset, epoch + 1))
    purges.purged(1, [1])
    assert purges.state.purge_pending
    assert purges.progress().partitions_left == 1


def test_the_progress_is_what_is_reported(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    assert purges.progress() == PurgeProgress(partitions=2, partitions_left=2)
    purges.report(PartitionPurge(partition=0, floor=1, segments_left=7, bytes_left=70))
    purges.report(
        PartitionPurge(partition=1, floor=1, segments_left=3, bytes_left=30, error="refused"),
        broker_id=2,
    )
    assert purges.progress() == PurgeProgress(
        partitions=2, partitions_left=2, segments_left=10, bytes_left=100, error="refused"
    )
    purges.purged(1, [1])
    assert purges.progress() == PurgeProgress(
        partitions=2, partitions_left=1, segments_left=7, bytes_left=70
    )


def test_partitions_that_nobody_can_purge_are_named(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    purges.purged(1, [0])
    for number in (0, 1):
        purges.cluster.lead(-1, "t", number)
    assert purges.progress().leaderless == (1,)
    purges.cluster.lead(2, "t", 1)
    assert purges.progress().leaderless == ()


def test_remote_empty_is_known_after_retain_and_not_before_it_is_disabled(purges: Purges) -> None:
    """Scenario 2 of KIP-950: all remote segments have expired."""
    purges.cluster.disable("retain")
    assert purges.purged(2) is Error.UNKNOWN_TOPIC_ID
    purges.cluster.settle()
    before = purges.state
    assert before.has_remote_log
    assert purges.purged(1) is Error.NONE, "the present tiered epoch is to be reported"
    assert purges.state == before
    assert purges.purged(2, [0]) is Error.NONE
    assert purges.state == before
    assert purges.purged(2, [1]) is Error.NONE
    after = purges.state
    assert after == replace(before, remote_floor_epoch=2)
    assert after.age > before.age
    assert not after.has_remote_log
    assert purges.purged(2) is Error.UNKNOWN_TOPIC_ID
    purges.cluster.enable()
    assert purges.state.has_remote_log
    assert (purges.state.tiered_epoch, purges.state.remote_floor_epoch) == (3, 2)


def test_an_earlier_purge_ends_while_later_segments_are_retained(purges: Purges) -> None:
    purges.cluster.disable("delete")
    purges.cluster.settle()
    purges.cluster.enable()
    purges.cluster.disable("retain")
    purges.cluster.settle()
    assert (purges.state.policy, purges.state.purge_pending) == (DisablePolicy.RETAIN, True)
    purges.purged(1)
    assert not purges.state.purge_pending
    assert purges.state.has_remote_log
    purges.purged(4)
    assert not purges.state.has_remote_log


@pytest.mark.parametrize("state", ["never", "enabled"])
def test_of_other_topics_nothing_is_awaited(purges: Purges, state: str) -> None:
    if state == "never":
        image = purges.cluster.image
        purges.cluster.image = replace(image, tiering=image.tiering.delete(T))
    assert purges.purged(1) is Error.UNKNOWN_TOPIC_ID
    assert not purges.written


def test_a_topic_that_is_queued_for_deletion_is_left_alone() -> None:
    purges = Purges("zookeeper")
    purges.cluster.disable("delete")
    purges.cluster.settle()
    entry = DeletionImage(topic_id=T, name="t", policy=Policy.CLASSIC, asked_ms=1)
    purges.cluster.write(deletion_records(entry))
    assert purges.purged(1) is Error.NONE
    assert not purges.written
    assert purges.state.purge_pending


def test_a_restored_topic_keeps_where_it_began(purges: Purges) -> None:
    """The record is the whole state: nothing of it may be lost with a change."""
    began = (
        RestoredPartition(partition=0, leader_epoch=3, log_start_offset=5, end_offset=9),
        RestoredPartition(partition=1, leader_epoch=3, log_start_offset=0, end_offset=0),
    )
    purges.cluster.write([tiering_record(replace(purges.state, restored=began))])
    purges.cluster.disable("delete")
    purges.cluster.settle()
    purges.purged(1)
    purges.cluster.enable()
    assert purges.state.state is TieringState.ENABLED
    assert purges.state.restored == began
