"""The disk port over the operating system's files.

Appends are positional writes at the end that this object remembers, not `O_APPEND`: on Linux
that flag would also redirect `write_at`, and after a short write the next append covers the torn
bytes. So a file must be appended to through one object at a time. Sync is fdatasync, which makes
the length durable too.

Sources: open(2), pwrite(2) BUGS, fdatasync(2), flock(2).
"""

import contextlib
import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from ottla.base.metrics import latency_ns
from ottla.base.ports import Buffer, is_shortage
from ottla.host.log_dirs.descriptors import SpareDescriptors

VECTORS_MAX: Final = 512
"""Buffers given to one writev; the kernel's limit is 1024 (IOV_MAX)."""

_pwrite = os.pwrite


class OsFile:
    """One open file. See `ottla.base.ports.File`."""

    __slots__ = ("_descriptor", "_end", "_syncs", "path")

    def __init__(self, path: str, descriptor: int, syncs: "SyncTimes") -> None:
        self.path = path
        self._syncs = syncs
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._descriptor

    def read_at(self, position: int, count: int) -> bytes:
        try:
            data = os.pread(self._descriptor, count, position)
            if len(data) == count or not data:
                return data
            return self._read_rest(data, position, count)
        except OSError as error:
            raise self._named(error) from None

    def _read_rest(self, data: bytes, position: int, count: int) -> bytes:
        # A read may come back short before the end of the file, as after a signal.
        parts = [data]
        done = len(data)
        while done < count:
            data = os.pread(self._descriptor, count - done, position + done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def append(self, buffers: Sequence[Buffer]) -> int:
        try:
            if len(buffers) == 1:
                buffer = buffers[0]
                total = len(buffer)
                written = _pwrite(self._descriptor, buffer, self._end)
                if written != total:
                    self._write_rest(memoryview(buffer)[written:], self._end + written)
            else:
                total = self._append_all(buffers)
        except OSError as error:
            raise self._named(error) from None
        self._end += total
        return total

    def _append_all(self, buffers: Sequence[Buffer]) -> int:
        total = 0
        for start in range(0, len(buffers), VECTORS_MAX):
            total += self._append_vectors(buffers[start : start + VECTORS_MAX], self._end + total)
        return total

    def _append_vectors(self, buffers: Sequence[Buffer], position: int) -> int:
        length = sum(map(len, buffers))
        written = os.pwritev(self._descriptor, buffers, position)
        if written != length:
            rest = memoryview(b"".join(buffers))[written:]
            self._write_rest(rest, position + written)
        return length

    def _write_rest(self, rest: memoryview, position: int) -> None:
        while len(rest):
            written = _pwrite(self._descriptor, rest, position)
            if written == 0:
                raise OSError(errno.EIO, "the file system wrote nothing", self.path)
            rest = rest[written:]
            position += written

    def write_at(self, position: int, data: Buffer) -> None:
        try:
            self._write_rest(memoryview(data), position)
        except OSError as error:
            raise self._named(error) from None
        self._end = max(self._end, position + len(data))

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._named(error) from None
        self._end = size

    def sync(self) -> None:
        began_ns = time.perf_counter_ns()
        try:
            os.fdatasync(self.fileno())
        except OSError as error:
            raise self._named(error) from None
        self._syncs.add(time.perf_counter_ns() - began_ns)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _named(self, error: OSError) -> OSError:
        """Return an error of a descriptor with the file's name, for whoever reads the log."""
        error.filename = self.path
        return error


class SyncTimes:
    """How long the syncs of a disk's files took; threads add to it, so it has a lock."""

    __slots__ = ("_lock", "histogram")

    def __init__(self) -> None:
        self.histogram = latency_ns()
        self._lock = threading.Lock()

    def add(self, elapsed_ns: int) -> None:
        """Count one sync."""
        with self._lock:
            self.histogram.observe(elapsed_ns)


class OsDisk:
    """The file systems of this machine. See `ottla.base.ports.Disk`."""

    def __init__(self) -> None:
        self.syncs = SyncTimes()
        self.spares = SpareDescriptors()

    def open(self, path: str, *, create: bool = False, spare: bool = True) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        if spare:
            opened = self.spares.opening(lambda: os.open(path, flags, 0o644))
        else:
            try:
                opened = os.open(path, flags, 0o644)
            except OSError as error:
                if is_shortage(error):
                    self.spares.note(error)
                raise
        return OsFile(path, opened, self.syncs)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(os.stat(path).st_atime_ns, modified_ms * 1_000_000))

    def listdir(self, path: str) -> list[str]:
        return sorted(self.spares.opening(lambda: os.listdir(path)))

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rmtree(self, path: str) -> None:
        # Names may vanish under the walk: another thread removes single files of the same
        # directory.
        while True:
            try:
                if os.path.islink(path):
                    os.unlink(path)
                else:
                    shutil.rmtree(path)
                return
            except FileNotFoundError:
                if not os.path.lexists(path):
                    return

    def sync_dir(self, path: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = self.spares.opening(lambda: os.open(path, flags))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str) -> bytes:
        with self.spares.opening(lambda: open(path, "rb")) as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        try:
            with self.spares.opening(lambda: open(temporary, "wb")) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self.sync_dir(os.path.dirname(path))

    def free_bytes(self, path: str) -> int:
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize

    def total_bytes(self, path: str) -> int:
        state = os.statvfs(path)
        return state.f_blocks * state.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        # flock belongs to the open file, so two holders within one process exclude each other
        # as well, and it ends with the process however that dies.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = self.spares.opening(lambda: os.open(path, flags, 0o644))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        held = [descriptor]

        def release() -> None:
            if held:
                os.close(held.pop())

        return release
