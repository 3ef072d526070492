"""A gate that closes while clients connect leaves no socket open."""

import gc
import socket
import time
from contextlib import ExitStack, suppress

from .store_gate import StoreGate

CLIENTS = 20
HELD_SECONDS = 0.05


def test_connections_of_the_moment_when_it_closes_are_closed() -> None:
    """A socket that nothing closes fails the test, as any ResourceWarning does."""
    with socket.create_server(("127.0.0.1", 0)) as endpoint, ExitStack() as clients:
        with StoreGate(endpoint.getsockname()[1]) as gate:
            # Its loop is busy while they connect, so that it accepts them and closes in one turn.
            gate._loop.call_soon_threadsafe(time.sleep, HELD_SECONDS)
            connected = [
                clients.enter_context(socket.create_connection(("127.0.0.1", gate.port)))
                for _ in range(CLIENTS)
            ]
        gc.collect()
        for each in connected:
            each.settimeout(10)
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""
