"""The requests that follow from a delta: which brokers get which, and which none.

Method: a small cluster, one change, the requests that follow; tests have the names of the
cases of Kafka's PartitionStateMachineTest and ControllerChannelManagerTest where they have one.
Many changes in any order are in test_broker_request_histories; what deciders decide, in the
tests of those.
"""

from dataclasses import replace

import pytest

from ottla.base.ids import NO_LEADER
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.broker_changes import process_broker_change
from ottla.controller.zookeeper.broker_requests import (
    delta_batch,
    full_batch,
    initial_batches,
    live_brokers_batch,
    resend_batch,
)
from ottla.controller.zookeeper.inter_broker_protocol import parse_level
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
)
from ottla.metadata.topics import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    RECOVERED,
    RECOVERING,
    partition_record,
    topic_records,
)
from ottla.wire.messages.update_metadata import FULL, UNKNOWN
from tests.unit.controller.model_brokers import (
    CONFIG,
    a_broker,
    change,
    cluster_image,
    compare,
    kinds,
    leads,
    led,
    metadata,
    never_led,
    of,
    registered,
    requests_of,
    sent,
    stops,
    topic,
    topic_id,
    view,
)

T0, T1, U0 = PartitionKey("t", 0), PartitionKey("t", 1), PartitionKey("u", 0)
ID = topic_id("t")
TO_ALL = [(1, "metadata"), (2, "metadata"), (3, "metadata")]


def changed(number: int = 0, **how: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=number, topic_id=ID, **how)  # type: ignore[arg-type]


# -- partitions --------------------------------------------------------------------------------


def test_new_partition_to_online_partition_transition() -> None:
    """Its replicas get it with is_new; all others get its leader."""
    before = cluster_image([1, 2, 3], topic("t", never_led(1, 2)))
    online = partition_record(ID, 0, led([1, 2], leader_epoch=0, partition_epoch=0))
    requests = requests_of(change(before, [online]))
    assert kinds(requests) == [
        (1, "lead"),
        (1, "metadata"),
        (2, "lead"),
        (2, "metadata"),
        (3, "metadata"),
    ]
    assert {key: each.is_new for key, each in leads(requests).items()} == {
        (1, T0): True,
        (2, T0): True,
    }
    state = leads(requests)[2, T0]
    assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (1, 0, (1, 2), 0)
    assert [each.request.topic_states[0].topic_id for each in requests] == [ID] * 5


def test_a_topic_created_with_leaders_is_sent_in_one_round() -> None:
    delta = change(cluster_image([1, 2, 3]), topic_records(topic("t", led([1, 2]), led([2, 3]))))
    assert kinds(requests_of(delta)) == [
        (1, "lead"),
        (1, "metadata"),
        (2, "lead"),
        (2, "metadata"),
        (3, "lead"),
        (3, "metadata"),
    ]
    assert set(leads(requests_of(delta))) == {(1, T0), (2, T0), (2, T1), (3, T1)}


def test_nonexistent_partition_to_new_partition_transition() -> None:
    """Partitions without a first leader are not sent."""
    delta = change(cluster_image([1, 2]), topic_records(topic("t", never_led(1, 2))))
    assert requests_of(delta) == []


def test_a_new_partition_that_moves_sends_nothing() -> None:
    before = cluster_image([1, 2, 3], topic("t", never_led(1, 2)))
    assert requests_of(change(before, [partition_record(ID, 0, never_led(3))])) == []


def test_online_partition_to_online_transition() -> None:
    """An election: the replicas get LeaderAndIsr, without is_new."""
    delta = change(cluster_image([1, 2, 3], topic("t", led([1, 2]))), [changed(leader=2)])
    requests = requests_of(delta)
    assert set(leads(requests)) == {(1, T0), (2, T0)}
    assert {(each.leader, each.leader_epoch, each.is_new) for each in leads(requests).values()} == {
        (2, 4, False)
    }
    assert {key[T0].leader for key in metadata(requests).values()} == {2}


def test_online_partition_to_offline_transition() -> None:
    """Brokers get that there is no leader, so that followers stop and clients see it."""
    delta = change(cluster_image([1, 2, 3], topic("t", led([1, 2]))), [changed(leader=NO_LEADER)])
    requests = requests_of(delta)
    assert {each.leader for each in leads(requests).values()} == {NO_LEADER}
    assert set(metadata(requests)) == {1, 2, 3}


def test_offline_partition_to_unclean_online_partition_transition() -> None:
    """An unclean leader gets the recovery state; its end is sent, too."""
    unclean = changed(leader=2, isr=(2,), leader_recovery_state=RECOVERING)
    delta = change(cluster_image([1, 2], topic("t", led([1, 2], [1], -1))), [unclean])
    state = leads(requests_of(delta))[2, T0]
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), RECOVERING)
    done = change(delta.image, [changed(leader_recovery_state=RECOVERED)])
    assert {each.leader_recovery_state for each in leads(requests_of(done)).values()} == {RECOVERED}


def test_a_change_of_the_isr_goes_by_update_metadata_alone() -> None:
    delta = change(cluster_image([1, 2, 3], topic("t", led([1, 2, 3]))), [changed(isr=(1, 2))])
    requests = requests_of(delta)
    assert kinds(requests) == TO_ALL
    assert [(s[T0].isr, s[T0].zk_version) for s in metadata(requests).values()] == [((1, 2), 8)] * 3


@pytest.mark.parametrize(
    "how",
    [
        {"leader": 1},
        {"leader_recovery_state": RECOVERING},
        {"replicas": (2, 1)},
        {"adding_replicas": (2,)},
        {"removing_replicas": (2,)},
    ],
)
def test_whatever_its_holders_must_act_on_goes_by_leader_and_isr(how: dict[str, object]) -> None:
    delta = change(cluster_image([1, 2, 3], topic("t", led([1, 2]))), [changed(**how)])
    assert {broker_id for broker_id, _ in leads(requests_of(delta))} == {1, 2}


def test_only_changes_are_sent() -> None:
    before = cluster_image([1, 2, 3], topic("t", *[led([1, 2])] * 20), topic("u", led([2, 3])))
    requests = requests_of(change(before, [changed(7, leader=2)]))
    assert {key for states in metadata(requests).values() for key in states} == {
        PartitionKey("t", 7)
    }
    assert {key for _, key in leads(requests)} == {PartitionKey("t", 7)}


def test_two_changes_of_one_partition_are_sent_as_one() -> None:
    before = cluster_image([1, 2, 3], topic("t", never_led(1, 2)))
    online = partition_record(ID, 0, led([1, 2], leader_epoch=0, partition_epoch=0))
    requests = requests_of(change(before, [online, changed(leader=2)]))
    state = leads(requests)[2, T0]
    assert (state.is_new, state.leader, state.leader_epoch) == (True, 2, 1)


def test_other_changes_send_nothing() -> None:
    image = cluster_image([1, 2], topic("t", led([1, 2])))
    assert requests_of(change(image, [])) == []
    assert requests_of(delta_between(image, image)) == []


# -- reassignments -----------------------------------------------------------------------------


def test_an_added_replica_gets_is_new_and_the_others_do_not() -> None:
    adding = changed(replicas=(1, 2, 3), adding_replicas=(3,))
    requests = requests_of(change(cluster_image([1, 2, 3], topic("t", led([1, 2]))), [adding]))
    assert {key: each.is_new for key, each in leads(requests).items()} == {
        (1, T0): False,
        (2, T0): False,
        (3, T0): True,
    }
    assert leads(requests)[1, T0].adding_replicas == (3,)
    assert stops(requests) == {}


def test_a_reassignment_that_ends_stops_and_deletes_what_left_after_all_else() -> None:
    moving = led([3, 2, 1], [1, 2, 3], 1, adding_replicas=(3,), removing_replicas=(1,))
    ends = changed(replicas=(3, 2), isr=(2, 3), leader=3, adding_replicas=(), removing_replicas=())
    requests = requests_of(change(cluster_image([1, 2, 3], topic("t", moving)), [ends]))
    assert kinds(requests) == [
        (1, "metadata"),
        (1, "stop"),
        (2, "lead"),
        (2, "metadata"),
        (3, "lead"),
        (3, "metadata"),
    ]
    # KAFKA-13972: it names the epoch that came with the end, so that no later one is stopped.
    assert stops(requests) == {(1, T0): (4, True)}
    assert [each.deleted for each in requests if each.deleted] == [frozenset({T0})]
    assert {each.is_new for each in leads(requests).values()} == {False}


def test_a_replica_removed_while_its_broker_is_down_sends_nothing() -> None:
    moving = led([3, 2, 1], [3, 2], 3, removing_replicas=(1,))
    ends = changed(replicas=(3, 2), leader=3, removing_replicas=())
    requests = requests_of(change(cluster_image([2, 3], topic("t", moving)), [ends]))
    assert stops(requests) == {}
    assert {broker_id for broker_id, _ in kinds(requests)} == {2, 3}


# -- brokers -----------------------------------------------------------------------------------


def test_kafka_4443_a_new_controller_sends_the_brokers_before_the_leaders() -> None:
    image = cluster_image([1, 2, 3], topic("t", led([1, 2]), led([2, 3])), topic("u", never_led(1)))
    first, everything = initial_batches(view(image))
    requests = sent(first, view(image))
    assert kinds(requests) == [(1, "brokers"), (2, "brokers"), (3, "brokers")]
    assert [each.id for each in requests[0].request.live_brokers] == [1, 2, 3]
    requests = sent(everything, view(image))
    assert kinds(requests) == [
        (1, "lead"),
        (1, "metadata"),
        (2, "lead"),
        (2, "metadata"),
        (3, "lead"),
        (3, "metadata"),
    ]
    assert set(leads(requests)) == {(1, T0), (2, T0), (2, T1), (3, T1)}
    assert not any(each.is_new for each in leads(requests).values())
    assert [set(states) for states in metadata(requests).values()] == [{T0, T1}] * 3


def test_a_cluster_without_topics_or_brokers_has_requests_as_well() -> None:
    assert kinds(sent(full_batch(view(cluster_image([1]))), view(cluster_image([1])))) == [
        (1, "brokers")
    ]
    assert sent(live_brokers_batch(view(EMPTY)), view(EMPTY)) == []
    assert sent(full_batch(view(EMPTY)), view(EMPTY)) == []


def test_a_new_broker_gets_all_metadata_and_the_others_get_the_broker() -> None:
    before = cluster_image([1, 2], topic("t", led([1, 3], [1])), topic("u", led([1, 2])))
    delta = change(before, compare(before, registered(a_broker(1), a_broker(2), a_broker(3))))
    requests = requests_of(delta)
    assert kinds(requests) == [
        (1, "brokers"),
        (2, "brokers"),
        (3, "brokers"),
        (3, "lead"),
        (3, "metadata"),
    ]
    assert set(leads(requests)) == {(3, T0)}
    assert not leads(requests)[3, T0].is_new
    assert set(metadata(requests)[3]) == {T0, U0}
    assert [each.id for each in requests[0].request.live_brokers] == [1, 2, 3]


def test_kafka_7235_a_bounced_broker_gets_all_metadata_though_the_ids_are_the_same() -> None:
    before = cluster_image([1, 2], topic("t", led([1, 2])))
    bounced = compare(before, registered(a_broker(1), a_broker(2, epoch=500)))
    requests = requests_of(change(before, bounced))
    assert kinds(requests) == [(1, "brokers"), (2, "brokers"), (2, "lead"), (2, "metadata")]
    assert [each.broker_epoch for each in requests] == [101, 500, 500, 500]


def test_a_restarted_broker_gets_no_leadership_in_its_former_leader_epoch() -> None:
    """It may not know how far it had committed; the election after this sends it what it leads."""
    before = cluster_image([1, 2], topic("t", led([2, 1]), led([1, 2])))
    for came in (a_broker(2, epoch=500), a_broker(2)):
        image = (
            before
            if came.epoch == 500
            else change(before, compare(before, registered(a_broker(1)))).image
        )
        requests = requests_of(change(image, compare(image, registered(a_broker(1), came))))
        assert set(leads(requests)) == {(2, PartitionKey("t", 1))}


def test_a_bounced_broker_is_not_named_as_leader_before_an_election() -> None:
    """Neither by LeaderAndIsr nor by UpdateMetadata: its former life's epoch is over."""
    before = cluster_image([1, 2], topic("t", led([2, 1]), led([1, 2])))
    delta = change(before, compare(before, registered(a_broker(1), a_broker(2, epoch=500))))
    requests = requests_of(delta)
    assert {key: state.leader for key, state in metadata(requests)[2].items()} == {T0: -1, T1: 1}
    assert set(leads(requests)) == {(2, T1)}
    decided = change(delta.image, process_broker_change(delta.image, CONFIG, delta).records)
    assert {each[T0].leader for each in metadata(requests_of(decided)).values()} == {1}
    assert {key for _, key in leads(requests_of(decided))} == {T0}


def test_a_broker_that_dies_is_named_no_more() -> None:
    before = cluster_image([1, 2, 3], topic("t", led([1, 2])))
    requests = requests_of(change(before, compare(before, registered(a_broker(1), a_broker(3)))))
    assert kinds(requests) == [(1, "brokers"), (3, "brokers")]
    assert [each.id for each in requests[0].request.live_brokers] == [1, 3]


def test_a_failure_and_its_elections_in_one_delta_are_one_request() -> None:
    before = cluster_image([1, 2, 3], topic("t", led([1, 2])))
    dead = compare(before, registered(a_broker(2), a_broker(3)))
    requests = requests_of(change(before, [*dead, changed(leader=2, isr=(2,))]))
    assert kinds(requests) == [(2, "lead"), (2, "metadata"), (3, "metadata")]
    assert [each.id for each in requests[1].request.live_brokers] == [2, 3]
    assert metadata(requests)[3][T0].offline_replicas == (1,)


def test_kafka_15605_only_a_request_with_all_partitions_is_full() -> None:
    """A request with some topics does not show that others were deleted meanwhile."""
    image = cluster_image([1, 2], topic("t", led([1, 2])), topic("u", led([1])))
    full = [each.request for each in sent(full_batch(view(image)), view(image))]
    assert [each.type for each in full if hasattr(each, "live_brokers")] == [FULL, FULL]
    [first, *_] = sent(live_brokers_batch(view(image)), view(image))
    assert first.request.type == UNKNOWN
    came = requests_of(change(image, compare(image, {**image.brokers, 3: a_broker(3)})))
    assert [each.request.type for each in came] == [UNKNOWN, UNKNOWN, UNKNOWN, FULL]
    assert {each.request.type for each in requests_of(change(image, [changed(isr=(1,))]))} == {
        UNKNOWN
    }


def test_a_changed_endpoint_goes_to_all_brokers() -> None:
    before = cluster_image([1, 2], topic("t", led([1, 2])))
    moved = a_broker(2, endpoints=(replace(a_broker(2).endpoints[0], port=9999),))
    requests = requests_of(change(before, compare(before, registered(a_broker(1), moved))))
    assert kinds(requests) == [(1, "brokers"), (2, "brokers")]
    assert requests[0].request.live_brokers[1].endpoints[0].port == 9999


def leaving(image: ClusterImage, broker_id: int) -> Record:
    epoch = image.brokers[broker_id].epoch
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1
    )


def test_a_broker_that_is_about_to_go_stops_what_it_follows_and_others_have() -> None:
    mine, followed, alone = led([2, 1], [2]), led([1, 2], [1]), led([2])
    before = cluster_image([1, 2, 3], topic("t", mine, followed, alone, never_led(1, 2)))
    requests = requests_of(change(before, [leaving(before, 2)]))
    assert kinds(requests) == [(2, "stop")]
    assert stops(requests) == {(2, T1): (3, False)}
    assert requests[0].deleted == frozenset()


def test_online_partition_to_online_transition_for_controlled_shutdown() -> None:
    """Both brokers get the new leader, the leaving one before it stops following."""
    before = cluster_image([1, 2, 3], topic("t", led([2, 1])))
    moved = [changed(leader=1, isr=(1,)), leaving(before, 2)]
    requests = requests_of(change(before, moved))
    assert [kind for broker_id, kind in kinds(requests) if broker_id == 2] == [
        "lead",
        "metadata",
        "stop",
    ]
    assert set(leads(requests)) == {(1, T0), (2, T0)}
    assert metadata(requests)[3][T0].offline_replicas == (2,)


def test_requests_are_sent_only_to_live_or_shutting_down_brokers() -> None:
    before = cluster_image([1, 2, 3], topic("t", led([1, 2, 4])))
    image = change(before, [leaving(before, 2)]).image
    requests = requests_of(change(image, [changed(leader=1)]))
    assert set(leads(requests)) == {(1, T0), (2, T0)}
    assert set(metadata(requests)) == {1, 2, 3}
    assert [each.id for each in requests[-1].request.live_brokers] == [1, 2, 3]


# -- log directories ---------------------------------------------------------------------------


def lost(image: ClusterImage, broker_id: int) -> PartitionRecord:
    partition = of(image)
    directories = tuple(
        DIRECTORY_LOST if each == broker_id else DIRECTORY_MIGRATING for each in partition.replicas
    )
    return partition_record(ID, 0, replace(partition, directories=directories))


def test_a_replica_in_a_failed_log_dir_is_offline_and_gets_no_leader_and_isr() -> None:
    before = cluster_image([1, 2, 3], topic("t", led([1, 2])))
    delta = change(before, [lost(before, 2)])
    requests = requests_of(delta)
    assert kinds(requests) == TO_ALL
    assert metadata(requests)[1][T0].offline_replicas == (2,)
    requests = requests_of(change(delta.image, [changed(leader=1, isr=(1,))]))
    assert set(leads(requests)) == {(1, T0)}
    assert set(leads(sent(full_batch(view(delta.image)), view(delta.image)))) == {(1, T0)}


def test_a_log_dir_event_resends_leader_and_isr_for_all_that_the_broker_hosts() -> None:
    image = cluster_image([1, 2], topic("t", led([1, 2]), led([1])), topic("u", led([2])))
    requests = sent(resend_batch(view(image), 2), view(image))
    assert kinds(requests) == [(2, "lead"), (2, "metadata")]
    assert set(metadata(requests)[2]) == {T0, T1, U0}, "what it refused is sent again, too"
    assert set(leads(requests)) == {(2, T0), (2, U0)}


# -- the protocol's level ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "versions"),
    [("3.9", (7, 8, 4)), ("3.3", (6, 7, 3)), ("2.8", (5, 7, 3)), ("2.4", (4, 6, 2))],
)
def test_inter_broker_protocol_version(protocol: str, versions: tuple[int, int, int]) -> None:
    moving = led([3, 2, 1], [1, 2, 3], 1, adding_replicas=(3,), removing_replicas=(1,))
    ends = changed(replicas=(3, 2), isr=(2, 3), leader=3, adding_replicas=(), removing_replicas=())
    delta = change(cluster_image([1, 2, 3], topic("t", moving)), [ends])
    seen = view(delta.image, level=parse_level(protocol))
    found = {
        type(each.request).__name__: each.version for each in sent(delta_batch(seen, delta), seen)
    }
    assert found == dict(
        zip(
            ("LeaderAndIsrRequest", "UpdateMetadataRequest", "StopReplicaRequest"),
            versions,
            strict=True,
        )
    )


def test_every_request_bears_the_epochs_of_its_controller_and_its_broker() -> None:
    image = cluster_image([1, 2], topic("t", led([1, 2])))
    seen = view(image, controller_epoch=9)
    for each in sent(full_batch(seen), seen):
        assert (each.controller_epoch, each.request.controller_epoch) == (9, 9)
        assert each.broker_epoch == each.request.broker_epoch == 100 + each.broker_id
        assert each.request.controller_id == 1
