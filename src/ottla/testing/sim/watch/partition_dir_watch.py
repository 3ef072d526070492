"""Watches a simulated disk for partition directories that appear or disappear.

The disk is listed after each step of the process that may have changed names; the last step of a
process is seen when the next process has opened its log directories. A directory that is removed
and created again within one step is another directory. A directory that a loss of power removes is
not reported; one that it restores is reported like any other.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.log.names import PartitionDirKind
from ottla.testing.sim.disk import SimDisk

NAMING = frozenset({"mkdir", "rename", "rmtree"})
"""The disk operations that change the names of directories."""

Replica = tuple[Uuid, int]


class Assignment(Enum):
    """What a node's image says of a replica that the node takes out of service."""

    OWN = 1
    NOT_OWN = 2
    NOT_OWN_ANY_MORE = 3
    """By metadata that are newer than the cluster's as far as they were observed: a node that
    crashes in the step in which it learns of a commit may have been the only one to know."""


class _Seen(NamedTuple):
    path: str
    name: str
    kind: PartitionDirKind
    partition: int
    topic_id: Uuid | None
    directory: object
    """Identifies it among directories of the same name."""

    @property
    def replica(self) -> Replica | None:
        return None if self.topic_id is None else (self.topic_id, self.partition)


class PartitionDirWatch:
    """The partition directories of one node.

    Fields: `came`: called with the replica and path of a new directory. `went`: called with a
            replica whose last live directory is gone, and its assignment at that moment.
            `assignment`: of a replica to this node now. `is_stale`: `look` may have something to
            report.
    """

    def __init__(
        self,
        disk: SimDisk,
        paths: Sequence[str],
        *,
        came: Callable[[Replica, str], None],
        went: Callable[[Replica, Assignment], None],
        assignment: Callable[[Replica], Assignment],
    ) -> None:
        self._disk = disk
        self._paths = tuple(paths)
        self._below = tuple(f"{path}/" for path in paths)
        self._came = came
        self._went = went
        self._assignment = assignment
        self._seen: frozenset[_Seen] = frozenset()
        self._when_left: dict[_Seen, Assignment] = {}
        self.is_stale = False

    def used(self, operation: str, path: str) -> None:
        """Called before each disk operation."""
        if operation not in NAMING:
            return
        if operation == "rename" and self._is_inside(path):
            return
        self.is_stale = True
        for each in self._seen if operation != "mkdir" else ():
            if each.replica is not None and path == f"{each.path}/{each.name}":
                # By the end of the step the image may have changed.
                self._when_left[each] = self._assignment(each.replica)

    def _is_inside(self, path: str) -> bool:
        """Tell whether a path lies in a partition directory: its segments are renamed often."""
        parent = path.rpartition("/")[0]
        return parent not in self._paths and parent.startswith(self._below)

    def look(self, *, after_power_loss: bool = False) -> None:
        """Report what has changed."""
        if not (self.is_stale or after_power_loss):
            return
        before, now = self._seen, self._list()
        when_left, self._when_left = self._when_left, {}
        self._seen = now
        # partition.metadata is written a moment after the directory is created.
        self.is_stale = any(
            each.topic_id is None and each.kind is PartitionDirKind.LIVE for each in now
        )
        for each in sorted(now - before, key=_by_name):
            if each.replica is not None and each.kind is not PartitionDirKind.DELETE:
                self._came(each.replica, f"{each.path}/{each.name}")
        if after_power_loss:
            return
        served = {each.replica for each in before & now if each.kind is PartitionDirKind.LIVE}
        for each in sorted(before - now, key=_by_name):
            replica = each.replica
            if replica is not None and each.kind is PartitionDirKind.LIVE and replica not in served:
                self._went(replica, when_left.get(each, Assignment.NOT_OWN))

    def _list(self, *, durable: bool = False) -> frozenset[_Seen]:
        return frozenset(
            _Seen(path, found.name, found.kind, found.partition, found.topic_id, directory)
            for path in self._paths
            for found, directory in self._disk.partition_dirs_in(path, durable=durable)
        )

    def of(self, replica: Replica) -> tuple[str, ...]:
        """Return the directories of a replica that a start now, or after a power loss, would load.

        A directory whose rename for deletion is not durable yet may come back.
        """
        listed = self._list() | self._list(durable=True)
        found = (
            f"{each.path}/{each.name}"
            for each in sorted(listed, key=_by_name)
            if each.replica == replica and each.kind is not PartitionDirKind.DELETE
        )
        return tuple(dict.fromkeys(found))

    def all(self) -> tuple[tuple[Replica, str], ...]:
        """Return all directories with their replicas, whatever their names."""
        return tuple(
            (each.replica, f"{each.path}/{each.name}")
            for each in sorted(self._list(), key=_by_name)
            if each.replica is not None
        )

    def nameless(self) -> tuple[str, ...]:
        """Return the directories that are to be removed, and of which a crash in the middle of that
        has left no topic id.
        """
        return tuple(
            f"{each.path}/{each.name}"
            for each in sorted(self._list(), key=_by_name)
            if each.replica is None and each.kind is PartitionDirKind.DELETE
        )


def _by_name(seen: _Seen) -> tuple[str, str, bytes]:
    return seen.path, seen.name, seen.topic_id or b""
