"""A client's connection to a group's coordinator, and its discovery.

Source: Kafka's AbstractCoordinator; KIP-699 (FindCoordinator with several keys).
"""

from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.testing.sim_clients.client import Port, SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

FIND_VERSION = 4
REQUEST_TIMEOUT_MS = 3_000
BACKOFF_MS = 150

LOST = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE})
"""Errors after which a client looks up the coordinator again."""


class Coordinator:
    """One client's connection to the coordinator of one group.

    Fields: `node`: the coordinator, -1 = to be looked up. `answered_by`: the node that sent the
            last response; `node` may have changed while a request was under way.
    """

    def __init__(self, client: SimClient, port: Port, group: str) -> None:
        self.client = client
        self.group = group
        self.node = NO_LEADER
        self.answered_by = NO_LEADER
        self._port = port

    def close(self) -> None:
        """Close all connections, as a process does that dies."""
        self.node = NO_LEADER
        self._port.close()

    def ask(
        self, request: object, version: int, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Dialogue[Any | ApiError]:
        """Send one request to the coordinator; look it up first if it is not known."""
        if self.node == NO_LEADER:
            error = yield from self._find()
            if error:
                return ApiError(error)
        node = self.node
        answer = yield self._port.send(node, request, version, timeout_ms)
        if isinstance(answer, ApiError):
            self.node = NO_LEADER
        else:
            self.answered_by = node
        return answer

    def note_error(self, error: Error) -> None:
        """Forget the coordinator if the error says that it is another node."""
        if error in LOST:
            self.node = NO_LEADER

    def _find(self) -> Dialogue[Error]:
        client = self.client
        request = FindCoordinatorRequest(coordinator_keys=(self.group,))
        answer = yield client.send(client.any_node(), request, FIND_VERSION, REQUEST_TIMEOUT_MS)
        if isinstance(answer, ApiError):
            return answer.error
        (found,) = answer.coordinators
        if found.error_code == Error.NONE:
            self.node = found.node_id
        return Error(found.error_code)
