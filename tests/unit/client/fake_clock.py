"""A clock for commands that wait; it stands in for the module `time`."""


class Clock:
    """Time that passes only in waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
