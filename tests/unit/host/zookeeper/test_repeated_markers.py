"""A marker that is written again as soon as it was removed is a new request.

Method: real controllers on a simulated ZooKeeper. The controller's process is paused for the
moment in which the tool writes, so that what it reads next is the second marker, as if the first
had stayed.
"""

from ottla.controller.retry_queue import RETRY_MS_MAX
from ottla.metadata.znodes import paths

from .controller_harness import ControllerHarness

HOUR_MS = 3_600_000
TICK_US = 100


def write_again(sim: ControllerHarness) -> None:
    """Mark `t` before the controller sees that its marker was removed."""
    process = sim.controller.client.process
    process.paused = True
    sim.write_marker("t")
    sim.scheduler.resume(process)


def test_a_marker_is_erased_however_often_it_is_written_while_deletions_are_off() -> None:
    """Else the topic is deleted by the next controller that may delete, long after (KAFKA-3175)."""
    sim = ControllerHarness(delete_topic_enable="false")
    sim.start(1, 2, 3)
    sim.create("t", (2, 3))
    sim.write_marker("t")
    for _ in range(3):
        while sim.data(paths.marker("t")) is not None:
            sim.scheduler.run_until(sim.scheduler.now_us + TICK_US)
        write_again(sim)
    sim.run(HOUR_MS)
    assert sim.data(paths.marker("t")) is None
    assert sim.data(paths.topic("t")) is not None


def test_a_marker_of_no_topic_is_erased_again() -> None:
    """Else it waits for a topic of that name to be made."""
    sim = ControllerHarness()
    sim.start(1, 2, 3)
    sim.write_marker("t")
    while sim.data(paths.marker("t")) is not None:
        sim.scheduler.run_until(sim.scheduler.now_us + TICK_US)
    write_again(sim)
    sim.run(HOUR_MS)
    assert sim.data(paths.marker("t")) is None


def test_who_takes_a_marker_away_and_writes_it_again_has_the_topic_deleted() -> None:
    """Whenever that is: the last write counts."""
    ends = []
    for wait in range(60):
        sim = ControllerHarness()
        sim.start(1, 2, 3)
        sim.create("t", (2, 3))
        sim.write_marker("t")
        sim.scheduler.run_until(sim.scheduler.now_us + wait * TICK_US)
        if sim.names(paths.DELETIONS):
            break
        # The controller may be looking at it, may have read the list without it, or neither.
        sim.delete(paths.marker("t"))
        write_again(sim)
        sim.run(10 * RETRY_MS_MAX)
        ends.append((wait, sim.data(paths.topic("t"))))
    assert len(ends) > 10
    assert not [each for each in ends if each[1] is not None]
