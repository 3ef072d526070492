"""The requests of one session, in the order in which they are made and answered.

The queue is open while there is a connection. Its owner reports the outcome of each request
(`arrived`), and when a connection ended (`broken`) and was made (`connected`).

A connection is lost and made again, step by step:
1. Each request that was sent fails. Reads are to be sent again; the others are answered with the
   failure, in order.
2. A request that was sent just then may not fail: kazoo keeps it and sends it with the next
   connection. A read is sent a second time all the same, and the first response is ignored; the
   others are not sent again.
3. With the next connection, the owner's own requests go first (they set watches again).
4. No response is delivered before the last of these, so that watches fire before responses that
show
   their changes.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

log = logging.getLogger(__name__)

SENT_MAX: Final = 100
"""The most requests passed to kazoo at a time; see `kazoo_handler.WakeUp` for the reason."""


class Stage(Enum):
    """The stage of a request."""

    WAITING = "waiting"
    SENT = "sent"
    ANSWERED = "answered"


@dataclass(slots=True, eq=False)
class Request:
    """One request until its response is delivered.

    Fields: `send`: sends it. `finish`: called with its response in turn. `repeats`: whether it is
            sent again after its connection broke. `attempt`: counts attempts: a response to an
            earlier one is ignored.
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
        """Send queued requests, `first` before all others. These are dropped if they break."""
        self._is_open = True
        self._first.extend(first)
        self._first_to_send.extend(first)
        self._pump()

    def arrived(self, request: Request, attempt: int, answer: Any, *, undone: bool) -> None:
        """Process a request's response, or its failure after which it may have been processed."""
        self._sent -= 1
        if attempt == request.attempt and request.stage is Stage.SENT:
            if undone and request.repeats:
                request.stage = Stage.WAITING
            else:
                request.stage, request.answer = Stage.ANSWERED, answer
        self.deliver()
        self._pump()

    def broken(self) -> None:
        """Stop sending until there is a connection again."""
        self._is_open = False
        for request in self._requests:
            if request.stage is Stage.SENT and request.repeats:
                request.stage = Stage.WAITING
                request.attempt += 1
        self._to_send = deque(each for each in self._requests if each.stage is Stage.WAITING)
        for request in self._first:
            request.attempt += 1  # A response would be of the old connection.
        self._first.clear()
        self._first_to_send.clear()
        self.deliver()

    def end(self) -> list[Request]:
        """Remove all requests and return the unanswered ones, in order."""
        self._is_open = False
        unanswered = list(self._requests)
        for queue in (self._requests, self._to_send, self._first, self._first_to_send):
            queue.clear()
        return unanswered

    def deliver(self) -> None:
        """Deliver the responses whose turn it is."""
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
    """Call a listener; log its exception, which is a bug."""
    try:
        function(*arguments)
    except Exception:
        log.exception("a ZooKeeper session listener failed")
