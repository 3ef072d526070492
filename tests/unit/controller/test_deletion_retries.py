"""What failed is tried again, not too often; and no answer is taken for another order's.

Method: as `test_deletion_manager`.
"""

import pytest

from ottla.base.errors import Error
from ottla.controller.deletion_manager import LOOK_AGAIN_MS, PUT_AWAY_MS_MIN, DeletionManager
from ottla.controller.deletion_policy import Wish, decide
from ottla.controller.retry_queue import RETRY_MS_MAX
from ottla.metadata.image import EMPTY
from ottla.metadata.records import Record

from .deletion_world import RETENTION_MS, DeletionWorld
from .test_deletion_manager import begun, is_gone


def test_what_is_deleted_meanwhile_shortens_no_pause_of_a_failed_folder() -> None:
    """Or all that lies there is asked for, and written, with every other deletion."""
    world, _ = begun({0: (1,)})
    pauses = []
    for number in range(9):
        world.machines[1].is_failed = True
        world.carry_out(1)
        world.decide()
        due_ms = world.manager.next_due_ms
        assert due_ms is not None
        pauses.append(due_ms - world.now_ms)
        world.machines[1].is_failed = False
        other = world.create(f"other{number}", {0: (1,)})
        world.carry_out(1)
        world.mark(f"other{number}")
        world.decide()
        world.carry_out(1)
        world.decide()
        assert is_gone(world, other)
        world.pass_time()
        world.decide()
    assert pauses[-1] == RETRY_MS_MAX


def test_the_look_at_everything_orders_nothing_whose_answer_is_being_decided() -> None:
    world, topic_id = begun()
    world.carry_out(1)
    world.carry_out(2)
    wish = world.manager.take_wish()
    assert wish is not None
    world.now_ms += LOOK_AGAIN_MS
    world.pass_time()
    assert not world.machines[1].queue
    world.write(decide(world.image, wish, wall_ms=world.now_ms).step.records)
    world.manager.decided()
    assert is_gone(world, topic_id)


def test_an_answer_that_was_decided_before_the_rest_was_refused_is_not_one_to_the_next_order() -> (
    None
):
    """1. The disk fails, which is written. 2. The rest of that decision is refused. 3. The next
    order is out when it is decided again."""
    world, topic_id = begun({0: (1,)})
    world.machines[1].is_failed = True
    world.carry_out(1)
    wish = world.manager.take_wish()
    assert wish is not None
    world.write(decide(world.image, wish, wall_ms=world.now_ms).step.records)
    again = Wish(topics=frozenset({topic_id}), retry=frozenset({1}))
    world.write(decide(world.image, again, wall_ms=world.now_ms).step.records)
    assert world.states(topic_id) == {(1, 0): "STARTED"}
    world.manager.refused(now_ms=world.now_ms)
    world.pass_time()
    world.decide()
    assert world.states(topic_id) == {(1, 0): "STARTED"}


def test_an_answer_to_the_next_order_that_comes_while_an_older_one_is_decided_is_not_lost() -> None:
    """1. The disk fails, which is written; the rest of that decision is refused. 2. The broker is
    back, mended. 3. It is ordered again, and confirms, before that decision has ended."""
    world, topic_id = begun({0: (1,)})
    world.machines[1].is_failed = True
    world.carry_out(1)
    world.write(decided(world))
    world.manager.refused(now_ms=world.now_ms)
    world.machines[1].is_failed = False
    world.stop(1)
    world.start(1)
    world.pass_time()
    world.write(decided(world))
    assert world.states(topic_id) == {(1, 0): "STARTED"}
    assert list(world.carry_out(1).values()) == [Error.NONE]
    world.manager.decided()
    world.decide()
    assert is_gone(world, topic_id)


def decided(world: DeletionWorld) -> tuple[Record, ...]:
    """Begin to decide once; return what is to be written."""
    wish = world.manager.take_wish()
    assert wish is not None
    return decide(world.image, wish, wall_ms=world.now_ms).step.records


def test_an_answer_that_nobody_waits_for_any_more_leaves_nothing_behind() -> None:
    world, topic_id = begun({0: (1,)})
    world.remove_by_hand("t")
    world.decide()
    assert world.entry(topic_id).is_finished
    world.carry_out(1)
    world.decide()
    assert not world.manager.__dict__["_orders"][1].phases


def test_receipts_are_put_away_by_themselves() -> None:
    """One that cannot be removed holds up no deletion."""
    world, first = begun({0: (1,)})
    world.settle()
    assert is_gone(world, first)
    world.create("other", {0: (1,)})
    world.carry_out(1)
    world.now_ms += RETENTION_MS + LOOK_AGAIN_MS
    world.pass_time()
    world.mark("other")
    wish = world.manager.take_wish()
    assert wish is not None
    assert wish.topics
    assert wish.receipts_until_ms is None
    world.manager.refused(now_ms=world.now_ms)
    assert world.decide() == 1
    assert world.image.deletions.of(first) is None


@pytest.mark.parametrize(
    ("retention_ms", "every_ms"),
    [
        (7 * 24 * 3_600_000, LOOK_AGAIN_MS),
        (LOOK_AGAIN_MS, LOOK_AGAIN_MS),
        (60_000, 60_000),
        (0, PUT_AWAY_MS_MIN),
    ],
)
def test_receipts_are_put_away_as_often_as_their_retention_asks(
    retention_ms: int, every_ms: int
) -> None:
    """Or whoever wants them for a minute keeps them for six, and a storm's ledger is so much
    longer; but a controller that has nothing to do must not spin."""
    manager = DeletionManager(enabled=True, retention_ms=retention_ms)
    manager.elected(EMPTY, now_ms=0)
    for turn in (1, 2):
        assert manager.next_due_ms == turn * every_ms
        manager.tick(now_ms=turn * every_ms - 1, wall_ms=10**12)
        assert manager.take_wish() is None
        manager.tick(now_ms=turn * every_ms, wall_ms=10**12)
        wish = manager.take_wish()
        assert wish is not None
        assert wish.receipts_until_ms == 10**12 - retention_ms
        manager.decided()


def test_what_is_open_is_looked_at_no_oftener_where_receipts_are_kept_for_less() -> None:
    """Or thousands of deletions that wait for a broker are looked through every few seconds."""
    world, topic_id = begun()
    world.stop(2)
    world.decide()
    world.manager = DeletionManager(enabled=True, retention_ms=0)
    world.manager.elected(world.image, now_ms=0)
    while world.manager.has_wish:
        world.decide()
    world.manager.tick(now_ms=LOOK_AGAIN_MS - 1, wall_ms=0)
    wish = world.manager.take_wish()
    assert wish is not None
    assert (wish.topics, wish.receipts_until_ms) == (frozenset(), 0)
    world.manager.decided()
    world.manager.tick(now_ms=LOOK_AGAIN_MS, wall_ms=0)
    wish = world.manager.take_wish()
    assert wish is not None
    assert wish.topics == {topic_id}
