"""A node's properties about remote storage (tiered storage, KIP-405).

Ottla has object stores of its own, at `ottla.remote.storage.uri`, and no plugins: the properties
that name Kafka's Java classes and what is passed to them are accepted, so that a file written for
Kafka works, and have no effect. Those of Kafka's topic based metadata manager that describe the
topic `__remote_log_metadata` have Kafka's prefix.
Source: RemoteLogManagerConfig, TopicBasedRemoteLogMetadataManagerConfig, Kafka 4.0; KIP-405,
KIP-950, KIP-956, KIP-1018.
"""

from typing import Final

from ottla.metadata.config_def import (
    LONG_MAX,
    Check,
    ConfigKey,
    Type,
    Update,
    at_least,
    between,
)

_K = ConfigKey
_BOOL, _STRING, _INT, _LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG
_MB = 1024 * 1024
_ALL = Update.CLUSTER_WIDE
_PLUGIN = "Without an effect: Ottla loads no Java plugins; see ottla.remote.storage.uri."

METADATA_PREFIX: Final = "rlmm.config."
STORAGE_PREFIX: Final = "rsm.config."
"""Kafka's prefixes of what is passed to its plugins."""

SYSTEM_ENABLE: Final = "remote.log.storage.system.enable"
STORAGE_URI: Final = "ottla.remote.storage.uri"
EVENT_DIR: Final = "ottla.remote.storage.event.dir"

STORE: Final = (
    _K(
        SYSTEM_ENABLE,
        _BOOL,
        False,
        "Whether topics can have remote storage; all nodes of a cluster say the same.",
    ),
    _K(
        STORAGE_URI,
        _STRING,
        None,
        "Where remote storage is: file:///DIRECTORY, s3://BUCKET/PREFIX or memory://NAME. Ottla's"
        " own; all nodes of a cluster say the same.",
    ),
    _K(
        EVENT_DIR,
        _STRING,
        None,
        "A directory in which each broker notes what it copied, read and deleted in remote storage,"
        " for tests. Ottla's own.",
    ),
    _K(
        "ottla.remote.chunk.size.bytes",
        _INT,
        4 * _MB,
        "How much of a remote segment is read at a time. Ottla's own.",
        at_least(64 * 1024),
    ),
    _K(
        "ottla.remote.chunk.cache.size.bytes",
        _LONG,
        128 * _MB,
        "Memory for the parts of remote segments that were read last, one chunk at least."
        " Ottla's own.",
        at_least(0),
        _ALL,
    ),
    _K(
        "ottla.remote.index.cache.size.bytes",
        _LONG,
        64 * _MB,
        "Memory for the indexes of remote segments that were read last. Ottla's own.",
        at_least(0),
        _ALL,
    ),
)

PLUGINS: Final = (
    _K("remote.log.storage.manager.class.name", _STRING, None, _PLUGIN),
    _K("remote.log.storage.manager.class.path", _STRING, None, _PLUGIN),
    _K("remote.log.storage.manager.impl.prefix", _STRING, STORAGE_PREFIX, _PLUGIN),
    _K(
        "remote.log.metadata.manager.class.name",
        _STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        _PLUGIN,
    ),
    _K("remote.log.metadata.manager.class.path", _STRING, None, _PLUGIN),
    _K("remote.log.metadata.manager.impl.prefix", _STRING, METADATA_PREFIX, _PLUGIN),
    _K("remote.log.metadata.manager.listener.name", _STRING, None, _PLUGIN),
    _K("remote.log.metadata.custom.metadata.max.bytes", _INT, 128, _PLUGIN, at_least(0)),
)

MANAGER: Final = (
    _K(
        "remote.log.manager.thread.pool.size",
        _INT,
        2,
        "Without an effect: copies and expiration have thread pools of their own.",
        at_least(1),
    ),
    _K(
        "remote.log.manager.copier.thread.pool.size",
        _INT,
        10,
        "How many segments are copied at the same time.",
        at_least(1),
        _ALL,
    ),
    _K(
        "remote.log.manager.expiration.thread.pool.size",
        _INT,
        10,
        "How many expired remote segments are deleted at the same time.",
        at_least(1),
        _ALL,
    ),
    _K(
        "remote.log.manager.task.interval.ms",
        _LONG,
        30_000,
        "How often partitions are checked for segments to copy or to delete.",
        at_least(1),
    ),
    _K(
        "remote.log.manager.task.retry.backoff.ms",
        _LONG,
        500,
        "The first pause after a failed copy or deletion; each failure doubles it.",
        at_least(1),
    ),
    _K(
        "remote.log.manager.task.retry.backoff.max.ms",
        _LONG,
        30_000,
        "The longest such pause.",
        at_least(1),
    ),
    _K(
        "remote.log.manager.task.retry.jitter",
        Type.DOUBLE,
        0.2,
        "Without an effect: a fifth of such a pause is random.",
        between(0, 0.5),
    ),
    _K(
        "remote.log.manager.copy.max.bytes.per.second",
        _LONG,
        LONG_MAX,
        "What a broker copies to remote storage in a second.",
        at_least(1),
        _ALL,
    ),
    _K(
        "remote.log.manager.copy.quota.window.num",
        _INT,
        11,
        "Windows over which that is averaged.",
        at_least(1),
    ),
    _K(
        "remote.log.manager.copy.quota.window.size.seconds",
        _INT,
        1,
        "The length of such a window.",
        at_least(1),
    ),
    _K(
        "remote.log.manager.fetch.max.bytes.per.second",
        _LONG,
        LONG_MAX,
        "What a broker reads from remote storage for consumers in a second; fetches beyond get no"
        " records of remote segments.",
        at_least(1),
        _ALL,
    ),
    _K(
        "remote.log.manager.fetch.quota.window.num",
        _INT,
        11,
        "Windows over which that is averaged.",
        at_least(1),
    ),
    _K(
        "remote.log.manager.fetch.quota.window.size.seconds",
        _INT,
        1,
        "The length of such a window.",
        at_least(1),
    ),
)

READS: Final = (
    _K(
        "remote.log.reader.threads",
        _INT,
        10,
        "How many reads of remote segments run at the same time.",
        at_least(1),
        _ALL,
    ),
    _K(
        "remote.log.reader.max.pending.tasks",
        _INT,
        100,
        "How many more may wait; fetches beyond get no records of remote segments.",
        at_least(1),
    ),
    _K(
        "remote.fetch.max.wait.ms",
        _INT,
        500,
        "How long a fetch waits for remote storage.",
        at_least(1),
        _ALL,
    ),
    _K(
        "remote.list.offsets.request.timeout.ms",
        _LONG,
        30_000,
        "How long ListOffsets waits for remote storage.",
        at_least(1),
        _ALL,
    ),
    _K(
        "remote.log.index.file.cache.total.size.bytes",
        _LONG,
        1 << 30,
        "Without an effect: indexes of remote segments are cached in memory, see"
        " ottla.remote.index.cache.size.bytes.",
        at_least(1),
    ),
)

METADATA_TOPIC: Final = (
    _K(
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        _INT,
        50,
        "Partitions of __remote_log_metadata, where it is created.",
        at_least(1),
    ),
    _K(
        "rlmm.config.remote.log.metadata.topic.replication.factor",
        Type.SHORT,
        3,
        "Its replicas. It is created once there are as many brokers.",
        at_least(1),
    ),
    _K(
        "rlmm.config.remote.log.metadata.topic.min.isr",
        Type.SHORT,
        2,
        "Its min.insync.replicas, where it is created.",
        at_least(1),
    ),
    _K(
        "rlmm.config.remote.log.metadata.topic.retention.ms",
        _LONG,
        -1,
        "Without an effect: its records are kept for ever, as they must outlive the segments.",
        Check("of at least 1, or -1", lambda value: bool(value >= 1 or value == -1)),
    ),
    _K(
        "rlmm.config.remote.log.metadata.consume.wait.ms",
        _LONG,
        120_000,
        "How long a written record may take to be read again.",
        at_least(1),
    ),
    _K(
        "rlmm.config.remote.log.metadata.initialization.retry.interval.ms",
        _LONG,
        100,
        "Without an effect: the topic is created when it is first needed.",
        at_least(1),
    ),
    _K(
        "rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms",
        _LONG,
        120_000,
        "Without an effect: the topic is created when it is first needed.",
        at_least(1),
    ),
)

REMOTE_KEYS: Final = (*STORE, *PLUGINS, *MANAGER, *READS, *METADATA_TOPIC)
