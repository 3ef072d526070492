"""How a broker reaches the other brokers: the network interface of followers.

The node implements it over connections, the simulator over a network of its own.
"""

from typing import Any, Protocol

from ottla.base.errors import ApiError
from ottla.base.pending import Pending


class Sender(Protocol):
    """A way to one other node. Requests are answered in the order in which they were sent."""

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send one request; return the promise of its response, or of the error.

        Bytes in a response belong to the sender: they are valid only while the promise's listeners
        run.
        """
        ...


class Peers(Protocol):
    """The other brokers."""

    def to(self, broker_id: int, lane: int = 0) -> Sender:
        """Return the connection to a broker. Different lanes are different connections."""
        ...
