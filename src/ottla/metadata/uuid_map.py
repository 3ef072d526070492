"""A persistent map by UUID that can be iterated in order, from any key.

`immutables.Map` keeps no order, so paging through a large one would sort all of it for
each page. Here the keys are kept a second time, sorted, in one part for each value of the first
byte: UUIDs are random, so the parts have equal lengths, and adding or removing a key copies one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from immutables import Map

from ottla.base.ids import NO_UUID, Uuid

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UuidMap(Generic[T]):
    """Values by UUID. Iterating yields them in no order."""

    _values: Map[Uuid, T] = field(default_factory=Map)
    _sorted: Map[int, tuple[Uuid, ...]] = field(default_factory=Map)
    """The keys, by their first byte; no tuple is empty."""

    def get(self, key: Uuid) -> T | None:
        """Return a value, or None."""
        return self._values.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values.values())

    def keys(self) -> Iterator[Uuid]:
        """Yield the keys, in no order."""
        return iter(self._values)

    def after(self, key: Uuid = NO_UUID) -> Iterator[T]:
        """Yield the values whose keys are larger, in the order of these."""
        for first in range(key[0], 256):
            part = self._sorted.get(first, ())
            start = bisect_right(part, key) if first == key[0] else 0
            for each in part[start:]:
                yield self._values[each]

    def set(self, key: Uuid, value: T) -> "UuidMap[T]":
        """Return the map with a value added, or replaced."""
        values = self._values.set(key, value)
        if key in self._values:
            return UuidMap(values, self._sorted)
        part = self._sorted.get(key[0], ())
        at = bisect_left(part, key)
        return UuidMap(values, self._sorted.set(key[0], (*part[:at], key, *part[at:])))

    def delete(self, key: Uuid) -> "UuidMap[T]":
        """Return the map without a value. Raises: KeyError."""
        values = self._values.delete(key)
        part = self._sorted[key[0]]
        at = bisect_left(part, key)
        left = part[:at] + part[at + 1 :]
        rest = self._sorted.set(key[0], left) if left else self._sorted.delete(key[0])
        return UuidMap(values, rest)
