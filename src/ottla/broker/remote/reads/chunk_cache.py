"""Segments' bytes in chunks: aligned ranges of objects, shared by all readers of a broker.

A store answers a request for 4 MiB nearly as fast as one for 4 KiB, and a consumer that reads old
data reads on. So whole chunks are read and kept in memory, and the chunk behind a sequential
reader's is read ahead when the store has room for another call.
"""

from functools import partial

from ottla.base.object_store import StoreError
from ottla.base.ports import Buffer
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.reads.byte_cache import ByteCache
from ottla.broker.remote.reads.range_reads import RangeRead, RangeReads
from ottla.records.batch import HEADER_SIZE

CHUNK_BYTES = 4 * 1024 * 1024

CHUNK_CACHE_BYTES_MAX = 64 * 1024 * 1024

Key = tuple[str, int]
"""Object name, number of the chunk."""


class ChunkCache:
    """The chunks. `kept`: those in memory; `read_ahead_count`: how many were read ahead."""

    def __init__(
        self,
        reads: RangeReads,
        *,
        bytes_max: int = CHUNK_CACHE_BYTES_MAX,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._reads = reads
        self._chunk_bytes = chunk_bytes
        self.scan_bytes = max(HEADER_SIZE, chunk_bytes // 64)
        """Bytes to scan for headers at a time: more than an index interval and a batch, mostly,
        and little of a chunk, so that few scans need the next one."""
        self.kept: ByteCache[Key] = ByteCache(bytes_max)
        self.read_ahead_count = 0

    def read(self, name: str, size: int, start: int, end: int) -> Dialogue[bytes]:
        """Return the bytes [start, end) of an object of `size` bytes.

        Fewer where the object is shorter than its size. Raises: StoreFailed.
        """
        assert 0 <= start < end <= size
        pieces: list[Buffer] = []
        for number in range(start // self._chunk_bytes, (end - 1) // self._chunk_bytes + 1):
            chunk = yield from self._chunk(name, size, number)
            begins = number * self._chunk_bytes
            # Copied at once, so that no reader holds a chunk which the cache has let go.
            pieces.append(bytes(memoryview(chunk)[max(0, start - begins) : max(0, end - begins)]))
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def read_ahead(self, name: str, size: int, position: int) -> None:
        """Begin to read the chunk behind the one of `position`, if no other read has to wait."""
        number = position // self._chunk_bytes + 1
        start, length = self._range(size, number)
        if length <= 0 or (name, number) in self.kept or self._reads.is_busy:
            return
        read = self._reads.join(name, start, length)
        self.read_ahead_count += 1
        read.result.then(partial(self._came_ahead, (name, number), read))

    def forget(self, name: str, size: int) -> None:
        """Drop an object's chunks: its bytes were not what they should be."""
        for number in range(size // self._chunk_bytes + 1):
            self.kept.drop((name, number))

    def _chunk(self, name: str, size: int, number: int) -> Dialogue[Buffer]:
        kept = self.kept.get((name, number))
        if kept is not None:
            return kept
        start, length = self._range(size, number)
        chunk = yield from self._reads.read(name, start, length)
        self.kept.put((name, number), chunk)
        return chunk

    def _came_ahead(self, key: Key, read: RangeRead, found: Buffer | StoreError) -> None:
        if not isinstance(found, StoreError):
            self.kept.put(key, found)
        self._reads.leave(read)

    def _range(self, size: int, number: int) -> tuple[int, int]:
        start = number * self._chunk_bytes
        return start, min(self._chunk_bytes, size - start)
