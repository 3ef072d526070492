"""Brokers come, bounce and die as ZooKeeper sees it: what is observed, and what is decided on it.

Method: a cluster, the registered brokers, the image after both steps. The names of Kafka's
PartitionStateMachineTest, ReplicaStateMachineTest and PartitionLeaderElectionAlgorithmsTest stand
where their cases come about this way.
"""

from dataclasses import replace

import pytest

from ottla.base.ids import NO_LEADER
from ottla.controller.elections.elections import elect_after_failover, elect_uncleanly
from ottla.controller.elections.leader_rebalance import Elected, balance, elect_leaders
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.elections.partition_change import Election
from ottla.controller.zookeeper.broker_changes import (
    BrokerChange,
    difference,
    process_broker_change,
    process_missed_restarts,
)
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, RECOVERING
from tests.unit.controller.builders import after, context
from tests.unit.controller.model_brokers import (
    CONFIG,
    Ids,
    a_broker,
    change,
    cluster_image,
    compare,
    led,
    never_led,
    of,
    registered,
    topic,
    topic_id,
)

UNCLEAN = context({"unclean.leader.election.enable": "true"}).config


def now_there(
    image: ClusterImage, *brokers: int | BrokerImage, config: NodeConfig = CONFIG
) -> ClusterImage:
    """Return the image once these brokers are there, and what follows is decided."""
    listed = [
        each if isinstance(each, BrokerImage) else image.brokers.get(each) for each in brokers
    ]
    there = registered(*(each for each in listed if each is not None))
    delta = change(image, compare(image, there))
    assert compare(delta.image, there) == []
    return after(delta.image, process_broker_change(delta.image, config, delta))


def state(partition: PartitionImage) -> tuple[int, Ids, int]:
    """Return leader, ISR and leader epoch."""
    return partition.leader, partition.isr, partition.leader_epoch


# -- comparing ---------------------------------------------------------------------------------


def test_who_is_new_bounced_or_dead() -> None:
    known = registered(a_broker(1), a_broker(2), a_broker(3), a_broker(4))
    found = registered(
        a_broker(2), a_broker(3, epoch=500), a_broker(4, rack="another"), a_broker(5)
    )
    assert difference(known, found) == BrokerChange(new=(5,), bounced=(3,), dead=(1,))


def test_kafka_7235_a_fast_bounce_is_noticed_by_the_epoch() -> None:
    image = cluster_image([1, 2], topic("t", led([1, 2])))
    bounced = now_there(image, a_broker(1, epoch=500), 2)
    assert bounced.brokers[1].epoch == 500
    assert state(of(bounced)) == (2, (2,), 4)


def test_a_broker_that_wrote_its_registration_anew_is_the_same_one() -> None:
    image = cluster_image([a_broker(1, in_controlled_shutdown=True), 2], topic("t", led([2, 1])))
    amended = now_there(image, a_broker(1, rack="another"), 2)
    assert amended.brokers[1] == a_broker(1, rack="another", in_controlled_shutdown=True)
    assert of(amended) == of(image)


def test_a_bounced_broker_is_not_on_its_way_out_any_more() -> None:
    image = cluster_image([a_broker(1, in_controlled_shutdown=True), 2])
    assert now_there(image, a_broker(1, epoch=500), 2).brokers[1].active


def test_the_lost_directories_of_a_started_broker_are_reset() -> None:
    lost = replace(led([1, 2], [2], 2), directories=(DIRECTORY_LOST, DIRECTORY_LOST))
    image = now_there(cluster_image([1, 2], topic("t", lost)), a_broker(1, epoch=500), 2)
    assert of(image).directories == (DIRECTORY_MIGRATING, DIRECTORY_LOST)
    assert of(image).partition_epoch == 7


# -- deaths ------------------------------------------------------------------------------------

ELECTIONS: list[tuple[Ids, Ids, NodeConfig, tuple[int, Ids]]] = [
    # ISR, who lives, config, leader and ISR after. The assignment is 2, 4; 2 leads and dies.
    ((2, 4), (4,), CONFIG, (4, (4,))),
    ((2,), (4,), CONFIG, (NO_LEADER, (2,))),
    ((2,), (4,), UNCLEAN, (4, (4,))),
    ((2, 4), (), CONFIG, (NO_LEADER, (2, 4))),
    ((2, 4), (), UNCLEAN, (NO_LEADER, (2, 4))),
]


@pytest.mark.parametrize(("isr", "live", "config", "expected"), ELECTIONS)
def test_offline_partition_leader_election(
    isr: Ids, live: Ids, config: NodeConfig, expected: tuple[int, Ids]
) -> None:
    image = cluster_image([1, 2, 4], topic("t", led([2, 4], isr)))
    image = now_there(image, 1, *live, config=config)
    assert state(of(image)) == (*expected, 4)
    unclean = config is UNCLEAN and 2 in isr and 4 not in isr
    assert (of(image).leader_recovery_state == RECOVERING) == unclean


def test_online_replica_to_offline_replica_transition() -> None:
    """A follower that dies leaves the ISR; whoever leads goes on in the same epoch."""
    image = now_there(cluster_image([1, 2, 3], topic("t", led([1, 2, 3]))), 1, 3)
    assert state(of(image)) == (1, (1, 3), 3)
    assert of(image).partition_epoch == 8


def test_kafka_708_last_isr_member_stays() -> None:
    image = now_there(cluster_image([1, 2], topic("t", led([1, 2], [1]))), 2)
    assert state(of(image)) == (NO_LEADER, (1,), 4)
    back = now_there(image, 2, a_broker(1, epoch=500))
    assert state(of(back)) == (1, (1,), 5)


def test_all_that_die_together_stay_in_sync_and_whoever_comes_first_leads() -> None:
    image = now_there(cluster_image([1, 2, 3], topic("t", led([1, 2, 3]))))
    assert state(of(image)) == (NO_LEADER, (1, 2, 3), 4)
    image = now_there(image, a_broker(3, epoch=500))
    assert state(of(image)) == (3, (3,), 5)
    # Another one may be back without its records.
    image = now_there(image, a_broker(1, epoch=600), 3)
    assert state(of(image)) == (3, (3,), 5)
    image = now_there(image, 1)
    assert state(of(image)) == (NO_LEADER, (3,), 6)


@pytest.mark.parametrize("election", [Election.PREFERRED, Election.UNCLEAN])
def test_a_leader_elected_on_request_where_nobody_led_is_the_isr_too(election: Election) -> None:
    image = cluster_image([2, 3], topic("t", led([1, 2, 3], [1, 2, 3], NO_LEADER)))
    decided = elect_leaders(image, [("t", 0)], election_type=election.value, context=context())
    assert decided.reply == (Elected("t", 0),)
    assert state(of(after(image, decided.step))) == (2, (2,), 4)


def test_the_automatic_rebalance_elects_no_more_than_the_leader_either() -> None:
    image = cluster_image([1, 3], topic("t", led([1, 2, 3], [1, 2, 3], NO_LEADER)))
    assert state(of(after(image, balance(image, CONFIG).step))) == (1, (1,), 4)


def test_the_dead_do_not_succeed_one_another() -> None:
    image = now_there(cluster_image([1, 2, 3], topic("t", led([1, 2, 3]))), 3)
    assert state(of(image)) == (3, (3,), 4)


def test_two_that_bounce_together_do_not_succeed_one_another() -> None:
    image = cluster_image([1, 2, 3], topic("t", led([1, 2, 3]), led([1, 2])))
    image = now_there(image, a_broker(1, epoch=500), a_broker(2, epoch=501), 3)
    assert state(of(image)) == (3, (3,), 4)
    # Where nobody else is in sync the first of them leads again, in an epoch of its own.
    assert state(of(image, "t", 1)) == (1, (1,), 5)


def test_a_broker_that_comes_takes_over_from_one_that_dies_at_the_same_time() -> None:
    image = cluster_image([1], topic("t", led([1, 2])))
    assert state(of(now_there(image, a_broker(2)))) == (2, (2,), 4)


def test_a_death_elsewhere_is_no_reason_to_end_a_leader_that_is_on_its_way_out() -> None:
    image = cluster_image([a_broker(1, in_controlled_shutdown=True), 2], topic("t", led([1, 2])))
    assert state(of(now_there(image, 1))) == (1, (1,), 3)


def test_topics_that_are_being_deleted_are_left_alone() -> None:
    asked = DeletionImage(topic_id=topic_id("t"), name="t", policy=Policy.CLASSIC, asked_ms=1)
    image = cluster_image([1, 2], topic("t", led([1, 2])), topic("u", led([1, 2])))
    queued = change(image, [header_record(asked)]).image
    begun = change(queued, [replicas_record(topic_id("t"), 2, STARTED, [0])]).image
    assert state(of(now_there(queued, 2))) == (2, (2,), 4)
    assert of(now_there(begun, 2)) == of(image)
    assert state(of(now_there(begun, 2), "u")) == (2, (2,), 4)


# -- arrivals ----------------------------------------------------------------------------------


def test_offline_partition_to_online_partition_transition() -> None:
    image = cluster_image([2], topic("t", led([1, 2], [1], NO_LEADER), led([2, 1], [2])))
    image = now_there(image, 2, a_broker(1))
    assert state(of(image)) == (1, (1,), 4)
    assert of(image, "t", 1) == led([2, 1], [2])


def test_a_broker_that_is_not_in_sync_leads_only_where_that_is_allowed() -> None:
    image = cluster_image([3], topic("t", led([1, 2], [1], NO_LEADER)))
    assert state(of(now_there(image, 3, a_broker(2)))) == (NO_LEADER, (1,), 3)
    unclean = now_there(image, 3, a_broker(2), config=UNCLEAN)
    assert state(of(unclean)) == (2, (2,), 4)
    assert of(unclean).leader_recovery_state == RECOVERING


def test_what_happened_since_the_change_is_heeded() -> None:
    """The image of now may lack who came, and have who died."""
    image = cluster_image([1, 2], topic("t", led([1, 2]), led([3, 1], [3], NO_LEADER)))
    delta = change(image, compare(image, registered(a_broker(2), a_broker(3))))
    later = change(delta.image, compare(delta.image, registered(a_broker(1, 500), a_broker(2))))
    followed = after(later.image, process_broker_change(later.image, CONFIG, delta))
    assert state(of(followed)) == (2, (2,), 4)
    assert of(followed, "t", 1).leader == NO_LEADER


def test_a_delta_without_broker_changes_has_no_elections() -> None:
    image = cluster_image([1], topic("t", led([1, 2], [2], NO_LEADER)))
    assert process_broker_change(image, CONFIG, change(image, [])).records == ()


def test_many_elections_may_be_written_in_parts() -> None:
    image = cluster_image([1, 2], topic("t", *[led([1, 2])] * 50))
    delta = change(image, compare(image, registered(a_broker(2))))
    step = process_broker_change(delta.image, CONFIG, delta)
    assert not step.atomic
    half = change(delta.image, step.records[:20]).image
    assert len(process_broker_change(half, CONFIG, delta).records) == 30


# -- a new controller --------------------------------------------------------------------------


def test_a_new_controller_settles_what_happened_while_there_was_none() -> None:
    """Leaders and followers died while there was no controller; the image has them in sync."""
    gone = topic(
        "t",
        led([1, 2]),  # Its leader died.
        led([2, 1]),  # Its follower did.
        led([1]),  # Both are one.
        led([2, 3], [3], NO_LEADER),
        led([3, 2], [3], NO_LEADER),
        never_led(2, 1),
    )
    image = cluster_image([2, 3], gone)
    image = after(image, elect_after_failover(image, CONFIG))
    image = after(image, bring_online(image, CONFIG))
    assert [state(of(image, "t", number)) for number in range(6)] == [
        (2, (2,), 4),
        (2, (2,), 3),
        (NO_LEADER, (1,), 4),
        (3, (3,), 4),
        (3, (3,), 4),
        (2, (2,), 0),
    ]
    assert elect_after_failover(image, CONFIG).records == ()
    assert elect_uncleanly(image, CONFIG).step.records == ()


def test_brokers_that_started_while_there_was_no_controller_have_failed_first() -> None:
    """Otherwise one would lead on in its former epoch, behind the high watermark of its clients."""
    made = topic("t", led([1, 2]), led([1, 2]), led([2, 1]), led([1]), led([1, 3]), led([1, 2]))
    image = cluster_image([1, 2], made)
    since = {
        ("t", 1): frozenset({1}),
        ("t", 2): frozenset({1}),
        ("t", 3): frozenset({1}),
        ("t", 4): frozenset({1}),
        ("t", 5): frozenset({1, 2}),
        ("gone", 0): frozenset({1}),
    }
    image = after(image, process_missed_restarts(image, CONFIG, since))
    assert [state(of(image, "t", number)) for number in range(6)] == [
        (1, (1, 2), 3),  # Nothing is known against it.
        (2, (2,), 4),
        (2, (2,), 3),
        (1, (1,), 5),  # There is no other: it leads again, in another epoch.
        (1, (1,), 5),  # The other one is gone: neither succeeds the other.
        (1, (1,), 5),
    ]
    assert process_missed_restarts(image, CONFIG, {}).records == ()
