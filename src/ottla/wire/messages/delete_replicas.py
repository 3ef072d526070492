"""DeleteReplicas (key 1002): the controller has a broker delete replicas, named by topic id.

Ottla's own, spoken between its nodes only. StopReplica knows no topic ids, so that a late one
could meet a new topic of the old name; this one cannot.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, INT64, UUID, array, field, message, struct_of


@struct_of
class DeleteReplicasTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[int, ...] = field(array(INT32))


@message(key=1002, versions="0", flexible="0+")
class DeleteReplicasRequest:
    controller_id: int = field(INT32)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    """The broker's registration that is meant; -1 = any."""
    topics: tuple[DeleteReplicasTopic, ...] = field(array(DeleteReplicasTopic))


@struct_of
class DeleteReplicasPartitionResult:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    """0 = this broker holds no log of it, whether it had one or not."""


@struct_of
class DeleteReplicasTopicResult:
    topic_id: Uuid = field(UUID)
    partitions: tuple[DeleteReplicasPartitionResult, ...] = field(
        array(DeleteReplicasPartitionResult)
    )


@message(key=1002, versions="0", flexible="0+")
class DeleteReplicasResponse:
    error_code: int = field(INT16)
    """Where it is not 0 nothing was done, and no topic is named."""
    topics: tuple[DeleteReplicasTopicResult, ...] = field(
        array(DeleteReplicasTopicResult), default=()
    )
