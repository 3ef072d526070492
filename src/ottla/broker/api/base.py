"""What an API file declares, and the context that its handler gets.

Every `kNN_<name>.py` beside this file has a constant `API` and a function
`handle(ctx, request)`. The handler returns one of: the response message; a `Pending` of it, where
the response comes later; `None`, where the protocol has no response (Produce, acks=0).
Handlers are plain functions on the node's loop: they never wait and never block. A handler whose
work grows with the request, or with the cluster, is a generator under `@InSteps`.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ottla.base.authorizer import (
    ALLOW_ALL,
    CLUSTER,
    SUPPORTED_OPERATIONS,
    Access,
    Authorizer,
    Operation,
    Resource,
    ResourceType,
)
from ottla.base.errors import ApiError
from ottla.base.limits import NODE_REQUEST_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX
from ottla.base.pending import Pending
from ottla.base.principal import Principal
from ottla.base.turns import Steps, at_once
from ottla.broker.ports import Connection, ControllerPort, Listener, Listeners, Message

if TYPE_CHECKING:
    from ottla.broker.core import Broker
    from ottla.metadata.image import ClusterImage
    from ottla.metadata.node_config import NodeConfig
    from ottla.wire.frames import RequestHeader

M = TypeVar("M")

Answer = Message | Pending[Message] | None

NOTHING_REFUSED: Set[str] = frozenset()

_ALL_OPERATIONS = {
    type_: sum(1 << operation for operation in operations)
    for type_, operations in SUPPORTED_OPERATIONS.items()
}

OPERATIONS_NOT_REQUESTED = -(2**31)
"""The authorized operations in a response whose request did not ask for them."""

NO_ANSWER: Any = object()
"""The value of a promise where the protocol has no response after all (Produce, acks=0)."""


class RunsOn(Enum):
    """Where a request is decided; a broker forwards the controller's requests."""

    BROKER = "broker"
    CONTROLLER = "controller"


CLIENTS = frozenset({Listener.CLIENT})
BROKERS = frozenset({Listener.CLIENT, Listener.INTER_BROKER})
"""Between nodes: the inter-broker listener is often the clients' one, too, so such an API is not
advertised, and checks the listener's name itself."""
NOBODY = range(0)
CONTROLLERS = frozenset({Listener.CONTROLLER})
NOWHERE: frozenset[Listener] = frozenset()
"""Not served in this mode."""
EVERYWHERE = frozenset(Listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API key as this server offers it.

    Fields: `versions`: served. `advertised`: the versions in ApiVersions, where they must differ
            from `versions`; an empty range = not advertised: an API between nodes on a port that
            clients may use, too. `listeners`: the kinds it is served on; only those of the kind
            CLIENT are advertised to clients. `is_public`: False = ApiVersions lists it to Ottla's
            own clients only: a key beyond Kafka's. `zookeeper`: the listeners in ZooKeeper mode,
            None = no difference. `at_most_once`: it is not idempotent, as a name in it may belong
            to another topic by then: a broker does not retry it where the controller may have done
            it. `large_answers`: a small request may have a large response.
            `client_elements_max`: array elements that a client's request may hold.
            `cluster_operation`: what the principal must be allowed to do to the cluster; the
            dispatcher asks. `refuse`: returns the response where it is not allowed, None = one
            with that error at its top level. `access`: all other questions to the authorizer,
            which the handler asks.
    """

    key: int
    versions: range
    advertised: range | None = None
    is_public: bool = True
    listeners: frozenset[Listener] = CLIENTS
    zookeeper: frozenset[Listener] | None = None
    runs_on: RunsOn = RunsOn.BROKER
    at_most_once: bool = False
    large_answers: bool = False
    client_elements_max: int = REQUEST_ELEMENTS_MAX
    cluster_operation: Operation | None = None
    refuse: "Callable[[Context, Message, ApiError], Message] | None" = None
    access: tuple[Access, ...] = ()

    def answers_on(self, *, zookeeper: bool) -> frozenset[Listener]:
        """Return the kinds of listener it is served on in a cluster of that mode."""
        return self.zookeeper if zookeeper and self.zookeeper is not None else self.listeners

    @property
    def is_for_clients(self) -> bool:
        """Tell whether clients use it, and not only nodes."""
        return Listener.CLIENT in self.listeners and self.advertised != NOBODY

    @property
    def is_forwarded(self) -> bool:
        """Tell whether brokers forward clients' requests of it to the controller."""
        return self.runs_on is RunsOn.CONTROLLER and self.is_for_clients

    @property
    def elements_max(self) -> int:
        """Return how many array elements a request may hold."""
        return self.client_elements_max if self.is_for_clients else NODE_REQUEST_ELEMENTS_MAX


class InSteps(Generic[M]):
    """A handler whose work grows with its request, as a generator that yields in between.

    The dispatcher runs `steps` in turns (`ottla.base.turns`); a call runs all of them at once.
    """

    def __init__(self, steps: "Callable[[Context, M], Steps[Answer]]") -> None:
        self.steps = steps

    def __call__(self, ctx: "Context", request: M) -> Answer:
        """Handle the request at once."""
        return at_once(self.steps(ctx, request))


class QuorumPort(Protocol):
    """The metadata quorum of this node: the requests of controllers and observers."""

    @property
    def leader_id(self) -> int:
        """Return the quorum's leader as far as this node knows, or -1."""
        ...

    @property
    def committed_offset(self) -> int:
        """Return the offset of the last committed metadata record, or -1."""
        ...

    @property
    def nodes(self) -> Mapping[int, Listeners]:
        """Return the listeners of each voter, one at least, by node id."""
        ...

    def fetch(self, ctx: "Context", request: Message) -> Answer:
        """Answer a Fetch of the metadata log."""
        ...

    def fetch_snapshot(self, ctx: "Context", request: Message) -> Answer:
        """Answer FetchSnapshot."""
        ...

    def describe(self, ctx: "Context", request: Message) -> Answer:
        """Answer DescribeQuorum."""
        ...

    def vote(self, ctx: "Context", request: Message) -> Answer:
        """Answer Vote."""
        ...

    def begin_epoch(self, ctx: "Context", request: Message) -> Answer:
        """Answer BeginQuorumEpoch."""
        ...

    def end_epoch(self, ctx: "Context", request: Message) -> Answer:
        """Answer EndQuorumEpoch."""
        ...


@dataclass(slots=True)
class Context:
    """One request's context: its connection, the time, and the parts of the node it may use."""

    header: "RequestHeader"
    connection: Connection
    now_ms: int
    """Wall clock, epoch milliseconds."""
    monotonic_ms: int
    node: "NodeFacts"
    broker_or_none: "Broker | None" = None
    controller_or_none: ControllerPort | None = None
    quorum_or_none: QuorumPort | None = None
    call_later: Callable[[Callable[[], None]], object] = lambda call: call()
    """Calls back in a later turn of the loop, for work that goes on after a promise completed."""
    authorizer: Authorizer = ALLOW_ALL

    @property
    def version(self) -> int:
        """Return the request's API version."""
        return self.header.api_version

    @property
    def principal(self) -> Principal:
        """Return who sent the request: the client, where a broker has forwarded it."""
        return self.connection.principal

    def refused(self, access: Access, names: Iterable[str]) -> Set[str]:
        """Return those of the named resources to which the request has no access.

        `names` are not looked at where everything is allowed.
        """
        if self.authorizer is ALLOW_ALL:
            return NOTHING_REFUSED
        type_ = access.resource_type
        resources = [Resource(type_, name) for name in dict.fromkeys(names)]
        if not resources:
            return NOTHING_REFUSED
        allowed = self._authorize(access.operation, resources)
        return frozenset(each.name for each in resources if each not in allowed)

    def allows(self, access: Access, name: str = CLUSTER.name) -> bool:
        """Tell whether the request has access to one resource, by default the cluster."""
        if self.authorizer is ALLOW_ALL:
            return True
        return bool(self._authorize(access.operation, [Resource(access.resource_type, name)]))

    def allows_any(self, access: Access) -> bool:
        """Tell whether the request has access to any resource of the type, existing or not."""
        return self.authorizer is ALLOW_ALL or self.authorizer.authorize_by_resource_type(
            self.principal, self.connection.client_host, access.operation, access.resource_type
        )

    def require(self, access: Access, name: str) -> None:
        """Raise ApiError with the error of the resource's type where there is no access to it."""
        if not self.allows(access, name):
            raise ApiError(access.error)

    def authorized_operations(self, resource: Resource) -> int:
        """Return what the principal may do to a resource, as a bit field (KIP-430)."""
        if self.authorizer is ALLOW_ALL:
            return _ALL_OPERATIONS[resource.type]
        operations = SUPPORTED_OPERATIONS[resource.type]
        return sum(1 << each for each in operations if self._authorize(each, [resource]))

    def authorized_topic_operations(self, topic: str) -> int:
        """Return what the principal may do to a topic, as a bit field."""
        return self.authorized_operations(Resource(ResourceType.TOPIC, topic))

    def _authorize(self, operation: Operation, resources: list[Resource]) -> Set[Resource]:
        host = self.connection.client_host
        return self.authorizer.authorize(self.principal, host, operation, resources)

    @property
    def broker(self) -> "Broker":
        """Return the broker of this node; for APIs of broker listeners only."""
        assert self.broker_or_none is not None
        return self.broker_or_none

    @property
    def controller(self) -> ControllerPort:
        """Return the controller of this node; for APIs that run on it only."""
        assert self.controller_or_none is not None
        return self.controller_or_none

    @property
    def quorum(self) -> QuorumPort:
        """Return the metadata quorum of this node; for controller listeners only."""
        assert self.quorum_or_none is not None
        return self.quorum_or_none


class NodeFacts(Protocol):
    """The node, broker or controller, as every handler may use it."""

    node_id: int
    cluster_id: str
    config: "NodeConfig"
    """The node's properties from its file; a broker's dynamic ones are in its image."""

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Return the lowest and highest level of each feature that this node supports."""
        ...

    @property
    def image(self) -> "ClusterImage":
        """Return the newest committed metadata of this node."""
        ...

    def advertised(self, listener: Listener, *, to_ottla: bool = False) -> Mapping[int, range]:
        """Return the versions by API key in ApiVersions of a listener.

        `to_ottla`: for one of Ottla's own clients.
        """
        ...

    def dispatch_embedded(self, ctx: Context, frame: memoryview) -> "Pending[bytes | None]":
        """Handle a request that came inside an Envelope; answer its response, header included."""
        ...
