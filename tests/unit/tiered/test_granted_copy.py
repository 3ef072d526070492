"""The steps of a granted copy: their order, the lease that bounds writes, and how a copy ends.

Method: a segment of small batches; the test executes the steps, and moves the clock before them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.tiered.granted_copy import (
    FAILED,
    FINISHED,
    KEPT,
    OTHER_STORE,
    AskGrants,
    CheckObject,
    CommitCopy,
    CopyEnded,
    CopyFailed,
    CopyOutcome,
    CopyTarget,
    DeleteObjects,
    FetchBatches,
    GrantedCopy,
    KeepBatches,
    PutObject,
    Step,
)
from ottla.wire.messages.commit_segment_copies import SegmentCopyResult
from ottla.wire.messages.grant_segment_copies import (
    GrantedEpoch,
    GrantedPartition,
    GrantedSegment,
)
from tests.unit.spark.jobs.support import log_bytes

LOG = log_bytes(20, 59, ((1, 20),), value=b"v" * 400)
HOLDER = Uuid(b"h" * 16)
TARGET = CopyTarget("orders", Uuid(b"t" * 16), 3)
LEASE_MS = 1_000
SEGMENT = GrantedSegment(
    segment_id=Uuid(b"s" * 16),
    start_offset=20,
    end_offset=59,
    size_bytes=len(LOG),
    max_timestamp_ms=900,
    lease_ms=LEASE_MS,
    epochs=(GrantedEpoch(epoch=1, start_offset=20),),
    leader_epochs=b"epochs",
    producer_snapshot=b"snapshot",
    transaction_index=b"x" * 34,
)
DONE = SegmentCopyResult(segment_id=SEGMENT.segment_id, error_code=0, is_finished=True)


class Runner:
    """Executes steps. `segments`: what the leader grants; `fails`: by the type of a step, the error
    of the next ones; `before`: called before each step."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self.steps: list[Step] = []
        self.segments: list[tuple[GrantedSegment, ...]] = [(SEGMENT,)]
        self.results = [DONE]
        self.fails: dict[type, list[CopyFailed]] = {}
        self.before: Callable[[Step], object] = lambda step: None

    def run(self) -> CopyOutcome | None:
        copy = GrantedCopy(TARGET, HOLDER, lease_ms=LEASE_MS, now_ms=lambda: self.now_ms)
        steps = copy.steps()
        result: Any = None
        failure: CopyFailed | None = None
        while True:
            try:
                step = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as end:
                outcome: CopyOutcome | None = end.value
                return outcome
            self.before(step)
            self.steps.append(step)
            failing = self.fails.get(type(step))
            failure = failing.pop(0) if failing else None
            result = self._result(step)

    def _result(self, step: Step) -> Any:
        match step:
            case AskGrants():
                later = len(self.segments) > 1
                granted = self.segments.pop(0) if later else self.segments[0]
                return GrantedPartition(
                    partition=3, error_code=0, leader_epoch=7, tiered_epoch=2, segments=granted
                )
            case FetchBatches(_, offset, leader_epoch):
                assert (offset >= 20, leader_epoch) == (True, 7)
                return LOG if offset == 20 else LOG[len(LOG) // 2 :]
            case CommitCopy():
                return self.results.pop(0) if self.results else DONE
        return None

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.steps if type(each) is kind]

    @property
    def given_up(self) -> list[str]:
        return [each.copy.failure for each in self.of(CommitCopy) if each.copy.failure]


def test_objects_are_written_in_order_then_looked_at_then_committed() -> None:
    runner = Runner()
    assert runner.run() == CopyOutcome(SEGMENT, FINISHED)
    kinds = [each.name.rpartition(".")[2] for each in runner.of(PutObject)]
    assert kinds == ["epochs", "snapshot", "index", "timeindex", "txnindex", "log"]
    assert [type(each) for each in runner.steps] == (
        [AskGrants, FetchBatches, KeepBatches] + [PutObject] * 6 + [CheckObject] * 6 + [CommitCopy]
    )
    assert {each.until_ms for each in runner.of(PutObject)} == {5_000 + LEASE_MS}
    assert b"".join(bytes(each.batches) for each in runner.of(KeepBatches)) == LOG
    sizes = [(each.name, each.size_bytes) for each in runner.of(PutObject)]
    assert [(each.name, each.size_bytes) for each in runner.of(CheckObject)] == sizes
    (commit,) = runner.of(CommitCopy)
    assert commit.copy.offset_index_bytes == dict(sizes)[runner.of(PutObject)[2].name]
    assert (commit.granted.leader_epoch, commit.granted.tiered_epoch) == (7, 2)


def test_a_copy_that_comes_early_is_kept() -> None:
    runner = Runner()
    runner.results = [replace(DONE, is_finished=False)]
    assert runner.run() == CopyOutcome(SEGMENT, KEPT)


def test_nothing_is_granted_or_the_leader_refuses() -> None:
    runner = Runner()
    runner.segments = [()]
    assert runner.run() is None
    assert [type(each) for each in runner.steps] == [AskGrants]
    runner.fails[AskGrants] = [CopyFailed("it is not tiered")]
    with pytest.raises(CopyFailed, match="it is not tiered"):
        runner.run()


def test_half_of_a_lease_renews_it() -> None:
    runner = Runner()

    def pass_time(step: Step) -> None:
        runner.now_ms += 300 if isinstance(step, PutObject) else 0

    runner.before = pass_time
    assert runner.run() == CopyOutcome(SEGMENT, FINISHED)
    asks = runner.of(AskGrants)
    assert len(asks) == 3
    assert {each.holder for each in asks} == {HOLDER}
    untils = [each.until_ms for each in runner.of(PutObject)]
    assert untils == [6_000, 6_000, 6_600, 6_600, 7_200, 7_200]


@pytest.mark.parametrize("later", [(), (replace(SEGMENT, segment_id=Uuid(b"o" * 16)),)])
def test_nothing_is_written_after_a_lease(later: tuple[GrantedSegment, ...]) -> None:
    runner = Runner()
    runner.segments = [(SEGMENT,), later]

    def stall(step: Step) -> None:
        if isinstance(step, PutObject) and step.name.endswith(".epochs"):
            runner.now_ms += 2 * LEASE_MS

    runner.before = stall
    outcome = runner.run()
    assert outcome == CopyOutcome(SEGMENT, FAILED, "the lease of orders-3 has ended")
    assert len(runner.of(PutObject)) == 1
    given_up = [each.copy.segment_id for each in runner.of(CommitCopy)]
    assert given_up == [*(each.segment_id for each in later), SEGMENT.segment_id]


@pytest.mark.parametrize("kind", [FetchBatches, PutObject, CheckObject, CommitCopy])
def test_a_step_that_fails_gives_the_copy_up(kind: type) -> None:
    runner = Runner()
    runner.fails[kind] = [CopyEnded("because")]
    assert runner.run() == CopyOutcome(SEGMENT, FAILED, "because")
    assert runner.given_up == ["because"]


def test_a_leader_that_cannot_be_told_ends_the_lease() -> None:
    runner = Runner()
    runner.fails = {PutObject: [CopyFailed("down")], CommitCopy: [CopyFailed("gone")]}
    assert runner.run() == CopyOutcome(SEGMENT, FAILED, "down")


@pytest.mark.parametrize(
    ("error", "state"),
    [(Error.RESOURCE_NOT_FOUND, OTHER_STORE), (Error.INVALID_REQUEST, FAILED)],
)
def test_a_refused_commit_has_its_objects_deleted(error: Error, state: str) -> None:
    runner = Runner()
    runner.results = [replace(DONE, error_code=error, error_message="no", is_finished=False)]
    assert runner.run() == CopyOutcome(SEGMENT, state, "no")
    (deleted,) = runner.of(DeleteObjects)
    assert set(deleted.names) == {each.name for each in runner.of(PutObject)}
    assert runner.given_up == []


def test_damage_is_not_written() -> None:
    runner = Runner()
    runner.segments = [(replace(SEGMENT, epochs=(GrantedEpoch(epoch=2, start_offset=20),)),)]
    outcome = runner.run()
    assert outcome is not None
    assert (outcome.state, runner.of(PutObject)) == (FAILED, [])
    assert "leader epoch" in outcome.detail
