"""DisableRemoteTopic (key 1001): the controller has this broker stop tiering topics.

Behaviour: this broker's metadata tell what to do, and it has begun when they came; the request asks
           whether it is done. Per partition NONE once it is: this leader's fence with the tiered
           epoch is replayed, so that no copy of an earlier epoch counts any more; with the policy
           delete the log starts with its local files, and on a follower none of the records from
           there on is missing. A replica that is not here has nothing to stop.
           TIERED_STORAGE_DISABLEMENT_IN_PROGRESS: not yet, ask again.
           OPERATION_NOT_ATTEMPTED: these metadata do not have the tiered epoch yet, or this leader
           has no remote storage. KAFKA_STORAGE_ERROR: it leads a log that is offline.
           FENCED_STATE_EPOCH: the tiered epoch is older than the known one.
           UNKNOWN_TOPIC_ID: the topic was deleted, which ends its remote storage, too.
           The response comes after WAIT_MS at the latest, so that no order waits behind it.
Epochs:    as DeleteReplicas.
Versions:  v0. Ottla's own; not advertised, served on the inter-broker listener, in both modes.
Not done:  nothing.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, gather
from ottla.broker.api.base import BROKERS, NOBODY, Answer, Api, Context
from ottla.broker.api.order_epochs import check_order_epochs
from ottla.broker.core import Broker
from ottla.broker.partition import Partition
from ottla.broker.ports import CloseConnection, Message
from ottla.metadata.tiering import DisablePolicy, TopicTiering
from ottla.wire.messages import disable_remote_topic as wire

API = Api(
    key=1001,
    versions=range(1),
    advertised=NOBODY,
    listeners=BROKERS,
    cluster_operation=Operation.CLUSTER_ACTION,
)

WAIT_MS: Final = 200
"""How long a request waits until all of it is done. A fence takes some tens of milliseconds."""

IN_PROGRESS: Final = Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS

_Result = wire.DisableRemoteTopicPartitionResult


def handle(ctx: Context, request: wire.DisableRemoteTopicRequest) -> Answer:
    """Check the sender; wait a little for the metadata and for what they have begun; answer."""
    broker = ctx.broker
    if ctx.connection.listener_name != broker.config.inter_broker_listener_name:
        raise CloseConnection("DisableRemoteTopic is served between nodes only")
    error = _check_epochs(broker, request)
    if error is not Error.NONE:
        return wire.DisableRemoteTopicResponse(error_code=error)
    answer: Pending[Message] = Pending()
    deadline_ms = ctx.monotonic_ms + WAIT_MS

    def respond(_none: object = None) -> None:
        answer.complete(_response(broker, request))

    def wait_for_leaders() -> None:
        timer = broker.timers.at(deadline_ms, respond)
        answer.then(lambda _: timer.cancel())
        gather(list(_unfinished(broker, request))).then(respond)

    def attempt() -> bool:
        knows_all = all(_is_known(broker, each) for each in request.topics)
        if knows_all:
            wait_for_leaders()
        return knows_all

    if not attempt():
        broker.tiering_purgatory.add(
            tuple(dict.fromkeys(topic.topic_id for topic in request.topics)),
            attempt=attempt,
            expire=respond,
            deadline_ms=deadline_ms,
            closed=ctx.connection.closed,
        )
    return answer


def _check_epochs(broker: Broker, request: wire.DisableRemoteTopicRequest) -> Error:
    if broker.zk_metadata is not None:
        return broker.zk_metadata.facts.check_sender(
            broker_epoch=request.broker_epoch,
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
        )
    return check_order_epochs(
        broker, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )


def _is_known(broker: Broker, topic: wire.DisableRemoteTopicTopic) -> bool:
    """Tell whether this broker's metadata have the tiered epoch, or the topic's deletion."""
    tiering = broker.image.tiering.get(topic.topic_id)
    if tiering is not None:
        return tiering.tiered_epoch >= topic.tiered_epoch
    return _is_deleted(broker, topic)


def _is_deleted(broker: Broker, topic: wire.DisableRemoteTopicTopic) -> bool:
    """Tell whether the topic was deleted, and is not one that is to come.

    Over ZooKeeper a controller names each topic before it orders anything about it.
    """
    if broker.image.topics.by_id(topic.topic_id) is not None:
        return False
    is_listed = broker.image.deletions.of(topic.topic_id) is not None
    return is_listed or broker.zk_metadata is not None


def _unfinished(broker: Broker, request: wire.DisableRemoteTopicRequest) -> Iterator[Pending[None]]:
    """Yield the promises of the leaders that have not followed yet."""
    remote = broker.remote
    for topic in request.topics if remote is not None else ():
        tiering = broker.image.tiering.get(topic.topic_id)
        if tiering is None or tiering.tiered_epoch != topic.tiered_epoch:
            continue
        for each in topic.partitions:
            assert remote is not None
            opened = remote.manager.opened(topic.topic_id, each)
            if opened is not None and not opened.done:
                yield opened


def _response(
    broker: Broker, request: wire.DisableRemoteTopicRequest
) -> wire.DisableRemoteTopicResponse:
    return wire.DisableRemoteTopicResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.DisableRemoteTopicTopicResult(
                topic_id=topic.topic_id,
                tiered_epoch=topic.tiered_epoch,
                partitions=tuple(_result(broker, topic, each) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _result(broker: Broker, topic: wire.DisableRemoteTopicTopic, partition_id: int) -> _Result:
    tiering = broker.image.tiering.get(topic.topic_id)
    if tiering is None:
        is_over = _is_deleted(broker, topic)
        error = Error.UNKNOWN_TOPIC_ID if is_over else Error.OPERATION_NOT_ATTEMPTED
        return _Result(partition_index=partition_id, error_code=error)
    if tiering.tiered_epoch != topic.tiered_epoch:
        is_stale = tiering.tiered_epoch > topic.tiered_epoch
        error = Error.FENCED_STATE_EPOCH if is_stale else Error.OPERATION_NOT_ATTEMPTED
        return _Result(partition_index=partition_id, error_code=error)
    try:
        partition = broker.replicas.partition_by_id(topic.topic_id, partition_id)
    except ApiError:
        return _Result(partition_index=partition_id, error_code=Error.NONE)
    found = (
        _of_leader(broker, partition) if partition.is_leader else _of_follower(partition, tiering)
    )
    log = partition.log
    return _Result(
        partition_index=partition_id,
        error_code=found.error,
        role=wire.LEADER if partition.is_leader else wire.FOLLOWER,
        leader_epoch=partition.leader_epoch,
        log_start_offset=-1 if log is None else log.log_start_offset,
        remaining_segments=found.remaining,
    )


class _Found(NamedTuple):
    """A partition's result. `remaining`: remote segments that are not marked as deleted; -1 = not
    known."""

    error: Error
    remaining: int = -1


def _of_leader(broker: Broker, partition: Partition) -> _Found:
    key = partition.topic_id, partition.partition_id
    if partition.log is None or partition.log.failed:
        return _Found(Error.KAFKA_STORAGE_ERROR)
    opened = None if broker.remote is None else broker.remote.manager.opened(*key)
    if broker.remote is None or opened is None:
        return _Found(Error.OPERATION_NOT_ATTEMPTED)
    remote = broker.remote.metadata.remote_log(*key)
    remaining = -1 if remote is None else remote.count - len(remote.deleting())
    return _Found(Error.NONE if opened.done else IN_PROGRESS, remaining)


def _of_follower(partition: Partition, tiering: TopicTiering) -> _Found:
    """Return the result of a replica that follows, or whose log directory is offline.

    The latter is out of sync, and follows its leader when it is back.
    """
    log = partition.log
    gives_up = tiering.policy is DisablePolicy.DELETE
    if log is None or log.failed or not gives_up:
        return _Found(Error.NONE)
    # A local log start that is not durable yet would be the old one after a crash.
    is_behind = log.has_remote_prefix or log.retention.prepends
    return _Found(IN_PROGRESS if is_behind else Error.NONE)
