"""An object store as a job writes to it: a target directory or bucket, with retries."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ottla.base.object_store import NAMES_PER_DELETE_MAX, Failure, FileSource, Source, StoreError
from ottla.base.ports import Buffer
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.store_access import StoreAccess
from ottla.spark.tiers.store_session import POOL
from ottla.stores.moving import MoveError, move_all
from ottla.stores.uri import FileUri, StoreUri, StoreUriError, parse_store_uri

READ_BYTES_MAX: Final = 256 * 1024 * 1024
SLOWEST_BYTES_PER_S: Final = 1024 * 1024
MOVES_AT_ONCE: Final = 100


def target_uri(text: str, option: str = "to") -> StoreUri:
    """Return the store of a URI, or of a path on this machine. Raises: OptionError."""
    if "://" not in text:
        if not text.strip():
            raise OptionError(f"{option} is empty: expected a directory or s3://BUCKET/PREFIX")
        text = Path(os.path.abspath(text)).as_uri()
    try:
        return parse_store_uri(text)
    except StoreUriError as error:
        raise OptionError(f"{option}: {error}") from None


def absolute(text: str) -> str:
    """Return a target that means the same in other processes, whatever their directories."""
    return text if "://" in text else str(target_uri(text))


class TargetStore(StoreAccess):
    """One target. Use as a context manager. `text`: a URI with its options, or a path.

    Raises: OptionError for the URI; RemoteStorageError.
    """

    def __init__(self, text: str, timeout_s: float = 60.0) -> None:
        self.parsed = target_uri(text)
        super().__init__(absolute(text), timeout_s)

    def __enter__(self) -> "TargetStore":
        return self

    def make_root(self) -> None:
        """Create the directory of a store that is one."""
        if isinstance(self.parsed, FileUri):
            try:
                Path(self.parsed.path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RemoteStorageError(
                    f"the directory {self.parsed.path} could not be created: {error.strerror}"
                ) from None

    def has_root(self) -> bool:
        """Tell whether it may hold anything: whether the directory of such a store is there."""
        return not isinstance(self.parsed, FileUri) or Path(self.parsed.path).is_dir()

    def put(self, name: str, source: Source) -> None:
        """Write an object, or replace it. Durable once it returns."""

        size = source.size_bytes if isinstance(source, FileSource) else len(source)

        def begin() -> Any:
            deadline_ms = self._write_deadline_ms(size)
            return self._store.put(name, source, pool=POOL, deadline_ms=deadline_ms)

        self._check_written(self._retried(begin(), begin), name)

    def _write_deadline_ms(self, size: int) -> int:
        """Return until when one attempt may take: a large object takes long on a slow network."""
        return self._deadline_ms() + size * 1_000 // SLOWEST_BYTES_PER_S

    def put_file(self, name: str, path: str) -> None:
        """Write an object with the content of a local file."""
        self.put(name, FileSource(path, os.path.getsize(path)))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of its name; tell whether it is this one.

        After an attempt without an answer the object may be one's own: `data` must be unique.
        """

        def begin() -> Any:
            return self._store.put_if_absent(name, data, pool=POOL, deadline_ms=self._deadline_ms())

        found = self._retried(begin(), begin)
        if isinstance(found, StoreError) and found.failure is Failure.EXISTS:
            return bytes(self.read_or_none(name, 0, READ_BYTES_MAX) or b"") == data
        self._check_written(found, name)
        return True

    def read_whole(self, name: str) -> bytes | None:
        """Return an object; None = there is none."""
        found: Buffer | None = self.read_or_none(name, 0, READ_BYTES_MAX)
        return None if found is None else bytes(found)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that are missing count as deleted."""
        for begin in range(0, len(names), NAMES_PER_DELETE_MAX):
            some = names[begin : begin + NAMES_PER_DELETE_MAX]
            self._delete(some)

    def _delete(self, names: Sequence[str]) -> None:
        def begin() -> Any:
            return self._store.delete_many(names, pool=POOL, deadline_ms=self._deadline_ms())

        found: Any = self._retried(begin(), begin)
        self._check_written(found, names[0])
        for name, error in sorted(found.items()):
            self._check_written(error, name)

    def move(self, moves: Sequence[tuple[str, str]], report: Callable[[int], object]) -> None:
        """Move objects, each from one name to another; those that were moved before are left.

        `report` gets the number of those that are done, now and then.
        """
        for begin in range(0, len(moves), MOVES_AT_ONCE):
            some = moves[begin : begin + MOVES_AT_ONCE]
            try:
                move_all(self.parsed, some)
            except MoveError as error:
                raise RemoteStorageError(f"{self.uri}: {error}") from None
            report(begin + len(some))
        if not isinstance(self.parsed, FileUri):
            self.delete([source for source, _ in moves])

    def _check_written(self, found: object, name: str) -> None:
        if isinstance(found, StoreError):
            raise RemoteStorageError(f"{self.uri} could not be written: {found} ({name})")
