"""LeaderAndIsr (key 4): the controller sets which partitions this broker leads and follows.

Behaviour: each partition has its own result. A repetition in the same leader epoch is answered as
           done. KAFKA_STORAGE_ERROR where the replica's log directory is offline, every time
           (KAFKA-7313): that is how the controller detects it.
Epochs:    a broker epoch older than this registration's, or than that of an earlier request, is
           STALE_BROKER_EPOCH, a newer one is accepted, -1 = any; a controller epoch older than the
           known one is STALE_CONTROLLER_EPOCH. Handled once the broker is registered: earlier
           requests may be for its previous process.
Versions:  v5 topic ids (KIP-516); v6 the recovery state (KIP-704); v7 KRaft controllers, which do
           not exist in this mode. Older ones, without ids, are not served.
Not done:  type FULL, which only a controller that migrates to KRaft sends.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.broker.zookeeper.zk_metadata import PartitionName, ZkMetadataPort, unknown_topics
from ottla.wire.messages import leader_and_isr as wire

API = Api(
    key=4,
    versions=range(5, 8),
    advertised=NOBODY,
    listeners=NOWHERE,
    zookeeper=BROKERS,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.LeaderAndIsrRequest) -> Answer:
    """Read the configuration of new topics, which their logs need; then apply the request."""
    zk_metadata = ctx.broker.zk_metadata
    assert zk_metadata is not None, "served in ZooKeeper mode only"
    named = [(topic.topic_name, topic.topic_id) for topic in request.topic_states]
    new = unknown_topics(zk_metadata.image, named)
    if not new:
        return _follow(ctx.broker, zk_metadata, request)
    return zk_metadata.read_configs(new).map(lambda _: _follow(ctx.broker, zk_metadata, request))


def _follow(
    broker: Broker, zk_metadata: ZkMetadataPort, request: wire.LeaderAndIsrRequest
) -> wire.LeaderAndIsrResponse:
    """Check the epochs, apply the request, and report partitions without a log."""
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
