"""AlterReplicaLogDirs (key 34). Source: AlterReplicaLogDirs{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class AlterReplicaLogDirTopic:
    name: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@struct_of
class AlterReplicaLogDir:
    path: str = field(STRING)
    topics: tuple[AlterReplicaLogDirTopic, ...] = field(array(AlterReplicaLogDirTopic))


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: tuple[AlterReplicaLogDir, ...] = field(array(AlterReplicaLogDir))


@struct_of
class AlterReplicaLogDirPartitionResult:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct_of
class AlterReplicaLogDirTopicResult:
    topic_name: str = field(STRING)
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = field(
        array(AlterReplicaLogDirPartitionResult)
    )


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: tuple[AlterReplicaLogDirTopicResult, ...] = field(array(AlterReplicaLogDirTopicResult))
