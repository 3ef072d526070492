"""How much of what remote reads brought is examined in one turn of the loop, by all of them.

A read of 4 MiB may hold 40,000 batches, each with a header and a checksum, and a broker has a
hundred reads: examined in one turn they would hold up every other request for seconds. Work is
counted, not timed, so that a replay is exact.
"""

from collections import deque

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.remote.dialogue import Dialogue

UNITS_PER_TURN = 2_000
"""Some 7 ms of work: a batch is one unit, and so are `BYTES_PER_UNIT` bytes."""

BYTES_PER_UNIT = 8 * 1024

UNITS_PER_STEP = 128
"""How much is examined before the budget is asked again."""

NOTED_UNITS = UNITS_PER_TURN // 4
"""Less does not end a turn by a timer, which would cost small reads one each."""


class TurnBudget:
    """See the module. `spent`: units since the last turn that was noted."""

    def __init__(
        self, timers: Timers, clock: Clock, *, units_per_turn: int = UNITS_PER_TURN
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._units_per_turn = units_per_turn
        self._waiting: deque[Pending[None]] = deque()
        self._is_armed = False
        self.spent = 0

    def wait(self) -> Dialogue[None]:
        """Wait for a turn in which work may be done; in order, and not at all while there is."""
        if self.spent < self._units_per_turn and not self._waiting:
            return
        turn: Pending[None] = Pending()
        self._waiting.append(turn)
        self._arm()
        try:
            yield turn
        except GeneratorExit:
            if not turn.done:
                self._waiting.remove(turn)
            raise

    def spend(self, batches: int, size: int) -> None:
        """Count so many batches of `size` bytes together, just examined."""
        self.spent += batches + size // BYTES_PER_UNIT
        if self.spent > NOTED_UNITS:
            self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._timers.at(self._clock.monotonic_ms(), self._next_turn)

    def _next_turn(self) -> None:
        """Begin another turn: those that wait go on, the next one while anything is left."""
        self._is_armed = False
        self.spent = 0
        while self._waiting and self.spent < self._units_per_turn:
            self._waiting.popleft().complete(None)
        if self._waiting:
            self._arm()
