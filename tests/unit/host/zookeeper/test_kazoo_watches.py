"""Goal: a watch fires once, for what it watches, and a look after a lost connection tells the same.

Method: events and looks, and who is told of them.
"""

from ottla.base.zookeeper import Event, EventKind
from ottla.host.zookeeper.kazoo_watches import NodeVersion, Watches

OLD: NodeVersion = (1, 1)
NEW: NodeVersion = (1, 5)


class ZkChange:
    """Watchers by name, and the order in which they were told."""

    def __init__(self) -> None:
        self.watches = Watches()
        self.names: list[tuple[str, Event]] = []

    def data(self, name: str, version: NodeVersion = OLD) -> None:
        self.watches.add_data("/a", lambda event: self.names.append((name, event)), version)

    def children(self, name: str, version: NodeVersion = OLD) -> None:
        self.watches.add_children("/a", lambda event: self.names.append((name, event)), version)

    def fire(self, kind: EventKind) -> list[str]:
        event = Event(kind, "/a")
        self.names.clear()
        for watcher in self.watches.fire(event):
            watcher(event)
        return [name for name, _ in self.names]

    def again(self, version: NodeVersion) -> list[tuple[str, EventKind]]:
        self.names.clear()
        for watcher, event in (
            *self.watches.data_reread("/a", version),
            *self.watches.children_reread("/a", version),
        ):
            watcher(event)
        return [(name, event.kind) for name, event in self.names]


def test_each_kind_of_event_tells_its_watchers_in_order_and_once() -> None:
    told = ZkChange()
    told.children("c1")
    told.data("d1")
    told.data("d2")
    assert told.fire(EventKind.DATA_CHANGED) == ["d1", "d2"]
    assert told.fire(EventKind.DATA_CHANGED) == []
    told.data("d3")
    assert told.fire(EventKind.CHILDREN_CHANGED) == ["c1"]
    told.children("c2")
    assert told.fire(EventKind.DELETED) == ["d3", "c2"]
    assert told.watches == Watches()


def test_another_nodes_event_tells_nobody() -> None:
    told = ZkChange()
    told.data("d")
    assert told.watches.fire(Event(EventKind.DATA_CHANGED, "/b")) == []
    assert told.fire(EventKind.DATA_CHANGED) == ["d"]


def test_what_looks_the_same_goes_on_being_watched() -> None:
    told = ZkChange()
    told.data("d")
    told.children("c")
    assert told.again(OLD) == []
    assert told.again(NEW) == [
        ("d", EventKind.DATA_CHANGED),
        ("c", EventKind.CHILDREN_CHANGED),
    ]
    assert told.again(OLD) == []


def test_only_who_saw_it_otherwise_is_told() -> None:
    told = ZkChange()
    told.data("before", OLD)
    told.data("after", NEW)
    assert told.again(NEW) == [("before", EventKind.DATA_CHANGED)]
    assert told.fire(EventKind.DELETED) == ["after"]


def test_a_node_that_came_or_went() -> None:
    told = ZkChange()
    told.data("waits", None)
    told.data("went", OLD)
    told.children("parent", OLD)
    assert told.again(None) == [("went", EventKind.DELETED), ("parent", EventKind.DELETED)]
    assert told.again(NEW) == [("waits", EventKind.CREATED)]
