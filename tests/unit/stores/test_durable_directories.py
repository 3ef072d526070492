"""Each name is synced down from the store's directory, once, for as long as it is the same one.

Method: real directories; what is synced is noted. A power loss keeps no name whose directory was
not synced since: `durable` is what it would leave.
"""

import errno
import os
from pathlib import Path

import pytest

from ottla.stores import durable_directories
from ottla.stores.durable_directories import DurableDirectories


class Syncs:
    """Notes the directories that are synced, relative to the store's; may fail at one."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.paths: list[str] = []
        self.failing: str | None = None
        patch.setattr(durable_directories.os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), self.root)
        if path == self.failing:
            raise OSError(errno.EIO, "Input/output error")
        self.paths.append(path)

    def taken(self) -> list[str]:
        taken, self.paths = self.paths, []
        return taken


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "store/t/0/manifest").mkdir(parents=True)
    return tmp_path / "store"


@pytest.fixture
def syncs(root: Path, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(root, monkeypatch)


def test_names_are_synced_up_to_the_root_once(root: Path, syncs: Syncs) -> None:
    directories = DurableDirectories(str(root))
    directories.sync(str(root / "t/0"))
    assert syncs.taken() == ["t/0", "t", "."]
    directories.sync(str(root / "t/0"))
    assert syncs.taken() == ["t/0"]
    directories.sync(str(root / "t/0/manifest"))
    assert syncs.taken() == ["t/0/manifest", "t/0"]
    directories.sync(str(root / "t/0/manifest"))
    assert syncs.taken() == ["t/0/manifest"]
    directories.sync(str(root))
    assert syncs.taken() == ["."]
    DurableDirectories(str(root)).sync(str(root / "t/0"))
    assert syncs.taken() == ["t/0", "t", "."]


def test_another_directory_of_the_path_is_another_name(root: Path, syncs: Syncs) -> None:
    """Somebody removed it, and made it again; a file system gives a free inode to the next one."""
    directories = DurableDirectories(str(root))
    for _ in range(3):
        directories.sync(str(root / "t/0/manifest"))
        assert syncs.taken() == ["t/0/manifest", "t/0", "t", "."]
        for each in ("t/0/manifest", "t/0", "t"):
            (root / each).rmdir()
        (root / "t/0/manifest").mkdir(parents=True)
    directories.sync(str(root / "t/0"))
    assert syncs.taken() == ["t/0", "t", "."]


def test_a_directory_that_is_made_again_below_a_known_one(root: Path, syncs: Syncs) -> None:
    directories = DurableDirectories(str(root))
    directories.sync(str(root / "t/0/manifest"))
    syncs.taken()
    (root / "t/0/manifest").rmdir()
    (root / "t/0/manifest").mkdir()
    directories.sync(str(root / "t/0/manifest"))
    assert syncs.taken() == ["t/0/manifest", "t/0"]


@pytest.mark.parametrize("failing", ["t/0", "t", "."])
def test_what_failed_is_done_again(root: Path, syncs: Syncs, failing: str) -> None:
    """Also what was synced below it: its own name may be durable, but not those above."""
    directories = DurableDirectories(str(root))
    syncs.failing = failing
    with pytest.raises(OSError, match="Input/output error"):
        directories.sync(str(root / "t/0"))
    syncs.failing = None
    syncs.taken()
    directories.sync(str(root / "t/0"))
    assert syncs.taken() == ["t/0", "t", "."]


def test_a_directory_that_is_gone_is_no_error(root: Path, syncs: Syncs) -> None:
    directories = DurableDirectories(str(root))
    directories.sync(str(root / "t/1"))
    assert syncs.taken() == ["t", "."]
    (root / "t/1").mkdir()
    directories.sync(str(root / "t/1"))
    assert syncs.taken() == ["t/1", "t"]


def test_a_directory_that_goes_before_its_parent_is_synced(root: Path, syncs: Syncs) -> None:
    """1. Its names are synced. 2. Another process removes it. 3. Its parent is synced without it.
    4. It is made again: that name is not durable."""
    directories = DurableDirectories(str(root))
    noted = syncs._sync

    def remove_then_sync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/t"):
            (root / "t/0/manifest").rmdir()
            (root / "t/0").rmdir()
        noted(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable_directories.os, "fsync", remove_then_sync)
        directories.sync(str(root / "t/0"))
    syncs.taken()
    (root / "t/0").mkdir()
    directories.sync(str(root / "t/0"))
    assert syncs.taken() == ["t/0", "t"]


def test_few_descriptors_are_held(
    root: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_directories, "REMEMBERED_MAX", 3)
    before = len(os.listdir("/proc/self/fd"))
    directories = DurableDirectories(str(root))
    for number in range(20):
        (root / f"t/{number}").mkdir(exist_ok=True)
        directories.sync(str(root / f"t/{number}"))
    assert len(os.listdir("/proc/self/fd")) == before + 3
    syncs.taken()
    directories.sync(str(root / "t/19"))
    assert syncs.taken() == ["t/19"], "the last ones are known"
    directories.sync(str(root / "t/3"))
    assert syncs.taken() == ["t/3", "t"]
    del directories
    assert len(os.listdir("/proc/self/fd")) == before
