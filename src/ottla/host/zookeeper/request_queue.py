"""The requests of one session, in the order in which they were made and are answered.

The line is open while there is a connection. Whoever owns it gives it what the connection's end did
to each request (`arrived`) and says when a connection ended (`broken`) and came (`connected`).

A connection lost and found again, step by step:
1. Each request that was sent comes back undone. Those that only read are to be sent again; the
   others are answered so, in their turn.
2. What was sent just then may not come back: it stays with the sender, which sends it once there is
   a connection again. What only reads is sent a second time all the same, and the answer to the
   first is ignored; the others keep their one chance.
3. With the next connection, its owner's own requests go first (they set watches anew).
4. No answer is given before the last of these came, so watches fire before answers that show why.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

log = logging.getLogger(__name__)

SENT_MAX: Final = 100
"""Requests with kazoo at a time; see `kazoo_handler.WakeUp` for why there is a bound."""


class Stage(Enum):
    """Where a request is."""

    WAITING = "waiting"
    SENT = "sent"
    ANSWERED = "answered"


@dataclass(slots=True, eq=False)
class Request:
    """One request until its answer is given.

    Fields: `send`: gives it to whoever knows the connection. `finish`: takes its answer in turn.
            `repeats`: whether it is sent again where its connection broke. `attempt`: counts
            sendings: an answer to an earlier one is ignored.
    """

    send: Callable[[], object]
    finish: Callable[[Any], None]
    repeats: bool = True
    stage: Stage = Stage.WAITING
    attempt: int = 0
    answer: Any = None


class RequestQueue:
    """See the module. `send` is called with a request that is to be sent now."""

    def __init__(self, send: Callable[[Request], None]) -> None:
        self._send = send
        self._is_open = False
        self._requests: deque[Request] = deque()
        self._to_send: deque[Request] = deque()
        self._first: deque[Request] = deque()
        self._first_to_send: deque[Request] = deque()
        self._sent = 0

    def add(self, request: Request) -> None:
        """Add a request; one that is answered already only waits for its turn."""
        self._requests.append(request)
        if request.stage is Stage.WAITING:
            self._to_send.append(request)
            self._pump()

    def connected(self, first: Sequence[Request]) -> None:
        """Send what waits, `first` before all others. These are forgotten where they break."""
        self._is_open = True
        self._first.extend(first)
        self._first_to_send.extend(first)
        self._pump()

    def arrived(self, request: Request, attempt: int, answer: Any, *, undone: bool) -> None:
        """Take what became of a request: its answer, or that it came back perhaps undone."""
        self._sent -= 1
        if attempt == request.attempt and request.stage is Stage.SENT:
            if undone and request.repeats:
                request.stage = Stage.WAITING
            else:
                request.stage, request.answer = Stage.ANSWERED, answer
        self.deliver()
        self._pump()

    def broken(self) -> None:
        """Send nothing until there is a connection again."""
        self._is_open = False
        for request in self._requests:
            if request.stage is Stage.SENT and request.repeats:
                request.stage = Stage.WAITING
                request.attempt += 1
        self._to_send = deque(each for each in self._requests if each.stage is Stage.WAITING)
        for request in self._first:
            request.attempt += 1  # Whatever comes of it is of a connection that is gone.
        self._first.clear()
        self._first_to_send.clear()
        self.deliver()

    def end(self) -> list[Request]:
        """Forget all requests and return those that have no answer, in order."""
        self._is_open = False
        unanswered = list(self._requests)
        for queue in (self._requests, self._to_send, self._first, self._first_to_send):
            queue.clear()
        return unanswered

    def deliver(self) -> None:
        """Give the answers whose turn it is."""
        for queue in (self._first, self._requests):
            while queue and queue[0].stage is Stage.ANSWERED:
                request = queue.popleft()
                safely(request.finish, request.answer)
            if queue:
                return

    def _pump(self) -> None:
        while self._is_open and self._sent < SENT_MAX:
            queue = self._first_to_send or self._to_send
            if not queue:
                return
            request = queue.popleft()
            request.stage = Stage.SENT
            request.attempt += 1
            self._sent += 1
            self._send(request)


def safely(function: Callable[..., None], *arguments: Any) -> None:
    """Call a listener; what it raises is a bug of its own, and others are still to be told."""
    try:
        function(*arguments)
    except Exception:
        log.exception("a ZooKeeper session listener failed")
