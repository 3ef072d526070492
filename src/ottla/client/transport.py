"""How connections are made, by `security.protocol`.

PLAINTEXT alone so far. TLS and SASL belong here: they give sockets too, so that `Connection` knows
of neither.
"""

import socket
from collections.abc import Callable

PLAINTEXT = "PLAINTEXT"

Transport = Callable[[str, int, float], socket.socket]
"""Connects to host and port within a timeout in seconds. Raises: OSError."""


class SecurityProtocolError(ValueError):
    """The security protocol is not supported."""


def transport_of(security_protocol: str) -> Transport:
    """Return the transport of a `security.protocol`. Raises: SecurityProtocolError."""
    if security_protocol.strip().upper() != PLAINTEXT:
        raise SecurityProtocolError(f"security.protocol={security_protocol}: expected {PLAINTEXT}")
    return plaintext


def plaintext(host: str, port: int, timeout: float) -> socket.socket:
    """Connect without encryption and authentication."""
    connected = socket.create_connection((host, port), timeout=timeout)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected
