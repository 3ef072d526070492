"""WriteTxnMarkers (key 27). Source: WriteTxnMarkers{Request,Response}.json; KIP-1228."""

from ottla.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class WritableTxnMarkerTopic:
    name: str = field(STRING)
    partition_indexes: tuple[int, ...] = field(array(INT32))


@struct_of
class WritableTxnMarker:
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOL)
    """True = commit, False = abort."""
    topics: tuple[WritableTxnMarkerTopic, ...] = field(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(INT32)
    transaction_version: int = field(INT8, versions="2+", default=0, ignorable=True)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...] = field(array(WritableTxnMarker))


@struct_of
class WritableTxnMarkerPartitionResult:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct_of
class WritableTxnMarkerTopicResult:
    name: str = field(STRING)
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = field(
        array(WritableTxnMarkerPartitionResult)
    )


@struct_of
class WritableTxnMarkerResult:
    producer_id: int = field(INT64)
    topics: tuple[WritableTxnMarkerTopicResult, ...] = field(array(WritableTxnMarkerTopicResult))


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: tuple[WritableTxnMarkerResult, ...] = field(array(WritableTxnMarkerResult))
