"""Slices of files that a read returns, for the host to send without copying them."""

from ottla.base.ports import File
from ottla.log.file_cache import Handle


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
