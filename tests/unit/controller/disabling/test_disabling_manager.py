"""Goal: a topic is DISABLED once all who have to acknowledge did, whatever happens meanwhile.

Method: the manager over a model of brokers that know the metadata late; both modes, both policies.
Tests of the rules for the holes of KIP-950's draft are named after them. Orders of events that
nobody thought of: `test_disabling_histories.py`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.controller.disabling import disabling_manager, topic_checks
from ottla.controller.disabling.acknowledgements import Acknowledgements, Missing, Reason
from ottla.controller.disabling.disabling_manager import FULL_CHECK_MS, Work
from ottla.controller.disabling.disabling_orders import PARTITIONS_PER_ORDER_MAX
from ottla.controller.retry_queue import RETRY_FIRST_MS
from ottla.metadata.deletions import DeletionImage, Policy, deletion_records
from ottla.metadata.features import LEDGER
from ottla.metadata.image import ClusterImage
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.metadata.topics import DIRECTORY_LOST, partition_record
from tests.unit.controller import disabling_harness
from tests.unit.controller.builders import uuid
from tests.unit.controller.disabling_harness import MODES, DisablingHarness

POLICIES = ("retain", "delete")


@pytest.fixture(params=sorted(MODES))
def cluster(request: pytest.FixtureRequest) -> DisablingHarness:
    return DisablingHarness(MODES[request.param])


both_policies = pytest.mark.parametrize("policy", POLICIES)


def waiting(cluster: DisablingHarness) -> list[tuple[int, int, Reason]]:
    return [(each.partition, each.broker_id, each.reason) for each in cluster.missing()]


@both_policies
def test_hole_11_disabled_is_when_all_live_replicas_have_acknowledged(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create(assignment={0: (1, 2), 1: (2, 3)})
    cluster.disable(policy)
    expected = cluster.state()
    assert expected.state is TieringState.DISABLING
    asked = [(1, 0), (2, 0), (2, 1), (3, 1)]
    assert [(b, each.partition) for b, each in cluster.orders.replicas] == asked
    cluster.learn()
    for broker_id in (1, 2):
        cluster.carry_out(broker_id)
        assert cluster.work is None
    assert waiting(cluster) == [(1, 3, Reason.NOT_ANSWERED)]
    cluster.carry_out(3)
    assert not cluster.is_disabled(), "it is decided, not assumed"
    cluster.decide()
    assert cluster.state() == replace(expected, state=TieringState.DISABLED)
    assert not cluster.wrongs
    assert cluster.orders.count == 3, "one request to each broker"
    cluster.wait(FULL_CHECK_MS)
    assert cluster.orders.count == 3


@both_policies
def test_the_object_store_is_not_needed_for_disabled(
    cluster: DisablingHarness, policy: str
) -> None:
    """`purge_pending` stays: the purge is reported by itself."""
    cluster.create()
    cluster.disable(policy)
    cluster.settle()
    assert cluster.is_disabled()
    assert cluster.state().purge_pending is (policy == "delete")


@both_policies
def test_hole_10_a_broker_that_does_not_know_the_epoch_yet_is_asked_again(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn(2)
    cluster.carry_out(2)
    for backoff in (1, 2, 4):
        [result] = cluster.carry_out(1)
        assert result.error is Error.OPERATION_NOT_ATTEMPTED
        assert not cluster.machines[1].queue
        [row] = cluster.missing()
        assert (row.broker_id, row.reason, row.error) == (
            1, Reason.FAILED, Error.OPERATION_NOT_ATTEMPTED,
        )  # fmt: skip
        cluster.wait(backoff * RETRY_FIRST_MS - 1)
        assert not cluster.machines[1].queue
        cluster.wait(1)
        assert cluster.machines[1].queue
    cluster.settle()
    assert cluster.is_disabled()


def test_hole_10_an_answer_for_an_earlier_epoch_does_not_count(cluster: DisablingHarness) -> None:
    """The answers of an earlier disablement come late, when the next one runs."""
    cluster.create()
    cluster.disable()
    late = {each: list(cluster.machines[each].queue) for each in (1, 2)}
    cluster.learn()
    cluster.settle()
    cluster.enable()
    cluster.disable("delete")
    assert cluster.state().tiered_epoch == 4
    cluster.learn()
    for broker_id, orders in late.items():
        cluster.machines[broker_id].queue = orders + cluster.machines[broker_id].queue
        cluster.carry_out(broker_id)
    assert len(waiting(cluster)) == 2
    assert cluster.work is None
    cluster.settle()
    assert cluster.is_disabled()


@both_policies
def test_hole_12_a_broker_that_is_down_is_not_waited_for(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.stop(2)
    cluster.disable(policy)
    cluster.settle()
    assert cluster.is_disabled()
    assert {broker_id for broker_id, _ in cluster.orders.replicas} == {1}
    cluster.start(2)
    cluster.settle()
    assert {broker_id for broker_id, _ in cluster.orders.replicas} == {1}, "it has the state"


def test_hole_12_delete_waits_for_partitions_without_a_live_leader(
    cluster: DisablingHarness,
) -> None:
    cluster.create(assignment={0: (1, 2), 1: (3,)})
    cluster.stop(3)
    assert cluster.partition(number=1).leader == NO_LEADER
    cluster.disable("delete")
    cluster.settle()
    assert not cluster.is_disabled()
    assert waiting(cluster) == [(1, -1, Reason.NO_LEADER)]
    cluster.start(3)
    cluster.settle()
    assert cluster.is_disabled()
    assert not cluster.wrongs


def test_hole_12_retain_does_not_wait_for_them(cluster: DisablingHarness) -> None:
    cluster.create(assignment={0: (1, 2), 1: (3,)})
    cluster.stop(3)
    cluster.disable("retain")
    cluster.settle()
    assert cluster.is_disabled()


@both_policies
def test_hole_13_orders_to_a_dead_broker_are_dropped_and_sent_under_its_new_epoch(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    assert cluster.machines[2].queue
    cluster.stop(2)
    assert not cluster.machines[2].queue
    cluster.wait(FULL_CHECK_MS)
    assert not cluster.machines[2].queue, "nothing is sent to a broker that is down"
    cluster.start(2)
    [order] = cluster.machines[2].queue
    assert order.broker_epoch == cluster.image.brokers[2].epoch
    cluster.settle()
    assert cluster.is_disabled()


@both_policies
def test_hole_13_an_unregistered_broker_is_not_waited_for(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn()
    cluster.carry_out(1)
    cluster.stop(2)
    cluster.unregister(2)
    assert cluster.work is not None
    cluster.decide()
    assert cluster.is_disabled()


@both_policies
def test_a_broker_that_restarts_acknowledges_again(cluster: DisablingHarness, policy: str) -> None:
    cluster.create(assignment={0: (1, 2, 3)})
    cluster.disable(policy)
    cluster.learn()
    cluster.carry_out(2)
    cluster.stop(2)
    cluster.start(2)
    assert len(cluster.machines[2].queue) == 1
    cluster.settle()
    assert cluster.is_disabled()


@both_policies
def test_a_restart_between_the_answers_and_the_decision_is_seen_by_the_decision(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn()
    for broker_id in (1, 2):
        cluster.carry_out(broker_id)
    assert cluster.work is not None
    cluster.lead(2)
    cluster.decide()
    assert not cluster.is_disabled(), "the new leader has not acknowledged"
    cluster.settle()
    assert cluster.is_disabled()
    assert not cluster.wrongs


@both_policies
def test_hole_14_a_new_controller_asks_all_again(cluster: DisablingHarness, policy: str) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn()
    cluster.carry_out(1)
    cluster.elect()
    assert [len(cluster.machines[each].queue) for each in (1, 2)] == [1, 1]
    cluster.carry_out(2)
    assert cluster.work is None, "what another controller has received is not known"
    cluster.carry_out(1)
    cluster.decide()
    assert cluster.is_disabled()


@both_policies
@pytest.mark.parametrize("follower_first", [True, False])
def test_hole_15_a_leaders_acknowledgement_is_of_its_leader_epoch(
    cluster: DisablingHarness, policy: str, follower_first: bool
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn()
    cluster.carry_out(1)
    cluster.lead(2)  # The old leader has acknowledged, the new one has not.
    cluster.carry_out(2)  # An order of the former leader epoch: it does not know that it leads.
    assert cluster.work is None
    if follower_first:
        cluster.learn()
    cluster.settle()
    cluster.heal()
    assert cluster.is_disabled()
    assert not cluster.wrongs
    epoch = cluster.partition().leader_epoch
    assert (uuid("t"), 0, epoch, 2) in cluster.fences


def test_hole_34_followers_of_a_new_leader_acknowledge_again(cluster: DisablingHarness) -> None:
    """Its log may start before theirs, and they must have what it has before they count."""
    cluster.create(assignment={0: (1, 2, 3)})
    cluster.disable("delete")
    cluster.learn()
    for broker_id in (2, 3):
        cluster.carry_out(broker_id)
    cluster.stop(1)  # Before it answered: 2 leads.
    assert cluster.partition().leader == 2
    assert {b: len(cluster.machines[b].queue) for b in (2, 3)} == {2: 1, 3: 1}
    cluster.settle()
    assert cluster.is_disabled()
    assert not cluster.wrongs


@both_policies
def test_hole_16_the_deletion_of_the_topic_wins(cluster: DisablingHarness, policy: str) -> None:
    cluster.create()
    cluster.create("u")
    cluster.disable(policy)
    cluster.disable(policy, "u")
    cluster.learn()
    cluster.carry_out(1)
    cluster.delete("t")
    cluster.settle()
    assert cluster.is_disabled("u")
    cluster.wait(FULL_CHECK_MS)
    assert not any(machine.queue for machine in cluster.machines.values())
    assert cluster.work is None


def test_hole_16_a_topic_that_is_queued_for_deletion_is_not_asked_for_until_it_is_cancelled() -> (
    None
):
    cluster = DisablingHarness(MODES["zookeeper"])
    cluster.create()
    cluster.disable("delete")
    entry = DeletionImage(topic_id=uuid("t"), name="t", policy=Policy.CLASSIC, asked_ms=1)
    cluster.write(deletion_records(entry))
    cluster.learn()
    for broker_id in (1, 2):
        cluster.carry_out(broker_id)
    assert cluster.work is None
    assert not cluster.is_disabled()
    cluster.wait(FULL_CHECK_MS)
    assert not any(machine.queue for machine in cluster.machines.values())


def test_hole_16_an_unknown_topic_counts_for_a_follower_and_not_for_the_leader(
    cluster: DisablingHarness,
) -> None:
    cluster.create()
    cluster.disable("delete")
    cluster.learn()
    for broker_id in (1, 2):
        cluster.machines[broker_id].fails = Error.UNKNOWN_TOPIC_ID
        cluster.carry_out(broker_id)
    assert [(each.broker_id, each.is_leader) for each in cluster.missing()] == [(1, True)]
    cluster.heal()
    assert cluster.is_disabled()


@both_policies
def test_hole_17_new_partitions_and_replicas_acknowledge_too(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn()
    cluster.carry_out(1)
    cluster.grow("t", {1: (3,)})
    cluster.reassign((1, 2, 3))
    cluster.learn()
    cluster.carry_out(2)
    assert {(each.partition, each.broker_id) for each in cluster.missing()} >= {(0, 3), (1, 3)}
    cluster.settle()
    assert cluster.is_disabled()
    assert not cluster.wrongs


@both_policies
def test_hole_17_replicas_that_leave_are_not_waited_for(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.machines[2].fails = Error.KAFKA_STORAGE_ERROR
    cluster.settle()
    assert not cluster.is_disabled()
    cluster.reassign((1, 3))
    cluster.settle()
    assert cluster.is_disabled()


@both_policies
def test_a_replica_in_an_offline_log_directory_is_not_waited_for(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.machines[2].fails = Error.KAFKA_STORAGE_ERROR
    cluster.settle()
    [row] = cluster.missing()
    assert (row.broker_id, row.reason, row.error) == (2, Reason.FAILED, Error.KAFKA_STORAGE_ERROR)
    before = cluster.partition()
    lost = (before.directories[0], DIRECTORY_LOST)
    cluster.write([partition_record(uuid("t"), 0, replace(before, directories=lost))])
    cluster.settle()
    assert cluster.is_disabled()


@both_policies
def test_a_slow_topic_does_not_delay_another_one(cluster: DisablingHarness, policy: str) -> None:
    cluster.create("t")
    cluster.create("u")
    cluster.disable(policy, "t")
    for broker_id in (1, 2):
        cluster.carry_out(broker_id)  # Neither knows the state yet: both are backed off.
    cluster.disable(policy, "u")
    cluster.learn()
    for broker_id in (1, 2):
        cluster.carry_out(broker_id)
    cluster.decide()
    assert cluster.is_disabled("u")
    assert not cluster.is_disabled("t")
    cluster.heal()
    assert cluster.is_disabled("t")


def test_many_topics_are_few_requests(cluster: DisablingHarness) -> None:
    names = [f"t{number}" for number in range(30)]
    for name in names:
        cluster.create(name, dict.fromkeys(range(40), (1, 2)))
    for name in names:
        cluster.disable("retain", name)
    cluster.elect()
    while cluster.wake_at_ms == cluster.now_ms:
        cluster.wait(0)
    sizes = [len(order.replicas) for order in cluster.machines[1].queue]
    assert sizes == [500, 500, 200], "one for each turn that looks at REPLICAS_PER_STEP_MAX"
    assert max(sizes) <= PARTITIONS_PER_ORDER_MAX
    cluster.settle()
    assert all(map(cluster.is_disabled, names))


@both_policies
def test_a_decision_that_cannot_be_written_is_made_again(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn()
    for broker_id in (1, 2):
        cluster.carry_out(broker_id)
    cluster.decide(refused=True)
    assert cluster.work is None
    cluster.wait(RETRY_FIRST_MS)
    cluster.decide()
    assert cluster.is_disabled()


@both_policies
def test_hole_14_a_controller_that_dies_after_its_write_leaves_nothing_to_do(
    cluster: DisablingHarness, policy: str
) -> None:
    cluster.create()
    cluster.disable(policy)
    cluster.learn()
    for broker_id in (1, 2):
        cluster.carry_out(broker_id)
    cluster.decide(dies=True)
    assert cluster.is_disabled()
    count = cluster.orders.count
    cluster.elect()
    assert cluster.orders.count == count


def test_hole_33_an_older_broker_is_not_asked_and_is_waited_for() -> None:
    """In ZooKeeper mode it may register while a topic is DISABLING; it may not know the request."""
    cluster = DisablingHarness(MODES["zookeeper"])
    cluster.create()
    cluster.disable("delete")
    cluster.stop(2)
    cluster.start(2, level=LEDGER)
    cluster.settle()
    assert not cluster.machines[2].queue
    assert cluster.missing() == [
        Missing(partition=0, leader_epoch=0, broker_id=2, reason=Reason.OLDER_VERSION)
    ]
    assert not cluster.is_disabled()
    cluster.stop(2)
    cluster.settle()
    assert cluster.is_disabled()


def test_hole_19_delete_after_retain_is_acknowledged_by_itself(cluster: DisablingHarness) -> None:
    cluster.create()
    cluster.disable("retain")
    cluster.settle()
    cluster.configure(remote_log_disable_policy="delete")
    state = cluster.state()
    assert (state.state, state.policy, state.tiered_epoch, state.remote_floor_epoch) == (
        TieringState.DISABLING, DisablePolicy.DELETE, 3, 2,
    )  # fmt: skip
    assert len(cluster.missing()) == 2
    cluster.settle()
    assert cluster.is_disabled()


def test_hole_20_ten_rounds_with_both_policies(cluster: DisablingHarness) -> None:
    cluster.create()
    for count in range(10):
        cluster.disable(POLICIES[count % 2])
        assert cluster.configure(remote_storage_enable="true") is (
            Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS
        )
        cluster.settle()
        assert cluster.is_disabled()
        cluster.enable()
    assert cluster.state().tiered_epoch == 21
    assert cluster.state().remote_floor_epoch == 19
    assert not cluster.wrongs


# -- many replicas ---------------------------------------------------------------------------------


def many(cluster: DisablingHarness, topics: int, partitions: int) -> int:
    """Have topics DISABLING; return how many replicas these have."""
    for number in range(topics):
        cluster.create(f"t{number}", dict.fromkeys(range(partitions), (1, 2, 3)))
    cluster.is_active = False
    for number in range(topics):
        cluster.disable("delete", f"t{number}")
    return topics * partitions * 3


@pytest.mark.parametrize(("topics", "partitions"), [(20, 5), (1, 100), (3, 37)])
def test_a_new_controller_checks_a_limited_number_of_replicas_in_one_turn(
    monkeypatch: pytest.MonkeyPatch, cluster: DisablingHarness, topics: int, partitions: int
) -> None:
    """Orders, decisions and what is looked at; a part may end within a topic."""
    replicas = many(cluster, topics, partitions)
    limit = 20
    monkeypatch.setattr(topic_checks, "REPLICAS_PER_STEP_MAX", limit)
    monkeypatch.setattr(disabling_manager, "REPLICAS_PER_STEP_MAX", limit)
    looked = 0
    plain = Acknowledgements.missing

    def missing(
        self: Acknowledgements, image: ClusterImage, tiering: TopicTiering, some: Any = None
    ) -> Iterator[Missing]:
        nonlocal looked
        assert some is not None
        looked += sum(len(each.replicas) for _, each in some)
        return plain(self, image, tiering, some)

    monkeypatch.setattr(Acknowledgements, "missing", missing)
    cluster.elect()
    turns = 1
    while cluster.wake_at_ms == cluster.now_ms:
        before = looked
        cluster.wait(0)
        assert looked - before <= limit + 3
        turns += 1
    assert looked == replicas
    assert turns >= replicas // (limit + 3)
    asked = [
        (broker_id, each.topic_id, each.partition) for broker_id, each in cluster.orders.replicas
    ]
    assert len(asked) == len(set(asked)) == replicas
    decided: list[int] = []
    finish = disabling_manager.finish_disabling

    def finishes(image: ClusterImage, work: Work) -> Any:
        decided.append(sum(3 * len(image.topics.by_id(each).partitions) for each in work))  # type: ignore[union-attr]
        return finish(image, work)

    monkeypatch.setattr(disabling_harness, "finish_disabling", finishes)
    cluster.settle()
    assert all(cluster.is_disabled(f"t{number}") for number in range(topics))
    assert max(decided) <= max(limit, 3 * partitions)
    assert sum(decided) == replicas
    assert not cluster.wrongs


def test_what_changes_while_a_large_topic_is_checked_is_checked_again(
    monkeypatch: pytest.MonkeyPatch, cluster: DisablingHarness
) -> None:
    """And the check goes on where it was: a topic that changes all the time has an end, too."""
    many(cluster, 1, 100)
    monkeypatch.setattr(topic_checks, "REPLICAS_PER_STEP_MAX", 20)
    cluster.elect()
    for number in range(14):
        cluster.lead(2, "t0", number % 3)
        cluster.lead(1, "t0", number % 3)
    asked = {each.partition for _, each in cluster.orders.replicas}
    assert asked == set(range(100))
    cluster.settle()
    assert cluster.is_disabled("t0")
    assert not cluster.wrongs


def test_a_topic_that_is_deleted_while_it_is_checked_does_not_hold_up_the_next_one(
    monkeypatch: pytest.MonkeyPatch, cluster: DisablingHarness
) -> None:
    """What the deleted one lacked is not counted as missing for the next topic."""
    many(cluster, 1, 100)
    cluster.create("small", {0: (3,)})
    cluster.stop(3)
    monkeypatch.setattr(topic_checks, "REPLICAS_PER_STEP_MAX", 20)
    cluster.elect()
    cluster.disable("retain", "small")
    assert cluster.work is None
    cluster.delete("t0")
    assert cluster.work is not None, "nobody has to acknowledge for the small one"
    cluster.decide()
    assert cluster.is_disabled("small")
