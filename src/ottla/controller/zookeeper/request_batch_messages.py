"""LeaderAndIsr, UpdateMetadata and StopReplica, in the versions of the cluster's protocol.

The versions follow from inter.broker.protocol.version; below StopReplica's third one
a request either deletes all that it names or nothing, so that a mixed one becomes two.
Source: LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest, Kafka 3.9.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeVar

from ottla.base.ids import NO_LEADER
from ottla.controller.keys import PartitionKey, ReplicaKey
from ottla.controller.zookeeper import inter_broker_protocol as protocol
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.tiering import RestoredPartition, TopicTiering, restored_data
from ottla.metadata.topics import RECOVERED, PartitionImage
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import stop_replica as stop
from ottla.wire.messages import update_metadata as meta
from ottla.wire.messages.pending_purges import PendingPurge
from ottla.wire.messages.topic_tiering import TopicTieringState

T = TypeVar("T")

LEADER_DURING_DELETE: Final = -2
"""The leader that UpdateMetadata names for a partition that is being deleted (KAFKA-1355)."""

INITIAL_EPOCH: Final = 0

REPLICAS_PER_ORDER_MAX: Final = 1_000
"""Replicas in one request, all of which a broker stops or deletes before it responds: each
deletion costs a rename and a flush."""

PLAINTEXT: Final = 0

VersionedRequest = tuple[Any, int]
"""A request and its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUpdate:
    """A partition's state in a request. `written_by`: the deciding controller's epoch."""

    partition: PartitionImage
    written_by: int
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaState:
    """A replica in StopReplica: whether to delete it, besides stopping its fetcher."""

    leader_epoch: int
    delete: bool


def _tiering(
    context: ControllerView, topic: str, updates: Iterable[tuple[PartitionKey, object]]
) -> TopicTieringState | None:
    """Return a topic's tiering state at the time of the request: only newer ones follow.

    `updates`: what the request has of the topic. Of a restored topic it also has where these
    partitions began, and not where all did: a request about one of thousands stays small.
    """
    tiering = context.image.tiering.get(context.topic_id(topic))
    if tiering is None:
        return None
    return TopicTieringState(
        tiered_epoch=tiering.tiered_epoch,
        state=tiering.state,
        policy=tiering.policy,
        remote_floor_epoch=tiering.remote_floor_epoch,
        purge_pending=tiering.purge_pending,
        restored=restored_data(_restored(tiering, updates)),
    )


def _restored(
    tiering: TopicTiering, updates: Iterable[tuple[PartitionKey, object]]
) -> Iterator[RestoredPartition]:
    named = {key.partition for key, _ in updates} if tiering.restored else ()
    return (each for each in tiering.restored if each.partition in named)


# -- LeaderAndIsr ------------------------------------------------------------------------------


def leader_and_isr(
    context: ControllerView, broker_id: int, updates: Mapping[PartitionKey, PartitionUpdate]
) -> VersionedRequest:
    """Return the LeaderAndIsr request for a broker."""
    version = protocol.version_at(protocol.LEADER_AND_ISR, context.level)
    ordered = sorted(updates.items())
    request = lai.LeaderAndIsrRequest(
        controller_id=context.controller_id,
        controller_epoch=context.controller_epoch,
        broker_epoch=context.brokers[broker_id].epoch,
        ungrouped_partition_states=(
            () if version >= 2 else tuple(_lai_state(*each, version) for each in ordered)
        ),
        topic_states=tuple(
            lai.LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=context.topic_id(topic),
                partition_states=tuple(_lai_state(*each, version) for each in group),
                tiering=_tiering(context, topic, group),
            )
            for topic, group in (_by_topic(ordered) if version >= 2 else ())
        ),
        live_leaders=_live_leaders(context, updates),
    )
    return request, version


def _lai_state(
    key: PartitionKey, updates: PartitionUpdate, version: int
) -> lai.LeaderAndIsrPartitionState:
    partition = updates.partition
    return lai.LeaderAndIsrPartitionState(
        topic_name=key.topic if version < 2 else "",
        partition_index=key.partition,
        controller_epoch=updates.written_by,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        is_new=updates.is_new,
        leader_recovery_state=partition.leader_recovery_state if version >= 6 else RECOVERED,
    )


def _live_leaders(
    context: ControllerView, updates: Mapping[PartitionKey, PartitionUpdate]
) -> tuple[lai.LeaderAndIsrLiveLeader, ...]:
    leaders = sorted({each.partition.leader for each in updates.values()} - {NO_LEADER})
    return tuple(
        lai.LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)
        for leader in leaders
        if leader in context.brokers
        and (endpoint := _inter_broker_endpoint(context, context.brokers[leader])) is not None
    )


def _inter_broker_endpoint(context: ControllerView, broker: BrokerImage) -> Endpoint | None:
    """Return where other brokers reach a broker."""
    return broker.endpoint(context.inter_broker_listener)


# -- UpdateMetadata ----------------------------------------------------------------------------


def update_metadata(
    context: ControllerView,
    updates: Mapping[PartitionKey, PartitionUpdate],
    *,
    is_full: bool = False,
    with_purges: bool = False,
) -> Callable[[int], VersionedRequest]:
    """Return the builder of each broker's UpdateMetadata request.

    `is_full`: it names all partitions, so that a broker may drop those that it does not name.
    `with_purges`: it has the deleted topics whose objects are to be deleted; a full one has them.
    """
    version = protocol.version_at(protocol.UPDATE_METADATA, context.level)
    ordered = sorted(updates.items())
    request = partial(
        meta.UpdateMetadataRequest,
        type=meta.FULL if is_full and version >= 8 else meta.UNKNOWN,
        controller_id=context.controller_id,
        controller_epoch=context.controller_epoch,
        ungrouped_partition_states=(
            () if version >= 5 else tuple(_meta_state(context, *each, version) for each in ordered)
        ),
        topic_states=tuple(
            meta.UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=context.topic_id(topic),
                partition_states=tuple(_meta_state(context, *each, version) for each in group),
                tiering=_tiering(context, topic, group),
            )
            for topic, group in (_by_topic(ordered) if version >= 5 else ())
        ),
        live_brokers=tuple(
            _meta_broker(context.brokers[broker_id], version)
            for broker_id in context.live_or_shutting_down_ids()
        ),
        pending_purges=_pending_purges(context) if is_full or with_purges else None,
    )

    def for_broker(broker_id: int) -> VersionedRequest:
        return request(broker_epoch=context.brokers[broker_id].epoch), version

    return for_broker


def _pending_purges(context: ControllerView) -> tuple[PendingPurge, ...]:
    return tuple(
        PendingPurge(
            topic_id=each.topic_id,
            name=each.name,
            asked_ms=each.asked_ms,
            replicas_are_over=each.replicas_are_over,
            partitions=tuple(sorted(each.partitions())),
        )
        for each in context.image.deletions.purges()
    )


def _meta_state(
    context: ControllerView, key: PartitionKey, updates: PartitionUpdate, version: int
) -> meta.UpdateMetadataPartitionState:
    partition = updates.partition
    is_deleted = context.is_queued_for_deletion(key.topic)
    return meta.UpdateMetadataPartitionState(
        topic_name=key.topic if version < 5 else "",
        partition_index=key.partition,
        controller_epoch=updates.written_by,
        leader=LEADER_DURING_DELETE if is_deleted else partition.leader,
        leader_epoch=INITIAL_EPOCH if is_deleted else partition.leader_epoch,
        isr=partition.isr,
        zk_version=INITIAL_EPOCH if is_deleted else partition.partition_epoch,
        replicas=partition.replicas,
        offline_replicas=tuple(
            replica
            for replica in partition.replicas
            if not context.is_online(ReplicaKey(replica, *key))
        ),
    )


def _meta_broker(broker: BrokerImage, version: int) -> meta.UpdateMetadataBroker:
    # The oldest version knows one address: that of the PLAINTEXT listener.
    plaintext = next(
        (each for each in broker.endpoints if each.security_protocol == PLAINTEXT), None
    )
    return meta.UpdateMetadataBroker(
        id=broker.id,
        v0_host=plaintext.host if version == 0 and plaintext is not None else "",
        v0_port=plaintext.port if version == 0 and plaintext is not None else 0,
        endpoints=tuple(
            meta.UpdateMetadataEndpoint(
                port=each.port,
                host=each.host,
                listener=each.name,
                security_protocol=each.security_protocol,
            )
            for each in broker.endpoints
        ),
        rack=broker.rack,
    )


# -- StopReplica -------------------------------------------------------------------------------


def stop_replica(
    context: ControllerView, broker_id: int, stops: Mapping[PartitionKey, StopReplicaState]
) -> Iterator[tuple[VersionedRequest, list[PartitionKey]]]:
    """Yield the StopReplica requests for a broker, each with the partitions that it deletes.

    Each is within REPLICAS_PER_ORDER_MAX, however many orders were added.
    """
    ordered = sorted(stops.items())
    for begin in range(0, len(ordered), REPLICAS_PER_ORDER_MAX):
        yield from _stop_replica(
            context, broker_id, ordered[begin : begin + REPLICAS_PER_ORDER_MAX]
        )


def _stop_replica(
    context: ControllerView,
    broker_id: int,
    ordered: Sequence[tuple[PartitionKey, StopReplicaState]],
) -> Iterator[tuple[VersionedRequest, list[PartitionKey]]]:
    version = protocol.version_at(protocol.STOP_REPLICA, context.level)
    deleted = [key for key, stop_state in ordered if stop_state.delete]
    request = partial(
        stop.StopReplicaRequest,
        controller_id=context.controller_id,
        controller_epoch=context.controller_epoch,
        broker_epoch=context.brokers[broker_id].epoch,
    )
    if version >= 3:
        yield (request(topic_states=_stop_states(context, ordered)), version), deleted
        return
    # One flag for all: deletions first, as Kafka sends them.
    stopped = [key for key, stop_state in ordered if not stop_state.delete]
    for keys, deletes in ((deleted, True), (stopped, False)):
        if keys:
            made = request(
                delete_partitions=deletes,
                ungrouped_partitions=tuple(
                    stop.StopReplicaPartitionV0(topic_name=key.topic, partition_index=key.partition)
                    for key in (keys if version == 0 else ())
                ),
                topics=_stop_topics(keys) if version > 0 else (),
            )
            yield (made, version), keys if deletes else []


def _stop_states(
    context: ControllerView,
    ordered: Sequence[tuple[PartitionKey, StopReplicaState]],
) -> tuple[stop.StopReplicaTopicState, ...]:
    return tuple(
        stop.StopReplicaTopicState(
            topic_name=topic,
            topic_id=context.topic_id(topic),
            partition_states=tuple(
                stop.StopReplicaPartitionState(
                    partition_index=key.partition,
                    leader_epoch=stop_state.leader_epoch,
                    delete_partition=stop_state.delete,
                )
                for key, stop_state in group
            ),
        )
        for topic, group in _by_topic(ordered)
    )


def _stop_topics(keys: Sequence[PartitionKey]) -> tuple[stop.StopReplicaTopicV1, ...]:
    partition_ids: dict[str, list[int]] = defaultdict(list)
    for key in keys:
        partition_ids[key.topic].append(key.partition)
    return tuple(
        stop.StopReplicaTopicV1(name=topic, partition_indexes=tuple(listed))
        for topic, listed in partition_ids.items()
    )


def _by_topic(
    ordered: Sequence[tuple[PartitionKey, T]],
) -> Iterator[tuple[str, list[tuple[PartitionKey, T]]]]:
    for topic, group in groupby(ordered, key=lambda each: each[0].topic):
        yield topic, list(group)
