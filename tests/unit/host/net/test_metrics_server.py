"""The metrics port answers GET /metrics, rejects the rest with the right status, bounds resources.

Method: real sockets on the loop of the test; each test sends its bytes and reads to the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from ottla.base.limits import METRICS_CONNECTIONS_MAX, METRICS_REQUEST_BYTES_MAX
from ottla.base.metrics import Family, gauge
from ottla.host.net.metrics_server import MetricsServer, Stage
from tests.exposition import Scrape

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"


class Source:
    """Families whose one value is how often they were collected."""

    def __init__(self, samples: int = 1) -> None:
        self.scrapes = 0
        self.samples = samples

    def __call__(self) -> Iterator[Family]:
        self.scrapes += 1
        yield gauge("scrapes", "Scrapes so far.", self.scrapes)
        many = [((("number", str(each)),), each) for each in range(self.samples)]
        yield gauge("many", "Many samples.", many)


def run(test: Callable[[MetricsServer, int, Source], Awaitable[None]], samples: int = 1) -> None:
    async def bounded() -> None:
        source = Source(samples)
        server = MetricsServer(asyncio.get_running_loop(), source)
        port = await server.listen("127.0.0.1", 0)
        try:
            async with asyncio.timeout(60):
                await test(server, port, source)
        finally:
            server.close()

    asyncio.run(bounded())


async def say(port: int, *pieces: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a request in pieces; return status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    await leave(writer)
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (each.split(": ") for each in fields)}
    assert int(headers["content-length"]) == len(body)
    assert headers["connection"] == "close"
    return int(line.split(" ")[1]), headers, body


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def eventually(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def test_a_scrape() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        status, headers, body = await say(port, GET)
        assert status == 200
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert Scrape(body.decode()).value("scrapes") == 1
        _, _, body = await say(port, *(bytes([each]) for each in GET))
        assert Scrape(body.decode()).value("scrapes") == 2
        await eventually(lambda: not server.connections)

    run(test)


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"G\xc3T /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n: x\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /" + b"a" * METRICS_REQUEST_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 400),
        (b"a" * (METRICS_REQUEST_BYTES_MAX + 1), 400),
    ],
)
def test_other_requests(request_head: bytes, status: int) -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        found, headers, _ = await say(port, request_head)
        assert found == status
        assert headers.get("allow") == ("GET" if status == 405 else None)
        assert source.scrapes == (status == 200)

    run(test)


def test_a_request_without_end_is_not_kept() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        try:
            while not reader.at_eof():
                writer.write(b"x: " + b"y" * 1000 + b"\r\n")
                await writer.drain()
                held = [len(each._head) for each in server.connections]
                assert all(size <= 2 * METRICS_REQUEST_BYTES_MAX + 1 for size in held)
                await asyncio.sleep(0)
                if not server.connections and held == []:
                    break
        except ConnectionError:
            pass
        await leave(writer)
        await eventually(lambda: not server.connections)

    run(test)


@pytest.mark.parametrize("sent", [b"", b"GET /met", GET], ids=["silent", "slow", "unread"])
def test_scrapes_are_served_beside_slow_connections(sent: bytes) -> None:
    """Those that came first go first; as many as are allowed stay."""

    async def test(server: MetricsServer, port: int, source: Source) -> None:
        slow = []
        for _ in range(METRICS_CONNECTIONS_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(sent)
            slow.append((reader, writer))
        await eventually(lambda: len(server.connections) == METRICS_CONNECTIONS_MAX)
        if sent == GET:
            await eventually(lambda: all(c.stage is Stage.SENDING for c in server.connections))
        for _ in range(3):
            assert (await say(port, GET[:10], GET[10:]))[0] == 200
        assert METRICS_CONNECTIONS_MAX - 4 <= len(server.connections) <= METRICS_CONNECTIONS_MAX
        for _, writer in slow:
            writer.transport.abort()
        await eventually(lambda: not server.connections)

    run(test, samples=200_000 if sent == GET else 1)


def test_slow_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.host.net.metrics_server.METRICS_REQUEST_SECONDS_MAX", 0.2)

    async def test(server: MetricsServer, port: int, source: Source) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in GET[:-1]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
            if reader.at_eof() or not server.connections:
                break
        await eventually(lambda: not server.connections)
        writer.transport.abort()

    run(test)


def test_a_scrape_while_all_others_are_rendered_is_refused() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        made = asyncio.Event()
        text = server.text

        async def made_later() -> bytes:
            await made.wait()
            return await text()

        server.text = made_later  # type: ignore[method-assign]
        asking = [asyncio.ensure_future(say(port, GET)) for _ in range(METRICS_CONNECTIONS_MAX)]
        await eventually(
            lambda: (
                [c.stage for c in server.connections] == [Stage.RENDERING] * METRICS_CONNECTIONS_MAX
            )
        )
        assert (await say(port, b""))[0] == 503
        made.set()
        assert {(await each)[0] for each in asking} == {200}

    run(test)


def test_simultaneous_scrapes_share_a_text() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        texts = await asyncio.gather(server.text(), server.text(), server.text())
        assert len({*texts}) == 1
        assert source.scrapes == 1
        Scrape(texts[0].decode())
        await server.text()
        assert source.scrapes == 2

    run(test, samples=5_000)


def test_the_loop_serves_others_while_a_long_text_is_rendered() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        text = asyncio.ensure_future(server.text())
        turns = 0
        while not text.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 8

    run(test, samples=5_000)


def test_a_scraper_that_disconnects_does_not_affect_others() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        other = asyncio.ensure_future(server.text())
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await writer.drain()
        await eventually(lambda: bool(server.connections))
        writer.transport.abort()
        await leave(writer)
        Scrape((await other).decode())
        await eventually(lambda: not server.connections)

    run(test, samples=50_000)


def test_a_failed_collection_is_a_server_error() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        source.samples = None  # type: ignore[assignment]
        assert (await say(port, GET))[0] == 500
        source.samples = 1
        assert (await say(port, GET))[0] == 200

    run(test)


def test_the_end_of_the_server_ends_its_connections() -> None:
    async def test(server: MetricsServer, port: int, source: Source) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await eventually(lambda: bool(server.connections))
        server.close()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        await leave(writer)

    run(test)
