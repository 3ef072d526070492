"""Makes the names of a store's files durable, with as few syncs as that takes.

The name of a file is durable once its directory is synced, and that of each directory above up to
the store's own. A sync writes to the disk even where nothing has changed, and a segment has half a
dozen objects in one directory. So the directories whose names are durable are remembered: their
parents need no sync.

A directory that became empty is removed, maybe by another process, and another one of the same path
may be made, whose name is not durable. So it is not the path that is remembered but the directory,
held open: its inode is no other directory's as long, and it never comes back to its path once it
was removed. So one that was opened before its parent was synced, and is at its path now, was there
all the time.
"""

import contextlib
import os
import threading
from collections import OrderedDict
from typing import Final

REMEMBERED_MAX: Final = 64
"""Each takes a file descriptor. A broker copies few partitions at once."""


class _Directory:
    """An open directory; closed when it is dropped."""

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def is_at(self, path: str) -> bool:
        """Tell whether the path leads to this directory, and not to another one or none."""
        try:
            own, found = os.fstat(self.descriptor), os.stat(path)
        except OSError:  # Also one of a server that knows it no longer.
            return False
        return own.st_nlink > 0 and (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino)


def _synced(path: str) -> _Directory | None:
    with contextlib.suppress(FileNotFoundError):
        directory = _Directory(path)
        directory.sync()
        return directory
    return None


class DurableDirectories:
    """See the module. `root`: the store's own directory. May be used by several threads."""

    def __init__(self, root: str) -> None:
        self._root: Final = root
        self._lock: Final = threading.Lock()
        self._known: OrderedDict[str, _Directory] = OrderedDict()

    def sync(self, path: str) -> None:
        """Make the names in a directory durable, and its own, up to the root. Raises: OSError.

        A directory that is gone has no name in it; it is not an error.
        """
        synced: list[tuple[str, _Directory]] = []
        while True:
            directory = _synced(path)
            if len(path) <= len(self._root) or self._is_known(path):
                break
            if directory is not None:
                synced.append((path, directory))
            path = os.path.dirname(path)
        # Only now: one that is known has durable names all the way up.
        for each, directory in synced:
            self._remember(each, directory)

    def _is_known(self, path: str) -> bool:
        with self._lock:
            known = self._known.get(path)
            if known is not None:
                self._known.move_to_end(path)
        if known is None or known.is_at(path):
            return known is not None
        with self._lock:
            if self._known.get(path) is known:
                del self._known[path]
        return False

    def _remember(self, path: str, directory: _Directory) -> None:
        with self._lock:
            self._known[path] = directory
            self._known.move_to_end(path)
            while len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
