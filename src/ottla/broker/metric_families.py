"""A broker's metric families, made at each scrape from the broker's state.

Source: the MBeans of Kafka's brokers; docs/metrics.md maps the names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.metrics import Family, Sample, counter, gauge, histogram
from ottla.broker.remote.reads.read_metrics import read_families
from ottla.broker.remote.remote_metrics import remote_families, tiering_families
from ottla.coordinator.group_states import NAMES, State

if TYPE_CHECKING:
    from ottla.broker.core import Broker
    from ottla.broker.metrics import ApiMetrics, TopicMetrics
    from ottla.broker.partition import Partition
    from ottla.broker.produce.batch_work import BatchWork
from ottla.log.partition_log import PartitionLog


def request_families(
    apis: "Sequence[ApiMetrics]", partition_errors: "dict[str, Counter[int]]"
) -> Iterator[Family]:
    """Yield the request metrics; only APIs that were used have samples."""
    used = [each for each in apis if each.requests]

    def samples(value: "Callable[[ApiMetrics], Sample]") -> list[Sample]:
        return [value(each) for each in used]

    yield counter(
        "kafka_network_request_metrics_requests_total",
        "Requests received, by API.",
        samples(lambda each: ((("request", each.name),), each.requests)),
    )
    yield counter(
        "kafka_network_request_metrics_request_bytes_total",
        "Bytes of requests received, by API.",
        samples(lambda each: ((("request", each.name),), each.request_bytes)),
    )
    yield counter(
        "kafka_network_request_metrics_errors_total",
        "Error codes in responses, by API and error; a response can hold many.",
        _errors(apis, partition_errors),
    )
    yield histogram(
        "kafka_network_request_metrics_local_time_seconds",
        "Time of a request's handler on the loop.",
        samples(lambda each: ((("request", each.name),), each.local)),
    )
    yield histogram(
        "kafka_network_request_metrics_total_time_seconds",
        "From a whole request to its response, waits included.",
        samples(lambda each: ((("request", each.name),), each.total)),
    )


def _errors(
    apis: "Sequence[ApiMetrics]", partition_errors: "dict[str, Counter[int]]"
) -> Iterator[Sample]:
    for each in apis:
        errors = each.errors + partition_errors.get(each.name, Counter())
        for code, count in sorted(errors.items()):
            yield (("request", each.name), ("error", Error(code).name)), count


def broker_families(broker: "Broker") -> Iterator[Family]:
    """Yield the families of a broker whose logs are loaded."""
    yield from _topic_families(broker.replicas.topic_metrics)
    partitions = list(broker.replicas.hosted())
    yield from _replica_families(partitions)
    yield from _isr_families(broker)
    yield gauge(
        "kafka_server_replica_fetcher_manager_max_lag",
        "Largest lag of a followed partition, in committed records.",
        broker.fetchers.max_lag,
    )
    yield gauge(
        "kafka_server_replica_fetcher_manager_failed_partitions_count",
        "FollowedPartition partitions whose last fetch failed.",
        broker.fetchers.failed_count,
    )
    if broker.remote is not None:
        yield from remote_families(broker.remote.environment.metrics)
        yield from tiering_families(broker.remote.manager.tiering_counts())
        yield from read_families(broker.remote.reads, broker.replicas.fetch_reader)
    yield gauge(
        "kafka_log_log_manager_offline_log_directory_count",
        "Log directories that failed.",
        len(broker.log_dirs.offline_dirs),
    )
    yield gauge(
        "ottla_log_stray_folders",
        "Stray partition directories, which are kept and not used.",
        [((("directory", each.path),), len(each.strays)) for each in broker.log_dirs.dirs],
    )
    yield counter(
        "ottla_log_corruptions_total",
        "Damage found: in logs by truncations, fetches and copies, in checkpoints by the start.",
        [((), broker.replicas.damaged.count + broker.log_dirs.damaged_checkpoints)],
    )
    yield gauge(
        "kafka_server_delayed_operation_purgatory_size",
        "Requests that wait for replicas or for data.",
        [
            (
                (("delayed_operation", "DeleteRecords"),),
                broker.replicas.delete_records_purgatory.count,
            ),
            ((("delayed_operation", "Fetch"),), broker.replicas.fetch_reader.count),
            ((("delayed_operation", "Produce"),), broker.replicas.produce_purgatory.count),
        ],
    )
    yield from _batch_work_families(broker.replicas.batch_work)
    yield from _session_families(broker)
    yield from _group_families(broker)
    if broker.zk_metadata is None:  # ZooKeeper-mode metadata has no offsets.
        yield gauge(
            "kafka_server_broker_metadata_metrics_last_applied_record_offset",
            "The last metadata record that this broker has applied.",
            broker.image.position[0],
        )
    yield from _log_families(partitions)


def _topic_families(topics: "Iterable[TopicMetrics]") -> Iterator[Family]:
    ordered = sorted(topics, key=lambda each: each.topic)
    for name, text, value in TOPIC_COUNTERS:
        yield counter(
            f"kafka_server_broker_topic_metrics_{name}_total",
            text,
            [((("topic", each.topic),), value(each)) for each in ordered],
        )


TOPIC_COUNTERS: "tuple[tuple[str, str, Callable[[TopicMetrics], int]], ...]" = (
    ("messages_in", "Records appended as leader.", lambda each: each.messages_in),
    ("bytes_in", "Bytes of batches appended as leader.", lambda each: each.bytes_in),
    ("bytes_out", "Bytes of batches read for consumers.", lambda each: each.bytes_out),
    (
        "replication_bytes_in",
        "Bytes of batches appended as follower.",
        lambda each: each.replication_bytes_in,
    ),
    (
        "replication_bytes_out",
        "Bytes of batches read for followers.",
        lambda each: each.replication_bytes_out,
    ),
    (
        "failed_produce_requests",
        "Appends to a partition that were refused or failed.",
        lambda each: each.failed_produces,
    ),
    (
        "failed_fetch_requests",
        "Reads of a partition that were refused or failed.",
        lambda each: each.failed_fetches,
    ),
)


def _replica_families(partitions: "list[Partition]") -> Iterator[Family]:
    led = [each for each in partitions if each.is_leader]
    yield gauge(
        "kafka_server_replica_manager_partition_count",
        "Partitions that this broker hosts.",
        len(partitions),
    )
    yield gauge(
        "kafka_server_replica_manager_leader_count",
        "Partitions that this broker leads.",
        len(led),
    )
    yield gauge(
        "kafka_server_replica_manager_offline_replica_count",
        "Hosted partitions whose log directory has failed.",
        sum(each.log is None for each in partitions),
    )
    yield gauge(
        "kafka_server_replica_manager_under_replicated_partitions",
        "Led partitions with fewer replicas in sync than they have.",
        sum(each.is_under_replicated for each in led),
    )
    yield gauge(
        "kafka_server_replica_manager_under_min_isr_partition_count",
        "Led partitions with fewer replicas in sync than min.insync.replicas.",
        sum(len(each.isr) < each.min_isr for each in led),
    )
    yield gauge(
        "kafka_server_replica_manager_at_min_isr_partition_count",
        "Led partitions with just min.insync.replicas in sync.",
        sum(len(each.isr) == each.min_isr for each in led),
    )
    yield gauge(
        "kafka_server_replica_manager_reassigning_partitions",
        "Led partitions that are being reassigned.",
        sum(each.is_reassigning for each in led),
    )


def _isr_families(broker: "Broker") -> Iterator[Family]:
    isr = broker.isr
    for name, text, value in (
        ("isr_shrinks", "Successful ISR shrinks of partitions led here.", isr.shrinks),
        ("isr_expands", "Successful ISR expansions of partitions led here.", isr.expands),
        ("failed_isr_updates", "ISR proposals that failed.", isr.failures),
    ):
        yield counter(f"kafka_server_replica_manager_{name}_total", text, [((), value)])


def _batch_work_families(work: "BatchWork") -> Iterator[Family]:
    yield counter(
        "ottla_batch_work_total",
        "Batch tasks that workers have completed.",
        [((), work.done)],
    )
    yield counter(
        "ottla_batch_work_reserved_bytes_total",
        "Bytes reserved for batch tasks, completed and running.",
        [((), work.reserved_bytes)],
    )
    yield gauge("ottla_batch_work_waiting", "Batch tasks that have not completed.", work.waiting)


def _session_families(broker: "Broker") -> Iterator[Family]:
    prefix = "kafka_server_fetch_session_cache"
    yield gauge(
        f"{prefix}_num_incremental_fetch_sessions", "Fetch sessions held.", len(broker.sessions)
    )
    yield gauge(
        f"{prefix}_num_incremental_fetch_partitions_cached",
        "Partitions in fetch sessions.",
        broker.sessions.partition_count,
    )
    yield counter(
        f"{prefix}_incremental_fetch_session_evictions_total",
        "Fetch sessions that were evicted.",
        [((), broker.sessions.evictions)],
    )


def _group_families(broker: "Broker") -> Iterator[Family]:
    shards = broker.groups.served()
    states = Counter(group.state for shard in shards for group in shard.groups.values())
    yield gauge(
        "kafka_coordinator_group_group_metadata_manager_num_groups",
        "Groups that this broker coordinates, by state.",
        [((("state", NAMES[state]),), states[state]) for state in State],
    )
    yield gauge(
        "kafka_coordinator_group_group_metadata_manager_num_offsets",
        "Committed offsets that this broker stores.",
        sum(shard.offsets.count for shard in shards),
    )


def _log_families(partitions: "list[Partition]") -> Iterator[Family]:
    for name, text, value in LOG_GAUGES:
        yield gauge(f"kafka_log_log_{name}", text, _log_samples(partitions, value))


LOG_GAUGES: "tuple[tuple[str, str, Callable[[PartitionLog], int]], ...]" = (
    ("size_bytes", "Bytes of a partition's segments.", lambda log: log.size_bytes),
    ("log_start_offset", "A partition's first offset.", lambda log: log.log_start_offset),
    ("log_end_offset", "The next offset of a partition.", lambda log: log.log_end_offset),
    ("num_log_segments", "Segments of a partition.", lambda log: len(log.segments)),
)


def _log_samples(
    partitions: "list[Partition]", value: "Callable[[PartitionLog], int]"
) -> Iterator[Sample]:
    # Lazily: sending a long text takes several turns, and partitions may be removed meanwhile.
    for each in partitions:
        if each.log is not None:
            yield (("topic", each.topic), ("partition", str(each.partition_id))), value(each.log)
