"""Segments' indexes from the store, whole and in memory, within a limit in bytes.

Kafka keeps them in files, in `remote-log-index-cache`; in memory they need no cleaning after a
crash, and nothing can be deleted beneath a reader (KAFKA-15481). Source: RemoteIndexCache.
"""

from ottla.base.object_store import Failure
from ottla.base.ports import Buffer
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.reads.byte_cache import ByteCache
from ottla.broker.remote.reads.range_reads import RangeReads, StoreFailed

INDEX_CACHE_BYTES_MAX = 64 * 1024 * 1024

INDEX_BYTES_MAX = 64 * 1024 * 1024
"""The largest index: six times the default of segment.index.bytes."""


class IndexContent:
    """An index as a file that is read at positions, for the searches of `ottla.log`."""

    __slots__ = ("_data",)

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)

    def size(self) -> int:
        """Return the length in bytes."""
        return len(self._data)

    def read_at(self, position: int, count: int) -> bytes:
        """Return up to `count` bytes at `position`."""
        return bytes(self._data[position : position + count])


class IndexCache:
    """The indexes by object name."""

    def __init__(self, reads: RangeReads, *, bytes_max: int = INDEX_CACHE_BYTES_MAX) -> None:
        self._reads = reads
        self.kept: ByteCache[str] = ByteCache(bytes_max)

    def read(self, name: str) -> Dialogue[Buffer]:
        """Return an index's content. Raises: StoreFailed."""
        kept = self.kept.get(name)
        if kept is not None:
            return kept
        try:
            data = yield from self._reads.read(name, 0, INDEX_BYTES_MAX)
        except StoreFailed as failed:
            # No range of an empty object can be read.
            if failed.error.failure is not Failure.INVALID:
                raise
            data = b""
        self.kept.put(name, data)
        return data

    def put_empty(self, name: str) -> None:
        """Note that a segment has no such index."""
        self.kept.put(name, b"")
