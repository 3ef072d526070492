"""Open files under a bound: descriptors are scarce where partitions are many.

A `Handle` stands for a path. Its file is opened on first use, and closed when more than `capacity`
files are open and it is the least recently used. A pinned handle stays open: slices that are being
sent and flushes in a worker thread hold pins. All of this belongs to the loop; a worker only gets
the `File` of a pinned handle.
"""

from collections import OrderedDict

from ottla.base.ports import Disk, File


class Handle:
    """A file that may or may not be open; `path` follows renames."""

    __slots__ = ("_cache", "_closing", "_file", "_pins", "path")

    def __init__(self, cache: "FileCache", path: str) -> None:
        self.path = path
        self._cache = cache
        self._file: File | None = None
        self._pins = 0
        self._closing = False

    def file(self, *, create: bool = False) -> File:
        """Return the open file, opening it where needed; valid until another file is opened."""
        file = self._file
        if file is None:
            return self._cache._open(self, create)
        if not self._pins:
            self._cache._idle.move_to_end(self)
        return file

    def pin(self) -> File:
        """Return the open file and keep it open until `unpin`."""
        file = self.file()
        if not self._pins:
            self._cache._pinned(self)
        self._pins += 1
        return file

    def unpin(self) -> None:
        """Release one pin."""
        assert self._pins > 0
        self._pins -= 1
        if self._pins == 0:
            self._cache._unpinned(self)
            if self._closing:
                self.close()

    def close(self) -> None:
        """Close the file, at once or with the last pin; a later use opens it again."""
        if self._pins > 0:
            self._closing = True
            return
        self._closing = False
        file, self._file = self._file, None
        if file is not None:
            self._cache._idle.pop(self, None)
            file.close()

    def moved(self, path: str) -> None:
        """Take over the new path of a renamed file; it stays open."""
        self.path = path
        if self._file is not None:
            self._file.path = path

    @property
    def is_open(self) -> bool:
        return self._file is not None


class FileCache:
    """The bound on open files, shared by all logs of a node."""

    def __init__(self, disk: Disk, capacity: int) -> None:
        assert capacity > 0
        self.disk = disk
        self.capacity = capacity
        self._idle: OrderedDict[Handle, None] = OrderedDict()
        """Open handles without a pin, least recently used first."""
        self._pinned_count = 0

    def handle(self, path: str) -> Handle:
        """Return a handle for `path`. One path must have one handle only."""
        return Handle(self, path)

    def __len__(self) -> int:
        return len(self._idle) + self._pinned_count

    def _open(self, handle: Handle, create: bool) -> File:
        self._make_room(self.capacity - 1)
        handle._file = file = self.disk.open(handle.path, create=create)
        handle._closing = False
        self._idle[handle] = None
        return file

    def _pinned(self, handle: Handle) -> None:
        del self._idle[handle]
        self._pinned_count += 1

    def _unpinned(self, handle: Handle) -> None:
        self._pinned_count -= 1
        self._idle[handle] = None  # Files above the bound are closed when the next one is opened.

    def _make_room(self, limit: int) -> None:
        """Close idle files until at most `limit` are open; pinned ones may exceed the bound."""
        while self._idle and len(self) > limit:
            next(iter(self._idle)).close()


class FileSlice:
    """`length` bytes of `file` from `position`, pinned until `release` is called.

    The bytes do not change while the slice is pinned, though the file may be deleted. A follower's
    log may be truncated meanwhile: a host that finds the file shorter closes the connection.
    """

    __slots__ = ("_handle", "file", "length", "position")

    def __init__(self, handle: Handle, position: int, length: int) -> None:
        self.file: File = handle.pin()
        self.position = position
        self.length = length
        self._handle: Handle | None = handle

    def read(self) -> bytes:
        """Return the bytes; fewer only where the file was truncated meanwhile."""
        return self.file.read_at(self.position, self.length)

    def release(self) -> None:
        """Unpin the file; idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.unpin()

    def __len__(self) -> int:
        return self.length
