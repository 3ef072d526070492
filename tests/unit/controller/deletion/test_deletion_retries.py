"""What failed is tried again, not too often; and no answer is taken for another order's.

Method: as `test_deletion_manager`.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion.deletion_events import DeletionsAnswered, OrdersDropped
from ottla.controller.deletion.deletion_manager import (
    FULL_CHECK_MS,
    RECEIPT_PURGE_MS_MIN,
    DeletionManager,
)
from ottla.controller.deletion.deletion_orders import DeletionOrder
from ottla.controller.deletion.deletion_policy import decide
from ottla.controller.manager_events import Elected, TimePassed, WorkDecided, WorkRefused
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
from tests.unit.controller.deletion.test_deletion_manager import begun, is_gone
from tests.unit.controller.deletion_harness import RETENTION_MS, DeletionHarness


def test_successes_do_not_shorten_the_backoff_of_a_failed_log_dir() -> None:
    """Or all that lies there is asked for, and written, with every other deletion."""
    harness, _ = begun({0: (1,)})
    pauses = []
    for number in range(9):
        harness.machines[1].is_failed = True
        harness.carry_out(1)
        harness.decide()
        due_ms = harness.manager.next_due_ms
        pauses.append(due_ms - harness.now_ms)
        harness.machines[1].is_failed = False
        other = harness.create(f"other{number}", {0: (1,)})
        harness.carry_out(1)
        harness.mark(f"other{number}")
        harness.decide()
        harness.carry_out(1)
        harness.decide()
        assert is_gone(harness, other)
        harness.pass_time()
        harness.decide()
    assert pauses[-1] == RETRY_MS_MAX


def stuck(policy: Policy) -> tuple[DeletionHarness, Uuid]:
    """Return a cluster with a topic that is gone but for what lies on a failed disk of broker 2."""
    harness = DeletionHarness(policy, (1, 2))
    topic_id = harness.create("t", dict.fromkeys(range(3), (1, 2)))
    harness.settle()
    harness.machines[2].is_failed = True
    if policy is Policy.CLASSIC:
        harness.mark("t")
    else:
        harness.delete("t")
    harness.settle()
    rows = harness.entry(topic_id).replicas[2]
    assert {(each.state, each.reason) for each in rows} == {
        (DeletionState.INELIGIBLE, Reason.FOLDER_FAILED)
    }
    harness.written.clear()
    return harness, topic_id


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
def test_a_disk_that_stays_broken_costs_no_record_however_often_it_is_tried(
    policy: Policy,
) -> None:
    """Else a broker that nobody mends fills the metadata log, or ZooKeeper's, for weeks."""
    harness, topic_id = stuck(policy)
    orders, image = harness.orders, harness.image
    for _ in range(20):
        harness.pass_time()
        while harness.manager.has_work or harness.machines[2].queue:
            harness.decide()
            if harness.machines[2].queue:
                harness.carry_out(2)
    assert harness.orders - orders > 10
    assert not harness.written
    assert harness.image is image, "nothing flickers for who looks at the ledger, or the gauges"
    harness.machines[2].is_failed = False
    harness.settle()
    assert is_gone(harness, topic_id)
    assert not harness.illegal


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
def test_another_reason_is_written_once(policy: Policy) -> None:
    """Who reads the ledger must not be sent to mend what is no longer the matter."""
    harness, topic_id = stuck(policy)
    for _ in range(3):
        harness.pass_time()
        order = harness.machines[2].queue.pop()
        assert isinstance(order, DeletionOrder)
        refused = dict.fromkeys(order.replicas(), Error.UNKNOWN_SERVER_ERROR)
        harness.step(DeletionsAnswered(2, order.broker_epoch, refused))
        while harness.manager.has_work:
            harness.decide()
    assert len(harness.written) == 1
    [standing] = harness.entry(topic_id).replicas[2]
    assert (standing.reason, standing.error) == (Reason.REFUSED, Error.UNKNOWN_SERVER_ERROR)
    assert not harness.illegal


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
@pytest.mark.parametrize("when", ["ordered", "deleted", "answered"])
def test_a_new_controller_in_the_middle_of_another_attempt_loses_nothing(
    policy: Policy, when: str
) -> None:
    """The order, and the answer to it, are in no ledger: the next controller must ask again."""
    harness, topic_id = stuck(policy)
    harness.machines[2].is_failed = False
    harness.pass_time()
    assert len(harness.machines[2].queue) == 1
    if when != "ordered":
        harness.carry_out(2, answer=when == "answered")
    harness.elect()
    assert len(harness.machines[2].queue) == 1, "it does not wait for a pause"
    harness.carry_out(2)
    harness.settle()
    assert is_gone(harness, topic_id)
    assert not harness.illegal


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
def test_what_was_answered_is_not_ordered_again_while_another_replica_s_fate_is_written(
    policy: Policy,
) -> None:
    """A second order could be out when the first one's answer ends the deletion, and hit the
    next topic of the name."""
    harness, topic_id = stuck(policy)
    harness.pass_time()
    harness.machines[2].is_failed = False
    harness.carry_out(2)
    work = harness.manager.take_work()
    assert work is not None
    records = decide(harness.image, work, wall_ms=harness.now_ms).step.records
    harness.write([replicas_record(topic_id, 1, SUCCESSFUL, [0])])
    harness.now_ms += FULL_CHECK_MS
    harness.pass_time()
    assert not harness.machines[2].queue
    harness.write(records)
    harness.step(WorkDecided())
    assert harness.entry(topic_id).partitions_at(2, SUCCESSFUL) == {0, 1, 2}


def test_a_failed_replica_whose_order_was_dropped_is_ordered_when_its_broker_changes() -> None:
    """A broker that was cut off and is mended meanwhile must not wait a minute for it."""
    harness, _ = stuck(Policy.AT_ONCE)
    harness.pass_time()
    order = harness.machines[2].queue.pop()
    assert isinstance(order, DeletionOrder)
    harness.step(OrdersDropped(2, order.broker_epoch, tuple(order.replicas())))
    known = harness.image.brokers[2]
    harness.write([record_of(replace(known, fenced=True))])
    assert not harness.machines[2].queue
    harness.write([record_of(known)])
    assert len(harness.machines[2].queue) == 1


def test_a_failed_replica_s_broker_that_is_unregistered_is_not_waited_for() -> None:
    harness, topic_id = stuck(Policy.AT_ONCE)
    harness.stop(2)
    harness.unregister(2)
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert harness.states(topic_id)[2, 0] == "ABANDONED UNREGISTERED"


def test_the_full_check_orders_nothing_whose_result_is_being_decided() -> None:
    harness, topic_id = begun()
    harness.carry_out(1)
    harness.carry_out(2)
    work = harness.manager.take_work()
    assert work is not None
    harness.now_ms += FULL_CHECK_MS
    harness.pass_time()
    assert not harness.machines[1].queue
    harness.write(decide(harness.image, work, wall_ms=harness.now_ms).step.records)
    harness.step(WorkDecided())
    assert is_gone(harness, topic_id)


def test_an_answer_that_was_decided_before_the_rest_was_refused_is_not_one_to_the_next_order() -> (
    None
):
    """1. The disk fails, which is written. 2. The rest of that decision is refused. 3. The next
    order is out when it is decided again, and its answer is still awaited."""
    harness, topic_id = begun({0: (1,)})
    harness.machines[1].is_failed = True
    harness.carry_out(1)
    harness.write(decided(harness))
    harness.step(WorkRefused())
    harness.pass_time()
    work = harness.manager.take_work()
    assert work is not None
    assert not work.results
    harness.step(WorkDecided())
    harness.machines[1].is_failed = False
    assert list(harness.carry_out(1).values()) == [Error.NONE]
    harness.decide()
    assert is_gone(harness, topic_id)


def test_an_answer_to_the_next_order_that_comes_while_an_older_one_is_decided_is_not_lost() -> None:
    """1. The disk fails, which is written; the rest of that decision is refused. 2. The broker is
    back, mended. 3. It is ordered again, and confirms, before that decision has ended."""
    harness, topic_id = begun({0: (1,)})
    harness.machines[1].is_failed = True
    harness.carry_out(1)
    harness.write(decided(harness))
    harness.step(WorkRefused())
    harness.machines[1].is_failed = False
    harness.stop(1)
    harness.start(1)
    harness.pass_time()
    assert decided(harness) == ()
    assert list(harness.carry_out(1).values()) == [Error.NONE]
    harness.step(WorkDecided())
    harness.decide()
    assert is_gone(harness, topic_id)


def decided(harness: DeletionHarness) -> tuple[Record, ...]:
    """Begin to decide once; return what is to be written."""
    work = harness.manager.take_work()
    assert work is not None
    return decide(harness.image, work, wall_ms=harness.now_ms).step.records


def test_an_answer_that_nobody_waits_for_any_more_leaves_nothing_behind() -> None:
    harness, topic_id = begun({0: (1,)})
    harness.remove_by_hand("t")
    harness.decide()
    assert harness.entry(topic_id).is_finished
    harness.carry_out(1)
    harness.decide()
    assert not list(harness.manager.__dict__["_orders"])


def test_receipts_are_purged_apart_from_deletions() -> None:
    """One that cannot be removed holds up no deletion."""
    harness, first = begun({0: (1,)})
    harness.settle()
    assert is_gone(harness, first)
    harness.create("other", {0: (1,)})
    harness.carry_out(1)
    harness.now_ms += RETENTION_MS + FULL_CHECK_MS
    harness.pass_time()
    harness.mark("other")
    work = harness.manager.take_work()
    assert work is not None
    assert work.topics
    assert work.receipts_until_ms is None
    harness.step(WorkRefused())
    assert harness.decide() == 1
    assert harness.image.deletions.of(first) is None


@pytest.mark.parametrize(
    ("retention_ms", "every_ms"),
    [
        (7 * 24 * 3_600_000, FULL_CHECK_MS),
        (FULL_CHECK_MS, FULL_CHECK_MS),
        (60_000, 60_000),
        (0, RECEIPT_PURGE_MS_MIN),
    ],
)
def test_receipts_are_purged_at_the_interval_of_their_retention(
    retention_ms: int, every_ms: int
) -> None:
    """Or whoever wants them for a minute keeps them for six, and a storm's ledger is so much
    longer; but a controller that has nothing to do must not spin."""
    manager = DeletionManager(enabled=True, retention_ms=retention_ms)
    manager.step(Elected(EMPTY), now_ms=0)
    for turn in (1, 2):
        assert manager.next_due_ms == turn * every_ms
        early = manager.step(TimePassed(10**12), now_ms=turn * every_ms - 1)
        assert early.work is None
        work = manager.step(TimePassed(10**12), now_ms=turn * every_ms).work
        assert work is not None
        assert work.receipts_until_ms == 10**12 - retention_ms
        manager.step(WorkDecided(), now_ms=turn * every_ms)


def test_a_short_retention_of_receipts_does_not_shorten_the_full_check() -> None:
    """Or thousands of deletions that wait for a broker are looked through every few seconds."""
    harness, topic_id = begun()
    harness.stop(2)
    harness.decide()
    harness.manager = DeletionManager(enabled=True, retention_ms=0)
    harness.manager.step(Elected(harness.image), now_ms=0, is_idle=False)
    while harness.manager.has_work:
        harness.decide()
    work = harness.manager.step(TimePassed(0), now_ms=FULL_CHECK_MS - 1).work
    assert work is not None
    assert (work.topics, work.receipts_until_ms) == (frozenset(), 0)
    harness.step(WorkDecided())
    work = harness.manager.step(TimePassed(0), now_ms=FULL_CHECK_MS).work
    assert work is not None
    assert work.topics == {topic_id}
