"""A node bounds the resources of peers, and advertises addresses that others can use.

Method: a real server on a free port, plain sockets as peers; addresses by table.
"""

import asyncio
import contextlib
import gc
import socket
import weakref
from pathlib import Path

import pytest

from ottla.base.limits import FRAME_GRACE_SECONDS
from ottla.broker.ports import Listener
from ottla.host.net.refusals import Refusal
from ottla.host.net.server import (
    ConnectionLimits,
    Server,
    SocketOptions,
    describe_listen_error,
    reachable,
)
from ottla.metadata.brokers import Endpoint
from tests.unit.host.scripted import (
    BIG,
    ECHO,
    FILE,
    HUGE,
    HUGE_BYTES,
    PlainFile,
    eventually,
    read_frame,
    request,
    run,
    serving,
)


def test_too_many_connections_are_refused() -> None:
    async def test() -> None:
        def two() -> ConnectionLimits:
            return ConnectionLimits(total=2)

        async with serving(connection_limits=two) as (_peer, _server, port):
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


def test_limits_of_one_address_count_for_it_alone_and_can_change() -> None:
    now = [ConnectionLimits(per_ip=0, by_ip={"127.0.0.1": 1})]

    async def opens(port: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(ECHO, b"in"))
        try:
            return await read_frame(reader) == b"in"
        except (ConnectionResetError, asyncio.IncompleteReadError):
            return False
        finally:
            opened.append(writer)

    opened: list[asyncio.StreamWriter] = []

    async def test() -> None:
        async with serving(connection_limits=lambda: now[0]) as (_peer, _server, port):
            assert [await opens(port) for _ in range(2)] == [True, False]
            now[0] = ConnectionLimits(per_ip=2)
            assert [await opens(port) for _ in range(2)] == [True, False]
            for writer in opened:
                writer.close()

    run(test)


def test_a_closed_connection_is_freed_without_a_search_for_cycles() -> None:
    async def test() -> None:
        async with serving() as (_peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, b"in"))
            assert await read_frame(reader) == b"in"
            [freed] = map(weakref.ref, server.connections)
            gc.disable()
            try:
                writer.close()
                async with asyncio.timeout(10):
                    await eventually(lambda: freed() is None)
            finally:
                gc.enable()

    run(test)


def test_idle_connections_end() -> None:
    async def test() -> None:
        async with serving(idle_ms=20) as (_peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

    run(test)


def test_a_connection_that_ends_but_is_not_read_is_cut_off() -> None:
    async def test() -> None:
        async with serving(idle_ms=20) as (_peer, server, port):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            for _ in range(200):
                writer.write(request(BIG))
            await eventually(lambda: any(each._busy for each in server.connections))
            for connection in server.connections:
                connection.close("a test")
            await eventually(lambda: not server.connections)
            writer.transport.abort()

    run(test)


@pytest.mark.parametrize("kind", [HUGE, FILE])
def test_a_connection_whose_response_is_being_read_is_not_idle(kind: bytes, tmp_path: Path) -> None:
    """However long that takes: cut off, the consumer would fetch the same again, for ever."""
    small = 64 * 1024
    (tmp_path / "log").write_bytes(bytes(HUGE_BYTES))

    async def test() -> None:
        loop = asyncio.get_running_loop()
        options = SocketOptions(send_buffer_bytes=small)
        with socket.socket() as client, open(tmp_path / "log", "rb") as file:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small)
            client.setblocking(False)
            async with serving(idle_ms=150, socket_options=options) as (peer, server, port):
                peer.file = PlainFile("log", file.fileno())
                await loop.sock_connect(client, ("127.0.0.1", port))
                await loop.sock_sendall(client, request(kind, b"0 %d" % HUGE_BYTES))
                began, received = loop.time(), 0
                while received < 4 + HUGE_BYTES:
                    data = await loop.sock_recv(client, small)
                    assert data, f"cut off after {loop.time() - began:.2f} s, {received} bytes"
                    received += len(data)
                    await asyncio.sleep(0.008)
                assert loop.time() - began > 0.8, "several times the idle time"
                await loop.sock_sendall(client, request(ECHO, b"kept"))
                assert await loop.sock_recv(client, 100) == b"\0\0\0\4kept"
                await eventually(lambda: not server.connections)

    run(test)


def test_a_negative_idle_time_disables_idle_closing() -> None:
    async def test() -> None:
        async with serving(idle_ms=-1) as (_peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert server._sweeper is None
            writer.write(request(ECHO, b"kept"))
            assert await read_frame(reader) == b"kept"
            writer.close()

    run(test)


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_comes_while_the_server_closes_is_closed(turns: int) -> None:
    """At each step of its being accepted: asyncio forgets one whose server is closed too early."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        server = Server(loop, lambda connection, frame: None)
        port = await server.listen("127.0.0.1", 0, Listener.CLIENT, "PLAINTEXT")
        with socket.create_connection(("127.0.0.1", port)) as peer:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            await eventually(lambda: not server.connections)
            gc.collect()  # A leaked socket would warn here.
            peer.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b""

    run(test)


def test_sockets_get_the_configured_buffers() -> None:
    async def test() -> None:
        options = SocketOptions(send_buffer_bytes=50_000, receive_buffer_bytes=40_000)
        async with serving(socket_options=options) as (_peer, server, port):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await eventually(lambda: len(server.connections) == 1)
            (connection,) = server.connections
            accepted = connection._transport._transport.get_extra_info("socket")
            sizes = [
                accepted.getsockopt(socket.SOL_SOCKET, name)
                for name in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            ]
            # Linux reserves twice the requested size.
            assert sizes in ([50_000, 40_000], [100_000, 80_000])
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


def test_a_bound_address_refuses_until_it_accepts() -> None:
    async def test() -> None:
        async with serving() as (_peer, server, _port):
            port = await server.listen("127.0.0.1", 0, Listener.CLIENT, "SECOND", accept=False)
            with pytest.raises(OSError, match=r"refused|Connect call failed"):
                await asyncio.open_connection("127.0.0.1", port)
            await server.accept_all()
            await server.accept_all()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, b"in"))
            assert await read_frame(reader) == b"in"
            writer.close()

    run(test)


def test_an_address_that_another_process_accepts_on_first_is_named() -> None:
    """Both may take it, as long as neither accepts."""

    async def test() -> None:
        async with serving() as (_peer, server, _port):
            port = await server.listen("127.0.0.1", 0, Listener.CLIENT, "SECOND", accept=False)
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", port))
                other.listen()
                with pytest.raises(OSError, match=f"SECOND: port {port} is in use: nothing can"):
                    await server.accept_all()

    run(test)


@pytest.mark.parametrize(
    ("written", "reachable_endpoint"),
    [
        (Endpoint("A", "", 9092), Endpoint("A", "here.example", 9092)),
        (Endpoint("A", "", 0), Endpoint("A", "here.example", 4001)),
        (Endpoint("B", "10.0.0.1", 0), Endpoint("B", "10.0.0.1", 4002)),
        (Endpoint("B", "10.0.0.1", 9092), Endpoint("B", "10.0.0.1", 9092)),
    ],
)
def test_reachable_endpoints(written: Endpoint, reachable_endpoint: Endpoint) -> None:
    bound = {"A": 4001, "B": 4002}
    assert reachable([written], bound, lambda: "here.example") == (reachable_endpoint,)


def test_no_name_is_looked_up_that_is_not_needed() -> None:
    def fail() -> str:
        raise AssertionError("a look-up can take seconds")

    assert reachable([Endpoint("A", "host", 1)], {}, fail) == (Endpoint("A", "host", 1),)


CLAIM = (90_000_000).to_bytes(4, "big")


async def claiming(port: int, count: int, sent: bytes = b"") -> list[asyncio.StreamWriter]:
    """Open connections that claim a large frame and send little of it."""
    writers = []
    for _ in range(count):
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CLAIM + sent)
        writers.append(writer)
    return writers


def received(server: Server) -> int:
    return sum(connection.unfinished_bytes > 0 for connection in server.connections)


def counted(server: Server, why: Refusal) -> int:
    return server.refusals["PLAINTEXT"].counts[why]


def slow(server: Server) -> int:
    return counted(server, Refusal.SLOW_REQUEST)


def close_all(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()


def test_a_claim_reserves_what_has_come_and_little_more() -> None:
    async def test() -> None:
        async with serving() as (_peer, server, port):
            writers = await claiming(port, 100)
            await eventually(
                lambda: sum(1 for c in server.connections if c.unfinished_bytes) == 100
            )
            assert server.frames_held_bytes <= 100 * 4096
            writers[0].write(bytes(100_000))
            await eventually(lambda: server.frames_held_bytes > 100_000)
            assert server.frames_held_bytes <= 100 * 4096 + 5 * 100_000
            close_all(writers)

    run(test)


@pytest.mark.parametrize("body", [1_000, 900_000], ids=["small", "large"])
def test_where_bytes_are_short_the_slowest_frames_go(body: int) -> None:
    """Peers that claim much and stand still do not keep out one whose request comes in parts."""

    async def test() -> None:
        async with serving(frames_held_bytes_max=2_000_000) as (_peer, server, port):
            writers = await claiming(port, 19, bytes(80_000))
            await eventually(lambda: server.frames_held_bytes > 1_500_000)
            await asyncio.sleep(FRAME_GRACE_SECONDS + 0.1)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            data = request(ECHO, b"x" * body)
            for at in range(0, len(data), len(data) // 3):
                writer.write(data[at : at + len(data) // 3])
                await asyncio.sleep(0.05)
            assert await read_frame(reader) == b"x" * body
            close_all([*writers, writer])

    run(test)


def test_of_two_frames_the_faster_one_stays() -> None:
    async def test() -> None:
        async with serving(frames_held_bytes_max=2_300_000) as (_peer, server, port):
            still = await claiming(port, 1, bytes(400_000))
            await eventually(lambda: server.frames_held_bytes > 400_000)
            await asyncio.sleep(FRAME_GRACE_SECONDS + 0.1)
            [fast] = await claiming(port, 1)
            for _ in range(30):
                fast.write(bytes(50_000))
                await asyncio.sleep(0.01)
            await eventually(lambda: len(server.connections) == 1)
            assert slow(server) == 1
            fast.write(bytes(10))
            await fast.drain()
            assert not fast.transport.is_closing()
            close_all([*still, fast])

    run(test)


@pytest.mark.parametrize("sent", [b"", b"\x00", bytes(1000)], ids=len)
def test_a_frame_must_come_whole_in_time(sent: bytes) -> None:
    """Also one that goes on byte by byte, and one that is small."""

    async def test() -> None:
        async with serving(frame_seconds_max=0.3) as (_peer, server, port):
            [large] = await claiming(port, 1, sent)
            small_reader, small = await asyncio.open_connection("127.0.0.1", port)
            small.write(request(ECHO, b"xyz")[:-1])
            idle_reader, idle = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(100):
                if slow(server) == 2:
                    break
                large.write(b"x")
                await asyncio.sleep(0.02)
            assert slow(server) == 2
            assert await small_reader.read() == b""
            idle.write(request(ECHO, b"here"))
            assert await read_frame(idle_reader) == b"here", "it had no frame begun"
            close_all([large, small, idle])

    run(test)


def test_a_large_frame_at_a_fair_rate_may_take_longer() -> None:
    async def test() -> None:
        async with serving(frame_seconds_max=0.2) as (_peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            data = request(ECHO, b"x" * 1_000_000)
            for at in range(0, len(data), 50_000):
                writer.write(data[at : at + 50_000])
                await asyncio.sleep(0.03)
            assert len(await read_frame(reader)) == 1_000_000
            assert slow(server) == 0
            writer.close()

    run(test)


async def connect_small(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with a small receive buffer, and do not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=1000)


def test_connections_that_do_not_read_are_closed_where_memory_is_short() -> None:
    """Who has not read for longest goes first; who reads goes on.

    The kernel's buffers are set: left to it, they may take half an answer, or all of it.
    """
    small = SocketOptions(send_buffer_bytes=65536)

    async def test() -> None:
        async with serving(unread_bytes_max=20_000_000, socket_options=small) as (_, server, port):
            unread = []
            for _ in range(8):
                _reader, writer = await connect_small(port)
                writer.write(request(HUGE))
                unread.append(writer)
                await asyncio.sleep(0.02)
            await eventually(lambda: counted(server, Refusal.UNREAD) == 6)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(HUGE))
            assert len(await read_frame(reader)) == HUGE_BYTES
            assert server.connections, "not all of them"
            total = sum(each.unread_bytes for each in server.connections)
            assert total <= 20_000_000 + HUGE_BYTES
            for each in (*unread, writer):
                each.transport.abort()

    run(test)
