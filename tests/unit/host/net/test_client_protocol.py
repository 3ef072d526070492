"""Responses come out whole and in order, however the network cuts them.

Method: bytes are put where the protocol asks for them, as an event loop does, in pieces of any
size; without a socket.
"""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base import limits
from ottla.base.ports import Buffer
from ottla.host.net.client_protocol import SMALL_BYTES, SMALL_IN_A_ROW_MAX, ClientProtocol
from tests.drawn import examples


class FakeTransport(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


class Receiver:
    """A protocol, and what it handed over."""

    def __init__(self) -> None:
        self.responses: list[bytes] = []
        self.kinds: list[type] = []
        self.transport = FakeTransport()
        self.protocol = ClientProtocol(self.received, lambda reason: None)
        self.protocol.connection_made(self.transport)

    def received(self, body: Buffer) -> None:
        self.responses.append(bytes(body))
        self.kinds.append(type(body))

    def feed(self, data: bytes, most: int = 1 << 30) -> None:
        """Give `data` in pieces of at most `most` bytes."""
        while data:
            room = self.protocol.get_buffer(-1)
            assert len(room) > 0, "asyncio refuses an empty buffer"
            count = min(len(room), len(data), most)
            room[:count] = data[:count]
            self.protocol.buffer_updated(count)
            data = data[count:]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


BODIES = st.lists(
    st.builds(
        lambda size, fill: bytes([fill]) * size,
        st.sampled_from(
            [
                4,
                5,
                100,
                SMALL_BYTES - 5,
                SMALL_BYTES - 4,
                SMALL_BYTES - 3,
                SMALL_BYTES,
                3 * SMALL_BYTES,
            ]
        ),
        st.integers(0, 255),
    ),
    max_size=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(BODIES, st.sampled_from([1, 3, 7, 1000, SMALL_BYTES - 1, SMALL_BYTES, 1 << 30]))
def test_responses_are_whole_and_in_order(bodies: list[bytes], most: int) -> None:
    receiver = Receiver()
    receiver.feed(b"".join(framed(body) for body in bodies), most=max(most, 1000 if bodies else 1))
    assert receiver.responses == bodies


def test_single_bytes() -> None:
    receiver = Receiver()
    receiver.feed(framed(b"abcd") + framed(b"efghi"), most=1)
    assert receiver.responses == [b"abcd", b"efghi"]


def test_a_large_response_is_not_copied_and_its_buffer_serves_again() -> None:
    receiver = Receiver()
    large = b"x" * (4 * SMALL_BYTES)
    receiver.feed(framed(large))
    first = receiver.protocol._spare
    receiver.feed(framed(large[: 2 * SMALL_BYTES]))
    assert receiver.kinds == [memoryview, memoryview]
    assert receiver.protocol._spare is first
    receiver.feed(framed(b"tiny") * SMALL_IN_A_ROW_MAX)
    assert len(receiver.protocol._spare) == 0  # An idle connection holds no megabytes.


@pytest.mark.parametrize("size", [0, 3, -1, limits.REQUEST_BYTES_MAX + 1])
def test_an_absurd_size_ends_the_connection(size: int) -> None:
    receiver = Receiver()
    receiver.feed(size.to_bytes(4, "big", signed=True))
    assert receiver.transport.aborted
    assert receiver.responses == []
