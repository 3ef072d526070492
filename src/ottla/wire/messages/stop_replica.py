"""StopReplica (key 5). Source: StopReplica{Request,Response}.json; KIP-570, KIP-866."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    message,
    struct_of,
)

TOPIC_ID_TAG = 10003


@struct_of
class StopReplicaPartitionV0:
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


@struct_of
class StopReplicaTopicV1:
    name: str = field(STRING)
    partition_indexes: tuple[int, ...] = field(array(INT32))


@struct_of
class StopReplicaPartitionState:
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    delete_partition: bool = field(BOOL)
    """Also delete the data, not only stop serving."""


@struct_of
class StopReplicaTopicState:
    topic_name: str = field(STRING)
    partition_states: tuple[StopReplicaPartitionState, ...] = field(
        array(StopReplicaPartitionState)
    )
    topic_id: Uuid = field(UUID, versions="3+", tag=TOPIC_ID_TAG, default=NO_UUID)
    """Ottla's own: which topic of that name is meant; zero where the sender does not say."""


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaRequest:
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOL, versions="4+", default=False)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, versions="1+", default=-1, ignorable=True)
    delete_partitions: bool = field(BOOL, versions="0-2", default=False)
    ungrouped_partitions: tuple[StopReplicaPartitionV0, ...] = field(
        array(StopReplicaPartitionV0), versions="0", default=()
    )
    topics: tuple[StopReplicaTopicV1, ...] = field(
        array(StopReplicaTopicV1), versions="1-2", default=()
    )
    topic_states: tuple[StopReplicaTopicState, ...] = field(
        array(StopReplicaTopicState), versions="3+", default=()
    )


@struct_of
class StopReplicaPartitionError:
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaResponse:
    error_code: int = field(INT16)
    partition_errors: tuple[StopReplicaPartitionError, ...] = field(
        array(StopReplicaPartitionError)
    )
