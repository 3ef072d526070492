"""The transport of one accepted connection: how its bytes are read and written, and who sends them.

All that a listener's security protocol decides is here. PLAINTEXT is the only one: the bytes are
those of the socket, its peer is anonymous, and files may be sent past this process.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol

from ottla.base.ports import Buffer
from ottla.base.principal import ANONYMOUS, Principal
from ottla.host.log_dirs.descriptors import SocketBudget

Address = tuple[str, int]

UNKNOWN_ADDRESS = ("unknown", 0)

_TCP_CORK: int | None = getattr(socket, "TCP_CORK", None)


class Transport(Protocol):
    """What connections use."""

    principal: Principal
    """Who the peer is, as far as it has authenticated itself."""
    peer: Address
    local: Address
    write: Callable[[Buffer], None]
    """Send bytes, after all that was written before."""
    unsent_bytes: Callable[[], int]
    """Return the written bytes that the system has not taken."""
    pause_reading: Callable[[], None]
    resume_reading: Callable[[], None]
    close: Callable[[], None]
    """Close once all is sent."""
    abort: Callable[[], None]
    """Close at once."""

    def may_sendfile(self) -> bool:
        """Tell whether `sendfile` may be called now; else files are read and written."""
        ...

    def sendfile(self, file: int, position: int, count: int) -> int:
        """Send bytes of a file, past `write`: only while nothing is unsent. Return how many.

        Raises: BlockingIOError where the peer must read first (see `when_writable`); OSError.
        """
        ...

    def cork(self, hold_back: bool) -> None:
        """Send full segments only, or again all at once, also what was held back."""
        ...

    def when_writable(self, call: Callable[[], None]) -> None:
        """Call back each time the socket takes bytes, until `stop_waiting`."""
        ...

    def stop_waiting(self) -> None:
        """End `when_writable`."""
        ...

    def release(self) -> None:
        """Release what it holds besides the socket; the connection is lost."""
        ...


MakeTransport = Callable[[asyncio.Transport, SocketBudget], Transport]
"""Makes the transport of a connection that was accepted; the budget is that of its server."""


class PlainTransport:
    """The transport of a PLAINTEXT listener. See `Transport`.

    sendfile uses a duplicate of the socket, which asyncio's own transport does not write to.
    """

    def __init__(self, transport: asyncio.Transport, sockets: SocketBudget) -> None:
        self.principal = ANONYMOUS
        self.peer: Address = (transport.get_extra_info("peername") or UNKNOWN_ADDRESS)[:2]
        self.local: Address = (transport.get_extra_info("sockname") or UNKNOWN_ADDRESS)[:2]
        # Bound once: every response passes here.
        self.write: Callable[[Buffer], None] = transport.write
        self.unsent_bytes = transport.get_write_buffer_size
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.close = transport.close
        self.abort = transport.abort
        self._transport = transport
        self._sockets = sockets
        self._socket_copy = -1
        self._waits = False
        self._loop = asyncio.get_running_loop()

    def may_sendfile(self) -> bool:
        """Duplicate the socket, once; False where no descriptor is left or the system cannot."""
        if self._socket_copy >= 0:
            return True
        if not hasattr(os, "sendfile") or not self._sockets.take():
            return False
        try:
            self._socket_copy = os.dup(self._transport.get_extra_info("socket").fileno())
        except OSError:
            self._sockets.give_back()
            return False
        return True

    def sendfile(self, file: int, position: int, count: int) -> int:
        """Send bytes of a file."""
        return os.sendfile(self._socket_copy, file, position, count)

    def cork(self, hold_back: bool) -> None:
        """Set TCP_CORK, where the system has it."""
        if _TCP_CORK is not None:
            self._transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, _TCP_CORK, hold_back
            )

    def when_writable(self, call: Callable[[], None]) -> None:
        """Call back each time the socket takes bytes."""
        self._waits = True
        self._loop.add_writer(self._socket_copy, call)

    def stop_waiting(self) -> None:
        """End `when_writable`."""
        if self._waits:
            self._waits = False
            self._loop.remove_writer(self._socket_copy)

    def release(self) -> None:
        """Close the duplicate of the socket."""
        self.stop_waiting()
        if self._socket_copy >= 0:
            os.close(self._socket_copy)
            self._socket_copy = -1
            self._sockets.give_back()
