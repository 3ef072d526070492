"""Turns of a loop that a test runs by hand, with a clock that moves as it says."""

from collections.abc import Callable

from ottla.base.turns import Turns


class ScriptedTurns(Turns):
    """Fields: `now_ns`: what its clock says; `calls`: what is to be called in the next turn."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.calls: list[Callable[[], None]] = []
        super().__init__(lambda: self.now_ns, self.calls.append)

    def turn(self) -> None:
        """Run one turn of the loop."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def run_all(self) -> int:
        """Run turns until nothing is left to do; return how many."""
        count = 0
        while self.calls:
            self.turn()
            count += 1
        return count
