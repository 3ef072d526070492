"""The ports of the pure packages: clock, random numbers, disk, workers.

The host implements them over the operating system, the simulator over values from one seed. Work
that can block is given to `Workers`; it ends with a callback on the loop of the caller.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """The wall clock and a monotonic clock."""

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since the epoch; may jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed moment; never goes back."""
        ...


class Dice(Protocol):
    """The only source of random numbers."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes, good enough for UUIDs."""
        ...

    def below(self, bound: int) -> int:
        """Return an integer of [0, bound)."""
        ...


class Workers(Protocol):
    """Threads for work that can block: fsync, recovery, cold reads, unlink."""

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        """Run `work` elsewhere; then call `done` with its result or exception, on the loop."""
        ...


class Readable(Protocol):
    """Bytes that are read at positions."""

    def read_at(self, position: int, count: int) -> bytes:
        """Return up to `count` bytes at `position`; fewer only at the end."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...


class File(Protocol):
    """An open file. Reads and writes are positional or at the end; none moves a cursor."""

    path: str

    def fileno(self) -> int:
        """Return the descriptor, for sendfile."""
        ...

    def read_at(self, position: int, count: int) -> bytes:
        """Return up to `count` bytes at `position`; fewer only at the end of the file."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all of `buffers` at the end; return the bytes written (all, or OSError)."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite at `position`, extending the file where it is shorter."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend to `size` bytes."""
        ...

    def sync(self) -> None:
        """Make content and length durable (fdatasync)."""
        ...

    def close(self) -> None:
        """Release the descriptor; idempotent."""
        ...


SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_shortage(error: BaseException | None) -> bool:
    """Tell whether a file could not be opened for want of a descriptor: no disk has failed."""
    return isinstance(error, OSError) and error.errno in SHORTAGES


def as_failure(shortage: Exception) -> OSError:
    """Return a shortage as the failure of a disk.

    In the middle of a change it leaves neither the old files nor the new ones, as a crash does.
    """
    return OSError(errno.EIO, str(shortage))


class Disk(Protocol):
    """A file system. Paths are absolute; every failure is an OSError with its errno."""

    def open(self, path: str, *, create: bool = False, spare: bool = True) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or `create`.

        `spare`: where no descriptor is left, take one of those set aside for short uses. A file
        that stays open must do without.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists; OSError where that is not known.

        A file that cannot be read must not be taken for a missing one.
        """
        ...

    def is_dir(self, path: str) -> bool:
        """Return whether `path` is a directory, or a link to one."""
        ...

    def is_link(self, path: str) -> bool:
        """Return whether `path` is a symbolic link, with any target."""
        ...

    def size(self, path: str) -> int:
        """Return a file's length in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return when the file's content last changed, in epoch milliseconds."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let a file's content count as last changed then; a sync of the file makes it durable."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents; no error where it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically within a file system."""
        ...

    def remove(self, path: str) -> None:
        """Unlink a file; a missing one counts as done."""
        ...

    def rmtree(self, path: str) -> None:
        """Remove a directory with its content; of a link only the link itself.

        A missing one counts as done.
        """
        ...

    def sync_dir(self, path: str) -> None:
        """Sync a directory: make the names in it durable."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return a small file's content."""
        ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file: temporary file, sync, rename, sync of the directory."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the free bytes of the file system of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system of `path`."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Lock the file at `path`, created where missing; return a function that unlocks it.

        Raises: BlockingIOError where another process, or another holder in this one, has it.
        """
        ...
