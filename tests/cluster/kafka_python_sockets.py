"""Closes the sockets that kafka-python forgets.

A consumer or producer that is closed while it connects drops the socket without closing it, also
one that the broker has accepted by then. The warning about it would fail a test, often another
one, and filters of warnings cannot tell these sockets from ours.
"""

import socket

from kafka.net.inet import KafkaNetSocket


class ForgottenSocket(socket.socket):
    """A socket that is closed with its last reference, without a warning."""

    def __del__(self) -> None:
        self.close()


def _new_socket(
    _: KafkaNetSocket,
    family: int = socket.AF_UNSPEC,
    sock_type: int = socket.SOCK_STREAM,
    proto: int = socket.IPPROTO_TCP,
) -> socket.socket:
    return ForgottenSocket(family, sock_type, proto)


def close_forgotten_sockets() -> None:
    """Let kafka-python create sockets of this class in this process."""
    KafkaNetSocket.socket = _new_socket
