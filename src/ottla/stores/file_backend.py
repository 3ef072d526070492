"""Objects as files below a directory, local or mounted.

An object is written to a temporary file beside its name, synced, and then renamed (or linked, where
it must not replace another); the directories are synced too. So an object is there whole or not at
all, also after a power loss. Names of temporary files contain `#`, which no object's name has.

Operations block, so each runs in a thread of its own (`daemon_threads`); the pools of
`ottla.stores.store` bound them. A mount that hangs does not keep the process from ending.

A thread cannot be cancelled, and a mount may hang for longer than an operation's caller waits:

1. A put hangs, and is answered at its deadline. The caller gives the copy up.
2. The object is deleted, and deleted once more when no late write is possible any more.
3. The mount is back, and the put goes on. Nobody would know of this object.

So a thread looks whether its operation was given up: before each piece that it copies, before it
gives the object its name, and before it removes one. Only a rename that hangs itself comes late.
"""

import asyncio
import contextlib
import errno
import heapq
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ottla.base.object_store import Failure, FileSource, ObjectInfo, Page, Source, StoreError
from ottla.base.ports import Buffer
from ottla.stores.backend import OperationFailed
from ottla.stores.daemon_threads import DaemonThreads
from ottla.stores.durable_directories import DurableDirectories
from ottla.stores.file_copies import Check, copy_file

T = TypeVar("T")

UNFINISHED_SECONDS_MAX: Final = 24 * 3600
"""A temporary file that old belongs to a process that died, also if the hosts' clocks differ."""

STALLED_SECONDS_MIN: Final = 60
"""A temporary file that was not written to for so long is removed with its object: its writer has
died, or hangs. Objects that may be written late are deleted again after a longer time."""

CREATE_ATTEMPTS: Final = 20
"""Directories that became empty are removed, maybe just before a file is created in them."""

_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_INVALID: Final = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EINVAL})
_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""There is no such file: none can have a name that is too long for the file system."""


class Operation:
    """An operation as its thread sees it. `is_given_up` is set by another one."""

    __slots__ = ("is_given_up",)

    def __init__(self) -> None:
        self.is_given_up = False

    def check(self) -> None:
        """Raise OperationFailed if it was given up: it must not change anything any more."""
        if self.is_given_up:
            raise OperationFailed(Failure.CANCELLED, "given up")


class FileBackend:
    """The objects below `root`, which the first write creates.

    Without that directory the store is unavailable, not empty: it may be on a mount that is gone,
    and whoever deletes must not take its objects for deleted. So a directory that this process has
    found is not made again: objects in it would vanish when the mount is back.
    """

    def __init__(self, root: str) -> None:
        self._root: Final = root
        self._was_there = False
        """The directory was found, or made."""
        self._threads: Final = DaemonThreads("store-file")
        self._durable: Final = DurableDirectories(root)

    async def put(self, name: str, source: Source) -> None:
        """Write or replace an object."""
        await self._in_thread(lambda it: self._write(it, name, source, replace=True))

    async def put_if_absent(self, name: str, data: Buffer) -> None:
        """Write an object unless it exists."""
        await self._in_thread(lambda it: self._write(it, name, data, replace=False))

    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        """Read a range."""
        return await self._in_thread(lambda _: self._read(name, start, length))

    async def head(self, name: str) -> ObjectInfo:
        """Return size and time."""
        return await self._in_thread(lambda _: _info(name, os.stat(self._path(name))))

    async def list_page(self, prefix: str, after: str, limit: int) -> Page:
        """List objects in the order of their names."""
        return await self._in_thread(lambda _: self._list(prefix, after, limit))

    async def delete_many(self, names: Sequence[str]) -> Mapping[str, StoreError]:
        """Delete objects with their temporary files, and directories that become empty."""
        return await self._in_thread(lambda it: self._delete(it, names))

    async def remove_unfinished(self, prefix: str) -> None:
        """Remove temporary files of any age, and directories that become empty."""
        await self._in_thread(lambda it: self._remove_unfinished(it, prefix))

    async def _in_thread(self, work: Callable[[Operation], T]) -> T:
        """Run `work` in a daemon thread; an OSError becomes an OperationFailed."""
        loop, operation = asyncio.get_running_loop(), Operation()
        ended: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if ended.cancelled():
                return
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result: T | None = None
            failed: BaseException | None = None
            try:
                result = work(operation)
            except OSError as error:
                failed = _failure(error)
            except BaseException as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
                loop.call_soon_threadsafe(settle, result, failed)

        self._threads.run(run)
        try:
            await asyncio.wait({ended})  # Cancelled, it leaves `ended` as it is.
        except asyncio.CancelledError:
            operation.is_given_up = True
            with contextlib.suppress(Exception):
                await ended
            raise
        return ended.result()

    # -- in threads ----------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._root, *name.split("/"))

    def _write(self, operation: Operation, name: str, source: Source, *, replace: bool) -> None:
        path = self._path(name)
        if not replace and os.path.exists(path):
            raise OperationFailed(Failure.EXISTS, name)
        temporary = f"{path}#{secrets.token_hex(8)}"
        descriptor = self._create(temporary)
        try:
            try:
                with os.fdopen(descriptor, "wb", buffering=0) as target:
                    _copy(source, target.fileno(), operation.check)
                    os.fsync(target.fileno())
                operation.check()
                if replace:
                    os.replace(temporary, path)
                else:
                    os.link(temporary, path)
                    os.unlink(temporary)
            except FileExistsError:
                raise OperationFailed(Failure.EXISTS, name) from None
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        self._durable.sync(os.path.dirname(path))

    def _create(self, path: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for attempt in range(CREATE_ATTEMPTS):
            if self._was_there:
                self._check_root()
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                descriptor = os.open(path, flags, 0o644)
                self._was_there = True
                return descriptor
            except (FileNotFoundError, FileExistsError):
                # A directory went before the file, or before `makedirs` looked at it again.
                if attempt == CREATE_ATTEMPTS - 1:
                    raise
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    raise OperationFailed(Failure.INVALID, f"{path}: {error.strerror}") from None
                raise
        raise AssertionError("the last attempt raises")

    def _read(self, name: str, start: int, length: int) -> bytes:
        descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if start >= size:
                raise OperationFailed(Failure.INVALID, f"{name} has {size} bytes, not {start}")
            wanted = min(length, size - start)
            pieces = []
            while wanted > 0:
                piece = os.pread(descriptor, wanted, start)
                if not piece:
                    raise OperationFailed(Failure.UNAVAILABLE, f"{name} became shorter")
                pieces.append(piece)
                start, wanted = start + len(piece), wanted - len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        finally:
            os.close(descriptor)

    def _check_root(self) -> None:
        if not os.path.isdir(self._root):
            raise OperationFailed(Failure.UNAVAILABLE, f"{self._root}: there is no such directory")
        self._was_there = True

    def _list(self, prefix: str, after: str, limit: int) -> Page:
        self._check_root()
        names = _names_below(self._path(prefix) if prefix else self._root, prefix, after)
        infos: list[ObjectInfo] = []
        for name in names:
            if len(infos) == limit:
                return Page(tuple(infos), is_last=False)
            with contextlib.suppress(FileNotFoundError):
                infos.append(_info(name, os.stat(self._path(name))))
        self._check_root()
        return Page(tuple(infos), is_last=True)

    def _delete(self, operation: Operation, names: Sequence[str]) -> dict[str, StoreError]:
        self._check_root()
        failed: dict[str, StoreError] = {}
        deleted: dict[str, set[str]] = {}
        for name in names:
            operation.check()
            path = self._path(name)
            try:
                with _unless_missing():
                    os.unlink(path)
            except OSError as error:
                failed[name] = _failure(error).error
                continue
            directory, file = os.path.split(path)
            deleted.setdefault(directory, set()).add(file)
        for directory in sorted(deleted, reverse=True):
            _remove_unfinished_of(directory, deleted[directory])
            self._prune(directory)
        self._check_root()  # Else what was not found may be there, after all.
        return failed

    def _remove_unfinished(self, operation: Operation, prefix: str) -> None:
        self._check_root()
        directory = self._path(prefix)
        _remove_unfinished_below(directory, operation.check)
        self._prune(directory)
        self._check_root()

    def _prune(self, directory: str) -> None:
        """Remove a directory and those above it that are empty; make what was removed durable."""
        while directory != self._root and _remove_if_empty(directory):
            directory = os.path.dirname(directory)
        _sync_directory(directory)


def _copy(source: Source, target: int, check: Check) -> None:
    """Write a source to a descriptor."""
    if isinstance(source, FileSource):
        copy_file(source, target, check)
        return
    view = memoryview(source).cast("B")
    while view:
        view = view[os.write(target, view) :]


@contextlib.contextmanager
def _unless_missing() -> Iterator[None]:
    """Pass over a file or directory that is not there."""
    try:
        yield
    except OSError as error:
        if error.errno not in _MISSING:
            raise


def _info(name: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(name, status.st_size, status.st_mtime_ns // 1_000_000)


def _names_below(directory: str, name: str, after: str) -> Iterator[str]:
    """Yield the names of all objects of a directory that come after `after`, in order.

    A directory's objects have its name and `/` in front, so that is what it is sorted by.
    """
    keys: list[str] = []
    with _unless_missing(), os.scandir(directory) as entries:
        keys = [
            entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
            for entry in entries
            if "#" not in entry.name
        ]
    heapq.heapify(keys)
    while keys:
        key = heapq.heappop(keys)
        full = f"{name}/{key}" if name else key
        if key.endswith("/"):
            if full > after or after.startswith(full):
                yield from _names_below(os.path.join(directory, key[:-1]), full[:-1], after)
        elif full > after:
            yield full


def _remove_unfinished_of(directory: str, names: Collection[str]) -> None:
    """Remove the temporary files of deleted objects, and those of processes that died."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        now = time.time()
        for entry in entries:
            name, mark, _ = entry.name.partition("#")
            seconds_max = STALLED_SECONDS_MIN if name in names else UNFINISHED_SECONDS_MAX
            if mark and now - entry.stat(follow_symlinks=False).st_mtime > seconds_max:
                os.unlink(entry.path)


def _remove_unfinished_below(directory: str, check: Check) -> None:
    """Remove all temporary files below a directory, and the directories that are empty then."""
    found: list[os.DirEntry[str]] = []
    with _unless_missing(), os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        check()
        if entry.is_dir(follow_symlinks=False):
            _remove_unfinished_below(entry.path, check)
        elif "#" in entry.name:
            with _unless_missing():
                os.unlink(entry.path)
    if not _remove_if_empty(directory):
        _sync_directory(directory)


def _remove_if_empty(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sync_directory(directory: str) -> None:
    """Make what was removed from a directory durable, unless it was removed itself."""
    with _unless_missing():
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _failure(error: OSError) -> OperationFailed:
    number = error.errno or 0
    if number in (errno.ENOENT, errno.ENAMETOOLONG):
        failure = Failure.NOT_FOUND
    elif number in _DENIED:
        failure = Failure.DENIED
    elif number in _INVALID:
        failure = Failure.INVALID
    else:
        failure = Failure.UNAVAILABLE
    return OperationFailed(failure, f"{error.filename}: {error.strerror}")
