"""A broker's replica fetchers: which one replicates which partition from which leader.

Each leader has up to `num.replica.fetchers` fetchers, and a partition always has the same one of
them. Metadata changes come in through `update`, in the same turn of the loop in which the
partition's log was created, led or deleted, so that no response meets a half-applied change.

Source: Kafka's ReplicaManager.makeFollowers, AbstractFetcherManager, ReplicaFetcherManager.
"""

import logging
from collections.abc import Callable, Iterable

from ottla.base.errors import ApiError
from ottla.base.ids import NO_LEADER
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.partition import Partition
from ottla.broker.ports import Peers
from ottla.broker.replication import follower_rules
from ottla.broker.replication.remote_log_port import AuxStates
from ottla.broker.replication.replica_fetch_requests import (
    FetchSettings,
    FollowedPartition,
    TopicIdPartition,
)
from ottla.broker.replication.replica_fetcher import ReplicaFetcher, ReplicaManagerPort
from ottla.log.results import DamagedLog
from ottla.metadata.node_config import NodeConfig

logger = logging.getLogger(__name__)


class ReplicaFetchers:
    """See the module. `aux_states`: builds what a follower needs of remote storage; None = the
    broker has no tiered storage."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        broker_epoch: Callable[[], int],
        peers: Peers,
        replica_manager: ReplicaManagerPort,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._node_id: int = config.node_id
        self._lanes: int = config["num.replica.fetchers"]
        self._settings = fetch_settings(config)
        self._broker_epoch = broker_epoch
        self._peers = peers
        self._replica_manager = replica_manager
        self._clock = clock
        self._timers = timers
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._followed: dict[TopicIdPartition, tuple[FollowedPartition, ReplicaFetcher]] = {}
        self._suspended: set[TopicIdPartition] = set()
        self.aux_states: AuxStates | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def leader_count(self) -> int:
        """Return how many fetchers have partitions."""
        return sum(1 for fetcher in self._fetchers.values() if len(fetcher))

    @property
    def max_lag(self) -> int:
        """Return the largest lag of a followed partition, in committed records."""
        return max((followed.lag for followed, _ in self._followed.values()), default=0)

    @property
    def failed_count(self) -> int:
        """Return the number of partitions whose last fetch failed."""
        return sum(1 for followed, _ in self._followed.values() if followed.failures)

    def update(self, partitions: Iterable[Partition]) -> None:
        """Start, move and stop fetching, by these partitions' present state."""
        begun: dict[ReplicaFetcher, int] = {}
        for partition in partitions:
            key = (partition.topic_id, partition.partition_id)
            if partition.deleted:
                self._suspended.discard(key)
            if key in self._suspended or not self._is_followed(partition):
                self._stop(key)
                continue
            present = self._followed.get(key)
            if present is not None and _is_same(present, partition):
                continue
            self._stop(key)
            fetcher = self._start(partition)
            if fetcher is not None:
                begun[fetcher] = begun.get(fetcher, 0) + 1
        for fetcher, count in begun.items():
            logger.info(
                "added %d partitions to the fetcher for broker %d", count, fetcher.leader_id
            )
            fetcher.send_now()

    def suspend(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching these, whatever `update` says, until `resume` (StopReplica)."""
        for partition in partitions:
            key = (partition.topic_id, partition.partition_id)
            self._suspended.add(key)
            self._stop(key)

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Fetch those of these that were suspended again, by their present state."""
        suspended = [
            each for each in partitions if (each.topic_id, each.partition_id) in self._suspended
        ]
        self._suspended.difference_update((each.topic_id, each.partition_id) for each in suspended)
        self.update(suspended)
        for each in suspended:
            present = self._followed.get((each.topic_id, each.partition_id))
            if present is not None:
                present[0].fetched = True  # Possibly, before it was suspended.

    def close(self) -> None:
        """Stop all fetchers for good."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._followed.clear()

    def _is_followed(self, partition: Partition) -> bool:
        return (
            not partition.deleted
            and partition.leader not in (NO_LEADER, self._node_id)
            and partition.log is not None
        )

    def _stop(self, key: TopicIdPartition) -> None:
        present = self._followed.pop(key, None)
        if present is not None:
            present[1].remove(key)

    def _start(self, partition: Partition) -> ReplicaFetcher | None:
        log = partition.log
        assert log is not None
        try:
            if follower_rules.prepare(log):
                logger.info(
                    "%s: log has no leader epochs; truncated to the high watermark %d",
                    log.name,
                    log.log_end_offset,
                )
        except OSError as error:
            self._replica_manager.storage_failed(partition, error)
            return None
        except DamagedLog as damage:
            self._replica_manager.log_damaged(partition, damage, fetched=True)
            return None
        except ApiError as refusal:
            logger.error("%s: truncation before following failed: %s", log.name, refusal)
            return None
        followed = FollowedPartition(partition)
        fetcher = self._fetcher_of(partition)
        fetcher.add(followed)
        self._followed[followed.key] = followed, fetcher
        return fetcher

    def _fetcher_of(self, partition: Partition) -> ReplicaFetcher:
        spread = int.from_bytes(partition.topic_id[-4:], "big") + partition.partition_id
        place = partition.leader, spread % self._lanes
        if place not in self._fetchers:
            self._fetchers[place] = ReplicaFetcher(
                partition.leader,
                node_id=self._node_id,
                broker_epoch=self._broker_epoch,
                sender=self._peers.to(*place),
                sessionless_sender=self._peers.to(place[0], self._lanes + place[1]),
                replica_manager=self._replica_manager,
                clock=self._clock,
                timers=self._timers,
                settings=self._settings,
                aux_states=self.aux_states,
            )
        return self._fetchers[place]


def _is_same(present: tuple[FollowedPartition, ReplicaFetcher], partition: Partition) -> bool:
    followed, fetcher = present
    return (
        followed.partition is partition
        and followed.leader_epoch == partition.leader_epoch
        and fetcher.leader_id == partition.leader
    )


def fetch_settings(config: NodeConfig) -> FetchSettings:
    """Return a node's fetch settings."""
    return FetchSettings(
        max_wait_ms=config["replica.fetch.wait.max.ms"],
        min_bytes=config["replica.fetch.min.bytes"],
        partition_bytes_max=config["replica.fetch.max.bytes"],
        response_bytes_max=config["replica.fetch.response.max.bytes"],
        backoff_ms=config["replica.fetch.backoff.ms"],
        timeout_ms=config["replica.socket.timeout.ms"],
    )
