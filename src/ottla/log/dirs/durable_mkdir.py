"""Directories that a power loss does not take away, with what is durable in them."""

import posixpath

from ottla.base.ports import Disk


def mkdir_durably(disk: Disk, path: str) -> None:
    """Create a directory and its parents, and sync each name. Blocks. Raises: OSError.

    A sync of the directory itself, or of a file in it, does not make its own name durable.
    """
    assert path.startswith("/")
    missing: list[str] = []
    at = path
    while not disk.exists(at):
        missing.append(at)
        at = posixpath.dirname(at)
    disk.mkdir(path)
    for each in missing:
        disk.sync_dir(posixpath.dirname(each))
