"""DeleteRecords (key 21). Source: DeleteRecords{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class DeleteRecordsPartition:
    partition_index: int = field(INT32)
    offset: int = field(INT64)
    """Delete up to this, exclusive; -1 = up to the high watermark."""


@struct_of
class DeleteRecordsTopic:
    name: str = field(STRING)
    partitions: tuple[DeleteRecordsPartition, ...] = field(array(DeleteRecordsPartition))


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


@struct_of
class DeleteRecordsPartitionResult:
    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


@struct_of
class DeleteRecordsTopicResult:
    name: str = field(STRING)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = field(
        array(DeleteRecordsPartitionResult)
    )


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = field(array(DeleteRecordsTopicResult))
