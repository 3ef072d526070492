"""An object store as a job lists and reads it: a session with whole listings."""

from collections.abc import Iterator

from ottla.base.object_store import ObjectInfo
from ottla.base.ports import Buffer
from ottla.spark.store_session import ObjectMissingError, StoreSession


class StoreAccess(StoreSession):
    """One store. Use as a context manager. `timeout_s`: how long an operation is repeated.

    Raises: OptionError for the URI; RemoteStorageError.
    """

    def __init__(self, uri: str, timeout_s: float = 60.0) -> None:
        super().__init__(uri, timeout_ms=int(timeout_s * 1_000))

    def __enter__(self) -> "StoreAccess":
        return self

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a directory, by name."""
        while True:
            page = self.list_page(prefix, after)
            yield from page.objects
            if page.is_last or not page.objects:
                return
            after = page.objects[-1].name

    def read_or_none(self, name: str, start: int, length: int) -> Buffer | None:
        """As `read`; None = there is no such object."""
        try:
            return self.read(name, start, length)
        except ObjectMissingError:
            return None
