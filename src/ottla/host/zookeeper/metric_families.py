"""The metrics of a node in ZooKeeper mode: its session and its controller.

Only the elected controller has the gauges of the cluster; those of the others are 0. They are
counted from the image at each scrape, so that no gauge can drift from what is stored or be negative
(KAFKA-13572).

Differences from Kafka: a partition that never had a leader counts, and is offline. ControllerState
is only idle (0) or controller change (1): with one loop the other states could not be observed.

Not done: what would always be 0 here (FencedBrokerCount, ZkMigrationState, authentication,
read-only servers); the rates of each kind of the controller's work.
Source: KafkaController, ControllerContext, ControllerState, KafkaServer's SessionExpireListener
(ZooKeeperClient), Kafka 3.9.
"""

from collections.abc import Iterator
from typing import Protocol

from ottla.base.metrics import Family, Histogram, counter, gauge, histogram
from ottla.base.zookeeper import SessionState
from ottla.host.controller.controller_channel_metrics import channel_families
from ottla.host.controller.controller_runtime import DecisionMetrics
from ottla.host.controller.deletion_metrics import DeletionCounts, count_deletions, deletion_gauges
from ottla.host.metric_families import (
    CONTROLLER,
    LastCount,
    PartitionCounts,
    cluster_gauges,
    count_partitions,
    election_families,
)
from ottla.host.tiering_metrics import tiering_gauges
from ottla.host.zookeeper.controller_node import ZooKeeperController
from ottla.host.zookeeper.session_keeper import SessionKeeper
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import PartitionImage

IDLE, TAKING_OVER = 0, 1
"""Values of ControllerState: idle, controller change."""


class Roles(Protocol):
    """What is needed of `ottla.host.zookeeper.node_mode.ZooKeeperMode`."""

    keeper: SessionKeeper
    controller: ZooKeeperController | None
    request_latency: Histogram


class ZooKeeperFamilies:
    """All families of one node."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._counts = LastCount(_count)

    def collect(self) -> Iterator[Family]:
        """Yield the families as of now; those of the controller once it is made."""
        roles = self._roles
        yield from session_families(roles.keeper, roles.request_latency)
        controller = roles.controller
        if controller is None:
            return
        image = controller.image
        partitions, deletions = self._counts.of(image)
        yield from cluster_gauges(
            is_active=controller.is_elected, active_brokers=len(image.brokers), counts=partitions
        )
        yield from deletion_gauges(deletions)
        yield from tiering_gauges(image)
        yield gauge(
            f"{CONTROLLER}_controller_state",
            "0 idle, 1 on a new controller until it has sent the brokers the complete state.",
            TAKING_OVER if controller.is_taking_over else IDLE,
        )
        metrics = controller.metrics
        yield from election_families(controller.leaders_seen, metrics.statistics)
        yield from _decision_families(controller.queue_size, metrics)
        yield from channel_families(controller.channels)


def session_families(keeper: SessionKeeper, latency: Histogram) -> Iterator[Family]:
    """Yield the metrics of the ZooKeeper session."""
    prefix = "kafka_server_session_expire_listener"
    yield gauge(
        f"{prefix}_session_state",
        "The state of the ZooKeeper session.",
        [((("state", keeper.state.value),), 1)],
    )
    for name, text, state in (
        ("disconnects", "Connections to ZooKeeper that were lost.", SessionState.SUSPENDED),
        ("sync_connects", "Connections to ZooKeeper that were made.", SessionState.CONNECTED),
        ("expires", "Sessions that ZooKeeper has ended.", SessionState.EXPIRED),
    ):
        yield counter(f"{prefix}_zookeeper_{name}_total", text, [((), keeper.state_counts[state])])
    yield histogram(
        "kafka_server_zookeeper_client_metrics_zookeeper_request_latency_seconds",
        "From a request to ZooKeeper to its answer, waits for a connection included.",
        latency,
    )


# -- the cluster -------------------------------------------------------------------------------


def _count(image: ClusterImage) -> tuple[PartitionCounts, DeletionCounts]:
    return count_partitions(image, _is_balanced), count_deletions(image)


def _is_balanced(partition: PartitionImage) -> bool:
    """Tell whether the preferred replica leads, or is being added and not in sync yet."""
    preferred = partition.replicas[0]
    return partition.leader == preferred or (
        preferred in partition.adding_replicas and preferred not in partition.isr
    )


# -- the controller's work ---------------------------------------------------------------------


def _decision_families(queue_size: int, metrics: DecisionMetrics) -> Iterator[Family]:
    prefix = "kafka_controller_controller_event_manager"
    yield gauge(f"{prefix}_event_queue_size", "Decisions of the controller that wait.", queue_size)
    yield histogram(
        f"{prefix}_event_queue_time_seconds",
        "How long decisions of the controller waited for their turn.",
        metrics.queue_time,
    )
    yield counter(
        "ottla_controller_append_records_total",
        "Records of the controller's decisions that were written to ZooKeeper.",
        [((), metrics.records_appended)],
    )
    yield histogram(
        "ottla_controller_commit_latency_seconds",
        "From a decision to its being written to ZooKeeper.",
        metrics.commit_latency,
    )
