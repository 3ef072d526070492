"""A node's properties about itself, its network, its quorum and replication.

Thread counts, purgatories and the like configure Kafka's threads; they are accepted, so that an
existing property file works, and have no effect where the text says so. None of those can be
changed dynamically, since the change would have no effect.
Source: ServerConfigs, KRaftConfigs, QuorumConfig, SocketServerConfigs, ReplicationConfigs,
MetricConfigs, QuotaConfig, Kafka 4.0.
"""

from typing import Final

from ottla.metadata.config_def import (
    INT_MAX,
    LONG_MAX,
    Check,
    ConfigDef,
    ConfigKey,
    Type,
    Update,
    at_least,
    between,
    each_of,
    one_of,
)
from ottla.metadata.group_definitions import GROUP_KEYS
from ottla.metadata.listeners import is_zookeeper_connect, parse_ip_limits
from ottla.metadata.log_definitions import LOG_KEYS
from ottla.metadata.remote_definitions import REMOTE_KEYS
from ottla.metadata.share_definitions import SHARE_KEYS

_K = ConfigKey
_BOOL, _STRING, _INT, _LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG
_LIST = Type.LIST
_ALL = Update.CLUSTER_WIDE
_MB = 1024 * 1024
_NONE = "Without an effect: Ottla works otherwise."
_VOTERS = "How long voters of several wait for each other; one voter holds no elections."


def _are_ip_limits(text: str) -> bool:
    try:
        parse_ip_limits(text)
    except ValueError:
        return False
    return True


IDENTITY: Final = (
    _K("process.roles", _LIST, (), "broker, controller or both.", each_of("broker", "controller")),
    _K("node.id", _INT, -1, "This node's number, from 0; broker.id is another name for it."),
    _K("broker.id", _INT, -1, "Another name for node.id."),
    _K(
        "reserved.broker.max.id",
        _INT,
        1_000,
        "In ZooKeeper mode the largest broker.id while broker.id.generation.enable is true.",
        at_least(0),
    ),
    _K(
        "broker.id.generation.enable",
        _BOOL,
        True,
        "In ZooKeeper mode whether ids above reserved.broker.max.id are kept for generated ones;"
        " Ottla generates none: broker.id must be set.",
    ),
    _K("broker.rack", _STRING, None, "Where the broker stands, for spreading replicas."),
    _K("server.max.startup.time.ms", _LONG, LONG_MAX, "The longest start.", at_least(1)),
)

QUORUM: Final = (
    _K("controller.quorum.voters", _LIST, (), "The controllers: id@host:port, with commas."),
    _K("controller.quorum.bootstrap.servers", _LIST, (), "Where controllers are found: host:port."),
    _K("controller.quorum.election.timeout.ms", _INT, 1_000, _VOTERS),
    _K("controller.quorum.fetch.timeout.ms", _INT, 2_000, _VOTERS),
    _K("controller.quorum.election.backoff.max.ms", _INT, 1_000, _VOTERS),
    _K("controller.quorum.append.linger.ms", _INT, 25, _NONE),
    _K("controller.quorum.fetch.max.bytes", _INT, _MB, _NONE, at_least(1)),
    _K("controller.quorum.fetch.snapshot.max.bytes", _INT, _MB, _NONE, at_least(1)),
    _K("controller.quorum.request.timeout.ms", _INT, 2_000, _NONE),
    _K("controller.quorum.retry.backoff.ms", _INT, 20, _NONE),
    _K("controller.listener.names", _STRING, None, "The controllers' listeners, with commas."),
    _K("broker.heartbeat.interval.ms", _INT, 2_000, "How often brokers report to the controller."),
    _K("broker.session.timeout.ms", _INT, 9_000, "After how long a silent broker is fenced."),
    _K("initial.broker.registration.timeout.ms", _INT, 60_000, "How long a broker tries at start."),
    _K(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20 * _MB,
        "Bytes of metadata records after which a snapshot is taken.",
        at_least(1),
    ),
    _K(
        "metadata.log.max.snapshot.interval.ms",
        _LONG,
        3_600_000,
        "The longest between snapshots where there are new records; 0 = no limit.",
        at_least(0),
    ),
    _K(
        "metadata.log.segment.bytes",
        _INT,
        1 << 30,
        "The metadata log's segment size.",
        at_least(12),
    ),
    _K(
        "metadata.log.segment.min.bytes",
        _INT,
        8 * _MB,
        "The smallest that metadata.log.segment.bytes may be, for tests.",
        at_least(12),
        internal=True,
    ),
    _K("metadata.log.segment.ms", _LONG, 604_800_000, "Age at which such a segment is closed."),
    _K("metadata.max.retention.bytes", _LONG, 100 * _MB, "Metadata log and snapshots kept."),
    _K("metadata.max.retention.ms", _LONG, 604_800_000, "How long they are kept."),
    _K(
        "metadata.max.idle.interval.ms",
        _INT,
        500,
        "The interval of the idle controller's NoOpRecords; 0 = none are written.",
        at_least(0),
    ),
)

ZOOKEEPER: Final = (
    _K(
        "zookeeper.connect",
        _STRING,
        None,
        "The ZooKeeper servers, host:port with commas, and perhaps a path below which the"
        " cluster's metadata is; instead of process.roles.",
        Check("as host:port,host:port/path", is_zookeeper_connect),
    ),
    _K(
        "zookeeper.session.timeout.ms",
        _INT,
        18_000,
        "The session timeout after which ZooKeeper removes a broker's ephemeral znodes.",
        at_least(1),
    ),
    _K(
        "zookeeper.connection.timeout.ms",
        _INT,
        None,
        "How long a start waits for ZooKeeper; zookeeper.session.timeout.ms where not set.",
    ),
    _K("zookeeper.max.in.flight.requests", _INT, 10, _NONE, at_least(1)),
    _K(
        "inter.broker.protocol.version",
        _STRING,
        "3.9",
        "The protocol version between brokers in ZooKeeper mode: 3.9 or 3.9-IV0.",
    ),
)

NETWORK: Final = (
    _K("listeners", _STRING, "PLAINTEXT://:9092", "Where the node listens: NAME://host:port."),
    _K("advertised.listeners", _STRING, None, "Where clients reach it; listeners where not set."),
    _K(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Listener names and their protocols; Ottla supports PLAINTEXT.",
    ),
    _K("inter.broker.listener.name", _STRING, None, "The listener that brokers use."),
    _K("security.inter.broker.protocol", _STRING, "PLAINTEXT", "Its protocol, where not named."),
    _K("early.start.listeners", _STRING, None, _NONE),
    _K(
        "socket.send.buffer.bytes",
        _INT,
        102_400,
        "SO_SNDBUF where the file sets it; -1, or not set = the system's.",
        at_least(-1),
    ),
    _K(
        "socket.receive.buffer.bytes",
        _INT,
        102_400,
        "SO_RCVBUF where the file sets it; -1, or not set = the system's.",
        at_least(-1),
    ),
    _K("socket.request.max.bytes", _INT, 100 * _MB, "The largest request.", at_least(1)),
    _K("socket.listen.backlog.size", _INT, 50, "Connections that may wait.", at_least(1)),
    _K(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        "Idle time until a connection is closed; below 0 = never.",
    ),
    _K(
        "max.connections",
        _INT,
        INT_MAX,
        "Connections of the node; the ones beyond are refused.",
        at_least(0),
        _ALL,
    ),
    _K("max.connections.per.ip", _INT, INT_MAX, "Connections per address.", at_least(0), _ALL),
    _K(
        "max.connections.per.ip.overrides",
        _STRING,
        "",
        "The same for single addresses: address:count, with commas.",
        Check("as address:count, with commas, of IP addresses", _are_ip_limits),
        _ALL,
    ),
    _K("connection.failed.authentication.delay.ms", _INT, 100, _NONE, at_least(0)),
    _K("queued.max.requests", _INT, 500, _NONE, at_least(1)),
    _K(
        "queued.max.request.bytes",
        _LONG,
        -1,
        "Bytes of requests that a node holds unfinished or waiting; the peer that would go over"
        " it is disconnected; 0 or less = Ottla's own limit of 512 MiB.",
    ),
    _K("num.network.threads", _INT, 3, _NONE, at_least(1)),
    _K("num.io.threads", _INT, 8, "Threads for disk work that can block.", at_least(1)),
    _K("background.threads", _INT, 10, _NONE, at_least(1)),
    _K(
        "request.timeout.ms",
        _INT,
        30_000,
        "The timeout of requests between nodes; clients' requests to the controller without a"
        " timeout of their own are answered within nine tenths of it.",
    ),
    _K(
        "socket.connection.setup.timeout.ms",
        _LONG,
        10_000,
        "How long a broker waits for a connection to the controller; doubled by each failure.",
        at_least(1),
    ),
    _K(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        "The most that it waits.",
        at_least(1),
    ),
    _K("fetch.max.bytes", _INT, 55 * _MB, "The most that a fetch answers.", at_least(1024)),
    _K(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1_000,
        "Fetch sessions that are remembered.",
        at_least(0),
    ),
    _K(
        "max.request.partition.size.limit",
        _INT,
        2_000,
        "Partitions in one DescribeTopicPartitions response.",
        at_least(1),
    ),
)

TOPICS: Final = (
    _K("auto.create.topics.enable", _BOOL, True, "Whether asking for a topic creates it."),
    _K("delete.topic.enable", _BOOL, True, "Whether topics can be deleted."),
    _K(
        "ottla.deletion.receipt.retention.ms",
        _LONG,
        604_800_000,
        "How long the deletion ledger keeps the receipts of deleted topics.",
        at_least(0),
    ),
    _K(
        "ottla.topic.idle.check.interval.ms",
        _LONG,
        10_000,
        "How often a broker checks topics with an ottla.topic.ttl.ms for uses, and reports to the"
        " controller how long there were none.",
        at_least(100),
    ),
    _K(
        "ottla.record.validation",
        _STRING,
        "full",
        "What is checked of produced batches: every record (full), or only the header (batch) where"
        " the topic needs no more.",
        one_of("full", "batch"),
        _ALL,
    ),
    _K("num.partitions", _INT, 1, "Partitions of a topic that does not say.", at_least(1)),
    _K("default.replication.factor", _INT, 1, "Replicas of a topic that does not say."),
)

REPLICATION: Final = (
    _K(
        "replica.lag.time.max.ms",
        _LONG,
        30_000,
        "How long a follower may lag before it leaves the in-sync replicas.",
    ),
    _K(
        "replica.selector.class",
        _STRING,
        None,
        "Whether consumers fetch from a replica of their rack; Kafka's own selector or none.",
        one_of("", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    ),
    _K(
        "replica.socket.timeout.ms",
        _INT,
        30_000,
        "How long a follower waits for a fetch response, beyond the fetch's own wait time.",
    ),
    _K("replica.socket.receive.buffer.bytes", _INT, 65_536, _NONE),
    _K(
        "replica.fetch.max.bytes",
        _INT,
        _MB,
        "Bytes that a follower fetches of one partition; a larger batch is fetched alone.",
        at_least(0),
    ),
    _K("replica.fetch.wait.max.ms", _INT, 500, "How long a leader may keep a follower waiting."),
    _K("replica.fetch.min.bytes", _INT, 1, "What a follower waits for."),
    _K(
        "replica.fetch.backoff.ms",
        _INT,
        1_000,
        "The longest pause of a follower after a failure; the first one is shorter.",
        at_least(0),
    ),
    _K(
        "replica.fetch.response.max.bytes",
        _INT,
        10 * _MB,
        "Bytes that a follower fetches of all partitions.",
        at_least(0),
    ),
    _K(
        "num.replica.fetchers",
        _INT,
        1,
        "How many connections a follower fetches over from one leader.",
        at_least(1),
    ),
    _K("num.replica.alter.log.dirs.threads", _INT, None, _NONE),
    _K("replica.high.watermark.checkpoint.interval.ms", _LONG, 5_000, "How often they are saved."),
    _K("fetch.purgatory.purge.interval.requests", _INT, 1_000, _NONE),
    _K("producer.purgatory.purge.interval.requests", _INT, 1_000, _NONE),
    _K("delete.records.purgatory.purge.interval.requests", _INT, 1, _NONE),
    _K(
        "auto.leader.rebalance.enable",
        _BOOL,
        True,
        "Whether partitions are given back to their preferred leaders.",
    ),
    _K(
        "leader.imbalance.check.interval.seconds",
        _LONG,
        300,
        "How often the balance of leaders is checked.",
        at_least(1),
    ),
    _K(
        "leader.imbalance.per.broker.percentage",
        _INT,
        10,
        "The share of a broker's preferred partitions that others may lead.",
    ),
    _K(
        "unclean.leader.election.interval.ms",
        _LONG,
        300_000,
        "How often partitions without a leader are checked for an unclean election.",
        at_least(1),
    ),
    _K("controller.socket.timeout.ms", _INT, 30_000, _NONE),
    _K(
        "controlled.shutdown.enable",
        _BOOL,
        True,
        "Whether a broker does a controlled shutdown.",
    ),
    _K(
        "controlled.shutdown.max.retries",
        _INT,
        3,
        "Controlled shutdown requests in ZooKeeper mode before the broker shuts down anyway.",
    ),
    _K(
        "controlled.shutdown.retry.backoff.ms",
        _LONG,
        5_000,
        "How long it waits before it retries.",
    ),
)

_WINDOW = "Quotas are not there yet: without an effect."
METRICS: Final = (
    _K(
        "metrics.port",
        _INT,
        -1,
        "Where Prometheus finds this node's metrics; -1 = nowhere, 0 = on a free port.",
        between(-1, 65_535),
    ),
    _K("metrics.num.samples", _INT, 2, _NONE, at_least(1)),
    _K("metrics.sample.window.ms", _LONG, 30_000, _NONE, at_least(1)),
    _K("metrics.recording.level", _STRING, "INFO", _NONE),
    _K("kafka.metrics.polling.interval.secs", _INT, 10, _NONE, at_least(1)),
    _K("telemetry.max.bytes", _INT, _MB, _NONE, at_least(1)),
    _K("quota.window.num", _INT, 11, _WINDOW, at_least(1)),
    _K("quota.window.size.seconds", _INT, 1, _WINDOW, at_least(1)),
    _K("replication.quota.window.num", _INT, 11, _WINDOW, at_least(1)),
    _K("replication.quota.window.size.seconds", _INT, 1, _WINDOW, at_least(1)),
    _K("alter.log.dirs.replication.quota.window.num", _INT, 11, _WINDOW, at_least(1)),
    _K("alter.log.dirs.replication.quota.window.size.seconds", _INT, 1, _WINDOW, at_least(1)),
    _K("controller.quota.window.num", _INT, 11, _WINDOW, at_least(1)),
    _K("controller.quota.window.size.seconds", _INT, 1, _WINDOW, at_least(1)),
)

NODE_DEFINITIONS: Final = ConfigDef.of(
    *IDENTITY,
    *QUORUM,
    *ZOOKEEPER,
    *NETWORK,
    *TOPICS,
    *REPLICATION,
    *METRICS,
    *LOG_KEYS,
    *REMOTE_KEYS,
    *GROUP_KEYS,
    *SHARE_KEYS,
)
"""Every property that a node takes."""
