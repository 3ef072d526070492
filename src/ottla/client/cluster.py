"""The client of a cluster: routes requests to brokers, leaders and coordinators, and retries.

Not thread-safe: each thread, and each Spark task, has a client of its own.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.addresses import Address, parse_addresses
from ottla.client.connection import Connection
from ottla.client.errors import (
    ClientError,
    ConnectionFailedError,
    NoBrokerError,
    NoSuchVersionError,
    Refusal,
    UnencodableRequestError,
    UnknownBrokerError,
    check,
    network_reason,
    request_name,
)
from ottla.client.partitions import ByBroker, TopicPartition
from ottla.client.transport import PLAINTEXT, transport_of
from ottla.client.waiting import RETRY_SECONDS, Report, Waiting
from ottla.wire.errors import EncodeError, WireError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

R = TypeVar("R")
T = TypeVar("T")

SERVER_TIMEOUT_SHARE = 0.8
"""The share of the client's timeout that requests carry as their `timeout_ms`."""
SETTLE_SECONDS = 5.0
"""How long an unknown topic is retried: brokers receive the metadata of a new topic at different
times."""

NOT_DONE = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.FENCED_LEADER_EPOCH,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_CONTROLLER,
        Error.NOT_COORDINATOR,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_LEADER_EPOCH,
    }
)
"""A leader, coordinator or controller is being elected; nothing was done."""
_SETTLING = frozenset(
    {Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.INCONSISTENT_TOPIC_ID}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How to reach a cluster. Times are seconds.

    Fields: `bootstrap`:    HOST:PORT[,HOST:PORT...].
            `bootstrap_s`:  to find a broker that accepts a connection.
            `connect_s`:    for one address, at most.
            `request_s`:    for a response.
            `retry_s`:      for one operation with all its retries.
            `backoff_s`:    before the first retry; it doubles up to `backoff_s_max`.
    Raises: ValueError for the bootstrap servers and the security protocol.
    """

    bootstrap: str
    client_id: str = "ottla"
    security_protocol: str = PLAINTEXT
    bootstrap_s: float = 15.0
    connect_s: float = 5.0
    request_s: float = 30.0
    retry_s: float = 60.0
    backoff_s: float = RETRY_SECONDS
    backoff_s_max: float = 1.0

    def __post_init__(self) -> None:
        parse_addresses(self.bootstrap)
        transport_of(self.security_protocol)

    def with_timeout(self, seconds: float) -> "ClientConfig":
        """Return a copy with one timeout: to find a broker, for a response, and for retries."""
        return replace(self, bootstrap_s=seconds, request_s=seconds, retry_s=seconds)


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition."""

    node: int
    epoch: int


class ClusterClient:
    """Connections to a cluster's brokers, opened when first needed.

    `config`: may be replaced; open connections stay.
    `report`: takes a line that says what a caller waits for, after a second.
    Raises:   ClientError; UnencodableRequestError.
    """

    def __init__(self, config: ClientConfig, report: Report | None = None) -> None:
        self.config = config
        self._report = report
        self._open: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._cluster: MetadataResponse | None = None
        self._topic_ids: dict[str, Uuid] = {}
        self._leaders: dict[TopicPartition, Leader | None] = {}
        self._is_retrying = False

    def __enter__(self) -> "ClusterClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; idempotent."""
        while self._open:
            self._open.popitem()[1].close()

    @property
    def timeout_ms(self) -> int:
        """The `timeout_ms` of requests: the broker's timeout error must arrive before ours."""
        return int(self.config.request_s * 1000 * SERVER_TIMEOUT_SHARE)

    # -- requests ------------------------------------------------------------------------------

    def ask(
        self,
        request: object,
        response: type[R],
        *,
        node: int | None = None,
        at_most: int | None = None,
    ) -> R:
        """Send a request to any broker, or to `node`, and wait for the response. No retries.

        `at_most`: the highest version to use.
        """
        connection = self._any() if node is None else self._node(node)
        try:
            version = connection.version_for(type(request), at_most=at_most)
            return connection.ask(request, response, timeout=self.config.request_s, version=version)
        except EncodeError as error:
            raise UnencodableRequestError(request, error) from None
        except (OSError, WireError) as error:
            self._forget(connection)
            raise ConnectionFailedError(
                f"{connection.host}:{connection.port}: "
                f"{network_reason(error, self.config.request_s)} "
                f"(waiting for the response to {request_name(type(request))})"
            ) from error

    def serves(self, request: type) -> bool:
        """Tell whether a broker of the cluster serves this request."""
        try:
            self._any().version_for(request)
        except NoSuchVersionError:
            return False
        return True

    def version_for(self, request: type, *, node: int, at_most: int | None = None) -> int:
        """Return the newest version of a request that a broker and this client support."""
        return self._node(node).version_for(request, at_most=at_most)

    def versions(self, node: int) -> dict[int, range]:
        """Return which versions a broker serves, by API key."""
        return self._node(node).versions

    def with_retries(
        self,
        act: Callable[[], T],
        *,
        repeatable: bool = False,
        attempts_min: int = 1,
        backoff_s: float | None = None,
    ) -> T:
        """Run `act`; retry it with new metadata until the deadline. Inside another call of this,
        the outer one retries.

        Without `repeatable`, only after responses that say that nothing was done: what was lost
        may have been done (decision 19). With it, for questions and for what brokers recognise
        when it comes again, also after lost connections and all retriable errors.
        """
        if self._is_retrying:
            return act()
        self._is_retrying = True
        waiting = Waiting(self.config.retry_s, self._report)
        backoff = self.config.backoff_s if backoff_s is None else backoff_s
        attempts = 0
        try:
            while True:
                try:
                    return act()
                except (NoSuchVersionError, NoBrokerError):
                    raise
                except ClientError as error:
                    attempts += 1
                    limit_s = self._retry_limit_s(error, repeatable)
                    if waiting.seconds >= limit_s and attempts >= attempts_min:
                        raise
                    self.refresh()
                    waiting.pause(f"a leader or coordinator: {error}", backoff)
                    backoff = max(backoff, min(2 * backoff, self.config.backoff_s_max))
        finally:
            self._is_retrying = False

    def _retry_limit_s(self, error: ClientError, repeatable: bool) -> float:
        """Return until when an operation that failed so is retried; 0 = not at all."""
        is_passing = error.code in NOT_DONE
        if repeatable:
            is_passing = not isinstance(error, Refusal) or error.is_retriable
        if not is_passing:
            return 0.0
        if error.code in _SETTLING:
            return min(SETTLE_SECONDS, self.config.retry_s)
        return self.config.retry_s

    # -- the cluster ---------------------------------------------------------------------------

    def cluster(self) -> MetadataResponse:
        """Return the brokers; cached."""
        if self._cluster is None:
            self._take(self.ask(MetadataRequest(topics=()), MetadataResponse))
        assert self._cluster is not None
        return self._cluster

    def broker_ids(self) -> list[int]:
        """Return the ids of the live brokers, sorted."""
        return sorted(broker.node_id for broker in self.cluster().brokers)

    def topics(
        self,
        names: Collection[str] | None = None,
        *,
        create: bool = False,
        skip_unknown: bool = False,
    ) -> list[MetadataResponseTopic]:
        """Return topics (None = all), sorted by name.

        `create`: let the cluster create named topics that do not exist.
        Raises:   Refusal for a named topic that does not exist, unless `skip_unknown`.
        """
        wanted = None
        if names is not None:
            wanted = tuple(MetadataRequestTopic(name=name) for name in names)
        response = self.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=create), MetadataResponse
        )
        found = []
        for topic in response.topics:
            if skip_unknown and topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error_code != Error.LEADER_NOT_AVAILABLE:
                check(f"topic {topic.name}", topic.error_code)
            found.append(topic)
        self._take(response, found)
        return sorted(found, key=lambda topic: topic.name or "")

    def _take(
        self, response: MetadataResponse, topics: Collection[MetadataResponseTopic] = ()
    ) -> None:
        self._cluster = response
        self._brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        for topic in topics:
            name = topic.name or ""
            self._topic_ids[name] = topic.topic_id
            for each in topic.partitions:
                leader = Leader(each.leader_id, each.leader_epoch) if each.leader_id >= 0 else None
                self._leaders[name, each.partition_index] = leader

    def refresh(self) -> None:
        """Drop the cached metadata."""
        self._cluster = None  # The addresses stay: they may be better than the bootstrap servers.
        self._topic_ids.clear()
        self._leaders.clear()

    def leader(self, key: TopicPartition, *, topic_id: Uuid = NO_UUID) -> Leader:
        """Return the leader of a partition, from the cached metadata or a new request.

        Raises: Refusal if there is none; UNKNOWN_TOPIC_ID if the topic has another id now.
        """
        name, partition = key
        if name not in self._topic_ids:
            self.topics([name])
        subject = f"partition {name}-{partition}"
        if NO_UUID not in (topic_id, self._topic_ids[name]) and topic_id != self._topic_ids[name]:
            raise Refusal(subject, Error.UNKNOWN_TOPIC_ID)
        if key not in self._leaders:
            raise Refusal(subject, Error.UNKNOWN_TOPIC_OR_PARTITION)
        leader = self._leaders[key]
        if leader is None:
            raise Refusal(subject, Error.LEADER_NOT_AVAILABLE)
        return leader

    def by_leader(self, partitions: Collection[TopicPartition]) -> ByBroker:
        """Group partitions by the broker that leads them; all must exist and have a leader."""

        def group() -> ByBroker:
            unknown = {topic for topic, _ in partitions} - self._topic_ids.keys()
            if unknown:
                self.topics(sorted(unknown))
            grouped: ByBroker = {}
            for key in sorted(partitions):
                grouped.setdefault(self.leader(key).node, []).append(key)
            return grouped

        return self.with_retries(group)

    def coordinator(self, group: str) -> tuple[int, str, int]:
        """Return id, host and port of the broker that coordinates a group."""

        def find() -> tuple[int, str, int]:
            request = FindCoordinatorRequest(key=group)
            response = self.ask(request, FindCoordinatorResponse, at_most=3)
            check(f"group {group}", response.error_code, response.error_message)
            return response.node_id, response.host, response.port

        return self.with_retries(find)

    # -- connections ---------------------------------------------------------------------------

    def _any(self) -> Connection:
        for connection in self._open.values():
            return connection
        waiting = Waiting(self.config.bootstrap_s, self._report)
        what = f"a broker at {self.config.bootstrap}"
        # Without repetitions, in order.
        addresses = dict.fromkeys(parse_addresses(self.config.bootstrap))
        addresses |= dict.fromkeys(self._brokers.values())
        reasons = {}
        longest: dict[str, float] = {}
        with waiting.reporting(what):
            while True:
                for number, (host, port) in enumerate(addresses):
                    shown = f"{host}:{port}"
                    share = min(waiting.share_of(len(addresses) - number), self.config.connect_s)
                    longest[shown] = max(share, longest.get(shown, 0.0))
                    try:
                        return self._connect(host, port, share)
                    except (OSError, WireError) as error:
                        reasons[shown] = network_reason(error, longest[shown])
                if waiting.is_over:
                    break
                waiting.pause(what)
        raise NoBrokerError(self.config.bootstrap, self.config.bootstrap_s, reasons)

    def _node(self, node: int) -> Connection:
        known = ", ".join(map(str, self.broker_ids()))
        address = self._brokers.get(node)
        if address is None:
            raise UnknownBrokerError(
                f"broker {node} is not among the live ones: expected one of {known}"
            )
        open_already = self._open.get(address)
        if open_already is not None:
            return open_already
        what = f"broker {node} at {address[0]}:{address[1]}"
        timeout = min(self.config.request_s, self.config.connect_s)
        try:
            with Waiting(timeout, self._report).reporting(what):
                return self._connect(*address, timeout)
        except (OSError, WireError) as error:
            raise ConnectionFailedError(f"{what}: {network_reason(error, timeout)}") from error

    def _connect(self, host: str, port: int, timeout: float) -> Connection:
        connection = Connection(
            host,
            port,
            client_id=self.config.client_id,
            timeout=timeout,
            transport=transport_of(self.config.security_protocol),
        )
        self._open[host, port] = connection
        return connection

    def _forget(self, connection: Connection) -> None:
        connection.close()
        self._open = {key: each for key, each in self._open.items() if each is not connection}
