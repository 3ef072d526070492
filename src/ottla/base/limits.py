"""Everything has a limit, and each limit has its name and its reason here.

Units end the names. Relations between limits are asserted, so that changing one without its
neighbours does not import.
"""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""socket.request.max.bytes: the largest frame that a server reads (Kafka's default)."""

RECEIVE_BUFFER_BYTES = 256 * 1024
"""Lent to whichever connection is reading; larger frames get a buffer of their own size."""

SMALL_FRAME_BYTES_MAX = RECEIVE_BUFFER_BYTES - 4
"""A frame up to this size can be parsed where it was received."""

FRAMES_QUEUED_BYTES_MAX = 1024 * 1024
"""Bytes of pipelined requests kept for one connection before its socket is no longer read."""

FRAMES_HELD_BYTES_MAX = 512 * 1024 * 1024
"""Unfinished and waiting frames of all connections of a server; the peer that would go over
it is disconnected."""

FORWARD_TIMEOUT_MS = 30_000
"""How long a broker tries to reach the controller for a client before it gives up."""

assert SMALL_FRAME_BYTES_MAX < RECEIVE_BUFFER_BYTES < REQUEST_BYTES_MAX
assert FRAMES_HELD_BYTES_MAX >= 2 * REQUEST_BYTES_MAX
assert FRAMES_QUEUED_BYTES_MAX >= RECEIVE_BUFFER_BYTES
