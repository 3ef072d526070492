"""A blocking connection to one broker: no threads, no retries, one deadline for each request.

Below the cluster client; alone for readiness checks of local clusters, and protocol tests.
"""

import struct
import time
from types import TracebackType
from typing import TypeVar

from ottla.client.errors import NoSuchVersionError, request_name
from ottla.client.transport import Transport, plaintext
from ottla.wire.errors import WireError
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import spec_of, versions_of

R = TypeVar("R")

_SIZE = struct.Struct(">i")
_API_VERSIONS_KEY = 18
_UNSUPPORTED_VERSION = 35

RESPONSE_BYTES_MAX = 100 << 20
"""A larger size means that the peer does not speak Kafka's protocol."""


class Connection:
    """One socket to a broker. Sends ApiVersions when it connects.

    Raises: OSError where the network fails (TimeoutError at the deadline), WireError where the
            response is not Kafka's protocol, NoSuchVersionError.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout: float,
        transport: Transport = plaintext,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._correlation_id = 0
        self._socket = transport(host, port, timeout)
        try:
            self.versions = self._fetch_versions(time.monotonic() + timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()

    def version_for(self, request: type, *, at_most: int | None = None) -> int:
        """Return the newest version of a request that both sides support."""
        key = spec_of(request).key
        assert key is not None
        ours = versions_of(request)
        theirs = self.versions.get(key)
        if theirs is None:
            raise NoSuchVersionError(
                f"the broker at {self.host}:{self.port} does not serve {request_name(request)}"
            )
        version = min(ours[-1], theirs[-1], ours[-1] if at_most is None else at_most)
        if version < max(ours[0], theirs[0]):
            raise NoSuchVersionError(
                f"the broker at {self.host}:{self.port} serves versions {theirs[0]} to "
                f"{theirs[-1]} of {request_name(request)}; "
                f"expected one of {ours[0]} to {ours[-1]}"
            )
        return version

    def ask(
        self, request: object, response: type[R], *, timeout: float, version: int | None = None
    ) -> R:
        """Send a request and wait for its response."""
        if version is None:
            version = self.version_for(type(request))
        return self._ask(request, response, version, time.monotonic() + timeout)

    def _ask(self, request: object, response: type[R], version: int, deadline: float) -> R:
        self._correlation_id += 1
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(
            encode_request(request, version, self._correlation_id, self._client_id)
        )
        frame = self._receive(deadline)
        correlation_id, message = decode_response(response, frame, version)
        if correlation_id != self._correlation_id:
            raise WireError(
                f"the response has the correlation id {correlation_id}; "
                f"expected {self._correlation_id}"
            )
        return message

    def _fetch_versions(self, deadline: float) -> dict[int, range]:
        newest = versions_of(ApiVersionsRequest)[-1]
        request = ApiVersionsRequest(
            client_software_name="ottla", client_software_version=_software_version()
        )
        self._correlation_id += 1
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(encode_request(request, newest, self._correlation_id, self._client_id))
        frame = self._receive(deadline)
        # A broker without this version responds in version 0, with an error and its versions.
        refused = frame[4:6] == _UNSUPPORTED_VERSION.to_bytes(2)
        version = 0 if refused else newest
        _, response = decode_response(ApiVersionsResponse, frame, version)
        if refused:
            theirs = {each.api_key: each.max_version for each in response.api_keys}
            version = min(newest, theirs.get(_API_VERSIONS_KEY, 0))
            response = self._ask(ApiVersionsRequest(), ApiVersionsResponse, version, deadline)
        return {
            each.api_key: range(each.min_version, each.max_version + 1)
            for each in response.api_keys
        }

    def _receive(self, deadline: float) -> memoryview:
        (size,) = _SIZE.unpack(self._read(4, deadline))
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise WireError(f"a response of {size} bytes: the peer does not speak Kafka's protocol")
        return memoryview(self._read(size, deadline))

    def _read(self, count: int, deadline: float) -> bytearray:
        buffer = bytearray(count)
        view = memoryview(buffer)
        while view:
            self._socket.settimeout(_left(deadline))
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionResetError(f"{self.host}:{self.port} closed the connection")
            view = view[got:]
        return buffer


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _software_version() -> str:
    from ottla import __version__

    return __version__
