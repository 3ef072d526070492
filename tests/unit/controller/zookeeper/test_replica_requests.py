"""The requests that follow when a replica changes its state.

Method: as in test_broker_requests, with the names of Kafka's ReplicaStateMachineTest. States of
deletion are in test_deletion_manager, and their orders in test_deletion_orders.
"""

import pytest

from ottla.controller.keys import PartitionKey
from ottla.controller.partitions.replica_states import ReplicaState, replica_state_of
from ottla.controller.zookeeper.broker_requests import full_batch, resend_batch
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, Record
from tests.unit.controller.model_brokers import (
    a_broker,
    change,
    cluster_image,
    compare,
    kinds,
    leads,
    led,
    metadata,
    never_led,
    registered,
    requests_of,
    sent,
    stops,
    topic,
    topic_id,
    view,
)

S = ReplicaState
T0 = PartitionKey("t", 0)
ID = topic_id("t")


def state(image: ClusterImage, broker_id: int) -> S:
    return replica_state_of(image, ID, 0, broker_id)


def changed(**how: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=ID, **how)  # type: ignore[arg-type]


def leaving(broker_id: int) -> Record:
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=100 + broker_id, in_controlled_shutdown=1
    )


def test_nonexistent_replica_to_new_replica_transition() -> None:
    before = cluster_image([1, 2], topic("t", led([1])))
    delta = change(before, [changed(replicas=(1, 2), adding_replicas=(2,))])
    assert (state(before, 2), state(delta.image, 2)) == (S.NON_EXISTENT, S.NEW)
    sent_state = leads(requests_of(delta))[2, T0]
    assert (sent_state.is_new, sent_state.leader) == (True, 1)


def test_new_replica_to_online_replica_transition() -> None:
    """The end of the move, which is also when its leader may leave."""
    moving = led([2, 1], [1], 1, adding_replicas=(2,))
    delta = change(
        cluster_image([1, 2], topic("t", moving)),
        [changed(isr=(1, 2), leader=2, adding_replicas=())],
    )
    assert (state(delta.before, 2), state(delta.image, 2)) == (S.NEW, S.ONLINE)
    assert {key: each.is_new for key, each in leads(requests_of(delta)).items()} == {
        (1, T0): False,
        (2, T0): False,
    }


def test_new_replica_to_offline_replica_transition() -> None:
    """Of a partition that nobody ever led: it is not named, who is left is (KAFKA-6650)."""
    before = cluster_image([1, 2], topic("t", never_led(2, 1)))
    delta = change(before, compare(before, registered(a_broker(1))))
    assert (state(before, 2), state(delta.image, 2)) == (S.ONLINE, S.OFFLINE)
    requests = requests_of(delta)
    assert kinds(requests) == [(1, "brokers")]
    assert [each.id for each in requests[0].request.live_brokers] == [1]


def test_online_replica_to_online_replica_transition() -> None:
    image = cluster_image([1, 2], topic("t", led([1, 2])))
    requests = sent(resend_batch(view(image), 2), view(image))
    assert set(leads(requests)) == {(2, T0)}
    assert (leads(requests)[2, T0].leader, leads(requests)[2, T0].is_new) == (1, False)


def test_online_replica_to_offline_replica_transition() -> None:
    before = cluster_image([1, 2, 3], topic("t", led([1, 2])))
    delta = change(before, [changed(isr=(1,)), leaving(2)])
    assert (state(before, 2), state(delta.image, 2)) == (S.ONLINE, S.OFFLINE)
    requests = requests_of(delta)
    # The leader stays in its epoch, so UpdateMetadata is enough for the others.
    assert stops(requests) == {(2, T0): (3, False)}
    assert leads(requests) == {}
    assert metadata(requests)[3][T0].offline_replicas == (2,)


@pytest.mark.parametrize("bounced", [False, True])
def test_offline_replica_to_online_replica_transition(bounced: bool) -> None:
    first = a_broker(2, in_controlled_shutdown=True)
    before = cluster_image([1, first] if bounced else [1], topic("t", led([1, 2], [1])))
    delta = change(before, compare(before, registered(a_broker(1), a_broker(2, epoch=500))))
    assert (state(before, 2), state(delta.image, 2)) == (S.OFFLINE, S.ONLINE)
    requests = requests_of(delta)
    assert set(leads(requests)) == {(2, T0)}
    assert {each.broker_epoch for each in requests if each.broker_id == 2} == {500}
    assert not leads(requests)[2, T0].is_new


def test_startup_with_replica_without_leader() -> None:
    """A new controller names no partition that nobody ever led, and stumbles over none."""
    image = cluster_image([1], topic("t", never_led(2)), topic("u", led([1])))
    assert state(image, 2) is S.OFFLINE
    requests = sent(full_batch(view(image)), view(image))
    assert kinds(requests) == [(1, "lead"), (1, "metadata")]
    assert set(metadata(requests)[1]) == {PartitionKey("u", 0)}
