"""The leader of a metadata partition purges what maps to it, and reports until that is known.

Method: brokers of the bench of copies, each with a purger, on one metadata image that the test
writes; the controller is its decider of reports. The bench's metadata know partitions by their
number alone, so there is one deleted topic at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid, uuid_text
from ottla.base.pending import Pending
from ottla.broker.remote.tasks.purge_reporter import REPORT_INTERVAL_MS, UNKNOWN_PAUSE_MS
from ottla.broker.remote.tasks.purge_task import QUIET_MS
from ottla.broker.remote.tasks.purger import Purger, PurgerPorts
from ottla.controller.deletion.purge_reports import (
    PartitionPurge,
    PurgeReport,
    PurgeReports,
    take_report,
)
from ottla.metadata.brokers import record_of
from ottla.metadata.deletions import (
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    Policy,
    Remote,
    deletion_records,
    header_record,
)
from ottla.metadata.delta import ClusterDelta, delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import (
    ForgetDeletionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from ottla.tiered.metadata_partition import metadata_partition
from ottla.wire.messages.report_purges import (
    PurgedTopicResult,
    ReportPurgesRequest,
    ReportPurgesResponse,
)
from tests.unit.broker.remote.copy_bench import HOUR_S, TOPIC, TOPIC_ID, Bench, BenchBroker
from tests.unit.controller.builders import broker as registered

METADATA_ID = Uuid(b"m" * 16)
COUNT = 4
PARTITIONS = range(6)
DONE_S = 2 * QUIET_MS / 1000
ENTRY = DeletionImage(
    topic_id=TOPIC_ID, name=TOPIC, policy=Policy.AT_ONCE, asked_ms=1, remote=Remote.PENDING
)


class Purging:
    """A broker with a purger. `read`: the partitions whose metadata it reads for purges."""

    def __init__(self, cluster: "PurgeCluster", broker: BenchBroker) -> None:
        self.cluster = cluster
        self.node_id = broker.node_id
        self.read: set[tuple[Uuid, int]] = set()
        self.requests: list[ReportPurgesRequest] = []
        self.times: list[int] = []
        self.purger = Purger(
            broker.life.environment,
            PurgerPorts(
                assign=self._assign,
                unassign=self._unassign,
                forwarder=self,  # type: ignore[arg-type]
                broker_epoch=lambda: 100 + self.node_id,
            ),
        )

    def _assign(self, keys: Iterable[tuple[Uuid, int]]) -> None:
        listed = list(keys)
        assert not self.read.intersection(listed)
        self.read.update(listed)

    def _unassign(self, keys: Iterable[tuple[Uuid, int]]) -> None:
        listed = list(keys)
        assert self.read.issuperset(listed)
        self.read.difference_update(listed)

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any]:
        self.requests.append(request)
        self.times.append(self.cluster.bench.scheduler.now_ms)
        answer: Pending[Any] = Pending()
        self.cluster.bench.scheduler.after(5_000, lambda: self.cluster.answer(request, answer))
        return answer

    def apply(self, delta: ClusterDelta, *, is_first: bool = False) -> None:
        self.purger.note_pending(delta.image, None if is_first else delta.changed_deletions)
        self.purger.apply(delta.image, delta.changed_deletions)


class PurgeCluster:
    """Brokers, and a controller whose reports `elect` forgets. `refusal`: of all requests."""

    def __init__(self, *nodes: int) -> None:
        self.bench = Bench()
        self.image: ClusterImage = EMPTY
        self.reports = PurgeReports()
        self.refusal: Error | ApiError = Error.NONE
        self.brokers = {each: Purging(self, self.bench.broker(each)) for each in nodes}
        self.write(*(record_of(registered(each, epoch=100 + each)) for each in nodes))

    def write(self, *records: Record) -> None:
        offset = self.image.position[0] + 1
        delta = replay(self.image, records, offset=offset, epoch=1)
        self.image = delta.image
        for each in self.brokers.values():
            each.apply(delta)

    def add_metadata_topic(self, *leaders: int) -> None:
        self.write(
            TopicRecord(name=REMOTE_LOG_METADATA_TOPIC, topic_id=METADATA_ID),
            *(
                PartitionRecord(
                    partition_id=number, topic_id=METADATA_ID, replicas=tuple(self.brokers),
                    isr=tuple(self.brokers), leader=leader, leader_epoch=0, partition_epoch=0,
                )
                for number, leader in enumerate(leaders)
            ),
        )  # fmt: skip

    def lead(self, number: int, leader: int) -> None:
        self.write(PartitionChangeRecord(partition_id=number, topic_id=METADATA_ID, leader=leader))

    def delete(self, *, over: bool = True, partitions: Sequence[int] = PARTITIONS) -> None:
        status = SUCCESSFUL if over else STARTED
        self.write(*deletion_records(ENTRY.with_status(9, status, partitions)))

    def elect(self) -> None:
        self.reports = PurgeReports()

    def answer(self, request: ReportPurgesRequest, answer: Pending[Any]) -> None:
        if isinstance(self.refusal, ApiError):
            answer.complete(self.refusal)
            return
        if self.refusal is not Error.NONE:
            answer.complete(ReportPurgesResponse(error_code=self.refusal))
            return
        report = PurgeReport(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            topics={
                topic.topic_id: [
                    PartitionPurge(
                        partition=each.partition, floor=each.floor, is_purged=each.is_purged,
                        segments_left=each.segments_left, error=each.last_error,
                    )
                    for each in topic.partitions
                ]
                for topic in request.topics
            },
        )  # fmt: skip
        decided = take_report(self.image, self.reports, report)
        if decided.step.records:
            self.write(*decided.step.records)
        results = tuple(
            PurgedTopicResult(topic_id=topic_id, error_code=error)
            for topic_id, error in decided.reply.items()
        )
        answer.complete(ReportPurgesResponse(error_code=0, topics=results))

    @property
    def remote(self) -> Remote:
        deletion = self.image.deletions.of(TOPIC_ID)
        assert deletion is not None
        return deletion.remote

    def owned(self, node_id: int) -> set[int]:
        return {partition for _, partition in self.brokers[node_id].read}


def mapped(leader_of: dict[int, int], node_id: int) -> set[int]:
    index = {each: metadata_partition(TOPIC_ID, each, COUNT) for each in PARTITIONS}
    return {each for each in PARTITIONS if leader_of[index[each]] == node_id}


def test_each_partition_is_purged_by_the_leader_that_has_its_metadata() -> None:
    cluster = PurgeCluster(1, 2)
    cluster.add_metadata_topic(1, 2, 1, 2)
    assert not cluster.brokers[1].purger.is_needed
    cluster.delete()
    leaders = dict(enumerate((1, 2, 1, 2)))
    for node_id in (1, 2):
        assert cluster.brokers[node_id].purger.is_needed
        assert cluster.owned(node_id) == mapped(leaders, node_id) != set()
    cluster.bench.run(DONE_S)
    assert cluster.remote is Remote.PURGED
    assert cluster.owned(1) | cluster.owned(2) == set()
    assert not cluster.brokers[1].purger.is_needed
    sent = [len(each.requests) for each in cluster.brokers.values()]
    cluster.bench.run(HOUR_S)
    assert [len(each.requests) for each in cluster.brokers.values()] == sent


def test_leadership_moves() -> None:
    cluster = PurgeCluster(1, 2)
    cluster.add_metadata_topic(1, 1, 1, 1)
    cluster.delete()
    assert cluster.owned(1) == set(PARTITIONS)
    cluster.bench.run(30)
    cluster.lead(metadata_partition(TOPIC_ID, 3, COUNT), 2)
    assert 3 in cluster.owned(2)
    assert cluster.owned(1) == set(PARTITIONS) - cluster.owned(2)
    cluster.bench.run(DONE_S)
    assert cluster.remote is Remote.PURGED


def test_a_broker_that_starts_goes_on() -> None:
    cluster = PurgeCluster(1, 2)
    cluster.add_metadata_topic(1, 1, 1, 1)
    cluster.delete()
    cluster.bench.run(20)
    cluster.brokers[1].purger.close()
    again = Purging(cluster, cluster.bench.broker(1))
    cluster.brokers[1] = again
    again.apply(delta_between(EMPTY, cluster.image), is_first=True)
    assert cluster.owned(1) == set(PARTITIONS)
    cluster.bench.run(DONE_S)
    assert cluster.remote is Remote.PURGED


def test_without_the_metadata_topic_it_waits_and_says_that_it_is_needed() -> None:
    cluster = PurgeCluster(1)
    cluster.delete()
    cluster.bench.run(HOUR_S)
    assert cluster.brokers[1].purger.is_needed
    assert not cluster.brokers[1].requests
    cluster.add_metadata_topic(1, 1, 1, 1)
    cluster.bench.run(DONE_S)
    assert cluster.remote is Remote.PURGED


def test_the_replicas_end_later() -> None:
    cluster = PurgeCluster(1)
    cluster.add_metadata_topic(1, 1, 1, 1)
    cluster.delete(over=False)
    cluster.bench.run(HOUR_S)
    assert cluster.remote is Remote.PENDING
    cluster.delete(over=True)
    cluster.bench.run(DONE_S)
    assert cluster.remote is Remote.PURGED


def test_partitions_are_added_and_the_deletion_is_forgotten() -> None:
    cluster = PurgeCluster(1)
    cluster.add_metadata_topic(1, 1, 1, 1)
    cluster.delete(partitions=(0, 1))
    assert cluster.owned(1) == {0, 1}
    cluster.delete()
    assert cluster.owned(1) == set(PARTITIONS)
    cluster.write(ForgetDeletionRecord(topic_id=TOPIC_ID))
    assert cluster.owned(1) == set()
    assert not cluster.brokers[1].purger.is_needed


def test_reports_are_repeated_to_the_next_controllers() -> None:
    cluster = PurgeCluster(1, 2)
    cluster.add_metadata_topic(1, 2, 1, 2)
    cluster.delete()
    cluster.refusal = ApiError(Error.REQUEST_TIMED_OUT)
    cluster.bench.run(DONE_S)
    for refusal in (Error.NOT_CONTROLLER, Error.STALE_BROKER_EPOCH):
        cluster.refusal = refusal
        cluster.bench.run(2 * REPORT_INTERVAL_MS / 1000)
        cluster.elect()
    assert cluster.remote is Remote.PENDING
    cluster.refusal = Error.NONE
    cluster.bench.run(2 * REPORT_INTERVAL_MS / 1000)
    assert cluster.remote is Remote.PURGED


def test_an_answer_that_a_topic_is_unknown_slows_its_reports() -> None:
    """It may come from a controller that was deposed, so they do not end."""
    cluster = PurgeCluster(1)
    cluster.add_metadata_topic(1, 1, 1, 1)
    cluster.delete()
    image, before = cluster.image, cluster.brokers[1]
    cluster.image = EMPTY.__class__(brokers=image.brokers)
    cluster.bench.run(DONE_S)
    # The answer to the first report that it gave.
    gaps = [later - sooner for sooner, later in zip(before.times, before.times[1:], strict=False)]
    assert min(gaps) >= UNKNOWN_PAUSE_MS
    cluster.image = image
    cluster.bench.run(2 * UNKNOWN_PAUSE_MS / 1000)
    assert cluster.remote is Remote.PURGED


def test_errors_are_reported() -> None:
    cluster = PurgeCluster(1)
    cluster.bench.model.faults.is_down = True
    cluster.add_metadata_topic(1, 1, 1, 1)
    cluster.delete()
    cluster.bench.run(HOUR_S)
    deletion = cluster.image.deletions.of(TOPIC_ID)
    assert deletion is not None
    progress = cluster.reports.progress(deletion)
    assert (progress.partitions, progress.partitions_left) == (6, 6)
    assert progress.error == "unavailable: 503 Slow Down"
    assert len(cluster.brokers[1].requests) <= HOUR_S * 1000 / REPORT_INTERVAL_MS + 1


@pytest.mark.parametrize("is_down", [True, False], ids=["down", "during the purge"])
def test_a_purge_that_is_abandoned_ends_and_does_not_go_on_when_the_store_is_back(
    is_down: bool,
) -> None:
    cluster = PurgeCluster(1, 2)
    model = cluster.bench.model
    name = f"{TOPIC}-{uuid_text(TOPIC_ID)}/0/left"
    model.put(name, b"x", replace=True)
    model.faults.is_down = is_down
    model.faults.slow = 0.0 if is_down else 1.0
    cluster.add_metadata_topic(1, 2, 1, 2)
    cluster.delete()
    cluster.bench.run(1 if not is_down else HOUR_S)
    cluster.write(header_record(replace(ENTRY, remote=Remote.ABANDONED)))
    for broker in cluster.brokers.values():
        assert not broker.read
        assert not broker.purger.is_needed
    model.faults.is_down, model.faults.slow = False, 0.0
    cluster.bench.run(60)  # What was under way has ended.
    model.put(name, b"x", replace=True)
    begun, sent = len(model.history), [len(each.requests) for each in cluster.brokers.values()]
    cluster.lead(0, 2)
    cluster.bench.run(HOUR_S)
    assert len(model.history) == begun
    assert [len(each.requests) for each in cluster.brokers.values()] == sent
    assert name in model.objects


def test_many_partitions_are_reported_in_several_requests() -> None:
    cluster = PurgeCluster(1)
    cluster.add_metadata_topic(1)
    cluster.delete(partitions=range(2_100))
    cluster.bench.run(11)
    sent = [
        sorted(each.partition for topic in request.topics for each in topic.partitions)
        for request in cluster.brokers[1].requests[:2]
    ]
    assert [len(each) for each in sent] == [2_000, 100]
    assert sorted({each for some in sent for each in some}) == list(range(2_100))
