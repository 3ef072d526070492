"""A node's properties about share groups, streams groups and the newer group coordinator.

Kafka's sample files and other existing files have some of them: they are accepted,
and have no effect. Source: ShareGroupConfig, ShareCoordinatorConfig, GroupCoordinatorConfig, Kafka
4.3.
"""

from typing import Final

from ottla.metadata.config_def import INT_MAX, ConfigKey, Type, at_least, between

_K = ConfigKey
_INT, _SHORT, _LIST = Type.INT, Type.SHORT, Type.LIST
_MB = 1024 * 1024

_SHARE = "For share groups (KIP-932), which are not served yet: without an effect."
SHARE: Final = (
    _K("group.share.assignment.interval.ms", _INT, 1000, _SHARE, at_least(0)),
    _K("group.share.assignors", _LIST, ("simple",), _SHARE),
    _K("group.share.delivery.count.limit", _INT, 5, _SHARE, between(2, 10)),
    _K("group.share.heartbeat.interval.ms", _INT, 5000, _SHARE, at_least(1)),
    _K("group.share.initialize.retry.interval.ms", _INT, 30000, _SHARE, at_least(1)),
    _K("group.share.max.assignment.interval.ms", _INT, 15000, _SHARE, at_least(0)),
    _K("group.share.max.delivery.count.limit", _INT, 10, _SHARE, between(5, 25)),
    _K("group.share.max.heartbeat.interval.ms", _INT, 15000, _SHARE, at_least(1)),
    _K("group.share.max.partition.max.record.locks", _INT, 4000, _SHARE, between(2000, 10000)),
    _K("group.share.max.record.lock.duration.ms", _INT, 60000, _SHARE, between(30000, 3600000)),
    _K("group.share.max.session.timeout.ms", _INT, 60000, _SHARE, at_least(1)),
    _K("group.share.max.share.sessions", _INT, 2000, _SHARE, at_least(1)),
    _K("group.share.max.size", _INT, 200, _SHARE, between(1, 1000)),
    _K("group.share.min.assignment.interval.ms", _INT, 0, _SHARE, at_least(0)),
    _K("group.share.min.delivery.count.limit", _INT, 2, _SHARE, between(2, 5)),
    _K("group.share.min.heartbeat.interval.ms", _INT, 5000, _SHARE, at_least(1)),
    _K("group.share.min.partition.max.record.locks", _INT, 100, _SHARE, between(100, 2000)),
    _K("group.share.min.record.lock.duration.ms", _INT, 15000, _SHARE, between(1000, 30000)),
    _K("group.share.min.session.timeout.ms", _INT, 45000, _SHARE, at_least(1)),
    _K("group.share.partition.max.record.locks", _INT, 2000, _SHARE, between(100, 10000)),
    _K("group.share.record.lock.duration.ms", _INT, 30000, _SHARE, between(1000, 3600000)),
    _K("group.share.session.timeout.ms", _INT, 45000, _SHARE, at_least(1)),
    _K("share.coordinator.append.linger.ms", _INT, -1, _SHARE, at_least(-1)),
    _K("share.coordinator.cached.buffer.max.bytes", _INT, 1048588, _SHARE, at_least(524288)),
    _K("share.coordinator.cold.partition.snapshot.interval.ms", _INT, 300000, _SHARE, at_least(1)),
    _K("share.coordinator.load.buffer.size", _INT, 5 * _MB, _SHARE, at_least(1)),
    _K(
        "share.coordinator.snapshot.update.records.per.snapshot", _INT, 500, _SHARE, between(0, 500)
    ),
    _K("share.coordinator.state.topic.compression.codec", _INT, 0, _SHARE),
    _K("share.coordinator.state.topic.min.isr", _SHORT, 2, _SHARE, at_least(1)),
    _K("share.coordinator.state.topic.num.partitions", _INT, 50, _SHARE, at_least(1)),
    _K("share.coordinator.state.topic.prune.interval.ms", _INT, 300000, _SHARE, at_least(1)),
    _K("share.coordinator.state.topic.replication.factor", _SHORT, 3, _SHARE, at_least(1)),
    _K("share.coordinator.state.topic.segment.bytes", _INT, 100 * _MB, _SHARE, at_least(1)),
    _K("share.coordinator.threads", _INT, 1, _SHARE, at_least(1)),
    _K("share.coordinator.write.timeout.ms", _INT, 5000, _SHARE, at_least(1)),
    _K("share.fetch.purgatory.purge.interval.requests", _INT, 1000, _SHARE),
    _K("share.fetch.max.fetch.records", _INT, INT_MAX, _SHARE, at_least(1)),
    _K("group.share.max.groups", _INT, 10, _SHARE, between(1, 100)),
)

_STREAMS = "For streams groups (KIP-1071), which are not served yet: without an effect."
STREAMS: Final = (
    _K("group.streams.assignment.interval.ms", _INT, 1000, _STREAMS, at_least(0)),
    _K("group.streams.heartbeat.interval.ms", _INT, 5000, _STREAMS, at_least(1)),
    _K("group.streams.initial.rebalance.delay.ms", _INT, 3000, _STREAMS, at_least(0)),
    _K("group.streams.max.assignment.interval.ms", _INT, 15000, _STREAMS, at_least(0)),
    _K("group.streams.max.heartbeat.interval.ms", _INT, 15000, _STREAMS, at_least(1)),
    _K("group.streams.max.session.timeout.ms", _INT, 60000, _STREAMS, at_least(1)),
    _K("group.streams.max.size", _INT, INT_MAX, _STREAMS, at_least(1)),
    _K("group.streams.max.standby.replicas", _INT, 2, _STREAMS, at_least(0)),
    _K("group.streams.min.assignment.interval.ms", _INT, 0, _STREAMS, at_least(0)),
    _K("group.streams.min.heartbeat.interval.ms", _INT, 5000, _STREAMS, at_least(1)),
    _K("group.streams.min.session.timeout.ms", _INT, 45000, _STREAMS, at_least(1)),
    _K("group.streams.num.standby.replicas", _INT, 0, _STREAMS, at_least(0)),
    _K("group.streams.session.timeout.ms", _INT, 45000, _STREAMS, at_least(1)),
)

_CONSUMER = "For the consumer protocol (KIP-848), which is not served yet: without an effect."
_COORDINATOR = "Without an effect: groups run on the node's loop, which writes records at once."
NEWER: Final = (
    _K("group.consumer.assignment.interval.ms", _INT, 1000, _CONSUMER, at_least(0)),
    _K("group.consumer.max.assignment.interval.ms", _INT, 15000, _CONSUMER, at_least(0)),
    _K("group.consumer.min.assignment.interval.ms", _INT, 0, _CONSUMER, at_least(0)),
    _K("group.coordinator.background.threads", _INT, 2, _COORDINATOR, at_least(1)),
    _K("group.coordinator.cached.buffer.max.bytes", _INT, 1048588, _COORDINATOR, at_least(524288)),
)

SHARE_KEYS: Final = (*SHARE, *STREAMS, *NEWER)
