"""StopReplica (key 5): the controller has this broker stop fetching replicas, or delete them.

Behaviour: stopped replicas are fetched again after the next LeaderAndIsr that names them. A
           deletion is answered once the replica's directory is durably renamed and the checkpoints
           are rewritten; where the latter fails, the rename is enough (see
           `ottla.log.dirs.replica_deletion`). The files are removed after file.delete.delay.ms. A
           replica that is not here counts as deleted; one on the disk that the metadata does not
           have is deleted, too (KAFKA-1397).
           KAFKA_STORAGE_ERROR where a log directory that may hold the replica is offline
           (KAFKA-9946).
Epochs:    of broker and controller as LeaderAndIsr. A leader epoch older than the replica's is
           FENCED_LEADER_EPOCH; the same one passes, and so does -1, unknown (KIP-570, KAFKA-9539).
           -2, for the deletion of a whole topic, passes once UpdateMetadata has removed the topic:
           a late copy must not hit a new topic of that name. Ottla's controllers send the topic's
           id (a tagged field): then all of that topic's replicas are deleted, stray ones, too, and
           a topic that has the name since is left alone.
Versions:  v3 epochs and deletion by partition; v4 KRaft controllers, which do not exist in this
           mode. Older ones are not served.
Not done:  nothing.
"""

import errno
from collections.abc import Hashable
from typing import Final

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context
from ottla.broker.core import Broker
from ottla.broker.logs.deletion_failures import Failure
from ottla.broker.partition import Partition
from ottla.broker.zookeeper.zk_metadata import PartitionName, ZkMetadataPort, is_late
from ottla.broker.zookeeper.zk_replica_drops import drop_replicas, unconfirmed_ids
from ottla.log.dirs.replica_deletion import Removed, Replica, remove_replicas
from ottla.wire.messages import stop_replica as wire

API = Api(
    key=5,
    versions=range(3, 5),
    advertised=NOBODY,
    listeners=NOWHERE,
    zookeeper=BROKERS,
    cluster_operation=Operation.CLUSTER_ACTION,
)

OFFLINE_LOG_DIR: Final = OSError(errno.EIO, "a log directory that may hold them is offline")


def handle(ctx: Context, request: wire.StopReplicaRequest) -> Answer:
    """Check the epochs, stop replicas, then delete those to be deleted."""
    broker = ctx.broker
    zk_metadata = broker.zk_metadata
    assert zk_metadata is not None, "served in ZooKeeper mode only"
    error = zk_metadata.facts.check_sender(
        broker_epoch=request.broker_epoch,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
    )
    if error is not Error.NONE:
        return wire.StopReplicaResponse(error_code=error, partition_errors=())
    results: dict[PartitionName, Error] = {}
    stopped: list[Partition] = []
    to_delete: dict[PartitionName, set[Uuid]] = {}
    superseded: dict[Replica, str] = {}
    for topic in request.topic_states:
        for state in topic.partition_states:
            name = (topic.topic_name, state.partition_index)
            if is_late(zk_metadata.image, topic.topic_name, topic.topic_id):
                # The new topic of the name must not be touched; the rest of the old one is deleted.
                results[name] = Error.NONE
                if state.delete_partition:
                    superseded[topic.topic_id, name[1]] = topic.topic_name
                continue
            results[name] = zk_metadata.facts.may_stop(zk_metadata.image, name, state.leader_epoch)
            if results[name] is not Error.NONE:
                continue
            if state.delete_partition:
                to_delete[name] = _target_ids(broker, zk_metadata, name, topic.topic_id)
                continue
            try:
                partition = broker.replicas.partition(*name)
            except ApiError:
                continue  # It is not hosted, and thus not fetched.
            stopped.append(partition)
            if partition.log is None:
                results[name] = Error.KAFKA_STORAGE_ERROR
    broker.fetchers.suspend(stopped)
    if not to_delete and not superseded:
        return _response(results)
    return _delete(broker, zk_metadata, to_delete, superseded, results)


def _delete(
    broker: Broker,
    zk_metadata: ZkMetadataPort,
    to_delete: dict[PartitionName, set[Uuid]],
    superseded: dict[Replica, str],
    results: dict[PartitionName, Error],
) -> Answer:
    drop_replicas(
        broker, zk_metadata, zk_metadata.facts.dropped(zk_metadata.image, to_delete), to_delete
    )
    replicas = superseded | {
        (each, name[1]): name[0] for name, ids in to_delete.items() for each in ids
    }
    topics = {topic_id: topic for (topic_id, _), topic in replicas.items()}

    def answer(removed: Removed) -> wire.StopReplicaResponse:
        failed: dict[Hashable, Failure] = {}
        for name, ids in to_delete.items():
            failures = [removed[each, name[1]] for each in ids]
            # The second: of directories that failed after the replica was removed.
            unconfirmed = unconfirmed_ids(broker, zk_metadata.facts, name)
            offline = unconfirmed | broker.log_dirs.offline_topic_ids(*name)
            if ids & offline or any(_counts(broker, each) for each in failures):
                error = next((each for each in failures if each is not None), OFFLINE_LOG_DIR)
                failed[name] = Failure(f"{name[0]}-{name[1]}", error)
                results[name] = Error.KAFKA_STORAGE_ERROR
        broker.deletion_failures.log_new(
            failed, gone=to_delete.keys() - failed.keys(), now_ms=broker.clock.monotonic_ms()
        )
        return _response(results)

    return remove_replicas(broker.log_dirs, replicas, topics).map(answer)


def _target_ids(
    broker: Broker, zk_metadata: ZkMetadataPort, name: PartitionName, topic_id: Uuid
) -> set[Uuid]:
    """Return the request's topic id; without one, the ids of all topics that it may mean."""
    if topic_id != NO_UUID:
        return {topic_id}
    known = zk_metadata.image.topics.id_of(name[0]) or zk_metadata.facts.deleted_by_name.get(
        name[0]
    )
    if known is not None:
        found = {known}
    else:
        found = zk_metadata.facts.unconfirmed_deletions.get(
            name, set()
        ) | broker.log_dirs.offline_topic_ids(*name)
    here = broker.log_dirs.get(*name)
    if here is not None:
        found.add(here.topic_id)
    return found


def _counts(broker: Broker, failure: OSError | None) -> bool:
    """Tell whether a failure matters: that of an offline log directory alone does not."""
    offline = [directory.error for directory in broker.log_dirs.offline_dirs]
    return failure is not None and not any(failure is each for each in offline)


def _response(results: dict[PartitionName, Error]) -> wire.StopReplicaResponse:
    return wire.StopReplicaResponse(
        error_code=Error.NONE,
        partition_errors=tuple(
            wire.StopReplicaPartitionError(
                topic_name=topic, partition_index=partition_id, error_code=error
            )
            for (topic, partition_id), error in results.items()
        ),
    )
