"""A backfill copies what is left, in rounds; what it cannot finish it gives back.

Method: a fake leader that grants, over a real socket, a directory as its store (`granting_leader`);
Spark's tasks run in this process, one after the other.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.spark.errors import ClusterError, OptionError, RemoteStorageError
from ottla.spark.jobs import backfill as job
from ottla.spark.jobs.backfill import BackfillOptions, backfill, plan_backfill
from ottla.spark.jobs.backfill_tasks import SegmentStore
from ottla.tiered.granted_copy import FAILED, FINISHED
from ottla.tiered.object_names import ObjectKind
from ottla.wire.messages import grant_segment_copies as grants
from tests.unit.tiered.support import TOPIC

from .fake_spark import FakeSpark
from .granting_leader import LEADER_EPOCHS, PER_SEGMENT, SNAPSHOT, GrantingLeader


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[GrantingLeader]:
    made = GrantingLeader(tmp_path, 3, 2)
    yield made
    made.broker.close()


def options(leader: GrantingLeader, **more: Any) -> BackfillOptions:
    fields: dict[str, Any] = {
        "topic": TOPIC,
        "cluster": leader.config,
        "remote_storage": leader.store.as_uri(),
        "timeout_s": 5.0,
    }
    return BackfillOptions(**(fields | more))


def files(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if path.is_file()]


def test_all_segments_are_copied_with_their_objects(leader: GrantingLeader) -> None:
    reports: list[str] = []
    result = backfill(FakeSpark(), options(leader), report=reports.append)
    assert [sorted(each.finished) for each in leader.parts] == [[0, 40, 80], [0, 40]]
    assert (result.plan.segments, len(result.copied), result.left.segments) == (5, 5, 0)
    assert {each.state for each in result.rows} == {FINISHED}
    sizes = [len(data) for part in leader.parts for data in part.segments.values()]
    assert sum(each.size_bytes for each in result.rows) == sum(sizes) == result.plan.size_bytes
    assert reports[-1] == f"5 of 5 segments, {sum(sizes)} of {sum(sizes)} bytes copied"
    for number, part in enumerate(leader.parts):
        for start, data in part.segments.items():
            assert leader.object(number, start, ObjectKind.LOG) == data
            assert leader.object(number, start, ObjectKind.PRODUCER_SNAPSHOT) == SNAPSHOT
            assert leader.object(number, start, ObjectKind.LEADER_EPOCHS) == LEADER_EPOCHS
    assert leader.object(0, 0, ObjectKind.TXN_INDEX) == b"t" * 34
    assert len(files(leader.store)) == 5 * 5 + 2
    again = backfill(FakeSpark(), options(leader))
    assert (again.rows, again.rounds) == ((), 0)


def test_a_plan_changes_nothing(leader: GrantingLeader) -> None:
    plan = plan_backfill(options(leader, partitions=(1,)))
    (left,) = plan.partitions
    assert (left.target.partition, left.segments) == (1, 2)
    assert left.size_bytes == plan.size_bytes == sum(map(len, leader.parts[1].segments.values()))
    assert left.target.until_offset == 2 * PER_SEGMENT - 1
    assert files(leader.store) == []
    asked = leader.broker.requests(grants.GrantSegmentCopiesRequest)
    assert {row.segments_max for each in asked for row in each.topics[0].partitions} == {0}


def test_what_is_closed_later_is_not_waited_for(leader: GrantingLeader) -> None:
    def close_another() -> None:
        part = leader.parts[1]
        last = max(part.segments)
        if len(part.segments) < 8:
            part.segments[last + PER_SEGMENT] = part.segments[last]

    leader.on_fetch = close_another
    result = backfill(FakeSpark(), options(leader, partitions=(1,)))
    assert sorted(leader.parts[1].finished) == [0, 40]
    assert result.left.segments == 0


def test_damaged_batches_are_given_back_and_copied_again(leader: GrantingLeader) -> None:
    damages = [3]

    def damaged(data: bytes) -> bytes:
        damages[0] -= 1
        return data if damages[0] else data[:100] + bytes([data[100] ^ 1]) + data[101:]

    leader.alter = damaged
    result = backfill(FakeSpark(), options(leader))
    assert result.left.segments == 0
    [failed] = result.failures
    assert "CRC" in failed.detail
    assert leader.failures == [failed.detail]
    assert [sorted(each.finished) for each in leader.parts] == [[0, 40, 80], [0, 40]]


def test_a_run_whose_copies_all_fail_ends(leader: GrantingLeader) -> None:
    leader.alter = lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:]
    with pytest.raises(ClusterError, match=r"no segment could be copied: .*CRC"):
        backfill(FakeSpark(), options(leader))
    assert files(leader.store) == []


@pytest.mark.parametrize(
    "error", [Error.NOT_LEADER_OR_FOLLOWER, Error.REQUEST_TIMED_OUT, Error.REPLICA_NOT_AVAILABLE]
)
def test_a_commit_is_repeated(leader: GrantingLeader, error: Error) -> None:
    leader.commit_errors = [error] * 2
    result = backfill(FakeSpark(), options(leader))
    assert (len(result.copied), result.failures) == (5, [])


@pytest.mark.parametrize(
    "error",
    [
        Error.FENCED_LEADER_EPOCH,
        Error.FENCED_STATE_EPOCH,
        Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
    ],
)
def test_a_commit_that_is_fenced_off_is_not_repeated(leader: GrantingLeader, error: Error) -> None:
    leader.commit_errors = [error]
    result = backfill(FakeSpark(), options(leader))
    [failed] = result.failures
    assert error.name in failed.detail
    assert failed.state == FAILED
    assert result.left.segments == 0


def test_another_store_is_refused_and_left_empty(leader: GrantingLeader, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(RemoteStorageError, match="must be the store of the brokers"):
        backfill(FakeSpark(), options(leader, remote_storage=other.as_uri()))
    assert files(other) == []
    backfill(FakeSpark(), options(leader, partitions=(0,)))
    with pytest.raises(RemoteStorageError, match="is not that of the brokers: it lacks"):
        plan_backfill(options(leader, remote_storage=other.as_uri()))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Error.INVALID_REQUEST, "the topic is not tiered"),
        (Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS, "it is being turned off"),
    ],
)
def test_refusals_of_the_leader(leader: GrantingLeader, error: Error, text: str) -> None:
    leader.grant_error = error, text
    with pytest.raises(ClusterError, match=f"{TOPIC}-0: {text}"):
        plan_backfill(options(leader))


def test_what_cannot_be_done(leader: GrantingLeader, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="has no partition 7: it has 2"):
        plan_backfill(options(leader, partitions=(7,)))
    with pytest.raises(RemoteStorageError, match="does not exist"):
        plan_backfill(options(leader, remote_storage=(tmp_path / "x").as_uri()))
    with pytest.raises(ClusterError, match="there is no topic other"):
        plan_backfill(options(leader, topic="other"))
    with pytest.raises(OptionError, match="parallelism=0"):
        options(leader, parallelism=0)
    del leader.broker._answers[grants.GrantSegmentCopiesRequest]
    with pytest.raises(ClusterError, match="does not serve GrantSegmentCopies"):
        plan_backfill(options(leader))


def test_a_lease_is_renewed_and_a_lost_one_ends_the_copy(leader: GrantingLeader) -> None:
    leader.lease_ms = 0  # Every step renews it.
    lost = leader.parts[0]

    def lose() -> None:
        leader.lease_ms = 60_000
        if lost.held and not leader.failures and lost is leader.parts[0]:
            lost.held.clear()
            lost.holders.clear()

    leader.on_fetch = lose
    result = backfill(FakeSpark(), options(leader, partitions=(0,)))
    assert result.left.segments == 0
    assert sorted(leader.parts[0].finished) == [0, 40, 80]


def test_a_grant_is_of_a_later_epoch_than_the_metadata(leader: GrantingLeader) -> None:
    leader.elections = 1
    result = backfill(FakeSpark(), options(leader))
    assert (len(result.copied), result.failures, result.left.segments) == (5, [], 0)


def test_no_write_begins_after_its_lease(tmp_path: Path) -> None:
    with SegmentStore(tmp_path.as_uri(), 5.0) as store:
        with pytest.raises(RemoteStorageError, match="too late to write a/b"):
            store.put_until("a/b", b"x", 1)
        assert files(tmp_path) == []
        store.put_until("a/b", b"x", time.monotonic_ns() // 1_000_000 + 5_000)
    assert [each.name for each in files(tmp_path)] == ["b"]


def test_a_run_waits_for_the_leases_of_another(
    leader: GrantingLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, pauses = leader.parts[1], []
    part.held[Uuid(b"x" * 16)] = 0
    part.holders[Uuid(b"x" * 16)] = Uuid(b"y" * 16)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        part.held.clear()
        part.holders.clear()

    monkeypatch.setattr(job.time, "sleep", pause)
    result = backfill(FakeSpark(), options(leader, partitions=(1,)))
    assert pauses
    assert sorted(part.finished) == [0, 40]
    assert result.left.segments == 0
