"""The metadata log: appends, commits, snapshots; no crash takes away what was acknowledged.

Method: a real metadata log on a disk in memory that forgets what was not synced and fails on
request; threads run when the test says so, so every moment between append and commit can be seen.
"""

import errno
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.step import Decision, Step
from ottla.host.kraft.metadata_log import RECORDS_PER_STEP_MAX
from ottla.host.kraft.quorum_driver import WITHIN_A_STEP
from ottla.host.kraft.quorum_replay import load_image
from ottla.host.kraft.quorum_snapshots import SnapshotLimits
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSION_LEVEL
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    DeletionRecord,
    ForgetDeletionRecord,
    NoOpRecord,
    PartitionRecord,
    encode_record,
    with_no_op,
)
from ottla.raft.snapshots import parse_snapshot_name
from ottla.testing.disk import keep_nothing
from tests.unit.host.harness import Harness, a_connection
from tests.unit.host.kraft.test_quorum_server import fetch_request
from tests.unit.host.quorum_harness import CONTROLLER_DIR, Controller, a_config, a_topic

METADATA_DIR = f"{CONTROLLER_DIR}/__cluster_metadata-0"


def running(harness: Harness | None = None, **options: Any) -> Controller:
    """Return a controller that is active and has written its bootstrap records."""
    controller = Controller(harness or Harness(), **options)
    controller.harness.workers.run()
    return controller


def names(image: ClusterImage) -> list[str]:
    return list(image.topics.names())


def features(controller: Controller) -> dict[str, int]:
    return dict(controller.runtime.committed_image.features)


# -- becoming active ---------------------------------------------------------------------------


def test_the_first_start_writes_the_metadata_version_and_then_is_active() -> None:
    controller = Controller(Harness())
    assert controller.activations == 0, "nothing is committed yet"
    controller.harness.workers.run()
    assert controller.activations == 1
    assert features(controller) == {METADATA_VERSION: METADATA_VERSION_LEVEL}
    # Offset 0 is the LeaderChange record, 1 the feature level.
    assert controller.runtime.image.position == (1, 1)


def test_a_restart_writes_no_bootstrap_records_and_leads_the_next_epoch() -> None:
    controller = running()
    controller.log.stop()
    again = running(controller.harness)
    assert again.runtime.image.position == (2, 2)
    assert features(again) == {METADATA_VERSION: METADATA_VERSION_LEVEL}
    assert (again.runtime.epoch, again.log.leader_id) == (2, 1)


def test_before_start_and_after_stop_nothing_is_decided() -> None:
    controller = Controller(Harness(), start=False)
    assert controller.write(a_topic(1)).value.error is Error.NOT_CONTROLLER
    controller = running()
    controller.log.stop()
    assert controller.write(a_topic(1)).value.error is Error.NOT_CONTROLLER


def test_the_appended_image_says_which_offset_comes_next() -> None:
    controller = running()
    seen: list[int] = []

    def decide(image: ClusterImage) -> Decision[None]:
        seen.append(image.position[0] + 1)
        return Decision(Step((a_topic(len(seen)), a_config("retention.ms", "1"))), None)

    for _ in range(3):
        controller.runtime.run(decide)
    assert seen == [2, 4, 6]
    assert controller.storage.log.end_offset == 8


# -- commits and answers -----------------------------------------------------------------------


def test_an_answer_waits_for_the_sync() -> None:
    controller = running()
    answer = controller.write(a_topic(1))
    assert names(controller.runtime.image) == ["topic-1"]
    assert names(controller.runtime.committed_image) == []
    assert not answer.done
    controller.harness.workers.run()
    assert answer.value == "done"
    assert names(controller.runtime.committed_image) == ["topic-1"]


def test_decisions_during_a_flush_share_the_next_one() -> None:
    controller = running()
    answers = [controller.write(a_topic(number)) for number in range(1, 20)]
    assert len(controller.harness.workers.waiting) == 1
    controller.harness.workers.run(1)
    assert [answer.done for answer in answers] == [True] + [False] * 18
    assert len(controller.harness.workers.waiting) == 1
    controller.harness.workers.run(1)
    assert all(answer.done for answer in answers)


def test_a_decision_within_a_step_of_the_quorum_fails_and_nothing_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A delayed fetch is answered within a step: its offsets would not be those that are given."""
    controller = running()
    fetched = controller.serve(
        fetch_request(controller.storage.log.end_offset, 1, wait_ms=5_000), 17, a_connection("c2")
    )
    within: list[Any] = []
    fetched.then(lambda _: within.append(controller.write(a_topic(2))))
    outside = controller.write(a_topic(1))
    controller.harness.workers.run()
    assert outside.value == "done"
    (refused,) = within
    assert refused.value.error is Error.UNKNOWN_SERVER_ERROR
    assert WITHIN_A_STEP in caplog.text
    after = controller.write(a_topic(3))
    assert controller.log.image.position[0] + 1 == controller.storage.log.end_offset
    controller.harness.workers.run()
    assert after.value == "done"
    assert names(controller.log.committed_image) == ["topic-1", "topic-3"]
    assert names(load_image(controller.storage)) == ["topic-1", "topic-3"]
    assert controller.failures == []


def test_a_record_that_the_image_cannot_take_is_never_written() -> None:
    controller = running()
    orphan = PartitionRecord(partition_id=0, topic_id=b"\7" * 16, replicas=(1,), isr=(1,), leader=1)
    answer = controller.write(a_topic(1), orphan)
    assert answer.value.error is Error.UNKNOWN_SERVER_ERROR
    assert controller.storage.log.end_offset == 2
    assert names(controller.runtime.image) == []


def test_an_atomic_step_may_not_be_larger_than_the_limit() -> None:
    controller = running()
    records = (NoOpRecord(),) * (RECORDS_PER_STEP_MAX + 1)
    refused = controller.write(*records)
    assert refused.value.error is Error.POLICY_VIOLATION
    assert controller.storage.log.end_offset == 2
    assert controller.write(*records[:-1]).done is False
    assert controller.storage.log.end_offset == 2 + RECORDS_PER_STEP_MAX


def test_a_splittable_step_becomes_several_batches_and_one_answer() -> None:
    controller = running()
    count = 2 * RECORDS_PER_STEP_MAX + 5
    answer = controller.write(*(NoOpRecord(),) * count, atomic=False)
    assert controller.storage.log.end_offset == 2 + count
    controller.harness.workers.run(1)
    assert not answer.done, "only its first batch is durable"
    controller.harness.workers.run()
    assert answer.value == "done"
    assert controller.runtime.committed_image.position == (1 + count, 1)


def test_stopping_answers_callers_and_drops_what_was_not_committed() -> None:
    controller = running()
    answer = controller.write(a_topic(1))
    controller.log.stop()
    assert answer.value.error is Error.NOT_CONTROLLER
    assert names(controller.runtime.image) == []
    controller.harness.workers.run()
    assert controller.failures == []


# -- readers -----------------------------------------------------------------------------------


def test_a_follower_gets_the_state_and_then_each_change() -> None:
    controller = running()
    controller.write(a_topic(1))
    controller.harness.workers.run()
    published: list[ClusterDelta] = []
    controller.runtime.follow(published.append)
    assert [next(iter(delta.created_topics.values())).name for delta in published] == ["topic-1"]
    controller.write(a_topic(2))
    assert len(published) == 1, "not committed"
    controller.harness.workers.run()
    assert published[1].before is published[0].image
    assert published[1].image is controller.runtime.committed_image
    controller.runtime.unsubscribe(published.append)


# -- time --------------------------------------------------------------------------------------


def test_no_op_records_keep_the_committed_offset_moving() -> None:
    controller = running(idle_interval_ms=500)
    offset = controller.runtime.committed_image.position[0]
    controller.harness.advance(2_600)
    assert controller.runtime.committed_image.position[0] == offset + 5
    controller.log.stop()
    controller.harness.advance(2_000)
    assert controller.storage.log.end_offset == offset + 6


# -- failing disks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "path"),
    [("append", ".log"), ("sync", ".log"), ("sync", "epoch"), ("rename", "epoch")],
)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_ends_the_controller_and_acknowledges_nothing(
    operation: str, path: str, number: int
) -> None:
    controller = running()
    fault = controller.harness.disk.fail(operation, number, path=path, times=None)
    if "epoch" in path:
        # Only a new epoch's start is written there.
        again = Controller(controller.harness)
        again.harness.workers.run()
        assert fault.hits > 0
        assert len(again.failures) == 1
        assert again.activations == 0
        return
    answers = [controller.write(a_topic(number)) for number in (1, 2)]
    controller.harness.workers.run()
    assert fault.hits > 0
    assert len(controller.failures) == 1
    assert [answer.value.error for answer in answers] == [Error.NOT_CONTROLLER] * 2
    assert not controller.runtime.active
    assert names(controller.runtime.image) == []


def test_a_torn_append_is_cut_at_the_next_start() -> None:
    controller = running()
    controller.write(a_topic(1))
    controller.harness.workers.run()
    controller.harness.disk.fail("append", errno.ENOSPC, path=".log", written=30, times=None)
    controller.write(a_topic(2))
    assert controller.failures
    controller.harness.disk.faults.clear()
    again = running(controller.harness)
    assert names(again.runtime.committed_image) == ["topic-1"]
    assert again.runtime.epoch == 2


@pytest.mark.forms(70)
@pytest.mark.parametrize("operation", range(272))
def test_a_crash_at_any_disk_operation_loses_nothing_acknowledged(operation: int) -> None:
    """Write, commit, snapshot, clean; the disk dies at the n-th operation, then power goes."""
    harness = Harness()
    limits = SnapshotLimits(bytes_between=150, interval_ms=0, retention_bytes=400)
    controller = running(harness, limits=limits, segment_bytes=300)
    harness.disk.fail(None, errno.EIO, skip=operation, times=None)
    acknowledged: dict[int, str] = {}
    number = 0
    for number in range(1, 15):
        controller.write(a_topic(number)).then(
            lambda reply, number=number: acknowledged.update({number: reply})
        )
        harness.workers.run()
        if controller.failures:
            break
    epoch = controller.runtime.epoch
    # Every other time half of what was not synced survives, and the log has a torn tail.
    harness.crash((lambda path, count: count // 2) if operation % 2 else keep_nothing)
    again = running(harness, limits=limits, segment_bytes=300)
    assert again.failures == []
    assert again.runtime.epoch > epoch
    done = [f"topic-{each}" for each, reply in acknowledged.items() if reply == "done"]
    found = names(again.runtime.committed_image)
    assert set(done) <= set(found)
    assert set(found) <= {f"topic-{each}" for each in range(1, number + 1)}
    assert features(again) == {METADATA_VERSION: METADATA_VERSION_LEVEL}


@pytest.mark.parametrize("operation", range(38))
def test_a_crash_at_any_disk_operation_of_the_first_start_leaves_a_startable_node(
    operation: int,
) -> None:
    harness = Harness()
    fault = harness.disk.fail(None, errno.EIO, skip=operation, times=None)
    try:
        controller = running(harness)
        finished = controller.activations == 1 and not controller.failures
    except OSError:
        finished = False
    assert finished == (fault.hits == 0)
    harness.crash()
    again = running(harness)
    assert again.activations == 1
    assert features(again) == {METADATA_VERSION: METADATA_VERSION_LEVEL}


# -- snapshots ---------------------------------------------------------------------------------


def snapshot_files(harness: Harness) -> list[str]:
    return [
        name for name in harness.disk.listdir(METADATA_DIR) if parse_snapshot_name(name) is not None
    ]


def test_a_snapshot_and_the_tail_equal_the_whole_log() -> None:
    harness = Harness()
    controller = running(harness)
    for number in range(1, 30):
        controller.write(a_topic(number), a_config(f"key-{number}", "v"))
    harness.workers.run()
    whole = load_image(controller.storage)
    controller.log._snapshotter.take()
    harness.workers.run()
    controller.write(a_topic(30), a_config("key-1", None))
    harness.workers.run()
    assert len(snapshot_files(harness)) == 1
    assert whole != controller.runtime.committed_image
    controller.log.stop()
    again = running(harness)
    assert again.storage.snapshots[-1].id.offset == 60
    assert load_image(again.storage) == again.runtime.image
    expected = controller.runtime.committed_image
    assert again.runtime.committed_image.topics == expected.topics
    assert again.runtime.committed_image.configs == expected.configs


def test_snapshots_are_taken_by_size_and_old_ones_go() -> None:
    harness = Harness()
    limits = SnapshotLimits(bytes_between=300, interval_ms=0, retention_bytes=1_500)
    controller = running(harness, limits=limits, segment_bytes=400)
    for number in range(1, 80):
        controller.write(a_topic(number))
        harness.workers.run()
    assert controller.storage.log.start_offset > 0
    assert 1 <= len(snapshot_files(harness)) < 10
    harness.advance(100_000)
    controller.log.stop()
    again = running(harness, limits=limits, segment_bytes=400)
    assert again.storage.log.start_offset > 0
    assert len(names(again.runtime.committed_image)) == 79


def test_snapshots_are_taken_by_age_if_there_is_news() -> None:
    harness = Harness()
    controller = running(harness, limits=SnapshotLimits(bytes_between=1 << 40, interval_ms=10_000))
    harness.advance(9_000)
    assert snapshot_files(harness) == []
    harness.advance(3_000)
    assert len(snapshot_files(harness)) == 1
    harness.advance(60_000)
    assert len(snapshot_files(harness)) == 1
    controller.write(a_topic(1))
    harness.advance(60_000)
    assert len(snapshot_files(harness)) == 2


def test_a_snapshot_that_cannot_be_written_costs_nothing() -> None:
    harness = Harness()
    controller = running(harness, limits=SnapshotLimits(bytes_between=200, interval_ms=0))
    harness.disk.fail("append", errno.ENOSPC, path=".checkpoint.part", times=1)
    for number in range(1, 10):
        controller.write(a_topic(number))
        harness.workers.run()
    assert controller.failures == []
    assert len(names(controller.runtime.committed_image)) == 9
    assert len(snapshot_files(harness)) >= 1, "the next one worked"


def test_a_damaged_snapshot_is_renamed_where_the_log_is_complete() -> None:
    harness = Harness()
    controller = running(harness)
    controller.write(a_topic(1))
    harness.workers.run()
    controller.log._snapshotter.take()
    harness.workers.run()
    controller.log.stop()
    (name,) = snapshot_files(harness)
    harness.disk.corrupt(f"{METADATA_DIR}/{name}", 80, b"\xff")
    again = running(harness)
    assert names(again.runtime.committed_image) == ["topic-1"]
    assert name + ".corrupt" in harness.disk.listdir(METADATA_DIR)


# -- Kafka's readers ---------------------------------------------------------------------------


def test_a_batch_of_ottlas_records_alone_has_one_that_kafka_knows() -> None:
    """kafka-metadata-shell reads a batch in which it knows nothing for ever."""
    controller = running()
    deletion = DeletionRecord(
        topic_id=Uuid(b"t" * 16), name="t", policy=1, asked_ms=1, halted=0, remote=0, finished_ms=-1
    )
    for step in (Step((deletion,)), Step((deletion, deletion), atomic=False)):
        before = controller.runtime.image.position[0]
        controller.runtime.run_step(lambda image, step=step: step)
        controller.harness.workers.run()
        assert controller.runtime.committed_image.position[0] == before + 1 + len(step.records)
    known = controller.runtime.image.position[0]
    controller.runtime.run_step(lambda image: Step((deletion, NoOpRecord())))
    controller.harness.workers.run()
    assert controller.runtime.committed_image.position[0] == known + 2, "nothing is added here"
    assert controller.runtime.committed_image.deletions.of(Uuid(b"t" * 16)) is not None


def test_encoded_batches_of_ottlas_records_alone() -> None:
    own = encode_record(ForgetDeletionRecord(topic_id=Uuid(b"t" * 16)))
    no_op = encode_record(NoOpRecord())
    assert with_no_op([own, own]) == [no_op, own, own]
    assert with_no_op([own, no_op]) == [own, no_op]
