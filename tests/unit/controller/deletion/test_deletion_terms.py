"""Events of one controller term do not count in another, nor between the two.

Method: as `test_deletion_manager`; one manager is elected over the images of two clusters, so that
whatever it kept of the first shows.
"""

from ottla.base.errors import Error
from ottla.metadata.deletions import Policy
from tests.unit.controller.deletion.test_deletion_manager import ONE, begun
from tests.unit.controller.deletion_harness import DeletionHarness


def test_resigning_clears_events_and_orders() -> None:
    """Or a controller that was deposed would go on to decide, beside the one that rules."""
    harness, _ = begun()
    assert list(harness.carry_out(1).values()) == [Error.NONE]  # Noted, and not decided.
    assert harness.machines[2].queue, "an order is out"
    harness.run_elections("t")
    manager = harness.manager
    manager.resigned()
    assert not manager.has_work
    assert manager.take_work() is None
    assert manager.next_due_ms is None
    harness.carry_out(2)
    assert not manager.has_work, "the answer to that order came too late"
    assert manager.tick(now_ms=10**9, wall_ms=10**9) == ()


def test_who_is_elected_again_begins_on_what_is_stored_then() -> None:
    """Or the result of one term would count for a replica of another image."""
    harness, _ = begun()
    harness.carry_out(1)
    harness.run_elections("t", "other")
    harness.manager.resigned()
    stored = DeletionHarness(Policy.CLASSIC, (1, 2, 3))
    other_id = stored.create("other", ONE)
    stored.settle()
    stored.mark("other")
    assert harness.manager.elected(stored.image, now_ms=stored.now_ms) == ()
    work = harness.manager.take_work()
    assert work is not None
    assert work.topics == {other_id}
    inputs = (work.results, work.lost, work.vanished, work.preferred_elections, work.reassignments)
    assert not any(inputs), inputs
    assert not harness.manager.has_work
