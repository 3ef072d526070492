"""The bytes of a connection that this node opened: frames out, whole responses in.

A response that does not fit the small buffer is received straight into one of its own, so that
the megabytes of a follower's fetch are not copied on their way. That buffer is used again for the
next large response: bytes of a response are valid only until its receiver returns.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.base import limits
from ottla.base.ports import Buffer

SMALL_BYTES: Final = 32 * 1024
SIZE_BYTES: Final = 4
SMALL_IN_A_ROW_MAX: Final = 16
"""After so many small responses the large buffer is given back."""


class ClientProtocol(asyncio.BufferedProtocol):
    """Cuts what arrives into responses."""

    def __init__(self, received: Callable[[Buffer], None], lost: Callable[[str], None]) -> None:
        self._on_response = received
        self._on_lost = lost
        self._transport: asyncio.Transport | None = None
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._filled = 0
        self._body: memoryview | None = None
        """The response under way where it is a large one; `_filled` counts its bytes then."""
        self._spare = bytearray()
        self._small_in_a_row = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @property
    def connected(self) -> bool:
        """Tell whether bytes can still be sent."""
        return self._transport is not None

    def write(self, frame: bytes) -> None:
        """Send one frame."""
        if self._transport is not None:
            self._transport.write(frame)

    def abort(self) -> None:
        """End the connection at once: nothing can be sent any more; `lost` follows."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: no further than the end of a large response."""
        return (self._small if self._body is None else self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on every complete response."""
        self._filled += nbytes
        body = self._body
        if body is None:
            self._cut_small()
        elif self._filled == len(body):
            self._body, self._filled = None, 0
            self._on_response(body)

    def _cut_small(self) -> None:
        position, end = 0, self._filled
        small = self._small
        responses: list[bytes] = []
        while end - position >= SIZE_BYTES:
            start = position + SIZE_BYTES
            size = int.from_bytes(small[position:start], "big", signed=True)
            if not SIZE_BYTES <= size <= limits.REQUEST_BYTES_MAX:
                self.abort()
                return
            if end - start < size:
                break
            position = start + size
            responses.append(bytes(small[start:position]))
        self._keep_rest(position, end)
        for response in responses:
            self._small_in_a_row += 1
            if self._small_in_a_row == SMALL_IN_A_ROW_MAX:
                self._spare = bytearray()
            self._on_response(response)

    def _keep_rest(self, position: int, end: int) -> None:
        """Keep an incomplete response, in a buffer of its own if it is large."""
        left = end - position
        small = self._small
        start = position + SIZE_BYTES
        size = int.from_bytes(small[position:start], "big") if left >= SIZE_BYTES else 0
        if SIZE_BYTES + size <= SMALL_BYTES:
            small[:left] = bytes(small[position:end])
            self._filled = left
            return
        self._small_in_a_row = 0
        if len(self._spare) < size:
            self._spare = bytearray(size)
        self._body = memoryview(self._spare)[:size]
        self._filled = left - SIZE_BYTES
        self._body[: self._filled] = small[start:end]

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the channel."""
        self._transport = None
        self._on_lost(f"the connection broke: {error}" if error else "the connection was closed")
