"""Goal: a watch fires once, for what it watches, also by a read after a lost connection.

Method: events and versions, and the watchers that they call.
"""

from ottla.base.zookeeper import Event, EventKind
from ottla.host.zookeeper.kazoo.kazoo_watches import NodeVersion, Watches

OLD: NodeVersion = (1, 1)
NEW: NodeVersion = (1, 5)


class ZkChange:
    """Watchers by name, and the order of their calls."""

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
    fired = ZkChange()
    fired.children("c1")
    fired.data("d1")
    fired.data("d2")
    assert fired.fire(EventKind.DATA_CHANGED) == ["d1", "d2"]
    assert fired.fire(EventKind.DATA_CHANGED) == []
    fired.data("d3")
    assert fired.fire(EventKind.CHILDREN_CHANGED) == ["c1"]
    fired.children("c2")
    assert fired.fire(EventKind.DELETED) == ["d3", "c2"]
    assert fired.watches == Watches()


def test_another_nodes_event_tells_nobody() -> None:
    fired = ZkChange()
    fired.data("d")
    assert fired.watches.fire(Event(EventKind.DATA_CHANGED, "/b")) == []
    assert fired.fire(EventKind.DATA_CHANGED) == ["d"]


def test_what_looks_the_same_goes_on_being_watched() -> None:
    fired = ZkChange()
    fired.data("d")
    fired.children("c")
    assert fired.again(OLD) == []
    assert fired.again(NEW) == [
        ("d", EventKind.DATA_CHANGED),
        ("c", EventKind.CHILDREN_CHANGED),
    ]
    assert fired.again(OLD) == []


def test_only_watchers_of_another_version_are_called() -> None:
    fired = ZkChange()
    fired.data("before", OLD)
    fired.data("after", NEW)
    assert fired.again(NEW) == [("before", EventKind.DATA_CHANGED)]
    assert fired.fire(EventKind.DELETED) == ["after"]


def test_a_node_that_came_or_went() -> None:
    fired = ZkChange()
    fired.data("waits", None)
    fired.data("went", OLD)
    fired.children("parent", OLD)
    assert fired.again(None) == [("went", EventKind.DELETED), ("parent", EventKind.DELETED)]
    assert fired.again(NEW) == [("waits", EventKind.CREATED)]
