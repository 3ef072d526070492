"""The sending half of a connection: bytes through the transport, file slices with sendfile.

How both are done, and whether files may be sent so, is the transport's: see
`ottla.host.net.transport`.
The two ways never overlap. A slice is begun only when the transport's own buffer is empty, and
bytes behind a slice wait until it is sent, otherwise responses would mix. A slice whose pages are
not in memory is read by a thread first, so that a cold disk stalls one connection, not all. What is
sent beside slices is held back until it fills a segment of TCP, or the response ends: the peer is
not woken for the head of a response, nor for its last bytes.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.base.pending import nothing
from ottla.host.net.transport import Transport

SENDFILE_BYTES_MIN = 32 * 1024
"""Below this, copying through Python costs less than the extra system calls."""

JOINED_BYTES_MAX = 64 * 1024
"""Small pieces are joined up to this size before they are written."""

QUEUED_BYTES_MAX = 256 * 1024
"""Bytes of responses that wait for `flush`, above which no request is handled: a peer may send
thousands of small requests at once, each with a large response."""

READ_CHUNK_BYTES = 1024 * 1024

PAGE_BYTES = 4096

IN_MEMORY = (bytes, bytearray, memoryview)
"""The types of chunks that are not slices of files. A tuple: a union would be made at each use."""


class Outgoing:
    """A queue of chunks and the one place that writes to the socket."""

    def __init__(
        self,
        transport: Transport,
        drained: Callable[[], None],
        broken: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._drained = drained
        self._broken = broken
        self._queue: deque[Any] = deque()
        self.queued_bytes = 0
        """Bytes of responses that were not passed on yet, those of files too."""
        self._paused = False
        self._slice: Any = None
        self._sent = 0
        self._corked = False
        self._writer_armed = False
        self._warming = False
        self._closed = False
        self._closing_when_sent = False
        self._loop = asyncio.get_running_loop()

    @property
    def is_behind(self) -> bool:
        """Tell whether the peer must read before more requests are handled."""
        return self._paused or self._slice is not None or self.queued_bytes > QUEUED_BYTES_MAX

    @property
    def unread_bytes(self) -> int:
        """Return the bytes in memory that the peer has not taken."""
        waiting = sum(len(chunk) for chunk in self._queue if isinstance(chunk, IN_MEMORY))
        return waiting + self._transport.unsent_bytes()

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes that the system has not taken, those of files too."""
        of_files: int = sum(each.length for each in self._queue if not isinstance(each, IN_MEMORY))
        sent = 0 if self._slice is None else self._sent
        return self.unread_bytes + of_files - sent

    def add(self, chunks: list[Any]) -> None:
        """Queue one response; `flush` sends."""
        self._queue.extend(chunks)
        for chunk in chunks:
            is_bytes = isinstance(chunk, IN_MEMORY)
            self.queued_bytes += len(chunk) if is_bytes else chunk.length

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._paused = True

    def resume(self) -> None:
        """The transport's buffer has room again."""
        self._paused = False
        self.flush()
        if not self.is_behind:
            self._drained()

    def flush(self) -> None:
        """Send as much as possible without waiting; an OSError breaks the connection."""
        if self._closed or self._warming or self._writer_armed or self._paused:
            return
        try:
            self._flush()
        except OSError as error:
            self._break(f"sending a response failed: {error.strerror or error}")

    def _break(self, reason: str) -> None:
        """End the connection. Nothing may follow: the peer would take it for what is missing."""
        self._closed = True
        self._broken(reason)

    def _flush(self) -> None:
        if len(self._queue) == 1 and isinstance(self._queue[0], bytes):
            self._transport.write(self._queue.popleft())  # Most responses.
            self._all_passed_on()
            return
        small: list[Any] = []
        while self._queue:
            chunk = self._queue[0]
            if isinstance(chunk, IN_MEMORY):
                small.append(self._queue.popleft())
                continue
            if self._by_copy(chunk):
                small.append(self._queue.popleft())
                continue
            self._cork()
            if not self._write(small):
                return
            small = []
            if not self._send_slice():
                return
        if self._write(small):
            self._all_passed_on()

    def _cork(self) -> None:
        if not self._corked and self._transport.may_sendfile():
            self._corked = True
            self._transport.cork(True)

    def _all_passed_on(self) -> None:
        self.queued_bytes = 0
        if self._corked:
            self._corked = False
            self._transport.cork(False)
        if self._closing_when_sent:
            self._closed = True
            self._transport.close()

    def close_when_sent(self) -> None:
        """Close the transport after all that is queued."""
        self._closing_when_sent = True
        self.flush()

    def close(self) -> None:
        """Drop everything; the connection is gone.

        Its callbacks, too, which refer to the connection that refers to this: else each closed
        connection stays in memory until a full collection of garbage, which are rare.
        """
        self._closed = True
        self._drained = self._broken = nothing
        self._writer_armed = False
        self._transport.release()
        release(list(self._queue))
        self._queue.clear()
        self.queued_bytes = 0
        self._slice = None

    # -- bytes ---------------------------------------------------------------------------------

    def _by_copy(self, piece: Any) -> bool:
        return piece.length < SENDFILE_BYTES_MIN and piece is not self._slice

    def _write(self, pieces: list[Any]) -> bool:
        """Write small pieces joined, large ones as they are; False where that broke."""
        joined: list[Any] = []
        size = 0
        for index, piece in enumerate(pieces):
            if not isinstance(piece, IN_MEMORY):
                try:
                    data = piece.file.read_at(piece.position, piece.length)
                except OSError:
                    release(pieces[index:])
                    raise
                if len(data) < piece.length:
                    release(pieces[index:])
                    self._break("a log was truncated while it was being sent")
                    return False
                piece.release()
                piece = data
            if size and size + len(piece) > JOINED_BYTES_MAX:
                self._transport.write(b"".join(joined))
                joined, size = [], 0
            joined.append(piece)
            size += len(piece)
        if joined:
            self._transport.write(joined[0] if len(joined) == 1 else b"".join(joined))
        return True

    # -- slices --------------------------------------------------------------------------------

    def _send_slice(self) -> bool:
        """Send the slice at the head of the queue; False where the rest must wait."""
        if self._slice is None:
            self._slice = self._queue[0]
            self._sent = 0
            if not self._is_warm(self._slice) and self._warm(self._slice):
                return False
        if not self._transport.may_sendfile():
            return self._copy_slice()
        if self._transport.unsent_bytes() > 0:
            self._await_writable()
            return False
        return self._sendfile()

    def _sendfile(self) -> bool:
        piece = self._slice
        while self._sent < piece.length:
            try:
                count = self._transport.sendfile(
                    piece.file.fileno(),
                    piece.position + self._sent,
                    piece.length - self._sent,
                )
            except BlockingIOError:
                self._await_writable()
                return False
            except OSError as error:
                self._break(f"sendfile: {errno.errorcode.get(error.errno or 0, error)}")
                return False
            if count == 0:  # Past the end of the file; trying again would spin for ever.
                self._break("a log was truncated while it was being sent")
                return False
            self._sent += count
        self._slice_done()
        return True

    def _copy_slice(self) -> bool:
        piece = self._slice
        while self._sent < piece.length:
            if self._paused:
                return False
            count = min(READ_CHUNK_BYTES, piece.length - self._sent)
            data = piece.file.read_at(piece.position + self._sent, count)
            if not data:
                self._break("a log was truncated while it was being sent")
                return False
            self._sent += len(data)
            self._transport.write(data)
        self._slice_done()
        return True

    def _slice_done(self) -> None:
        self._queue.popleft()
        self._slice.release()
        self._slice = None

    def _await_writable(self) -> None:
        self._writer_armed = True
        self._transport.when_writable(self._writable)

    def _disarm(self) -> None:
        if self._writer_armed:
            self._writer_armed = False
            self._transport.stop_waiting()

    def _writable(self) -> None:
        if self._transport.unsent_bytes() > 0:
            return  # The transport's own bytes go first.
        self._disarm()
        self._go_on()

    def _go_on(self) -> None:
        self.flush()
        if not self._closed and not self.is_behind:
            self._drained()

    # -- cold pages ----------------------------------------------------------------------------

    def _is_warm(self, piece: Any) -> bool:
        """Tell whether the first and last pages are in memory, without waiting."""
        nowait = getattr(os, "RWF_NOWAIT", None)
        if nowait is None:
            return True
        probe = bytearray(1)
        try:
            for position in (piece.position, piece.position + piece.length - 1):
                os.preadv(piece.file.fileno(), [probe], position, nowait)
        except BlockingIOError:
            return False
        except OSError:
            return True  # The file system cannot tell.
        return True

    def _warm(self, piece: Any) -> bool:
        """Have a thread read a slice's pages; False where none can be started."""
        try:
            future = self._loop.run_in_executor(None, _read_through, piece)
        except RuntimeError:
            return False  # The loop reads them itself, when they are sent.
        self._warming = True
        future.add_done_callback(lambda _ended: self._warmed())
        return True

    def _warmed(self) -> None:
        self._warming = False
        if self._closed:
            return
        self._go_on()


def _read_through(piece: Any) -> None:
    """Read a slice's pages into memory; errors show when the slice is sent."""
    position, end = piece.position, piece.position + piece.length
    while position < end:
        try:
            data = piece.file.read_at(position, min(READ_CHUNK_BYTES, end - position))
        except OSError:
            return
        if not data:
            return
        position += len(data)


def release(chunks: list[Any] | None) -> None:
    """Release the file slices of a response that is not sent."""
    for chunk in chunks or ():
        if not isinstance(chunk, IN_MEMORY):
            chunk.release()
