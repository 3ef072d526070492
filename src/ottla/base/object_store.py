"""The port to an object store: single operations, each with a deadline and a cancel handle.

An operation is tried once. Retries, their backoff and what to do with an unknown result belong to
the caller, who knows whether an operation may be repeated. Object names are paths of segments with
`/` between them, relative to the store's prefix.

`ottla.stores` implements the port over real stores, and the simulator with faults; both pass the
checks of `tests/object_store_checks.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from ottla.base.pending import Pending
from ottla.base.ports import Buffer

T = TypeVar("T")

NAMES_PER_DELETE_MAX = 1_000
"""The most names in one `delete_many`: what S3 accepts in one DeleteObjects request."""

OBJECTS_PER_PAGE_MAX = 1_000
"""The most objects in one page of a listing, as in S3's ListObjectsV2."""


class Failure(Enum):
    """Why an operation failed."""

    NOT_FOUND = "not found"
    EXISTS = "exists"
    """Only of `put_if_absent`: an object of that name is there. After an attempt whose result was
    unknown, it may be one's own."""
    DENIED = "denied"
    """Credentials, permissions, a bucket that does not exist: an operator has to act."""
    INVALID = "invalid"
    """The store refuses the operation as such: a bad name, an unsupported condition."""
    SOURCE = "source"
    """The local file to upload could not be read."""
    UNAVAILABLE = "unavailable"
    """No connection, a broken one, a 5xx response, a full or failing disk."""
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    BUSY = "busy"
    """The pool's queue is full; nothing was sent."""


UNKNOWN_RESULTS = frozenset({Failure.UNAVAILABLE, Failure.TIMED_OUT, Failure.CANCELLED})
RETRIABLE = frozenset({Failure.UNAVAILABLE, Failure.TIMED_OUT, Failure.BUSY})


@dataclass(frozen=True, slots=True)
class StoreError:
    """A failed operation; a value, since the caller decides what follows."""

    failure: Failure
    message: str

    @property
    def is_retriable(self) -> bool:
        """Tell whether the same operation may succeed later without anybody's help."""
        return self.failure in RETRIABLE

    @property
    def may_have_happened(self) -> bool:
        """Tell whether a write may have been executed, now or even later."""
        return self.failure in UNKNOWN_RESULTS

    def __str__(self) -> str:
        return f"{self.failure.value}: {self.message}"


class Pool(Enum):
    """Which pool runs an operation: each has its own bounds, so that none starves another."""

    COPIER = "copier"
    EXPIRATION = "expiration"
    FETCHER = "fetcher"
    PURGE = "purge"


@dataclass(frozen=True, slots=True)
class FileSource:
    """A local file as the content of an object: its first `size_bytes` bytes, which are all of it.

    A file of another size when it is read is Failure.SOURCE: it is not the one that was meant.
    """

    path: str
    size_bytes: int


Source = Buffer | FileSource


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing."""

    name: str
    size_bytes: int
    modified_ms: int
    """Wall clock of the store, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, in the order of names.

    `is_last`: no more objects followed when it was made. Else the next page comes after the name
    of the last object of this one.
    """

    objects: tuple[ObjectInfo, ...]
    is_last: bool


class Call(Protocol[T]):
    """An operation under way."""

    @property
    def result(self) -> Pending[T | StoreError]:
        """Return the promise of the result; it is kept on the caller's loop, by the deadline."""
        ...

    def cancel(self) -> None:
        """Give up: the result is Failure.CANCELLED unless it is there. A write may still happen."""
        ...


class ObjectStore(Protocol):
    """One store. `deadline_ms` is monotonic, by the clock that the store was made with."""

    def put(self, name: str, source: Source, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """Write an object, or replace it; whole or not at all. Durable once it succeeds."""
        ...

    def put_if_absent(self, name: str, data: Buffer, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """Write a small object unless one of that name exists: then Failure.EXISTS.

        Of several writers at most one succeeds.
        """
        ...

    def get_range(
        self, name: str, start: int, length: int, *, pool: Pool, deadline_ms: int
    ) -> Call[Buffer]:
        """Read `length` bytes from `start` on; fewer only at the object's end.

        A start at or behind the end is Failure.INVALID; a length of 0 is a bug of the caller.
        """
        ...

    def head(self, name: str, *, pool: Pool, deadline_ms: int) -> Call[ObjectInfo]:
        """Return size and time of an object."""
        ...

    def list_page(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = OBJECTS_PER_PAGE_MAX,
        pool: Pool,
        deadline_ms: int,
    ) -> Call[Page]:
        """Return up to `limit` objects below the directory `prefix`, those after the name `after`.

        A store may list an object late, or still list one that was just deleted.
        """
        ...

    def delete_many(
        self, names: Sequence[str], *, pool: Pool, deadline_ms: int
    ) -> Call[Mapping[str, StoreError]]:
        """Delete objects; return the names that failed, each with its error.

        A missing object counts as deleted. Where the operation fails as a whole, any may be gone.
        """
        ...

    def remove_unfinished(self, prefix: str, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """Remove what is left below the directory `prefix` of writes that did not end.

        It is no object, and no listing shows it. A write there that is under way fails.
        """
        ...


def check_name(name: str) -> None:
    """Assert that a name is one that every store keeps as it is."""
    parts = name.split("/")
    assert all(parts), f"{name!r}: an empty part"
    assert not {".", ".."} & set(parts), f"{name!r}: a relative part"
    assert "#" not in name, f"{name!r}: # marks unfinished files in a directory store"


class SettableCall(Generic[T]):
    """A call whose result an implementation sets, the first one that comes."""

    __slots__ = ("_on_cancel", "result")

    def __init__(self) -> None:
        self.result: Pending[T | StoreError] = Pending()
        self._on_cancel: Callable[[], object] = lambda: None

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """Call `stop` when the caller gives up."""
        self._on_cancel = stop

    def cancel(self) -> None:
        """Give up. See `Call.cancel`."""
        if self.result.complete(StoreError(Failure.CANCELLED, "cancelled by the caller")):
            self._on_cancel()
