"""OffsetForLeaderEpoch (key 23). Source: OffsetForLeaderEpoch{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class OffsetForLeaderPartition:
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, versions="2+", default=-1, ignorable=True)
    leader_epoch: int = field(INT32)


@struct_of
class OffsetForLeaderTopic:
    topic: str = field(STRING)
    partitions: tuple[OffsetForLeaderPartition, ...] = field(array(OffsetForLeaderPartition))


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = field(INT32, versions="3+", default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = field(array(OffsetForLeaderTopic))


@struct_of
class EpochEndOffset:
    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, versions="1+", default=-1, ignorable=True)
    end_offset: int = field(INT64, default=-1)
    """Where that epoch ends, exclusive; -1 = unknown."""


@struct_of
class OffsetForLeaderTopicResult:
    topic: str = field(STRING)
    partitions: tuple[EpochEndOffset, ...] = field(array(EpochEndOffset))


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = field(INT32, versions="2+", default=0, ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = field(array(OffsetForLeaderTopicResult))
