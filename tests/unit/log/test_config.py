"""Typed settings from configuration values.

Method: defaults, each family of names, derived flags.
"""

from ottla.log.config import INT64_MAX, LogConfig
from ottla.records.compression import Codec


def test_defaults_are_kafkas() -> None:
    config = LogConfig.of({})
    assert config == LogConfig()
    assert config.segment_bytes == 1024**3
    assert config.retention_ms == 604_800_000
    assert config.retention_bytes == -1
    assert config.max_message_bytes == 1_048_588
    assert config.index_interval_bytes == 4096
    assert config.flush_messages == INT64_MAX
    assert config.timestamp_after_max_ms == 3_600_000
    assert config.deletes
    assert not config.compacts
    assert config.codec is None
    assert config.is_plain


def test_values_by_name() -> None:
    config = LogConfig.of(
        {
            "segment.bytes": 100,
            "retention.ms": -1,
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "zstd",
            "compression.zstd.level": 5,
            "flush.ms": None,
            "min.insync.replicas": 2,
        }
    )
    assert config.segment_bytes == 100
    assert config.retention_ms == -1
    assert config.deletes
    assert config.compacts
    assert config.log_append_time
    assert config.codec is Codec.ZSTD
    assert config.level(Codec.ZSTD) == 5
    assert config.level(Codec.GZIP) is None
    assert config.flush_ms == INT64_MAX


def test_the_jitter_is_below_the_time_that_it_is_taken_off() -> None:
    # As where the brokers' log.roll.jitter.hours is made for their log.roll.hours, and a topic has
    # a shorter segment.ms; and where max.compaction.lag.ms counts instead of it.
    jitter_ms = 3_600_000
    assert LogConfig(segment_ms=60_000, segment_jitter_ms=jitter_ms).segment_jitter_ms == 59_999
    assert LogConfig(segment_ms=1, segment_jitter_ms=jitter_ms).segment_jitter_ms == 0
    assert LogConfig(segment_jitter_ms=jitter_ms).segment_jitter_ms == jitter_ms
    lag = LogConfig(compacts=True, max_compaction_lag_ms=10, segment_jitter_ms=jitter_ms)
    assert (lag.segment_ms, lag.segment_jitter_ms) == (10, 9)


def test_local_retention() -> None:
    assert not LogConfig.of({}).remote_storage
    inherited = LogConfig.of(
        {"remote.storage.enable": True, "retention.ms": 7, "retention.bytes": 8}
    )
    assert inherited.remote_storage
    assert (inherited.local_retention_ms, inherited.local_retention_bytes) == (7, 8)
    own = LogConfig.of({"local.retention.ms": 5, "local.retention.bytes": -1, "retention.bytes": 8})
    assert (own.local_retention_ms, own.local_retention_bytes) == (5, -1)
    stopped = LogConfig.of({"remote.storage.enable": True, "remote.log.copy.disable": True})
    assert not stopped.remote_storage


def test_policies_as_list_or_text() -> None:
    for policy in ("compact", ["compact"], ("compact",)):
        config = LogConfig.of({"cleanup.policy": policy})
        assert (config.compacts, config.deletes) == (True, False)
    both = LogConfig.of({"cleanup.policy": ["delete", "compact"]})
    assert (both.compacts, both.deletes) == (True, True)


def test_what_makes_a_topic_plain() -> None:
    assert LogConfig.of({"compression.type": "producer"}).is_plain
    for values in (
        {"compression.type": "uncompressed"},
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": 1000},
    ):
        assert not LogConfig.of(values).is_plain
    assert LogConfig.of({"segment.bytes": 50, "max.message.bytes": 70}).batch_bytes_max == 50
