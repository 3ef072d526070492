"""Sends the small responses of one turn of the loop together, at its end.

Each send wakes a client that has gone to sleep since its last response, and waking costs more than
the bytes. Sent one after the other, the first one wakes the client, and it finds the others while
it is awake. A response waits for at most HELD_NS_MAX and the request that is being handled then:
clients must not idle while the loop is busy. `benches/against_kafka.py requests` shows what it is
worth.
"""

from collections.abc import Callable
from typing import Final

from ottla.host.net.outgoing import Outgoing

HELD_NS_MAX: Final = 500_000
BATCHED_BYTES_MAX: Final = 16 * 1024
"""What is larger is sent at once."""


class ResponseBatch:
    """What connections are to send at the end of this turn; one for all of a server.

    `call_soon` calls back in the next turn, before what arrives until then is handled.
    """

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], ticks_ns: Callable[[], int]
    ) -> None:
        self._call_soon = call_soon
        self._ticks_ns = ticks_ns
        self._waiting: list[Outgoing] = []
        self._last: Outgoing | None = None
        self._began_ns = 0
        self._is_scheduled = False

    def send(self, outgoing: Outgoing) -> None:
        """Send what a connection has queued: with that of others, where it is little."""
        if not 0 < outgoing.queued_bytes <= BATCHED_BYTES_MAX:
            outgoing.flush()
            return
        is_alone = outgoing is self._last and not self._waiting
        self._last = outgoing
        if is_alone:
            outgoing.flush()
            return
        self._waiting.append(outgoing)
        now_ns = self._ticks_ns()
        if len(self._waiting) == 1:
            self._began_ns = now_ns
            if not self._is_scheduled:
                self._is_scheduled = True
                self._call_soon(self._turn_over)
        elif now_ns - self._began_ns > HELD_NS_MAX:
            self._send()

    def _turn_over(self) -> None:
        self._is_scheduled = False
        self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.flush()
