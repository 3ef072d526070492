"""A real server with a small handler in place of the dispatcher, for plain sockets as peers.

The handler's first byte says what to do with the rest.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ottla.base.pending import Pending, completed
from ottla.broker.dispatch import LongOutcome
from ottla.broker.ports import CloseConnection, Connection, Listener
from ottla.host.net.server import Server

ECHO, LATER, NOTHING, CLOSE, FAIL, FILE, BIG, NOW, SLOW, HELD, HUGE = (
    bytes([value]) for value in range(11)
)

SLOW_SECONDS = 0.004

THROTTLED = b"T"
THROTTLED_NOTHING = b"t"
THROTTLE_SECONDS = 1.0
BIG_BYTES = 100_000
HUGE_BYTES = 8_000_000


@dataclass(slots=True)
class PlainFile:
    """A file as `ottla.base.ports.File` describes, as far as sending needs it."""

    path: str
    descriptor: int

    def fileno(self) -> int:
        return self.descriptor

    def read_at(self, position: int, count: int) -> bytes:
        return os.pread(self.descriptor, count, position)


@dataclass(slots=True)
class PlainSlice:
    file: PlainFile
    position: int
    length: int
    released: int = 0

    def release(self) -> None:
        self.released += 1


class Scripted:
    """The handler, and what it saw."""

    def __init__(self) -> None:
        self.later: list[tuple[bytes, Pending[Any]]] = []
        self.slices: list[PlainSlice] = []
        self.file: PlainFile | None = None
        self.seen = 0
        self.slow = 0
        self.closed: list[str] = []

    def handle(self, connection: Connection, frame: memoryview) -> Any:
        self.seen += 1
        kind, rest = bytes(frame[:1]), bytes(frame[1:])
        if kind == ECHO:
            return framed(rest)
        if kind == LATER:
            pending: Pending[Any] = Pending()
            self.later.append((rest, pending))
            return pending
        if kind == NOTHING:
            return None
        if kind == CLOSE:
            connection.closed.then(lambda _none: self.closed.append(connection.id))
            raise CloseConnection("asked to")
        if kind == BIG:
            return framed(bytes(BIG_BYTES))
        if kind == SLOW:
            time.sleep(SLOW_SECONDS)  # It holds the loop, as a handler that takes long does.
            self.slow += 1
            return framed(b"")
        if kind == HELD:
            held = LongOutcome(len(frame))
            self.later.append((rest, held))
            return held
        if kind == HUGE:
            return framed(bytes(HUGE_BYTES))
        if kind == THROTTLED:
            connection.throttle_ms = int(1000 * THROTTLE_SECONDS)
            return framed(rest)
        if kind == THROTTLED_NOTHING:
            connection.throttle_ms = int(1000 * THROTTLE_SECONDS)
            return None if rest == b"now" else completed([])
        if kind == NOW:
            return completed(framed(rest))
        if kind == FILE:
            position, length = (int(word) for word in rest.split())
            assert self.file is not None
            piece = PlainSlice(self.file, position, length)
            self.slices.append(piece)
            return [length.to_bytes(4, "big"), piece]
        raise RuntimeError("a bug in a handler")

    def answer_next(self) -> None:
        rest, pending = self.later.pop(0)
        pending.complete(framed(rest))


def framed(body: bytes) -> list[Any]:
    return [len(body).to_bytes(4, "big"), body]


def request(kind: bytes, body: bytes = b"") -> bytes:
    return (1 + len(body)).to_bytes(4, "big") + kind + body


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Scripted, Server, int]]:
    peer = Scripted()
    server = Server(asyncio.get_running_loop(), peer.handle, **options)
    port = await server.listen("127.0.0.1", 0, Listener.CLIENT, "PLAINTEXT")
    try:
        yield peer, server, port
    except BaseException:
        # A failed test may leave peers that do not read: what they were sent is not waited for.
        for connection in list(server.connections):
            connection.cut_off("the test failed")
        raise
    finally:
        await server.close()
        while server.connections:
            await asyncio.sleep(0.001)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(bounded())


async def eventually(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)
