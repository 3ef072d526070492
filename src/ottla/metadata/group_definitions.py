"""A node's properties about groups, offsets, transactions and producers.

Source: GroupCoordinatorConfig, TransactionLogConfig, TransactionStateManagerConfig, Kafka 4.0.
"""

from typing import Final

from ottla.metadata.config_def import (
    INT_MAX,
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
_SHORT, _LIST = Type.SHORT, Type.LIST
_MB = 1024 * 1024

CLASSIC: Final = (
    _K("group.min.session.timeout.ms", _INT, 6_000, "The shortest session that members may ask."),
    _K("group.max.session.timeout.ms", _INT, 1_800_000, "The longest session they may ask."),
    _K(
        "group.initial.rebalance.delay.ms",
        _INT,
        3_000,
        "How long an empty group waits for more members before its first rebalance.",
    ),
    _K("group.max.size", _INT, INT_MAX, "Members that a group may have.", at_least(1)),
    _K(
        "group.coordinator.rebalance.protocols",
        _LIST,
        ("classic",),
        "The group protocols that are served. Without an effect: only classic can be named.",
        each_of("classic"),
    ),
    _K(
        "group.coordinator.threads",
        _INT,
        4,
        "Without an effect: groups run on the node's loop.",
        at_least(1),
    ),
    _K(
        "group.coordinator.append.linger.ms",
        _INT,
        -1,
        "Without an effect: group records are written at once.",
        at_least(-1),
    ),
)

_NEXT = "For the consumer protocol (KIP-848), which is not served yet: without an effect."
CONSUMER: Final = (
    _K("group.consumer.session.timeout.ms", _INT, 45_000, _NEXT, at_least(1)),
    _K("group.consumer.min.session.timeout.ms", _INT, 45_000, _NEXT, at_least(1)),
    _K("group.consumer.max.session.timeout.ms", _INT, 60_000, _NEXT, at_least(1)),
    _K("group.consumer.heartbeat.interval.ms", _INT, 5_000, _NEXT, at_least(1)),
    _K("group.consumer.min.heartbeat.interval.ms", _INT, 5_000, _NEXT, at_least(1)),
    _K("group.consumer.max.heartbeat.interval.ms", _INT, 15_000, _NEXT, at_least(1)),
    _K("group.consumer.max.size", _INT, INT_MAX, _NEXT, at_least(1)),
    _K("group.consumer.regex.refresh.interval.ms", _INT, 600_000, _NEXT, at_least(10_000)),
    _K("group.consumer.assignors", _LIST, ("uniform", "range"), _NEXT),
    _K(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        _NEXT,
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
)

_TRANSACTIONS = "For transactions, which are not there yet: without an effect."
OFFSETS: Final = (
    _K("offset.metadata.max.bytes", _INT, 4096, "The longest metadata of a committed offset."),
    _K("offsets.load.buffer.size", _INT, 5 * _MB, "Bytes read at once on loading.", at_least(1)),
    _K(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __consumer_offsets.",
        at_least(1),
    ),
    _K("offsets.topic.num.partitions", _INT, 50, "Partitions of __consumer_offsets.", at_least(1)),
    _K(
        "offsets.topic.segment.bytes",
        _INT,
        100 * _MB,
        "Segment size of __consumer_offsets.",
        at_least(1),
    ),
    _K(
        "offsets.topic.compression.codec",
        _INT,
        0,
        "How __consumer_offsets is compressed: 0 = not; a codec's number otherwise.",
        between(0, 4),
    ),
    _K(
        "offsets.retention.minutes",
        _INT,
        7 * 24 * 60,
        "How long an empty group's offsets are kept.",
        at_least(1),
    ),
    _K(
        "offsets.retention.check.interval.ms",
        _LONG,
        600_000,
        "How often they are checked.",
        at_least(1),
    ),
    _K(
        "offsets.commit.timeout.ms",
        _INT,
        5_000,
        "How long a commit waits for its replicas.",
        at_least(1),
    ),
)

TRANSACTIONS: Final = (
    _K("transaction.max.timeout.ms", _INT, 900_000, "The longest transaction.", at_least(1)),
    _K(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        _TRANSACTIONS,
        at_least(1),
    ),
    _K(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        "Replicas of __transaction_state.",
        at_least(1),
    ),
    _K(
        "transaction.state.log.num.partitions",
        _INT,
        50,
        "Partitions of __transaction_state.",
        at_least(1),
    ),
    _K(
        "transaction.state.log.segment.bytes",
        _INT,
        100 * _MB,
        "Segment size of __transaction_state.",
        at_least(1),
    ),
    _K(
        "transaction.state.log.min.isr",
        _INT,
        2,
        "In-sync replicas that writes to __transaction_state need.",
        at_least(1),
    ),
    _K(
        "transaction.state.log.load.buffer.size",
        _INT,
        5 * _MB,
        _TRANSACTIONS,
        at_least(1),
    ),
    _K(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        _TRANSACTIONS,
        at_least(1),
    ),
    _K(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        _TRANSACTIONS,
        at_least(1),
    ),
    _K("add.partitions.to.txn.retry.backoff.ms", _INT, 20, _TRANSACTIONS, at_least(1)),
    _K("add.partitions.to.txn.retry.backoff.max.ms", _INT, 100, _TRANSACTIONS, at_least(1)),
    _K(
        "transaction.partition.verification.enable",
        _BOOL,
        True,
        _TRANSACTIONS,
    ),
)

PRODUCERS: Final = (
    _K(
        "producer.id.expiration.ms",
        _INT,
        86_400_000,
        "How long an idle producer's sequence numbers are remembered.",
        at_least(1),
        Update.CLUSTER_WIDE,
    ),
    _K(
        "producer.id.expiration.check.interval.ms",
        _INT,
        600_000,
        "How often they are checked.",
        at_least(1),
        internal=True,
    ),
)

GROUP_KEYS: Final = (*CLASSIC, *CONSUMER, *OFFSETS, *TRANSACTIONS, *PRODUCERS)
