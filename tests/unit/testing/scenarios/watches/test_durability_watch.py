"""What a power loss would leave is read from the disk, and what breaks the order of durability is
found there.

Method: logs written by hand to a simulated disk, synced in part.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.ids import NO_UUID
from ottla.log import names
from ottla.log.dirs.checkpoint_limits import NOTHING_CHECKPOINTED, write_limits
from ottla.log.dirs.checkpoints import encode_offsets
from ottla.raft.snapshots import snapshot_name
from ottla.raft.values import OffsetAndEpoch
from ottla.records.builder import encode_batch
from ottla.testing.history.history import History
from ottla.testing.scenarios.watches.durability_watch import DurabilityWatch, DurableLog, _log_start
from ottla.testing.sim import Sim
from ottla.testing.sim.disk import SimDisk, SimFile
from ottla.testing.sim.watch.log_watch import LogWatch
from ottla.testing.sim.watch.observations import (
    MetadataHighWatermarkMoved,
    RemoteSegmentChanged,
)

DIRECTORY = "/data/t-0"


def batch(offset: int, epoch: int, count: int = 1) -> bytes:
    return encode_batch([(None, b"value", (), 7)] * count, base_offset=offset, leader_epoch=epoch)


def segment(disk: SimDisk, base: int) -> SimFile:
    file = disk.open(f"{DIRECTORY}/{names.segment_name(base, names.LOG)}", create=True)
    assert isinstance(file, SimFile)
    disk.sync_dir(DIRECTORY)
    return file


def synced_file(disk: SimDisk, name: str, data: bytes = b"") -> str:
    """Return the path of a file that is on disk."""
    disk.write_atomic(f"{DIRECTORY}/{name}", data)
    disk.sync_dir(DIRECTORY)
    return f"{DIRECTORY}/{name}"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    disk.write_atomic(f"{DIRECTORY}/{names.PARTITION_METADATA}", b"")
    disk.settle()
    return disk


# -- what is on disk -----------------------------------------------------------------------------


def test_only_what_is_synced_is_durable(disk: SimDisk) -> None:
    log = DurableLog(disk, DIRECTORY)
    assert log.epoch_of(0) is None
    first = segment(disk, 0)
    first.append([batch(0, 1), batch(1, 1, count=3)])
    assert log.epoch_of(0) is None
    first.sync()
    assert [log.epoch_of(each) for each in range(5)] == [1, 1, 1, 1, None]
    second = segment(disk, 4)
    second.append([batch(4, 2)])
    second.sync()
    second.append([batch(5, 3)])
    assert [log.epoch_of(each) for each in (3, 4, 5)] == [1, 2, None]


def test_records_that_replace_others_are_read_anew(disk: SimDisk) -> None:
    log, file = DurableLog(disk, DIRECTORY), segment(disk, 0)
    file.append([batch(0, 1), batch(1, 1)])
    file.sync()
    assert log.epoch_of(1) == 1
    file.truncate(len(batch(0, 1)))
    file.append([batch(1, 2)])
    assert log.epoch_of(1) == 1, "the cut is not synced"
    file.sync()
    assert [log.epoch_of(each) for each in (0, 1)] == [1, 2]


# -- the metadata log ----------------------------------------------------------------------------


def voters() -> tuple[Sim, History, dict[int, SimDisk]]:
    """Return a cluster that is watched, and an empty disk for the metadata log of each voter."""
    sim, history = Sim(1, brokers=1, controllers=3), History()
    watch = DurabilityWatch(sim, history, LogWatch(sim, history.log_events.append))
    disks = {}
    for node, log in watch._voters.items():
        disks[node] = log._disk = SimDisk()
        log._directory = DIRECTORY
        log._disk.mkdir(DIRECTORY)
        log._disk.settle()
    return sim, history, disks


@pytest.mark.parametrize(
    ("held", "broken"),
    [((4, 4, None), False), ((4, 4, 3), False), ((4, 3, 3), True), ((4, None, None), True)],
)
def test_a_majority_has_what_is_committed(held: tuple[int | None, ...], broken: bool) -> None:
    """In the leader's epoch: what counts only in a former one may still be replaced."""
    sim, history, disks = voters()
    for disk, epoch in zip(disks.values(), held, strict=True):
        if epoch is not None:
            file = segment(disk, 0)
            file.append([batch(0, epoch)])
            file.sync()
    sim.notify(MetadataHighWatermarkMoved(7, 1, 1, epoch=4, offset=1))
    assert bool(history.rules_broken) is broken


@pytest.mark.parametrize(
    ("first", "snapshot", "broken"), [(3, 4, False), (3, 1, True), (3, None, True), (0, 4, True)]
)
def test_what_is_behind_a_snapshot_was_committed(
    first: int, snapshot: int | None, broken: bool
) -> None:
    """A former leader learns of its commit when the others have removed that part of their logs."""
    sim, history, disks = voters()
    for number, disk in enumerate(disks.values()):
        file = segment(disk, first if number else 0)
        file.append([batch(first, 5) if number else batch(0, 4, count=2)])
        file.sync()
        if number and snapshot is not None:
            synced_file(disk, snapshot_name(OffsetAndEpoch(snapshot, 5)))
    sim.notify(MetadataHighWatermarkMoved(7, 1, 1, epoch=4, offset=2))
    assert bool(history.rules_broken) is broken


def test_what_is_committed_follows_the_same_records_everywhere() -> None:
    sim, history, disks = voters()
    for number, disk in enumerate(disks.values()):
        file = segment(disk, 0)
        file.append([batch(0, 1), batch(1, 1 if number < 2 else 2), batch(2, 3)])
        file.sync()
    sim.notify(MetadataHighWatermarkMoved(7, 1, 1, epoch=3, offset=3))
    (broken,) = history.rules_broken
    assert broken.node == list(disks)[2]
    assert "up to offset 1, epoch 2" in broken.reason


# -- logs ----------------------------------------------------------------------------------------


def watched(disk: SimDisk) -> History:
    """Return the history that a node's disk writes to."""
    sim, history = Sim(1, brokers=1, controllers=1), History()
    node = next(each for each in sim.nodes.values() if each.is_broker)
    node.disk = disk
    DurabilityWatch(sim, history, LogWatch(sim, history.log_events.append))
    return history


def keyed(*records: tuple[bytes, bytes | None], base_offset: int = 0) -> bytes:
    return encode_batch(
        [(key, value, (), 7) for key, value in records], base_offset=base_offset, leader_epoch=1
    )


@pytest.mark.parametrize(
    ("replicated", "synced", "lost"), [(3, True, False), (2, True, True), (3, False, True)]
)
def test_a_record_is_cleaned_away_for_one_that_is_replicated_and_on_disk(
    disk: SimDisk, replicated: int, synced: bool, lost: bool
) -> None:
    segments = [SimpleNamespace(base_offset=base) for base in (0, 2)]
    _, history = hosting(disk, segments=segments, log_start_offset=0, high_watermark=replicated)
    first, second = segment(disk, 0), segment(disk, 2)
    first.append([keyed((b"a", b"1"), (b"b", b"2"))])
    second.append([keyed((b"a", b"3"), base_offset=2)])
    first.sync()
    if synced:
        second.sync()
    cleaned = synced_file(disk, "part", keyed((b"b", b"2"), base_offset=1))
    disk.rename(cleaned, f"{DIRECTORY}/{names.segment_name(0, names.LOG)}{names.SWAP}")
    assert [each.reason.partition(" of ")[0] for each in history.rules_broken] == (
        ["cleans the record at offset 0"] if lost else []
    )


@pytest.mark.parametrize(
    ("log_start", "record"), [(1, (b"a", b"1")), (0, (b"a", None)), (0, (None, b"1"))]
)
def test_what_may_be_cleaned_away_without_a_newer_record(
    disk: SimDisk, log_start: int, record: tuple[bytes, bytes | None]
) -> None:
    """What is below the log start, a tombstone, or a record without a key."""
    segments = [SimpleNamespace(base_offset=0)]
    _, history = hosting(disk, segments=segments, log_start_offset=log_start, high_watermark=2)
    first = segment(disk, 0)
    first.append([keyed(record, (b"b", b"2"))])
    first.sync()
    cleaned = synced_file(disk, "part", keyed((b"b", b"2"), base_offset=1))
    disk.rename(cleaned, f"{DIRECTORY}/{names.segment_name(0, names.LOG)}{names.SWAP}")
    assert history.rules_broken == []


class Segments(list[Any]):
    """The segments of a log."""

    @property
    def first(self) -> Any:
        return self[0]


def hosting(disk: SimDisk, *, is_leader: bool = True, **log: Any) -> tuple[Sim, History]:
    """Return a cluster whose broker has nothing but a log, and what is found there."""
    sim, history = Sim(1, brokers=1, controllers=1), History()
    partition = SimpleNamespace(
        topic_id=NO_UUID,
        partition_id=0,
        is_leader=is_leader,
        log=SimpleNamespace(topic="t", partition=0, directory=DIRECTORY, **log),
    )
    broker = SimpleNamespace(replicas=SimpleNamespace(hosted=lambda: [partition]))
    node: Any = SimpleNamespace(id=1, disk=disk, is_controller=False, broker=broker)
    sim.nodes[1] = node
    DurabilityWatch(sim, history, LogWatch(sim, history.log_events.append))
    return sim, history


def checkpoint(disk: SimDisk, offset: int) -> None:
    disk.write_atomic(f"/data/{names.RECOVERY_POINTS}", encode_offsets({("t", 0): offset}))


def test_what_is_below_the_recovery_point_is_on_disk(disk: SimDisk) -> None:
    history = watched(disk)
    first, second = segment(disk, 0), segment(disk, 2)
    first.append([batch(0, 1), batch(1, 1)])
    second.append([batch(2, 1), batch(3, 1)])
    first.sync()
    checkpoint(disk, 2)
    second.sync()
    second.append([batch(4, 1)])
    checkpoint(disk, 4)
    assert history.rules_broken == []
    checkpoint(disk, 5)
    (broken,) = history.rules_broken
    assert broken.reason.endswith(f"{names.segment_name(2, names.LOG)} holds")


@pytest.mark.parametrize("suffix", names.INDEX_SUFFIXES)
def test_indexes_of_sealed_segments_are_on_disk_below_the_recovery_point(
    disk: SimDisk, suffix: str
) -> None:
    history = watched(disk)
    first, second = segment(disk, 0), segment(disk, 1)
    first.append([batch(0, 1)])
    second.append([batch(1, 1)])
    first.sync()
    second.sync()
    path = f"{DIRECTORY}/{names.segment_name(0, suffix)}"
    index = disk.open(path, create=True)
    disk.sync_dir(DIRECTORY)
    index.append([b"entry"])
    active = disk.open(f"{DIRECTORY}/{names.segment_name(1, suffix)}", create=True)
    active.append([b"a start builds it again"])
    checkpoint(disk, 0)
    assert history.rules_broken == []
    checkpoint(disk, 1)
    (broken,) = history.rules_broken
    assert broken.reason.endswith(f"{path} holds")
    index.sync()
    checkpoint(disk, 2)
    assert len(history.rules_broken) == 1


def test_an_entry_of_a_log_without_segments_says_nothing(disk: SimDisk) -> None:
    history = watched(disk)
    checkpoint(disk, 5)
    assert history.rules_broken == []


def test_a_cut_that_is_not_on_disk_is_found(disk: SimDisk) -> None:
    history = watched(disk)
    first, second = segment(disk, 0), segment(disk, 1)
    first.append([batch(0, 1), batch(1, 1)])
    first.sync()
    first.truncate(len(batch(0, 1)))
    second.append([batch(1, 2)])
    second.sync()
    checkpoint(disk, 2)
    (broken,) = history.rules_broken
    assert names.segment_name(0, names.LOG) in broken.reason


@pytest.mark.parametrize("marker", ["limits", "former", "no id"])
def test_an_entry_that_does_not_count_promises_nothing(disk: SimDisk, marker: str) -> None:
    history = watched(disk)
    segment(disk, 0).append([batch(0, 1)])
    if marker == "limits":
        write_limits(disk, DIRECTORY, 1, NOTHING_CHECKPOINTED)
    elif marker == "former":
        disk.write_atomic(f"{DIRECTORY}/{names.STALE_CHECKPOINTS}", b"")
    else:
        disk.remove(f"{DIRECTORY}/{names.PARTITION_METADATA}")
    checkpoint(disk, 1)
    assert history.rules_broken == []


@pytest.mark.parametrize(
    ("end_offset", "stored", "is_leader", "broken"),
    [
        (9, 10, True, False),
        (9, 5, True, True),
        (9, None, True, True),
        (10, 5, True, False),
        (9, 5, False, False),
    ],
    ids=["stored", "older", "none", "for another reason", "no leader"],
)
@pytest.mark.parametrize("was_copied", [True, False])
@pytest.mark.parametrize("has_remote_prefix", [False, True])
def test_a_remote_segment_is_deleted_once_the_log_start_is_on_disk(
    disk: SimDisk,
    end_offset: int,
    stored: int | None,
    is_leader: bool,
    broken: bool,
    has_remote_prefix: bool,
    was_copied: bool,
) -> None:
    """A copy that was given up can be deleted at any time: nobody reads it."""
    sim, history = hosting(
        disk,
        is_leader=is_leader,
        failed=False,
        log_start_offset=10,
        has_remote_prefix=has_remote_prefix,
    )
    segment(disk, 20 if has_remote_prefix else 0)
    if stored is not None:
        disk.write_atomic(f"/data/{names.LOG_STARTS}", encode_offsets({("t", 0): stored}))
    change = (7, 1, NO_UUID, 0, NO_UUID, "DELETE_STARTED", False, end_offset, was_copied)
    sim.notify(RemoteSegmentChanged(*change))
    assert bool(history.rules_broken) is (broken and was_copied)


@pytest.mark.parametrize(
    ("first", "stored", "broken"),
    [(20, 20, False), (20, 25, False), (20, 10, True), (20, None, True), (0, None, False)],
)
def test_a_segment_is_deleted_by_retention_once_the_log_start_is_on_disk(
    disk: SimDisk, first: int, stored: int | None, broken: bool
) -> None:
    """Where the log still begins with it, it is deleted for another reason."""
    _, history = hosting(
        disk,
        config=SimpleNamespace(remote_storage=False),
        has_remote_prefix=False,
        segments=SimpleNamespace(first=SimpleNamespace(base_offset=first)),
    )
    segment(disk, 0)
    if stored is not None:
        disk.write_atomic(f"/data/{names.LOG_STARTS}", encode_offsets({("t", 0): stored}))
    path = f"{DIRECTORY}/{names.segment_name(0, names.LOG)}"
    disk.rename(path, path + names.DELETED)
    assert bool(history.rules_broken) is broken


@pytest.mark.parametrize(("local", "broken"), [(5, False), (4, True)])
def test_a_segment_is_deleted_below_a_local_log_start_that_is_on_disk(
    disk: SimDisk, local: int, broken: bool
) -> None:
    """The log start has followed in memory: what is in remote storage was given up meanwhile."""
    _, history = hosting(
        disk,
        config=SimpleNamespace(remote_storage=False),
        has_remote_prefix=False,
        segments=SimpleNamespace(first=SimpleNamespace(base_offset=5)),
    )
    segment(disk, 0)
    disk.write_atomic(f"/data/{names.LOCAL_LOG_STARTS}", encode_offsets({("t", 0): local}))
    path = f"{DIRECTORY}/{names.segment_name(0, names.LOG)}"
    disk.rename(path, path + names.DELETED)
    assert bool(history.rules_broken) is broken


@pytest.mark.parametrize("left_out", [None, 1, 2])
def test_cleaned_segments_replace_others_in_steps(disk: SimDisk, left_out: int | None) -> None:
    history = watched(disk)
    old = [f"{DIRECTORY}/{names.segment_name(base, names.LOG)}" for base in (0, 5)]
    for base in (0, 5):
        segment(disk, base)
    swap = old[0] + names.SWAP
    disk.rename(synced_file(disk, "part"), swap)
    if left_out != 1:
        disk.sync_dir(DIRECTORY)
    for path in old:
        disk.rename(path, path + names.DELETED)
    if left_out != 2:
        disk.sync_dir(DIRECTORY)
    assert bool(history.rules_broken) is (left_out == 1)
    disk.rename(swap, old[0])
    assert bool(history.rules_broken) is (left_out is not None)


def test_retention_deletes_what_a_swap_was_to_replace(disk: SimDisk) -> None:
    """The cleaner gives its segment up, whose name may not be on disk yet."""
    _, history = hosting(
        disk,
        config=SimpleNamespace(remote_storage=False),
        has_remote_prefix=False,
        segments=Segments([SimpleNamespace(base_offset=5)]),
        log_start_offset=5,
        high_watermark=5,
    )
    for base in (0, 5):
        segment(disk, base)
    old, kept = (f"{DIRECTORY}/{names.segment_name(base, names.LOG)}" for base in (0, 5))
    disk.write_atomic(f"/data/{names.LOG_STARTS}", encode_offsets({("t", 0): 5}))
    disk.rename(synced_file(disk, "part"), old + names.SWAP)
    disk.rename(old, old + names.DELETED)
    assert history.rules_broken == []
    disk.rename(kept, kept + names.DELETED)
    assert len(history.rules_broken) == 1, "the log still has that one"


def test_a_segment_from_remote_storage_replaces_none(disk: SimDisk) -> None:
    history = watched(disk)
    segment(disk, 5)
    path, later = (f"{DIRECTORY}/{names.segment_name(base, names.LOG)}" for base in (0, 5))
    disk.rename(later, later + names.DELETED)
    disk.rename(synced_file(disk, "part"), path + names.TEMPORARY)
    disk.rename(path + names.TEMPORARY, path)
    assert history.rules_broken == []


def test_a_log_starts_with_its_first_segment_anyway(disk: SimDisk) -> None:
    segment(disk, 10)
    log: Any = SimpleNamespace(topic="t", partition=0, directory=DIRECTORY, has_remote_prefix=False)
    assert _log_start(disk, log) == 10


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log",
        "00000000000000000000.log.swap",
        "00000000000000000000.snapshot",
        "00000000000000000005-0000000002.checkpoint",
    ],
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_file_gets_its_name_once_it_is_on_disk(disk: SimDisk, name: str, synced: bool) -> None:
    history = watched(disk)
    file = disk.open(f"{DIRECTORY}/part", create=True)
    file.append([b"content"])
    if synced:
        file.sync()
    disk.rename(f"{DIRECTORY}/part", f"{DIRECTORY}/{name}")
    assert bool(history.rules_broken) is not synced
