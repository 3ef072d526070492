"""A snapshot that is completed after a newer one was fetched is deleted. A damaged one deletes
nothing.

Method: the real follower and controllers over one disk in memory; the thread that writes the
snapshot runs when the test lets it.
"""

import pytest

from ottla.host.kraft.quorum_snapshots import SnapshotLimits
from ottla.raft.log_view import NeedsSnapshot, Valid
from tests.unit.host.harness import Harness
from tests.unit.host.quorum_harness import BROKER_DIR, Broker, Controller, a_topic

SMALL = SnapshotLimits(bytes_between=300, interval_ms=0, retention_bytes=1_000)
METADATA_DIR = f"{BROKER_DIR}/__cluster_metadata-0"


def overtaken() -> tuple[Harness, Broker]:
    """Return a broker whose snapshot of epoch 1 is done after it adopted one of epoch 2."""
    harness = Harness()
    controller = Controller(harness, limits=SMALL, segment_bytes=400)
    harness.workers.run()
    broker = Broker(harness, lambda request, version: controller.serve(request, version))
    for number in (1, 2):
        controller.write(a_topic(number))
        harness.workers.run()
    harness.advance(1_000)

    broker.follower._snapshotter.take()
    late = harness.workers.waiting.popleft()
    broker.sender.down = True
    harness.advance(600)
    controller.log.stop()
    controller = Controller(harness, limits=SMALL, segment_bytes=400)
    harness.workers.run()
    for number in range(3, 60):
        controller.write(a_topic(number))
        harness.workers.run()
    broker.sender.down = False
    harness.advance(3_000)
    assert broker.follower.raft.log.latest_snapshot == controller.log.raft.log.latest_snapshot
    assert broker.follower.raft.log.start_offset > 10

    harness.workers.waiting.append(late)
    harness.workers.run()
    assert broker.failures == []
    return harness, broker


def test_a_snapshot_that_is_done_after_a_newer_one_was_adopted_is_removed() -> None:
    harness, broker = overtaken()
    log = broker.follower.raft.log
    assert log.snapshots == [each.id for each in broker.storage.snapshots]
    assert [each.offset for each in log.snapshots] == [log.start_offset]
    files = [name for name in harness.disk.listdir(METADATA_DIR) if ".checkpoint" in name]
    assert files == [f"{log.start_offset:020d}-{2:010d}.checkpoint"]


def test_a_follower_that_has_adopted_the_snapshot_is_not_sent_it_again() -> None:
    """It asks at the snapshot's end, in the snapshot's epoch, and is to get records from there."""
    _, broker = overtaken()
    log = broker.follower.raft.log
    (newest,) = [each for each in log.snapshots if each.offset == log.start_offset]
    assert log.validate_offset_and_epoch(0, 0) == NeedsSnapshot(newest)
    assert log.validate_offset_and_epoch(newest.offset, newest.epoch) == Valid()


def test_the_next_snapshot_is_taken_as_ever() -> None:
    harness, broker = overtaken()
    before = broker.follower.raft.log.latest_snapshot
    broker.follower._snapshotter.take()
    harness.workers.run()
    latest = broker.follower.raft.log.latest_snapshot
    assert before is not None
    assert latest is not None
    assert latest.rank > before.rank
    assert broker.storage.snapshots[-1].id == latest


def test_the_log_before_a_damaged_snapshot_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    limits = SnapshotLimits(interval_ms=0, retention_bytes=-1, retention_ms=50)
    controller = Controller(harness, limits=limits)
    harness.workers.run()
    storage = controller.storage

    def begin_snapshot(number: int) -> None:
        harness.clock.elapsed_ms += 100
        controller.write(a_topic(number))
        harness.workers.run()
        controller.log._snapshotter.take()

    begin_snapshot(1)
    harness.workers.run()
    begin_snapshot(2)
    work, done = harness.workers.waiting.popleft()
    damaged = work()
    assert done is not None
    harness.disk.corrupt(storage.snapshot_file(damaged.id), 70, b"\xff\xff")
    done(damaged)
    assert storage.log.start_offset == 0
    assert len(storage.snapshots) == 2
    path = storage.snapshot_file(damaged.id)
    kept = f"keeping the metadata log before offset {damaged.id.offset}: {path}: "
    assert [each.startswith(kept) for each in caplog.messages] == [True]

    begin_snapshot(3)
    harness.workers.run()
    (newest,) = storage.snapshots
    assert storage.log.start_offset == newest.id.offset > damaged.id.offset
