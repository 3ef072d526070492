"""How a broker reaches the other brokers: what followers need of the network, and no more.

The node implements it over connections, the simulator over a network of its own.
"""

from typing import Any, Protocol

from ottla.base.errors import ApiError
from ottla.base.pending import Pending


class Sender(Protocol):
    """A way to one other node. Requests are answered in the order in which they were sent."""

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send one request; answer its response, or why there is none.

        Bytes in a response belong to the sender: they are only good while the listeners of the
        answer run.
        """
        ...


class Peers(Protocol):
    """The other brokers."""

    def to(self, broker_id: int, lane: int = 0) -> Sender:
        """Return the way to a broker. Requests of different lanes do not wait for each other."""
        ...
