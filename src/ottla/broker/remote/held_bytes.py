"""A bound on the bytes that many dialogues have received and not written yet.

Who is about to ask for more waits while too many are held: a broker whose disk is slow must not
collect in memory what a thousand partitions have asked for. What was asked for before may still
come, so what is held may exceed the bound by the responses that are under way.
"""

from collections import deque

from ottla.base.pending import Pending
from ottla.broker.remote.dialogue import Dialogue


class HeldBytes:
    """See the module. Fields: `held`: now."""

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0
        self._bytes_max = bytes_max
        self.held = 0
        self._waiting: deque[Pending[None]] = deque()

    def wait(self) -> Dialogue[None]:
        """Wait until more may be asked for; who waits longest goes first."""
        while self.held >= self._bytes_max:
            turn: Pending[None] = Pending()
            self._waiting.append(turn)
            try:
                yield turn
            except GeneratorExit:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                raise

    def take(self, count: int) -> None:
        """Note bytes that have come."""
        self.held += count

    def give_back(self, count: int) -> None:
        """Note that such bytes are written, or dropped."""
        self.held -= count
        assert self.held >= 0
        self._hand_out()

    def _hand_out(self) -> None:
        """Let all who wait look again: each one that asks for more may be the last."""
        if self.held < self._bytes_max and self._waiting:
            waiting, self._waiting = self._waiting, deque()
            for turn in waiting:
                turn.complete(None)
