"""What failed is tried again, not too often; and no answer is taken for another order's.

Method: as `test_deletion_manager`.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion_manager import FULL_CHECK_MS, RECEIPT_PURGE_MS_MIN, DeletionManager
from ottla.controller.deletion_orders import DeletionOrder
from ottla.controller.deletion_policy import decide
from ottla.controller.retry_queue import RETRY_MS_MAX
from ottla.metadata.brokers import record_of
from ottla.metadata.deletions import (
    SUCCESSFUL,
    DeletionState,
    Policy,
    Reason,
    replicas_record,
)
from ottla.metadata.image import EMPTY
from ottla.metadata.records import Record

from .deletion_harness import RETENTION_MS, DeletionWorld
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


def stuck(policy: Policy) -> tuple[DeletionWorld, Uuid]:
    """Return a cluster with a topic that is gone but for what lies on a failed disk of broker 2."""
    world = DeletionWorld(policy, (1, 2))
    topic_id = world.create("t", dict.fromkeys(range(3), (1, 2)))
    world.settle()
    world.machines[2].is_failed = True
    if policy is Policy.CLASSIC:
        world.mark("t")
    else:
        world.delete("t")
    world.settle()
    rows = world.entry(topic_id).replicas[2]
    assert {(each.state, each.reason) for each in rows} == {
        (DeletionState.INELIGIBLE, Reason.FOLDER_FAILED)
    }
    world.written.clear()
    return world, topic_id


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
def test_a_disk_that_stays_broken_costs_no_record_however_often_it_is_tried(
    policy: Policy,
) -> None:
    """Else a broker that nobody mends fills the metadata log, or ZooKeeper's, for weeks."""
    world, topic_id = stuck(policy)
    orders, image = world.orders, world.image
    for _ in range(20):
        world.pass_time()
        while world.manager.has_work or world.machines[2].queue:
            world.decide()
            if world.machines[2].queue:
                world.carry_out(2)
    assert world.orders - orders > 10
    assert not world.written
    assert world.image is image, "nothing flickers for who looks at the ledger, or the gauges"
    world.machines[2].is_failed = False
    world.settle()
    assert is_gone(world, topic_id)
    assert not world.illegal


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
def test_another_reason_is_written_once(policy: Policy) -> None:
    """Who reads the ledger must not be sent to mend what is no longer the matter."""
    world, topic_id = stuck(policy)
    for _ in range(3):
        world.pass_time()
        order = world.machines[2].queue.pop()
        assert isinstance(order, DeletionOrder)
        refused = dict.fromkeys(order.replicas(), Error.UNKNOWN_SERVER_ERROR)
        world.manager.responded(2, order.broker_epoch, refused, now_ms=world.now_ms)
        while world.manager.has_work:
            world.decide()
    assert len(world.written) == 1
    [standing] = world.entry(topic_id).replicas[2]
    assert (standing.reason, standing.error) == (Reason.REFUSED, Error.UNKNOWN_SERVER_ERROR)
    assert not world.illegal


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
@pytest.mark.parametrize("when", ["ordered", "deleted", "answered"])
def test_a_new_controller_in_the_middle_of_another_attempt_loses_nothing(
    policy: Policy, when: str
) -> None:
    """The order, and the answer to it, are in no ledger: the next controller must ask anew."""
    world, topic_id = stuck(policy)
    world.machines[2].is_failed = False
    world.pass_time()
    assert len(world.machines[2].queue) == 1
    if when != "ordered":
        world.carry_out(2, answer=when == "answered")
    world.elect()
    assert len(world.machines[2].queue) == 1, "it does not wait for a pause"
    world.carry_out(2)
    world.settle()
    assert is_gone(world, topic_id)
    assert not world.illegal


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
def test_what_was_answered_is_not_ordered_again_while_another_replica_s_fate_is_written(
    policy: Policy,
) -> None:
    """A second order could be out when the first one's answer ends the deletion, and hit the
    next topic of the name."""
    world, topic_id = stuck(policy)
    world.pass_time()
    world.machines[2].is_failed = False
    world.carry_out(2)
    wish = world.manager.take_work()
    assert wish is not None
    records = decide(world.image, wish, wall_ms=world.now_ms).step.records
    world.write([replicas_record(topic_id, 1, SUCCESSFUL, [0])])
    world.now_ms += FULL_CHECK_MS
    world.pass_time()
    assert not world.machines[2].queue
    world.write(records)
    world.manager.decided()
    assert world.entry(topic_id).partitions_at(2, SUCCESSFUL) == {0, 1, 2}


def test_a_failed_replica_whose_order_was_dropped_is_ordered_when_its_broker_changes() -> None:
    """A broker that was cut off and is mended meanwhile must not wait a minute for it."""
    world, _ = stuck(Policy.AT_ONCE)
    world.pass_time()
    order = world.machines[2].queue.pop()
    assert isinstance(order, DeletionOrder)
    world.manager.dropped(2, order.broker_epoch, order.replicas(), now_ms=world.now_ms)
    known = world.image.brokers[2]
    world.write([record_of(replace(known, fenced=True))])
    assert not world.machines[2].queue
    world.write([record_of(known)])
    assert len(world.machines[2].queue) == 1


def test_a_failed_replica_s_broker_that_is_unregistered_is_not_waited_for() -> None:
    world, topic_id = stuck(Policy.AT_ONCE)
    world.stop(2)
    world.unregister(2)
    world.settle()
    assert world.entry(topic_id).is_finished
    assert world.states(topic_id)[2, 0] == "ABANDONED UNREGISTERED"


def test_the_look_at_everything_orders_nothing_whose_answer_is_being_decided() -> None:
    world, topic_id = begun()
    world.carry_out(1)
    world.carry_out(2)
    wish = world.manager.take_work()
    assert wish is not None
    world.now_ms += FULL_CHECK_MS
    world.pass_time()
    assert not world.machines[1].queue
    world.write(decide(world.image, wish, wall_ms=world.now_ms).step.records)
    world.manager.decided()
    assert is_gone(world, topic_id)


def test_an_answer_that_was_decided_before_the_rest_was_refused_is_not_one_to_the_next_order() -> (
    None
):
    """1. The disk fails, which is written. 2. The rest of that decision is refused. 3. The next
    order is out when it is decided again, and its answer is still awaited."""
    world, topic_id = begun({0: (1,)})
    world.machines[1].is_failed = True
    world.carry_out(1)
    world.write(decided(world))
    world.manager.refused(now_ms=world.now_ms)
    world.pass_time()
    wish = world.manager.take_work()
    assert wish is not None
    assert not wish.results
    world.manager.decided()
    world.machines[1].is_failed = False
    assert list(world.carry_out(1).values()) == [Error.NONE]
    world.decide()
    assert is_gone(world, topic_id)


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
    assert decided(world) == ()
    assert list(world.carry_out(1).values()) == [Error.NONE]
    world.manager.decided()
    world.decide()
    assert is_gone(world, topic_id)


def decided(world: DeletionWorld) -> tuple[Record, ...]:
    """Begin to decide once; return what is to be written."""
    wish = world.manager.take_work()
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
    world.now_ms += RETENTION_MS + FULL_CHECK_MS
    world.pass_time()
    world.mark("other")
    wish = world.manager.take_work()
    assert wish is not None
    assert wish.topics
    assert wish.receipts_until_ms is None
    world.manager.refused(now_ms=world.now_ms)
    assert world.decide() == 1
    assert world.image.deletions.of(first) is None


@pytest.mark.parametrize(
    ("retention_ms", "every_ms"),
    [
        (7 * 24 * 3_600_000, FULL_CHECK_MS),
        (FULL_CHECK_MS, FULL_CHECK_MS),
        (60_000, 60_000),
        (0, RECEIPT_PURGE_MS_MIN),
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
        assert manager.take_work() is None
        manager.tick(now_ms=turn * every_ms, wall_ms=10**12)
        wish = manager.take_work()
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
    while world.manager.has_work:
        world.decide()
    world.manager.tick(now_ms=FULL_CHECK_MS - 1, wall_ms=0)
    wish = world.manager.take_work()
    assert wish is not None
    assert (wish.topics, wish.receipts_until_ms) == (frozenset(), 0)
    world.manager.decided()
    world.manager.tick(now_ms=FULL_CHECK_MS, wall_ms=0)
    wish = world.manager.take_work()
    assert wish is not None
    assert wish.topics == {topic_id}
