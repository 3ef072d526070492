"""Counters of copies to the remote tier, of reads, deletions and followers' starts, by topic.

Source: Kafka's BrokerTopicMetrics, RemoteLogManager, RLMQuotaMetrics (KIP-405, KIP-956, KIP-963,
KIP-1018); docs/metrics.md maps the names.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ottla.base.metrics import Family, Sample, counter, gauge, histogram, latency_ms


@dataclass(slots=True)
class RemoteTopicMetrics:
    """What this broker has copied, read and deleted of a topic's partitions.

    Fields: `build_aux_state_*`: states of followers' logs that begin behind remote records.
    """

    topic: str
    copied_bytes: int = 0
    copy_requests: int = 0
    copy_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    build_aux_state_requests: int = 0
    build_aux_state_errors: int = 0
    fetched_bytes: int = 0
    fetch_requests: int = 0
    fetch_errors: int = 0


@dataclass(slots=True)
class RemotePartitionMetrics:
    """The state of a partition that this broker leads; all zero for one that it follows.

    Fields: `copy_lag_*`: local segments that are sealed and not copied yet. `delete_lag_*`: remote
            segments that are being deleted. `metadata_count`: remote segments of any state.
            `size_bytes`: of the readable ones; `size_computation_ms`: how long adding them up took.
    """

    topic: str
    partition: int
    copy_lag_bytes: int = 0
    copy_lag_segments: int = 0
    delete_lag_bytes: int = 0
    delete_lag_segments: int = 0
    metadata_count: int = 0
    size_bytes: int = 0
    size_computation_ms: int = 0


class RemoteMetrics:
    """The counters by topic, and the gauges by partition; an owner holds its object.

    Fields: `copy_throttle_time`, `fetch_throttle_time`: how long the quotas delayed copies, and how
            long those that read had still to wait; `read_time`: of remote reads.
    """

    def __init__(self) -> None:
        self.copy_throttle_time = latency_ms()
        self.fetch_throttle_time = latency_ms()
        self.read_time = latency_ms()
        self._topics: dict[str, RemoteTopicMetrics] = {}
        self._partitions: dict[tuple[str, int], RemotePartitionMetrics] = {}
        self._purges: dict[int, RemotePartitionMetrics] = {}
        """Of deleted topics, whose names may be other topics' by now; by identity."""

    def of_topic(self, topic: str) -> RemoteTopicMetrics:
        """Return a topic's counters; they stay while the broker runs."""
        return self._topics.setdefault(topic, RemoteTopicMetrics(topic))

    def add_partition(self, topic: str, partition: int) -> RemotePartitionMetrics:
        """Return new gauges of a partition, all zero."""
        made = RemotePartitionMetrics(topic, partition)
        self._partitions[topic, partition] = made
        return made

    def remove_partition(self, gauges: RemotePartitionMetrics) -> None:
        """Drop a partition's gauges, unless newer ones have replaced them."""
        key = gauges.topic, gauges.partition
        if self._partitions.get(key) is gauges:
            del self._partitions[key]

    def add_purge(self, topic: str, partition: int) -> RemotePartitionMetrics:
        """Return the gauges of a deleted topic's partition; only `delete_lag_*` of them count."""
        made = RemotePartitionMetrics(topic, partition)
        self._purges[id(made)] = made
        return made

    def remove_purge(self, gauges: RemotePartitionMetrics) -> None:
        """Drop the gauges of a purge that has ended, or that another broker goes on with."""
        self._purges.pop(id(gauges), None)

    @property
    def purges(self) -> int:
        """Return how many partitions of deleted topics this broker has to purge."""
        return len(self._purges)

    @property
    def topics(self) -> list[RemoteTopicMetrics]:
        """Return the counters by topic."""
        return [self._topics[topic] for topic in sorted(self._topics)]

    @property
    def partitions(self) -> list[RemotePartitionMetrics]:
        """Return the gauges by topic and partition, with those of purges under their names."""
        found = dict(self._partitions)
        for purge in self._purges.values():
            key = purge.topic, purge.partition
            known = found.get(key, RemotePartitionMetrics(*key))
            found[key] = replace(
                known,
                delete_lag_bytes=known.delete_lag_bytes + purge.delete_lag_bytes,
                delete_lag_segments=known.delete_lag_segments + purge.delete_lag_segments,
            )
        return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringCounts:
    """The partitions here that are not done with a change of their topic's tiering state.

    Fields: `disabling`: led, and the fence that ends copies is not replayed. `purging`: led, and
            segments that were given up are left. `filling`: followed, and earlier records are being
            copied from the leader.
    """

    disabling: int = 0
    purging: int = 0
    filling: int = 0


TOPIC_COUNTERS: Final[tuple[tuple[str, str, Callable[[RemoteTopicMetrics], int]], ...]] = (
    ("remote_copy_bytes", "Bytes of copied segments.", lambda each: each.copied_bytes),
    ("remote_copy_requests", "Copies of segments, begun.", lambda each: each.copy_requests),
    ("remote_copy_errors", "Copies of segments that failed.", lambda each: each.copy_errors),
    (
        "remote_delete_requests",
        "Deletions of remote segments, begun.",
        lambda each: each.delete_requests,
    ),
    (
        "remote_delete_errors",
        "Deletions of remote segments that failed.",
        lambda each: each.delete_errors,
    ),
    (
        "build_remote_log_aux_state_requests",
        "Attempts to begin a follower's log behind remote records, begun.",
        lambda each: each.build_aux_state_requests,
    ),
    (
        "build_remote_log_aux_state_errors",
        "Attempts to begin a follower's log behind remote records that failed.",
        lambda each: each.build_aux_state_errors,
    ),
    ("remote_fetch_bytes", "Bytes read for consumers.", lambda each: each.fetched_bytes),
    ("remote_fetch_requests", "Reads for consumers, begun.", lambda each: each.fetch_requests),
    ("remote_fetch_errors", "Reads for consumers that failed.", lambda each: each.fetch_errors),
)

PARTITION_GAUGES: Final[tuple[tuple[str, str, Callable[[RemotePartitionMetrics], float]], ...]] = (
    (
        "remote_copy_lag_bytes",
        "Bytes of sealed segments that are not copied yet.",
        lambda each: each.copy_lag_bytes,
    ),
    (
        "remote_copy_lag_segments",
        "Sealed segments that are not copied yet.",
        lambda each: each.copy_lag_segments,
    ),
    (
        "remote_delete_lag_bytes",
        "Bytes of remote segments that are being deleted, those of deleted topics among them.",
        lambda each: each.delete_lag_bytes,
    ),
    (
        "remote_delete_lag_segments",
        "Remote segments that are being deleted, those of deleted topics among them.",
        lambda each: each.delete_lag_segments,
    ),
    (
        "remote_log_metadata_count",
        "Remote segments of any state.",
        lambda each: each.metadata_count,
    ),
    (
        "remote_log_size_bytes",
        "Bytes of the readable remote segments.",
        lambda each: each.size_bytes,
    ),
    (
        "remote_log_size_computation_time_seconds",
        "How long adding up the remote segments took.",
        lambda each: each.size_computation_ms / 1000,
    ),
)


def remote_families(metrics: RemoteMetrics) -> Iterator[Family]:
    """Yield the families by topic and by partition, and the times."""
    prefix = "kafka_server_broker_topic_metrics"
    for name, text, count in TOPIC_COUNTERS:
        yield counter(
            f"{prefix}_{name}_total",
            text,
            [((("topic", each.topic),), count(each)) for each in metrics.topics],
        )
    for name, text, value in PARTITION_GAUGES:
        yield gauge(f"{prefix}_{name}", text, _samples(metrics.partitions, value))
    yield gauge(
        "ottla_remote_purge_partitions",
        "Partitions of deleted topics whose objects this broker has to delete.",
        [((), metrics.purges)],
    )
    for name, text, times in (
        ("copy", "How long the quota delayed copies.", metrics.copy_throttle_time),
        (
            "fetch",
            "How long reads beyond the quota had to wait.",
            metrics.fetch_throttle_time,
        ),
    ):
        yield histogram(
            f"kafka_server_remote_log_manager_remote_{name}_throttle_time_seconds", text, times
        )
    yield histogram(
        "kafka_log_remote_remote_log_manager_remote_log_reader_fetch_time_seconds",
        "From the begin of a read of remote storage to its end.",
        metrics.read_time,
    )


def tiering_families(counts: TieringCounts) -> Iterator[Family]:
    """Yield what is left to do after changes of tiering states."""
    for name, text, count in (
        (
            "disabling_partitions",
            "Led partitions of topics whose copies have ended, without the fence that says so.",
            counts.disabling,
        ),
        (
            "disabled_purge_partitions",
            "Led partitions with remote segments that were given up when tiering was disabled.",
            counts.purging,
        ),
        (
            "backfill_partitions",
            "Followed partitions that copy records from before their local log start.",
            counts.filling,
        ),
    ):
        yield gauge(f"ottla_remote_{name}", text, [((), count)])


def _samples(
    partitions: Iterable[RemotePartitionMetrics], value: Callable[[RemotePartitionMetrics], float]
) -> list[Sample]:
    return [
        ((("topic", each.topic), ("partition", str(each.partition))), value(each))
        for each in partitions
    ]
