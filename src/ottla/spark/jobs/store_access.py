"""An object store as a job reads it: a session that may find nothing."""

from ottla.base.ports import Buffer
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession


class StoreAccess(StoreSession):
    """One store. Use as a context manager. `timeout_s`: how long an operation is repeated.

    Raises: OptionError for the URI; RemoteStorageError.
    """

    def __init__(self, uri: str, timeout_s: float = 60.0) -> None:
        super().__init__(uri, timeout_ms=int(timeout_s * 1_000))

    def __enter__(self) -> "StoreAccess":
        return self

    def read_or_none(self, name: str, start: int, length: int) -> Buffer | None:
        """As `read`; None = there is no such object."""
        try:
            return self.read(name, start, length)
        except ObjectMissingError:
            return None
