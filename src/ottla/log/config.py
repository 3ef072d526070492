"""The part of a topic's configuration that its logs use, typed.

Defaults are Kafka's (4.0). The fields from `producer_id_expiration_ms` to `checks_records` are
broker configurations: they are here because only the log uses them.
Source: LogConfig, TopicConfig, ServerLogConfigs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.records.compression import Codec, codec_of

INT64_MAX: Final = 2**63 - 1

RECORD_VALIDATION: Final = "ottla.record.validation"
BATCH: Final = "batch"
"""Only the header of a batch is checked where nothing needs its records."""
UNLIMITED: Final = -1
SAME_AS_TOTAL: Final = -2
"""Of local.retention.ms and local.retention.bytes: the value of retention.ms or retention.bytes."""
DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One log's settings. Units end the names; -1 in a retention = no limit.

    Fields: `segment_jitter_ms`: always below `segment_ms` once made.
            `codec`: None = batches stay as their producer compressed them.
            `levels`: compression level by codec, where the topic sets one.
            `checks_records`: every record of a produced batch is checked, also where nothing else
            needs it. `decodes_records`: the records of a produced batch are read at all.
            `is_plain`: batches are appended as they come, neither rewritten nor compacted.
            `batch_bytes_max`: what both the topic and a segment allow.
            `remote_storage`: segments are copied to remote storage: those that are copied are
            deleted here by the local retention, and the whole log's retention is not the log's.
            `local_retention_ms`, `local_retention_bytes`: never SAME_AS_TOTAL once made.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * DAY_MS
    remote_storage: bool = False
    local_retention_bytes: int = SAME_AS_TOTAL
    local_retention_ms: int = SAME_AS_TOTAL
    max_message_bytes: int = 1_048_588
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    deletes: bool = True
    compacts: bool = False
    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = DAY_MS
    log_append_time: bool = False
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    codec: Codec | None = None
    levels: Mapping[Codec, int] | None = None
    producer_id_expiration_ms: int = DAY_MS
    transaction_timeout_max_ms: int = 15 * 60_000
    checks_records: bool = True
    decodes_records: bool = field(init=False)
    is_plain: bool = field(init=False)
    batch_bytes_max: int = field(init=False)

    def __post_init__(self) -> None:
        rewritten = self.log_append_time or self.codec is not None
        if self.compacts and self.max_compaction_lag_ms < self.segment_ms:
            # A record can only be compacted once its segment is sealed (KIP-354).
            object.__setattr__(self, "segment_ms", self.max_compaction_lag_ms)
        if self.segment_jitter_ms >= self.segment_ms:
            # A larger one would close a segment with each batch.
            object.__setattr__(self, "segment_jitter_ms", max(0, self.segment_ms - 1))
        needs_records = self.compacts or self.timestamp_before_max_ms < INT64_MAX
        object.__setattr__(self, "decodes_records", needs_records or self.checks_records)
        object.__setattr__(self, "is_plain", not (rewritten or needs_records))
        if self.local_retention_ms == SAME_AS_TOTAL:
            object.__setattr__(self, "local_retention_ms", self.retention_ms)
        if self.local_retention_bytes == SAME_AS_TOTAL:
            object.__setattr__(self, "local_retention_bytes", self.retention_bytes)
        smaller = min(self.max_message_bytes, self.segment_bytes)
        object.__setattr__(self, "batch_bytes_max", smaller)

    @staticmethod
    def of(values: Mapping[str, Any]) -> "LogConfig":
        """Return the settings in parsed configuration values, keyed by name.

        Absent names take their defaults; names that no log uses are ignored. The policy may be a
        string or a list.
        """
        given: dict[str, Any] = {
            target: values[name] for name, target in _PLAIN.items() if values.get(name) is not None
        }
        policy = values.get("cleanup.policy", "delete")
        policies = (
            {part.strip() for part in policy.split(",")} if isinstance(policy, str) else set(policy)
        )
        levels = {
            codec: values[name] for name, codec in _LEVELS.items() if values.get(name) is not None
        }
        return LogConfig(
            deletes="delete" in policies,
            compacts="compact" in policies,
            log_append_time=values.get("message.timestamp.type") == "LogAppendTime",
            codec=codec_of(values.get("compression.type") or "producer"),
            levels=levels or None,
            checks_records=values.get(RECORD_VALIDATION) != BATCH,
            remote_storage=bool(
                values.get("remote.storage.enable") and not values.get("remote.log.copy.disable")
            ),
            **given,
        )

    def level(self, codec: Codec) -> int | None:
        """Return the compression level; None = the codec's default."""
        return None if self.levels is None else self.levels.get(codec)


_PLAIN: Final = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.index.bytes": "segment_index_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
    "local.retention.bytes": "local_retention_bytes",
    "local.retention.ms": "local_retention_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_ratio",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "delete.retention.ms": "delete_retention_ms",
    "max.message.bytes": "max_message_bytes",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "file.delete.delay.ms": "file_delete_delay_ms",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "producer.id.expiration.ms": "producer_id_expiration_ms",
    "transaction.max.timeout.ms": "transaction_timeout_max_ms",
}

_LEVELS: Final = {
    "compression.gzip.level": Codec.GZIP,
    "compression.lz4.level": Codec.LZ4,
    "compression.zstd.level": Codec.ZSTD,
}
