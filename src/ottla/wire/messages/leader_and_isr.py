"""LeaderAndIsr (key 4). Source: LeaderAndIsr{Request,Response}.json; KIP-516, KIP-704, KIP-866."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.messages.topic_tiering import TAG, TopicTieringState
from ottla.wire.schema import (
    BOOL,
    INT8,
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


@struct_of
class LeaderAndIsrPartitionState:
    topic_name: str = field(STRING, versions="0-1", default="", ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: tuple[int, ...] = field(array(INT32))
    partition_epoch: int = field(INT32)
    replicas: tuple[int, ...] = field(array(INT32))
    adding_replicas: tuple[int, ...] = field(
        array(INT32), versions="3+", default=(), ignorable=True
    )
    removing_replicas: tuple[int, ...] = field(
        array(INT32), versions="3+", default=(), ignorable=True
    )
    is_new: bool = field(BOOL, versions="1+", default=False, ignorable=True)
    leader_recovery_state: int = field(INT8, versions="6+", default=0)
    """1 = recovering from an unclean election, 0 = recovered."""


@struct_of
class LeaderAndIsrTopicState:
    topic_name: str = field(STRING)
    topic_id: Uuid = field(UUID, versions="5+", default=NO_UUID, ignorable=True)
    partition_states: tuple[LeaderAndIsrPartitionState, ...] = field(
        array(LeaderAndIsrPartitionState)
    )
    tiering: TopicTieringState | None = field(
        TopicTieringState, versions="4+", nullable="4+", tag=TAG, default=None, ignorable=True
    )
    """None = the topic never had remote storage."""


@struct_of
class LeaderAndIsrLiveLeader:
    broker_id: int = field(INT32)
    host_name: str = field(STRING)
    port: int = field(INT32)


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest:
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOL, versions="7+", default=False)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, versions="2+", default=-1, ignorable=True)
    type: int = field(INT8, versions="5+", default=0)
    """0 = unknown; 1 = some of its partitions; 2 = all: what is not named is stray."""
    ungrouped_partition_states: tuple[LeaderAndIsrPartitionState, ...] = field(
        array(LeaderAndIsrPartitionState), versions="0-1", default=()
    )
    topic_states: tuple[LeaderAndIsrTopicState, ...] = field(
        array(LeaderAndIsrTopicState), versions="2+", default=()
    )
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = field(array(LeaderAndIsrLiveLeader))


@struct_of
class LeaderAndIsrPartitionError:
    topic_name: str = field(STRING, versions="0-4", default="", ignorable=True)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct_of
class LeaderAndIsrTopicError:
    topic_id: Uuid = field(UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...] = field(
        array(LeaderAndIsrPartitionError)
    )


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrResponse:
    error_code: int = field(INT16)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...] = field(
        array(LeaderAndIsrPartitionError), versions="0-4", default=()
    )
    topics: tuple[LeaderAndIsrTopicError, ...] = field(
        array(LeaderAndIsrTopicError), versions="5+", default=()
    )
