"""ReadShareGroupStateSummary (key 87). Source:
ReadShareGroupStateSummary{Request,Response}.json.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, INT64, STRING, UUID, array, field, message, struct_of


@struct_of
class PartitionData:
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct_of
class ReadStateSummaryData:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str = field(STRING)
    topics: tuple[ReadStateSummaryData, ...] = field(array(ReadStateSummaryData))


@struct_of
class PartitionResult:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, versions="1+", default=-1)


@struct_of
class ReadStateSummaryResult:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionResult, ...] = field(array(PartitionResult))


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: tuple[ReadStateSummaryResult, ...] = field(array(ReadStateSummaryResult))
