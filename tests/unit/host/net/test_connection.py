"""Frames come out as they went in, however the bytes were cut; responses keep their order.

Method: a real server on a free port with a scripted handler, and plain sockets as peers.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.host.scripted import (
    BIG,
    BIG_BYTES,
    CLOSE,
    ECHO,
    FAIL,
    FILE,
    HELD,
    LATER,
    NOTHING,
    NOW,
    SLOW,
    THROTTLE_SECONDS,
    THROTTLED,
    THROTTLED_NOTHING,
    PlainFile,
    PlainSlice,
    eventually,
    read_frame,
    request,
    run,
    serving,
)


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


def test_the_next_request_is_not_handled_within_what_completes_a_response() -> None:
    """A step of the quorum completes several; one that wrote within it had a wrong offset."""

    async def test() -> None:
        async with serving() as (peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(LATER, b"1") + request(ECHO, b"2"))
            await eventually(lambda: peer.later != [])
            await asyncio.sleep(0.02)
            peer.answer_next()
            assert peer.seen == 1
            assert await read_frame(reader) == b"1"
            assert await read_frame(reader) == b"2"
            writer.close()

    run(test)


@pytest.mark.parametrize("size", [300_000, 1_048_570, 3_000_000])
def test_large_requests_that_wait_keep_their_buffers(size: int) -> None:
    large = [os.urandom(size) for _ in range(3)]

    async def test() -> None:
        async with serving() as (peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(LATER, b"first"))
            await eventually(lambda: peer.later != [])
            sent = b"".join(request(ECHO, body) for body in large)
            writer.write(sent[:70_000])
            await eventually(lambda: server._budget.used_bytes > 0)
            writer.write(sent[70_000:])
            await eventually(lambda: server._budget.used_bytes >= size)
            peer.answer_next()
            assert await read_frame(reader) == b"first"
            assert [await read_frame(reader) for _ in large] == large
            assert server._budget.used_bytes == 0
            writer.close()

    run(test)


def test_the_end_releases_a_large_request_that_waits() -> None:
    async def test() -> None:
        async with serving() as (peer, server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(LATER, b"first"))
            await eventually(lambda: peer.later != [])
            writer.write(request(ECHO, bytes(1_048_570)))
            await eventually(lambda: server._budget.used_bytes >= 1_048_570)
            writer.close()
            await eventually(lambda: server._budget.used_bytes == 0)

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


def test_a_connection_with_a_throttle_is_muted_after_its_response() -> None:
    """Neither what had arrived nor what comes is handled before; other connections are."""

    async def test() -> None:
        async with serving() as (peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
            loop = asyncio.get_running_loop()
            part = request(ECHO, b"4")
            began = loop.time()
            whole = request(THROTTLED, b"1") + request(ECHO, b"2") + request(ECHO, b"3")
            writer.write(whole + part[:5])
            assert await read_frame(reader) == b"1"
            assert loop.time() - began < THROTTLE_SECONDS, "the response itself is not held back"
            writer.write(part[5:])
            (muted,) = (each for each in server.connections if each.unfinished_bytes)
            assert not muted.close_unfinished(loop.time() + 1_000, 0.0), "it cannot send the rest"
            other_writer.write(request(ECHO, b"other"))
            assert await read_frame(other_reader) == b"other"
            assert loop.time() - began < THROTTLE_SECONDS
            assert peer.seen == 2
            assert await read_frame(reader) == b"2"
            assert loop.time() - began >= THROTTLE_SECONDS
            assert await read_frame(reader) == b"3"
            assert await read_frame(reader) == b"4"
            writer.close()
            other_writer.close()

    run(test)


@pytest.mark.parametrize("answer", [b"now", b"late"])
def test_a_request_without_a_response_may_have_a_throttle(answer: bytes) -> None:
    """As a Produce with acks=0, whose batches are appended at once or after a check."""

    async def test() -> None:
        async with serving() as (peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            loop = asyncio.get_running_loop()
            began = loop.time()
            writer.write(request(THROTTLED_NOTHING, answer) + request(ECHO, b"2"))
            await eventually(lambda: peer.seen == 1)
            assert await read_frame(reader) == b"2"
            assert loop.time() - began >= THROTTLE_SECONDS
            writer.close()

    run(test)


def test_a_muted_connection_may_be_closed() -> None:
    async def test() -> None:
        async with serving() as (_peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(THROTTLED, b"1") + request(ECHO, b"2"))
            assert await read_frame(reader) == b"1"
            (muted,) = server.connections
            muted.close("a test")
            assert await reader.read() == b""
            await eventually(lambda: not server.connections)
            assert server._budget.used_bytes == 0
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


def test_small_requests_for_large_answers_wait_for_their_reader() -> None:
    count = 2_000

    async def test() -> None:
        async with serving() as (peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(request(BIG) * count)
            await eventually(lambda: peer.seen > 0)
            await asyncio.sleep(0.05)
            assert peer.seen * BIG_BYTES < 20_000_000, "what is not read is not made"
            for _ in range(count):
                assert len(await read_frame(reader)) == BIG_BYTES
            writer.close()

    run(test)


def test_promises_kept_at_once_do_not_pile_up() -> None:
    async def test() -> None:
        async with serving() as (peer, _server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(LATER, b"first"))
            await eventually(lambda: peer.later != [])
            writer.write(b"".join(request(NOW, b"%d" % index) for index in range(5_000)))
            await writer.drain()
            await asyncio.sleep(0.02)
            peer.answer_next()
            assert await read_frame(reader) == b"first"
            assert [await read_frame(reader) for _ in range(5_000)] == [
                b"%d" % index for index in range(5_000)
            ]
            writer.close()

    run(test)


def test_a_frame_beyond_the_budget_ends_its_connection_without_a_crash() -> None:
    async def test() -> None:
        trouble: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: trouble.append(context)
        )
        async with serving(frames_held_bytes_max=2_000_000) as (_peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, bytes(10_000_000)))
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.transport.abort()
            await eventually(lambda: not server.connections)
            assert server._budget.used_bytes == 0
        assert trouble == []

    run(test)


def test_a_frame_of_just_the_budget_is_read() -> None:
    body = os.urandom(3_000_000 - 1)

    async def test() -> None:
        async with serving(frames_held_bytes_max=3_000_000) as (_peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(ECHO, body))
            assert await read_frame(reader) == body
            assert server._budget.used_bytes == 0
            writer.close()

    run(test)


def test_a_disk_that_fails_ends_the_connection_and_unpins_all(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving() as (peer, server, port):
            peer.file = PlainFile("gone", -1)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(FILE, b"0 10") * 3)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            await eventually(lambda: not server.connections)
            assert [piece.released for piece in peer.slices] == [1] * len(peer.slices)
            writer.close()

    run(test)


def test_slow_requests_of_many_take_turns_with_quick_ones() -> None:
    """Who asks for much waits for those who ask for little, not the other way round."""

    async def test() -> None:
        async with serving() as (peer, server, port):
            slow = []
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request(SLOW) * 20)
                slow.append((reader, writer))
            await eventually(lambda: peer.seen >= 30)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            worst = 0
            for _ in range(10):
                seen = peer.slow
                writer.write(request(ECHO, b"x"))
                assert await read_frame(reader) == b"x"
                worst = max(worst, peer.slow - seen)
            assert peer.slow < 20 * 20, "or it proves nothing"
            assert worst <= 6, "a quick request met a slow one in each of a few turns, at most"
            for slow_reader, _ in slow:
                for _ in range(20):
                    assert await read_frame(slow_reader) == b""
            assert peer.slow == 20 * 20
            assert server._budget.used_bytes == 0
            for _, each in (*slow, (reader, writer)):
                each.close()

    run(test)


def test_the_bytes_of_requests_in_progress_count() -> None:
    async def test() -> None:
        async with serving(frames_held_bytes_max=250_000) as (peer, server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(HELD, b"x" * 100_000))
            await eventually(lambda: len(peer.later) == 1)
            assert server.frames_held_bytes == 100_001
            others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for _, other in others:
                other.write(request(HELD, b"y" * 100_000))
            assert await others[1][0].read() == b"", "there is no room for a third one"
            piece = PlainSlice(PlainFile("none", -1), 0, 10)
            peer.later.pop()[1].complete([piece])
            assert piece.released == 1
            peer.answer_next()
            assert len(await read_frame(reader)) == 100_000
            for _, each in (*others, (reader, writer)):
                each.close()
            await eventually(lambda: server.frames_held_bytes == 0)

    run(test)
