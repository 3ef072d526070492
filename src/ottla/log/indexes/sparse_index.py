"""A sparse index of a segment: pairs of numbers in memory, and the file that holds them.

The offset index and the time index are such (AbstractIndex in Kafka). Keys strictly grow and values
never decrease, so that both are found by binary search; one of the two has offsets, relative to the
segment's base offset.

The active segment's index is in memory and is written to its file when the log is flushed or
rolled; it is not read from there before. Indexes of other segments stay on disk.
"""

from array import array
from bisect import bisect_right
from struct import Struct
from typing import ClassVar, Final, Self

from ottla.base.ports import File, Readable

RELATIVE_OFFSET_MAX: Final = 2**31 - 1

Pair = tuple[int, int]


class SparseIndex:
    """An index in memory, of the segment that starts at `base_offset`.

    Of a class: `NAME`: as errors call it. `FORMAT`: an entry in the file. `VALUE_STEP`: by how much
    a value exceeds the one before at least. `size_max`: bytes that the file may have.
    """

    NAME: ClassVar[str]
    FORMAT: ClassVar[Struct]
    VALUE_STEP: ClassVar[int]

    __slots__ = ("_keys", "_offsets", "_values", "_written", "base_offset", "entries_max")

    def __init__(self, base_offset: int, size_max: int) -> None:
        self.base_offset = base_offset
        self.entries_max = size_max // self.FORMAT.size
        *_, key_type, value_type = list(self.FORMAT.format)
        self._keys = array(key_type)
        self._values = array(value_type)
        self._offsets = self._keys
        """What has offsets: the keys, unless a subclass says otherwise."""
        self._written = 0
        """How many entries the file is known to hold; further bytes are stale."""

    def __len__(self) -> int:
        return len(self._keys)

    def entries(self) -> list[Pair]:
        """Return all (key, value) pairs, with offsets relative to the segment's base offset."""
        return list(zip(self._keys, self._values, strict=True))

    def _append(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        assert 0 <= relative <= RELATIVE_OFFSET_MAX
        return relative

    def _last(self) -> Pair | None:
        return (self._keys[-1], self._values[-1]) if self._keys else None

    def _lookup(self, key: int) -> Pair | None:
        """Return the entry with the largest key not above `key`."""
        slot = bisect_right(self._keys, key)
        return (self._keys[slot - 1], self._values[slot - 1]) if slot else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        keep = bisect_right(self._offsets, offset - 1 - self.base_offset)
        del self._keys[keep:], self._values[keep:]
        self._written = min(self._written, keep)

    def encode(self, first: int = 0) -> bytes:
        """Return the content of the file, from an entry on."""
        pairs = zip(self._keys[first:], self._values[first:], strict=True)
        return b"".join(self.FORMAT.pack(*pair) for pair in pairs)

    def write(self, file: File) -> None:
        """Bring the file up to date. Raises: OSError; it can be retried."""
        count, entry_size = len(self._keys), self.FORMAT.size
        start = self._written * entry_size
        if start < count * entry_size:
            file.write_at(start, self.encode(self._written))
            self._written = count
        if file.size() != count * entry_size:
            file.truncate(count * entry_size)

    @classmethod
    def load(cls, data: bytes, base_offset: int, size_max: int) -> Self:
        """Return the index in a file's content. Raises: ValueError where it is corrupt."""
        if len(data) % (size := cls.FORMAT.size):
            raise ValueError(f"the {cls.NAME} has {len(data)} bytes, not a multiple of {size}")
        index = cls(base_offset, size_max)
        before = (-1, -cls.VALUE_STEP)
        for entry in cls.FORMAT.iter_unpack(data):
            if entry[0] <= before[0] or entry[1] < before[1] + cls.VALUE_STEP:
                raise ValueError(f"{cls.NAME} entry {entry} follows {before}")
            before = entry
            index._append(*entry)
        index._written = len(index)
        return index


def search_file(file: Readable, entry: Struct, key: int) -> Pair | None:
    """Return the entry of an index file with the largest key not above `key`."""
    low, high = 0, file.size() // entry.size  # Entries below `low` are not above the key.
    found = None
    while low < high:
        middle = (low + high) // 2
        data = file.read_at(middle * entry.size, entry.size)
        if len(data) < entry.size:
            high = middle
            continue
        pair = entry.unpack(data)
        if pair[0] <= key:
            found = pair
            low = middle + 1
        else:
            high = middle
    return found


def last_of_file(file: File, entry: Struct) -> Pair | None:
    """Return the last entry of an index file, None where it has none."""
    count = file.size() // entry.size
    return entry.unpack(file.read_at((count - 1) * entry.size, entry.size)) if count else None
