"""One invalid znode must not stop the controller of a cluster.

Method: controllers over a simulated ZooKeeper; the znode exists before, or is written later.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.base.zookeeper import Create
from ottla.metadata.deletions import DeletionImage, Policy
from ottla.metadata.deletions_json import encode_deletion
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.topic import Assignment, encode_topic

from .controller_harness import ControllerHarness

ID = Uuid(b"spoiledspoiled12")
NESTED = b"[" * 100_000
ENTRY = DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=1_700)
ENDLESS = encode_deletion(ENTRY).replace(b"1700", b"1e400")

INVALID = [
    (paths.topic("junk"), NESTED),
    (paths.broker(9), NESTED),
    (paths.config((2, "junk")), NESTED),
    (paths.deletion(ID), NESTED),
    (paths.deletion(ID), ENDLESS),
    (paths.FEATURE, NESTED),
]


@pytest.mark.parametrize(("path", "data"), INVALID)
def test_a_controller_starts_with_an_invalid_znode(path: str, data: bytes) -> None:
    sim = ControllerHarness()
    sim.put(path, data)
    sim.start(1, 2)
    assert sorted(sim.image.brokers) == [1, 2]


@pytest.mark.parametrize(("path", "data"), INVALID)
def test_a_controller_continues_with_an_invalid_znode_and_so_does_the_next(
    path: str, data: bytes
) -> None:
    sim = ControllerHarness()
    sim.start(1, 2, 3)
    sim.create("t", (2, 3))
    sim.put(path, data)
    sim.nodes[2].kill()
    sim.until(lambda: sim.partition("t").leader == 3)
    sim.nodes[1].kill()
    sim.until(lambda: [node.id for node in sim.active_controllers()] == [3])
    sim.until(lambda: sorted(sim.image.brokers) == [3])


def waiting(sim: ControllerHarness, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of the marker of `t`, after an hour."""
    sim.run(3_600_000)
    messages = [each.getMessage() for each in caplog.records]
    return [each for each in messages if paths.marker("t") in each and "waits" in each]


@pytest.mark.parametrize("comes_first", ["topic", "marker", "neither"])
def test_a_marker_of_an_unreadable_topic_waits_and_is_logged_once(
    comes_first: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No topic is deleted on a guess; the log says why the marker waits."""
    sim = ControllerHarness()
    sim.start(1, 2, 3)
    process = sim.controller.client.process
    process.paused = comes_first == "neither"
    if comes_first == "marker":
        # It is looked at as long as the topic is stored and has not been read.
        sim.write(Create(paths.marker("t"), b""), Create(paths.topic("t"), NESTED))
    else:
        sim.put(paths.topic("t"), NESTED)
        if comes_first == "topic":
            sim.settle()
        sim.write_marker("t")
    sim.scheduler.resume(process)
    assert len(waiting(sim, caplog)) == 1
    sim.create("other", (1, 2))
    sim.write_marker("other")
    assert len(waiting(sim, caplog)) == 1
    assert sim.data(paths.marker("t")) is not None
    assert paths.topic("t") in waiting(sim, caplog)[0]


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_waiting_marker_is_processed_when_its_topic_is_repaired_or_removed(
    is_mended: bool,
) -> None:
    sim = ControllerHarness()
    sim.start(1, 2, 3)
    sim.put(paths.topic("t"), NESTED)
    sim.write_marker("t")
    sim.settle()
    assert sim.data(paths.marker("t")) is not None
    if is_mended:
        sim.put(paths.topic("t"), encode_topic([(0, Assignment((1, 2)))], None))
    else:
        sim.delete(paths.topic("t"))
    sim.until(lambda: sim.data(paths.marker("t")) is None)
    sim.settle()
    assert sim.data(paths.topic("t")) is None
    assert len(sim.image.deletions.receipts()) == is_mended
