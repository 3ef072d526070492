"""A pool of buffers for large frames: new memory costs a page fault for every 4 KB.

A buffer is taken for a frame that does not fit the shared receive buffer and returned once the
frame was handled. Sizes are powers of two; a bounded number of bytes is kept, in buffers of
KEPT_BYTES_MIN and more: smaller ones are cheap to allocate.
"""

from ottla.base import limits

SMALLEST_BYTES = 4 * 1024
KEPT_BYTES_MIN = 1024 * 1024


class FrameBuffers:
    """A pool of bytearrays, shared by the connections of one loop."""

    __slots__ = ("_kept", "_kept_bytes", "_kept_bytes_max")

    def __init__(self, kept_bytes_max: int = limits.FRAME_BUFFERS_KEPT_BYTES_MAX) -> None:
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes, with any content."""
        rounded = SMALLEST_BYTES
        while rounded < size:
            rounded *= 2
        kept = self._kept.get(rounded)
        if kept:
            self._kept_bytes -= rounded
            return kept.pop()
        return bytearray(rounded)

    def give_back(self, buffer: bytearray) -> None:
        """Keep a buffer for the next frame, or drop it where enough are kept."""
        size = len(buffer)
        if size >= KEPT_BYTES_MIN and self._kept_bytes + size <= self._kept_bytes_max:
            self._kept_bytes += size
            self._kept.setdefault(size, []).append(buffer)
