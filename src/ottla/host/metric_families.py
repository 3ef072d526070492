"""A node's metrics beyond its broker's: process, sockets, quorum, controller.

Those of ZooKeeper mode are in `ottla.host.zookeeper.metric_families`.

Source: the MBeans of Kafka's controllers and Raft clients; Prometheus' process metrics.
"""

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ottla.base.ids import NO_LEADER
from ottla.base.metrics import Family, Histogram, counter, gauge, histogram
from ottla.controller.elections.statistics import ElectionStatistics
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.controller.deletion_metrics import DeletionCounts, count_deletions, deletion_gauges
from ottla.host.kraft.metadata_log import MetadataLog
from ottla.host.metadata_publication import MetadataErrors
from ottla.host.net.refusals import Refusal
from ottla.host.net.server import Server
from ottla.host.tiering_metrics import tiering_gauges
from ottla.metadata.deletions import DeletionsImage
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import PartitionImage, TopicsImage
from ottla.raft.node import RaftNode

PROC = Path("/proc/self")

CONTROLLER = "kafka_controller_kafka_controller"

T = TypeVar("T")


def process_families(started_ms: int, proc: Path = PROC) -> Iterator[Family]:
    """Yield the resources of the process, as far as the system provides them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield counter(
        "process_cpu_seconds_total",
        "User and system CPU time spent.",
        [((), used.ru_utime + used.ru_stime)],
    )
    yield gauge(
        "process_start_time_seconds",
        "Start of the node since the epoch.",
        started_ms / 1000,
    )
    yield gauge(
        "process_max_fds",
        "The most file descriptors that may be open.",
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    try:
        virtual, resident = (proc / "statm").read_text(encoding="ascii").split()[:2]
        open_files = len(os.listdir(proc / "fd"))
    except OSError:  # Not Linux.
        return
    page = resource.getpagesize()
    yield gauge("process_virtual_memory_bytes", "Virtual memory.", int(virtual) * page)
    yield gauge("process_resident_memory_bytes", "Resident memory.", int(resident) * page)
    yield gauge("process_open_fds", "Open file descriptors.", open_files)


def loop_families(lag: Histogram, syncs: Histogram) -> Iterator[Family]:
    """Yield the loop's lag and the times of fsyncs."""
    yield histogram("ottla_loop_lag_seconds", "How late timers of the node's loop ran.", lag)
    yield histogram("ottla_disk_sync_seconds", "How long each fsync of a file took.", syncs)


def server_families(server: Server) -> Iterator[Family]:
    """Yield the connections of a node's listeners and the bytes they hold."""
    counts = Counter(dict.fromkeys(server.listener_names, 0))
    counts.update(each.info.listener_name for each in server.connections)
    yield gauge(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections, by listener.",
        [((("listener", name),), count) for name, count in sorted(counts.items())],
    )
    yield counter(
        "kafka_server_socket_server_metrics_connection_creation_total",
        "Connections that were accepted.",
        [((), server.accepted)],
    )
    yield gauge(
        "kafka_network_socket_server_memory_pool_used_bytes",
        "Bytes of unfinished and waiting requests.",
        server.frames_held_bytes,
    )
    yield counter(
        "ottla_refused_total",
        "Connections that were refused, or ended for what they sent, by listener and reason.",
        [
            ((("listener", name), ("reason", why.value)), refusals.counts[why])
            for name, refusals in sorted(server.refusals.items())
            for why in Refusal
        ],
    )


def raft_families(raft: RaftNode) -> Iterator[Family]:
    """Yield a member's or an observer's view of the metadata quorum."""
    prefix = "kafka_server_raft_metrics"
    yield gauge(f"{prefix}_current_leader", "Who leads the quorum; -1 = unknown.", raft.leader_id)
    yield gauge(f"{prefix}_current_epoch", "The quorum's epoch.", raft.epoch)
    yield gauge(
        f"{prefix}_current_vote",
        "Whom this member voted for in this epoch; -1 = nobody.",
        raft.voted_id,
    )
    role = raft.role.name.lower() if raft.is_voter else "observer"
    yield gauge(
        f"{prefix}_current_state",
        "What this member is in the quorum.",
        [((("state", role),), 1)],
    )
    yield gauge(f"{prefix}_number_of_voters", "Voters of the quorum.", len(raft.voters))
    yield gauge(
        f"{prefix}_high_watermark",
        "The end of what is committed; -1 = not known yet.",
        -1 if raft.high_watermark is None else raft.high_watermark,
    )
    yield gauge(
        f"{prefix}_log_end_offset",
        "The end of this node's copy of the metadata log.",
        raft.log.end_offset,
    )


def broker_state_families(state: int) -> Iterator[Family]:
    """Yield the state of a broker."""
    yield gauge(
        "kafka_server_kafka_server_broker_state",
        "0 not running, 1 starting, 2 recovery, 3 running, 6 controlled shutdown, 7 stopping.",
        state,
    )


def metadata_error_families(errors: MetadataErrors) -> Iterator[Family]:
    """Yield how often a broker failed to load or apply metadata."""
    prefix = "kafka_server_broker_metadata_metrics_metadata"
    yield gauge(
        f"{prefix}_apply_error_count",
        "How often a change of the metadata could not be applied; it is tried again.",
        errors.apply,
    )
    yield gauge(
        f"{prefix}_load_error_count",
        "How often metadata could not be loaded, which ends the node.",
        errors.load,
    )


class PartitionCounts(NamedTuple):
    """The topics and partitions of a cluster, and its offline and imbalanced partitions."""

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    imbalanced: int = 0


class LastCount(Generic[T]):
    """Counts of a cluster's topics, computed again only when they have changed."""

    def __init__(self, count: Callable[[ClusterImage], T]) -> None:
        self._count = count
        self._last: tuple[TopicsImage, DeletionsImage, T] | None = None

    def of(self, image: ClusterImage) -> T:
        """Return the counts of an image."""
        last = self._last
        if last is None or last[0] is not image.topics or last[1] is not image.deletions:
            last = self._last = image.topics, image.deletions, self._count(image)
        return last[2]


class ControllerFamilies:
    """A controller's metrics in KRaft mode."""

    def __init__(self, log: MetadataLog, runtime: ControllerRuntime) -> None:
        self._log = log
        self._runtime = runtime
        self._counts = LastCount(_count)

    def collect(self, timed_out_heartbeats: int) -> Iterator[Family]:
        """Yield the families as of now."""
        log, runtime = self._log, self._runtime
        image, metrics = runtime.committed_image, runtime.metrics
        fenced = sum(broker.fenced for broker in image.brokers.values())
        partitions, deletions = self._counts.of(image)
        yield from cluster_gauges(
            is_active=runtime.active,
            active_brokers=len(image.brokers) - fenced,
            counts=partitions,
        )
        yield from deletion_gauges(deletions)
        yield from tiering_gauges(image)
        prefix = CONTROLLER
        yield gauge(f"{prefix}_fenced_broker_count", "Registered brokers that are fenced.", fenced)
        yield gauge(
            f"{prefix}_last_committed_record_offset",
            "The last committed record that this controller has applied.",
            image.position[0],
        )
        yield gauge(
            f"{prefix}_last_applied_record_offset",
            "The last record that this controller's decisions rest on.",
            runtime.image.position[0],
        )
        yield counter(
            f"{prefix}_timed_out_broker_heartbeat_total",
            "Brokers fenced since they were silent for a session.",
            [((), timed_out_heartbeats)],
        )
        yield gauge(
            f"{prefix}_metadata_error_count",
            "How often metadata could not be loaded, which ends the node.",
            log.load_errors,
        )
        yield counter(
            "kafka_server_raft_metrics_append_records_total",
            "Metadata records that this controller appended.",
            [((), log.records_appended)],
        )
        yield histogram(
            "kafka_server_raft_metrics_commit_latency_seconds",
            "From the append of a decision's records to their commit.",
            metrics.commit_latency,
        )
        yield from election_families(log.leaders_seen, metrics.statistics)


def _count(image: ClusterImage) -> tuple[PartitionCounts, DeletionCounts]:
    return count_partitions(image), count_deletions(image)


def _is_led_as_preferred(partition: PartitionImage) -> bool:
    return partition.leader == partition.replicas[0]


def count_partitions(
    image: ClusterImage,
    is_balanced: Callable[[PartitionImage], bool] = _is_led_as_preferred,
) -> PartitionCounts:
    """Count partitions, offline partitions and imbalanced partitions.

    Partitions of a topic whose deletion has begun are not counted as offline, and those of a topic
    that waits for its deletion not as imbalanced. `is_balanced`: the right replica leads.
    """
    counts = Counter[str]()
    for topic in image.topics:
        is_served = not image.deletions.is_being_deleted(topic.id)
        is_kept = not image.deletions.is_queued(topic.id)
        for state in topic.partitions.values():
            counts["all"] += 1
            counts["offline"] += is_served and state.leader == NO_LEADER
            counts["imbalanced"] += is_kept and not is_balanced(state)
    return PartitionCounts(
        topics=len(image.topics),
        partitions=counts["all"],
        offline=counts["offline"],
        imbalanced=counts["imbalanced"],
    )


def election_families(leaders_seen: int, statistics: ElectionStatistics) -> Iterator[Family]:
    """Yield how often controllers, and partition leaders, were elected."""
    yield counter(
        f"{CONTROLLER}_new_active_controllers_total",
        "How often this node saw a controller become active.",
        [((), leaders_seen)],
    )
    prefix = "kafka_controller_controller_stats"
    for name, text, value in (
        ("leader_elections", "Partitions that got another leader.", statistics.elections),
        (
            "unclean_leader_elections",
            "Those whose new leader may lack acknowledged records.",
            statistics.unclean_elections,
        ),
    ):
        yield counter(f"{prefix}_{name}_total", text, [((), value)])


def cluster_gauges(
    *, is_active: bool, active_brokers: int, counts: PartitionCounts
) -> Iterator[Family]:
    """Yield the gauges of the cluster that controllers of both modes have."""
    rows: Iterable[tuple[str, str, int]] = (
        ("active_controller_count", "1 on the active controller.", int(is_active)),
        ("active_broker_count", "Brokers that are not fenced.", active_brokers),
        ("global_topic_count", "Topics of the cluster.", counts.topics),
        ("global_partition_count", "Partitions of the cluster.", counts.partitions),
        ("offline_partitions_count", "Partitions without a leader.", counts.offline),
        (
            "preferred_replica_imbalance_count",
            "Partitions that their first replica does not lead.",
            counts.imbalanced,
        ),
    )
    for name, text, value in rows:
        yield gauge(f"{CONTROLLER}_{name}", text, value)
