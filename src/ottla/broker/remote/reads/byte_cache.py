"""A cache with a limit in bytes, which forgets what was used least recently."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from ottla.base.ports import Buffer

K = TypeVar("K", bound=Hashable)

ENTRY_BYTES = 256
"""What a buffer counts for beyond its bytes, as the key and the entry take memory, too: a segment
without aborted transactions has an empty index."""


class ByteCache(Generic[K]):
    """Buffers by key. Fields: `bytes`: of all, at most `bytes_max`; `hits`, `misses`: of `get`."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: OrderedDict[K, Buffer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def get(self, key: K) -> Buffer | None:
        """Return a buffer and count it as used."""
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return found

    def put(self, key: K, data: Buffer) -> None:
        """Keep a buffer, unless it alone exceeds the limit."""
        self.drop(key)
        if len(data) + ENTRY_BYTES > self.bytes_max:
            return
        self._kept[key] = data
        self.bytes += len(data) + ENTRY_BYTES
        self._shrink()

    def resize(self, bytes_max: int) -> None:
        """Apply another limit; what is beyond it is forgotten."""
        self.bytes_max = bytes_max
        self._shrink()

    def _shrink(self) -> None:
        while self.bytes > self.bytes_max:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= len(oldest) + ENTRY_BYTES

    def drop(self, key: K) -> None:
        """Forget a buffer, if it is kept."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.bytes -= len(found) + ENTRY_BYTES
