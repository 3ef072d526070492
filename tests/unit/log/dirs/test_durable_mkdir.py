"""A directory that was created is there after a power loss, however many of its parents are new.

Method: a disk in memory that forgets what is unsynced.
"""

import pytest

from ottla.log.dirs.durable_mkdir import mkdir_durably
from ottla.testing.disk import MemoryDisk


@pytest.mark.parametrize("path", ["/a", "/a/b", "/a/b/c"])
@pytest.mark.parametrize("existing", ["/x", "/a", "/a/b/c"])
def test_a_directory_and_its_new_parents_outlive_a_power_loss(path: str, existing: str) -> None:
    disk = MemoryDisk()
    mkdir_durably(disk, existing)
    mkdir_durably(disk, path)
    disk.crash()
    assert disk.is_dir(path)


def test_nothing_is_synced_for_a_directory_that_is_there() -> None:
    disk = MemoryDisk()
    mkdir_durably(disk, "/a/b")
    acts: list[str] = []
    disk.on_operation = lambda act, _path: acts.append(act)
    mkdir_durably(disk, "/a/b")
    assert "sync_dir" not in acts
