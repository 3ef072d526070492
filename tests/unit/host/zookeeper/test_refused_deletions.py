"""A write that ZooKeeper rejects blocks its own deletion, and no other.

Method: a cluster on the model of ZooKeeper, which refuses to remove one topic's znodes, or to make
its entry in the ledger.
"""

from typing import Any

from ottla.base.zookeeper import Create, Delete, ZkCode, ZkError
from ottla.controller.retry_queue import RETRY_FIRST_MS, RETRY_MS_MAX
from ottla.metadata.znodes import paths

from .controller_harness import ControllerHarness


class Refusing(ControllerHarness):
    """`refused`: the path of what can be neither made nor removed now; `refusals`: how often."""

    refused = ""
    refusals = 0

    def __init__(self) -> None:
        super().__init__()
        carry_out = self.model.tree._do

        def refuse(operation: Any, *rest: Any) -> Any:
            if isinstance(operation, Create | Delete) and operation.path == self.refused:
                self.refusals += 1
                raise ZkError(ZkCode.NO_AUTH, operation.path)
            return carry_out(operation, *rest)

        self.model.tree._do = refuse  # type: ignore[method-assign]


def with_two_deletions_that_wait() -> Refusing:
    """Return a cluster where two deletions wait for broker 3."""
    sim = Refusing()
    sim.start(1, 2, 3)
    for name in ("bad", "good"):
        sim.create(name, (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("bad").isr == sim.partition("good").isr == (2,))
    for name in ("bad", "good"):
        sim.write_marker(name)
    sim.settle()
    return sim


def test_a_topic_whose_znodes_cannot_be_removed_does_not_block_others() -> None:
    sim = with_two_deletions_that_wait()
    sim.refused = paths.state("bad", 0)
    sim.start(3)
    sim.run(2 * RETRY_MS_MAX)
    assert sim.data(paths.topic("good")) is None
    assert sim.data(paths.topic("bad")) is not None
    sim.refused = ""
    sim.run(RETRY_MS_MAX)
    assert sim.data(paths.topic("bad")) is None


def test_one_refusal_costs_a_short_pause() -> None:
    sim = with_two_deletions_that_wait()
    sim.refused = paths.state("bad", 0)
    sim.start(3)
    sim.until(lambda: sim.data(paths.topic("good")) is None)
    sim.run(100)
    sim.refused = ""
    sim.run(2 * RETRY_FIRST_MS)
    assert sim.data(paths.topic("bad")) is None


def with_topics(*names: str) -> Refusing:
    """Return a cluster where the ledger cannot have an entry of the first of some topics."""
    sim = Refusing()
    sim.start(1, 2, 3)
    for name in names:
        sim.create(name, (2, 3))
    topic_id = sim.image.topics.id_of(names[0])
    assert topic_id is not None
    sim.refused = paths.deletion(topic_id)
    return sim


def mark(sim: Refusing, *names: str) -> None:
    """Have a tool mark topics all at once."""
    sim.write(*(Create(paths.marker(each), b"") for each in names))


def test_a_marked_topic_that_cannot_be_queued_does_not_block_others() -> None:
    names = ("bad", *(f"good-{number}" for number in range(5)))
    sim = with_topics(*names)
    mark(sim, *names)
    sim.run(RETRY_FIRST_MS)
    assert [name for name in names if sim.data(paths.topic(name)) is not None] == ["bad"]
    sim.create("late", (2, 3))
    mark(sim, "late")
    sim.run(RETRY_FIRST_MS)
    assert sim.data(paths.topic("late")) is None


def test_a_marked_topic_that_could_not_be_queued_is_queued_later() -> None:
    sim = with_topics("bad")
    mark(sim, "bad")
    sim.run(10 * RETRY_MS_MAX)
    assert 10 <= sim.refusals <= 20, "it is asked for after pauses"
    sim.refused = ""
    sim.run(RETRY_MS_MAX + 1_000)
    assert sim.data(paths.topic("bad")) is None
    assert sim.data(paths.marker("bad")) is None


def test_one_refusal_to_queue_costs_a_short_pause() -> None:
    sim = with_topics("bad", "good")
    mark(sim, "bad", "good")
    sim.until(lambda: sim.refusals > 0)
    sim.refused = ""
    sim.run(2 * RETRY_FIRST_MS)
    assert sim.data(paths.topic("bad")) is sim.data(paths.topic("good")) is None


def test_what_could_not_be_queued_is_left_to_the_next_controller() -> None:
    sim = with_topics("bad")
    mark(sim, "bad")
    sim.run(RETRY_MS_MAX)
    refusals, deposed = sim.refusals, sim.controller
    sim.refused = ""
    sim.wait(deposed.controller.stop())
    assert len(deposed.client.timers) == 0
    sim.until(lambda: bool(sim.active_controllers()))
    sim.run(2 * RETRY_FIRST_MS)
    assert sim.refusals == refusals
    assert sim.data(paths.topic("bad")) is None
