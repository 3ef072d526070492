"""A disk in memory that loses, on a crash, everything that was not synced, and can inject errors.

The durability rules are the strictest that POSIX allows: a file's content and length survive a
crash as of its last `sync`, a name as of the last `sync_dir` of its directory. `crash` may keep a
prefix of what was appended since, as real disks do, so that tests see torn tails.

Every operation first checks `faults`; a rule that matches raises its errno, after the bytes of a
short write. `on_operation` is called before each operation: a simulator delays the process there,
as a slow disk does.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ottla.base.ports import Buffer

OPERATIONS = frozenset(
    {
        "open",
        "read_at",
        "append",
        "write_at",
        "truncate",
        "sync",
        "listdir",
        "mkdir",
        "rename",
        "remove",
        "rmtree",
        "sync_dir",
        "read_bytes",
        "write_atomic",
    }
)
"""The operations that can fail and are counted. `exists` can fail, too; checks of the kind and size
of what is there always work."""

KeepUnsynced = Callable[[str, int], int]
"""Path and count of unsynced appended bytes -> how many of these a crash leaves."""


def keep_nothing(path: str, count: int) -> int:
    return 0


@dataclass(slots=True)
class Fault:
    """Make matching operations fail.

    Fields: `operation`: one of OPERATIONS, "exists", or None = any; `path`: what the path must
            contain; `skip`: how many matches pass first; `times`: how many then fail, None = all;
            `written`: bytes that a failing append writes before it fails.
    """

    number: int = errno.EIO
    operation: str | None = None
    path: str = ""
    skip: int = 0
    times: int | None = 1
    written: int = 0
    hits: int = 0

    def strikes(self, operation: str, path: str) -> bool:
        """Count one operation; tell whether it fails."""
        if self.operation not in (None, operation) or self.path not in path:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


@dataclass(eq=False, slots=True)
class _FileNode:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    modified_ms: int = 0


@dataclass(eq=False, slots=True)
class _Link(_FileNode):
    """A symbolic link: for rename and remove, a file without content."""

    target: str = ""


@dataclass(eq=False, slots=True)
class _Directory:
    entries: dict[str, "_FileNode | _Directory"] = field(default_factory=dict)
    durable: dict[str, "_FileNode | _Directory"] = field(default_factory=dict)


class MemoryFile:
    """An open file; it outlives the removal and renaming of its name, as on POSIX."""

    def __init__(self, disk: "MemoryDisk", path: str, node: _FileNode, number: int) -> None:
        self.path = path
        self.closed = False
        self._disk = disk
        self._node = node
        self._number = number
        self._end = len(node.data)

    def fileno(self) -> int:
        """Return a number that identifies the open file; it is no descriptor."""
        return self._number

    def read_at(self, position: int, count: int) -> bytes:
        self._begin("read_at")
        return bytes(self._node.data[position : position + count])

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        fault = self._begin("append", raising=False)
        room = self._disk._room(len(data))
        if fault is None and room >= len(data):
            self._put(self._end, data)
            self._end += len(data)
            return len(data)
        # A real file keeps what was written before the failure.
        self._put(self._end, data[: min(fault.written, room) if fault else room])
        raise OSError(fault.number if fault else errno.ENOSPC, "append failed", self.path)

    def write_at(self, position: int, data: Buffer) -> None:
        self._begin("write_at")
        grows = max(0, position + len(data) - len(self._node.data))
        if self._disk._room(grows) < grows:
            raise OSError(errno.ENOSPC, "write_at failed", self.path)
        self._put(position, bytes(data))
        self._end = max(self._end, position + len(data))

    def size(self) -> int:
        return len(self._node.data)

    def truncate(self, size: int) -> None:
        self._begin("truncate")
        data = self._node.data
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))
        self._end = size
        self._node.modified_ms = self._disk.now_ms()

    def sync(self) -> None:
        self._begin("sync")
        self._node.synced = bytes(self._node.data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._disk.open_files -= 1

    def _begin(self, operation: str, *, raising: bool = True) -> Fault | None:
        if self.closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._disk._begin(operation, self.path, raising=raising)

    def _put(self, position: int, data: bytes) -> None:
        content = self._node.data
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        self._node.modified_ms = self._disk.now_ms()


class MemoryDisk:
    """See the module. `now_ms` stamps modification times; `capacity` bytes fill the disk."""

    file_type = MemoryFile

    def __init__(
        self, *, now_ms: Callable[[], int] = lambda: 0, capacity: int | None = None
    ) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        self.faults: list[Fault] = []
        self.on_operation: Callable[[str, str], None] | None = None
        self.operations = 0
        self.open_files = 0
        self.open_files_max = 0
        self.descriptors: int | None = None
        """How many files may be open but with spare descriptors; None = any number."""
        self._root = _Directory()
        self._locked: set[str] = set()
        self._opened = 0

    # --- what tests do to it -------------------------------------------------------------

    def fail(self, operation: str | None = None, number: int = errno.EIO, **rule: object) -> Fault:
        """Add a rule of failure and return it; see `Fault`."""
        assert operation is None or operation in OPERATIONS | {"exists"}
        fault = Fault(number=number, operation=operation, **rule)  # type: ignore[arg-type]
        self.faults.append(fault)
        return fault

    def crash(self, keep: KeepUnsynced = keep_nothing) -> None:
        """Lose power: what is not durable is lost, except the prefixes that `keep` grants."""
        self._locked.clear()
        self.faults.clear()
        self._forget(self._root, "", keep)

    def kill(self) -> None:
        """End the process only: nothing written is lost, its locks are released."""
        self._locked.clear()

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Overwrite bytes durably, without an operation."""
        node = self._file(path)
        node.data[position : position + len(data)] = data
        node.synced = bytes(node.data)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link to an absolute path, durably; it may be dangling."""
        directory, name = self._parent(path)
        directory.entries[name] = directory.durable[name] = _Link(target=target)

    def _forget(self, directory: _Directory, path: str, keep: KeepUnsynced) -> None:
        directory.entries = dict(directory.durable)
        for name, node in directory.entries.items():
            below = f"{path}/{name}"
            if isinstance(node, _Directory):
                self._forget(node, below, keep)
                continue
            synced = len(node.synced)
            unsynced = len(node.data) - synced
            kept = b""
            if unsynced > 0 and node.data[:synced] == node.synced:
                count = max(0, min(keep(below, unsynced), unsynced))
                kept = bytes(node.data[synced : synced + count])
            node.data = bytearray(node.synced + kept)
            node.synced = bytes(node.data)

    # --- the port ------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, spare: bool = True) -> MemoryFile:
        self._begin("open", path)
        if not spare and self.descriptors is not None and self.open_files >= self.descriptors:
            raise OSError(errno.EMFILE, "too many open files", path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, _Link):
            node = self._node(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = directory.entries[name] = _FileNode(modified_ms=self.now_ms())
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._opened += 1
        self.open_files += 1
        self.open_files_max = max(self.open_files_max, self.open_files)
        return self.file_type(self, path, node, self._opened)

    def exists(self, path: str) -> bool:
        self._strike("exists", path)
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def is_link(self, path: str) -> bool:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            directory, name = self._parent(path)
            return isinstance(directory.entries.get(name), _Link)
        return False

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def listdir(self, path: str) -> list[str]:
        self._begin("listdir", path)
        return sorted(self._directory(path).entries)

    def mkdir(self, path: str) -> None:
        self._begin("mkdir", path)
        directory = self._root
        *parents, last = _names(path)
        for name in parents:
            child = self._followed(directory.entries.setdefault(name, _Directory()))
            if not isinstance(child, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "a parent is not a directory", path)
            directory = child
        there = directory.entries.setdefault(last, _Directory())
        if not isinstance(there, _Directory) and not self.is_dir(path):
            raise FileExistsError(errno.EEXIST, "a file has this name", path)

    def rename(self, source: str, target: str) -> None:
        self._begin("rename", source)
        old_directory, old_name = self._parent(source)
        new_directory, new_name = self._parent(target)
        node = old_directory.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        there = new_directory.entries.get(new_name)
        if isinstance(there, _Directory) and not isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "the target is a directory", target)
        if isinstance(there, _FileNode) and isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "the target is not a directory", target)
        if isinstance(there, _Directory) and there.entries:
            raise OSError(errno.ENOTEMPTY, "the target is a directory that is not empty", target)
        del old_directory.entries[old_name]
        new_directory.entries[new_name] = node

    def remove(self, path: str) -> None:
        self._begin("remove", path)
        try:
            directory, name = self._parent(path)
        except FileNotFoundError:
            return
        if isinstance(directory.entries.get(name), _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        directory.entries.pop(name, None)

    def rmtree(self, path: str) -> None:
        self._begin("rmtree", path)
        try:
            directory, name = self._parent(path)
        except FileNotFoundError:
            return
        node = directory.entries.get(name)
        if isinstance(node, _FileNode) and not isinstance(node, _Link):
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", path)
        directory.entries.pop(name, None)

    def sync_dir(self, path: str) -> None:
        self._begin("sync_dir", path)
        directory = self._directory(path)
        directory.durable = dict(directory.entries)

    def read_bytes(self, path: str) -> bytes:
        self._begin("read_bytes", path)
        return bytes(self._file(path).data)

    def write_atomic(self, path: str, data: bytes) -> None:
        self._begin("write_atomic", path)
        if self._room(len(data)) < len(data):
            raise OSError(errno.ENOSPC, "write_atomic failed", path)
        directory, name = self._parent(path)
        if isinstance(directory.entries.get(name), _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        node = _FileNode(bytearray(data), data, self.now_ms())
        directory.entries[name] = node
        directory.durable = dict(directory.entries)

    def free_bytes(self, path: str) -> int:
        return self._room(self.total_bytes(path))

    def total_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity is None else self.capacity

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        directory, name = self._parent(path)
        directory.entries.setdefault(name, _FileNode(modified_ms=self.now_ms()))
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    # --- within --------------------------------------------------------------------------

    def _begin(self, operation: str, path: str, *, raising: bool = True) -> Fault | None:
        self.operations += 1
        if self.on_operation is not None:
            self.on_operation(operation, path)
        return self._strike(operation, path, raising=raising)

    def _strike(self, operation: str, path: str, *, raising: bool = True) -> Fault | None:
        for fault in self.faults:
            if fault.strikes(operation, path):
                if raising:
                    raise OSError(fault.number, f"{operation} failed", path)
                return fault
        return None

    def _room(self, wanted: int) -> int:
        if self.capacity is None:
            return wanted
        return max(0, min(wanted, self.capacity - _used(self._root)))

    def _find(self, path: str) -> _FileNode | _Directory | None:
        try:
            return self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _node(self, path: str) -> _FileNode | _Directory:
        return self._walk(_names(path), path)

    def _walk(self, names: tuple[str, ...], path: str) -> _FileNode | _Directory:
        node: _FileNode | _Directory = self._root
        for name in names:
            # The types have no subclasses, and this is done most often.
            if type(node) is not _Directory:
                raise NotADirectoryError(errno.ENOTDIR, "a parent is not a directory", path)
            child = node.entries.get(name)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = self._node(child.target) if type(child) is _Link else child
        return node

    def _followed(self, node: _FileNode | _Directory) -> _FileNode | _Directory:
        return self._node(node.target) if isinstance(node, _Link) else node

    def _file(self, path: str) -> _FileNode:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _directory(self, path: str) -> _Directory:
        return _as_directory(self._node(path), path)

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parents, name = _parents_and_name(path)
        return _as_directory(self._walk(parents, path), path), name


@lru_cache(maxsize=65_536)
def _names(path: str) -> tuple[str, ...]:
    assert path.startswith("/"), path
    return tuple(name for name in path.split("/") if name)


@lru_cache(maxsize=65_536)
def _parents_and_name(path: str) -> tuple[tuple[str, ...], str]:
    *parents, name = _names(path)
    return tuple(parents), name


def _as_directory(node: _FileNode | _Directory, path: str) -> _Directory:
    if not isinstance(node, _Directory):
        raise NotADirectoryError(errno.ENOTDIR, "is not a directory", path)
    return node


def _used(directory: _Directory) -> int:
    return sum(
        _used(node) if isinstance(node, _Directory) else len(node.data)
        for node in directory.entries.values()
    )
