"""Writes znodes as the controller of one epoch: atomic, once, and fenced by the epoch.

Every multi begins with a check of the version of `/controller_epoch` that the election wrote. After
a lost connection the multi is retried: writes go through ZooKeeper's leader in order, so if the
second attempt succeeds the first one did not. If the second is rejected, the nodes show whether the
first succeeded:

1. a node that the multi sets still has the version before: it did not;
2. a node has the data of the multi at the next version: it did, because a multi is atomic;
3. all its nodes have been changed since by others: unknown.

Deletes of missing nodes, and creates of existing parents, are left out. Nodes that others created
below a deleted topic are deleted with it. A persistent node that others removed is created again.

Source: KafkaZkClient (retryRequestUntilConnected, deleteRecursive, MultiOp with the check of the
controller's epoch), Kafka 3.9; KAFKA-6082.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    Result,
    Session,
    SetData,
    Stat,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.host.steps import Steps, wait
from ottla.host.zookeeper.persistent import make_again
from ottla.host.zookeeper.store.store_reading import read_each, reading
from ottla.metadata.znodes.paths import CONTROLLER_EPOCH, PERSISTENT, TOPICS

log = logging.getLogger(__name__)

RETRY_MS = 100
"""The backoff after a lost connection before a write is retried."""

DELETES_PER_MULTI = 500

REFUSALS = frozenset({ZkCode.NO_NODE, ZkCode.NODE_EXISTS, ZkCode.BAD_VERSION, ZkCode.NOT_EMPTY})
"""Errors of a write after other writers' changes. All others are raised."""


@dataclass(frozen=True, slots=True)
class Done:
    """The write succeeded. `results`: one for each operation."""

    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class ControllerMoved:
    """Another broker is the controller, or the session has expired: nothing was written."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Nothing was written: these nodes have other versions than expected."""

    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """It is unknown whether it was written: others have changed all these nodes since."""

    paths: frozenset[str]


Written = Done | ControllerMoved | Changed | UnknownOutcome


class Writer:
    """The writes of one controller epoch, over one session."""

    def __init__(
        self, session: Session, *, epoch_version: int, clock: Clock, timers: Timers
    ) -> None:
        self.check = Check(CONTROLLER_EPOCH, epoch_version)
        self._session = session
        self._clock = clock
        self._timers = timers

    def write(self, operations: Sequence[Operation]) -> Steps[Written]:
        """Write all or nothing. Raises: ZkError for other errors of ZooKeeper."""
        pending = dict(enumerate((self.check, *operations)))
        results: list[Result] = [None] * len(pending)
        was_lost = False
        while True:
            indexes = list(pending)
            answer = yield from wait(self._session.multi([pending[each] for each in indexes]))
            if not isinstance(answer, ZkError):
                for index, result in zip(indexes, answer, strict=True):
                    results[index] = result
                return Done(tuple(results[1:]))
            if answer.code is ZkCode.SESSION_EXPIRED:
                return ControllerMoved()
            if answer.code is ZkCode.CONNECTION_LOSS:
                was_lost = True
                yield from self._pause()
                continue
            if answer.index is None or answer.code not in REFUSALS:
                raise answer
            if answer.index == 0:
                return ControllerMoved()
            failed = pending[indexes[answer.index]]
            needless = yield from self._needless(failed, answer.code, pending)
            if needless:
                for index in needless:
                    result = _needless_result(pending.pop(index))
                    results[index] = result
                continue
            if answer.code is ZkCode.NO_NODE and _needed(failed) in PERSISTENT:
                yield from make_again(self._session, _needed(failed))
                continue
            if answer.code is ZkCode.NOT_EMPTY and failed.path.startswith(TOPICS):
                cleared = yield from self._clear(failed.path)
                if isinstance(cleared, ControllerMoved):
                    return cleared
                continue
            if was_lost:
                return (yield from self._look_up(operations))
            return Changed(frozenset(_written_paths(operations)))

    def _pause(self) -> Steps[None]:
        over: Pending[None] = Pending()
        self._timers.at(self._clock.monotonic_ms() + RETRY_MS, lambda: _complete(over))
        yield from wait(over)

    def _needless(
        self, failed: Operation, code: ZkCode, pending: dict[int, Operation]
    ) -> Steps[list[int]]:
        """Return the operations that have no effect any more, if `failed` is one of them."""
        if isinstance(failed, Delete) and code is ZkCode.NO_NODE:
            deletes = {n: op.path for n, op in pending.items() if isinstance(op, Delete)}
            existing = yield from self._which_exist(deletes.values())
            return [index for index, path in deletes.items() if path not in existing]
        if _is_parent(failed) and code is ZkCode.NODE_EXISTS:
            parents = {n: op.path for n, op in pending.items() if _is_parent(op)}
            existing = yield from self._which_exist(parents.values())
            return [index for index, path in parents.items() if path in existing]
        return []

    def _which_exist(self, paths: Iterable[str]) -> Steps[frozenset[str]]:
        found = yield from reading(read_each(paths, self._session.exists))
        return frozenset(path for path, stat in found.items() if stat is not None)

    def _clear(self, path: str) -> Steps[Written | None]:
        """Delete all below `path`, the deepest first."""
        below = yield from self._descendants(path)
        log.info("deleting %d unknown znodes below %s", len(below), path)
        for start in range(0, len(below), DELETES_PER_MULTI):
            part = below[start : start + DELETES_PER_MULTI]
            written = yield from self.write([Delete(each) for each in part])
            if isinstance(written, ControllerMoved):
                return written
        return None

    def _descendants(self, path: str) -> Steps[list[str]]:
        found: list[str] = []
        level = [path]
        while level:
            listed = yield from reading(read_each(level, self._session.children))
            level = [f"{parent}/{name}" for parent, names in listed.items() for name in names]
            found += level
        return found[::-1]

    def _look_up(self, operations: Sequence[Operation]) -> Steps[Written]:
        """Read whether a multi succeeded whose response was lost."""
        evident = [op for op in operations if _is_evident(op)]
        nodes = yield from reading(read_each((op.path for op in evident), self._session.get))
        evidence = [_evidence(op, nodes.get(op.path)) for op in evident]
        paths = frozenset(_written_paths(operations))
        if False in evidence:
            return Changed(paths)
        if True in evidence:
            return Done(tuple(_result(op, nodes.get(op.path)) for op in operations))
        return UnknownOutcome(paths)


def _complete(pending: Pending[None]) -> None:
    pending.complete(None)


def _needed(operation: Operation) -> str:
    """Return the path that must exist for an operation: above a new node, else the node's own."""
    path = operation.path
    return path.rpartition("/")[0] if isinstance(operation, Create) else path


def _is_parent(operation: Operation) -> bool:
    """Tell whether an operation creates a node without data."""
    is_plain = isinstance(operation, Create) and not operation.sequential
    return is_plain and isinstance(operation, Create) and not operation.data


def _needless_result(operation: Operation) -> Result:
    return operation.path if isinstance(operation, Create) else None


def _written_paths(operations: Iterable[Operation]) -> Iterable[str]:
    return (op.path for op in operations if not (isinstance(op, Create) and op.sequential))


def _is_evident(operation: Operation) -> bool:
    """Tell whether an operation changes a node such that its success can be read."""
    if isinstance(operation, Create):
        return bool(operation.data) and not operation.sequential
    return isinstance(operation, SetData) and operation.version != ANY_VERSION


def _evidence(operation: Operation, node: ZnodeData | None) -> bool | None:
    """Tell whether a node shows that its operation succeeded, or not; None = neither."""
    assert isinstance(operation, Create | SetData)
    before = operation.version if isinstance(operation, SetData) else -1
    if node is None:
        return None  # Never made, or deleted since.
    if isinstance(operation, SetData) and node.stat.version == before:
        return False
    is_ours = node.stat.version == before + 1 and node.data == operation.data
    return True if is_ours else None


def _result(operation: Operation, node: ZnodeData | None) -> Result:
    """Return the result that an operation had: the node may have changed since."""
    if isinstance(operation, Create):
        return operation.path
    if not isinstance(operation, SetData):
        return None
    if node is not None and node.stat.version == operation.version + 1:
        return node.stat
    return Stat(0, 0, operation.version + 1, 0, 0, 0, 0)
