"""Translates operations of `ottla.base.zookeeper` to kazoo's, and kazoo's responses back.

The kazoo clients have no chroot of their own: it is added to each path, and removed again.
Source: kazoo 2.11; ZooKeeper 3.9, ZooKeeperServer and jute's BinaryInputArchive for the size.
"""

from collections.abc import Sequence
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    RequestTimeoutError,
    RolledBackError,
    SessionMovedError,
    ZookeeperError,
)

from ottla.base.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    Result,
    SetData,
    Stat,
    ZkCode,
    ZkError,
)

REQUEST_BYTES_MAX: Final = 0xFFFFF
"""jute.maxbuffer of servers: for one byte more the server closes the connection."""

OPERATION_BYTES: Final = 64
"""An upper bound of an operation without its path and data: header, lengths, an ACL, flags."""

UNDONE_PERHAPS: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionMovedError,
)
"""Without a response: the request was processed or not. ConnectionClosedError is kazoo's own."""

_CODES: Final = {code.value: code for code in ZkCode}


def size_of(root: str, operations: Sequence[Operation]) -> int:
    """Return an upper bound of the bytes that a multi takes."""
    total = OPERATION_BYTES
    for each in operations:
        data = each.data if isinstance(each, Create | SetData) else b""
        total += OPERATION_BYTES + len((root + each.path).encode()) + len(data)
    return total


def transaction(client: KazooClient, root: str, operations: Sequence[Operation]) -> Any:
    """Return kazoo's form of a multi, not sent yet."""
    made = TransactionRequest(client)
    for each in operations:
        path = full_path(root, each.path)
        match each:
            case Create():
                made.create(path, each.data, None, each.ephemeral, each.sequential)
            case SetData():
                made.set_data(path, each.data, each.version)
            case Delete():
                made.delete(path, each.version)
            case Check():
                made.check(path, each.version)
    return made


def results_of(
    root: str, operations: Sequence[Operation], answers: Sequence[Any]
) -> tuple[Result, ...] | ZkError:
    """Return the results of the operations of a multi, or the error and its operation."""
    for index, answer in enumerate(answers):
        # Operations before the failed one have a RolledBackError.
        if isinstance(answer, Exception) and not isinstance(answer, RolledBackError):
            return error_of(answer, operations[index].path, index)
    return tuple(
        _result_of(root, operation, answer)
        for operation, answer in zip(operations, answers, strict=True)
    )


def _result_of(root: str, operation: Operation, answer: Any) -> Result:
    match operation:
        case Create():
            return below(root, str(answer))
        case SetData():
            return stat_of(answer)
        case _:
            return None


def error_of(error: BaseException, path: str, index: int | None = None) -> ZkError:
    """Return an error of ZooKeeper with the port's code."""
    if isinstance(error, UNDONE_PERHAPS):
        return ZkError(ZkCode.CONNECTION_LOSS, path, index)
    number = getattr(error, "code", None) if isinstance(error, ZookeeperError) else None
    code = _CODES.get(number) if isinstance(number, int) else None
    return ZkError(code or ZkCode.SYSTEM_ERROR, path, index)


def stat_of(stat: Any) -> Stat:
    """Return kazoo's ZnodeStat as the port's."""
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
    )


def full_path(root: str, path: str) -> str:
    """Return the path on the server. `root` has no slash at its end; "" = no chroot."""
    return root if root and path == "/" else root + path


def below(root: str, path: str) -> str:
    """Return a server's path without the chroot."""
    return path[len(root) :] or "/"
