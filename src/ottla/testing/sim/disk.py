"""A node's disk in the simulator: power loss in all the ways in which disks forget.

Beyond `MemoryDisk`: of what was not synced a power loss leaves any part. A file's unsynced end
may stay whole, stay as a prefix, or stay in length with holes of zeros, as journals do that
write lengths before data; what was written over may be new, old or torn; a name that was not
synced (made, renamed, removed) may be as before or as after, each for itself.
"""

from collections.abc import Callable
from functools import lru_cache
from random import Random

from ottla.base.ids import METADATA_TOPIC, Uuid
from ottla.log.checkpoints import MalformedFile
from ottla.log.dir_loading import PartitionDir
from ottla.log.names import PARTITION_METADATA, parse_partition_dir_name
from ottla.log.partition_metadata import decode_partition_metadata
from ottla.testing.disk import MemoryDisk, MemoryFile, _FileNode, _Folder

PAGE_BYTES = 512


class SimFile(MemoryFile):
    """An open file whose sync, where it fails, drops what it was to write."""

    def sync(self) -> None:
        disk, node = self._disk, self._node
        assert isinstance(disk, SimDisk)
        try:
            self._begin("sync")
        except OSError:
            disk.drop_dirty(node)
            raise
        node.synced = disk.written_of(node)
        disk.shortened.discard(node)

    def truncate(self, size: int) -> None:
        disk, node = self._disk, self._node
        assert isinstance(disk, SimDisk)
        shorter = size < len(node.data)
        super().truncate(size)
        if shorter:
            disk.shortened.add(node)


class SimDisk(MemoryDisk):
    """See the module.

    A sync that fails leaves the pages clean, as Linux does: they can be read, are not written by
    any later sync, and are gone with the process (at the latest; a real cache may drop them when
    it likes).
    """

    file_type = SimFile

    def __init__(self, *, now_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__(now_ms=now_ms)
        self.shortened: set[_FileNode] = set()
        """Files that were cut since their last sync: only these may come back shorter."""
        self._dropped: dict[_FileNode, list[tuple[int, int]]] = {}
        """What failed syncs were to write of a file, [start, end)."""

    def drop_dirty(self, node: _FileNode) -> None:
        """Never write what a file lacks on disk now."""
        start = _common(bytes(node.data), node.synced)
        self._dropped.setdefault(node, []).append((start, len(node.data)))

    def written_of(self, node: _FileNode) -> bytes:
        """Return what a file holds on disk once all is written that is not dropped."""
        dropped = self._dropped.get(node)
        if dropped is None:
            return bytes(node.data)
        data = bytearray(node.data)
        for start, end in dropped:
            stop = min(end, len(data))
            if start < stop:
                data[start:stop] = node.synced[start:stop].ljust(stop - start, b"\0")
        return bytes(data)

    def _forget_dropped(self) -> None:
        for node in self._dropped:
            node.data = bytearray(self.written_of(node))
        self._dropped.clear()

    def kill(self) -> None:
        self._forget_dropped()
        self.open_files = 0
        super().kill()

    def settle(self) -> None:
        """Make all durable that is there: what an installation leaves."""
        _settle(self._root)

    def used_bytes(self) -> int:
        """Return the bytes of all files."""
        return _used(self._root)

    def folders_in(self, path: str, *, durable: bool = False) -> list[tuple[PartitionDir, object]]:
        """Return the partitions' folders below a path, by name, and count no operation.

        With each comes what is the same for the same folder only, whatever it is called.
        `durable`: those that a loss of power is sure to leave.
        """
        parent = self._find(path)
        if not isinstance(parent, _Folder):
            return []
        found: list[tuple[PartitionDir, object]] = []
        for name, node in sorted((parent.durable if durable else parent.entries).items()):
            folder = _folder_name(name)
            if folder is not None and folder.topic != METADATA_TOPIC and isinstance(node, _Folder):
                found.append((PartitionDir(name, *folder, _topic_id(node)), node))
        return found

    def files_in(self, path: str) -> dict[str, bytes]:
        """Return the files of a folder as a process reads them, and count no operation."""
        folder = self._find(path)
        entries = folder.entries if isinstance(folder, _Folder) else {}
        return {
            name: bytes(node.data) for name, node in entries.items() if isinstance(node, _FileNode)
        }

    def data_of(self, path: str) -> bytearray:
        """Return what a file holds, not to be changed, and count no operation."""
        node = self._find(path)
        return node.data if isinstance(node, _FileNode) else bytearray()

    def lose_power(self, random: Random) -> int:
        """Forget what was not synced, or not; return how many files and folders changed."""
        self._forget_dropped()
        self.open_files = 0
        self._locked.clear()
        changed = _lose(self._root, random, self.shortened)
        self.shortened.clear()
        return changed


_folder_name = lru_cache(maxsize=4096)(parse_partition_dir_name)
"""Folders are listed thousands of times a history, under few names."""


def _topic_id(folder: _Folder) -> Uuid | None:
    file = folder.entries.get(PARTITION_METADATA)
    return _written_topic_id(bytes(file.data)) if isinstance(file, _FileNode) else None


@lru_cache(maxsize=4096)
def _written_topic_id(data: bytes) -> Uuid | None:
    try:
        return decode_partition_metadata(data)
    except MalformedFile:
        return None


def _settle(folder: _Folder) -> None:
    for node in folder.entries.values():
        if isinstance(node, _Folder):
            _settle(node)
        else:
            node.synced = bytes(node.data)
    folder.durable = dict(folder.entries)


def _used(folder: _Folder) -> int:
    return sum(
        _used(node) if isinstance(node, _Folder) else len(node.data)
        for node in folder.entries.values()
    )


def _lose(folder: _Folder, random: Random, shortened: set[_FileNode]) -> int:
    changed = 0
    if folder.entries != folder.durable:
        changed += 1
        folder.entries = _some_names(folder, random)
    for node in folder.entries.values():
        if isinstance(node, _Folder):
            changed += _lose(node, random, shortened)
        elif node.data != node.synced:
            changed += 1
            before = node.synced
            node.data = _torn(bytes(node.data), before, random)
            if node not in shortened:
                # What was only written over is as long as it was, whatever is new in it.
                node.data += before[len(node.data) :]
            node.synced = bytes(node.data)
    folder.durable = dict(folder.entries)
    return changed


def _some_names(folder: _Folder, random: Random) -> "dict[str, _FileNode | _Folder]":
    """Return the names as they may be: each that changed as before or as after.

    A file that was renamed is never under both names, nor lost under both.
    """
    before, after = folder.durable, folder.entries
    names = {
        name: after.get(name)
        for name in sorted({*before, *after})
        if before.get(name) is not after.get(name)
    }
    kept = dict(before)
    moved: set[int] = set()
    for name, node in names.items():
        old = before.get(name)
        partner = _renamed_to(old, before, after) if old is not None else None
        if partner is not None:
            # Both names of a rename change together: it is one transaction of the journal.
            if id(old) not in moved and random.random() < 0.5:
                moved.add(id(old))
                kept.pop(name, None)
                assert old is not None
                kept[partner] = old
            continue
        if node is not None and any(node is each for each in before.values()):
            continue  # The new name of a rename, which is decided under its old one.
        if random.random() < 0.5:
            if node is None:
                kept.pop(name, None)
            else:
                kept[name] = node
    return kept


def _renamed_to(
    node: "_FileNode | _Folder | None",
    before: "dict[str, _FileNode | _Folder]",
    after: "dict[str, _FileNode | _Folder]",
) -> str | None:
    for name, each in after.items():
        if each is node and before.get(name) is not node:
            return name
    return None


def _torn(data: bytes, synced: bytes, random: Random) -> bytearray:
    """Return what a file holds after a power loss that met unsynced changes."""
    way = random.randrange(4)
    if way == 0:
        return bytearray(synced)
    if way == 1:
        return bytearray(data)
    same = _common(data, synced)
    if way == 2:
        return bytearray(data[: random.randrange(same, len(data) + 1)])
    # Pages reach the disk in any order; where one did not, the old content or zeros are found.
    length = random.choice((len(data), len(synced), random.randrange(same, len(data) + 1)))
    torn = bytearray(synced[:length].ljust(length, b"\0"))
    for start in range(same, min(length, len(data)), PAGE_BYTES):
        if random.random() < 0.5:
            end = min(start + PAGE_BYTES, length, len(data))
            torn[start:end] = data[start:end]
    return torn


def _common(data: bytes, synced: bytes) -> int:
    """Return how long both are the same from their beginning."""
    whole = min(len(data), len(synced))
    if data[:whole] == synced[:whole]:
        return whole
    return next(index for index in range(whole) if data[index] != synced[index])
