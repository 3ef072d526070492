"""The watches of one session, kept over lost connections.

kazoo only reports that a path has changed; which watchers are called, and in which order, is
decided here. Each watch has the version of its node when it was set, so that a read after a lost
connection shows whether it would have fired meanwhile.

Source: the ZooKeeper programmer's guide, "ZooKeeper Watches"; DataTree.setWatches of ZooKeeper 3.9.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.base.zookeeper import Event, EventKind, Watcher

NodeVersion = tuple[int, ...] | None
"""The version that a watch compares: of a node's data (czxid, mzxid), of its children (czxid,
pzxid);
None = there is no such node."""

DATA_KINDS: Final = frozenset({EventKind.CREATED, EventKind.DATA_CHANGED, EventKind.DELETED})
CHILD_KINDS: Final = frozenset({EventKind.CHILDREN_CHANGED, EventKind.DELETED})


@dataclass(frozen=True, slots=True)
class Watched:
    """One watch: `version` is that of its node when it was set."""

    watcher: Watcher
    version: NodeVersion


@dataclass(slots=True)
class Watches:
    """All watches that have not fired, by path, in the order in which they were set."""

    data: dict[str, list[Watched]] = field(default_factory=dict)
    children: dict[str, list[Watched]] = field(default_factory=dict)

    def add_data(self, path: str, watcher: Watcher, version: NodeVersion) -> None:
        """Add a watch of a node's data and existence."""
        self.data.setdefault(path, []).append(Watched(watcher, version))

    def add_children(self, path: str, watcher: Watcher, version: NodeVersion) -> None:
        """Add a watch of a node's children."""
        self.children.setdefault(path, []).append(Watched(watcher, version))

    def fire(self, event: Event) -> list[Watcher]:
        """Remove and return the watchers of an event: a watch fires once."""
        fired: list[Watched] = []
        if event.kind in DATA_KINDS:
            fired += self.data.pop(event.path, [])
        if event.kind in CHILD_KINDS:
            fired += self.children.pop(event.path, [])
        return [each.watcher for each in fired]

    def data_reread(self, path: str, version: NodeVersion) -> Iterator[tuple[Watcher, Event]]:
        """Remove and yield the watches whose node's data has changed since they were set."""
        kind = EventKind.DELETED if version is None else EventKind.DATA_CHANGED
        for watched in _take_changed(self.data, path, version):
            is_new = watched.version is None
            yield watched.watcher, Event(EventKind.CREATED if is_new else kind, path)

    def children_reread(self, path: str, version: NodeVersion) -> Iterator[tuple[Watcher, Event]]:
        """Remove and yield the watches whose node's children have changed since they were set."""
        kind = EventKind.DELETED if version is None else EventKind.CHILDREN_CHANGED
        for watched in _take_changed(self.children, path, version):
            yield watched.watcher, Event(kind, path)

    def clear(self) -> None:
        """Remove all: the session is over."""
        self.data.clear()
        self.children.clear()


def _take_changed(
    watches: dict[str, list[Watched]], path: str, version: NodeVersion
) -> list[Watched]:
    watched = watches.pop(path, [])
    same = [each for each in watched if each.version == version]
    if same:
        watches[path] = same
    return [each for each in watched if each.version != version]
