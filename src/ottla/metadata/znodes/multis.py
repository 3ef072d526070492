"""ZooKeeper multis under construction: their operations and records, and the room left in each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.limits import ZOOKEEPER_MULTI_BYTES_MAX, ZOOKEEPER_MULTI_OPERATIONS_MAX
from ottla.base.zookeeper import Check, Create, Operation, SetData
from ottla.metadata.records import Record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.known import KnownZnodes, after_operations

OPERATION_BYTES = 80
"""What ZooKeeper's protocol adds to the path and the data of an operation, at the most."""


@dataclass(frozen=True, slots=True)
class Write:
    """A multi. `keys`: the paths of the facts that it writes; `records`: the facts.

    It is atomic. Where the outcome is unknown, the versions and the
    data of its own operations show it; after a conflict, `keys` are to be read.
    """

    operations: tuple[Operation, ...]
    records: tuple[Record, ...]
    keys: tuple[str, ...]


class Need(NamedTuple):
    """The most that something takes in a multi: operations, bytes of their paths and data."""

    operations: int
    data_bytes: int


class Multis:
    """The multis of one step: those that are full, and the one that is being filled.

    Operations and records of one multi succeed or fail together, behind the check of the epoch.
    What may change again before it is full (configurations, assignments, the ledger) is only
    pending in its writer, which reserves room for it and adds it when `on_flush` is called.
    """

    def __init__(self, known: KnownZnodes, epoch_version: int) -> None:
        self.known = known
        """As it will be after the operations so far."""
        self.writes: list[Write] = []
        self.on_flush: list[Callable[[], None]] = []
        """Called in order, each time a multi ends."""
        self._check = Check(paths.CONTROLLER_EPOCH, epoch_version)
        self._begin()

    def _begin(self) -> None:
        self._operations: list[Operation] = [self._check]
        self._records: list[Record] = []
        self._keys: dict[str, None] = {}
        self._taken = Need(1, _bytes_of(self._check) + OPERATION_BYTES)

    def has_room(self, need: Need) -> bool:
        """Tell whether the multi has room for that as well."""
        return _fits(self._taken, need)

    def would_fit(self, need: Need) -> bool:
        """Tell whether an empty multi has room for that."""
        return _fits(Need(1, _bytes_of(self._check) + OPERATION_BYTES), need)

    def make_room(self, path: str, need: Callable[[], Need]) -> None:
        """Begin another multi where this one has no room for what is needed, which may differ then.

        Raises: ZnodeError, which names `path`, where no multi has.
        """
        if self.has_room(need()):
            return
        self.flush()
        if not self.has_room(need()):
            raise ZnodeError(
                path,
                f"{need().operations} operations of {need().data_bytes} bytes in all are more"
                " than ZooKeeper takes",
            )

    def reserve(self, need: Need) -> None:
        """Reserve room for what is added later."""
        taken = self._taken
        self._taken = Need(
            taken.operations + need.operations,
            taken.data_bytes + need.data_bytes + need.operations * OPERATION_BYTES,
        )

    def add(self, operation: Operation, *, is_fact: bool = True) -> None:
        """Add an operation for which there is room."""
        self.reserve(Need(1, _bytes_of(operation)))
        self.add_reserved(operation, is_fact=is_fact)

    def add_reserved(self, operation: Operation, *, is_fact: bool = True) -> None:
        """Add an operation whose room was reserved. `is_fact`: the image holds what it writes."""
        self._operations.append(operation)
        if is_fact:
            self._keys[operation.path] = None
        self.known = after_operations(self.known, (operation,), None)

    def record(self, record: Record) -> None:
        """Add a record that the multi makes a fact."""
        self._records.append(record)

    def flush(self) -> None:
        """End the multi and begin the next one."""
        if self._taken.operations == 1 and not self._records:
            return
        for write_down in self.on_flush:
            write_down()
        write = Write(tuple(self._operations), tuple(self._records), tuple(self._keys))
        self.writes.append(write)
        self._begin()


def _fits(taken: Need, need: Need) -> bool:
    operations = taken.operations + need.operations
    data_bytes = taken.data_bytes + need.data_bytes + need.operations * OPERATION_BYTES
    return operations <= ZOOKEEPER_MULTI_OPERATIONS_MAX and data_bytes <= ZOOKEEPER_MULTI_BYTES_MAX


def _bytes_of(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path.encode()) + len(data)
