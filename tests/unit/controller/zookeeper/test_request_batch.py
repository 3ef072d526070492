"""A round's changes become at most a few requests a broker, each in the cluster's version.

Method: a batch filled and sent by hand; tests bear the names of Kafka's
ControllerChannelManagerTest. Every request sent is encoded in its version and decoded again.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.ids import NO_LEADER, NO_UUID
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.broker_requests import delta_batch
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.inter_broker_protocol import parse_level
from ottla.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from ottla.controller.zookeeper.request_batch_messages import REPLICAS_PER_ORDER_MAX
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, RECOVERING, PartitionImage
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from tests.unit.controller.model_brokers import (
    CONTROLLER,
    a_broker,
    change,
    cluster_image,
    kinds,
    leads,
    led,
    metadata,
    never_led,
    sent,
    stops,
    topic,
    topic_id,
    view,
)

CONTROLLER_EPOCH = 5
FOO0, FOO1, BAR1 = PartitionKey("foo", 0), PartitionKey("foo", 1), PartitionKey("bar", 1)
ELSE = PartitionKey("else", 0)
"""A partition of a topic that is not there."""
LED = led([1, 2, 3], [1, 2])


def three_partitions(*live: int | BrokerImage, protocol: str = "3.9") -> ControllerView:
    """Return a cluster of brokers 1, 2 and 3, unless others are named."""
    image = cluster_image(live or (1, 2, 3), topic("foo", LED, LED), topic("bar", LED, LED))
    return view(image, controller_epoch=CONTROLLER_EPOCH, level=parse_level(protocol))


def that_leaves(broker_id: int) -> BrokerImage:
    return a_broker(broker_id, in_controlled_shutdown=True)


def going(context: ControllerView, name: str) -> ControllerView:
    """Return the cluster while a topic is being deleted."""
    there = topic_id(name)
    asked = DeletionImage(topic_id=there, name=name, policy=Policy.CLASSIC, asked_ms=1)
    begins = replicas_record(there, 1, STARTED, [0])
    image: ClusterImage = change(context.image, [header_record(asked), begins]).image
    return replace(context, image=image)


def add_led(
    batch: RequestBatch,
    to: Iterable[int],
    key: PartitionKey,
    partition: PartitionImage = LED,
    *,
    is_new: bool = False,
) -> None:
    """Add a changed partition: LeaderAndIsr to some, UpdateMetadata to all."""
    batch.add_leader_and_isr(to, key, partition, written_by=CONTROLLER_EPOCH, is_new=is_new)
    batch.add_update_metadata([1, 2, 3], [(key, partition)], written_by=CONTROLLER_EPOCH)


def of_kind(requests: Iterable[BrokerRequest], kind: type) -> list[BrokerRequest]:
    return [each for each in requests if isinstance(each.request, kind)]


def led_by_metadata(requests: Iterable[BrokerRequest]) -> dict[int, list[tuple[Any, int]]]:
    """Return who leads which partition, as in each broker's UpdateMetadata, in its order."""
    return {
        broker_id: [(key, state.leader) for key, state in states.items()]
        for broker_id, states in metadata(requests).items()
    }


# -- LeaderAndIsr ------------------------------------------------------------------------------


def test_leader_and_isr_request_sent() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    for key in (FOO0, FOO1, BAR1):
        add_led(batch, [2], key)
    requests = sent(batch, context)
    assert kinds(requests) == [
        (1, "metadata"),
        (2, "lead"),
        (2, "metadata"),
        (3, "metadata"),
    ]
    [asked] = of_kind(requests, LeaderAndIsrRequest)
    assert (asked.broker_epoch, asked.controller_epoch) == (102, CONTROLLER_EPOCH)
    request = asked.request
    assert (request.controller_id, request.controller_epoch) == (CONTROLLER, CONTROLLER_EPOCH)
    assert request.broker_epoch == 102
    assert [(each.topic_name, each.topic_id) for each in request.topic_states] == [
        ("bar", topic_id("bar")),
        ("foo", topic_id("foo")),
    ]
    assert [(each.broker_id, each.host_name, each.port) for each in request.live_leaders] == [
        (1, "host1", 9092)
    ]
    state = leads(requests)[(2, FOO1)]
    assert (state.leader, state.leader_epoch, state.isr) == (1, 3, (1, 2))
    assert (state.replicas, state.partition_epoch) == ((1, 2, 3), 7)
    assert not batch  # It was for one round.
    assert batch.send_requests_to_brokers(context) == ()


def test_leader_and_isr_request_is_new() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    add_led(batch, [2], FOO0, is_new=True)
    newer = led([1, 2, 3], [2], leader_epoch=4)
    add_led(batch, [2], FOO0, newer)
    state = leads(sent(batch, context))[(2, FOO0)]
    assert (state.is_new, state.leader, state.leader_epoch) == (True, 2, 4)


def test_leader_and_isr_request_sent_to_live_or_shutting_down_brokers() -> None:
    context = three_partitions(1, that_leaves(2))
    batch = RequestBatch(context)
    add_led(batch, [-1, 1, 2, 3], FOO0)
    requests = sent(batch, context)
    assert set(leads(requests)) == {(1, FOO0), (2, FOO0)}
    assert set(metadata(requests)) == {1, 2}


def test_a_broker_that_died_before_the_batch_was_sent_gets_nothing() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    add_led(batch, [1, 2], FOO0)
    batch.add_stop_replica([2], FOO1, LED, delete_partition=True)
    later = three_partitions(1, 3)
    assert {broker for broker, _ in kinds(sent(batch, later))} == {1, 3}


def test_kafka_7235_a_broker_that_bounced_before_the_batch_was_sent_gets_nothing_of_it() -> None:
    """A stop that was meant for the former process must not stop what the new one begins."""
    context = three_partitions()
    batch = RequestBatch(context)
    batch.add_stop_replica([2], FOO1, LED, delete_partition=False)
    add_led(batch, [1, 2], FOO0)
    later = three_partitions(1, a_broker(2, epoch=500), 3)
    assert {broker for broker, _ in kinds(sent(batch, later))} == {1, 3}


LEADER_AND_ISR_VERSIONS = [
    ("0.9.0", 0), ("0.11.0", 0), ("1.0-IV0", 1), ("1.0", 1), ("2.1", 1), ("2.2-IV0", 2),
    ("2.3", 2), ("2.4-IV0", 3), ("2.4-IV1", 4), ("2.4", 4), ("2.8-IV0", 4), ("2.8-IV1", 5),
    ("2.8", 5), ("3.1", 5), ("3.2-IV0", 6), ("3.3", 6), ("3.4-IV0", 7), ("3.9", 7),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "version"), LEADER_AND_ISR_VERSIONS)
def test_leader_and_isr_inter_broker_protocol_version(protocol: str, version: int) -> None:
    context = three_partitions(protocol=protocol)
    batch = RequestBatch(context)
    unclean = led([1, 2], [1], leader_recovery_state=RECOVERING, adding_replicas=(2,))
    add_led(batch, [2], FOO0, unclean, is_new=True)
    [asked] = of_kind(sent(batch, context), LeaderAndIsrRequest)
    assert asked.version == version
    request = asked.request
    if version < 2:
        [state] = request.ungrouped_partition_states
        assert state.topic_name == "foo"
        assert request.topic_states == ()
    else:
        [sent_topic] = request.topic_states
        [state] = sent_topic.partition_states
        assert (sent_topic.topic_name, sent_topic.topic_id) == ("foo", topic_id("foo"))
        assert state.topic_name == ""
    assert state.leader_recovery_state == (RECOVERING if version >= 6 else 0)


def test_a_topic_that_is_not_there_has_no_id_in_requests() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    add_led(batch, [2], ELSE)
    [asked] = of_kind(sent(batch, context), LeaderAndIsrRequest)
    assert asked.request.topic_states[0].topic_id == NO_UUID


# -- UpdateMetadata ----------------------------------------------------------------------------


def test_update_metadata_request_sent() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    listed = [(key, LED) for key in (FOO1, BAR1, FOO0)]
    batch.add_update_metadata([2], listed, written_by=12)
    requests = sent(batch, context)
    assert led_by_metadata(requests) == {2: [(BAR1, 1), (FOO0, 1), (FOO1, 1)]}
    request = requests[0].request
    assert request.broker_epoch == 102
    assert request.topic_states[0].topic_id == topic_id("bar")
    assert request.topic_states[0].partition_states[0].controller_epoch == 12
    assert [each.id for each in request.live_brokers] == [1, 2, 3]
    [endpoint] = request.live_brokers[0].endpoints
    assert (endpoint.host, endpoint.port, endpoint.listener) == ("host1", 9092, "PLAINTEXT")
    assert request.live_brokers[0].rack == "rack1"


def test_update_metadata_does_not_include_partitions_without_leader_and_isr() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    batch.add_update_metadata([1, 2, 3], [(ELSE, never_led(1, 2))], written_by=0)
    requests = sent(batch, context)
    assert led_by_metadata(requests) == {1: [], 2: [], 3: []}
    assert [each.id for each in requests[0].request.live_brokers] == [1, 2, 3]


def test_update_metadata_request_during_topic_deletion() -> None:
    context = going(three_partitions(), "foo")
    batch = RequestBatch(context)
    listed = [(key, LED) for key in (FOO0, FOO1, BAR1)]
    batch.add_update_metadata([2], listed, written_by=CONTROLLER_EPOCH)
    requests = sent(batch, context)
    assert led_by_metadata(requests) == {2: [(BAR1, 1), (FOO0, -2), (FOO1, -2)]}
    by_topic = {each.topic_name: each for each in requests[0].request.topic_states}
    goes = by_topic["foo"].partition_states[0]
    assert (goes.isr, goes.leader_epoch, goes.zk_version) == ((1, 2), 0, 0)
    stays = by_topic["bar"].partition_states[0]
    assert (stays.isr, stays.leader_epoch, stays.zk_version) == ((1, 2), 3, 7)


def test_kafka_1355_a_deleted_partition_is_named_and_not_left_out() -> None:
    nobody_leads = led([1], [1], NO_LEADER)
    context = going(view(cluster_image([1], topic("foo", nobody_leads))), "foo")
    batch = RequestBatch(context)
    batch.add_update_metadata([1], [(FOO0, nobody_leads)], written_by=1)
    assert led_by_metadata(sent(batch, context)) == {1: [(FOO0, -2)]}


def test_update_metadata_includes_live_or_shutting_down_brokers() -> None:
    context = three_partitions(1, that_leaves(2))
    batch = RequestBatch(context)
    batch.add_update_metadata([-1, 1, 2, 3], [(FOO0, LED)], written_by=CONTROLLER_EPOCH)
    requests = sent(batch, context)
    assert [each.broker_id for each in requests] == [1, 2]
    assert [each.id for each in requests[0].request.live_brokers] == [1, 2]
    # A broker that is about to go counts as offline for clients.
    [sent_topic] = requests[0].request.topic_states
    assert sent_topic.partition_states[0].offline_replicas == (2, 3)


def test_a_replica_in_a_failed_log_dir_is_sent_as_offline() -> None:
    directories = (DIRECTORY_MIGRATING, DIRECTORY_LOST, DIRECTORY_MIGRATING)
    partly_lost = replace(LED, directories=directories)
    context = view(cluster_image([1, 2, 3], topic("foo", partly_lost, LED)))
    batch = RequestBatch(context)
    listed = [(FOO0, LED), (FOO1, LED)]
    batch.add_update_metadata([1], listed, written_by=CONTROLLER_EPOCH)
    [sent_topic] = sent(batch, context)[0].request.topic_states
    assert [each.offline_replicas for each in sent_topic.partition_states] == [(2,), ()]


UPDATE_METADATA_VERSIONS = [
    ("0.8.2", 0), ("0.9.0", 1), ("0.10.0-IV0", 1), ("0.10.0-IV1", 2), ("0.10.1", 2),
    ("0.10.2-IV0", 3), ("0.11.0", 3), ("1.0-IV0", 4), ("2.1", 4), ("2.2-IV0", 5),
    ("2.4-IV0", 5), ("2.4-IV1", 6), ("2.8-IV0", 6), ("2.8-IV1", 7), ("3.3", 7),
    ("3.4-IV0", 8), ("3.9", 8),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "version"), UPDATE_METADATA_VERSIONS)
def test_update_metadata_inter_broker_protocol_version(protocol: str, version: int) -> None:
    context = three_partitions(protocol=protocol)
    batch = RequestBatch(context)
    batch.add_update_metadata([1], [(FOO0, LED)], written_by=CONTROLLER_EPOCH)
    [asked] = sent(batch, context)
    assert asked.version == version
    grouped, ungrouped = asked.request.topic_states, asked.request.ungrouped_partition_states
    assert (len(grouped), len(ungrouped)) == ((1, 0) if version >= 5 else (0, 1))
    first = asked.request.live_brokers[0]
    assert (first.v0_host, first.v0_port) == (("host1", 9092) if version == 0 else ("", 0))


def test_a_broker_without_plaintext_has_no_address_in_the_oldest_version() -> None:
    secure = replace(a_broker(1), endpoints=(Endpoint("SSL", "host1", 9093, 1),))
    context = three_partitions(secure, 2, protocol="0.8.2")
    batch = RequestBatch(context)
    batch.add_update_metadata([1], (), written_by=CONTROLLER_EPOCH)
    [asked] = sent(batch, context)
    assert asked.request.live_brokers[0].v0_host == ""


# -- StopReplica -------------------------------------------------------------------------------


def test_stop_replica_request_with_already_defined_deleted_partition() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    batch.add_stop_replica([2], FOO0, LED, delete_partition=True)
    batch.add_stop_replica([2], FOO0, LED, delete_partition=False)
    requests = sent(batch, context)
    assert stops(requests) == {(2, FOO0): (3, True)}
    assert requests[0].deleted == {FOO0}


def test_kafka_9539_13972_stop_replica_has_the_leader_epoch_or_minus_two_in_deletion() -> None:
    """A known leadership's epoch; -1 where nobody led; -2 where the topic is to go."""
    context = going(three_partitions(), "bar")
    batch = RequestBatch(context)
    batch.add_stop_replica([2], FOO0, LED, delete_partition=False)
    batch.add_stop_replica([2], FOO1, never_led(2), delete_partition=False)
    batch.add_stop_replica([2], BAR1, LED, delete_partition=True)
    batch.add_stop_replica([2], ELSE, None, delete_partition=True)
    assert stops(sent(batch, context)) == {
        (2, FOO0): (3, False),
        (2, FOO1): (-1, False),
        (2, BAR1): (-2, True),
        (2, ELSE): (-1, True),
    }


@pytest.mark.parametrize(("protocol", "split"), [("2.6", False), ("2.5", True), ("2.1", True)])
def test_mixed_delete_and_not_delete_stop_replica_requests(protocol: str, split: bool) -> None:
    context = three_partitions(protocol=protocol)
    batch = RequestBatch(context)
    batch.add_stop_replica([2], FOO0, LED, delete_partition=False)
    batch.add_stop_replica([2], FOO1, LED, delete_partition=True)
    batch.add_stop_replica([2], BAR1, LED, delete_partition=True)
    requests = sent(batch, context)
    if not split:
        assert [each.deleted for each in requests] == [{FOO1, BAR1}]
        return
    assert [each.request.delete_partitions for each in requests] == [True, False]
    assert [each.deleted for each in requests] == [{FOO1, BAR1}, set()]


def test_stop_replica_groups_by_broker() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    for key in (FOO0, FOO1, BAR1):
        batch.add_stop_replica([2, 3], key, LED, delete_partition=False)
    requests = sent(batch, context)
    assert kinds(requests) == [(2, "stop"), (3, "stop")]
    assert len(stops(requests)) == 6
    assert [each.request.broker_epoch for each in requests] == [102, 103]


def test_stop_replica_sent_only_to_live_and_shutting_down_brokers() -> None:
    context = three_partitions(1, that_leaves(2))
    batch = RequestBatch(context)
    batch.add_stop_replica([-1, 1, 2, 3], FOO0, LED, delete_partition=True)
    assert [each.broker_id for each in sent(batch, context)] == [1, 2]


def test_no_broker_is_to_stop_more_replicas_at_once_than_it_can_answer_for_in_time() -> None:
    """Each one that is deleted costs it a rename and a flush, and what comes after waits."""
    context = three_partitions()
    batch = RequestBatch(context)
    keys = [PartitionKey("foo", number) for number in range(2 * REPLICAS_PER_ORDER_MAX + 1)]
    for key in keys:
        batch.add_stop_replica([2], key, LED, delete_partition=True)
    requests = sent(batch, context)
    counts = [REPLICAS_PER_ORDER_MAX, REPLICAS_PER_ORDER_MAX, 1]
    assert [len(stops([each])) for each in requests] == counts
    assert [len(each.deleted) for each in requests] == counts
    assert frozenset(keys) == frozenset[PartitionKey]().union(*(each.deleted for each in requests))


STOP_REPLICA_VERSIONS = [
    ("0.9.0", 0), ("2.1", 0), ("2.2-IV0", 1), ("2.4-IV0", 1), ("2.4-IV1", 2), ("2.5", 2),
    ("2.6-IV0", 3), ("3.3", 3), ("3.4-IV0", 4), ("3.9", 4),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "version"), STOP_REPLICA_VERSIONS)
def test_stop_replica_inter_broker_protocol_version(protocol: str, version: int) -> None:
    context = three_partitions(protocol=protocol)
    batch = RequestBatch(context)
    batch.add_stop_replica([2], FOO0, LED, delete_partition=True)
    batch.add_stop_replica([2], FOO1, LED, delete_partition=True)
    [asked] = of_kind(sent(batch, context), StopReplicaRequest)
    assert asked.version == version
    request = asked.request
    shapes = (len(request.ungrouped_partitions), len(request.topics), len(request.topic_states))
    assert shapes == ((2, 0, 0) if version == 0 else (0, 1, 0) if version < 3 else (0, 0, 1))
    assert asked.deleted == {FOO0, FOO1}


# -- rounds ------------------------------------------------------------------------------------


def test_requests_to_a_broker_come_in_the_order_that_it_needs() -> None:
    context = three_partitions()
    batch = RequestBatch(context)
    batch.add_stop_replica([1], FOO0, LED, delete_partition=False)
    batch.add_update_metadata([1], (), written_by=CONTROLLER_EPOCH)
    add_led(batch, [1], FOO1)
    assert [kind for broker, kind in kinds(sent(batch, context)) if broker == 1] == [
        "lead",
        "metadata",
        "stop",
    ]


def test_the_order_of_adding_does_not_show() -> None:
    context = three_partitions()
    first, second = RequestBatch(context), RequestBatch(context)
    for key in (FOO0, FOO1, BAR1):
        add_led(first, [1, 2, 3], key)
        first.add_stop_replica([1, 2], key, LED, delete_partition=True)
    for key in (BAR1, FOO1, FOO0):
        second.add_stop_replica([2, 1], key, LED, delete_partition=True)
        add_led(second, [3, 2, 1], key)
    assert sent(first, context) == sent(second, context)


def test_latent_l5_a_round_that_failed_does_not_fail_the_next_one() -> None:
    """In Kafka what a failed round leaves in its batch makes all later rounds raise."""
    context = three_partitions()
    failed = RequestBatch(context)
    failed.add_stop_replica([2], FOO0, LED, delete_partition=True)
    moved = PartitionChangeRecord(partition_id=0, topic_id=topic_id("foo"), leader=2)
    delta = change(context.image, [moved])
    after = replace(context, image=delta.image)
    requests = sent(delta_batch(after, delta), after)
    assert (set(leads(requests)), stops(requests)) == ({(1, FOO0), (2, FOO0), (3, FOO0)}, {})
    assert sent(failed, view(cluster_image([]))) == []
    assert not failed


def test_an_update_metadata_of_all_kinds_is_not_sent_where_nothing_was_added() -> None:
    context = three_partitions()
    assert of_kind(sent(RequestBatch(context), context), UpdateMetadataRequest) == []


@pytest.mark.parametrize("text", ["", "3", "3.x", "3.9-IV", "2.4-iv1", "v3.9"])
def test_what_is_no_inter_broker_protocol_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"inter\.broker\.protocol\.version"):
        parse_level(text)


def test_a_bug_fix_release_has_its_release_s_protocol() -> None:
    assert parse_level("3.4.1") == parse_level("3.4")
    assert parse_level("0.10.1") < parse_level("0.10.2")
