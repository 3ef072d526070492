"""A metadata log damaged below the recovery point is refused; a torn end is truncated.

Method: real storages, controllers and followers over a disk in memory; bytes are flipped between
two starts. `refused` also checks that the refusal changes nothing on the disk.
"""

import copy
import logging
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.host.kraft.quorum_driver import QuorumDriver
from ottla.host.kraft.quorum_log import open_quorum_storage
from ottla.host.kraft.quorum_recovery_point import (
    FILE_NAME,
    SLOT_BYTES,
    SYNC_MS,
    RecoveryPoint,
    RecoveryPointDamaged,
    _slots,
    read_recovery_point,
)
from ottla.host.kraft.quorum_replay import load_image
from ottla.host.kraft.quorum_storage import MetadataDamaged
from ottla.raft.batches import read_spans
from ottla.raft.values import OffsetAndEpoch
from ottla.testing.sim.disk import SimDisk
from tests.unit.host.harness import Harness
from tests.unit.host.kraft.test_quorum_elections import Room, write
from tests.unit.host.kraft.test_quorum_storage import (
    METADATA_DIR,
    a_snapshot,
    batch,
    filled,
    opened,
)
from tests.unit.host.quorum_harness import BROKER_DIR, CONTROLLER_DIR, Broker, Controller, a_topic

CONTROLLERS = f"{CONTROLLER_DIR}/__cluster_metadata-0"
BROKERS = f"{BROKER_DIR}/__cluster_metadata-0"
FIRST = "00000000000000000000.log"


def flip(harness: Harness, path: str, position: int) -> None:
    """Change one byte of a file, durably."""
    file = harness.disk.open(path)
    (byte,) = file.read_at(position, 1)
    file.write_at(position, bytes([byte ^ 0x40]))
    file.sync()
    file.close()


def position_of(harness: Harness, path: str, offset: int) -> int:
    """Return where the batch that holds an offset begins."""
    data = harness.disk.read_bytes(path)
    spans, _ = read_spans(data)
    before = [span for span in spans if span.next_offset <= offset]
    position = 0
    for _ in before:
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position


def flip_record(harness: Harness, path: str, offset: int) -> int:
    """Damage the batch that holds an offset; return where it begins."""
    position = position_of(harness, path, offset)
    flip(harness, path, position + 40)
    return position


def contents(harness: Harness, directory: str) -> dict[str, bytes]:
    return {
        name: harness.disk.read_bytes(f"{directory}/{name}")
        for name in harness.disk.listdir(directory)
    }


def refused(harness: Harness, directory: str, match: str, remedy: str = "from a backup") -> None:
    """Check that the directory is refused, again and again, and that nothing in it changes."""
    before = contents(harness, f"{directory}/__cluster_metadata-0")
    for _ in range(2):
        with pytest.raises(MetadataDamaged, match=match) as refusal:
            open_quorum_storage(
                harness.disk,
                directory,
                clock=harness.clock,
                timers=harness.timers,
                workers=harness.workers,
            )
        text = str(refusal.value)
        assert text.endswith(remedy)
        assert "\n" not in text
    logs = {name: data for name, data in before.items() if name.endswith((".log", ".checkpoint"))}
    after = contents(harness, f"{directory}/__cluster_metadata-0")
    assert {name: after.get(name) for name in logs} == logs


# -- the note ----------------------------------------------------------------------------------


def a_point(harness: Harness) -> RecoveryPoint:
    harness.disk.mkdir("/meta")
    harness.disk.sync_dir("/")
    return RecoveryPoint(harness.disk, "/meta", clock=harness.clock, workers=harness.workers)


def test_the_recovery_point_survives_the_process_and_is_synced_for_a_power_loss() -> None:
    harness = Harness()
    point = a_point(harness)
    for offset in (1, 5, 9):
        point.raised(offset)
        assert read_recovery_point(harness.disk, "/meta") == offset
    harness.advance(0)
    point.raised(12)
    point.raised(11)
    assert read_recovery_point(harness.disk, "/meta") == 12
    harness.crash()
    assert read_recovery_point(harness.disk, "/meta") == 9
    assert a_point(harness).offset == 9


def test_the_recovery_point_is_synced_once_a_second_at_most() -> None:
    harness = Harness()
    point = a_point(harness)
    point.raised(1)
    syncs = []
    for offset in range(2, 402):
        point.raised(offset)
        syncs.append(len(harness.workers.waiting))
        harness.advance(10)
    assert sum(syncs) == 4


@pytest.mark.parametrize("offsets", [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_a_torn_write_of_the_recovery_point_leaves_the_one_before(offsets: tuple[int, ...]) -> None:
    """Whichever slot is written next, also by the next process, the newest one is in the other."""
    harness = Harness()
    point = a_point(harness)
    for offset in offsets:
        point.raised(offset)
    point.close()
    again = a_point(harness)
    path = f"/meta/{FILE_NAME}"
    before = harness.disk.read_bytes(path)
    again.raised(99)
    after = harness.disk.read_bytes(path)
    changed = [i for i, pair in enumerate(zip(before, after, strict=False))
               if pair[0] != pair[1]]  # fmt: skip
    flip(harness, path, changed[0])
    assert read_recovery_point(harness.disk, "/meta") == offsets[-1]


@settings(deadline=None)
@given(st.lists(st.sampled_from(("raise", "sync", "synced", "wait", "lower", "restart"))))
@example(["raise", "raise", "raise", "sync", "raise"])
def test_a_power_loss_may_tear_every_slot_that_is_not_durable(steps: list[str]) -> None:
    """At any moment, a sync under way included, one slot is left as it was synced."""
    harness = Harness()
    point = a_point(harness)
    path = f"/meta/{FILE_NAME}"
    ends: list[Callable[[Any], None]] = []
    durable = 0
    for number, step in enumerate(steps):
        if step == "raise":
            point.raised(10 * number + 1)
        elif step == "sync" and harness.workers.waiting:
            work, done = harness.workers.waiting.popleft()
            work()
            assert done is not None
            ends.append(done)
        elif step == "synced" and ends:
            ends.pop()(None)
        elif step == "wait":
            harness.clock.elapsed_ms += SYNC_MS
        elif step == "lower":
            point.lower(point.offset // 2)
            durable = min(durable, point.offset)
        elif step == "restart":
            point.close()
            harness.workers.waiting.clear()
            ends.clear()
            point = a_point(harness)
        if harness.disk.exists(path):
            # A slot that is written again may have been synced with another one: nobody counts
            # on it, and it may be torn.
            promised = _slots(harness.disk, path)[point._durable]
            assert promised is not None
            assert durable <= promised <= torn_point(harness, path) <= point.offset
            durable = promised


def test_slots_that_a_failed_sync_has_dropped_are_not_built_upon() -> None:
    """They can be read until the power goes, and no further sync writes them."""
    disk = SimDisk(now_ms=lambda: 0)
    disk.mkdir("/meta")
    disk.sync_dir("/")
    harness = Harness(disk=disk)
    point = a_point(harness)
    for offset in (3, 6):
        point.raised(offset)
    disk.fail("sync", path=FILE_NAME, times=1)
    with pytest.raises(OSError):
        point.sync_now()
    point.close()
    again = a_point(harness)
    assert again.offset == 6
    for offset in (7, 8, 9):
        harness.clock.elapsed_ms += SYNC_MS
        again.raised(offset)
    for seed in range(50):
        lost = copy.deepcopy(disk)
        lost.lose_power(Random(seed))
        assert read_recovery_point(lost, "/meta") >= 6


def torn_point(harness: Harness, path: str) -> int:
    """Return what is read after a loss of power that tore all that was not synced."""
    node = harness.disk._file(path)
    torn = bytes(a if a == b else 0xFF for a, b in zip(node.data, node.synced, strict=True))
    other = Harness()
    other.disk.mkdir("/meta")
    other.disk.write_atomic(path, torn)
    return read_recovery_point(other.disk, "/meta")


def test_a_lowered_recovery_point_is_durable_before_the_log_is_truncated() -> None:
    harness = Harness()
    point = a_point(harness)
    for offset in (3, 6, 9):
        point.raised(offset)
    point.lower(20)
    assert point.offset == 9
    point.lower(4)
    harness.crash()
    assert read_recovery_point(harness.disk, "/meta") == 4


def test_a_recovery_point_without_a_valid_slot_is_damage() -> None:
    harness = Harness()
    point = a_point(harness)
    point.raised(3)
    flip(harness, f"/meta/{FILE_NAME}", SLOT_BYTES - 2)
    with pytest.raises(RecoveryPointDamaged, match=rf"/meta/{FILE_NAME} is damaged"):
        a_point(harness)


# -- a log that was stopped cleanly ------------------------------------------------------------


def stopped(harness: Harness) -> None:
    """Leave a directory with topics 1-9 at offsets 0-8, as a clean stop does."""
    storage = filled(harness)
    storage.seal()
    storage.close()


@pytest.mark.parametrize("offset", [0, 4, 8])
def test_any_damage_after_a_clean_stop_is_refused_with_file_offset_and_remedy(offset: int) -> None:
    harness = Harness()
    stopped(harness)
    position = flip_record(harness, f"{METADATA_DIR}/{FIRST}", offset)
    refused(
        harness,
        "/meta",
        rf"^{METADATA_DIR}/{FIRST}: .* byte {position}, offset {offset}, "
        ".* durable up to offset 9; ",
    )


def test_a_log_that_ends_early_is_refused() -> None:
    """Whole batches are gone from its end: a recovery finds nothing wrong with what is left."""
    harness = Harness()
    stopped(harness)
    file = harness.disk.open(f"{METADATA_DIR}/{FIRST}")
    file.truncate(position_of(harness, f"{METADATA_DIR}/{FIRST}", 7))
    file.sync()
    refused(harness, "/meta", rf"^{METADATA_DIR}/{FIRST}: .* offset 7, .* durable up to offset 9; ")


def test_a_log_whose_files_are_missing_is_refused() -> None:
    harness = Harness()
    stopped(harness)
    for name in harness.disk.listdir(METADATA_DIR):
        if name.startswith("0000"):
            harness.disk.remove(f"{METADATA_DIR}/{name}")
    refused(harness, "/meta", rf"^{METADATA_DIR}/{FIRST}: .* byte 0, offset 0, .* up to offset 9; ")


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_damage_in_any_segment_is_refused(segment: int) -> None:
    harness = Harness()
    storage = filled(harness, segment_bytes=200)
    storage.seal()
    storage.close()
    logs = [name for name in harness.disk.listdir(METADATA_DIR) if name.endswith(".log")]
    flip(harness, f"{METADATA_DIR}/{logs[segment]}", 70)
    offset = int(logs[segment][:20])
    refused(harness, "/meta", rf"^{METADATA_DIR}/{logs[segment]}: .* byte 0, offset {offset}, ")


def test_a_missing_segment_is_refused() -> None:
    harness = Harness()
    storage = filled(harness, segment_bytes=200)
    storage.seal()
    storage.close()
    logs = [name for name in harness.disk.listdir(METADATA_DIR) if name.endswith(".log")]
    harness.disk.remove(f"{METADATA_DIR}/{logs[1]}")
    refused(harness, "/meta", rf"offset {int(logs[1][:20])}, .* durable up to offset 9; ")


def test_a_damaged_recovery_point_is_refused_too() -> None:
    harness = Harness()
    stopped(harness)
    file = harness.disk.open(f"{METADATA_DIR}/{FILE_NAME}")
    file.truncate(3)
    file.sync()
    refused(harness, "/meta", rf"^{METADATA_DIR}/{FILE_NAME} is damaged; ")


def test_a_batch_whose_offset_is_damaged_is_a_hole() -> None:
    """The checksum does not cover the offset: recovery takes the batch for a later one."""
    harness = Harness()
    stopped(harness)
    position = position_of(harness, f"{METADATA_DIR}/{FIRST}", 4)
    flip(harness, f"{METADATA_DIR}/{FIRST}", position + 6)
    storage = opened(harness)
    with pytest.raises(
        MetadataDamaged,
        match=rf"^{METADATA_DIR}/{FIRST}: .* hole at offset 4; restore .* from a backup$",
    ):
        load_image(storage)


# -- after a crash -----------------------------------------------------------------------------


def test_a_torn_end_that_was_not_durable_is_truncated_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    storage = filled(harness)
    storage.flushed(9)
    storage.log.append(batch(9, 10, epoch=2))
    whole = harness.disk.size(f"{METADATA_DIR}/{FIRST}")
    storage.log.append(batch(10, 11, epoch=2))
    flip(harness, f"{METADATA_DIR}/{FIRST}", whole + 40)
    caplog.set_level(logging.WARNING)
    again = opened(harness)
    assert again.view().end == OffsetAndEpoch(10, 2)
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING
               and each.name == "ottla.host.kraft.quorum_log"]  # fmt: skip
    cut = len(batch(10, 11))
    assert line.startswith(f"metadata log {METADATA_DIR}: cut {cut} bytes from offset 10 on; ")


def test_what_was_durable_before_the_process_was_killed_is_not_truncated() -> None:
    harness = Harness()
    storage = filled(harness)
    storage.flushed(9)
    storage.log.append(batch(9, 10, epoch=2))
    flip_record(harness, f"{METADATA_DIR}/{FIRST}", 8)
    refused(harness, "/meta", "offset 8, .* durable up to offset 9; ")


def test_a_whole_log_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    stopped(harness)
    caplog.set_level(logging.WARNING)
    assert opened(harness).view().end == OffsetAndEpoch(9, 2)
    assert caplog.records == []


# -- snapshots ---------------------------------------------------------------------------------


def test_a_snapshot_that_covers_what_was_durable_makes_up_for_a_damaged_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    storage = filled(harness)
    a_snapshot(storage, OffsetAndEpoch(9, 2))
    storage.seal()
    storage.close()
    flip_record(harness, f"{METADATA_DIR}/{FIRST}", 4)
    again = opened(harness)
    assert (again.log.start_offset, again.log.end_offset) == (9, 9)
    assert "a snapshot has those that were flushed" in caplog.text
    again.close()
    assert opened(harness).log.end_offset == 9


def test_a_snapshot_of_less_does_not() -> None:
    harness = Harness()
    storage = filled(harness)
    a_snapshot(storage, OffsetAndEpoch(6, 1))
    storage.seal()
    storage.close()
    flip_record(harness, f"{METADATA_DIR}/{FIRST}", 4)
    refused(harness, "/meta", "offset 4, .* durable up to offset 9; ")


def test_a_damaged_snapshot_still_says_how_far_the_log_was_committed() -> None:
    harness = Harness()
    storage = filled(harness)
    a_snapshot(storage, OffsetAndEpoch(6, 1))
    storage.close()
    flip(harness, f"{METADATA_DIR}/{6:020d}-{1:010d}.checkpoint", 40)
    flip_record(harness, f"{METADATA_DIR}/{FIRST}", 3)
    refused(harness, "/meta", "offset 3, .* durable up to offset 6; ")


def test_a_log_without_its_beginning_names_the_damaged_snapshot() -> None:
    harness = Harness()
    controller = Controller(harness, segment_bytes=400)
    harness.workers.run()
    for number in range(1, 30):
        controller.write(a_topic(number))
        harness.workers.run()
    controller.log._snapshotter.take()
    harness.workers.run()
    latest = controller.storage.snapshots[-1].id
    controller.storage.delete_before(latest)
    controller.log.stop()
    path = controller.storage.snapshot_file(latest)
    flip(harness, path, 40)
    for _ in range(2):
        again = Controller(harness, segment_bytes=400, start=False)
        with pytest.raises(MetadataDamaged, match=rf"{re.escape(path)}.corrupt is damaged; "):
            again.log.start()
        again.storage.close()


def test_a_loss_of_power_brings_back_any_of_the_segments_before_a_snapshot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = set()
    for seed in range(40):
        harness = Harness()
        harness.disk = disk = SimDisk(now_ms=harness.clock.now_ms)
        controller = Controller(harness, segment_bytes=400)
        harness.workers.run()
        for number in range(1, 30):
            controller.write(a_topic(number))
            harness.workers.run()
        controller.log._snapshotter.take()
        harness.workers.run()
        latest = controller.storage.snapshots[-1].id
        for number in range(30, 33):
            controller.write(a_topic(number))
            harness.workers.run()
        controller.storage.delete_before(latest)
        end = controller.storage.log.end_offset
        disk.lose_power(Random(seed))
        found.add(tuple(name for name in disk.listdir(CONTROLLERS) if name.endswith(".log")))
        again = Controller(harness, segment_bytes=400)
        harness.workers.run()
        assert again.storage.log.end_offset >= end
        assert len(again.runtime.image.topics) == 32
    assert len(found) > 10, "else too little came back"
    assert "; removed the segments below offset " in caplog.text


def test_more_damage_than_a_snapshot_has_changes_nothing() -> None:
    harness = Harness()
    controller = Controller(harness, segment_bytes=400)
    harness.workers.run()
    for number in range(1, 30):
        controller.write(a_topic(number))
        harness.workers.run()
    controller.log._snapshotter.take()
    harness.workers.run()
    snapshot = controller.storage.snapshots[-1].id.offset
    for number in range(30, 40):
        controller.write(a_topic(number))
        harness.workers.run()
    bases = [name for name in harness.disk.listdir(CONTROLLERS) if name.endswith(".log")]
    controller.log.stop()
    flip(harness, f"{CONTROLLERS}/{bases[0]}", 40)
    flip(harness, f"{CONTROLLERS}/{bases[-2]}", 40)
    assert int(bases[1][:20]) < snapshot < int(bases[-2][:20])
    refused(harness, CONTROLLER_DIR, "durable up to offset ")


# -- the histories of members ------------------------------------------------------------------


def test_a_controller_that_stops_cleanly_raises_the_recovery_point_to_its_end() -> None:
    harness = Harness()
    controller = Controller(harness)
    harness.workers.run()
    controller.write(a_topic(1))
    end = controller.storage.log.end_offset
    controller.log.stop()
    assert read_recovery_point(harness.disk, CONTROLLERS) == end
    flip_record(harness, f"{CONTROLLERS}/{FIRST}", end - 1)
    refused(harness, CONTROLLER_DIR, f"offset {end - 1}, ")


def test_the_recovery_point_of_a_killed_controller_has_all_that_it_acknowledged() -> None:
    harness = Harness()
    controller = Controller(harness)
    harness.workers.run()
    for number in (1, 2):
        acknowledged = controller.write(a_topic(number))
        harness.workers.run()
        assert acknowledged.done
    end = controller.storage.log.end_offset
    unheard = controller.write(a_topic(3))
    assert not unheard.done
    assert read_recovery_point(harness.disk, CONTROLLERS) == end
    flip_record(harness, f"{CONTROLLERS}/{FIRST}", end)
    assert Controller(harness, start=False).storage.log.end_offset == end
    flip_record(harness, f"{CONTROLLERS}/{FIRST}", end - 1)
    refused(harness, CONTROLLER_DIR, f"offset {end - 1}, .* durable up to offset {end}; ")


def test_a_broker_that_stops_cleanly_raises_the_recovery_point_to_its_end() -> None:
    harness = Harness()
    controller = Controller(harness)
    harness.workers.run()
    broker = Broker(harness, lambda request, version: controller.serve(request, version))
    controller.write(a_topic(1))
    harness.advance(1_000)
    end = broker.storage.log.end_offset
    broker.follower.stop()
    flip_record(harness, f"{BROKERS}/{FIRST}", 1)
    refused(harness, BROKER_DIR, f"durable up to offset {end}; ")


def test_a_follower_that_a_leader_truncates_starts_again() -> None:
    """What it had flushed and never committed is cut: that is no damage."""
    room = Room()
    leader = room.elected()
    write(leader, 1)
    room.harness.advance(1_000)
    room.cut = {leader.node_id}
    write(leader, 2)
    room.harness.advance(10)
    cut_from = leader.log.raft.log.end_offset
    room.harness.advance(10_000)
    other = next(
        each for each in room.voters.values() if each.runtime.active and each is not leader
    )
    write(other, 3)
    room.harness.advance(1_000)
    room.cut = set()
    room.harness.advance(10_000)
    assert room.failures == []
    directory = f"/controller-{leader.node_id}/__cluster_metadata-0"
    assert leader.log.raft.log.end_offset > cut_from
    room.harness.crash()
    durable = read_recovery_point(room.harness.disk, directory)
    room.voters = {}
    room.boot(leader.node_id)
    assert room.voters[leader.node_id].log.raft.log.end_offset >= durable


def test_a_lower_recovery_point_precedes_the_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    storage = filled(harness)
    storage.flushed(9)
    noted: list[int] = []
    cut = storage.log.truncate_to

    def truncate_to(offset: int) -> None:
        harness.crash()
        noted.append(read_recovery_point(harness.disk, METADATA_DIR))
        cut(offset)

    monkeypatch.setattr(storage.log, "truncate_to", truncate_to)
    storage.truncate_to(6)
    assert noted == [6]


def test_a_crash_between_an_adopted_snapshot_and_the_end_of_the_old_log_is_no_damage() -> None:
    harness = Harness()
    storage = filled(harness)
    storage.seal()
    a_snapshot(storage, OffsetAndEpoch(6, 3))
    storage.close()
    # Of a later epoch: what the old log had beyond it was never committed.
    for _ in range(2):
        again = opened(harness)
        assert (again.log.start_offset, again.log.end_offset) == (6, 6)
        again.close()


def test_a_recovery_point_that_cannot_be_written_ends_the_controller() -> None:
    harness = Harness()
    controller = Controller(harness)
    harness.workers.run()
    harness.disk.fail("write_at", path=FILE_NAME)
    acknowledged = controller.write(a_topic(1))
    harness.workers.run()
    assert acknowledged.done
    (failure,) = controller.failures
    assert f"{CONTROLLERS}/{FILE_NAME}" in failure
    assert isinstance(controller.log._driver, QuorumDriver)
    assert not controller.log._driver.alive


def test_a_recovery_point_that_cannot_be_synced_ends_the_controller() -> None:
    harness = Harness()
    controller = Controller(harness)
    harness.workers.run()
    harness.advance(2_000)
    harness.disk.fail("sync", path=FILE_NAME)
    controller.write(a_topic(1))
    harness.workers.run()
    assert len(controller.failures) == 1
