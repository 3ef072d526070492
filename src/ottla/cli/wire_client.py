"""A small blocking administration client: finds brokers, leaders and coordinators.

The administration commands use it instead of librdkafka, which lacks DescribeLogDirs, OffsetDelete,
DescribeTopicPartitions (eligible leader replicas) and the cluster-wide default broker
configuration, and hides topic ids and the brokers' error messages. The console commands, which
transfer records, use librdkafka.
"""

import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from ottla.base.errors import Error, error_name
from ottla.cli.encode_errors import encode_failure
from ottla.cli.errors import CommandError, UsageError, shown
from ottla.client.connection import Connection, NoSuchVersionError
from ottla.wire.errors import EncodeError, WireError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

SERVER_TIMEOUT_SHARE = 0.8
"""The share of the client's timeout that requests carry as their `timeout_ms`."""
R = TypeVar("R")
T = TypeVar("T")

TopicPartition = tuple[str, int]
ByBroker = dict[int, list[TopicPartition]]

RETRY_SECONDS = 0.1
REPORT_SECONDS = 1.0
CONNECT_SECONDS = 5.0
LAST_TRY_SECONDS = 0.05

_RETRIABLE = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_CONTROLLER,
        Error.NOT_COORDINATOR,
        Error.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Retriable errors: a leader, coordinator or controller is being elected."""


class Refusal(CommandError):
    """A broker responded with an error: `code`, and its message if there was one."""

    def __init__(self, subject: str, code: int, message: str | None = None) -> None:
        self.code = code
        self.reason = reason_of(code, message)
        super().__init__(f"{subject}: {self.reason}" if subject else self.reason)


def reason_of(code: int, message: str | None = None) -> str:
    """Return the text of an error: the broker's message, or Kafka's, and the code's name."""
    name = error_name(code)
    if message:
        return f"{message} ({name})"
    try:
        return f"{Error(code).message} ({name})"
    except ValueError:
        return name


def check(subject: str, code: int, message: str | None = None) -> None:
    """Raise Refusal unless `code` is 0."""
    if code:
        raise Refusal(subject, code, message)


def print_stderr(line: str) -> None:
    """Print a line on stderr, flushed."""
    print(line, file=sys.stderr, flush=True)


class Waiting:
    """A deadline. Prints on stderr, once, what is waited for after REPORT_SECONDS."""

    def __init__(self, timeout: float) -> None:
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        self._report_lock = threading.Lock()
        self._is_reported = False

    @property
    def is_over(self) -> bool:
        """Tell whether the deadline has come."""
        return time.monotonic() >= self._deadline

    @property
    def seconds_left(self) -> float:
        """Return the time left; at least LAST_TRY_SECONDS, so that a last try can succeed."""
        return max(LAST_TRY_SECONDS, self._deadline - time.monotonic())

    def share_of(self, tries: int) -> float:
        """Return the connect timeout of one of `tries` addresses: the others need time too."""
        return min(max(LAST_TRY_SECONDS, self.seconds_left / tries), CONNECT_SECONDS)

    def pause(self, what: str) -> None:
        """Wait a little for `what`."""
        if time.monotonic() >= self._began + REPORT_SECONDS:
            self._report(what)
        time.sleep(RETRY_SECONDS)

    @contextmanager
    def reporting(self, what: str) -> Iterator[None]:
        """Report what the caller waits for, also if that blocks."""
        wait_s = max(0.0, self._began + REPORT_SECONDS - time.monotonic())
        timer = threading.Timer(wait_s, self._report, [what])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _report(self, what: str) -> None:
        with self._report_lock:
            if not self._is_reported:
                print_stderr(f"waiting for {what}")
            self._is_reported = True


class WireClient:
    """Connections to a cluster's brokers, opened when first needed.

    `timeout`: seconds to find a broker, and for each response.
    Raises:    CommandError, naming the address, for network errors.
    """

    def __init__(self, bootstrap: str, *, timeout: float, client_id: str = "ottla") -> None:
        self.bootstrap = bootstrap
        self.timeout = timeout
        self._client_id = client_id
        self._addresses = parse_bootstrap(bootstrap)
        self._open: dict[tuple[str, int], Connection] = {}
        self._cluster: MetadataResponse | None = None

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    @property
    def timeout_ms(self) -> int:
        """The `timeout_ms` of requests: the broker's timeout error must arrive before ours."""
        return int(self.timeout * 1000 * SERVER_TIMEOUT_SHARE)

    # -- requests ------------------------------------------------------------------------------

    def ask(
        self,
        request: object,
        response: type[R],
        *,
        node: int | None = None,
        at_most: int | None = None,
    ) -> R:
        """Send a request to any broker, or to `node`, and wait for the response.

        `at_most`: the highest version to use.
        """
        connection = self._any() if node is None else self._node(node)
        try:
            version = connection.version_for(type(request), at_most=at_most)
            return connection.ask(request, response, timeout=self.timeout, version=version)
        except NoSuchVersionError as error:
            raise CommandError(str(error)) from None
        except EncodeError as error:
            raise encode_failure(request, error) from None
        except (OSError, WireError) as error:
            self._forget(connection)
            what = type(request).__name__.removesuffix("Request")
            raise CommandError(
                f"{connection.host}:{connection.port}: {network_reason(error, self.timeout)} "
                f"(waiting for the response to {what})"
            ) from None

    def serves(self, request: type) -> bool:
        """Tell whether a broker of the cluster serves this request."""
        try:
            self._any().version_for(request)
        except NoSuchVersionError:
            return False
        return True

    def versions(self, node: int) -> dict[int, range]:
        """Return which versions a broker serves, by API key."""
        return self._node(node).versions

    def expect_kraft(self, request: type) -> None:
        """Raise CommandError where the cluster does not serve a request of KRaft mode."""
        if not self.serves(request):
            what = request.__name__.removesuffix("Request")
            raise CommandError(
                f"the cluster at {self.bootstrap} does not serve {what}: "
                "expected a KRaft cluster, not ZooKeeper mode"
            )

    def with_retries(self, act: Callable[[], T]) -> T:
        """Run `act`; retry it after _RETRIABLE errors until the timeout."""
        waiting = Waiting(self.timeout)
        while True:
            try:
                return act()
            except Refusal as refusal:
                if refusal.code not in _RETRIABLE or waiting.is_over:
                    raise
                waiting.pause(f"a leader or coordinator: {refusal}")
            self._cluster = None

    # -- the cluster ---------------------------------------------------------------------------

    def cluster(self) -> MetadataResponse:
        """Return the brokers; cached."""
        if self._cluster is None:
            self._cluster = self.ask(MetadataRequest(topics=()), MetadataResponse)
        return self._cluster

    def broker_ids(self) -> list[int]:
        """Return the ids of the live brokers, sorted."""
        return sorted(broker.node_id for broker in self.cluster().brokers)

    def topics(self, names: Collection[str] | None = None) -> list[MetadataResponseTopic]:
        """Return topics (None = all), sorted by name; never creates one.

        Raises Refusal for a named topic that does not exist.
        """
        wanted = None
        if names is not None:
            wanted = tuple(MetadataRequestTopic(name=name) for name in names)
        response = self.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse
        )
        for topic in response.topics:
            if topic.error_code not in (Error.NONE, Error.LEADER_NOT_AVAILABLE):
                check(f"topic {topic.name}", topic.error_code)
        return sorted(response.topics, key=lambda topic: topic.name or "")

    def by_leader(self, partitions: Collection[TopicPartition]) -> ByBroker:
        """Group partitions by the broker that leads them; all must exist and have a leader."""
        return self.with_retries(lambda: self._by_leader(partitions))

    def _by_leader(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[int, list[tuple[str, int]]]:
        names = sorted({topic for topic, _ in partitions})
        leaders = {
            (topic.name or "", partition.partition_index): partition.leader_id
            for topic in (self.topics(names) if names else ())
            for partition in topic.partitions
        }
        grouped: ByBroker = {}
        for topic, partition in sorted(partitions):
            leader = leaders.get((topic, partition))
            subject = f"partition {topic}-{partition}"
            if leader is None:
                raise Refusal(subject, Error.UNKNOWN_TOPIC_OR_PARTITION)
            if leader < 0:
                raise Refusal(subject, Error.LEADER_NOT_AVAILABLE)
            grouped.setdefault(leader, []).append((topic, partition))
        return grouped

    def coordinator(self, group: str) -> tuple[int, str, int]:
        """Return id, host and port of the broker that coordinates a group."""
        return self.with_retries(lambda: self._coordinator(group))

    def _coordinator(self, group: str) -> tuple[int, str, int]:
        request = FindCoordinatorRequest(key=group)
        response = self.ask(request, FindCoordinatorResponse, at_most=3)
        check(f"group {group}", response.error_code, response.error_message)
        return response.node_id, response.host, response.port

    # -- connections ---------------------------------------------------------------------------

    def _any(self) -> Connection:
        for connection in self._open.values():
            return connection
        waiting = Waiting(self.timeout)
        what = f"a broker at {self.bootstrap}"
        reasons = {}
        longest: dict[str, float] = {}
        with waiting.reporting(what):
            while True:
                for number, (host, port) in enumerate(self._addresses):
                    address = f"{host}:{port}"
                    share = waiting.share_of(len(self._addresses) - number)
                    longest[address] = max(share, longest.get(address, 0.0))
                    try:
                        return self._connect(host, port, share)
                    except (OSError, WireError) as error:
                        reasons[address] = network_reason(error, longest[address])
                if waiting.is_over:
                    break
                waiting.pause(what)
        raise CommandError(
            f"no broker answers at {self.bootstrap} within {seconds_text(self.timeout)} "
            f"({reasons_text(reasons)})"
        )

    def _node(self, node: int) -> Connection:
        for broker in self.cluster().brokers:
            if broker.node_id == node:
                address = (broker.host, broker.port)
                break
        else:
            known = ", ".join(map(str, self.broker_ids()))
            raise CommandError(f"broker {node} is not among the live ones: expected one of {known}")
        open_already = self._open.get(address)
        if open_already is not None:
            return open_already
        what = f"broker {node} at {address[0]}:{address[1]}"
        timeout = min(self.timeout, CONNECT_SECONDS)
        try:
            with Waiting(timeout).reporting(what):
                return self._connect(*address, timeout)
        except (OSError, WireError) as error:
            raise CommandError(f"{what}: {network_reason(error, timeout)}") from None

    def _connect(self, host: str, port: int, timeout: float) -> Connection:
        connection = Connection(host, port, client_id=self._client_id, timeout=timeout)
        self._open[host, port] = connection
        return connection

    def _forget(self, connection: Connection) -> None:
        connection.close()
        self._open = {key: each for key, each in self._open.items() if each is not connection}


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Return the addresses in `HOST:PORT[,HOST:PORT...]`; IPv6 hosts in brackets."""
    addresses = []
    for each in text.split(","):
        address = each.strip().removeprefix("PLAINTEXT://")
        host, separator, port = address.rpartition(":")
        if not separator or not is_host(host) or not is_port(port):
            raise UsageError(f"--bootstrap-server {shown(text)}: expected HOST:PORT[,HOST:PORT...]")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def is_host(text: str) -> bool:
    """Tell whether this can be the name or address of a machine."""
    if re.search(r"\s", text):
        return False
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def is_port(text: str) -> bool:
    """Tell whether this is a port number from 1 to 65535."""
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 0 < int(text) < 65_536


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
