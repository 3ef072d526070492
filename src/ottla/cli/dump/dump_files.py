"""Opens files to dump, memory-mapped: a segment may be larger than memory."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.cli.errors import CommandError


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Give a file's content; raise CommandError where it cannot be read."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or 'unreadable').lower()}") from None
    with file:
        if not file.seek(0, 2):
            yield memoryview(b"")
            return
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            yield view


def content_of(path: Path) -> bytes:
    """Return a small file's content; raise CommandError where it cannot be read."""
    with mapped(path) as data:
        return bytes(data)
