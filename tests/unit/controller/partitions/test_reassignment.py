"""Reassignments from start to end: what each step writes, and what may interrupt it.

Method: decisions follow each other on one image, as the controller makes them; followers join by
their leader's AlterPartition, brokers die and return by the elections' records.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.controller.mode_policy import KRAFT_MODE, ZOOKEEPER_MODE, ModePolicy
from ottla.controller.partitions.reassignment import (
    Ongoing,
    Target,
    alter_reassignments,
    list_reassignments,
)
from ottla.controller.topics.assignment import (
    RegistrationCheck,
)
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from ottla.metadata.topics import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    RECOVERED,
    topic_records,
)

from ..builders import advance, after, broker, cluster, uuid
from ..moves import (
    CONTEXT,
    ID,
    SIX,
    alive,
    cluster_image,
    cluster_with,
    configured,
    dead,
    moved_topic,
    of,
    proposed,
    reassign,
    refused,
    state,
    synced,
)

# -- whole lives -------------------------------------------------------------------------------


def test_a_partition_moves_to_other_brokers() -> None:
    image = reassign(cluster_image((1, 2, 3)), (4, 5, 6))
    assert state(of(image)) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3), (1, 2, 3), 1)
    assert of(image).leader_epoch == 5, "nobody went and the leader stays: nothing to fence"
    assert of(image).directories[:2] == (uuid("dir-4"), uuid("dir-5"))

    image = synced(image, 1, 2, 3, 4, 5)
    assert state(of(image)) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3), (1, 2, 3, 4, 5), 1)

    image = synced(image, 1, 2, 3, 4, 5, 6)
    assert state(of(image)) == ((4, 5, 6), (), (), (4, 5, 6), 4)
    assert of(image).leader_epoch == 6
    assert of(image).directories == (uuid("dir-4"), uuid("dir-5"), uuid("dir-6"))


def test_a_leader_whose_change_ends_its_leadership_gets_new_leader_elected() -> None:
    image = reassign(cluster_image((1, 2)), (3, 4))
    error, image = proposed(image, 1, 2, 3)
    assert error is Error.NONE
    error, image = proposed(image, 1, 2, 3, 4)
    assert error is Error.NEW_LEADER_ELECTED
    assert of(image).leader == 3


def test_the_leader_stays_where_it_may() -> None:
    image = reassign(cluster_image((1, 2)), (3, 1))
    assert state(of(image)) == ((3, 1, 2), (3,), (2,), (1, 2), 1)
    image = synced(image, 1, 2, 3)
    assert state(of(image)) == ((3, 1), (), (), (1, 3), 1)
    assert of(image).leader_epoch == 6, "broker 2 must notice that it is a replica no more"


def test_growth() -> None:
    image = reassign(cluster_image((1,)), (1, 2, 3))
    assert state(of(image)) == ((1, 2, 3), (2, 3), (), (1,), 1)
    image = synced(synced(image, 1, 2), 1, 2, 3)
    assert state(of(image)) == ((1, 2, 3), (), (), (1, 2, 3), 1)
    assert of(image).leader_epoch == 5


def test_shrinking_ends_with_its_start() -> None:
    image = reassign(cluster_image((1, 2, 3)), (2, 3))
    assert state(of(image)) == ((2, 3), (), (), (2, 3), 2)
    assert of(image).leader_epoch == 6


def test_shrinking_waits_for_those_that_stay() -> None:
    image = reassign(cluster_image((1, 2, 3), isr=(1,)), (2, 3))
    assert state(of(image)) == ((2, 3, 1), (), (1,), (1,), 1)
    image = synced(image, 1, 2)
    assert state(of(image)) == ((2, 3, 1), (), (1,), (1, 2), 1)
    image = synced(image, 1, 2, 3)
    assert state(of(image)) == ((2, 3), (), (), (2, 3), 2)


def test_another_order_ends_with_its_start() -> None:
    image = reassign(cluster_image((1, 2, 3)), (3, 1, 2))
    assert state(of(image)) == ((3, 1, 2), (), (), (1, 2, 3), 1)
    assert of(image).directories == (uuid("dir-3"), uuid("dir-1"), uuid("dir-2"))


def test_what_is_so_already_changes_nothing() -> None:
    image = cluster_image((1, 2, 3))
    assert reassign(image, (1, 2, 3)) is not image
    assert of(reassign(image, (1, 2, 3))) == of(image)
    under_way = reassign(image, (4, 5))
    assert of(reassign(under_way, (4, 5))) == of(under_way)


def test_a_broker_of_several_log_dirs_chooses_by_itself() -> None:
    two = broker(2, log_dirs=(uuid("a"), uuid("b")))
    image = advance(cluster(broker(1), two), topic_records(_single()))
    image = reassign(image, (1, 2))
    assert of(image).directories == (uuid("dir-1"), DIRECTORY_UNASSIGNED)


def _single() -> TopicImage:
    partition = PartitionImage(replicas=(1,), directories=(uuid("dir-1"),), isr=(1,), leader=1)
    return TopicImage(name="t", id=ID).with_partition(0, partition)


# -- a target replaces another -----------------------------------------------------------------


def test_a_new_target_keeps_in_mind_what_was_first() -> None:
    image = synced(reassign(cluster_image((1, 2, 3)), (4, 5, 6)), 1, 2, 3, 4, 6)
    image = reassign(image, (4, 5, 2))
    assert state(of(image)) == (
        (4, 5, 2, 1, 3, 6), (4, 5, 6), (1, 3, 6), (1, 2, 3, 4, 6), 1
    )  # fmt: skip
    cancelled = reassign(image, None)
    assert state(of(cancelled)) == ((2, 1, 3), (), (), (1, 2, 3), 1)
    finished = synced(image, 1, 2, 3, 4, 5, 6)
    assert state(of(finished)) == ((4, 5, 2), (), (), (2, 4, 5), 4)


def test_back_to_what_was_first_by_a_target() -> None:
    image = reassign(synced(reassign(cluster_image((1, 2)), (3,)), 1, 2), (1, 2))
    assert state(of(image)) == ((1, 2), (), (), (1, 2), 1)
    assert of(image).leader_epoch == 6


def test_a_new_target_may_keep_all() -> None:
    image = reassign(reassign(cluster_image((1, 2)), (3,)), (3, 1, 2))
    assert state(of(image)) == ((3, 1, 2), (3,), (), (1, 2), 1)
    image = synced(image, 1, 2, 3)
    assert state(of(image)) == ((3, 1, 2), (), (), (1, 2, 3), 1)


# -- cancelling --------------------------------------------------------------------------------


def test_cancelling_before_anybody_joined() -> None:
    image = reassign(reassign(cluster_image((1, 2, 3)), (4, 5, 6)), None)
    assert state(of(image)) == ((1, 2, 3), (), (), (1, 2, 3), 1)
    assert of(image).directories == tuple(uuid(f"dir-{each}") for each in (1, 2, 3))
    assert of(image).leader_epoch == 6, "those that were adding must stop to fetch"


def test_cancelling_after_some_joined_and_one_leads() -> None:
    image = reassign(cluster_image((1, 2), isr=(1,)), (3, 4))
    image = dead(synced(image, 1, 3), 1)
    assert state(of(image)) == ((3, 4, 1, 2), (3, 4), (1, 2), (3,), 3)
    image = synced(image, 3, 2)
    image = reassign(image, None)
    assert state(of(image)) == ((1, 2), (), (), (2,), 2)


def test_cancelling_after_the_end() -> None:
    image = synced(reassign(cluster_image((1, 2)), (3, 4)), 1, 2, 3, 4)
    assert refused(image, Target("t", 0, None)) is Error.NO_REASSIGNMENT_IN_PROGRESS


def stranded() -> ClusterImage:
    """Of a move from 1 to 3 and 4, only 3 is in sync."""
    return dead(synced(reassign(cluster_image((1,)), (3, 4)), 1, 3), 1)


def test_cancelling_never_loses_records() -> None:
    image = stranded()
    assert of(image).isr == (3,)
    assert refused(image, Target("t", 0, None)) is Error.INVALID_REPLICA_ASSIGNMENT


def test_cancelling_may_lose_records_where_the_topic_allows_it() -> None:
    image = configured(stranded(), "unclean.leader.election.enable", "true")
    image = reassign(alive(image, 1), None)
    assert state(of(image)) == ((1,), (), (), (1,), 1)


def test_cancelling_loses_no_records_where_who_stays_is_eligible() -> None:
    """Nothing was committed since 2 left the ISR; 1 left it before."""
    image = advance(SIX, [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
    image = configured(cluster_with(image, (1, 2)), "min.insync.replicas", "2")
    image = configured(image, "unclean.leader.election.enable", "true")
    image = dead(synced(reassign(image, (4, 5)), 1, 2, 4), 1)
    image = alive(synced(image, 4), 1)
    assert (state(of(image))[3:], of(image).elr) == (((4,), 4), (2,))
    image = reassign(image, None)
    assert state(of(image)) == ((1, 2), (), (), (2,), 2)
    assert of(image).leader_recovery_state == RECOVERED


# -- what happens meanwhile --------------------------------------------------------------------


def test_a_target_replica_dies_and_the_move_waits_for_it() -> None:
    image = dead(reassign(cluster_image((1, 2)), (3, 4)), 4)
    image = synced(image, 1, 2, 3)
    assert of(image).is_reassigning
    image = synced(alive(image, 4), 1, 2, 3, 4)
    assert state(of(image)) == ((3, 4), (), (), (3, 4), 3)


def test_the_leader_dies_and_a_follower_goes_on() -> None:
    image = dead(synced(reassign(cluster_image((1, 2)), (3, 4)), 1, 2, 3), 1)
    assert state(of(image)) == ((3, 4, 1, 2), (3, 4), (1, 2), (2, 3), 3)
    image = synced(image, 2, 3, 4)
    assert state(of(image)) == ((3, 4), (), (), (3, 4), 3)


@pytest.mark.parametrize(
    ("check", "target", "taken"),
    [
        (RegistrationCheck.ALL, (1, 2), True),
        (RegistrationCheck.ALL, (1, 9), False),
        (RegistrationCheck.ALL, (1, 7), False),
        (RegistrationCheck.ADDED, (1, 9), True),
        (RegistrationCheck.ADDED, (1, 7), False),
        (RegistrationCheck.NONE, (1, 9), True),
        (RegistrationCheck.NONE, (1, 7), True),
    ],
)
def test_targets_that_are_not_registered(
    check: RegistrationCheck, target: tuple[int, ...], taken: bool
) -> None:
    """Broker 9 holds a replica and is down, broker 7 is nobody's."""
    image = advance(SIX, topic_records(_over_zookeeper(replicas=(1, 9), isr=(1,))))
    before = of(image)
    decided = alter_reassignments(
        image, [Target("t", 0, target)], may_change_factor=True, context=CONTEXT, check=check
    )
    [answer] = decided.reply
    assert answer.error is (Error.NONE if taken else Error.INVALID_REPLICA_ASSIGNMENT)
    image = after(image, decided)
    assert taken or of(image) == before
    if taken and 7 in target:
        assert state(of(image)) == ((1, 7, 9), (7,), (9,), (1,), 1)
        assert of(image).directory(7) == DIRECTORY_UNASSIGNED


def test_the_policy_of_the_mode_sets_which_targets_must_be_registered() -> None:
    image = advance(SIX, topic_records(_over_zookeeper(replicas=(1, 9), isr=(1,))))
    for mode, error in (
        (KRAFT_MODE, Error.INVALID_REPLICA_ASSIGNMENT),
        (ZOOKEEPER_MODE, Error.NONE),
    ):
        decided = alter_reassignments(
            image,
            [Target("t", 0, (9, 1))],
            may_change_factor=True,
            context=replace(CONTEXT, mode=mode),
        )
        assert decided.reply[0].error is error


@pytest.mark.parametrize(("mode", "bumps"), [(KRAFT_MODE, 0), (ZOOKEEPER_MODE, 1)])
def test_a_reassignment_that_begins_bumps_the_leader_epoch_where_requests_may_be_delayed(
    mode: ModePolicy, bumps: int
) -> None:
    image = cluster_image((1, 2))
    decided = alter_reassignments(
        image,
        [Target("t", 0, (1, 2, 3))],
        may_change_factor=True,
        context=replace(CONTEXT, mode=mode),
    )
    moved = of(after(image, decided))
    assert moved.adding_replicas == (3,)
    assert moved.leader_epoch == of(image).leader_epoch + bumps


def test_a_replica_that_is_being_added_is_one_that_is_added() -> None:
    """Its broker has died since: to ask for it again is refused, to drop it is not."""
    image = reassign(cluster_image((1, 2)), (1, 3, 4))
    image = replace(image, brokers=image.brokers.delete(4))
    context = replace(CONTEXT, mode=ZOOKEEPER_MODE)
    for target, error in (
        ((1, 4), Error.INVALID_REPLICA_ASSIGNMENT),
        ((1, 3), Error.NONE),
    ):
        decided = alter_reassignments(
            image, [Target("t", 0, target)], may_change_factor=True, context=context
        )
        assert decided.reply[0].error is error


def _over_zookeeper(replicas: tuple[int, ...], isr: tuple[int, ...]) -> TopicImage:
    partition = PartitionImage(
        replicas=replicas,
        directories=(DIRECTORY_MIGRATING,) * len(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=5,
    )
    return TopicImage(name="t", id=ID).with_partition(0, partition)


def test_all_targets_die() -> None:
    image = dead(dead(synced(reassign(cluster_image((1, 2)), (3, 4)), 1, 2, 3), 3), 4)
    assert state(of(image)) == ((3, 4, 1, 2), (3, 4), (1, 2), (1, 2), 1)
    image = reassign(image, None)
    assert state(of(image)) == ((1, 2), (), (), (1, 2), 1)


def test_the_topic_is_deleted_meanwhile() -> None:
    image = reassign(cluster_image((1, 2)), (3, 4))
    image = advance(image, [RemoveTopicRecord(topic_id=ID)])
    assert refused(image, Target("t", 0, None)) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert list_reassignments(image, None) == ()
    assert list_reassignments(image, [("t", (0,))]) == ()


def test_kafka_10548_a_new_controller_takes_over_moves_and_deletions_in_any_state() -> None:
    """What is left of a move never stops a controller: all of it is in the partition itself."""
    image = synced(reassign(cluster_image((1, 2), count=2), (3, 4)), 1, 2, 3)
    restored = advance(EMPTY, image.to_records())
    assert of(restored) == of(image)
    assert list_reassignments(restored, None) == list_reassignments(image, None)
    assert state(of(synced(restored, 1, 2, 3, 4)))[:3] == ((3, 4), (), ())
    deleted = advance(image, [RemoveTopicRecord(topic_id=ID)])
    assert list_reassignments(advance(EMPTY, deleted.to_records()), None) == ()


def test_a_removed_replica_is_not_eligible_to_lead() -> None:
    image = advance(SIX, [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
    image = advance(image, topic_records(moved_topic((1, 2, 3))))
    image = configured(image, "min.insync.replicas", "3")
    image = reassign(image, (1,))
    assert state(of(image)) == ((1,), (), (), (1,), 1)
    assert of(image).elr == ()
    image = reassign(reassign(cluster_with(image, (1, 2)), (4,)), None)
    assert set(of(image).elr) <= set(of(image).replicas)


def test_an_election_can_be_what_a_move_waited_for() -> None:
    image = advance(SIX, [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
    image = configured(cluster_with(image, (1, 2)), "min.insync.replicas", "2")
    image = reassign(synced(image, 1), (2,))
    assert state(of(image)) == ((2, 1), (), (1,), (1,), 1)
    assert of(image).elr == (2,), "nothing was committed since it left the ISR"
    image = dead(image, 1)
    assert state(of(image)) == ((2,), (), (), (2,), 2)
    assert of(image).elr == ()


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (Target("nobody", 0, (1,)), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (Target("t", 1, (1,)), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (Target("t", -1, (1,)), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (Target("t", 0, ()), Error.INVALID_REPLICA_ASSIGNMENT),
        (Target("t", 0, (1, 7)), Error.INVALID_REPLICA_ASSIGNMENT),
        (Target("t", 0, (-1,)), Error.INVALID_REPLICA_ASSIGNMENT),
        (Target("t", 0, (2, 2)), Error.INVALID_REPLICA_ASSIGNMENT),
        (Target("t", 0, None), Error.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_refusals(target: Target, error: Error) -> None:
    assert refused(cluster_image((1, 2, 3)), target) is error


def test_the_number_of_replicas_can_be_held_fast() -> None:
    """KIP-860."""
    image = reassign(cluster_image((1, 2, 3)), (1, 2, 3, 4))
    grown, kept = Target("t", 0, (1, 2, 5)), Target("t", 0, (4, 5, 6, 1))
    assert refused(image, grown, may_change_factor=False) is Error.INVALID_REPLICATION_FACTOR
    decided = alter_reassignments(image, [kept], may_change_factor=False, context=CONTEXT)
    assert of(after(image, decided)).replicas == (4, 5, 6, 1, 2, 3)


def test_each_partition_stands_by_itself() -> None:
    image = cluster_image((1, 2), count=3)
    wanted = [
        Target("t", 2, (3, 4)), Target("t", 7, (3, 4)), Target("t", 0, (2, 1)), Target("t", 1, None)
    ]  # fmt: skip
    decided = alter_reassignments(image, wanted, may_change_factor=True, context=CONTEXT)
    assert [(each.partition_id, each.error) for each in decided.reply] == [
        (2, Error.NONE),
        (7, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (0, Error.NONE),
        (1, Error.NO_REASSIGNMENT_IN_PROGRESS),
    ]
    image = after(image, decided)
    assert [of(image, partition_id).replicas for partition_id in range(3)] == [
        (2, 1),
        (1, 2),
        (3, 4, 1, 2),
    ]


def test_a_partition_twice_is_refused() -> None:
    wanted = [Target("t", 0, (3,)), Target("t", 0, (4,)), Target("t", 1, (4,))]
    decided = alter_reassignments(
        cluster_image((1, 2), count=2), wanted, may_change_factor=True, context=CONTEXT
    )
    invalid = Error.INVALID_REQUEST
    assert [each.error for each in decided.reply] == [invalid, invalid, Error.NONE]
    assert len(decided.step.records) == 1


def test_too_many_at_once() -> None:
    wanted = [Target("t", partition_id, (1,)) for partition_id in range(10_001)]
    with pytest.raises(ApiError) as refusal:
        alter_reassignments(cluster_image((1,)), wanted, may_change_factor=True, context=CONTEXT)
    assert refusal.value.error is Error.POLICY_VIOLATION


# -- listing -----------------------------------------------------------------------------------


def test_listing() -> None:
    image = cluster_image((1, 2), count=3)
    assert list_reassignments(image, None) == ()
    image = reassign(reassign(image, (3, 4), partition_id=2), (5, 1), partition_id=0)
    everything = (Ongoing("t", 0, of(image, 0)), Ongoing("t", 2, of(image, 2)))
    assert list_reassignments(image, None) == everything
    named = [("nobody", (0,)), ("t", (2, 1, 7))]
    assert list_reassignments(image, named) == everything[1:]
    assert list_reassignments(image, []) == ()


def test_records_name_only_what_changed() -> None:
    [record] = alter_reassignments(
        cluster_image((1, 2)), [Target("t", 0, (2, 3))], may_change_factor=True, context=CONTEXT
    ).step.records
    assert record == PartitionChangeRecord(
        partition_id=0,
        topic_id=ID,
        replicas=(2, 3, 1),
        removing_replicas=(1,),
        adding_replicas=(3,),
        directories=(uuid("dir-2"), uuid("dir-3"), uuid("dir-1")),
    )
