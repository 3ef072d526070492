"""A node's disk in the simulator: a power loss keeps any part of what was not synced.

Beyond `MemoryDisk`: the unsynced end of a file may survive whole, as a prefix, or with its length
and holes of zeros, as with file systems that journal lengths before data; overwritten bytes may be
new, old or torn; each unsynced directory entry (created, renamed, removed) may be as before or as
after. A process that dies in the middle of an operation leaves it half done, whatever becomes of
the machine: a part of what was appended, of a directory's files, or of an atomic write's temporary
file.
"""

import errno
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from ottla.base.ids import METADATA_TOPIC, Uuid
from ottla.base.ports import Buffer
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.dirs.dir_loading import PartitionDir
from ottla.log.dirs.partition_metadata import decode_partition_metadata
from ottla.log.names import PARTITION_METADATA, TEMPORARY, parse_partition_dir_name
from ottla.testing.disk import MemoryDisk, MemoryFile, _Directory, _FileNode
from ottla.testing.sim.scheduler import ProcessDied

PAGE_BYTES = 512


def is_fault(error: BaseException) -> bool:
    """Tell whether an error is of a disk that fails or is full, or of the network.

    Others, such as ENOENT and EBADF, say that a process used what it had closed or removed itself.
    """
    return isinstance(error, OSError) and error.errno in (None, errno.EIO, errno.ENOSPC)


class SimFile(MemoryFile):
    """An open file whose failed sync drops its dirty pages."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        try:
            return super().append(buffers)
        except ProcessDied:
            disk = self._disk
            assert isinstance(disk, SimDisk)
            data = b"".join(buffers)
            self._put(self._end, data[: disk.part_done(disk._room(len(data)))])
            raise

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

    A failed sync marks the pages clean, as Linux does: they can be read, are not written by any
    later sync, and are lost at the latest when the process ends.
    """

    file_type = SimFile

    def __init__(self, *, now_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__(now_ms=now_ms)
        self.shortened: set[_FileNode] = set()
        """Files that were truncated since their last sync: only these may come back shorter."""
        self._dropped: dict[_FileNode, list[tuple[int, int]]] = {}
        """The ranges of a file that failed syncs dropped, [start, end)."""
        self.on_named: Callable[[str, str], None] = lambda path, former: None
        """Called with its new and its former path after a file was renamed, or written with
        `write_atomic`, without a former one then."""

        self.interrupted: Random | None = None
        """Set as the process dies: how much is done of the operation that it dies in."""

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.on_named(target, source)

    def part_done(self, most: int) -> int:
        """Return how much of the current operation a process that dies has done: once, then 0."""
        random, self.interrupted = self.interrupted, None
        return 0 if random is None else random.randrange(most + 1)

    def rmtree(self, path: str) -> None:
        try:
            super().rmtree(path)
        except ProcessDied:
            random, directory = self.interrupted, self._find(path)
            if random is not None and isinstance(directory, _Directory) and not self.is_link(path):
                names = sorted(directory.entries)
                random.shuffle(names)  # In no order: that of the file system.
                for name in names[: self.part_done(len(names))]:
                    del directory.entries[name]
            raise

    def write_atomic(self, path: str, data: bytes) -> None:
        try:
            super().write_atomic(path, data)
        except ProcessDied:
            if self.interrupted is not None:
                directory, name = self._parent(path)
                written = bytearray(data[: self.part_done(self._room(len(data)))])
                directory.entries[name + TEMPORARY] = _FileNode(written, modified_ms=self.now_ms())
            raise
        self.on_named(path, "")

    def drop_dirty(self, node: _FileNode) -> None:
        """Drop the unsynced bytes of a file: no later sync writes them."""
        start = _common(bytes(node.data), node.synced)
        self._dropped.setdefault(node, []).append((start, len(node.data)))

    def written_of(self, node: _FileNode) -> bytes:
        """Return a file's content on disk after a sync, without the dropped ranges."""
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
        self.interrupted = None
        self.open_files = 0
        super().kill()

    def settle(self) -> None:
        """Make everything durable, as after an installation."""
        _settle(self._root)

    def used_bytes(self) -> int:
        """Return the bytes of all files."""
        return _used(self._root)

    def partition_dirs_in(
        self, path: str, *, durable: bool = False
    ) -> list[tuple[PartitionDir, object]]:
        """Return the partition directories below a path, by name, and count no operation.

        With each comes an object that identifies the directory across renames.
        `durable`: those that survive a loss of power for certain.
        """
        parent = self._find(path)
        if not isinstance(parent, _Directory):
            return []
        found: list[tuple[PartitionDir, object]] = []
        for name, node in sorted((parent.durable if durable else parent.entries).items()):
            parsed = _partition_dir_name(name)
            if (
                parsed is not None
                and parsed.topic != METADATA_TOPIC
                and isinstance(node, _Directory)
            ):
                found.append((PartitionDir(name, *parsed, _topic_id(node)), node))
        return found

    def files_in(self, path: str) -> dict[str, bytes]:
        """Return the files of a directory as a process reads them, and count no operation."""
        directory = self._find(path)
        entries = directory.entries if isinstance(directory, _Directory) else {}
        return {
            name: bytes(node.data) for name, node in entries.items() if isinstance(node, _FileNode)
        }

    def data_of(self, path: str) -> bytearray:
        """Return what a file holds, not to be changed, and count no operation."""
        node = self._find(path)
        return node.data if isinstance(node, _FileNode) else bytearray()

    def is_durable(self, path: str) -> bool:
        """Tell whether a file's content survives a loss of power for certain, its name aside."""
        node = self._find(path)
        return not isinstance(node, _FileNode) or node.data == node.synced

    def is_named_durably(self, path: str) -> bool:
        """Tell whether a file has this name after a loss of power, too."""
        directory, name = self._parent(path)
        return directory.durable.get(name) is directory.entries.get(name)

    def durable_files_in(self, path: str) -> dict[str, bytes]:
        """Return what a loss of power leaves for certain of the files of a directory, by name."""
        directory = self._find(path)
        if not isinstance(directory, _Directory):
            return {}
        return {
            name: node.synced
            for name, node in directory.durable.items()
            if isinstance(node, _FileNode) and directory.entries.get(name) is node
        }

    def durable_data_of(self, path: str) -> bytes:
        """Return what a loss of power leaves for certain of a file, by whatever name."""
        node, parent = self._find(path), self._find(path.rpartition("/")[0])
        if not isinstance(node, _FileNode) or not isinstance(parent, _Directory):
            return b""
        return node.synced if any(node is each for each in parent.durable.values()) else b""

    def lose_power(self, random: Random) -> int:
        """Lose any part of what was not synced; return how many files and directories changed."""
        self._forget_dropped()
        self.interrupted = None
        self.open_files = 0
        self._locked.clear()
        changed = _lose(self._root, random, self.shortened)
        self.shortened.clear()
        return changed


_partition_dir_name = lru_cache(maxsize=4096)(parse_partition_dir_name)
"""Directories are listed thousands of times a history, with few different names."""


def _topic_id(directory: _Directory) -> Uuid | None:
    file = directory.entries.get(PARTITION_METADATA)
    return _written_topic_id(bytes(file.data)) if isinstance(file, _FileNode) else None


@lru_cache(maxsize=4096)
def _written_topic_id(data: bytes) -> Uuid | None:
    try:
        return decode_partition_metadata(data)
    except MalformedFile:
        return None


def _settle(directory: _Directory) -> None:
    for node in directory.entries.values():
        if isinstance(node, _Directory):
            _settle(node)
        else:
            node.synced = bytes(node.data)
    directory.durable = dict(directory.entries)


def _used(directory: _Directory) -> int:
    return sum(
        _used(node) if isinstance(node, _Directory) else len(node.data)
        for node in directory.entries.values()
    )


def _lose(directory: _Directory, random: Random, shortened: set[_FileNode]) -> int:
    changed = 0
    if directory.entries != directory.durable:
        changed += 1
        directory.entries = _some_names(directory, random)
    for node in directory.entries.values():
        if isinstance(node, _Directory):
            changed += _lose(node, random, shortened)
        elif node.data != node.synced:
            changed += 1
            before = node.synced
            node.data = _torn(bytes(node.data), before, random)
            if node not in shortened:
                # A file that was only overwritten keeps its length.
                node.data += before[len(node.data) :]
            node.synced = bytes(node.data)
    directory.durable = dict(directory.entries)
    return changed


def _some_names(directory: _Directory, random: Random) -> "dict[str, _FileNode | _Directory]":
    """Return possible entries after a power loss: each changed one as before or as after.

    A renamed file is never under both names, nor under none.
    """
    before, after = directory.durable, directory.entries
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
    node: "_FileNode | _Directory | None",
    before: "dict[str, _FileNode | _Directory]",
    after: "dict[str, _FileNode | _Directory]",
) -> str | None:
    for name, each in after.items():
        if each is node and before.get(name) is not node:
            return name
    return None


def _torn(data: bytes, synced: bytes, random: Random) -> bytearray:
    """Return possible content of a file with unsynced changes after a power loss."""
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
    """Return the length of the common prefix."""
    whole = min(len(data), len(synced))
    if data[:whole] == synced[:whole]:
        return whole
    return next(index for index in range(whole) if data[index] != synced[index])
