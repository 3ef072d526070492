"""AssignReplicasToDirs (key 73): a broker reports its replicas' log directories (KIP-858).

Behaviour: each replica has its own result. A replica in an offline directory is removed from the
           ISR, and loses its leadership.
Versions:  v0.
"""

from collections.abc import Iterable
from itertools import groupby

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context, RunsOn
from ottla.controller.brokers.directories import DirectoryAssignment, assign_directories
from ottla.wire.messages import assign_replicas_to_dirs as wire

API = Api(
    key=73,
    versions=range(1),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)

Placed = tuple[DirectoryAssignment, Error]


def handle(ctx: Context, request: wire.AssignReplicasToDirsRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = [
        DirectoryAssignment(directory.id, topic.topic_id, partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    context = ctx.controller.context
    return ctx.controller.run(
        lambda image: assign_directories(
            image,
            wanted,
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            context=context,
        )
    ).map(_answer)


def _answer(reply: tuple[Placed, ...] | ApiError) -> wire.AssignReplicasToDirsResponse:
    if isinstance(reply, ApiError):
        return wire.AssignReplicasToDirsResponse(error_code=reply.error, directories=())
    directories = groupby(reply, key=lambda each: each[0].directory)
    return wire.AssignReplicasToDirsResponse(
        error_code=Error.NONE,
        directories=tuple(
            wire.ResponseDirectoryData(id=directory, topics=_topics(placed))
            for directory, placed in directories
        ),
    )


def _topics(placed: Iterable[Placed]) -> tuple[wire.ResponseTopicData, ...]:
    topics = groupby(placed, key=lambda each: each[0].topic_id)
    return tuple(
        wire.ResponseTopicData(
            topic_id=topic_id,
            partitions=tuple(
                wire.ResponsePartitionData(partition_index=place.partition_id, error_code=error)
                for place, error in found
            ),
        )
        for topic_id, found in topics
    )
