"""DeleteReplicas (key 1002): the controller has this broker delete replicas, named by topic id.

Behaviour: only partition directories with that topic id are deleted, in any log directory; a
           replica that is not here counts as deleted, so that a repeated request has the same
           result. This broker's metadata must have the deletion: the id is in its deletion ledger,
           and no topic's any more. It waits for that, since the request mostly comes some
           milliseconds earlier; after a second the result is OPERATION_NOT_ATTEMPTED, and the
           controller retries: this broker may yet create the replica as it replays older records,
           so "deleted" would be wrong. Once the ledger entry is dropped no controller waits for a
           response. KAFKA_STORAGE_ERROR while a log directory that may hold the replica is offline,
           until it is back or given up; this is logged, but not each time
           (`broker.deletion_failures`). Answered once the directories are durably renamed and the
           checkpoints are rewritten; where the latter fails, the rename is enough (see
           `ottla.log.dirs.replica_deletion`). The files are removed after file.delete.delay.ms.
Epochs:    an older broker epoch than this registration's is STALE_BROKER_EPOCH, a newer one is
           accepted, -1 = any; an older controller epoch than the known one is
           STALE_CONTROLLER_EPOCH.
Versions:  v0. Ottla's own; not advertised, served on the inter-broker listener.
Not done:  nothing.
"""

from collections import defaultdict
from collections.abc import Hashable
from typing import Final

from ottla.base.authorizer import Operation
from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context
from ottla.broker.api.order_epochs import check_order_epochs
from ottla.broker.core import Broker
from ottla.broker.logs.deletion_failures import Failure
from ottla.broker.ports import CloseConnection, Message
from ottla.log.dirs.replica_deletion import Removed, Replica, remove_replicas
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import delete_replicas as wire

API = Api(
    key=1002,
    versions=range(1),
    advertised=NOBODY,
    listeners=BROKERS,
    zookeeper=NOWHERE,
    cluster_operation=Operation.CLUSTER_ACTION,
)

METADATA_WAIT_MS: Final = 1_000
"""How long a request waits for the deletion in this broker's metadata."""


def handle(ctx: Context, request: wire.DeleteReplicasRequest) -> Answer:
    """Check the sender; wait until this broker's metadata has the deletions; delete."""
    broker = ctx.broker
    if ctx.connection.listener_name != broker.config.inter_broker_listener_name:
        raise CloseConnection("DeleteReplicas is served between nodes only")
    error = check_order_epochs(
        broker, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )
    if error is not Error.NONE:
        return wire.DeleteReplicasResponse(error_code=error)
    topic_ids = tuple(dict.fromkeys(topic.topic_id for topic in request.topics))
    answer: Pending[Message] = Pending()

    def delete() -> None:
        _delete(broker, request).then(keep)

    def keep(response: wire.DeleteReplicasResponse) -> None:
        answer.complete(response)

    def attempt() -> bool:
        knows_all = all(_is_deleted(broker.image, each) for each in topic_ids)
        if knows_all:
            delete()
        return knows_all

    if not attempt():
        broker.topic_deletion_purgatory.add(
            topic_ids,
            attempt=attempt,
            expire=delete,
            deadline_ms=ctx.monotonic_ms + METADATA_WAIT_MS,
            closed=ctx.connection.closed,
        )
    return answer


def _delete(
    broker: Broker, request: wire.DeleteReplicasRequest
) -> Pending[wire.DeleteReplicasResponse]:
    """Delete the replicas of topics that are deleted in this broker's metadata; respond for all."""
    requested = [
        (topic.topic_id, partition_id)
        for topic in request.topics
        for partition_id in topic.partitions
    ]
    results = dict.fromkeys(requested, Error.OPERATION_NOT_ATTEMPTED)
    unwanted = [replica for replica in results if _is_deleted(broker.image, replica[0])]
    entries = (broker.image.deletions.of(topic_id) for topic_id, _ in unwanted)
    topics = {entry.topic_id: entry.name for entry in entries if entry is not None}

    def answer(removed: Removed) -> wire.DeleteReplicasResponse:
        for replica, failure in removed.items():
            results[replica] = Error.NONE if failure is None else Error.KAFKA_STORAGE_ERROR
        _log_failures(broker, removed)
        return _response(results)

    return remove_replicas(broker.log_dirs, unwanted, topics).map(answer)


def _log_failures(broker: Broker, removed: Removed) -> None:
    """Log the replicas that could not be deleted, and why."""
    failed: dict[Hashable, Failure] = {}
    for (topic_id, partition_id), error in removed.items():
        if error is not None:
            deletion = broker.image.deletions.of(topic_id)
            topic = str(topic_id) if deletion is None else deletion.name
            failed[topic_id, partition_id] = Failure(f"{topic}-{partition_id}", error)
    broker.deletion_failures.log_new(
        failed, gone=removed.keys() - failed.keys(), now_ms=broker.clock.monotonic_ms()
    )


def _is_deleted(image: ClusterImage, topic_id: Uuid) -> bool:
    """Tell whether this broker's metadata says that the topic was deleted."""
    is_listed = image.deletions.of(topic_id) is not None
    return is_listed and image.topics.by_id(topic_id) is None


def _response(results: dict[Replica, Error]) -> wire.DeleteReplicasResponse:
    by_topic: dict[Uuid, list[wire.DeleteReplicasPartitionResult]] = defaultdict(list)
    for (topic_id, partition_id), error in results.items():
        by_topic[topic_id].append(
            wire.DeleteReplicasPartitionResult(partition_index=partition_id, error_code=error)
        )
    return wire.DeleteReplicasResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.DeleteReplicasTopicResult(topic_id=topic_id, partitions=tuple(listed))
            for topic_id, listed in by_topic.items()
        ),
    )
