"""Frames come out as they went in, however the bytes were cut; answers keep their order.

Method: a real server on a free port with a small handler in place of the dispatcher, and plain
sockets as peers. The handler's first byte says what to do with the rest.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.base.pending import Pending
from ottla.broker.api.base import CloseConnection, Connection, Listener
from ottla.host.server import Server, describe_listen_error

ECHO, LATER, NOTHING, CLOSE, FAIL, FILE = (bytes([value]) for value in range(6))


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


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 7, 1000])
def test_frames_survive_any_cut(cut: int) -> None:
    bodies = [b"", b"a", b"bb" * 100, b"c" * 1000, b""]

    async def test() -> None:
        async with serving() as (_peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stream = b"".join(request(ECHO, body) for body in bodies)
            for at in range(0, len(stream), cut):
                writer.write(stream[at : at + cut])
                await writer.drain()
                if cut < 5:
                    await asyncio.sleep(0)
            assert [await read_frame(reader) for _ in bodies] == bodies
            writer.close()

    run(test)


def test_large_frames_and_small_ones_between() -> None:
    large = os.urandom(3_000_000)

    async def test() -> None:
        async with serving() as (_peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, b"x") + request(ECHO, large) + request(ECHO, b"y"))
            assert await read_frame(reader) == b"x"
            assert await read_frame(reader) == large
            assert await read_frame(reader) == b"y"
            assert server._budget.used_bytes == 0
            writer.close()

    run(test)


def test_answers_keep_the_order_of_requests() -> None:
    async def test() -> None:
        async with serving() as (peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(LATER, b"1") + request(ECHO, b"2") + request(LATER, b"3"))
            writer.write(request(NOTHING) + request(ECHO, b"4"))
            await eventually(lambda: peer.later != [] and server._budget.used_bytes > 0)
            assert peer.seen == 1, "the second request waits for the first answer"
            peer.answer_next()
            assert await read_frame(reader) == b"1"
            assert await read_frame(reader) == b"2"
            await eventually(lambda: peer.later != [])
            peer.answer_next()
            assert await read_frame(reader) == b"3"
            assert await read_frame(reader) == b"4"
            assert server._budget.used_bytes == 0
            writer.close()

    run(test)


def test_a_busy_connection_is_not_read_without_bound() -> None:
    async def test() -> None:
        async with serving() as (peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(LATER, b"first"))
            await eventually(lambda: peer.later != [])
            body = b"x" * 100_000
            for _ in range(100):
                writer.write(request(ECHO, body))
            await asyncio.sleep(0.05)
            assert server._budget.used_bytes < 3_000_000
            peer.answer_next()
            assert await read_frame(reader) == b"first"
            for _ in range(100):
                assert await read_frame(reader) == body
            writer.close()

    run(test)


@pytest.mark.parametrize("size", [2**31, 2**32 - 1, 1001])
def test_absurd_sizes_end_the_connection_and_no_other(size: int) -> None:
    async def test() -> None:
        async with serving(frame_bytes_max=1000) as (_peer, _server, port):
            good_reader, good_writer = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(size.to_bytes(4, "big") + b"garbage")
            assert await reader.read() == b""
            good_writer.write(request(ECHO, b"still here"))
            assert await read_frame(good_reader) == b"still here"
            good_writer.close()
            writer.close()

    run(test)


def test_a_claimed_size_costs_nothing_until_bytes_come() -> None:
    async def test() -> None:
        async with serving() as (_peer, server, port):
            writers = []
            for _ in range(50):
                _reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write((90_000_000).to_bytes(4, "big") + b"x" * 1000)
                writers.append(writer)
            await eventually(lambda: server._budget.used_bytes >= 50 * 1000)
            assert server._budget.used_bytes <= 50 * 1_048_576, "not the 90 MB that each claims"
            for writer in writers:
                writer.transport.abort()
            await eventually(lambda: not server.connections)
            assert server._budget.used_bytes == 0

    run(test)


@pytest.mark.parametrize("kind", [CLOSE, FAIL])
def test_what_was_answered_before_the_end_is_still_sent(kind: bytes) -> None:
    async def test() -> None:
        async with serving() as (_peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, b"answer") + request(kind) + request(ECHO, b"never"))
            assert await read_frame(reader) == b"answer"
            assert await reader.read() == b""
            writer.close()

    run(test)


def test_an_answer_after_the_end_is_dropped_and_released(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving() as (peer, server, port):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(LATER, b"1"))
            await eventually(lambda: peer.later != [])
            writer.transport.abort()
            await eventually(lambda: not server.connections)
            piece = PlainSlice(PlainFile("none", -1), 0, 10)
            peer.later[0][1].complete([b"head", piece])
            assert piece.released == 1

    run(test)


@pytest.mark.parametrize("length", [1, 1000, 32 * 1024, 200_000, 8_000_000])
def test_file_slices_arrive_whole_between_bytes(tmp_path: Path, length: int) -> None:
    content = os.urandom(length + 10)
    path = tmp_path / "log"
    path.write_bytes(content)

    async def test() -> None:
        async with serving() as (peer, _server, port):
            descriptor = os.open(path, os.O_RDONLY)
            peer.file = PlainFile(str(path), descriptor)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            ask = request(FILE, b"5 %d" % length)
            writer.write(request(ECHO, b"a") + ask + request(ECHO, b"b") + ask)
            assert await read_frame(reader) == b"a"
            assert await read_frame(reader) == content[5 : 5 + length]
            assert await read_frame(reader) == b"b"
            assert await read_frame(reader) == content[5 : 5 + length]
            assert [piece.released for piece in peer.slices] == [1, 1]
            writer.close()
            os.close(descriptor)

    run(test)


@pytest.mark.parametrize("length", [1000, 1_000_000])
def test_a_log_cut_while_sent_ends_the_connection(tmp_path: Path, length: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (length // 2))

    async def test() -> None:
        async with serving() as (peer, _server, port):
            descriptor = os.open(path, os.O_RDONLY)
            peer.file = PlainFile(str(path), descriptor)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(FILE, b"0 %d" % length))
            try:
                received = await reader.read(length + 4)
                while more := await reader.read(length):
                    received += more
            except ConnectionResetError:
                received = b""
            assert len(received) < length + 4
            await eventually(lambda: peer.slices[0].released == 1)
            writer.close()
            os.close(descriptor)

    run(test)


def test_a_peer_that_does_not_read_stops_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1_000_000))

    async def test() -> None:
        async with serving() as (peer, _server, port):
            descriptor = os.open(path, os.O_RDONLY)
            peer.file = PlainFile(str(path), descriptor)
            _reader, slow = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            for _ in range(200):
                slow.write(request(FILE, b"0 1000000"))
            await eventually(lambda: peer.seen > 1)
            await asyncio.sleep(0.05)
            seen = peer.seen
            assert seen < 50
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, b"quick"))
            assert await read_frame(reader) == b"quick"
            slow.transport.abort()
            writer.close()
            await eventually(lambda: all(piece.released for piece in peer.slices))
            os.close(descriptor)

    run(test)


def test_too_many_connections_are_refused() -> None:
    async def test() -> None:
        async with serving(connections_max=2) as (_peer, _server, port):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()
            for reader, writer in kept:
                writer.write(request(ECHO, b"kept"))
                assert await read_frame(reader) == b"kept"
                writer.close()

    run(test)


def test_idle_connections_end() -> None:
    async def test() -> None:
        async with serving(idle_ms=20) as (_peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

    run(test)


def test_a_taken_port_is_named() -> None:
    async def test() -> None:
        async with serving() as (_peer, server, port):
            with pytest.raises(OSError) as raised:
                await server.listen("127.0.0.1", port, Listener.CLIENT, "PLAINTEXT")
            assert f"port {port} is in use" in describe_listen_error(
                raised.value, "127.0.0.1", port
            )

    run(test)
