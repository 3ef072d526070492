"""Looks at a simulated machine's disk for the folders of replicas: which came, which went.

It looks where names may have changed since the last time, after the process has done what it was
at; what a process did last is seen when the next one has opened its folders. A folder that has the
name of one that went is another one, also where nobody could see the name without a folder. What a
loss of power takes is nobody's deed; what it brings back counts like any other folder.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.log.names import PartitionDirKind
from ottla.testing.sim.disk import SimDisk

NAMING = frozenset({"mkdir", "rename", "rmtree"})
"""The disk operations that change the names of folders."""

Replica = tuple[Uuid, int]


class _Seen(NamedTuple):
    path: str
    name: str
    kind: PartitionDirKind
    partition: int
    topic_id: Uuid | None
    folder: object
    """Tells it from another one of the same name."""

    @property
    def replica(self) -> Replica | None:
        return None if self.topic_id is None else (self.topic_id, self.partition)


class FolderWatch:
    """One machine's folders.

    Fields: `came`: hears of a folder by its path. `went`: hears of a replica that has none of the
            folders any more that it was served from, and whether it was the machine's own when the
            last of them went. `is_own`: tells that of a replica, now.
    """

    def __init__(
        self,
        disk: SimDisk,
        paths: Sequence[str],
        *,
        came: Callable[[Replica, str], None],
        went: Callable[[Replica, bool], None],
        is_own: Callable[[Replica], bool],
    ) -> None:
        self._disk = disk
        self._paths = tuple(paths)
        self._came = came
        self._went = went
        self._is_own = is_own
        self._seen: frozenset[_Seen] = frozenset()
        self._own_when_left: dict[_Seen, bool] = {}
        self._is_stale = False

    def used(self, operation: str, path: str) -> None:
        """Hear of an operation that is about to be done."""
        if operation not in NAMING:
            return
        self._is_stale = True
        for each in self._seen if operation != "mkdir" else ():
            if each.replica is not None and path == f"{each.path}/{each.name}":
                # By the end of the step the process may know better, or have taken it on again.
                self._own_when_left[each] = self._is_own(each.replica)

    def look(self, *, after_power_loss: bool = False) -> None:
        """Tell what has changed."""
        if not (self._is_stale or after_power_loss):
            return
        before, now = self._seen, self._list()
        own_when_left, self._own_when_left = self._own_when_left, {}
        self._seen = now
        # The id is written a moment after the folder is made.
        self._is_stale = any(
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
                self._went(replica, own_when_left.get(each, False))

    def _list(self, *, durable: bool = False) -> frozenset[_Seen]:
        return frozenset(
            _Seen(path, found.name, found.kind, found.partition, found.topic_id, folder)
            for path in self._paths
            for found, folder in self._disk.folders_in(path, durable=durable)
        )

    def of(self, replica: Replica) -> tuple[str, ...]:
        """Return the folders of a replica that may come back; those on their way out do not.

        One whose new name is not durable yet may come back after a loss of power.
        """
        listed = self._list() | self._list(durable=True)
        found = (
            f"{each.path}/{each.name}"
            for each in sorted(listed, key=_by_name)
            if each.replica == replica and each.kind is not PartitionDirKind.DELETE
        )
        return tuple(dict.fromkeys(found))

    def all(self) -> tuple[tuple[Replica, str], ...]:
        """Return all folders with the replicas that they are of, whatever they are called."""
        return tuple(
            (each.replica, f"{each.path}/{each.name}")
            for each in sorted(self._list(), key=_by_name)
            if each.replica is not None
        )


def _by_name(seen: _Seen) -> tuple[str, str, bytes]:
    return seen.path, seen.name, seen.topic_id or b""
