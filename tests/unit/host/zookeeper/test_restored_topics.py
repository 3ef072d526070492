"""A topic whose znode an operator restores from a backup is deleted again, replica by replica.

Method: controllers over a simulated ZooKeeper; the requests to brokers, and the ledger.
"""

from ottla.metadata.deletions import BROKER_DOWN, SUCCESSFUL
from ottla.metadata.znodes import paths

from .controller_harness import ControllerHarness


def test_its_brokers_get_requests_and_its_name_waits_for_the_one_that_is_down() -> None:
    sim = ControllerHarness()
    sim.start(1, 2, 3)
    sim.create("t", (2, 3))
    topic_id = sim.image.topics.id_of("t")
    saved = sim.data(paths.topic("t"))
    assert topic_id is not None
    assert saved is not None
    sim.write_marker("t")
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    sim.settle()
    sim.put(paths.topic("t"), saved)
    sim.until(lambda: sim.has_topic("t") and sim.partition("t").leader >= 0)
    sim.settle()
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    sim.settle()
    for node in sim.nodes.values():
        node.requests.clear()
    sim.write_marker("t")
    sim.until(lambda: sim.nodes[2].stopped("t") is not None)
    sim.settle()
    stopped = sim.nodes[2].stopped("t")
    assert stopped is not None
    assert stopped.delete_partition
    entry = sim.image.deletions.of(topic_id)
    assert entry is not None
    assert not entry.is_finished
    assert list(entry.rows()) == [(2, SUCCESSFUL, (0,)), (3, BROKER_DOWN, (0,))]
    assert sim.data(paths.topic("t")) is not None
    sim.revive(3)
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    sim.settle()
    entry = sim.image.deletions.of(topic_id)
    assert entry is not None
    assert entry.is_finished
    assert list(entry.rows()) == [(2, SUCCESSFUL, (0,)), (3, SUCCESSFUL, (0,))]
