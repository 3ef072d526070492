"""Classic deletions, as TopicDeletionManager does them, without its bugs.

Method: a small cluster in one value, `deletion_harness`; events by hand, then what the ledger, the
brokers' queues and their disks say. Tests that are named after a bug fail where it is put back.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller import deletion_policy
from ottla.controller.deletion_policy import Replica
from ottla.metadata.deletions import HaltReason, Policy

from .deletion_harness import RETENTION_MS, DeletionWorld

ONE = {0: (1, 2)}
TWO = {0: (1, 2), 1: (2, 1)}


def classic(*broker_ids: int, enabled: bool = True) -> DeletionWorld:
    """Return a cluster of ZooKeeper's kind."""
    return DeletionWorld(Policy.CLASSIC, broker_ids or (1, 2, 3), enabled=enabled)


def begun(assignment: dict[int, tuple[int, ...]] | None = None) -> tuple[DeletionWorld, Uuid]:
    """Return a cluster with a topic whose deletion has begun."""
    world = classic()
    topic_id = world.create("t", assignment or ONE)
    world.settle()
    world.mark("t")
    world.decide()
    return world, topic_id


def is_gone(world: DeletionWorld, topic_id: Uuid) -> bool:
    """Tell whether a topic is finished, everywhere."""
    entry = world.image.deletions.of(topic_id)
    return (
        entry is not None
        and entry.is_finished
        and world.image.topics.by_id(entry.topic_id) is None
        and not world.logs_of(entry.topic_id)
    )


# -- TopicDeletionManagerTest ------------------------------------------------------------------


def test_basic_deletion() -> None:
    world = classic()
    first, second = world.create("bar", TWO), world.create("foo", TWO)
    world.settle()
    world.mark("bar")
    world.mark("foo")
    world.decide()
    assert set(world.states(first).values()) == set(world.states(second).values()) == {"STARTED"}
    # One order a broker and decision, not one a replica.
    assert {each: len(machine.queue) for each, machine in world.machines.items()} == {
        1: 1, 2: 1, 3: 0,
    }  # fmt: skip
    world.settle()
    assert is_gone(world, first)
    assert is_gone(world, second)
    assert "t" not in world.image.topics


def test_deletion_with_broker_offline() -> None:
    world = classic()
    topic_id = world.create("t", TWO)
    world.stop(2)
    world.mark("t")
    world.settle()
    dead = "INELIGIBLE BROKER_DOWN"
    assert world.states(topic_id) == {
        (1, 0): "SUCCESSFUL", (1, 1): "SUCCESSFUL", (2, 0): dead, (2, 1): dead,
    }  # fmt: skip
    assert "t" in world.image.topics  # The name is not free.
    world.start(2)
    world.settle()
    assert is_gone(world, topic_id)


def test_broker_failure_after_deletion_started_is_retried_without_waiting_for_others() -> None:
    world, topic_id = begun()
    world.stop(2)
    world.decide()
    world.start(2)
    world.decide()
    assert world.states(topic_id) == {(1, 0): "STARTED", (2, 0): "STARTED"}
    world.settle()
    assert is_gone(world, topic_id)


def test_topic_without_partitions_goes_at_once() -> None:
    world = classic()
    topic_id = world.create("t", {})
    world.mark("t")
    world.decide()
    assert is_gone(world, topic_id)


# -- what halts and resumes --------------------------------------------------------------------


def test_latent_1_reassignment_that_runs_when_the_topic_is_marked_halts_its_deletion() -> None:
    world = classic()
    topic_id = world.create("t", ONE)
    world.reassign(topic_id, (2, 3))
    world.mark("t")
    world.settle()
    assert world.entry(topic_id).halted is HaltReason.REASSIGNMENT
    assert not world.image.is_being_deleted("t")  # It is served, or the move would never end.
    assert world.orders == 0
    world.end_reassignment(topic_id)
    world.settle()
    assert is_gone(world, topic_id)
    assert set(world.states(topic_id)) == {(2, 0), (3, 0)}  # The set that the move led to.


def test_reassignment_that_is_only_asked_for_halts_it_too() -> None:
    world = classic()
    topic_id = world.create("t", ONE)
    world.manager.set_ineligible_topics(reassignments=["t"])
    world.mark("t")
    world.decide()
    assert world.entry(topic_id).halted is HaltReason.REASSIGNMENT
    world.manager.set_ineligible_topics()
    world.settle()
    assert is_gone(world, topic_id)


def test_preferred_election_halts_a_deletion_and_its_end_resumes_it() -> None:
    world = classic()
    topic_id = world.create("t", ONE)
    world.run_elections("t")
    world.mark("t")
    world.decide()
    assert world.entry(topic_id).halted is HaltReason.PREFERRED_ELECTION
    world.run_elections()
    world.settle()
    assert is_gone(world, topic_id)


def test_kafka_1558_one_deletion_that_waits_holds_up_no_other() -> None:
    world = classic()
    waits, goes = world.create("a", ONE), world.create("b", ONE)
    world.run_elections("a")
    world.mark("a")
    world.mark("b")
    world.settle()
    assert world.orders > 0
    assert is_gone(world, goes)
    assert not world.entry(waits).has_begun


def test_latent_2_a_broker_that_dies_after_it_confirmed_marks_nothing() -> None:
    world, topic_id = begun()
    world.carry_out(2)
    world.decide()
    world.stop(2)
    world.settle()
    assert is_gone(world, topic_id)
    again = world.create("t", {0: (1,)})  # And the next one of the name is not held up by it.
    world.mark("t")
    world.settle()
    assert is_gone(world, again)


def test_latent_3_a_failed_folder_is_tried_again_by_a_timer() -> None:
    world, topic_id = begun()
    world.machines[2].is_failed = True
    world.carry_out(1)
    world.carry_out(2)
    world.decide()
    assert world.states(topic_id)[2, 0] == "INELIGIBLE FOLDER_FAILED"
    due_ms = world.manager.next_due_ms
    assert due_ms is not None
    assert due_ms > world.now_ms
    world.machines[2].is_failed = False
    world.settle()
    assert is_gone(world, topic_id)


def test_pauses_grow_to_a_bound_while_a_folder_stays_failed() -> None:
    world, topic_id = begun({0: (1,)})
    world.machines[1].is_failed = True
    pauses = []
    for _ in range(9):
        world.carry_out(1)
        world.decide()
        due_ms = world.manager.next_due_ms
        assert due_ms is not None
        pauses.append(due_ms - world.now_ms)
        world.pass_time()
        assert world.states(topic_id) == {(1, 0): "INELIGIBLE FOLDER_FAILED"}
        assert len(world.machines[1].queue) == 1
    assert pauses[:3] == [500, 1_000, 2_000]
    assert pauses[-1] == 60_000


def test_the_ledger_says_why_a_replica_waits() -> None:
    world, topic_id = begun()
    world.stop(2)
    world.decide()
    assert world.states(topic_id) == {(1, 0): "STARTED", (2, 0): "INELIGIBLE BROKER_DOWN"}


def test_a_broker_that_comes_back_is_tried_at_once_whatever_it_failed_with() -> None:
    world, topic_id = begun()
    world.machines[2].is_failed = True
    world.carry_out(2)
    world.decide()
    world.start(2)
    assert [each.broker_epoch for each in world.machines[2].queue] == [world.machines[2].epoch]
    world.machines[2].is_failed = False
    world.carry_out(2)
    world.decide()
    assert world.states(topic_id)[2, 0] == "SUCCESSFUL"


def test_a_replica_on_a_failed_folder_is_not_ordered_before_a_pause() -> None:
    world = classic()
    topic_id = world.create("t", ONE)
    world.lose_folder(topic_id, 2)
    world.mark("t")
    world.decide()
    assert world.states(topic_id) == {(1, 0): "STARTED", (2, 0): "INELIGIBLE FOLDER_FAILED"}
    world.settle()  # The folder is back, or never was what failed.
    assert is_gone(world, topic_id)


def test_a_folder_that_fails_while_its_replica_goes_makes_no_second_order() -> None:
    """The answer to the first one would be taken for the second's."""
    world, topic_id = begun()
    world.lose_folder(topic_id, 2)
    world.decide()
    assert world.states(topic_id)[2, 0] == "INELIGIBLE FOLDER_FAILED"
    world.pass_time()
    assert len(world.machines[2].queue) == 1
    world.settle()
    assert is_gone(world, topic_id)


def test_an_answer_counts_though_the_folder_was_lost_while_it_was_awaited() -> None:
    """It says that nothing is left: the operator need not mend a disk for what is gone."""
    world, topic_id = begun()
    world.lose_folder(topic_id, 2)
    world.decide()
    world.carry_out(2)
    world.decide()
    assert world.states(topic_id)[2, 0] == "SUCCESSFUL"
    assert not world.illegal
    world.settle()
    assert is_gone(world, topic_id)


def test_latent_5_a_decision_that_came_to_nothing_is_made_up_for() -> None:
    world, topic_id = begun()
    world.carry_out(1)
    world.carry_out(2)
    assert world.manager.take_work() is not None
    world.manager.refused(now_ms=world.now_ms)
    assert world.decide() == 0  # It is given a pause.
    world.pass_time()
    world.settle()
    assert is_gone(world, topic_id)


def test_latent_6_a_new_controller_asks_again_and_brokers_answer_the_same() -> None:
    world, topic_id = begun()
    world.carry_out(1, answer=False)
    world.elect()
    assert [len(world.machines[each].queue) for each in (1, 2)] == [1, 1]
    world.settle()
    assert is_gone(world, topic_id)


def test_kafka_1681_a_new_controller_looks_at_what_waits_without_being_asked() -> None:
    world = classic()
    topic_id = world.create("t", ONE)
    world.mark("t")
    world.elect()  # Before the first one decided anything.
    world.settle()
    assert is_gone(world, topic_id)


def test_a_new_controller_remembers_what_was_confirmed() -> None:
    world, topic_id = begun()
    world.carry_out(1)
    world.decide()
    world.elect()
    world.decide()
    assert world.states(topic_id) == {(1, 0): "SUCCESSFUL", (2, 0): "STARTED"}
    assert not world.machines[1].queue
    assert world.machines[2].queue


# -- orders and answers ------------------------------------------------------------------------


def test_kafka_9946_an_answer_to_nothing_that_was_ordered_counts_for_nothing() -> None:
    world, topic_id = begun()
    never = Replica(1, topic_id, 7)
    epoch = world.image.brokers[1].epoch
    world.manager.responded(1, epoch, {never: Error.NONE}, now_ms=world.now_ms)
    world.manager.responded(3, epoch, {never: Error.NONE}, now_ms=world.now_ms)
    old = Replica(1, topic_id, 0)
    world.manager.responded(1, epoch - 1, {old: Error.NONE}, now_ms=world.now_ms)
    assert world.manager.take_work() is None


def test_an_answer_counts_once() -> None:
    world, topic_id = begun()
    results = world.carry_out(1)
    epoch = world.image.brokers[1].epoch
    world.decide()
    world.manager.responded(1, epoch, results, now_ms=world.now_ms)
    assert world.manager.take_work() is None
    assert world.states(topic_id)[1, 0] == "SUCCESSFUL"


def test_kafka_7235_a_bounce_voids_the_orders_of_the_old_process() -> None:
    world, topic_id = begun()
    before = world.machines[2].queue[0]
    world.start(2)
    world.decide()
    assert world.states(topic_id)[2, 0] == "STARTED"
    assert [each.broker_epoch for each in world.machines[2].queue] == [world.machines[2].epoch]
    late = dict.fromkeys(before.replicas(), Error.NONE)
    world.manager.responded(2, before.broker_epoch, late, now_ms=world.now_ms)
    assert world.manager.take_work() is None


def test_a_bounce_repeats_no_order_whose_answer_is_being_decided() -> None:
    """The second order would be out when the first one's answer ends the deletion."""
    world, topic_id = begun()
    world.carry_out(1)
    world.carry_out(2)
    world.stop(1)
    world.start(1)
    assert not world.machines[1].queue
    world.decide()
    assert is_gone(world, topic_id)
    again = world.create("t", ONE)
    world.settle()
    assert world.logs_of(again) == {(1, 0), (2, 0)}


def test_an_order_that_was_dropped_goes_out_again_after_a_pause() -> None:
    world, topic_id = begun()
    order = world.machines[1].queue.pop()
    world.manager.dropped(1, order.broker_epoch, order.replicas(), now_ms=world.now_ms)
    assert world.decide() == 0
    assert not world.machines[1].queue
    world.settle()
    assert is_gone(world, topic_id)


def test_a_broker_that_does_not_know_yet_is_asked_again_and_nothing_is_written() -> None:
    world, topic_id = begun()
    order = world.machines[1].queue.pop()
    not_yet = dict.fromkeys(order.replicas(), Error.OPERATION_NOT_ATTEMPTED)
    world.written.clear()
    world.manager.responded(1, order.broker_epoch, not_yet, now_ms=world.now_ms)
    assert world.decide() == 0
    assert not world.written
    world.settle()
    assert is_gone(world, topic_id)


def test_an_error_is_kept_beside_the_replica() -> None:
    world, topic_id = begun()
    order = world.machines[1].queue.pop()
    stale = dict.fromkeys(order.replicas(), Error.STALE_CONTROLLER_EPOCH)
    world.manager.responded(1, order.broker_epoch, stale, now_ms=world.now_ms)
    world.decide()
    [(_, standing, _)] = [row for row in world.entry(topic_id).rows() if row[0] == 1]
    assert (standing.reason.name, standing.error) == ("REFUSED", Error.STALE_CONTROLLER_EPOCH)


# -- what happens meanwhile --------------------------------------------------------------------


def test_kafka_6612_partitions_that_a_tool_adds_go_with_their_topic() -> None:
    world, topic_id = begun()
    world.grow(topic_id, {1: (3, 1)})
    world.settle()
    assert is_gone(world, topic_id)
    assert world.states(topic_id).keys() == {(1, 0), (1, 1), (2, 0), (3, 1)}


def test_kafka_13572_marking_twice_is_marking_once() -> None:
    world, topic_id = begun()
    before = world.image.deletions
    assert world.mark("t") is Error.NONE
    assert world.image.deletions == before
    world.settle()
    assert is_gone(world, topic_id)


def test_kafka_3175_and_5975_switched_off_deletions_are_called_off() -> None:
    world = classic(enabled=False)
    topic_id = world.create("t", ONE)
    assert world.mark("t") is Error.TOPIC_DELETION_DISABLED
    world.enabled = True
    world.mark("t")  # By a controller that allowed it and died.
    world.enabled = False
    world.elect()
    world.settle()
    assert world.image.deletions.of(topic_id) is None
    assert world.logs_of(topic_id) == {(1, 0), (2, 0)}


def test_what_is_half_gone_goes_on_though_deletions_are_switched_off() -> None:
    world, topic_id = begun()
    world.enabled = False
    world.elect()
    world.settle()
    assert is_gone(world, topic_id)


def test_kafka_10548_a_dead_broker_holds_the_name_but_a_topic_removed_by_hand_ends_it() -> None:
    """What operators do about it: the topic's nodes removed with a ZooKeeper client."""
    world, topic_id = begun()
    world.stop(2)
    world.settle()
    assert "t" in world.image.topics
    world.remove_by_hand("t")
    world.settle()
    entry = world.entry(topic_id)
    assert entry.is_finished
    assert world.states(entry.topic_id) == {
        (1, 0): "SUCCESSFUL", (2, 0): "ABANDONED TOPIC_VANISHED",
    }  # fmt: skip
    again = world.create("t", {0: (1,)})
    world.settle()
    assert world.logs_of(again) == {(1, 0)}
    assert not world.wrongs


def test_receipts_are_kept_for_their_time() -> None:
    world, topic_id = begun()
    world.settle()
    assert is_gone(world, topic_id)
    world.now_ms += RETENTION_MS - 1_000
    world.pass_time()
    world.decide()
    assert len(world.image.deletions) == 1
    world.now_ms += 60_000
    world.pass_time()
    world.decide()
    assert len(world.image.deletions) == 0


def test_many_receipts_are_put_away_some_at_a_time_and_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not at the next look: as many as come in five minutes would never be caught up with."""
    monkeypatch.setattr(deletion_policy, "RECEIPTS_PER_STEP_MAX", 2)
    world = classic()
    for name in "abcde":
        world.create(name, TWO)
        world.mark(name)
    world.settle()
    world.now_ms += RETENTION_MS + 60_000
    world.pass_time()
    assert [world.decide() for _ in range(5)] == [2, 2, 1, 0, 0]
    assert len(world.image.deletions) == 0


def test_who_is_not_in_office_does_nothing() -> None:
    world, _ = begun()
    world.manager.resigned()
    world.stop(2)
    assert world.manager.take_work() is None
    assert world.manager.next_due_ms is None
    assert world.manager.tick(now_ms=10**9, wall_ms=10**9) == ()


def test_no_step_was_illegal_and_no_order_wrong() -> None:
    world = classic()
    topic_id = world.create("t", TWO)
    world.stop(1)
    world.mark("t")
    world.machines[2].is_failed = True
    world.settle()
    world.start(1)
    world.stop(2)
    world.start(2)
    world.machines[2].is_failed = False
    world.settle()
    assert is_gone(world, topic_id)
    assert not world.illegal
    assert not world.wrongs
