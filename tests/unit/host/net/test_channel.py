"""A channel sends in order, survives a peer that dies, and ends every request exactly once.

Method: a real server on a free port whose handler answers ApiVersions as scripted; the channel
under test talks to it over a real socket.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.broker.ports import CloseConnection, Connection, Listener
from ottla.host.net.channel import Channel
from ottla.host.net.dialer import AsyncioDialer
from ottla.host.net.server import Server
from ottla.wire.frames import decode_request_header, encode_response
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


class Peer:
    """Answers ApiVersions with the request's correlation id as the throttle time."""

    def __init__(self) -> None:
        self.parked: list[Pending[Any]] = []
        self.mode = "answer"
        self.seen = 0

    def handle(self, connection: Connection, frame: memoryview) -> Any:
        self.seen += 1
        header, _ = decode_request_header(frame)
        if self.mode == "close":
            raise CloseConnection("scripted")
        if self.mode == "park":
            pending: Pending[Any] = Pending()
            self.parked.append(pending)
            return pending
        if self.mode == "garbage":
            return [b"\x00\x00\x00\x06", header.correlation_id.to_bytes(4, "big"), b"??"]
        answer = ApiVersionsResponse(error_code=0, api_keys=(), throttle_time_ms=self.seen)
        wrong = 1 if self.mode == "mixed up" else 0
        return encode_response(answer, header.api_version, header.correlation_id + wrong)


async def start_peer(port: int = 0) -> tuple[Peer, Server, int]:
    peer = Peer()
    server = Server(asyncio.get_running_loop(), peer.handle)
    return peer, server, await server.listen("127.0.0.1", port, Listener.CLIENT, "PLAINTEXT")


def channel_to(port: int) -> Channel:
    return Channel(
        AsyncioDialer(asyncio.get_running_loop()),
        lambda: ("127.0.0.1", port),
        client_id="test",
        backoff_ms=5,
        backoff_max_ms=20,
    )


async def answer_of(pending: Pending[Any]) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pending.then(lambda value: None if future.done() else future.set_result(value))
    return await future


def ask(channel: Channel, timeout_ms: int = 10_000) -> Pending[Any]:
    return channel.send(ApiVersionsRequest(), 2, timeout_ms=timeout_ms)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(bounded())


def test_answers_come_in_order() -> None:
    async def test() -> None:
        _peer, server, port = await start_peer()
        channel = channel_to(port)
        answers = [ask(channel) for _ in range(100)]
        assert [(await answer_of(a)).throttle_time_ms for a in answers] == list(range(1, 101))
        channel.close()
        await server.close()

    run(test)


@pytest.mark.parametrize("mode", ["close", "garbage", "mixed up"])
def test_a_broken_connection_fails_what_was_in_flight_and_no_more(mode: str) -> None:
    async def test() -> None:
        peer, server, port = await start_peer()
        channel = channel_to(port)
        peer.mode = mode
        lost = await answer_of(ask(channel))
        assert isinstance(lost, ApiError)
        assert lost.error is Error.NETWORK_EXCEPTION
        peer.mode = "answer"
        assert (await answer_of(ask(channel))).error_code == 0
        channel.close()
        await server.close()

    run(test)


def test_requests_wait_for_a_peer_that_comes_late() -> None:
    async def test() -> None:
        _, server, port = await start_peer()
        await server.close()
        channel = channel_to(port)
        waiting = ask(channel)
        await asyncio.sleep(0.03)
        assert not waiting.done
        _, server, _ = await start_peer(port)
        assert (await answer_of(waiting)).error_code == 0
        channel.close()
        await server.close()

    run(test)


@pytest.mark.parametrize("address", [("127.0.0.1", 70_000), ("no..name", 9092)])
def test_an_attempt_that_fails_before_it_reaches_the_network_is_repeated(
    address: tuple[str, int],
) -> None:
    async def test() -> None:
        _, server, port = await start_peer()
        endpoints = [("127.0.0.1", port), address]
        channel = Channel(
            AsyncioDialer(asyncio.get_running_loop()),
            lambda: endpoints.pop() if len(endpoints) > 1 else endpoints[0],
            client_id="test",
            backoff_ms=5,
        )
        assert not isinstance(await answer_of(ask(channel, 5_000)), ApiError)
        channel.close()
        await server.close()

    run(test)


def test_time_runs_out_with_no_peer_and_with_a_silent_one() -> None:
    async def test() -> None:
        peer, server, port = await start_peer()
        await server.close()
        channel = channel_to(port)
        assert (await answer_of(ask(channel, 30))).error is Error.REQUEST_TIMED_OUT
        peer, server, _ = await start_peer(port)
        peer.mode = "park"
        silent, behind = ask(channel, 60), ask(channel, 10_000)
        assert (await answer_of(silent)).error is Error.REQUEST_TIMED_OUT
        assert (await answer_of(behind)).error is Error.NETWORK_EXCEPTION
        peer.mode = "answer"
        assert (await answer_of(ask(channel))).error_code == 0
        channel.close()
        await server.close()

    run(test)


@pytest.mark.parametrize("ended_by", ["a timeout", "another endpoint"])
def test_a_request_does_not_get_lost_with_a_connection_that_was_ended_before(ended_by: str) -> None:
    """Callers send their next request when one has ended: that may be one not to be repeated."""

    async def test() -> None:
        peer, server, port = await start_peer()
        next_peer, next_server, next_port = await start_peer()
        endpoints = [("127.0.0.1", port)]
        channel = Channel(
            AsyncioDialer(asyncio.get_running_loop()), lambda: endpoints[-1], client_id="test"
        )
        second: list[Pending[Any]] = []

        def send_another(_: Any) -> None:
            endpoints.append(("127.0.0.1", next_port))
            if ended_by == "another endpoint":
                channel.retarget()
            second.append(ask(channel))

        if ended_by == "a timeout":
            peer.mode = "park"
        first = ask(channel, 60)
        first.then(send_another)
        await answer_of(first)
        assert (await answer_of(second[0])).throttle_time_ms == 1
        assert (peer.seen, next_peer.seen) == (1, 1)
        channel.close()
        await server.close()
        await next_server.close()

    run(test)


def test_only_a_request_that_waits_for_a_connection_can_be_cancelled() -> None:
    """Otherwise a request would be processed long after its caller got a timeout."""

    async def test() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            channel = channel_to(port)
            taken, kept = ask(channel), ask(channel)
            assert channel.withdraw(taken)
            assert taken.value.error is Error.REQUEST_TIMED_OUT
            assert not channel.withdraw(taken)
        peer, server, _ = await start_peer(port)
        assert (await answer_of(kept)).error_code == 0
        assert peer.seen == 1
        peer.mode = "park"
        sent = ask(channel)
        assert not channel.withdraw(sent)
        assert not sent.done
        channel.close()
        await server.close()

    run(test)


def test_closing_answers_everybody() -> None:
    async def test() -> None:
        peer, server, port = await start_peer()
        peer.mode = "park"
        channel = channel_to(port)
        waiting = ask(channel)
        while not peer.parked:
            await asyncio.sleep(0.001)
        channel.close()
        assert waiting.value.error is Error.NETWORK_EXCEPTION
        assert ask(channel).value.error is Error.NETWORK_EXCEPTION
        await server.close()

    run(test)


@pytest.mark.parametrize("closed", ["refuses", "hangs"])
def test_another_endpoint_is_tried_at_once_whatever_the_old_one_does(closed: str) -> None:
    """A failover must not wait out the pauses, or the timeout, of a controller that is dead."""

    async def test() -> None:
        _peer, server, port = await start_peer()
        dead, *fillers = (socket.socket() for _ in range(5))
        dead.bind(("127.0.0.1", 0))
        if closed == "hangs":
            # Its queue is full, so that the system answers no further attempt.
            dead.listen(0)
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(dead.getsockname())
        endpoints: list[tuple[str, int]] = [dead.getsockname()]
        chosen: list[tuple[str, int]] = []

        def choose() -> tuple[str, int]:
            chosen.append(endpoints[-1])
            return endpoints[-1]

        channel = Channel(
            AsyncioDialer(asyncio.get_running_loop()),
            choose,
            client_id="test",
            backoff_ms=60_000,
            backoff_max_ms=60_000,
            connect_timeout_ms=60_000,
            connect_timeout_max_ms=60_000,
        )
        answer = ask(channel, timeout_ms=120_000)
        while not chosen:
            await asyncio.sleep(0)
        endpoints.append(("127.0.0.1", port))
        channel.retarget()
        assert (await answer_of(answer)).error_code == 0
        channel.close()
        for each in (dead, *fillers):
            each.close()
        await server.close()

    run(test)


def test_an_impatient_channel_fails_at_once_without_a_peer() -> None:
    """With several controllers the next one can be tried, without waiting for a dead one."""

    async def test() -> None:
        dead = socket.socket()
        dead.bind(("127.0.0.1", 0))
        endpoint: tuple[str, int] = dead.getsockname()
        channel = Channel(
            AsyncioDialer(asyncio.get_running_loop()),
            lambda: endpoint,
            client_id="test",
            patient=False,
        )
        answer = await answer_of(ask(channel, timeout_ms=120_000))
        assert answer.error is Error.NETWORK_EXCEPTION
        dead.listen()
        server_side = asyncio.get_running_loop().run_in_executor(None, dead.accept)
        again = ask(channel, timeout_ms=120_000)
        connection, _ = await server_side
        assert not again.done
        channel.close()
        connection.close()
        dead.close()

    run(test)
