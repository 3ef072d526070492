"""Simulated sockets beneath the product's own channel.

A node's, or a client's, connections are `ottla.host.net.channel.Channel` and `ClientProtocol`, as
in a process; here is what they stand on: delays in virtual time, connections over the simulated
network, and a transport that delivers bytes as a socket does, a response now and then in pieces.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.host.net.channel import Channel
from ottla.host.net.client_protocol import ClientProtocol
from ottla.host.net.dialer import Dialed
from ottla.host.node_ports import Address, ChooseEndpoint
from ottla.testing.sim.net import MS, Network, Pipe
from ottla.testing.sim.scheduler import Call, Event, Process, below

SPLIT_ONE_IN = 16
"""Of so many responses one arrives in two pieces."""


class SimTransport(asyncio.Transport):
    """The client's end of a simulated connection; see `ottla.testing.sim.net.ClientEnd`."""

    def __init__(
        self,
        net: Network,
        place: int,
        owner: Process | None,
        protocol: ClientProtocol,
    ) -> None:
        super().__init__()
        self.place = place
        self.owner = owner
        self._net = net
        self._protocol = protocol
        self._pipe: Pipe | None = None

    def connect(self, pipe: Pipe) -> None:
        """Tell the protocol that the connection is established."""
        self._pipe = pipe
        self._protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send one frame; what is written after the end is dropped, as asyncio does."""
        if self._pipe is not None:
            self._pipe.send(bytes(data))

    def abort(self) -> None:
        """End the connection; the protocol is notified in an event of its own."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.abandon()
            self._net.scheduler.after(0, lambda: self._protocol.connection_lost(None), self.owner)

    def received(self, pipe: Pipe, frame: bytes) -> None:
        """Hand over what has arrived, in the pieces that the protocol has room for."""
        if pipe is not self._pipe:
            return
        random = self._net.random
        piece = len(frame)
        if below(random, SPLIT_ONE_IN) == 0:
            piece = 1 + random.randrange(piece)
        position = 0
        while position < len(frame) and self._pipe is not None:
            buffer = self._protocol.get_buffer(-1)
            count = min(len(buffer), piece - position, len(frame) - position)
            buffer[:count] = frame[position : position + count]
            position += count
            if position == piece:
                piece = len(frame)
            self._protocol.buffer_updated(count)

    def lost(self, pipe: Pipe, reason: str) -> None:
        """Tell the protocol that the connection has ended."""
        if pipe is self._pipe:
            self._pipe = None
            self._protocol.connection_lost(None)


class BlockedDial:
    """An attempt to connect over a cut link: it times out, unless all links are healed before."""

    def __init__(
        self, dialer: "SimDialer", connect: Callable[[], Event], timeout_ms: int, failed: Call
    ) -> None:
        self._blocked = dialer.net.blocked_dials
        self._blocked[self] = None
        self._connect = connect
        self._failed = failed
        self._event = dialer.after(timeout_ms, self._timed_out)

    def cancel(self) -> None:
        """See `ottla.host.net.dialer.Handle`."""
        self._blocked.pop(self, None)
        self._event.cancel()

    def healed(self) -> None:
        """Connect: the next packet gets through."""
        self._event.cancel()
        self._event = self._connect()

    def _timed_out(self) -> None:
        del self._blocked[self]
        self._failed()


class SimDialer:
    """See `ottla.host.net.dialer.Dialer`."""

    def __init__(
        self,
        net: Network,
        place: int,
        owner: Process | None,
    ) -> None:
        self.net = net
        self._place = place
        self._owner = owner

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Event:
        """Call `callback` after a delay, in the owner's process."""
        return self.net.scheduler.after(delay_ms * MS, callback, self._owner)

    def dial(
        self, address: Address, protocol: ClientProtocol, timeout_ms: int, dialed: Dialed
    ) -> Event | BlockedDial:
        """Connect, unless there is no listener or the link is cut."""
        net = self.net

        def failed() -> None:
            dialed(ConnectionRefusedError(f"no listener at {address[0]}:{address[1]}"))

        def reached() -> None:
            listener = net.listener_at(address)
            if listener is None or not listener.is_open:
                failed()
                return
            transport = SimTransport(net, self._place, self._owner, protocol)
            transport.connect(Pipe(net, transport, listener, address))
            dialed(None)

        def connect() -> Event:
            travel_us = net.delay_us() + net.delay_us()
            return net.scheduler.after(travel_us, reached, self._owner)

        if net.is_cut(self._place, address):
            return BlockedDial(self, connect, timeout_ms, failed)
        return connect()


class CheckedChannel(Channel):
    """The product's channel, where a protocol error of the peer is a bug: both ends are ours."""

    def _abort_connection(self, reason: str) -> None:
        raise AssertionError(reason)


def links_from(
    net: Network,
    place: int,
    owner: Process | None,
) -> "Callable[..., CheckedChannel]":
    """Return what makes links from a place; see `ottla.host.node_ports.Connect`."""
    dialer = SimDialer(net, place, owner)

    def connect(
        choose_endpoint: ChooseEndpoint, *, client_id: str, **timing: Any
    ) -> CheckedChannel:
        return CheckedChannel(dialer, choose_endpoint, client_id=client_id, **timing)

    return connect
