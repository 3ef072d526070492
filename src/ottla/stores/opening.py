"""Opening a store by its URI."""

from collections.abc import Mapping

from obstore.store import MemoryStore

from ottla.base.object_store import Pool
from ottla.base.ports import Clock
from ottla.stores.backend import Backend
from ottla.stores.event_log import EventLog, RecordedBackend
from ottla.stores.file_backend import FileBackend
from ottla.stores.obstore_backend import ObstoreBackend, s3_store
from ottla.stores.store import PoolLimits, Post, Store
from ottla.stores.uri import FileUri, MemoryUri, StoreUri

_memory: dict[str, MemoryStore] = {}
"""The memory stores of this process, by name: they outlive those who open them."""


def open_store(
    uri: StoreUri,
    *,
    clock: Clock,
    post: Post,
    limits: Mapping[Pool, PoolLimits] | None = None,
    events: EventLog | None = None,
) -> Store:
    """Return the store. Nothing is sent to it yet. Raises: StoreUriError.

    `events`: where to note what succeeds.
    """
    backend = _backend(uri)
    if events is not None:
        backend = RecordedBackend(backend, events)
    return Store(backend, clock=clock, post=post, limits=limits, name=f"store {uri}")


def _backend(uri: StoreUri) -> Backend:
    if isinstance(uri, FileUri):
        return FileBackend(uri.path)
    if isinstance(uri, MemoryUri):
        return ObstoreBackend(memory_store(uri.name))
    return ObstoreBackend(s3_store(uri))


def memory_store(name: str) -> MemoryStore:
    """Return the memory store of a name; it is made where it is not there."""
    return _memory.setdefault(name, MemoryStore())
