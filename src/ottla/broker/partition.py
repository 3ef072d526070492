"""One partition that this broker hosts: who leads it, how far it is replicated, its log.

Leadership comes from the metadata image; the log is `ottla.log`'s. The high watermark follows
from the log ends of the in-sync replicas, so that a partition without followers commits what it
appends at once, and one with followers when they have fetched it.

Source: Kafka's Partition.scala; KIP-101, KIP-320 (leader epochs), KIP-207 (epoch start).
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_LEADER, NO_OFFSET, Uuid
from ottla.broker.metrics import TopicMetrics

if TYPE_CHECKING:
    from ottla.base.ports import Buffer
    from ottla.broker.fetch_sessions import FetchPartition
    from ottla.log.partition_log import PartitionLog
    from ottla.log.results import AppendInfo
    from ottla.log.slices import FileSlice
    from ottla.metadata.image import PartitionImage

Origin = Literal["client", "coordinator"]

_new = tuple.__new__
_NONE = Error.NONE

ACKS_ALL = -1


class PartitionRead(NamedTuple):
    """What a fetch finds in one partition. A named tuple: every fetch makes one for each."""

    error: Error
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    slices: "tuple[FileSlice, ...]" = ()
    size: int = 0
    aborted: tuple[tuple[int, int], ...] | None = None
    """(producer id, first offset) of transactions to skip; None unless read_committed asks."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the fetcher's log leaves the leader's."""

    def release(self) -> None:
        """Unpin the slices of a read that nobody will send."""
        for piece in self.slices:
            piece.release()


class Partition:
    """A hosted partition.

    Fields: `log`: None while its log folder is offline. `followers`: log end offset of each
            other replica, as far as it has told this leader; empty on becoming leader.
            `epoch_start_offset`: the log end when this leader's epoch began. `alone`: this
            broker holds the only replica, so that what it appends is committed. `metrics`: of
            the whole topic, shared by its partitions here.
    """

    __slots__ = (
        "alone",
        "deleted",
        "epoch_start_offset",
        "followers",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "metrics",
        "min_insync_replicas",
        "node_id",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        index: int,
        *,
        node_id: int,
        log: "PartitionLog | None",
        metrics: TopicMetrics | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.node_id = node_id
        self.log = log
        self.metrics = TopicMetrics(topic) if metrics is None else metrics
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.alone = False
        self.followers: dict[int, int] = {}
        self.epoch_start_offset = NO_OFFSET
        self.deleted = False
        self.min_insync_replicas = 1

    @property
    def is_leader(self) -> bool:
        """Tell whether this broker leads the partition."""
        return self.leader == self.node_id

    @property
    def min_isr(self) -> int:
        """Return how many in-sync replicas acks=all needs; never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.replicas))

    def follow(self, state: "PartitionImage") -> bool:
        """Take over what the metadata says; return whether this broker begins a leader's epoch."""
        if state.partition_epoch < self.partition_epoch:
            return False
        begins = state.leader == self.node_id and state.leader_epoch > self.leader_epoch
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.isr = tuple(state.isr)
        self.alone = self.replicas == self.isr == (self.node_id,)
        if begins:
            self.followers = {}
            if self.log is not None:
                self.epoch_start_offset = self.log.log_end_offset
                self.log.assign_epoch(self.leader_epoch)
        if self.is_leader and self.log is not None:
            self.advance_high_watermark()
        return begins

    # -- Who may ask --

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise ApiError unless the asker's idea of the leader epoch is ours; -1 = it has none."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(Error.FENCED_LEADER_EPOCH)
        raise ApiError(Error.UNKNOWN_LEADER_EPOCH)

    def leader_log(self, current_leader_epoch: int = NO_EPOCH) -> "PartitionLog":
        """Return the log, for what only a leader answers; raise ApiError where it may not."""
        self.check_epoch(current_leader_epoch)
        if self.log is None:
            raise ApiError(Error.KAFKA_STORAGE_ERROR)
        if self.leader != self.node_id:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        return self.log

    # -- Appending --

    def append(
        self, data: "Buffer", acks: int, now_ms: int, origin: Origin = "client"
    ) -> "AppendInfo":
        """Append produced batches; raise ApiError where they or the replicas are not fit."""
        log = self.log
        if log is None or self.leader != self.node_id:
            log = self.leader_log()
        if acks == ACKS_ALL and not self.alone and len(self.isr) < self.min_isr:
            raise ApiError(
                Error.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas are in sync, min.insync.replicas is {self.min_isr}",
            )
        info = log.append_as_leader(
            data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
        )
        if self.alone:
            log.advance_high_watermark(log.log_end_offset)
        else:
            self.advance_high_watermark()
        return info

    def lags(self, last_offset: int) -> bool:
        """Tell whether some in-sync replica does not have that offset yet."""
        return self.log is None or self.log.high_watermark <= last_offset

    def advance_high_watermark(self) -> bool:
        """Commit what all in-sync replicas have; return whether that moved.

        Below min.insync.replicas nothing is committed: what too few replicas hold could be lost
        with them after a consumer had read it.
        """
        log = self.log
        assert log is not None
        end = log.log_end_offset
        if not self.alone:
            if len(self.isr) < self.min_isr:
                return False
            for node in self.isr:
                if node != self.node_id:
                    end = min(end, self.followers.get(node, 0))
        return log.advance_high_watermark(end)

    def committed(self, next_offset: int) -> Error | None:
        """Return how acks=all for all before `next_offset` ends, or None while it must wait."""
        if self.deleted:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if self.leader != self.node_id:
            return Error.NOT_LEADER_OR_FOLLOWER
        if self.log is None:
            return Error.KAFKA_STORAGE_ERROR
        if self.log.high_watermark < next_offset:
            return None
        if len(self.isr) < self.min_isr:
            return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Error.NONE

    # -- Reading --

    def read(
        self, asked: "FetchPartition", max_bytes: int, at_least_one: bool, committed_only: bool
    ) -> PartitionRead:
        """Read from the offset asked for, up to the high watermark or the last stable offset.

        Raises: ApiError where leadership, epoch or offset do not allow it.
        """
        log, epoch = self.log, asked.current_leader_epoch
        if log is None or self.leader != self.node_id or epoch not in (NO_EPOCH, self.leader_epoch):
            log = self.leader_log(epoch)
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        start, offset = log.log_start_offset, asked.fetch_offset
        if asked.last_fetched_epoch >= 0:
            diverging = self._divergence(asked, log)
            if diverging is not None:
                return PartitionRead(Error.NONE, high_watermark, stable, start, diverging=diverging)
        bound = stable if committed_only else high_watermark
        nothing = max_bytes <= 0 and not at_least_one and start <= offset
        if (nothing or offset >= bound) and start <= offset <= log.log_end_offset:
            none = () if committed_only else None
            return _new(PartitionRead, (_NONE, high_watermark, stable, start, (), 0, none, None))
        found = log.read(offset, max_bytes=max_bytes, upper_bound=bound, at_least_one=at_least_one)
        aborted = None
        if committed_only:
            # Those up to the bound, not only up to what was read: clients pass over the rest.
            aborted = tuple(
                (one.producer_id, one.first_offset)
                for one in log.aborted_transactions(offset, bound)
            )
        return _new(
            PartitionRead,
            (_NONE, high_watermark, stable, start, found.slices, found.size, aborted, None),
        )

    def _divergence(self, asked: "FetchPartition", log: "PartitionLog") -> tuple[int, int] | None:
        """Return where the fetcher's log leaves this one, judged by the epoch it fetched last."""
        found = log.epoch_end_offset(asked.last_fetched_epoch)
        if found.end_offset == NO_OFFSET:
            raise ApiError(
                Error.OFFSET_OUT_OF_RANGE,
                f"the end of epoch {asked.last_fetched_epoch} is not known here",
            )
        if asked.fetch_offset < log.log_start_offset:
            raise ApiError(Error.OFFSET_OUT_OF_RANGE)
        epoch, end_offset = found
        if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
            return found
        return None
