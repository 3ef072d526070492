"""Requests by znode are passed on once each, and deleted by fenced writes.

Method: a loaded store over a simulated ZooKeeper; the hooks record their calls.
"""

from typing import Any

import pytest

from ottla.base.zookeeper import Create, Delete, SetData
from ottla.host.zookeeper.store.store_writing import ControllerMoved, Done
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_preferred_election, encode_reassignment
from ottla.metadata.znodes.notifications import encode_isr_change, encode_log_dir_event
from ottla.metadata.znodes.partition_state import StateZnode
from tests.unit.host.zookeeper.harness import Controller, ZooKeeperHarness

WANTED = {("t", 0): (1, 2), ("t", 1): (2, 3)}
REASSIGN = encode_reassignment(WANTED)


class Recorder:
    """A controller whose hooks record their calls."""

    def __init__(self, sim: ZooKeeperHarness) -> None:
        self.sim = sim
        self.calls: list[tuple[str, Any]] = []
        self.controller: Controller = sim.elect(sim.client("controller")).load()
        hooks = self.controller.store.hooks
        hooks.on_reassign_request = lambda wanted: self.calls.append(("reassign", dict(wanted)))
        hooks.on_preferred_election = lambda wanted: self.calls.append(("elect", wanted))
        hooks.on_deletion_requests = lambda names: self.calls.append(("delete", names))
        hooks.on_isr_notification = lambda listed: self.calls.append(("isr", listed))
        hooks.on_log_dir_event = lambda broker: self.calls.append(("directory", broker))

    def start(self) -> "Recorder":
        self.controller.store.start_requests()
        self.sim.settle()
        return self

    def change(self, *operations: Any) -> Any:
        return self.sim.wait(self.controller.store.change(operations))


@pytest.fixture
def sim() -> ZooKeeperHarness:
    sim = ZooKeeperHarness()
    sim.make_cluster()
    return sim


def test_nothing_is_handed_on_before_the_controller_is_ready(sim: ZooKeeperHarness) -> None:
    recorder = Recorder(sim)
    sim.put(paths.REASSIGN_PARTITIONS, REASSIGN)
    sim.put(paths.marker("t"), b"")
    sim.settle()
    assert recorder.calls == []
    recorder.start()
    assert ("reassign", WANTED) in recorder.calls
    assert ("delete", ("t",)) in recorder.calls


def test_a_reassignment_is_passed_on_once_and_again_when_it_is_created_again(
    sim: ZooKeeperHarness,
) -> None:
    recorder = Recorder(sim).start()
    sim.put(paths.REASSIGN_PARTITIONS, REASSIGN)
    sim.settle()
    assert recorder.calls == [("reassign", WANTED)]
    # The controller takes out what has ended: no new request.
    less = encode_reassignment({("t", 1): (2, 3)})
    assert isinstance(recorder.change(SetData(paths.REASSIGN_PARTITIONS, less)), Done)
    sim.settle()
    assert len(recorder.calls) == 1
    assert isinstance(recorder.change(Delete(paths.REASSIGN_PARTITIONS)), Done)
    sim.put(paths.REASSIGN_PARTITIONS, REASSIGN)
    sim.settle()
    assert len(recorder.calls) == 2


def test_a_quick_recreation_is_not_missed(sim: ZooKeeperHarness) -> None:
    recorder = Recorder(sim).start()
    sim.put(paths.PREFERRED_ELECTION, encode_preferred_election([("t", 0)]))
    sim.settle()
    recorder.controller.client.process.paused = True
    sim.delete(paths.PREFERRED_ELECTION)
    sim.put(paths.PREFERRED_ELECTION, encode_preferred_election([("t", 1)]))
    sim.scheduler.resume(recorder.controller.client.process)
    sim.settle()
    assert recorder.calls == [("elect", (("t", 0),)), ("elect", (("t", 1),))]


def test_invalid_requests_are_logged_and_deleted(
    sim: ZooKeeperHarness, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(sim).start()
    sim.put(paths.REASSIGN_PARTITIONS, b"{")
    sim.put(paths.PREFERRED_ELECTION, b"[]")
    sim.settle()
    assert recorder.calls == []
    assert sim.data(paths.REASSIGN_PARTITIONS) is None
    assert sim.data(paths.PREFERRED_ELECTION) is None
    assert "/admin/reassign_partitions" in caplog.text


def test_markers_are_reported_whenever_their_set_changes(sim: ZooKeeperHarness) -> None:
    recorder = Recorder(sim).start()
    sim.put(paths.marker("a"), b"")
    sim.settle()
    assert isinstance(recorder.change(Create(paths.marker("b")), Create(paths.marker("a"))), Done)
    sim.settle()
    assert isinstance(recorder.change(Delete(paths.marker("a")), Delete(paths.marker("no"))), Done)
    sim.settle()
    assert recorder.calls == [("delete", ("a",)), ("delete", ("a", "b")), ("delete", ("b",))]


def test_a_marker_that_replaces_a_removed_one_is_reported(sim: ZooKeeperHarness) -> None:
    """Otherwise it would stay for ever: the set of names is unchanged."""
    sim.put(paths.marker("a"), b"")
    recorder = Recorder(sim).start()
    assert recorder.calls == [("delete", ("a",))]
    process = recorder.controller.client.process
    process.paused = True
    sim.delete(paths.marker("a"))
    sim.put(paths.marker("a"), b"")
    sim.scheduler.resume(process)
    sim.settle()
    # The list was read, and is the same. Only now it shows that the first one had gone.
    assert recorder.calls == [("delete", ("a",))]
    recorder.controller.store.markers_gone(["a"])
    sim.settle()
    assert recorder.calls == [("delete", ("a",)), ("delete", ("a",))]


def test_a_marker_that_stays_removed_is_reported_as_usual(sim: ZooKeeperHarness) -> None:
    sim.put(paths.marker("a"), b"")
    recorder = Recorder(sim).start()
    sim.delete(paths.marker("a"))
    recorder.controller.store.markers_gone(["a"])
    sim.settle()
    assert recorder.calls == [("delete", ("a",)), ("delete", ())]
    sim.put(paths.marker("a"), b"")
    sim.settle()
    assert recorder.calls[2:] == [("delete", ("a",))]
    sim.put(paths.marker("b"), b"")
    sim.settle()
    assert recorder.calls[3:] == [("delete", ("a", "b"))]


def test_notifications_are_handed_on_and_deleted(sim: ZooKeeperHarness) -> None:
    recorder = Recorder(sim).start()
    event = Create(paths.LOG_DIR_EVENT, encode_log_dir_event(3), sequential=True)
    garbage = Create(paths.LOG_DIR_EVENT, b"?", sequential=True)
    sim.write(event, event, garbage)
    sim.write(Create(paths.ISR_CHANGE, encode_isr_change([("t", 0)]), sequential=True))
    sim.settle()
    assert sorted(recorder.calls) == [("directory", 3), ("isr", (("t", 0),))]
    assert sim.names(paths.LOG_DIR_EVENTS) == sim.names(paths.ISR_CHANGES) == []
    sim.write(event)
    sim.settle()
    assert recorder.calls[-1] == ("directory", 3)
    assert len(recorder.calls) == 3


def test_a_state_that_its_leader_wrote_is_read_when_it_says_so(sim: ZooKeeperHarness) -> None:
    sim.put_topic("t", [(1, 2)])
    state = StateZnode(leader=1, leader_epoch=0, controller_epoch=1, isr=(1, 2))
    sim.put_state("t", 0, state)
    recorder = Recorder(sim).start()
    sim.put_state("t", 0, StateZnode(leader=1, leader_epoch=0, controller_epoch=1, isr=(1,)))
    sim.settle()
    topic = recorder.controller.store.image.topics.by_name("t")
    assert topic is not None
    assert topic.partitions[0].isr == (1, 2)
    sim.write(Create(paths.ISR_CHANGE, encode_isr_change([("t", 0)]), sequential=True))
    sim.settle()
    topic = recorder.controller.store.image.topics.by_name("t")
    assert topic is not None
    assert (topic.partitions[0].isr, topic.partitions[0].partition_epoch) == ((1,), 1)


def test_a_deposed_controller_consumes_nothing(sim: ZooKeeperHarness) -> None:
    recorder = Recorder(sim).start()
    sim.elect(sim.client("newer"))
    sim.put(paths.REASSIGN_PARTITIONS, b"{")
    sim.write(Create(paths.LOG_DIR_EVENT, encode_log_dir_event(3), sequential=True))
    sim.settle()
    assert sim.data(paths.REASSIGN_PARTITIONS) is not None
    assert len(sim.names(paths.LOG_DIR_EVENTS)) == 1
    assert recorder.change(Delete(paths.REASSIGN_PARTITIONS)) == ControllerMoved()


def test_a_closed_store_passes_nothing_on(sim: ZooKeeperHarness) -> None:
    recorder = Recorder(sim).start()
    recorder.controller.store.close()
    sim.put(paths.REASSIGN_PARTITIONS, REASSIGN)
    sim.put(paths.marker("t"), b"")
    sim.settle()
    assert recorder.calls == []
    assert recorder.change(Delete(paths.REASSIGN_PARTITIONS)) == ControllerMoved()
