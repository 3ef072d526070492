"""Copies a local file into another one without keeping others from their work for long.

`copy_file_range` passes no bytes through this process: it takes a third less CPU than reading and
writing, and a file system that can share blocks copies nothing. What is copied without a pause is
short: while the kernel copies, the thread keeps its core for a scheduler's slice of some
milliseconds, and a producer whose request comes meanwhile waits for that, where it is one of few
cores.

Source: copy_file_range(2).
"""

import errno
import os
import time
from collections.abc import Callable
from typing import Final

from ottla.base.object_store import Failure, FileSource
from ottla.stores.backend import OperationFailed, check_size

PIECE_BYTES: Final = 512 << 10
"""What is copied without a pause: in a fifth of a millisecond, from the page cache. A pause costs
some 30 µs of CPU."""

PAUSE_SECONDS: Final = 0.0003
"""Between two pieces. Some 800 MB a second are left for each file."""

UNSYNCED_BYTES_MAX: Final = 16 << 20
"""So much is written to the disk before more is copied: a large file must not fill the page cache
with dirty pages, beyond a share of which the kernel delays all who write, the event loop too."""

Check = Callable[[], object]
"""Raises if the copy was given up."""

Copy = Callable[[int, int, int, int], int]
"""Copies from a descriptor to another one: from a position on, so many bytes at most. Returns how
many were copied."""

_UNSUPPORTED: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""The kernel does not copy between these files."""


def copy_file(source: FileSource, target: int, check: Check) -> None:
    """Write the content of a file to the descriptor of an empty one, which is not synced.

    `check`: called before each piece; what it raises ends the copy.
    Raises: OperationFailed where the file is not the one that was meant; OSError.
    """
    try:
        descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OperationFailed(Failure.SOURCE, f"{source.path} does not exist") from None
    try:
        check_size(source, os.fstat(descriptor).st_size)
        _copy_pieces(source, descriptor, target, check)
    finally:
        os.close(descriptor)


def _copy_pieces(source: FileSource, descriptor: int, target: int, check: Check) -> None:
    copy, position, synced = FIRST, 0, 0
    while position < source.size_bytes:
        if position - synced >= UNSYNCED_BYTES_MAX:
            os.fdatasync(target)
            synced = position
        elif position:
            time.sleep(PAUSE_SECONDS)
        check()
        end = min(position + PIECE_BYTES, synced + UNSYNCED_BYTES_MAX, source.size_bytes)
        try:
            copied = copy(descriptor, target, position, end - position)
        except OSError as error:
            if copy is through_buffer or error.errno not in _UNSUPPORTED:
                raise
            copied = 0
        position += copied
        if copied == 0:
            if copy is through_buffer:
                check_size(source, position)  # It became shorter meanwhile.
            copy = through_buffer


def in_kernel(source: int, target: int, position: int, length: int) -> int:
    """See `Copy`. Raises: OSError, also where the kernel cannot do it."""
    return os.copy_file_range(source, target, length, position, position)


def through_buffer(source: int, target: int, position: int, length: int) -> int:
    """See `Copy`. Raises: OSError."""
    piece = memoryview(os.pread(source, length, position))
    copied = len(piece)
    while piece:
        written = os.pwrite(target, piece, position)
        piece, position = piece[written:], position + written
    return copied


FIRST: Final[Copy] = in_kernel if hasattr(os, "copy_file_range") else through_buffer
