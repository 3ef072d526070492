"""DeleteReplicas (key 1002): the controller has this broker delete replicas, named by topic id.

Behaviour: only what the topic id's own folders hold is deleted, wherever in the log folders it
           lies; what is not here counts as deleted, so that a repeated request is answered as
           the first one. A replica that this broker's metadata still assigns to it is left
           alone (OPERATION_NOT_ATTEMPTED): the command is older than that, or the metadata is
           late, and the controller asks again. KAFKA_STORAGE_ERROR where a log folder is offline
           that may hold the replica, and stays so until that folder is back or given up.
           Answered once the names are gone durably; the bytes follow after
           file.delete.delay.ms.
Epochs:    an older broker epoch than this registration's is STALE_BROKER_EPOCH, a newer one is
           taken, -1 = any; an older controller epoch than is known is STALE_CONTROLLER_EPOCH.
Versions:  v0. Ottla's own; advertised to nobody, served where brokers speak to each other.
Not done:  authorization.
"""

import logging
from collections import defaultdict

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_UUID, Uuid
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, CloseConnection, Context
from ottla.broker.core import Broker
from ottla.log.removal import Removed, Replica, remove_replicas
from ottla.wire.messages import delete_replicas as wire

API = Api(
    key=1002,
    versions=range(1),
    advertised=NOBODY,
    listeners=BROKERS,
    zookeeper=NOWHERE,
    acl="cluster:cluster-action",
)

log = logging.getLogger(__name__)


def handle(ctx: Context, request: wire.DeleteReplicasRequest) -> Answer:
    """Check who asks, then delete what is not wanted here any more."""
    broker = ctx.broker
    if ctx.connection.listener_name != broker.config.inter_broker_listener_name:
        raise CloseConnection("DeleteReplicas is served between nodes only")
    error = _fence(broker, request)
    if error is not Error.NONE:
        return wire.DeleteReplicasResponse(error_code=error)
    asked = [(topic.topic_id, number) for topic in request.topics for number in topic.partitions]
    results = dict.fromkeys(asked, Error.OPERATION_NOT_ATTEMPTED)
    unwanted = [replica for replica in results if not _is_wanted(broker, replica)]

    def answer(removed: Removed) -> wire.DeleteReplicasResponse:
        for (topic_id, number), failure in removed.items():
            if failure is not None:
                log.error("a replica cannot be deleted for certain: %s", failure)
            results[topic_id, number] = Error.NONE if failure is None else Error.KAFKA_STORAGE_ERROR
        return _response(results)

    return remove_replicas(broker.log_dirs, unwanted).map(answer)


def _fence(broker: Broker, request: wire.DeleteReplicasRequest) -> Error:
    # Only an older epoch is refused: this broker may hear of its own newest one last (KAFKA-9839).
    if NO_EPOCH != request.broker_epoch < broker.epoch:
        return Error.STALE_BROKER_EPOCH
    known = max(broker.controller_epoch, broker.image.position[1])
    if request.controller_epoch < known:
        return Error.STALE_CONTROLLER_EPOCH
    broker.controller_epoch = request.controller_epoch
    return Error.NONE


def _is_wanted(broker: Broker, replica: Replica) -> bool:
    topic_id, number = replica
    if topic_id == NO_UUID:
        return True  # No topic's id: nothing here may be matched by it.
    topic = broker.image.topics.by_id(topic_id)
    partition = None if topic is None else topic.partitions.get(number)
    return partition is not None and broker.node_id in partition.replicas


def _response(results: dict[Replica, Error]) -> wire.DeleteReplicasResponse:
    by_topic: dict[Uuid, list[wire.DeleteReplicasPartitionResult]] = defaultdict(list)
    for (topic_id, number), error in results.items():
        by_topic[topic_id].append(
            wire.DeleteReplicasPartitionResult(partition_index=number, error_code=error)
        )
    return wire.DeleteReplicasResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.DeleteReplicasTopicResult(topic_id=topic_id, partitions=tuple(listed))
            for topic_id, listed in by_topic.items()
        ),
    )
