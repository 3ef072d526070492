"""The metadata partition directory: its files, what a start finds there, what it repairs.

Method: a disk in memory; directories as Kafka or a crash may leave them.
"""

import pytest

from ottla.host.kraft.quorum_log import open_quorum_storage
from ottla.host.kraft.quorum_replay import load_image
from ottla.host.kraft.quorum_storage import MetadataDamaged, QuorumStorage
from ottla.metadata.records import RemoveTopicRecord, encode_record
from ottla.raft.batches import records_batch
from ottla.raft.election import ElectionState
from ottla.raft.snapshots import CorruptSnapshot, encode_snapshot
from ottla.raft.values import EpochStart, OffsetAndEpoch
from tests.unit.host.harness import Harness
from tests.unit.host.quorum_harness import a_topic

METADATA_DIR = "/meta/__cluster_metadata-0"


def opened(harness: Harness, *, segment_bytes: int = 1 << 30) -> QuorumStorage:
    harness.disk.mkdir("/meta")
    harness.disk.sync_dir("/")
    return open_quorum_storage(
        harness.disk,
        "/meta",
        clock=harness.clock,
        timers=harness.timers,
        workers=harness.workers,
        segment_bytes=segment_bytes,
    )


def batch(offset: int, *numbers: int, epoch: int = 1) -> bytes:
    values = [encode_record(a_topic(number)) for number in numbers]
    return records_batch(values, base_offset=offset, epoch=epoch, timestamp=5)


def filled(harness: Harness, *, segment_bytes: int = 1 << 30) -> QuorumStorage:
    """Return a directory with topics 1-9 at offsets 0-8, epoch 2 from offset 6 on, flushed."""
    storage = opened(harness, segment_bytes=segment_bytes)
    for offset in range(9):
        storage.log.append(batch(offset, offset + 1, epoch=1 if offset < 6 else 2))
    storage.log.flush_now()
    harness.workers.run()
    return storage


def a_snapshot(storage: QuorumStorage, snapshot: OffsetAndEpoch) -> None:
    values = [encode_record(a_topic(number + 1)) for number in range(snapshot.offset)]
    chunks = encode_snapshot(values, epoch=snapshot.epoch, timestamp=9, last_contained_ms=8)
    storage.snapshot_created(storage.create_snapshot(snapshot, chunks))


def test_a_new_directory_has_kafkas_files() -> None:
    harness = Harness()
    storage = filled(harness)
    storage.store_election(ElectionState(epoch=1, leader_id=1, voters=(1,)))
    a_snapshot(storage, OffsetAndEpoch(6, 1))
    names = set(harness.disk.listdir(METADATA_DIR))
    assert {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
        "00000000000000000006-0000000001.checkpoint",
    } <= names
    metadata = harness.disk.read_bytes(f"{METADATA_DIR}/partition.metadata").decode()
    assert metadata.split() == ["version:", "0", "topic_id:", "AAAAAAAAAAAAAAAAAAAAAQ"]


def test_reopening_finds_the_same() -> None:
    harness = Harness()
    storage = filled(harness)
    storage.store_election(ElectionState(epoch=2, voted_id=1))
    a_snapshot(storage, OffsetAndEpoch(6, 1))
    view = storage.view()
    storage.close()
    again = opened(harness)
    assert again.load_election() == ElectionState(epoch=2, voted_id=1)
    assert again.view().epochs == view.epochs == [EpochStart(1, 0), EpochStart(2, 6)]
    assert again.view().end == view.end == OffsetAndEpoch(9, 2)
    assert again.snapshots == storage.snapshots
    assert load_image(again) == load_image_of(range(1, 10))


def load_image_of(numbers: range) -> object:
    harness = Harness()
    storage = opened(harness)
    for offset, number in enumerate(numbers):
        storage.log.append(batch(offset, number, epoch=1 if offset < 6 else 2))
    return load_image(storage)


def test_reads_respect_both_ends_and_the_size() -> None:
    storage = filled(Harness())
    one = len(batch(0, 1))
    assert len(storage.log.read(0, 9, 1 << 20)) == 9 * one
    assert len(storage.log.read(0, 4, 1 << 20)) == 4 * one
    assert len(storage.log.read(2, 9, 2 * one + 5)) == 2 * one
    assert len(storage.log.read(2, 9, 1)) == one
    assert storage.log.read(9, 9, 100) == b""


def test_incomplete_outdated_and_empty_snapshots_are_removed() -> None:
    harness = Harness()
    storage = filled(harness, segment_bytes=200)
    a_snapshot(storage, OffsetAndEpoch(3, 1))
    a_snapshot(storage, OffsetAndEpoch(6, 1))
    storage.delete_before(OffsetAndEpoch(6, 1))
    storage.close()
    whole = harness.disk.read_bytes(f"{METADATA_DIR}/00000000000000000006-0000000001.checkpoint")
    for name in (
        "00000000000000000001-0000000001.checkpoint",
        "00000000000000000008-0000000002.checkpoint.part",
        "00000000000000000008-0000000002-77.checkpoint.part",
        "00000000000000000007-0000000002.checkpoint.deleted",
    ):
        harness.disk.write_atomic(f"{METADATA_DIR}/{name}", whole)
    again = opened(harness, segment_bytes=200)
    assert [each.id for each in again.snapshots] == [OffsetAndEpoch(6, 1)]
    left = [name for name in harness.disk.listdir(METADATA_DIR) if ".checkpoint" in name]
    assert left == ["00000000000000000006-0000000001.checkpoint"]
    assert load_image(again) == load_image_of(range(1, 10))


def test_a_snapshot_that_was_adopted_before_a_crash_wins_over_the_old_log() -> None:
    harness = Harness()
    storage = filled(harness)
    values = [encode_record(a_topic(number)) for number in range(50, 60)]
    chunks = encode_snapshot(values, epoch=3, timestamp=9, last_contained_ms=8)
    # The snapshot is durable; the process died before the log was started again.
    storage.create_snapshot(OffsetAndEpoch(40, 3), chunks)
    storage.close()
    again = opened(harness)
    assert again.view().end == OffsetAndEpoch(40, 3)
    assert again.view().start_offset == 40
    assert load_image(again).position == (39, 3)
    again.log.append(batch(40, 99, epoch=3))
    assert load_image(again).position == (40, 3)
    again.close()
    # And once more with nothing to repair.
    assert opened(harness).view().start_offset == 40


def test_adopting_replaces_everything() -> None:
    harness = Harness()
    storage = filled(harness)
    a_snapshot(storage, OffsetAndEpoch(6, 1))
    snapshot = OffsetAndEpoch(30, 4)
    data = b"".join(
        encode_snapshot([encode_record(a_topic(1))], epoch=4, timestamp=9, last_contained_ms=8)
    )
    storage.write_snapshot_piece(snapshot, 0, b"an earlier try")
    storage.write_snapshot_piece(snapshot, 0, data[:50])
    storage.write_snapshot_piece(snapshot, 50, memoryview(data)[50:])
    assert storage.adopt_snapshot(snapshot).values == (encode_record(a_topic(1)),)
    assert [each.id for each in storage.snapshots] == [snapshot]
    assert (storage.log.start_offset, storage.log.end_offset) == (30, 30)
    assert storage.read_snapshot_piece(snapshot, 0, 1 << 20) == (data, len(data))


def test_a_fetched_snapshot_that_is_damaged_is_not_adopted() -> None:
    storage = filled(Harness())
    snapshot = OffsetAndEpoch(30, 4)
    storage.write_snapshot_piece(snapshot, 0, b"no snapshot at all, but long enough for a header")
    with pytest.raises(CorruptSnapshot):
        storage.adopt_snapshot(snapshot)
    assert storage.log.end_offset == 9


def test_another_snapshot_is_fetched_in_place_of_one_that_was_given_up() -> None:
    harness = Harness()
    storage = filled(harness)
    storage.write_snapshot_piece(OffsetAndEpoch(30, 4), 0, b"of a leader that is gone")
    storage.write_snapshot_piece(OffsetAndEpoch(40, 5), 0, b"of the next one")
    parts = [each for each in harness.disk.listdir(METADATA_DIR) if each.endswith(".part")]
    assert parts == ["00000000000000000040-0000000005.checkpoint.part"]


@pytest.mark.parametrize("operation", ["append", "sync", "rename"])
def test_nothing_is_left_of_a_snapshot_that_cannot_be_written(operation: str) -> None:
    harness = Harness()
    storage = filled(harness)
    harness.disk.fail(operation, path=".checkpoint.part")
    with pytest.raises(OSError, match=operation):
        a_snapshot(storage, OffsetAndEpoch(6, 1))
    assert not [each for each in harness.disk.listdir(METADATA_DIR) if "checkpoint.part" in each]
    assert not storage.snapshots


def test_a_log_without_its_beginning_cannot_be_read() -> None:
    harness = Harness()
    storage = filled(harness, segment_bytes=200)
    a_snapshot(storage, OffsetAndEpoch(6, 1))
    storage.delete_before(OffsetAndEpoch(6, 1))
    storage.close()
    harness.disk.remove(f"{METADATA_DIR}/00000000000000000006-0000000001.checkpoint")
    with pytest.raises(MetadataDamaged, match=r"begins at offset \d+ and there is no snapshot"):
        load_image(opened(harness, segment_bytes=200))


def test_a_record_that_makes_no_sense_is_reported_with_file_and_offset() -> None:
    harness = Harness()
    storage = opened(harness)
    values = [encode_record(a_topic(1)), b"\1\x7f\0"]
    storage.log.append(records_batch(values, base_offset=0, epoch=1, timestamp=1))
    with pytest.raises(
        MetadataDamaged,
        match=rf"{METADATA_DIR}/0{{20}}\.log: .* offset 1 cannot be decoded .*type 127",
    ):
        load_image(storage)


def test_a_record_that_cannot_be_replayed_is_reported_with_file_offset_and_type() -> None:
    harness = Harness()
    storage = opened(harness)
    storage.log.append(batch(0, 1))
    removed = [encode_record(RemoveTopicRecord(topic_id=a_topic(n).topic_id)) for n in (1, 2)]
    storage.log.append(records_batch(removed, base_offset=1, epoch=1, timestamp=1))
    with pytest.raises(
        MetadataDamaged,
        match=rf"{METADATA_DIR}/0{{20}}\.log: the RemoveTopicRecord at offset 2 cannot be replayed",
    ):
        load_image(storage)


def test_the_first_vote_outlives_a_power_loss() -> None:
    harness = Harness()
    opened(harness).store_election(ElectionState(epoch=1, voted_id=2))
    harness.crash()
    assert opened(harness).load_election() == ElectionState(epoch=1, voted_id=2)


@pytest.mark.parametrize("operation", ["exists", "read_bytes"])
def test_a_quorum_state_that_cannot_be_read_is_no_missing_one(operation: str) -> None:
    harness = Harness()
    storage = opened(harness)
    storage.store_election(ElectionState(epoch=2, voted_id=1))
    harness.disk.fail(operation, path="quorum-state")
    with pytest.raises(OSError):
        storage.load_election()


@pytest.mark.parametrize("data", [b"", b"{}", b"garbage", b'{"data_version":9}'])
def test_a_damaged_quorum_state_is_reported_with_its_path(data: bytes) -> None:
    harness = Harness()
    storage = opened(harness)
    harness.disk.write_atomic(f"{METADATA_DIR}/quorum-state", data)
    with pytest.raises(MetadataDamaged, match="__cluster_metadata-0/quorum-state"):
        storage.load_election()
