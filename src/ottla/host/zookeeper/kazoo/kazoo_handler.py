"""A kazoo handler for a node with one loop: one thread, nothing queued.

kazoo's own handler runs callbacks of responses and of watches on two threads, so that a watch may
fire after a response that shows its change. Here both are called on kazoo's connection thread, in
the order in which it reads them; they must only pass on to the loop.

Source: kazoo 2.11, kazoo.interfaces.IHandler and kazoo.handlers.threading.
"""

import errno
import os
import socket
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

OnResult = Callable[[Any], None]
"""Called with kazoo's result object of one request, once it has a value or an exception."""


class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Calls back at once, and connects only while the session is alive.

    Fields: `session_over`: set on any thread; from then on no connection is made. kazoo connects in
            the thread that found its session expired, so no other session can come between.
            `on_result`: called with the result of the request that the loop is sending now.
    """

    def __init__(self, connect_seconds: float) -> None:
        super().__init__()
        self.session_over = False
        self.on_result: OnResult | None = None
        self._connect_seconds = connect_seconds

    def start(self) -> None:
        """Start no threads: `running` stays False, which lets results call back at once."""

    def stop(self) -> None:
        """Do nothing: there are no threads to stop."""

    def async_result(self) -> Any:
        """Make a result, linked to `on_result` at once: later a response could be missed."""
        result = AsyncResult(self)
        if self.on_result is not None:
            result.rawlink(self.on_result)
        return result

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watch."""
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect to a server within its share of the time; refuse once the session is over."""
        if self.session_over:
            raise OSError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))
        requested = kwargs.pop("timeout", None) or self._connect_seconds
        return super().create_connection(
            *args, timeout=min(requested, self._connect_seconds), **kwargs
        )

    def create_socket_pair(self) -> tuple[socket.socket, "WakeUp"]:
        """Make the sockets that wake kazoo's thread: it reads one, requests write the other."""
        read, write = socket.socketpair()
        return read, WakeUp(write)


class WakeUp:
    """A socket that drops bytes that do not fit: a reader with unread bytes wakes up anyway.

    kazoo takes one byte for each request that it sends. A buffer takes some 270 bytes, which is
    more than the requests that kazoo ever has at once.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end

    def send(self, data: bytes) -> int:
        """Send or drop."""
        try:
            return self._end.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Release the socket."""
        self._end.close()
