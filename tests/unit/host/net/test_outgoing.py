"""Responses are sent in order, whether they are bytes or slices of files.

Method: a transport in memory that fills up on request, real files, a loop that runs by hand;
sending over real sockets is the subject of `test_connection`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.host.net.outgoing import (
    JOINED_BYTES_MAX,
    QUEUED_BYTES_MAX,
    SENDFILE_BYTES_MIN,
    Outgoing,
    release,
)
from tests.unit.host.scripted import PlainFile, PlainSlice


class Transport:
    """Keeps what is written; `full` makes it ask its writer to pause, as a real one does."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.full = False
        self.closed = self.released = False
        self.outgoing: Outgoing | None = None

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        if self.full:
            assert self.outgoing is not None
            self.outgoing.pause()

    def unsent_bytes(self) -> int:
        return 0

    def may_sendfile(self) -> bool:
        return False

    def release(self) -> None:
        self.released = True

    def close(self) -> None:
        self.closed = True


class Sender:
    """An Outgoing without sendfile over such a transport."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.drained = 0
        self.broken: list[str] = []
        self.outgoing = Outgoing(
            self.transport,  # type: ignore[arg-type]
            self._drained,
            self.broken.append,
        )
        self.transport.outgoing = self.outgoing

    def _drained(self) -> None:
        self.drained += 1

    @property
    def sent(self) -> bytes:
        return b"".join(self.transport.writes)


def run(test: Callable[[Sender], Awaitable[None]]) -> None:
    async def made() -> None:
        async with asyncio.timeout(30):
            await test(Sender())

    asyncio.run(made())


@contextmanager
def slices(path: Path, *lengths: int) -> Iterator[tuple[bytes, list[PlainSlice]]]:
    """Write a file and cut it."""
    content = os.urandom(sum(lengths))
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        position, cut = 0, []
        for length in lengths:
            cut.append(PlainSlice(PlainFile(str(path), descriptor), position, length))
            position += length
        yield content, cut
    finally:
        os.close(descriptor)


def test_small_pieces_are_joined_up_to_a_size() -> None:
    async def test(sender: Sender) -> None:
        for _ in range(100):
            sender.outgoing.add([b"x" * 10, b"y" * 990])
        assert sender.transport.writes == [], "nothing leaves before flush"
        sender.outgoing.flush()
        assert sender.sent == (b"x" * 10 + b"y" * 990) * 100
        assert max(map(len, sender.transport.writes)) <= JOINED_BYTES_MAX
        assert len(sender.transport.writes) == 2

    run(test)


@pytest.mark.parametrize("length", [1, SENDFILE_BYTES_MIN - 1, SENDFILE_BYTES_MIN, 3_000_000])
def test_slices_keep_their_place_without_sendfile(tmp_path: Path, length: int) -> None:
    async def test(sender: Sender) -> None:
        with slices(tmp_path / "log", length, length) as (content, (first, second)):
            sender.outgoing.add([b"head", first, b"between", second, b"tail"])
            sender.outgoing.flush()
            expected = b"head" + content[:length] + b"between" + content[length:] + b"tail"
            while sender.sent != expected:
                await asyncio.sleep(0.001)
            assert [first.released, second.released] == [1, 1]
            assert not sender.outgoing.is_behind

    run(test)


def test_a_cold_slice_is_sent_though_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def test(sender: Sender) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
        monkeypatch.setattr(Outgoing, "_is_warm", lambda *_: False)
        with slices(tmp_path / "log", 100_000) as (content, (piece,)):
            sender.outgoing.add([piece, b"tail"])
            sender.outgoing.flush()
            assert sender.sent == content + b"tail"

    run(test)


def test_a_full_transport_stops_a_slice_between_its_pieces(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        with slices(tmp_path / "log", 5_000_000) as (content, (piece,)):
            sender.transport.full = True
            sender.outgoing.add([piece, b"tail"])
            sender.outgoing.flush()
            while not sender.transport.writes:
                await asyncio.sleep(0.001)
            assert len(sender.sent) < 5_000_000
            assert sender.outgoing.is_behind
            assert sender.drained == 0
            for _ in range(20):
                sender.outgoing.resume()
            assert sender.sent == content + b"tail"
            assert piece.released == 1
            assert sender.drained > 0

    run(test)


def test_what_waits_for_flush_counts_as_behind(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        sender.outgoing.add([bytes(QUEUED_BYTES_MAX)])
        assert not sender.outgoing.is_behind
        sender.outgoing.add([b"more"])
        assert sender.outgoing.is_behind
        sender.outgoing.flush()
        assert not sender.outgoing.is_behind
        with slices(tmp_path / "log", QUEUED_BYTES_MAX + 1) as (_content, (piece,)):
            sender.outgoing.add([piece])
            assert sender.outgoing.is_behind
            sender.outgoing.close()
            assert piece.released == 1

    run(test)


def test_the_transport_is_closed_after_the_last_byte() -> None:
    async def test(sender: Sender) -> None:
        sender.transport.full = True
        sender.outgoing.add([b"a"])
        sender.outgoing.flush()
        sender.outgoing.add([b"b"])
        sender.outgoing.close_when_sent()
        assert not sender.transport.closed
        sender.transport.full = False
        sender.outgoing.resume()
        assert sender.sent == b"ab"
        assert sender.transport.closed
        sender.outgoing.flush()

    run(test)


@pytest.mark.parametrize("missing", [1, 100])
def test_a_truncated_file_breaks_the_connection(tmp_path: Path, missing: int) -> None:
    async def test(sender: Sender) -> None:
        with slices(tmp_path / "log", 1_000, 1_000) as (_content, pieces):
            os.truncate(tmp_path / "log", 1_000 - missing)
            sender.outgoing.add([b"head", *pieces, b"tail"])
            sender.outgoing.flush()
            assert sender.broken == ["a log was truncated while it was being sent"]
            assert [piece.released for piece in pieces] == [1, 1]

    run(test)


@pytest.mark.parametrize("length", [1_000, 100_000])
def test_nothing_is_sent_behind_bytes_that_are_missing(tmp_path: Path, length: int) -> None:
    async def test(sender: Sender) -> None:
        with (
            slices(tmp_path / "cut", 1_000) as (_, (cut,)),
            slices(tmp_path / "whole", length) as (_, (whole,)),
        ):
            os.truncate(tmp_path / "cut", 100)
            sender.outgoing.add([cut, whole, b"tail"])
            sender.outgoing.flush()
            sender.outgoing.add([b"the next response"])
            sender.outgoing.resume()
            sender.outgoing.close_when_sent()
            assert len(sender.broken) == 1
            assert sender.sent == b""
            sender.outgoing.close()
            assert [cut.released, whole.released] == [1, 1]

    run(test)


@pytest.mark.parametrize("length", [1_000, 100_000])
def test_a_disk_that_fails_breaks_the_connection(length: int) -> None:
    async def test(sender: Sender) -> None:
        gone = [PlainSlice(PlainFile("gone", -1), 0, length) for _ in range(2)]
        sender.outgoing.add([*gone])
        sender.outgoing.flush()
        assert len(sender.broken) == 1
        assert "Bad file descriptor" in sender.broken[0]
        sender.outgoing.close()
        assert [piece.released for piece in gone] == [1, 1]

    run(test)


def test_release_is_for_slices_only() -> None:
    piece = PlainSlice(PlainFile("none", -1), 0, 10)
    chunks: list[Any] = [b"bytes", bytearray(b"x"), memoryview(b"y"), piece]
    release(chunks)
    release(None)
    assert piece.released == 1
