"""DescribeLogDirs (key 35): this broker's log directories, and the sizes of their logs.

Behaviour: null topics = all logs. An offline directory has KAFKA_STORAGE_ERROR and no topics.
           The offset lag is the high watermark minus the log end, or 0: always 0 for a leader.
Versions:  v1 throttles after the response; v2 flexible; v3 top-level error; v4 total and usable
           bytes of the file system (KIP-827).
Not done:  future logs: moving a log between log directories (KIP-113) is not supported.
"""

from collections.abc import Iterable

from ottla.base.authorizer import Operation
from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.broker.api.base import Answer, Api, Context
from ottla.log.dirs.log_dir import LogDir
from ottla.log.partition_log import PartitionLog
from ottla.wire.messages import describe_log_dirs as wire

API = Api(key=35, versions=range(1, 5), cluster_operation=Operation.DESCRIBE)

UNKNOWN_BYTES = -1

Space = dict[str, tuple[int, int]]
"""(total, free) bytes of the file system by log directory."""
NO_SPACE = (UNKNOWN_BYTES, UNKNOWN_BYTES)


def handle(ctx: Context, request: wire.DescribeLogDirsRequest) -> Answer:
    """Read the file systems' space in a worker, as that can block, then respond."""
    wanted = None
    if request.topics is not None:
        wanted = {
            (topic.topic, partition_id)
            for topic in request.topics
            for partition_id in topic.partitions
        }
    log_dirs = ctx.broker.log_dirs
    paths = [directory.path for directory in log_dirs.online_dirs]
    disk = log_dirs.ports.disk
    answer: Pending[wire.DescribeLogDirsResponse] = Pending()

    def measured(space: Space | BaseException) -> None:
        known = {} if isinstance(space, BaseException) else space
        answer.complete(
            wire.DescribeLogDirsResponse(
                results=tuple(_result(each, wanted, known) for each in log_dirs.dirs)
            )
        )

    ctx.broker.workers.submit(lambda: _measure(disk, paths), measured)
    return answer


def _measure(disk: Disk, paths: Iterable[str]) -> Space:
    space: Space = {}
    for path in paths:
        try:
            space[path] = (disk.total_bytes(path), disk.free_bytes(path))
        except OSError:
            space[path] = NO_SPACE
    return space


def _result(
    directory: LogDir, wanted: set[tuple[str, int]] | None, space: Space
) -> wire.DescribeLogDirsResult:
    if not directory.is_online:
        return wire.DescribeLogDirsResult(
            error_code=Error.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=()
        )
    by_topic: dict[str, list[PartitionLog]] = {}
    for key in sorted(directory.logs):
        if wanted is None or key in wanted:
            by_topic.setdefault(key[0], []).append(directory.logs[key])
    total, free = space.get(directory.path, NO_SPACE)
    return wire.DescribeLogDirsResult(
        error_code=Error.NONE,
        log_dir=directory.path,
        topics=tuple(
            wire.DescribeLogDirsTopic(name=topic, partitions=tuple(map(_partition, logs)))
            for topic, logs in by_topic.items()
        ),
        total_bytes=total,
        usable_bytes=free,
    )


def _partition(log: PartitionLog) -> wire.DescribeLogDirsPartition:
    return wire.DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size_bytes,
        offset_lag=max(log.high_watermark - log.log_end_offset, 0),
        is_future_key=False,
    )
