"""What a watch keeps of requests until their responses are sent, or arrive."""

from collections.abc import Callable
from typing import Generic, TypeVar

Check = Callable[[bytes], None]
T = TypeVar("T")


class Awaited(Generic[T]):
    """By connection and correlation id."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], T] = {}

    def keep(self, connection: int, correlation_id: int, what: T) -> None:
        """Keep something of a request."""
        self._kept[connection, correlation_id] = what

    def take(self, connection: int, response: bytes) -> T | None:
        """Return what was kept of the request of a response's frame, once; None = nothing."""
        return self._kept.pop((connection, int.from_bytes(response[4:8], "big")), None)


class AwaitedChecks(Awaited[Check]):
    """Checks of the responses' frames."""

    def check(self, connection: int, response: bytes) -> None:
        """Check a response's frame, if a check was kept of its request."""
        found = self.take(connection, response)
        if found is not None:
            found(response)
