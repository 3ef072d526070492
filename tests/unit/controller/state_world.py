"""A controller's state context for tests: brokers, partitions and states set by hand.

Ids as in Kafka's own tests: broker 0 unless said otherwise, topic "t", one partition.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from immutables import Map

from ottla.base.ids import Uuid
from ottla.controller.inter_broker_protocol import Level, parse_level
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_states import ReplicaState
from ottla.controller.request_batch import BrokerRequest, RequestBatch
from ottla.controller.state_changes import Outcome
from ottla.controller.state_context import PartitionKey, ReplicaKey, StateContext, assigned
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.topics import PartitionImage
from ottla.wire.codec import decode, encode
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

CONTROLLER_EPOCH = 50
KEY = PartitionKey("t", 0)


def level(text: str) -> Level:
    return parse_level(text)


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"."))


def a_broker(broker_id: int, epoch: int | None = None) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=100 + broker_id if epoch is None else epoch,
        incarnation_id=topic_id(f"process-{broker_id}"),
        endpoints=(Endpoint("PLAINTEXT", f"host{broker_id}", 9092),),
        rack=f"rack{broker_id}",
        fenced=False,
    )


def brokers(*ids: int) -> Map[int, BrokerImage]:
    return Map({each: a_broker(each) for each in ids})


def a_context(*live: int, **changes: Any) -> StateContext:
    usual = StateContext(controller_id=0, controller_epoch=CONTROLLER_EPOCH, brokers=brokers(*live))
    return replace(usual, **changes)


def led_by(
    leader: int,
    isr: Sequence[int],
    replicas: Sequence[int],
    *,
    leader_epoch: int = 3,
    **changes: Any,
) -> PartitionImage:
    bare = assigned(tuple(replicas))
    return replace(
        bare, leader=leader, isr=tuple(isr), leader_epoch=leader_epoch, partition_epoch=7, **changes
    )


def with_partition(
    context: StateContext,
    partition: PartitionImage,
    *,
    key: PartitionKey = KEY,
    state: PartitionState | None = None,
    written_by: int = CONTROLLER_EPOCH,
    replica_states: ReplicaState | None = None,
) -> StateContext:
    """Return the context with a partition, led where it has a leader epoch."""
    context = replace(context, topic_ids=context.topic_ids.set(key.topic, topic_id(key.topic)))
    draft = context.draft()
    led = partition.leader_epoch >= 0
    draft.set_partition(key, partition, written_by=written_by if led else None)
    if state is not None:
        draft.set_partition_state(key, state)
    if replica_states is not None:
        for broker_id in partition.replicas:
            draft.set_replica_state(ReplicaKey(broker_id, *key), replica_states)
    return draft.finish()


def in_replica_state(
    context: StateContext, state: ReplicaState, *replicas: ReplicaKey
) -> StateContext:
    draft = context.draft()
    for each in replicas:
        draft.set_replica_state(each, state)
    return draft.finish()


def replica(broker_id: int, key: PartitionKey = KEY) -> ReplicaKey:
    return ReplicaKey(broker_id, *key)


def sent(
    batches: Iterable[RequestBatch] | Outcome, context: StateContext | None = None
) -> list[BrokerRequest]:
    """Send all batches; every request must be one that its version can say."""
    if isinstance(batches, Outcome):
        context = context or batches.context
        batches = batches.batches
    assert context is not None
    requests = [each for batch in batches for each in batch.send_requests_to_brokers(context)]
    for each in requests:
        kind = type(each.request)
        wire = memoryview(encode(each.request, each.version))
        assert isinstance(decode(kind, wire, each.version), kind)
    return requests


SHORT = {
    LeaderAndIsrRequest: "LeaderAndIsr",
    UpdateMetadataRequest: "UpdateMetadata",
    StopReplicaRequest: "StopReplica",
}


def told(requests: Iterable[BrokerRequest]) -> list[tuple[int, str]]:
    """Return who got which kind of request, in order."""
    return [(each.broker_id, SHORT[type(each.request)]) for each in requests]


def leader_and_isrs(requests: Iterable[BrokerRequest]) -> dict[int, dict[PartitionKey, Any]]:
    """Return the partition states of the LeaderAndIsr requests, by broker."""
    found: dict[int, dict[PartitionKey, Any]] = {}
    for each in requests:
        if isinstance(each.request, LeaderAndIsrRequest):
            states = found.setdefault(each.broker_id, {})
            for topic in each.request.topic_states:
                for state in topic.partition_states:
                    states[PartitionKey(topic.topic_name, state.partition_index)] = state
    return found


def stops(requests: Iterable[BrokerRequest]) -> dict[tuple[int, PartitionKey], tuple[int, bool]]:
    """Return (leader epoch, deletes) of what StopReplica requests of version 3 and up name."""
    return {
        (each.broker_id, PartitionKey(topic.topic_name, state.partition_index)): (
            state.leader_epoch,
            state.delete_partition,
        )
        for each in requests
        if isinstance(each.request, StopReplicaRequest)
        for topic in each.request.topic_states
        for state in topic.partition_states
    }


def metadata(requests: Iterable[BrokerRequest]) -> dict[int, list[tuple[PartitionKey, int]]]:
    """Return (partition, leader) of the UpdateMetadata requests, by broker."""
    return {
        each.broker_id: [
            (PartitionKey(topic.topic_name, state.partition_index), state.leader)
            for topic in each.request.topic_states
            for state in topic.partition_states
        ]
        for each in requests
        if isinstance(each.request, UpdateMetadataRequest)
    }
