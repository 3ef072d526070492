"""LeaderAndIsr (key 4): the controller tells this broker what to lead and what to follow.

Behaviour: each partition stands or falls by itself. One that is told of again in the epoch that
           it has is answered as done. KAFKA_STORAGE_ERROR where the replica's log folder is
           offline, each time alike (KAFKA-7313), by which the controller learns of it.
Epochs:    an older broker epoch than this registration's, or than one that was spoken to, is
           STALE_BROKER_EPOCH, a newer one is taken, -1 = any; an older controller epoch than is
           known is STALE_CONTROLLER_EPOCH. Handled once the broker is registered: what comes
           before that may be meant for its former life.
Versions:  v5 topic ids (KIP-516); v6 the recovery state (KIP-704); v7 KRaft controllers, which
           there are none of here. Older ones, without ids, are not served.
Not done:  type FULL, which only a controller that migrates to KRaft sends; authorization.
"""

from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.broker.zk_metadata import PartitionName, ZkMetadataPort, unknown_topics
from ottla.wire.messages import leader_and_isr as wire

API = Api(
    key=4,
    versions=range(5, 8),
    advertised=NOBODY,
    listeners=NOWHERE,
    zookeeper=BROKERS,
    acl="cluster:cluster-action",
)


def handle(ctx: Context, request: wire.LeaderAndIsrRequest) -> Answer:
    """Learn how new topics are configured, which their logs must be made with; then follow."""
    zk_metadata = ctx.broker.zk_metadata
    assert zk_metadata is not None, "served where brokers are told by requests only"
    named = [(topic.topic_name, topic.topic_id) for topic in request.topic_states]
    new = unknown_topics(zk_metadata.image, named)
    if not new:
        return _follow(ctx.broker, zk_metadata, request)
    return zk_metadata.read_configs(new).map(lambda _: _follow(ctx.broker, zk_metadata, request))


def _follow(
    broker: Broker, zk_metadata: ZkMetadataPort, request: wire.LeaderAndIsrRequest
) -> wire.LeaderAndIsrResponse:
    """Check the sender, follow what the request says, and name partitions without a log."""
    error = zk_metadata.facts.check_sender(
        broker_epoch=request.broker_epoch,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
    )
    if error is not Error.NONE:
        return wire.LeaderAndIsrResponse(error_code=error)
    records, errors = zk_metadata.facts.leader_and_isr(zk_metadata.image, request)
    zk_metadata.apply(records)
    hosted = {name: _hosted(broker, name) for name, each in errors.items() if each is Error.NONE}
    broker.fetchers.resume([each for each in hosted.values() if each is not None])
    for name, partition in hosted.items():
        if partition is None or partition.log is None:
            errors[name] = Error.KAFKA_STORAGE_ERROR
    return wire.LeaderAndIsrResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=tuple(
                    wire.LeaderAndIsrPartitionError(
                        partition_index=each.partition_index,
                        error_code=errors[topic.topic_name, each.partition_index],
                    )
                    for each in topic.partition_states
                ),
            )
            for topic in request.topic_states
        ),
    )


def _hosted(broker: Broker, name: PartitionName) -> Partition | None:
    try:
        return broker.replicas.partition(*name)
    except ApiError:
        return None
