"""TxnOffsetCommit (key 28). Source: TxnOffsetCommit{Request,Response}.json; KIP-890."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class TxnOffsetCommitRequestPartition:
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, versions="2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable="0+")


@struct_of
class TxnOffsetCommitRequestTopic:
    name: str = field(STRING)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = field(
        array(TxnOffsetCommitRequestPartition)
    )


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, versions="3+", default=-1)
    member_id: str = field(STRING, versions="3+", default="")
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = field(array(TxnOffsetCommitRequestTopic))


@struct_of
class TxnOffsetCommitResponsePartition:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct_of
class TxnOffsetCommitResponseTopic:
    name: str = field(STRING)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = field(
        array(TxnOffsetCommitResponsePartition)
    )


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = field(INT32, default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = field(array(TxnOffsetCommitResponseTopic))
