"""The errors of the client. Their texts are one line, fit for a user."""

import socket
from collections.abc import Mapping

from ottla.base.errors import RETRIABLE, Error, error_name
from ottla.wire.errors import EncodeError


class ClientError(Exception):
    """A request failed. `code`: the broker's error; 0 = there was no response."""

    code = 0


class NoSuchVersionError(ClientError):
    """The broker serves no version of the request that this client supports."""


class NoBrokerError(ClientError):
    """None of the known addresses accepted a connection in time."""

    def __init__(self, bootstrap: str, timeout: float, reasons: Mapping[str, str]) -> None:
        super().__init__(
            f"no broker answers at {bootstrap} within {seconds_text(timeout)} "
            f"({reasons_text(reasons)})"
        )


class ConnectionFailedError(ClientError):
    """The connection to one broker failed. The request may have been handled."""


class UnknownBrokerError(ClientError):
    """The broker is not in the cluster's metadata."""


class Refusal(ClientError):
    """A broker responded with an error: `code`, and its message if there was one."""

    def __init__(self, subject: str, code: int, message: str | None = None) -> None:
        self.code = code
        self.reason = reason_of(code, message)
        super().__init__(f"{subject}: {self.reason}" if subject else self.reason)

    @property
    def is_retriable(self) -> bool:
        """Tell whether Kafka calls the error retriable."""
        return self.code in RETRIABLE


class UnencodableRequestError(Exception):
    """The protocol cannot encode a value of the request. A caller's error, so no ClientError."""

    def __init__(self, request: object, error: EncodeError) -> None:
        super().__init__(f"{request_name(type(request))} cannot be encoded: {error}")
        self.request = request
        self.error = error


def check(subject: str, code: int, message: str | None = None) -> None:
    """Raise Refusal unless `code` is 0."""
    if code:
        raise Refusal(subject, code, message)


def reason_of(code: int, message: str | None = None) -> str:
    """Return the text of an error: the broker's message, or Kafka's, and the code's name."""
    name = error_name(code)
    if message:
        return f"{message} ({name})"
    try:
        return f"{Error(code).message} ({name})"
    except ValueError:
        return name


def request_name(request: type) -> str:
    """Return Kafka's name of a request's API."""
    return request.__name__.removesuffix("Request")


def network_reason(error: Exception, timeout: float) -> str:
    """Return the text of a network error, without the address. `timeout`: seconds."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds_text(timeout)}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError) and error.strerror is None:
        return "the peer closed the connection"  # `Connection` names the address itself.
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)


def reasons_text(reasons: Mapping[str, str]) -> str:
    """Return the reason for each address, in order."""
    return "; ".join(f"{address}: {reason}" for address, reason in reasons.items())


def seconds_text(seconds: float) -> str:
    """Return a duration with three digits: the rest of a timeout has many."""
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:g} s"
