"""A blocking ZooKeeper client for the commands that read and write znodes.

Each write is one multi, so a command that is killed leaves no partial change. The formats of znodes
are in `ottla.metadata.znodes`.
"""

import logging
import socket
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.base.zookeeper import Check, Create, Delete, Operation, SetData
from ottla.cli.errors import CommandError, UsageError, shown
from ottla.cli.options import check_seconds
from ottla.cli.progress import print_stderr
from ottla.client.addresses import is_host, is_port
from ottla.client.errors import network_reason, reasons_text, seconds_text
from ottla.client.waiting import Waiting
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.broker import decode_broker
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.partition_state import StateZnode, decode_state
from ottla.metadata.znodes.topic import TopicZnode, decode_topic

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

DEFAULT_PORT = 2181
PROBE_SECONDS = 1.0
SESSION_SECONDS = 10.0


class Read(NamedTuple):
    """A znode's data and version."""

    data: bytes
    version: int


class WriteConflict(Exception):
    """A znode of the write was changed by another client. `path`: the first such znode."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ZooKeeperClient:
    """Reads and writes below one chroot.

    `timeout`: seconds to find a server, and for each response.
    Raises:    CommandError where ZooKeeper does not respond or refuses access; UsageError for an
               invalid argument.
    """

    def __init__(self, connect: str, timeout: float) -> None:
        check_seconds(timeout)
        self.connect = connect
        self._timeout = timeout
        self._client = _start(connect, timeout)

    def __enter__(self) -> "ZooKeeperClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.stop()
        self._client.close()

    def read(self, path: str) -> Read | None:
        """Return a znode, None where there is none."""
        return self.read_all([path])[0]

    def read_all(self, wanted: Sequence[str]) -> list[Read | None]:
        """Return several znodes, read in one pipeline."""
        futures = [(self._client.get_async(path), path) for path in wanted]
        found = [self._read(*each) for each in futures]
        return [None if each is None else Read(each[0], each[1].version) for each in found]

    def children(self, path: str) -> list[str]:
        """Return the names below a znode, sorted; none where it does not exist."""
        return sorted(self._read(self._client.get_children_async(path), path) or ())

    def write(self, operations: Sequence[Operation]) -> None:
        """Write all operations in one multi. Raises: WriteConflict."""
        from kazoo.exceptions import (
            BadVersionError,
            NodeExistsError,
            NoNodeError,
            RolledBackError,
            RuntimeInconsistency,
        )

        transaction = self._client.transaction()
        for each in operations:
            match each:
                case Create(path, data, ephemeral, sequential):
                    transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        results = self._written(transaction.commit_async(), operations[0].path)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, (RolledBackError, RuntimeInconsistency)):
                continue
            if isinstance(result, (BadVersionError, NodeExistsError, NoNodeError)):
                raise WriteConflict(operation.path)
            if isinstance(result, Exception):
                raise _refusal(result, operation.path, "written")

    def make_parents(self, path: str) -> None:
        """Create missing parent znodes: a cluster that never started has none."""
        parent = path.rpartition("/")[0]
        self._written(self._client.ensure_path_async(parent), parent)

    # -- cluster znodes ------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        """Return all topics, including those marked for deletion."""
        return self.children(paths.TOPICS)

    def topic(self, name: str) -> tuple[TopicZnode, int] | None:
        """Return a topic's assignment and its znode's version. Raises: CommandError."""
        found = self.read(paths.topic(name))
        return None if found is None else (_decoded(decode_topic, name, found.data), found.version)

    def states(self, name: str, count: int) -> list[StateZnode | None]:
        """Return the states of a topic's partitions; None = it never had a leader."""
        found = self.read_all([paths.state(name, partition) for partition in range(count)])
        return [
            None if each is None else _decoded(decode_state, name, partition, each.data)
            for partition, each in enumerate(found)
        ]

    def marked_for_deletion(self) -> frozenset[str]:
        """Return the topics marked for deletion."""
        return frozenset(self.children(paths.DELETE_TOPICS))

    def broker_ids(self) -> list[int]:
        """Return the ids of the live brokers, sorted."""
        listed = self.children(paths.BROKER_IDS)
        return sorted(int(each) for each in listed if paths.is_number(each))

    def racks(self) -> dict[int, str | None]:
        """Return the racks of the live brokers."""
        ids = self.broker_ids()
        found = zip(ids, self.read_all([paths.broker(each) for each in ids]), strict=True)
        return {
            each: _decoded(decode_broker, each, read.data).rack
            for each, read in found
            if read is not None
        }

    # -- kazoo ---------------------------------------------------------------------------------

    def _read(self, future: Any, path: str) -> Any:
        return _answer(future, path, "read", self.connect, self._timeout)

    def _written(self, future: Any, path: str) -> Any:
        return _answer(future, path, "written", self.connect, self._timeout)


def _answer(future: Any, path: str, verb: str, connect: str, timeout: float) -> Any:
    """Return the result of a request; None where a znode to read does not exist.

    Waits `timeout` seconds at most: kazoo queues requests until a server is back.
    """
    from kazoo.exceptions import (
        ConnectionLoss,
        KazooException,
        NoNodeError,
        OperationTimeoutError,
        SessionExpiredError,
    )
    from kazoo.handlers.threading import KazooTimeoutError

    lost = (ConnectionLoss, KazooTimeoutError, OperationTimeoutError, SessionExpiredError)
    try:
        return future.get(timeout=timeout)
    except lost as error:
        unknown = "" if verb == "read" else f"; whether {path} was {verb} is not known"
        raise CommandError(
            f"ZooKeeper {connect} does not answer: {type(error).__name__}{unknown}"
        ) from None
    except KazooException as error:
        if verb == "read" and isinstance(error, NoNodeError):
            return None
        raise _refusal(error, path, verb) from None


def _refusal(error: Exception, path: str, verb: str) -> CommandError:
    from kazoo.exceptions import NoAuthError

    name = type(error).__name__
    reason = f"it may not be {verb} ({name})" if isinstance(error, NoAuthError) else name
    return CommandError(f"ZooKeeper refuses {path}: {reason}")


def parse_connect(text: str) -> list[tuple[str, int]]:
    """Return the servers in `HOST[:PORT][,...][/CHROOT]`. Raises: UsageError."""
    servers = []
    for each in text.partition("/")[0].split(","):
        host, port = each.strip(), str(DEFAULT_PORT)
        if ":" in host.rpartition("]")[2]:
            host, _, port = host.rpartition(":")
        if not is_host(host) or not is_port(port):
            raise UsageError(f"--zookeeper {shown(text)}: expected HOST:PORT[,...][/CHROOT]")
        servers.append((host.strip("[]"), int(port)))
    return servers


def _start(connect: str, timeout: float) -> "KazooClient":
    servers = parse_connect(connect)
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError

    # kazoo logs each attempt; the result of all is reported once, below.
    quiet = logging.getLogger("ottla.cli.kazoo")
    quiet.disabled = True
    try:
        # Stopping a client may take a session timeout, if the server only accepted the connection.
        session_s = min(timeout, SESSION_SECONDS)
        client = KazooClient(hosts=connect, timeout=session_s, logger=quiet)
    except ValueError as error:
        raise UsageError(f"--zookeeper {shown(connect)}: {error}") from None
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # About a chroot that does not exist.
            Waiting(timeout, print_stderr).reporting(f"a ZooKeeper server at {connect}"),
        ):
            client.start(timeout=timeout)
        if _answer(client.exists_async("/"), "/", "read", connect, timeout) is not None:
            return client
        reason = f"{client.chroot} does not exist: expected the chroot of a cluster"
    except KazooTimeoutError:
        reason = (
            f"no ZooKeeper server answers within {seconds_text(timeout)} "
            f"({reasons_text(_reasons(servers, timeout))})"
        )
    except CommandError as error:
        reason = str(error)
    client.stop()
    client.close()
    raise CommandError(f"--zookeeper {connect}: {reason}")


def _reasons(servers: Sequence[tuple[str, int]], timeout: float) -> dict[str, str]:
    """Return why each server cannot be connected to: kazoo does not report it."""
    reasons = {}
    for host, port in servers:
        try:
            socket.create_connection((host, port), timeout=min(timeout, PROBE_SECONDS)).close()
            reason = network_reason(TimeoutError(), timeout)
        except OSError as error:
            reason = network_reason(error, timeout)
        reasons[f"{host}:{port}"] = reason
    return reasons


def _decoded(decode: Callable[..., T], *values: Any) -> T:
    try:
        return decode(*values)
    except ZnodeError as error:
        raise CommandError(str(error)) from None
