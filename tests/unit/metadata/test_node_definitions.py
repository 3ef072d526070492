"""Every property that Kafka's nodes have is taken or refused by name; defaults are Kafka's.

Method: Kafka's own list of names, extracted from its public sources, against ours; the defaults
that people rely on as a table.
"""

from pathlib import Path

import pytest

from ottla.metadata.config_def import Type, Update, format_value, parse_value
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.unsupported import is_ignored, is_listed

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka_node_properties.txt"
NEWER = GOLDEN.with_name("kafka_4_3_node_properties.txt")
"""What Kafka 4.3 has beyond 4.0."""


def test_every_property_of_kafka_is_known() -> None:
    names = GOLDEN.read_text().split()
    assert len(names) > 300
    assert [name for name in names if not is_known(name)] == []


def is_known(name: str) -> bool:
    return name in NODE_DEFINITIONS.keys or is_listed(name) or is_ignored(name)


def test_nothing_is_both_taken_and_refused() -> None:
    assert [name for name in NODE_DEFINITIONS.keys if is_listed(name)] == []


def test_no_other_names_are_taken() -> None:
    newer = set(NEWER.read_text().split())
    own = {
        "metrics.port",
        "ottla.deletion.receipt.retention.ms",
        "ottla.record.validation",
        "ottla.remote.chunk.cache.size.bytes",
        "ottla.remote.chunk.size.bytes",
        "ottla.remote.storage.event.dir",
        "ottla.remote.index.cache.size.bytes",
        "ottla.remote.storage.uri",
        "ottla.topic.idle.check.interval.ms",
    }
    ours = set(NODE_DEFINITIONS.keys) - set(GOLDEN.read_text().split())
    passed_on = {name for name in ours if name.startswith("rlmm.config.")}
    """Kafka's nodes pass these on to a plugin, which defines them."""
    assert own <= ours
    assert ours - own - passed_on <= newer


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("listeners", "PLAINTEXT://:9092"),
        ("log.dir", "/tmp/kafka-logs"),
        ("num.partitions", "1"),
        ("default.replication.factor", "1"),
        ("auto.create.topics.enable", "true"),
        ("delete.topic.enable", "true"),
        ("message.max.bytes", "1048588"),
        ("log.segment.bytes", "1073741824"),
        ("log.retention.hours", "168"),
        ("log.retention.ms", None),
        ("log.retention.check.interval.ms", "300000"),
        ("log.cleanup.policy", "delete"),
        ("log.message.timestamp.after.max.ms", "3600000"),
        ("num.recovery.threads.per.data.dir", "2"),
        ("offsets.topic.num.partitions", "50"),
        ("offsets.topic.replication.factor", "3"),
        ("group.initial.rebalance.delay.ms", "3000"),
        ("broker.session.timeout.ms", "9000"),
        ("broker.heartbeat.interval.ms", "2000"),
        ("metadata.log.max.record.bytes.between.snapshots", "20971520"),
        ("controller.quorum.fetch.timeout.ms", "2000"),
        ("socket.request.max.bytes", "104857600"),
        ("fetch.max.bytes", "57671680"),
        ("max.incremental.fetch.session.cache.slots", "1000"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308"),
        ("min.insync.replicas", "1"),
        ("producer.id.expiration.ms", "86400000"),
        ("remote.log.storage.system.enable", "false"),
        ("remote.log.manager.copier.thread.pool.size", "10"),
        ("remote.log.manager.expiration.thread.pool.size", "10"),
        ("remote.log.manager.task.interval.ms", "30000"),
        ("remote.log.manager.task.retry.backoff.ms", "500"),
        ("remote.log.manager.task.retry.backoff.max.ms", "30000"),
        ("remote.log.manager.task.retry.jitter", "0.2"),
        ("remote.log.manager.copy.max.bytes.per.second", "9223372036854775807"),
        ("remote.log.manager.fetch.max.bytes.per.second", "9223372036854775807"),
        ("remote.log.reader.threads", "10"),
        ("remote.log.reader.max.pending.tasks", "100"),
        ("remote.fetch.max.wait.ms", "500"),
        ("remote.list.offsets.request.timeout.ms", "30000"),
        ("remote.log.index.file.cache.total.size.bytes", "1073741824"),
        ("rlmm.config.remote.log.metadata.topic.num.partitions", "50"),
        ("rlmm.config.remote.log.metadata.topic.replication.factor", "3"),
        ("rlmm.config.remote.log.metadata.topic.min.isr", "2"),
        ("rlmm.config.remote.log.metadata.topic.retention.ms", "-1"),
        ("log.local.retention.ms", "-2"),
        ("log.local.retention.bytes", "-2"),
        ("ottla.remote.storage.event.dir", None),
        ("ottla.remote.storage.uri", None),
        ("ottla.remote.chunk.size.bytes", "4194304"),
        ("ottla.remote.chunk.cache.size.bytes", "134217728"),
        ("ottla.remote.index.cache.size.bytes", "67108864"),
    ],
)
def test_defaults(name: str, default: str | None) -> None:
    key = NODE_DEFINITIONS.keys[name]
    assert format_value(key.type, key.default) == default


def test_every_default_is_of_its_type_and_every_property_is_documented() -> None:
    for key in NODE_DEFINITIONS.keys.values():
        assert key.doc.endswith("."), key.name
        text = format_value(key.type, key.default)
        if text is not None:
            assert parse_value(key, text) == key.default, key.name


def test_no_secret_is_among_them() -> None:
    assert not [key for key in NODE_DEFINITIONS.keys.values() if key.type is Type.PASSWORD]


@pytest.mark.parametrize(
    ("name", "update"),
    [
        ("log.retention.ms", Update.CLUSTER_WIDE),
        ("log.retention.hours", Update.READ_ONLY),
        ("message.max.bytes", Update.CLUSTER_WIDE),
        ("log.cleaner.threads", Update.CLUSTER_WIDE),
        ("log.cleaner.enable", Update.READ_ONLY),
        ("num.io.threads", Update.READ_ONLY),
        ("producer.id.expiration.ms", Update.CLUSTER_WIDE),
        ("max.connections", Update.CLUSTER_WIDE),
        ("node.id", Update.READ_ONLY),
        ("num.partitions", Update.READ_ONLY),
        ("auto.create.topics.enable", Update.READ_ONLY),
        ("listeners", Update.READ_ONLY),
    ],
)
def test_what_can_change_while_a_broker_runs(name: str, update: Update) -> None:
    assert NODE_DEFINITIONS.keys[name].update is update
