"""A blocking client for raw record batches: finds leaders, sends requests, retries.

Records stay bytes here. Not thread-safe: each Spark task has a client of its own.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.base.errors import RETRIABLE, Error, error_name
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.connection import Connection
from ottla.client.errors import NoSuchVersionError
from ottla.spark.cluster_options import Address, ClusterOptions
from ottla.spark.errors import ClusterError
from ottla.spark.options import TopicPartition
from ottla.wire.errors import WireError
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

R = TypeVar("R")
T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0
BOOTSTRAP_SECONDS: Final = 15.0
"""How long to try a cluster without any response: a wrong address should fail soon."""
BACKOFF_SECONDS_MAX: Final = 1.0
SETTLE_SECONDS: Final = 5.0
"""How long an unknown topic is retried: brokers receive the metadata of a new topic at different
times."""

_SETTLING: Final = frozenset(
    {Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.INCONSISTENT_TOPIC_ID}
)


class Refused(Exception):
    """A broker responded with an error code."""

    def __init__(self, subject: str, code: int, message: str | None = None) -> None:
        self.code = code
        try:
            words = message or Error(code).message
        except ValueError:
            words = message or ""
        super().__init__(f"{subject}: {words} ({error_name(code)})")

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's id and leaders; None = the partition has no leader now."""

    name: str
    id: Uuid
    is_internal: bool
    leaders: Mapping[int, Leader | None]


class ClusterClient:
    """Connections to a cluster's brokers, opened when first needed.

    Raises: ClusterError where the cluster does not respond, or for an error that is not retriable.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._open: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}

    def __enter__(self) -> "ClusterClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; idempotent."""
        while self._open:
            self._open.popitem()[1].close()

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

        Raises: OSError and WireError, which close the connection; NoSuchVersionError.
        """
        connection = self.any_connection() if node is None else self.connection(node)
        try:
            version = connection.version_for(type(request), at_most=at_most)
            timeout = self.options.request_timeout_ms / 1000
            return connection.ask(request, response, timeout=timeout, version=version)
        except (OSError, WireError):
            self.forget(connection)
            raise

    def with_retries(
        self,
        what: str,
        act: Callable[[], T],
        *,
        attempts_min: int = 1,
        backoff_ms: int | None = None,
    ) -> T:
        """Run `act`; retry it after network errors and leader changes, until the API timeout.

        The metadata is refreshed before each retry.
        """
        begun = time.monotonic()
        backoff = (self.options.retry_backoff_ms if backoff_ms is None else backoff_ms) / 1000
        attempts = 0
        while True:
            try:
                return act()
            except NoSuchVersionError as error:
                raise ClusterError(f"{what}: {error}") from None
            except (OSError, WireError, Refused) as error:
                attempts += 1
                late = time.monotonic() - begun >= self._retry_limit_s(error)
                if late and attempts >= attempts_min:
                    code = error.code if isinstance(error, Refused) else 0
                    raise ClusterError(f"{what}: {_reason(error)}", code) from error
            self.refresh()
            time.sleep(backoff)
            backoff = min(2 * backoff, BACKOFF_SECONDS_MAX)

    def _retry_limit_s(self, error: Exception) -> float:
        limit_s = self.options.api_timeout_ms / 1000
        if isinstance(error, Refused):
            if not error.is_retriable:
                return 0.0
            if error.code in _SETTLING:
                return min(SETTLE_SECONDS, limit_s)
        return limit_s

    # -- metadata ------------------------------------------------------------------------------

    def topics(
        self, names: Collection[str] | None = None, *, create: bool = False
    ) -> dict[str, Topic]:
        """Return topics by name (None = all), without unknown ones.

        `create`: allow auto-creation of named topics that do not exist.
        """
        wanted = None
        if names is not None:
            wanted = tuple(MetadataRequestTopic(name=name) for name in sorted(names))
        response = self.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=create), MetadataResponse
        )
        self._brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        found = {}
        for each in response.topics:
            if each.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION or each.name is None:
                continue
            if each.error_code not in (Error.NONE, Error.LEADER_NOT_AVAILABLE):
                raise Refused(f"topic {each.name}", each.error_code)
            found[each.name] = _topic(each.name, each)
        self._topics.update(found)
        return found

    def leader(self, key: TopicPartition, *, topic_id: Uuid = NO_UUID) -> Leader:
        """Return the leader of a partition, from the cached metadata or a new request.

        Raises: Refused if there is none; UNKNOWN_TOPIC_ID if the topic has another id now.
        """
        name, partition = key
        topic = self._topics.get(name)
        if topic is None:
            topic = self.topics([name]).get(name)
        subject = f"{name}-{partition}"
        if topic is None:
            raise Refused(subject, Error.UNKNOWN_TOPIC_OR_PARTITION)
        if NO_UUID not in (topic_id, topic.id) and topic_id != topic.id:
            raise Refused(subject, Error.UNKNOWN_TOPIC_ID)
        if partition not in topic.leaders:
            raise Refused(subject, Error.UNKNOWN_TOPIC_OR_PARTITION)
        leader = topic.leaders[partition]
        if leader is None:
            raise Refused(subject, Error.LEADER_NOT_AVAILABLE)
        return leader

    def by_leader(self, keys: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by the broker that leads them."""
        wanted = sorted(keys)
        unknown = {topic for topic, _ in wanted} - set(self._topics)
        if unknown:
            self.topics(unknown)
        grouped: dict[int, list[TopicPartition]] = {}
        for key in wanted:
            grouped.setdefault(self.leader(key).node, []).append(key)
        return grouped

    def refresh(self) -> None:
        """Drop the cached metadata."""
        self._topics.clear()

    def broker_ids(self) -> list[int]:
        """Return the ids of the brokers that the last metadata named, sorted."""
        return sorted(self._brokers)

    # -- connections ---------------------------------------------------------------------------

    def any_connection(self) -> Connection:
        """Return a connection to some broker."""
        for connection in self._open.values():
            return connection
        seconds = min(BOOTSTRAP_SECONDS, self.options.api_timeout_ms / 1000)
        deadline = time.monotonic() + seconds
        while True:
            for address in (*self.options.bootstrap, *sorted(self._brokers.values())):
                try:
                    return self._connect(address)
                except (OSError, WireError) as error:
                    reason = f"{address[0]}:{address[1]}: {_reason(error)}"
            if time.monotonic() >= deadline:
                shown = ",".join(f"{host}:{port}" for host, port in self.options.bootstrap)
                raise ClusterError(f"no broker answers at {shown} within {seconds:g} s; {reason}")
            time.sleep(self.options.retry_backoff_ms / 1000)

    def connection(self, node: int) -> Connection:
        """Return a connection to one broker."""
        address = self._brokers.get(node)
        if address is None:
            raise Refused(f"broker {node}", Error.LEADER_NOT_AVAILABLE)
        return self._open.get(address) or self._connect(address)

    def forget(self, connection: Connection) -> None:
        """Close a connection that failed."""
        connection.close()
        self._open = {key: each for key, each in self._open.items() if each is not connection}

    def _connect(self, address: Address) -> Connection:
        connection = Connection(*address, client_id=self.options.client_id, timeout=CONNECT_SECONDS)
        self._open[address] = connection
        return connection


def _topic(name: str, topic: MetadataResponseTopic) -> Topic:
    leaders = {
        each.partition_index: Leader(each.leader_id, each.leader_epoch)
        if each.leader_id >= 0
        else None
        for each in topic.partitions
    }
    return Topic(name, topic.topic_id, topic.is_internal, leaders)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    return str(error)
