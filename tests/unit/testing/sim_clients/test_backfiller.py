"""A simulated backfill copies what a leader grants, repeats what is lost, and has its mishaps.

Method: a fake broker that grants one segment, in virtual time; the store is a dictionary.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.object_store import Failure, ObjectInfo, SettableCall, StoreError
from ottla.records.builder import encode_batch
from ottla.testing.sim_clients.backfiller import AT_COMMIT, Backfiller, Mishap, RunningCopy
from ottla.tiered.granted_copy import CopyOutcome, CopyTarget, GrantedCopy
from ottla.wire.messages import commit_segment_copies as commits
from ottla.wire.messages import grant_segment_copies as grants

from .fake import FETCH, LOST_AFTER, LOST_BEFORE, TOPIC, TOPIC_ID, FakeCluster

GRANT, COMMIT = 1011, 1012
SEGMENT_ID = Uuid(b"s" * 16)
LOG = encode_batch([(None, b"a", (), 0), (None, b"b", (), 0)])
KINDS = ["epochs", "snapshot", "index", "timeindex", "log"]


class Store:
    """Answers at once. `fails`: so many puts fail."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fails = 0

    def put(self, name: str, source: Any, **given: Any) -> SettableCall[None]:
        if self.fails:
            self.fails -= 1
            return _called(StoreError(Failure.UNAVAILABLE, "down"))
        self.objects[name] = bytes(source)
        return _called(None)

    def head(self, name: str, **given: Any) -> SettableCall[Any]:
        if name not in self.objects:
            return _called(StoreError(Failure.NOT_FOUND, name))
        return _called(ObjectInfo(name, len(self.objects[name]), 0))

    def delete_many(self, names: Any, **given: Any) -> SettableCall[Any]:
        for name in names:
            self.objects.pop(name, None)
        return _called({})


def _called(result: Any) -> SettableCall[Any]:
    call: SettableCall[Any] = SettableCall()
    call.result.complete(result)
    return call


class Granting:
    """A leader that grants a segment until it is committed. `commits`: what came."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.log = [b"a", b"b"]
        self.store = Store()
        self.marks: list[str] = []
        self.commits: list[commits.CommittedSegmentCopy] = []
        self.is_finished = False
        self.cluster.handlers |= {GRANT: self._grant, COMMIT: self._commit}

    def _grant(self, request: grants.GrantSegmentCopiesRequest) -> Any:
        segment = grants.GrantedSegment(
            segment_id=SEGMENT_ID,
            start_offset=0,
            end_offset=1,
            size_bytes=len(LOG),
            max_timestamp_ms=0,
            lease_ms=5_000,
            epochs=(grants.GrantedEpoch(epoch=0, start_offset=0),),
            leader_epochs=b"epochs",
            producer_snapshot=b"snapshot",
        )
        row = grants.GrantedPartition(
            partition=0,
            error_code=0,
            leader_epoch=0,
            tiered_epoch=1,
            segments=() if self.is_finished else (segment,),
        )
        topics = (grants.GrantedTopic(topic_id=TOPIC_ID, partitions=(row,)),)
        return grants.GrantSegmentCopiesResponse(error_code=0, topics=topics)

    def _commit(self, request: commits.CommitSegmentCopiesRequest) -> Any:
        (copy,) = request.topics[0].partitions[0].copies
        self.commits.append(copy)
        self.is_finished = len(self.store.objects) == len(KINDS)
        result = commits.SegmentCopyResult(
            segment_id=SEGMENT_ID,
            error_code=Error.NONE if self.is_finished else Error.RESOURCE_NOT_FOUND,
            is_finished=self.is_finished,
        )
        row = commits.SegmentCopiesPartitionResult(partition=0, error_code=0, copies=(result,))
        topics = (commits.SegmentCopiesTopicResult(topic_id=TOPIC_ID, partitions=(row,)),)
        return commits.CommitSegmentCopiesResponse(error_code=0, topics=topics)

    def copied(self, mishap: Mishap | None = None, at: int = AT_COMMIT) -> CopyOutcome | None:
        """Run one copy to its end."""
        client = self.cluster.client("b")
        client.follow(TOPIC)
        client.refresh()
        self.cluster.steps.run(1_000)
        target = CopyTarget(TOPIC, TOPIC_ID, 0)
        store: Any = self.store
        running = RunningCopy(client, store, target, self.marks.append, mishap, at, 2_000)
        copy = GrantedCopy(
            target, Uuid(b"h" * 16), lease_ms=5_000, now_ms=client.clock.monotonic_ms
        )
        end = client.run(running.run(copy))
        self.cluster.steps.run(60_000)
        assert end.done
        outcome: CopyOutcome | None = end.value
        return outcome


def test_what_is_granted_is_copied_and_then_it_stops() -> None:
    leader = Granting()
    store: Any = leader.store
    backfiller = Backfiller(
        leader.cluster.client("b"),
        TOPIC,
        store=store,
        lease_ms=5_000,
        interval_ms=500,
        mishap_in=0,
        mark=leader.marks.append,
    )
    backfiller.begin()
    leader.cluster.steps.run(5_000)
    assert leader.marks == ["backfill-granted", "backfill-finished"]
    assert sorted(each.rpartition(".")[2] for each in leader.store.objects) == sorted(KINDS)
    assert {len(data) for name, data in leader.store.objects.items() if name.endswith(".log")} == {
        len(LOG)
    }
    backfiller.stop()
    leader.cluster.steps.run(5_000)
    asked = len(leader.cluster.requests)
    leader.cluster.steps.run(60_000)
    assert (backfiller.is_done, len(leader.cluster.requests)) == (True, asked)


@pytest.mark.parametrize("fate", [LOST_BEFORE, LOST_AFTER])
@pytest.mark.parametrize("key", [GRANT, COMMIT, FETCH])
def test_requests_are_repeated(key: int, fate: str) -> None:
    leader = Granting()
    leader.cluster.script[key] = [fate, fate]
    leader.store.fails = 2
    outcome = leader.copied()
    assert outcome is not None
    assert outcome.state == "finished"


def test_a_dead_one_has_its_last_request_under_way() -> None:
    leader = Granting()
    assert leader.copied(Mishap.DEATH) is None
    assert (len(leader.commits), leader.marks) == (1, ["backfill-granted", "backfill-died"])


def test_one_with_another_store_commits_nothing() -> None:
    leader = Granting()
    outcome = leader.copied(Mishap.OTHER_STORE)
    assert outcome is not None
    assert (outcome.state, leader.store.objects) == ("other store", {})


def test_a_commit_comes_late_or_again() -> None:
    for mishap, count in ((Mishap.STALL, 1), (Mishap.COMMIT_AGAIN, 2)):
        leader = Granting()
        outcome = leader.copied(mishap)
        assert outcome is not None
        assert (outcome.state, len(leader.commits)) == ("finished", count)


def test_another_epoch_than_that_of_the_grant_ends_the_copy() -> None:
    leader = Granting()
    leader.cluster.epoch = 1
    outcome = leader.copied()
    assert outcome is not None
    assert "another leader epoch" in outcome.detail
    assert leader.commits[0].failure == outcome.detail
