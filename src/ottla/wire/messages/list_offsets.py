"""ListOffsets (key 2). Source: ListOffsets{Request,Response}.json; KIP-405, KIP-734, KIP-1005,
KIP-1023, KIP-1075.
"""

from ottla.wire.schema import INT8, INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class ListOffsetsPartition:
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, versions="4+", default=-1, ignorable=True)
    timestamp: int = field(INT64)
    """Milliseconds, or -1 = latest, -2 = earliest, -3 = of the greatest timestamp (KIP-734),
    -4 = earliest local (KIP-405), -5 = latest tiered (KIP-1005), -6 = earliest not yet tiered
    (KIP-1023).
    """
    max_num_offsets: int = field(INT32, versions="0", default=1)


@struct_of
class ListOffsetsTopic:
    name: str = field(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = field(array(ListOffsetsPartition))


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, versions="2+", default=0)
    topics: tuple[ListOffsetsTopic, ...] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, versions="10+", default=0, ignorable=True)


@struct_of
class ListOffsetsPartitionResponse:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    old_style_offsets: tuple[int, ...] = field(array(INT64), versions="0", default=())
    timestamp: int = field(INT64, versions="1+", default=-1)
    offset: int = field(INT64, versions="1+", default=-1)
    leader_epoch: int = field(INT32, versions="4+", default=-1)


@struct_of
class ListOffsetsTopicResponse:
    name: str = field(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = field(
        array(ListOffsetsPartitionResponse)
    )


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = field(INT32, versions="2+", default=0, ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = field(array(ListOffsetsTopicResponse))
