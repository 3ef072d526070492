"""A gate before an S3 endpoint: while it is shut, the endpoint accepts connections and is silent.

What a connection sends meanwhile is not read, as by a server that hangs. When the gate opens again
those connections are broken, and nothing that was sent over them is executed late.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from types import TracebackType

CHUNK_BYTES = 64 * 1024


class StoreGate:
    """Listens on `port`, 0 = any, while its `with` block runs. `held`: connections that wait for an
    answer.

    Its loop runs in a thread of its own. It accepts connections itself: `asyncio.Server` leaves the
    sockets open of those that it accepts at the moment when it is closed.
    """

    def __init__(self, target_port: int, *, port: int = 0) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._opened: asyncio.Event | None = None
        """Set when the gate opens that is shut now; None = it is open."""
        self._connections: set[asyncio.Task[None]] = set()
        self.held = 0
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "StoreGate":
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async def end() -> None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def shut(self) -> None:
        """Answer nothing from now on."""

        async def shut() -> None:
            self._opened = asyncio.Event()

        asyncio.run_coroutine_threadsafe(shut(), self._loop).result(10)

    def open(self) -> None:
        """Answer again; break the connections of before."""

        async def let_go() -> None:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.set()

        asyncio.run_coroutine_threadsafe(let_go(), self._loop).result(10)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # The client has given up.
            return
        task = self._loop.create_task(self._connected(connection))
        self._connections.add(task)  # A loop holds its tasks by weak references only.

        def ended(task: "asyncio.Task[None]") -> None:
            self._connections.discard(task)
            connection.close()  # A task that is canceled before its first step closes nothing.

        task.add_done_callback(ended)

    async def _connected(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            if not await self._was_shut():
                await self._join(reader, writer)
        finally:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes to and from the endpoint until one side has ended."""
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            return
        pumps = [
            asyncio.ensure_future(self._pump(reader, there[1])),
            asyncio.ensure_future(self._pump(there[0], writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            there[1].transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if await self._was_shut():
                    return
                writer.write(chunk)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    async def _was_shut(self) -> bool:
        """Wait while the gate is shut; tell whether it was."""
        opened = self._opened
        if opened is None:
            return False
        self.held += 1
        try:
            await opened.wait()
        finally:
            self.held -= 1
        return True
