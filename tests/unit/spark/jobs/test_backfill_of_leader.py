"""A backfill by grants of a real leader: its log, its grant task and its handlers, and no process.

Method: the bench of the copy task has the leader, in virtual time; a fake broker passes requests of
the job's client to it, over a real socket. The job writes to a directory, whose files the leader's
store has whenever a commit comes. Both sides are the product's code, so they agree on the bytes.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.pending import Pending
from ottla.broker.api import k1011_grant_segment_copies as k1011
from ottla.broker.api import k1012_commit_segment_copies as k1012
from ottla.broker.api.base import Context
from ottla.client.cluster import ClientConfig
from ottla.log.producers.producer_snapshot import decode_snapshot
from ottla.records.control import build_marker
from ottla.spark.errors import ClusterError
from ottla.spark.jobs.backfill import BackfillOptions, BackfillResult, backfill, plan_backfill
from ottla.spark.jobs.rules.segment_bytes import check_auxiliary, check_log, index_entries
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata
from ottla.wire.messages import commit_segment_copies as commits
from ottla.wire.messages import describe_remote_log as remote_log
from ottla.wire.messages import fetch as fetched
from ottla.wire.messages import grant_segment_copies as grants
from tests.unit.broker.remote.copy_bench import HOUR_S, TOPIC, TOPIC_ID, Bench
from tests.unit.client.fake_broker import FakeBroker, topic
from tests.unit.log.support import append, produced

from .fake_spark import FakeSpark

EPOCH = 5
ALL = [(0, 10), (10, 20), (20, 30)]


class RealLeader:
    """See the module. `commit_s`: how long the leader waits before it handles a commit."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.bench = Bench()
        self.leader = self.bench.broker(1)
        self.leader.lead(EPOCH)
        self.bench.run(5)
        self.leader.life.environment.copier_slots.free = 0  # Its own copies wait for a slot.
        self.broker = FakeBroker()
        made = topic(TOPIC, topic_id=TOPIC_ID)
        (part,) = made.partitions
        self.broker.topics = [replace(made, partitions=(replace(part, leader_epoch=EPOCH),))]
        self.commit_s = 0.0
        self.broker.answer(grants.GrantSegmentCopiesRequest, self._grant)
        self.broker.answer(commits.CommitSegmentCopiesRequest, self._commit)
        self.broker.answer(fetched.FetchRequest, self._fetch)
        self.broker.answer(remote_log.DescribeRemoteLogRequest, self._describe)

    def options(self, **more: Any) -> BackfillOptions:
        fields: dict[str, Any] = {
            "topic": TOPIC,
            "cluster": ClientConfig(bootstrap=self.broker.address, backoff_s=0.001).with_timeout(5),
            "remote_storage": self.store.as_uri(),
            "timeout_s": 5.0,
        }
        return BackfillOptions(**(fields | more))

    def run(self, **more: Any) -> BackfillResult:
        return backfill(FakeSpark(), self.options(**more))

    def _context(self) -> Context:
        life, log = self.leader.life, self.leader.log
        broker = SimpleNamespace(
            replicas=SimpleNamespace(
                partition_by_id=lambda *_: SimpleNamespace(leader_log=lambda: log)
            ),
            remote=SimpleNamespace(manager=life.manager),
            image=SimpleNamespace(tiering={TOPIC_ID: self.leader.tiering}),
            timers=life.environment.timers,
        )
        now_ms = life.environment.clock.monotonic_ms()
        return cast(Context, SimpleNamespace(broker=broker, monotonic_ms=now_ms))

    def _answered(self, answer: Any) -> Any:
        assert isinstance(answer, Pending)
        self.bench.run(2)
        return answer.value

    def _grant(self, request: grants.GrantSegmentCopiesRequest) -> Any:
        return self._answered(k1011.handle(self._context(), request))

    def _commit(self, request: commits.CommitSegmentCopiesRequest) -> Any:
        self.bench.run(self.commit_s)
        for path in self.store.rglob("*"):
            if path.is_file():
                name = str(path.relative_to(self.store))
                self.bench.model.put(name, path.read_bytes(), replace=True)
        return self._answered(k1012.handle(self._context(), request))

    def _fetch(self, request: fetched.FetchRequest) -> Any:
        (asked,) = request.topics
        (row,) = asked.partitions
        log = self.leader.log
        found = log.read(
            row.fetch_offset, max_bytes=300, upper_bound=log.log_end_offset, at_least_one=True
        )
        data = b"".join(each.read() for each in found.slices)
        for each in found.slices:
            each.release()
        part = fetched.PartitionData(
            partition_index=0, error_code=0, high_watermark=10**6, records=memoryview(data)
        )
        answer = fetched.FetchableTopicResponse(topic_id=asked.topic_id, partitions=(part,))
        return fetched.FetchResponse(error_code=0, responses=(answer,))

    def _describe(self, _request: remote_log.DescribeRemoteLogRequest) -> Any:
        row = remote_log.RemoteLogPartition(partition=0, error_code=0)
        found = remote_log.RemoteLogTopic(name=TOPIC, partitions=(row,))
        return remote_log.DescribeRemoteLogResponse(error_code=0, topics=(found,))


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealLeader]:
    made = RealLeader(tmp_path)
    yield made
    made.broker.close()


def objects(real: RealLeader, segment: SegmentMetadata) -> dict[ObjectKind, bytes]:
    names = {kind: object_name(segment, kind) for kind in ObjectKind}
    found = real.bench.model.objects
    return {kind: found[name] for kind, name in names.items() if name in found}


def test_a_backfill_s_segments_are_the_leader_s_own(real: RealLeader) -> None:
    append(real.leader.log, produced(7, 0, 0, transactional=True), epoch=EPOCH)
    real.leader.produce(4, epoch=EPOCH)
    marker = build_marker(
        committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    append(real.leader.log, bytearray(marker), epoch=EPOCH, origin="coordinator")
    real.leader.produce(1, epoch=EPOCH)
    real.leader.roll()
    real.leader.fill(2, epoch=EPOCH)
    plan = plan_backfill(real.options())
    assert (plan.segments, plan.partitions[0].target.until_offset) == (3, 26)
    result = real.run()
    assert (len(result.copied), result.left.segments, result.failures) == (3, 0, [])
    ends = [(0, 7), (7, 17), (17, 27)]
    real.bench.run(HOUR_S)
    real.bench.check(real.leader, ends)
    for segment in real.bench.segments():
        made = objects(real, segment)
        index = index_entries(segment, made[ObjectKind.OFFSET_INDEX])
        assert check_log(segment, [made.pop(ObjectKind.LOG)], index) == []
        for kind, data in made.items():
            assert list(check_auxiliary(segment, kind, data)) == []
    first = objects(real, real.bench.segments()[0])
    assert first[ObjectKind.TXN_INDEX]
    assert [each.producer_id for each in decode_snapshot(first[ObjectKind.PRODUCER_SNAPSHOT])] == [
        7
    ]


def test_only_what_is_left_is_copied_again(real: RealLeader) -> None:
    real.leader.fill(1, epoch=EPOCH)
    assert len(real.run().copied) == 1
    real.leader.fill(2, epoch=EPOCH)
    assert len(real.run().copied) == 2
    assert real.run().rounds == 0
    real.bench.run(HOUR_S)
    real.bench.check(real.leader)


@pytest.mark.drawn(8, of="every step")
def test_commits_that_come_after_the_lease_copy_nothing_twice(real: RealLeader) -> None:
    real.leader.fill(3, epoch=EPOCH)
    real.commit_s = 40
    with pytest.raises(ClusterError, match="its lease has ended"):
        real.run(lease_s=20.0)
    real.commit_s = 0
    real.bench.run(HOUR_S)
    assert real.bench.segments() == []
    assert [path for path in real.store.rglob("*") if path.is_file()] == []
    assert len(real.run(lease_s=20.0).copied) == 3
    real.bench.run(HOUR_S)
    real.bench.check(real.leader, ALL)


def test_another_leader_epoch_ends_the_copies_of_a_run(real: RealLeader) -> None:
    real.leader.fill(3, epoch=EPOCH)
    real.leader.start()
    real.leader.life.environment.copier_slots.free = 0
    real.leader.lead(EPOCH + 1)
    real.bench.run(5)
    with pytest.raises(ClusterError, match="have another leader epoch, 5"):
        real.run()
    real.bench.run(HOUR_S)
    assert real.bench.readable() == []
    assert real.bench.segment_objects() == set()
