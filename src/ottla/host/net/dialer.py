"""The port of a channel to the network: delays, and connections made in the background.

`AsyncioDialer` makes real ones; the simulator has its own, so that the channel itself, with its
backoff, its timeouts and the cutting of responses, is the same code in both.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla.host.net.client_protocol import ClientProtocol

Address = tuple[str, int]

Dialed = Callable[[Exception | None], None]
"""Called once: with None when the connection is made, else with the exception."""


class Handle(Protocol):
    """A pending callback or connection attempt."""

    def cancel(self) -> object:
        """Cancel it; no effect once it has happened."""
        ...


class Dialer(Protocol):
    """See the module. All callbacks run on the loop, never from within the call itself."""

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Handle:
        """Call `callback` after a delay; 0 = in the next turn of the loop."""
        ...

    def dial(
        self, address: Address, protocol: ClientProtocol, timeout_ms: int, dialed: Dialed
    ) -> Handle:
        """Connect `protocol` to an address. Cancelled, `dialed` is not called."""
        ...


class AsyncioDialer:
    """Real connections on an asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Handle:
        """See `Dialer`."""
        if delay_ms == 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(delay_ms / 1000, callback)

    def dial(
        self, address: Address, protocol: ClientProtocol, timeout_ms: int, dialed: Dialed
    ) -> Handle:
        """See `Dialer`."""
        return self._loop.create_task(self._dial(address, protocol, timeout_ms, dialed))

    async def _dial(
        self, address: Address, protocol: ClientProtocol, timeout_ms: int, dialed: Dialed
    ) -> None:
        failure: Exception | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._loop.create_connection(lambda: protocol, *address)
        except Exception as error:
            # Any error: a channel that is not called waits for this attempt for ever. A look-up
            # also fails where no thread can be started, or with a name that cannot be encoded.
            failure = error
        dialed(failure)
