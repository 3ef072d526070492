"""The watches of one session, kept over lost connections.

kazoo tells only that a path has changed; who is told, and in which order, is decided here. Each
watch remembers what its node looked like when it was set, so that a read after a lost connection
tells whether it would have fired meanwhile.

Source: the ZooKeeper programmer's guide, "ZooKeeper Watches"; DataTree.setWatches of ZooKeeper 3.9.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.base.zookeeper import Event, EventKind, Watcher

Looks = tuple[int, ...] | None
"""What a watch would have seen change: of a node's data (czxid, mzxid), of its children (czxid,
pzxid); None = there is no such node."""

DATA_KINDS: Final = frozenset({EventKind.CREATED, EventKind.DATA_CHANGED, EventKind.DELETED})
CHILD_KINDS: Final = frozenset({EventKind.CHILDREN_CHANGED, EventKind.DELETED})


@dataclass(frozen=True, slots=True)
class Watched:
    """One watch: `looks` is what its node looked like when it was set."""

    watcher: Watcher
    looks: Looks


@dataclass(slots=True)
class Watches:
    """All watches that have not fired, by path, in the order in which they were set."""

    data: dict[str, list[Watched]] = field(default_factory=dict)
    children: dict[str, list[Watched]] = field(default_factory=dict)

    def add_data(self, path: str, watcher: Watcher, looks: Looks) -> None:
        """Keep a watch of a node's data and being."""
        self.data.setdefault(path, []).append(Watched(watcher, looks))

    def add_children(self, path: str, watcher: Watcher, looks: Looks) -> None:
        """Keep a watch of a node's children."""
        self.children.setdefault(path, []).append(Watched(watcher, looks))

    def fire(self, event: Event) -> list[Watcher]:
        """Return who is to be told of the event, and forget them: a watch fires once."""
        told: list[Watched] = []
        if event.kind in DATA_KINDS:
            told += self.data.pop(event.path, [])
        if event.kind in CHILD_KINDS:
            told += self.children.pop(event.path, [])
        return [each.watcher for each in told]

    def data_again(self, path: str, looks: Looks) -> Iterator[tuple[Watcher, Event]]:
        """Tell, and forget, whose node's data is not what it was when the watch was set."""
        kind = EventKind.DELETED if looks is None else EventKind.DATA_CHANGED
        for watched in _take_changed(self.data, path, looks):
            came = watched.looks is None
            yield watched.watcher, Event(EventKind.CREATED if came else kind, path)

    def children_again(self, path: str, looks: Looks) -> Iterator[tuple[Watcher, Event]]:
        """Tell, and forget, whose node's children are not what they were."""
        kind = EventKind.DELETED if looks is None else EventKind.CHILDREN_CHANGED
        for watched in _take_changed(self.children, path, looks):
            yield watched.watcher, Event(kind, path)

    def clear(self) -> None:
        """Forget all: their session is over."""
        self.data.clear()
        self.children.clear()


def _take_changed(kept: dict[str, list[Watched]], path: str, looks: Looks) -> list[Watched]:
    watched = kept.pop(path, [])
    same = [each for each in watched if each.looks == looks]
    if same:
        kept[path] = same
    return [each for each in watched if each.looks != looks]
