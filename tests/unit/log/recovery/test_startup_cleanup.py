"""What crashes leave beside the segments: the module's table, row by row.

Method: files by name and content in a directory; what must be there afterwards.
"""

from functools import partial
from random import Random

import pytest

from ottla.log.recovery.startup_cleanup import tidy
from ottla.testing.disk import MemoryDisk
from ottla.testing.sim.disk import SimDisk
from tests.unit.log.cleaner_storage import dies, dying_at
from tests.unit.log.support import batch


def directory(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("/d")
    for name, data in files.items():
        disk.write_atomic(f"/d/{name}", data)
    return disk


def file(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def records(base: int, count: int) -> bytes:
    return bytes(batch(count, base_offset=base))


def test_deleted_cleaned_and_temporary_files_go() -> None:
    disk = directory(
        {
            file(0, ".log"): b"",
            file(0, ".index"): b"",
            file(5, ".log.deleted"): b"",
            file(5, ".index.deleted"): b"",
            file(0, ".log.cleaned"): b"",
            "leader-epoch-checkpoint.tmp": b"",
            "leader-epoch-checkpoint": b"",
            "partition.metadata": b"",
        }
    )
    assert tidy(disk, "/d") == [0]
    assert disk.listdir("/d") == [
        file(0, ".index"),
        file(0, ".log"),
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_orphaned_indexes_go_and_snapshots_stay() -> None:
    disk = directory(
        {file(3, suffix): b"" for suffix in (".index", ".timeindex", ".txnindex", ".snapshot")}
    )
    assert tidy(disk, "/d") == []
    assert disk.listdir("/d") == [file(3, ".snapshot")]


def test_a_finished_compaction_takes_its_place() -> None:
    disk = directory(
        {
            file(0, ".log"): b"old",
            file(0, ".index"): b"old",
            file(4, ".log"): b"old too",
            file(4, ".index"): b"old",
            file(9, ".log"): b"later",
            file(0, ".log.swap"): records(0, 9),
            file(0, ".index.swap"): b"",
        }
    )
    assert tidy(disk, "/d") == [0, 9]
    assert disk.read_bytes(f"/d/{file(0, '.log')}") == records(0, 9)
    assert disk.read_bytes(f"/d/{file(0, '.index')}") == b""
    assert disk.listdir("/d") == [file(0, ".index"), file(0, ".log"), file(9, ".log")]


def test_an_index_whose_segment_was_swapped_already() -> None:
    disk = directory({file(0, ".log"): records(0, 9), file(0, ".index.swap"): b"new"})
    assert tidy(disk, "/d") == [0]
    assert disk.read_bytes(f"/d/{file(0, '.index')}") == b"new"


def test_an_unfinished_split_is_undone() -> None:
    disk = directory(
        {
            file(0, ".log"): b"whole",
            file(0, ".log.swap"): records(0, 2),
            file(5, ".log.swap"): records(5, 2),
            file(5, ".log.cleaned"): b"",
            file(9, ".log.cleaned"): b"",
        }
    )
    assert tidy(disk, "/d") == [0]
    assert disk.read_bytes(f"/d/{file(0, '.log')}") == records(0, 2)
    assert disk.listdir("/d") == [file(0, ".log")]


def test_quorum_snapshots_are_not_touched() -> None:
    names = ["00000000000000000042-0000000003.checkpoint.deleted"]
    disk = directory(dict.fromkeys(names, b""))
    tidy(disk, "/d")
    assert disk.listdir("/d") == names


def test_a_damaged_swap_still_takes_its_place() -> None:
    data = records(0, 3) + b"torn"
    disk = directory({file(0, ".log"): b"old", file(2, ".log"): b"", file(0, ".log.swap"): data})
    assert tidy(disk, "/d") == [0]
    assert disk.read_bytes(f"/d/{file(0, '.log')}") == data


@pytest.mark.parametrize("seed", range(10))
def test_a_loss_of_power_keeps_the_old_segments_or_the_cleaned_one(seed: int) -> None:
    """The process that was killed had given the `.swap` name, and not synced it yet."""
    operation, died = 0, True
    while died:
        disk = SimDisk()
        disk.mkdir("/d")
        for base in (0, 4):
            disk.write_atomic(f"/d/{file(base, '.log')}", records(base, 4))
        disk.write_atomic(f"/d/{file(0, '.log.cleaned')}", records(0, 8))
        disk.settle()
        disk.rename(f"/d/{file(0, '.log.cleaned')}", f"/d/{file(0, '.log.swap')}")
        disk.on_operation = dying_at(operation)
        died = dies(partial(tidy, disk, "/d"))
        disk.on_operation = None
        disk.lose_power(Random(seed))
        held = b"".join(disk.read_bytes(f"/d/{file(base, '.log')}") for base in tidy(disk, "/d"))
        assert held in (records(0, 4) + records(4, 4), records(0, 8)), operation
        operation += 1
    assert operation > 6
