"""A broker of a few lines: it answers each request with what a test's function returns.

It speaks the real protocol over a real socket, with this project's own declarations, so the
commands under test run unchanged. It keeps no state; a test's functions may. Where one returns
None the connection ends, as that of a broker that dies.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header, encode_response
from ottla.wire.messages import describe_cluster as cluster_wire
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.registry import request_type
from ottla.wire.schema import spec_of, versions_of

Answer = Callable[[Any], Any]


def topic(name: str, partitions: int = 1, **more: Any) -> MetadataResponseTopic:
    """A topic whose partitions all live on broker 1."""
    return MetadataResponseTopic(
        error_code=0,
        name=name,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=(1,),
                isr_nodes=(1,),
            )
            for index in range(partitions)
        ),
        **more,
    )


class FakeBroker:
    """Broker 1. `topics`: those in Metadata; `received`: all requests; `ranges`: versions that it
    claims to serve, of other requests than those of all it knows.

    `others` are brokers by id, with their racks, of which only the ids exist: all are at this
    one's address. `rack` is its own.
    """

    def __init__(self) -> None:
        self.topics: list[MetadataResponseTopic] = []
        self.others: dict[int, str | None] = {}
        self.rack: str | None = None
        self.received: list[Any] = []
        self.ranges: dict[type, tuple[int, int]] = {}
        self._clients: list[socket.socket] = []
        self._answers: dict[type, Answer] = {
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._coordinator,
        }
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def answer(self, request: type, answer: Answer) -> None:
        """Serve a request from now on."""
        self._answers[request] = answer

    def requests(self, kind: type) -> list[Any]:
        """Return the requests of one kind that came, in order."""
        return [each for each in self.received if isinstance(each, kind)]

    def be_controller(self, node_id: int = 1, *, active: "FakeBroker | None" = None) -> None:
        """Answer DescribeCluster as a controller; `active` is another one, with the next id."""
        nodes = [(node_id, self.port)] + ([] if active is None else [(node_id + 1, active.port)])

        def describe(request: cluster_wire.DescribeClusterRequest) -> Any:
            return cluster_wire.DescribeClusterResponse(
                error_code=0,
                endpoint_type=request.endpoint_type,
                cluster_id="some-cluster",
                controller_id=nodes[-1][0],
                brokers=tuple(
                    cluster_wire.DescribeClusterBroker(broker_id=each, host="127.0.0.1", port=port)
                    for each, port in nodes
                ),
            )

        self.answer(cluster_wire.DescribeClusterRequest, describe)

    def disconnect(self) -> None:
        """Close the connections of all clients."""
        while self._clients:
            with suppress(OSError):
                self._clients.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening; idempotent."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # Else `accept` still takes one connection.
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(ConnectionError), client, client.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                header, position = decode_request_header(frame)
                version = header.api_version
                kind = request_type(header.api_key)
                response = self._respond(decode(kind, frame, version, position))
                if response is None:
                    return
                for chunk in encode_response(response, version, header.correlation_id):
                    client.sendall(chunk)

    def _respond(self, request: Any) -> Any:
        if isinstance(request, ApiVersionsRequest):
            return self._versions()
        self.received.append(request)
        return self._answers[type(request)](request)

    def _versions(self) -> ApiVersionsResponse:
        keys = []
        for kind in (*self._answers, ApiVersionsRequest):
            key = spec_of(kind).key
            known = versions_of(kind)
            first, last = self.ranges.get(kind, (known[0], known[-1]))
            assert key is not None
            keys.append(ApiVersion(api_key=key, min_version=first, max_version=last))
        return ApiVersionsResponse(error_code=0, api_keys=tuple(keys))

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        wanted = None if request.topics is None else {each.name for each in request.topics}
        known = {each.name: each for each in self.topics}
        if wanted is None:
            topics = list(self.topics)
        else:
            topics = [
                known.get(name) or MetadataResponseTopic(error_code=3, name=name, partitions=())
                for name in sorted(name or "" for name in wanted)
            ]
        brokers = tuple(
            MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=self.port, rack=rack)
            for node_id, rack in {1: self.rack, **self.others}.items()
        )
        return MetadataResponse(
            brokers=brokers, cluster_id="c", controller_id=1, topics=tuple(topics)
        )

    def _coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=self.port)
