"""What the tasks of all partitions of a broker share: ports, limits, counters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.base.errors import ApiError
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Dice, Workers
from ottla.base.timers import Timers
from ottla.broker.remote.copy_quota import UNLIMITED, TokenBucket
from ottla.broker.remote.dialogue import Slots
from ottla.broker.remote.held_bytes import HeldBytes
from ottla.broker.remote.remote_metrics import RemoteMetrics
from ottla.broker.remote.store_calls import StoreCalls

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.log.results import DamagedLog
    from ottla.metadata.tiering import RestoredPartition
    from ottla.tiered.remote_log import RemoteLog
    from ottla.tiered.segment_metadata import MetadataRecord

DELETED_SEGMENTS_PER_SECOND_MAX = 100
"""Remote segments that a broker deletes, on average: a topic's retention that was shortened must
not take the store's whole request rate."""

DELETE_WINDOW_SECONDS = 10

BACKFILL_BYTES_MAX = 8 * 1024 * 1024
"""That followers hold of their leaders' earlier records, but for responses that are under way."""

PURGES_AT_ONCE_MAX = 4
"""Partitions of deleted topics whose objects are deleted at once."""


class SegmentMetadataLog(Protocol):
    """The remote segment metadata, as far as copies and deletions need it."""

    def append(self, record: "MetadataRecord") -> Pending[ApiError | None]:
        """Append a record; complete once this broker's own reader has replayed it.

        After an error the record may have been appended, or may be later.
        """
        ...

    def remote_log(self, topic_id: Uuid, partition: int) -> "RemoteLog | None":
        """Return the remote segments of a partition; None = not replayed up to now yet."""
        ...

    def replayed(self, topic_id: Uuid, partition: int) -> "RemoteLog | None":
        """Return the same, also of a partition that is not settled (`metadata.settled`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogManagerConfig:
    """The broker's configuration of copies and deletions, typed.

    Source: RemoteLogManagerConfig; the names are `remote.log.manager.` and what the comments say.
    """

    interval_ms: int = 30_000
    """task.interval.ms: the fallback, where an event was missed."""
    copier_slots: int = 10
    """copier.thread.pool.size: segments that are copied at once."""
    expiration_slots: int = 10
    """expiration.thread.pool.size: partitions whose segments are deleted at once."""
    copy_bytes_per_second: int = UNLIMITED
    """copy.max.bytes.per.second."""
    copy_window_seconds: int = 11
    """copy.quota.window.num times copy.quota.window.size.seconds."""


class TopicFacts(NamedTuple):
    """What the base manifests say of a topic, for a restore."""

    partition_count: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRecords:
    """What a follower's backfill (`tasks.local_backfill`) needs of its broker.

    Fields: `read(topic_id, partition, offset)` returns the promise of the leader's committed
            records from an offset on, as consumers get them; a partition has one read at a time.
            `cancel(topic_id, partition)`: drop it. `store_local_start(log)`: returns the promise
            that the checkpoint of the log's directory has its starts.
    """

    read: Callable[[Uuid, int, int], Pending[bytes | ApiError]]
    cancel: Callable[[Uuid, int], object]
    store_local_start: "Callable[[PartitionLog], Pending[OSError | None]]"


def _ignore_damage(_log: "PartitionLog", _leader_epoch: int, _damage: "DamagedLog") -> None:
    pass


def _not_restored(_topic_id: Uuid, _partition: int) -> None:
    return None


@dataclass(slots=True, kw_only=True)
class RemoteEnvironment:
    """See the module.

    Fields: `topic_facts(topic_id)`: as of the newest metadata.
            `publish_log_start(log, offset)`: completes once this log start, or a higher one, is
            durable here and every live replica has it; readers anywhere see nothing below it then.
            `restored(topic_id, partition)`: where a restored partition began, None = it was not.
            `leader_records`: for followers whose local log begins too late, None = they wait.
            `log_damaged(log, leader epoch, damage)`: called with each copy that fails for damage
            of the local files.
            `backfill_bytes`: what these have read from leaders and not written.
    """

    node_id: int
    metadata: SegmentMetadataLog
    calls: StoreCalls
    clock: Clock
    timers: Timers
    workers: Workers
    dice: Dice
    topic_facts: Callable[[Uuid], TopicFacts]
    publish_log_start: "Callable[[PartitionLog, int], Pending[ApiError | None]]"
    restored: "Callable[[Uuid, int], RestoredPartition | None]" = _not_restored
    leader_records: LeaderRecords | None = None
    log_damaged: "Callable[[PartitionLog, int, DamagedLog], object]" = _ignore_damage
    config: RemoteLogManagerConfig = field(default_factory=RemoteLogManagerConfig)
    metrics: RemoteMetrics = field(default_factory=RemoteMetrics)
    backfill_bytes: HeldBytes = field(default_factory=lambda: HeldBytes(BACKFILL_BYTES_MAX))
    copier_slots: Slots = field(init=False)
    expiration_slots: Slots = field(init=False)
    purge_slots: Slots = field(init=False)
    copy_quota: TokenBucket = field(init=False)
    delete_quota: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        self.copier_slots = Slots(config.copier_slots)
        self.expiration_slots = Slots(config.expiration_slots)
        self.purge_slots = Slots(PURGES_AT_ONCE_MAX)
        self.copy_quota = TokenBucket(
            self.clock,
            per_second=config.copy_bytes_per_second,
            window_seconds=config.copy_window_seconds,
        )
        self.delete_quota = TokenBucket(
            self.clock,
            per_second=DELETED_SEGMENTS_PER_SECOND_MAX,
            window_seconds=DELETE_WINDOW_SECONDS,
        )

    def reconfigure(self, config: RemoteLogManagerConfig) -> None:
        """Apply another configuration; what is under way goes on. The window does not change."""
        if config == self.config:
            return
        if config.copy_bytes_per_second != self.config.copy_bytes_per_second:
            self.copy_quota.change_rate(config.copy_bytes_per_second)
        self.copier_slots.resize(config.copier_slots)
        self.expiration_slots.resize(config.expiration_slots)
        self.config = config
