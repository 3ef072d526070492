"""DescribeLogDirs (key 35). Source: DescribeLogDirs{Request,Response}.json."""

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class DescribableLogDirTopic:
    topic: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: tuple[DescribableLogDirTopic, ...] | None = field(
        array(DescribableLogDirTopic), nullable="0+"
    )
    """None = all topics."""


@struct_of
class DescribeLogDirsPartition:
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)
    """The copy that is being moved here from another log directory."""


@struct_of
class DescribeLogDirsTopic:
    name: str = field(STRING)
    partitions: tuple[DescribeLogDirsPartition, ...] = field(array(DescribeLogDirsPartition))


@struct_of
class DescribeLogDirsResult:
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: tuple[DescribeLogDirsTopic, ...] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, versions="4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, versions="4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, versions="5+", default=False, ignorable=True)


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, versions="3+", default=0, ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = field(array(DescribeLogDirsResult))
