"""A node's properties about logs: segments, retention, flushing, compaction.

Source: ServerLogConfigs, CleanerConfig, LogConfig, Kafka 4.0; KIP-1030.
"""

from typing import Final

from ottla.metadata.config_def import (
    COMPRESSION_TYPES,
    DAY_MS,
    DOUBLE_MAX,
    GZIP_LEVELS,
    LONG_MAX,
    LZ4_LEVELS,
    SEGMENT_BYTES_MIN,
    ZSTD_LEVELS,
    ConfigKey,
    Type,
    Update,
    at_least,
    between,
    each_of,
    one_of,
)

_K = ConfigKey
_BOOL, _STRING, _INT, _LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG
_LIST, _DOUBLE = Type.LIST, Type.DOUBLE
_ALL = Update.CLUSTER_WIDE

DIRECTORIES: Final = (
    _K("log.dir", _STRING, "/tmp/kafka-logs", "The log directory where log.dirs is not set."),
    _K("log.dirs", _STRING, None, "The log directories, with commas; log.dir where not set."),
    _K("metadata.log.dir", _STRING, None, "Where the metadata log is; the first log directory."),
    _K(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "Threads that recover a log directory's logs after an unclean stop.",
        at_least(1),
    ),
    _K(
        "log.dir.failure.timeout.ms",
        _LONG,
        30_000,
        "Without an effect: a broker reports failed log directories as long as it runs.",
        at_least(1),
    ),
    _K(
        "log.initial.task.delay.ms",
        _LONG,
        30_000,
        "How long after the start the logs' background work begins.",
        at_least(0),
        internal=True,
    ),
)

SEGMENTS: Final = (
    _K(
        "log.segment.bytes",
        _INT,
        1 << 30,
        "The size at which a segment is closed.",
        at_least(SEGMENT_BYTES_MIN),
        _ALL,
    ),
    _K("log.roll.ms", _LONG, None, "The age at which a segment is closed.", at_least(1), _ALL),
    _K("log.roll.hours", _INT, 168, "The same in hours, where log.roll.ms is not.", at_least(1)),
    _K(
        "log.roll.jitter.ms",
        _LONG,
        None,
        "The most that is randomly taken off that age.",
        at_least(0),
        _ALL,
    ),
    _K("log.roll.jitter.hours", _INT, 0, "The same in hours.", at_least(0)),
    _K(
        "log.index.size.max.bytes",
        _INT,
        10 * 1024 * 1024,
        "The size that an offset index may have.",
        at_least(4),
        _ALL,
    ),
    _K(
        "log.index.interval.bytes",
        _INT,
        4096,
        "Bytes of log between two index entries.",
        at_least(0),
        _ALL,
    ),
    _K("log.preallocate", _BOOL, False, "Without an effect: files grow as they are written."),
    _K(
        "log.segment.delete.delay.ms",
        _LONG,
        60_000,
        "How long a deleted file stays on disk.",
        at_least(0),
        _ALL,
    ),
)

RETENTION: Final = (
    _K("log.retention.ms", _LONG, None, "How long records are kept; -1 = for ever.", None, _ALL),
    _K("log.retention.minutes", _INT, None, "The same in minutes, where log.retention.ms is not."),
    _K("log.retention.hours", _INT, 168, "The same in hours, where neither of the others is."),
    _K("log.retention.bytes", _LONG, -1, "Bytes that a partition keeps; -1 = all.", None, _ALL),
    _K(
        "log.retention.check.interval.ms",
        _LONG,
        300_000,
        "How often logs are checked for expired segments.",
        at_least(1),
    ),
    _K(
        "log.cleanup.policy",
        _LIST,
        ("delete",),
        "What happens to old segments: delete, compact or both.",
        each_of("compact", "delete"),
        _ALL,
    ),
    _K(
        "log.local.retention.ms",
        _LONG,
        -2,
        "How long records of a topic with remote storage stay on the broker's disk too; -2 = as"
        " long as log.retention.ms, -1 = no limit.",
        at_least(-2),
        _ALL,
    ),
    _K(
        "log.local.retention.bytes",
        _LONG,
        -2,
        "Bytes of a partition that stay there; -2 = log.retention.bytes, -1 = no limit.",
        at_least(-2),
        _ALL,
    ),
)

FLUSHING: Final = (
    _K(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        "Records after which a log is forced to disk.",
        at_least(1),
        _ALL,
    ),
    _K("log.flush.interval.ms", _LONG, None, "Time after which that happens.", at_least(0), _ALL),
    _K(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        "How often logs are checked for flush.ms; its value where that is not set.",
        at_least(1),
    ),
    _K(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        "How often recovery points are saved.",
        at_least(0),
    ),
    _K(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        "How often the logs' start offsets are saved.",
        at_least(0),
    ),
)

RECORDS: Final = (
    _K(
        "message.max.bytes",
        _INT,
        1024 * 1024 + 12,
        "The largest batch that is taken, compressed.",
        at_least(0),
        _ALL,
    ),
    _K(
        "compression.type",
        _STRING,
        "producer",
        "How batches are compressed on disk.",
        one_of(*COMPRESSION_TYPES),
        _ALL,
    ),
    _K("compression.gzip.level", _INT, -1, "The level of gzip.", GZIP_LEVELS, _ALL),
    _K("compression.lz4.level", _INT, 9, "The level of lz4.", LZ4_LEVELS, _ALL),
    _K("compression.zstd.level", _INT, 3, "The level of zstd.", ZSTD_LEVELS, _ALL),
    _K(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whose clock records bear: the producer's or the broker's.",
        one_of("CreateTime", "LogAppendTime"),
        _ALL,
    ),
    _K(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How far in the past a record may be.",
        at_least(0),
        _ALL,
    ),
    _K(
        "log.message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        "How far in the future a record may be.",
        at_least(0),
        _ALL,
    ),
    _K(
        "min.insync.replicas",
        _INT,
        1,
        "In-sync replicas that acks=all needs.",
        at_least(1),
        _ALL,
    ),
    _K(
        "unclean.leader.election.enable",
        _BOOL,
        False,
        "Whether a replica that is not in sync may lead where no other can; records may be lost.",
        None,
        _ALL,
    ),
)

CLEANER: Final = (
    _K("log.cleaner.enable", _BOOL, True, "Whether logs with cleanup.policy=compact are cleaned."),
    _K(
        "log.cleaner.threads",
        _INT,
        1,
        "How many logs are cleaned at the same time, each in a process of its own.",
        at_least(0),
        _ALL,
    ),
    _K(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "How long the cleaner waits between two checks of the logs.",
        at_least(0),
        _ALL,
    ),
    _K(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 * 1024 * 1024,
        "Memory for the keys of all cleanings that run, 24 bytes a key.",
        update=_ALL,
    ),
    _K(
        "log.cleaner.io.buffer.size",
        _INT,
        512 * 1024,
        "How much a cleaning gathers before it writes.",
        at_least(0),
        _ALL,
    ),
    _K(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "How full the memory for keys may get.",
        update=_ALL,
    ),
    _K(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        DOUBLE_MAX,
        "What all cleanings may read and write in a second.",
        update=_ALL,
    ),
    _K(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "Which part of a log must be dirty before it is cleaned.",
        between(0, 1),
        _ALL,
    ),
    _K(
        "log.cleaner.delete.retention.ms",
        _LONG,
        DAY_MS,
        "How long tombstones stay after the first cleaning.",
        at_least(0),
        _ALL,
    ),
    _K(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "How long a record stays uncompacted at least.",
        at_least(0),
        _ALL,
    ),
    _K(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "How old an uncompacted record may get before its log is cleaned.",
        at_least(1),
        _ALL,
    ),
)

LOG_KEYS: Final = (*DIRECTORIES, *SEGMENTS, *RETENTION, *FLUSHING, *RECORDS, *CLEANER)
