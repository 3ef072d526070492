"""The latest offset of each key, in a fixed amount of memory.

An open-addressing table of 24-byte slots: 16 bytes of the key's hash, 8 of the offset. The hash has
a new salt in each cleaning, so that colliding keys cannot be constructed; two keys with the same
hash would lose a record. A slot of zero bytes is free.

Source: SkimpyOffsetMap.
"""

import struct
from hashlib import blake2b
from typing import Final

SLOT: Final = struct.Struct(">16sq")
SLOT_BYTES: Final = SLOT.size
assert SLOT_BYTES == 24
_FREE: Final = bytes(16)


class OffsetMap:
    """The latest offset by key. `capacity`: how many keys it takes before it is full.

    Fields: `memory_bytes`: the table's maximum size; `keys`: an upper bound for the keys, so that
            a small cleaning does not touch a large table.
    """

    __slots__ = ("_data", "_salt", "_slots", "capacity", "size")

    def __init__(self, memory_bytes: int, load_factor: float, *, keys: int, salt: bytes) -> None:
        slots = max(3, memory_bytes // SLOT_BYTES)
        wanted = int(keys / load_factor) + 3
        self._slots = _prime_not_above(slots) if wanted >= slots else _prime_from(wanted)
        self._data = bytearray(self._slots * SLOT_BYTES)
        self._salt = salt[:64]
        # One slot stays free, or a search for a missing key would not end.
        self.capacity = min(max(1, int(self._slots * load_factor)), self._slots - 1)
        self.size = 0

    def has_room_for(self, count: int) -> bool:
        """Tell whether that many more keys fit, all of them new."""
        return self.size + count <= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of `key`; a new one must have room."""
        digest = self._digest(key)
        slot = self._find(digest)
        if self._data[slot : slot + 16] == _FREE:
            assert self.size < self.capacity
            self.size += 1
        SLOT.pack_into(self._data, slot, digest, offset)

    def get(self, key: bytes) -> int:
        """Return the offset of `key`; -1 = it was never put."""
        found: bytes
        offset: int
        found, offset = SLOT.unpack_from(self._data, self._find(self._digest(key)))
        return -1 if found == _FREE else offset

    def _digest(self, key: bytes) -> bytes:
        digest = blake2b(key, digest_size=16, key=self._salt).digest()
        return digest if digest != _FREE else b"\1" * 16

    def _find(self, digest: bytes) -> int:
        """Return the position of the digest's slot, or of the free one that it would take."""
        data, slots = self._data, self._slots
        index = int.from_bytes(digest[:8], "big") % slots
        step = 1 + int.from_bytes(digest[8:], "big") % (slots - 1)
        while True:
            at = index * SLOT_BYTES
            found = data[at : at + 16]
            if found in (digest, _FREE):
                return at
            # A prime number of slots: every step reaches all of them.
            index = (index + step) % slots


def _is_prime(number: int) -> bool:
    if number < 4:
        return number > 1
    return number % 2 != 0 and all(number % odd for odd in range(3, int(number**0.5) + 1, 2))


def _prime_not_above(number: int) -> int:
    return next(each for each in range(number, 1, -1) if _is_prime(each))


def _prime_from(number: int) -> int:
    while not _is_prime(number):
        number += 1
    return number
