"""StopReplica (key 5): the controller has this broker stop following replicas, or delete them.

Behaviour: stopped replicas are followed again with the next LeaderAndIsr that names them. A
           deletion is answered once the replica's name is gone durably and the checkpoints are
           written anew; where these cannot be, a name that is gone is (see
           `ottla.log.replica_deletion`). The bytes follow after file.delete.delay.ms. What is not
           here counts as deleted, and what the metadata does not know of but the disk has is
           deleted, too (KAFKA-1397).
           KAFKA_STORAGE_ERROR where a log folder is offline that may hold the replica (KAFKA-9946).
Epochs:    of broker and controller as LeaderAndIsr. A leader epoch that is older than the
           replica's is FENCED_LEADER_EPOCH; the same one counts, and so does -1, unknown (KIP-570,
           KAFKA-9539). -2, which a deletion of the whole topic carries, counts once the topic was
           told to go: a late copy of it must not hit a new topic of that name. Ottla's controllers
           say which topic they mean (a tagged field): of that one everything goes, what a start
           has set aside, too, and one that has the name since is left alone.
Versions:  v3 epochs and deletion by partition; v4 KRaft controllers, which there are none of
           here. Older ones are not served.
Not done:  authorization.
"""

import errno
from collections.abc import Hashable
from typing import Final

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.broker.removal_failures import Failure
from ottla.broker.zk_metadata import PartitionName, ZkMetadataPort, is_late
from ottla.broker.zk_replica_drops import drop_replicas
from ottla.log.replica_deletion import Removed, Replica, remove_replicas
from ottla.wire.messages import stop_replica as wire

API = Api(
    key=5,
    versions=range(3, 5),
    advertised=NOBODY,
    listeners=NOWHERE,
    zookeeper=BROKERS,
    acl="cluster:cluster-action",
)

UNPROVEN: Final = OSError(errno.EIO, "a log folder that may hold them is offline")


def handle(ctx: Context, request: wire.StopReplicaRequest) -> Answer:
    """Check who tells, stop what counts, then delete what is to go."""
    broker = ctx.broker
    zk_metadata = broker.zk_metadata
    assert zk_metadata is not None, "served where brokers are told by requests only"
    error = zk_metadata.facts.check_sender(
        broker_epoch=request.broker_epoch,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
    )
    if error is not Error.NONE:
        return wire.StopReplicaResponse(error_code=error, partition_errors=())
    results: dict[PartitionName, Error] = {}
    stopped: list[Partition] = []
    doomed: dict[PartitionName, set[Uuid]] = {}
    late: dict[Replica, str] = {}
    for topic in request.topic_states:
        for state in topic.partition_states:
            name = (topic.topic_name, state.partition_index)
            if is_late(zk_metadata.image, topic.topic_name, topic.topic_id):
                # Not a byte of its successor may go; what is left of the topic that is meant may.
                results[name] = Error.NONE
                if state.delete_partition:
                    late[topic.topic_id, name[1]] = topic.topic_name
                continue
            results[name] = zk_metadata.facts.may_stop(zk_metadata.image, name, state.leader_epoch)
            if results[name] is not Error.NONE:
                continue
            if state.delete_partition:
                doomed[name] = _meant(broker, zk_metadata, name, topic.topic_id)
                continue
            try:
                partition = broker.replicas.partition(*name)
            except ApiError:
                continue  # It is not here, and thus not followed.
            stopped.append(partition)
            if partition.log is None:
                results[name] = Error.KAFKA_STORAGE_ERROR
    broker.fetchers.halt(stopped)
    if not doomed and not late:
        return _response(results)
    return _delete(broker, zk_metadata, doomed, late, results)


def _delete(
    broker: Broker,
    zk_metadata: ZkMetadataPort,
    doomed: dict[PartitionName, set[Uuid]],
    late: dict[Replica, str],
    results: dict[PartitionName, Error],
) -> Answer:
    drop_replicas(broker, zk_metadata, zk_metadata.facts.dropped(zk_metadata.image, doomed), doomed)
    replicas = late | {(each, name[1]): name[0] for name, ids in doomed.items() for each in ids}
    topics = {topic_id: topic for (topic_id, _), topic in replicas.items()}

    def answer(removed: Removed) -> wire.StopReplicaResponse:
        failed: dict[Hashable, Failure] = {}
        for name, ids in doomed.items():
            failures = [removed[each, name[1]] for each in ids]
            # The second: the folder failed later than in the moment in which it was to go.
            offline = zk_metadata.facts.unproven.get(
                name, set()
            ) | broker.log_dirs.offline_topic_ids(*name)
            if ids & offline or any(_counts(broker, each) for each in failures):
                error = next((each for each in failures if each is not None), UNPROVEN)
                failed[name] = Failure(f"{name[0]}-{name[1]}", error)
                results[name] = Error.KAFKA_STORAGE_ERROR
        broker.removal_failures.tell(
            failed, gone=doomed.keys() - failed.keys(), now_ms=broker.clock.monotonic_ms()
        )
        return _response(results)

    return remove_replicas(broker.log_dirs, replicas, topics).map(answer)


def _meant(
    broker: Broker, zk_metadata: ZkMetadataPort, name: PartitionName, topic_id: Uuid
) -> set[Uuid]:
    """Return the topic that is meant, or those that may be where the request does not say."""
    if topic_id != NO_UUID:
        return {topic_id}
    known = zk_metadata.image.topics.id_of(name[0]) or zk_metadata.facts.deleted.get(name[0])
    if known is not None:
        found = {known}
    else:
        found = zk_metadata.facts.unproven.get(name, set()) | broker.log_dirs.offline_topic_ids(
            *name
        )
    here = broker.log_dirs.get(*name)
    if here is not None:
        found.add(here.topic_id)
    return found


def _counts(broker: Broker, failure: OSError | None) -> bool:
    """Tell whether a failure is one: a folder that is offline but had nothing of it is none."""
    offline = [directory.error for directory in broker.log_dirs.offline_dirs]
    return failure is not None and not any(failure is each for each in offline)


def _response(results: dict[PartitionName, Error]) -> wire.StopReplicaResponse:
    return wire.StopReplicaResponse(
        error_code=Error.NONE,
        partition_errors=tuple(
            wire.StopReplicaPartitionError(
                topic_name=topic, partition_index=number, error_code=error
            )
            for (topic, number), error in results.items()
        ),
    )
