"""Open files under a bound: descriptors are scarce where partitions are many.

A `Handle` stands for a path. Its file is opened on first use, and closed when more than `capacity`
files are open and it is the least recently used. A pinned handle stays open: slices that are being
sent and flushes in a worker thread hold pins. All of this belongs to the loop; a worker only gets
the `File` of a pinned handle.

Pins are bounded, too, so that neither a fetch nor a flush of many partitions, nor peers that read
their responses slowly, take the descriptors of all others. Slices pin up to half of `capacity`; the
records that one more would have are copied (`FileCache.slice`). Flushes pin up to a quarter; others
wait (`FlushQueue`). The rest can always be closed.

If the process, or the machine, is out of descriptors all the same, idle files are closed. Where
there are none, a file is opened with a spare descriptor, and not pinned.
"""

from collections import OrderedDict
from itertools import islice

from ottla.base.errors import ApiError, Error
from ottla.base.limits import COPIED_BYTES_MAX
from ottla.base.ports import Disk, File, is_shortage
from ottla.log.flush_queue import FlushQueue


class OutOfDescriptors(ApiError):
    """A file cannot be opened for want of a descriptor: nothing has failed, a retry may succeed."""

    def __init__(self, path: str) -> None:
        super().__init__(Error.KAFKA_STORAGE_ERROR, f"No file descriptor is left to open {path}.")


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
        file = self._file
        if not self._pins:
            if file is None or self._cache.is_short:
                file = self._cache._open_to_pin(self)
            self._cache._pinned(self)
        assert file is not None
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
    """The bound on open files, shared by all logs of a node.

    Fields: `flushes`: the turns of flushes; `is_short`: the last file could be opened with a spare
            descriptor only, or not at all.
    """

    def __init__(self, disk: Disk, capacity: int) -> None:
        assert capacity > 0
        self.disk = disk
        self.capacity = capacity
        self.flushes = FlushQueue(capacity // 4)
        self.is_short = False
        self._idle: OrderedDict[Handle, None] = OrderedDict()
        """Open handles without a pin, least recently used first."""
        self._pinned_count = 0

    def handle(self, path: str) -> Handle:
        """Return a handle for `path`. One path must have one handle only."""
        return Handle(self, path)

    def slice(
        self, handle: Handle, position: int, length: int, first_size: int
    ) -> "FileSlice | SliceCopy":
        """Return `length` bytes from `position`: a slice, or a copy where no more may be pinned.

        A copy is cut to COPIED_BYTES_MAX, but not within its first batch, of `first_size` bytes.
        """
        if not handle._pins and self._pinned_count >= self.capacity // 2:
            return self._copy(handle, position, length, first_size)
        try:
            return FileSlice(handle, position, length)
        except OutOfDescriptors:
            return self._copy(handle, position, length, first_size)

    def _copy(self, handle: Handle, position: int, length: int, first_size: int) -> "SliceCopy":
        length = min(length, max(first_size, COPIED_BYTES_MAX))
        return SliceCopy(handle.file().read_at(position, length))

    def __len__(self) -> int:
        return len(self._idle) + self._pinned_count

    def _open(self, handle: Handle, create: bool, spare: bool = True) -> File:
        self._make_room(self.capacity - 1)
        handle._file = file = self._open_file(handle.path, create, spare)
        handle._closing = False
        self._idle[handle] = None
        return file

    def _open_file(self, path: str, create: bool, spare: bool) -> File:
        """Open a file. In a shortage half of the idle ones are closed, as others need descriptors,
        too; then half of the rest, until it can be opened. Raises: OSError, OutOfDescriptors.
        """
        with_spare = False
        while True:
            try:
                file = self.disk.open(path, create=create, spare=with_spare)
            except OSError as error:
                if not is_shortage(error):
                    raise
                if with_spare or not (self._idle or spare):
                    self.is_short = True
                    raise OutOfDescriptors(path) from error
                with_spare = not self._idle
                for handle in tuple(islice(self._idle, (len(self._idle) + 1) // 2)):
                    handle.close()
            else:
                self.is_short = with_spare
                return file

    def _open_to_pin(self, handle: Handle) -> File:
        """Open a file that is to stay open: not with a spare descriptor, as it may be now."""
        handle.close()
        return self._open(handle, create=False, spare=False)

    def _pinned(self, handle: Handle) -> None:
        del self._idle[handle]
        self._pinned_count += 1

    def _unpinned(self, handle: Handle) -> None:
        self._pinned_count -= 1
        self._idle[handle] = None  # Files above the bound are closed when the next one is opened.

    def _make_room(self, limit: int) -> None:
        """Close idle files until at most `limit` are open."""
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


class SliceCopy(bytes):
    """The bytes of a slice in memory, used as a `FileSlice` is: it pins nothing."""

    __slots__ = ()

    @property
    def length(self) -> int:
        return len(self)

    def read(self) -> bytes:
        """Return the bytes."""
        return self

    def release(self) -> None:
        """Do nothing."""
