"""One server connection: frames in, responses out, one request at a time.

As in Kafka, the next request of a connection is handled when the one before it is answered; what
arrives meanwhile is queued up to a limit, after which the socket is no longer read. That order
makes pipelining safe and is the back-pressure. A request is never handled within the work that
completes a response, such as a step of the quorum or a write to a log. A response may carry a
throttle: it is sent, then the connection is muted, that is neither read nor served, for that long
(KIP-219). A connection whose requests take long also waits for its turn (`ottla.base.turns`), so
that it does not delay others.

Reading: all connections of a server share one buffer, since each read is parsed at once; a frame
that does not fit gets a buffer of its own, which grows with the bytes that have arrived, not with
the size that the peer claims. Writing: bytes go through the transport, file slices with
sendfile, only while the transport's own buffer is empty, and only where the transport may.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base import limits
from ottla.base.pending import Pending
from ottla.base.turns import Turns
from ottla.broker.dispatch import LongOutcome
from ottla.broker.ports import CloseConnection, Connection
from ottla.host.log_dirs.descriptors import SocketBudget
from ottla.host.net.frame_buffers import KEPT_BYTES_MIN, FrameBuffers
from ottla.host.net.outgoing import Outgoing, release
from ottla.host.net.refusals import Refusal, Refusals
from ottla.host.net.response_batch import BATCHED_BYTES_MAX, HELD_NS_MAX, ResponseBatch
from ottla.host.net.transport import MakeTransport, Transport

if TYPE_CHECKING:
    from ottla.broker.dispatch import Chunks, Outcome

log = logging.getLogger(__name__)

Handler = Callable[[Connection, memoryview], "Outcome"]


FIRST_LARGE_BYTES = 4 * 1024
"""The first buffer of a large frame, before its bytes have arrived."""

GROWTH_FACTOR = 4
"""A full buffer grows by this factor up to KEPT_BYTES_MIN, and from there on by two."""

NO_ROOM = "too many bytes of unfinished requests"

RATE_SECONDS = 5.0
"""The shortest time over which the rate of an unfinished frame is measured."""


class FrameBudget:
    """The bytes of unfinished and queued frames that all connections of a server hold."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, count: int) -> bool:
        """Reserve `count` bytes; return False where they are not available."""
        if self.used_bytes + count > self.limit_bytes:
            return False
        self.used_bytes += count
        return True

    @property
    def free_bytes(self) -> int:
        """Return how many bytes are left."""
        return self.limit_bytes - self.used_bytes

    def give_back(self, count: int) -> None:
        """Return reserved bytes."""
        self.used_bytes -= count
        assert self.used_bytes >= 0


class ServerConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    def __init__(
        self,
        connection_info: Callable[[Transport], Connection],
        handler: Handler,
        shared_buffer: memoryview,
        budget: FrameBudget,
        buffers: FrameBuffers,
        turns: Turns,
        sockets: SocketBudget,
        refusals: Refusals,
        batch: ResponseBatch,
        *,
        frame_bytes_max: int,
        make_transport: MakeTransport,
        on_open: Callable[["ServerConnection"], bool],
        on_budget_exceeded: Callable[["ServerConnection", int], None],
        on_large_response: Callable[[], None],
        on_close: Callable[["ServerConnection"], None],
    ) -> None:
        self._connection_info = connection_info
        self._handler = handler
        self._shared_buffer = shared_buffer
        self._budget = budget
        self._buffers = buffers
        self._turns = turns
        self._sockets = sockets
        self._refusals = refusals
        self._batch = batch
        self._frame_bytes_max = frame_bytes_max
        self._make_transport = make_transport
        self._on_open = on_open
        self._on_budget_exceeded = on_budget_exceeded
        self._on_large_response = on_large_response
        self._on_close = on_close
        self._partial = bytearray()
        self._filled = self._frame_bytes = 0
        self._reserved_bytes = 0
        """Bytes of `_partial` that are reserved in the budget: never more than will be read."""
        self._began = self._marked = 0.0
        """When the unfinished frame began, and since when its rate is measured: loop time."""
        self._marked_bytes = 0
        self._waiting: deque[memoryview] = deque()  # Each has a buffer of its own.
        self._waiting_bytes = 0
        self._is_awaiting_response = False
        self._held_bytes = 0
        """Bytes of the request that is being handled."""
        self.unread_since = 0.0
        """The loop time since which the peer has not read what was sent."""
        self._is_heavy = False
        """The last request took long: the next one waits for a turn of such connections."""
        self._is_waiting_for_turn = self._has_turn = False
        self._reading = True
        self._muted: asyncio.TimerHandle | None = None
        """Ends the mute after a response with a throttle."""
        self._closing = False
        self.has_descriptor = False
        """It has taken one of the descriptors of connections."""
        self.active = True
        """Set by requests and responses, cleared by the server's sweep for idle connections."""
        self._swept_unsent_bytes = 0  # At that sweep.

    # -- lifecycle -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the server may refuse (too many connections)."""
        assert isinstance(transport, asyncio.Transport)
        self._loop = asyncio.get_running_loop()
        self._transport = self._make_transport(transport, self._sockets)
        self.info = self._connection_info(self._transport)
        self._outgoing = Outgoing(self._transport, self._go_on, self._broken)
        if not self._on_open(self):
            self._closing = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Release all that the connection held."""
        self._closing = True
        if self._muted is not None:
            self._muted.cancel()
        self._outgoing.close()
        self._drop_input()
        self._on_close(self)
        self.info.closed.complete(None)

    def close(self, reason: str, why: Refusal | None = None) -> None:
        """Close the connection; responses that are queued are still sent.

        `why`: the peer caused it; it is counted, not logged.
        """
        if not self._closing:
            if why is None:
                log.debug("closing %s: %s", self.info.id, reason)
            else:
                self._refusals.note(why, f"{self.info.id}: {reason}")
            self._closing = True
            self._drop_input()
            self._outgoing.close_when_sent()

    def close_if_idle(self) -> None:
        """Close a connection that has been idle since the last call; abort one that is closing.

        It is not idle while its peer reads a response, however long that takes.
        """
        unsent_bytes = self._outgoing.unsent_bytes
        is_idle = not self.active and unsent_bytes >= self._swept_unsent_bytes
        self.active, self._swept_unsent_bytes = False, unsent_bytes
        if not is_idle:
            return
        if self._closing:
            # The peer does not read the last responses.
            self._transport.abort()
        else:
            self.close("idle for longer than connections.max.idle.ms")

    def _drop_input(self) -> None:
        """Drop the requests that are not handled any more."""
        self._budget.give_back(self._reserved_bytes + self._waiting_bytes + self._held_bytes)
        self._held_bytes = 0
        self._partial = bytearray()
        self._filled = self._frame_bytes = self._reserved_bytes = 0
        self._waiting.clear()
        self._waiting_bytes = 0

    def _broken(self, reason: str) -> None:
        self._refusals.note(Refusal.LOST, f"{self.info.id}: {reason}")
        self._closing = True
        self._transport.abort()

    def eof_received(self) -> bool:
        """Close: a peer that sends no more gets no more responses either, as in Kafka."""
        return False

    def pause_writing(self) -> None:
        """Stop writing to the transport."""
        self.unread_since = self._loop.time()
        self._outgoing.pause()

    def resume_writing(self) -> None:
        """Continue to write."""
        self._outgoing.resume()

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of responses in memory that the peer has not read."""
        return self._outgoing.unread_bytes

    def cut_off(self, reason: str) -> None:
        """Abort the connection, whatever is still to be sent."""
        self.close(reason, Refusal.UNREAD)
        self._transport.abort()

    # -- unfinished frames ---------------------------------------------------------------------

    @property
    def unfinished_bytes(self) -> int:
        """Return the bytes reserved for an incomplete frame; 0 = there is none."""
        return self._reserved_bytes

    @property
    def is_unread(self) -> bool:
        """Tell whether requests wait because the peer does not read its responses."""
        return self._waiting_bytes > 0 and self._outgoing.is_behind

    def age(self, now: float) -> float:
        """Return the seconds since the unfinished frame began."""
        return now - self._began

    def rate(self, now: float) -> float:
        """Return the recent rate of the unfinished frame, in bytes per second.

        While the connection is muted nothing is read, which is not its client's fault.
        """
        if self._muted is not None:
            return math.inf
        return (self._filled - self._marked_bytes) / max(now - self._marked, 0.001)

    def close_unfinished(self, now: float, seconds_max: float) -> bool:
        """Close the connection where its frame takes too long; return whether it did.

        A frame may take `seconds_max`, and longer at a rate of FRAME_BYTES_PER_SECOND_MIN.
        """
        if not self._reserved_bytes or self._closing or self._muted is not None:
            return False
        fair = self._filled / limits.FRAME_BYTES_PER_SECOND_MIN
        if self.age(now) <= seconds_max + fair:
            return False
        self.close("a request was not received in time", Refusal.SLOW_REQUEST)
        return True

    def _take(self, count: int) -> bool:
        """Reserve bytes, where none are left those of slower peers; False = this one is closed."""
        if self._budget.take(count):
            return True
        self._on_budget_exceeded(self, count)
        if not self._closing and self._budget.take(count):
            return True
        self.close(NO_ROOM, Refusal.SLOW_REQUEST)
        return False

    def _mark(self, *, is_new: bool) -> None:
        """Record when a frame begins, and since when its rate is measured."""
        now = self._loop.time()
        if is_new:
            self._began = self._marked = now
            self._marked_bytes = 0
        elif now - self._marked > RATE_SECONDS:
            self._marked = now
            self._marked_bytes = self._filled

    # -- reading -------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer, or the rest of the large frame under way."""
        if self._closing:
            return self._shared_buffer  # Read and dropped: the peer may still be sending.
        if self._frame_bytes:
            end = min(self._frame_bytes, len(self._partial))
            return memoryview(self._partial)[self._filled : end]
        if not self._filled:
            return self._shared_buffer
        # The incomplete frame of the last read comes first.
        self._shared_buffer[: self._filled] = self._partial
        return self._shared_buffer[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """Process `count` bytes that arrived in the buffer of `get_buffer`."""
        if self._closing:
            return
        self.active = True
        if self._frame_bytes:
            self._grow_large(count)
        else:
            held, self._filled = self._filled, 0
            self._budget.give_back(self._reserved_bytes)
            self._reserved_bytes = 0
            self._partial = bytearray()
            self._split(self._shared_buffer[: held + count], held)
        self._continue()

    def _split(self, data: memoryview, held: int) -> None:
        """Split `data` into frames and keep the rest; `held` bytes of it came before."""
        position, end = 0, len(data)
        while end - position >= 4:
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                reason = f"a frame of {size} bytes; at most {self._frame_bytes_max} are read"
                self.close(reason, Refusal.REQUEST)
                return
            if end - position - 4 < size:
                break
            self._on_frame(data[position + 4 : position + 4 + size])
            position += 4 + size
            if self._closing:
                return
        if position < end:
            self._keep(data[position:], is_new=position > 0 or not held)

    def _keep(self, rest: memoryview, *, is_new: bool) -> None:
        """Keep an incomplete frame, of which at least one byte has arrived."""
        self._mark(is_new=is_new)
        if len(rest) >= 4:
            size = int.from_bytes(rest[:4], "big")
            if size > limits.SMALL_FRAME_BYTES_MAX:
                self._begin_large(size, rest[4:])
                return
        if not self._take(len(rest)):
            return
        self._partial = bytearray(rest)
        self._filled = self._reserved_bytes = len(rest)

    def _begin_large(self, size: int, received: memoryview) -> None:
        first = min(size, max(FIRST_LARGE_BYTES, GROWTH_FACTOR * len(received)))
        if not self._take(first):
            return
        self._reserved_bytes = first
        self._partial = self._buffers.take(first)
        self._partial[: len(received)] = received
        self._filled = len(received)
        self._frame_bytes = size

    def _grow_large(self, count: int) -> None:
        self._mark(is_new=False)
        self._filled += count
        if self._filled == self._frame_bytes:
            waits = self._must_wait
            # Buffers are powers of two: the last bytes may have come without a reservation.
            if waits and not self._take(self._frame_bytes - self._reserved_bytes):
                return
            buffer, self._partial = self._partial, bytearray()
            frame = memoryview(buffer)[: self._frame_bytes]
            reserved_bytes, self._reserved_bytes = self._reserved_bytes, 0
            self._filled = self._frame_bytes = 0
            if waits:
                self._wait(frame)  # With its buffer: it is not copied.
                return
            self._handle(frame)
            self._budget.give_back(reserved_bytes)
            self._buffers.give_back(buffer)
        elif self._filled == len(self._partial):
            # Memory stays within a small factor of what was sent, whatever size was claimed.
            # A copy, not a resize: the transport still holds a view of the old buffer.
            factor = GROWTH_FACTOR if self._filled < KEPT_BYTES_MIN // GROWTH_FACTOR else 2
            size = min(self._frame_bytes, factor * self._filled)
            if not self._take(size - self._reserved_bytes):
                return
            self._reserved_bytes = size
            grown = self._buffers.take(size)
            grown[: self._filled] = self._partial
            self._buffers.give_back(self._partial)
            self._partial = grown

    # -- handling ------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self._is_awaiting_response or self._muted is not None or self._outgoing.is_behind

    @property
    def _must_wait(self) -> bool:
        """Whether the next request is not handled at once."""
        return bool(self._busy or self._waiting or not self._turns.may_handle(heavy=self._is_heavy))

    def _on_frame(self, frame: memoryview) -> None:
        """Handle a request in the shared buffer, or keep a copy of it."""
        if not self._must_wait:
            self._handle(frame)
        elif self._take(len(frame)):
            self._wait(memoryview(bytearray(frame)))

    def _wait(self, frame: memoryview) -> None:
        """Queue a request, for which bytes are reserved in the budget."""
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        if self._waiting_bytes > limits.FRAMES_QUEUED_BYTES_MAX:
            self._pause_reading()

    def _handle(self, frame: memoryview) -> None:
        ticks_ns = self._turns.ticks_ns
        began_ns = ticks_ns()
        try:
            outcome = self._handler(self.info, frame)
        except CloseConnection as reason:
            self.close(str(reason), Refusal.REQUEST)
            return
        except Exception:
            log.exception("a request of %s failed", self.info.id)
            self.close("the request failed")
            return
        finally:
            self._is_heavy = self._turns.spend(ticks_ns() - began_ns)
        if not isinstance(outcome, Pending):
            if outcome is not None:
                self._send(outcome)
            elif self.info.throttle_ms:
                self._mute(self.info.take_throttle_ms())
        elif outcome.done:
            # Not by a callback: requests answered so would be handled one within another.
            self._answer(outcome.value)
        else:
            self._is_awaiting_response = True
            if isinstance(outcome, LongOutcome):
                self._hold(outcome.held_bytes)
            outcome.then(self._on_delayed_response)  # Closed or not: a response may pin files.

    def _hold(self, count: int) -> None:
        """Reserve the bytes of a request that is kept while it is handled."""
        if self._take(count):
            self._held_bytes = count

    def _answer(self, chunks: "Chunks | None") -> None:
        if chunks is None:
            self.close(self.info.refusal or "the request has no response", Refusal.REQUEST)
        else:
            self._send(chunks)

    def _send(self, chunks: "Chunks") -> None:
        self._outgoing.add(chunks)
        if self.info.throttle_ms:
            self._mute(self.info.take_throttle_ms())
        if self._outgoing.queued_bytes >= limits.UNREAD_LARGE_BYTES:
            self._on_large_response()

    def _mute(self, throttle_ms: int) -> None:
        self._pause_reading()
        self._muted = self._loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        if self._closing:
            return
        self.active = True
        if self._reserved_bytes:
            self._mark(is_new=True)  # The peer could not send the rest of the frame meanwhile.
        self._continue()

    def _pause_reading(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._transport.pause_reading()

    def _on_delayed_response(self, chunks: "Chunks | None") -> None:
        self._is_awaiting_response = False
        self._budget.give_back(self._held_bytes)
        self._held_bytes = 0
        if self._closing:
            release(chunks)
            return
        self.active = True
        self._answer(chunks)
        if self._waiting:
            # In a turn of its own: what completes a response is not ready for another request.
            self._loop.call_soon(self._go_on)
        else:
            self._continue()

    def _go_on(self) -> None:
        if not self._closing:
            self._continue()

    def _continue(self) -> None:
        """Handle queued requests while responses are sent and it is its turn; then read on."""
        outgoing, ticks_ns = self._outgoing, self._turns.ticks_ns
        if outgoing.queued_bytes > BATCHED_BYTES_MAX:
            outgoing.flush()
        held_since_ns = ticks_ns() if self._waiting else 0
        while self._waiting and not self._busy and not self._closing:
            if not self._has_turn and not self._turns.may_handle(heavy=self._is_heavy):
                self._wait_for_turn()
                break
            self._has_turn = False
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            self._budget.give_back(len(frame))
            self._handle(frame)
            self._buffers.give_back(frame.obj)  # type: ignore[arg-type]
            # The responses to requests that were sent together are sent together.
            if (
                outgoing.queued_bytes > BATCHED_BYTES_MAX
                or ticks_ns() - held_since_ns > HELD_NS_MAX
            ):
                outgoing.flush()
                held_since_ns = ticks_ns()
        self._batch.send(outgoing)
        self._has_turn = False
        if (
            not self._reading
            and not self._closing
            and self._muted is None
            and self._waiting_bytes <= limits.FRAMES_QUEUED_BYTES_MAX
        ):
            self._reading = True
            self._transport.resume_reading()

    def _wait_for_turn(self) -> None:
        if not self._is_waiting_for_turn:
            self._is_waiting_for_turn = True
            self._turns.wait(self._take_turn, heavy=self._is_heavy)

    def _take_turn(self) -> None:
        """Handle one request that waited for a turn, and more where there is time."""
        self._is_waiting_for_turn = False
        if not self._closing:
            self._has_turn = True
            self._continue()
