"""Buffers of large frames are reused, and a bounded number is kept."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.host.net.frame_buffers import SMALLEST_BYTES, FrameBuffers

MIB = 1024 * 1024


@given(st.integers(0, 64 * MIB))
def test_a_buffer_is_large_enough_and_less_than_twice_too_large(size: int) -> None:
    buffer = FrameBuffers(0).take(size)
    assert len(buffer) >= size
    assert len(buffer) < max(2 * size, SMALLEST_BYTES + 1)


def test_what_is_given_back_is_taken_again() -> None:
    buffers = FrameBuffers(4 * MIB)
    first = buffers.take(2 * MIB)
    buffers.give_back(first)
    assert buffers.take(MIB) is not first, "a smaller frame must not occupy a larger buffer"
    assert buffers.take(2 * MIB - 5) is first
    assert buffers.take(2 * MIB) is not first


def test_beyond_the_limit_nothing_is_kept() -> None:
    buffers = FrameBuffers(3 * MIB)
    taken = [buffers.take(MIB) for _ in range(4)]
    for buffer in taken:
        buffers.give_back(buffer)
    again = [buffers.take(MIB) for _ in range(4)]
    kept = {id(buffer) for buffer in taken}
    assert sum(id(buffer) in kept for buffer in again) == 3
    # What was taken again makes room for others.
    buffers.give_back(again[0])
    assert buffers.take(MIB) is again[0]
