"""AlterPartition (key 56): the leader of partitions asks the controller to change their ISRs.

Behaviour: each partition has its own result: its state after the change. A change that completes a
           reassignment may move the leader: NEW_LEADER_ELECTED, although the change was made.
Versions:  v2 topics by id (KIP-516, KIP-841); v3 the epochs of the members (KIP-903). v0 and v1,
           which name topics, are of brokers that this metadata.version does not support.
"""

from collections.abc import Iterable
from itertools import groupby

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.broker.api.base import BROKERS, CONTROLLERS, Answer, Api, Context, RunsOn
from ottla.controller.partitions.isr import ANY_EPOCH, ChangedIsr, IsrChange, alter_partition
from ottla.wire.messages import alter_partition as wire

API = Api(
    key=56,
    versions=range(2, 4),
    listeners=CONTROLLERS,
    zookeeper=BROKERS,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.AlterPartitionRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = [
        _wanted(topic, partition) for topic in request.topics for partition in topic.partitions
    ]
    context = ctx.controller.context
    return ctx.controller.run(
        lambda image: alter_partition(
            image,
            wanted,
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            context=context,
        )
    ).map(_answer)


def _wanted(topic: wire.RequestTopicData, partition: wire.RequestPartitionData) -> IsrChange:
    members = [(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs]
    members += [(each, ANY_EPOCH) for each in partition.new_isr]
    return IsrChange(
        topic_id=topic.topic_id,
        partition_id=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple(members),
        recovery_state=partition.leader_recovery_state,
    )


def _answer(reply: tuple[ChangedIsr, ...] | ApiError) -> wire.AlterPartitionResponse:
    if isinstance(reply, ApiError):
        return wire.AlterPartitionResponse(error_code=reply.error, topics=())
    topics = groupby(reply, key=lambda each: each.topic_id)
    return wire.AlterPartitionResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.ResponseTopicData(topic_id=topic_id, partitions=_partitions(changed))
            for topic_id, changed in topics
        ),
    )


def _partitions(changed: Iterable[ChangedIsr]) -> tuple[wire.ResponsePartitionData, ...]:
    return tuple(_partition(each) for each in changed)


def _partition(changed: ChangedIsr) -> wire.ResponsePartitionData:
    partition = changed.partition
    if partition is None:
        return wire.ResponsePartitionData(
            partition_index=changed.partition_id,
            error_code=changed.error,
            leader_id=NO_LEADER,
            leader_epoch=0,
            isr=(),
            partition_epoch=0,
        )
    return wire.ResponsePartitionData(
        partition_index=changed.partition_id,
        error_code=Error.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
