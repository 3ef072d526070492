"""A connection reads, writes and sends files only as its transport says, which also says who sends.

Method: a real server whose transports are the plain one with one thing changed.
"""

import asyncio
import socket
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import pytest

from ottla.base.ports import Buffer
from ottla.base.principal import ANONYMOUS, Principal
from ottla.broker.dispatch import Outcome
from ottla.broker.ports import Connection
from ottla.host.log_dirs.descriptors import SocketBudget
from ottla.host.net.transport import MakeTransport, PlainTransport
from tests.unit.host.scripted import (
    ECHO,
    FILE,
    PlainFile,
    Scripted,
    read_frame,
    request,
    run,
    serving,
)

ALICE = Principal("User", "alice")
FILE_BYTES = 200_000


class OfAlice(PlainTransport):
    def __init__(self, transport: asyncio.Transport, sockets: SocketBudget) -> None:
        super().__init__(transport, sockets)
        self.principal = ALICE


class Counting(PlainTransport):
    """Counts what it sends of files, and keeps calls; `may` says whether it sends files."""

    may = True
    sent_bytes = 0
    calls: ClassVar[list[str]] = []

    def __init__(self, transport: asyncio.Transport, sockets: SocketBudget) -> None:
        super().__init__(transport, sockets)
        self.write = self._write
        type(self).calls = []

    def _write(self, data: Buffer) -> None:
        type(self).calls.append("write")
        self._transport.write(data)

    def cork(self, hold_back: bool) -> None:
        type(self).calls.append("cork" if hold_back else "uncork")
        super().cork(hold_back)

    def may_sendfile(self) -> bool:
        return self.may and super().may_sendfile()

    def sendfile(self, file: int, position: int, count: int) -> int:
        sent = super().sendfile(file, position, count)
        type(self).sent_bytes += sent
        type(self).calls.append("sendfile")
        return sent


def test_requests_have_the_principal_of_the_transport() -> None:
    seen: list[Principal] = []

    async def asked(make: MakeTransport) -> None:
        async with serving(make_transport=make) as (peer, server, port):
            answer = peer.handle

            def handle(connection: Connection, frame: memoryview) -> Outcome:
                seen.append(connection.principal)
                outcome: Outcome = answer(connection, frame)
                return outcome

            server._handler = handle
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, b"x"))
            assert await read_frame(reader) == b"x"
            writer.close()

    run(lambda: asked(PlainTransport))
    run(lambda: asked(OfAlice))
    assert seen == [ANONYMOUS, ALICE]


def test_files_are_read_and_written_where_the_transport_may_not_send_them(tmp_path: Path) -> None:
    """As for TLS, whose bytes are not those of the file."""
    path = tmp_path / "file"
    data = bytes(range(250)) * (FILE_BYTES // 250)
    path.write_bytes(data)

    class Barred(Counting):
        may = False
        sent_bytes = 0

    async def asked(make: type[Counting]) -> None:
        with path.open("rb") as opened:
            async with serving(make_transport=make) as (peer, _server, port):
                assert isinstance(peer, Scripted)
                peer.file = PlainFile(str(path), opened.fileno())
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request(FILE, f"0 {FILE_BYTES}".encode()))
                assert await read_frame(reader) == data
                assert peer.slices[0].released == 1
                writer.close()

    run(lambda: asked(Counting))
    run(lambda: asked(Barred))
    assert (Counting.sent_bytes, Barred.sent_bytes) == (FILE_BYTES, 0)


def test_what_is_beside_a_file_is_held_back_until_the_response_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(FILE_BYTES))

    class Corked(Counting):
        sent_bytes = 0

    async def asked() -> None:
        with path.open("rb") as opened:
            async with serving(make_transport=Corked) as (peer, _server, port):
                assert isinstance(peer, Scripted)
                peer.file = PlainFile(str(path), opened.fileno())
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                for _ in range(2):
                    writer.write(request(FILE, f"0 {FILE_BYTES}".encode()))
                    await read_frame(reader)
                    writer.write(request(ECHO, b"x"))
                    assert await read_frame(reader) == b"x"
                writer.close()

    run(asked)
    calls = [call for call, _ in groupby(Corked.calls)]
    with_file = ["cork", "write", "sendfile", "uncork"]
    assert calls == [*with_file, "write", *with_file, "write"]


@pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="the system has no TCP_CORK")
def test_a_transport_that_is_corked_sends_no_incomplete_segment() -> None:
    async def asked() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        _, writer = await asyncio.open_connection(*listener.getsockname())
        peer, _ = listener.accept()
        transport = PlainTransport(writer.transport, SocketBudget(1))
        transport.cork(True)
        transport.write(b"held ")
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.recv(100)
        transport.write(b"back")
        transport.cork(False)
        peer.setblocking(True)
        assert peer.recv(100) == b"held back"
        for each in (peer, listener):
            each.close()
        writer.close()
        await writer.wait_closed()

    run(asked)
