"""Moves of objects within a store: no part of the port, which brokers do not need.

In a directory a move is a rename. In other stores it is a copy that the store makes, after which
the caller deletes the source.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import obstore
from obstore.exceptions import BaseError, NotFoundError

from ottla.stores.obstore_backend import s3_store
from ottla.stores.opening import memory_store
from ottla.stores.uri import FileUri, MemoryUri, StoreUri


class MoveError(Exception):
    """An object could not be moved: it is at neither place, or the store fails."""


def move_all(uri: StoreUri, moves: Sequence[tuple[str, str]]) -> None:
    """Move objects, each from one name to another; those that were moved before are left.

    Durable once it returns; may be repeated after a failure. In a store that is no directory the
    sources stay. Raises: MoveError.
    """
    if isinstance(uri, FileUri):
        _rename_all(Path(uri.path), moves)
        return
    store = memory_store(uri.name) if isinstance(uri, MemoryUri) else s3_store(uri)
    for source, target in moves:
        try:
            obstore.copy(store, source, target)
        except (NotFoundError, FileNotFoundError):
            _check_moved(store, source, target)
        except BaseError as error:
            raise MoveError(f"{source} could not be copied: {str(error).splitlines()[0]}") from None


def _check_moved(store: obstore.store.ObjectStore, source: str, target: str) -> None:
    try:
        obstore.head(store, target)
    except (NotFoundError, FileNotFoundError, BaseError):
        raise MoveError(f"neither {source} nor {target} is there") from None


def _rename_all(root: Path, moves: Sequence[tuple[str, str]]) -> None:
    directories: set[Path] = set()
    for source, target in moves:
        begin, end = root / source, root / target
        try:
            end.parent.mkdir(parents=True, exist_ok=True)
            begin.replace(end)
        except FileNotFoundError:
            if not end.exists():
                raise MoveError(f"neither {begin} nor {end} is there") from None
        except OSError as error:
            raise MoveError(f"{begin} could not be renamed: {error.strerror}") from None
        directories |= {end.parent, end.parent.parent}
    for directory in sorted(directories):
        _sync(directory)
    for source, _ in moves:
        _remove_empty(root, (root / source).parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # Some file systems have no such call.
            raise MoveError(f"{directory} could not be synced: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _remove_empty(root: Path, directory: Path) -> None:
    """Remove the directories that became empty; others may be using them."""
    while directory != root:
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent
