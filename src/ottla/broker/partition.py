"""One partition that this broker hosts: its leader, its ISR and high watermark, its log.

Leadership comes from the metadata image; the log is `ottla.log`'s. The high watermark is the
smallest log end of the in-sync replicas, so that a partition without followers commits appends at
once, and one with followers when they have fetched them. The leader proposes ISR changes (`isr`),
and the controller decides them.

Source: Kafka's Partition.scala; KIP-101, KIP-320 (leader epochs), KIP-207 (epoch start),
KIP-392 (reading from followers), KIP-497 (the maximal in-sync set), KIP-966 (min ISR).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_LEADER, NO_OFFSET, Uuid
from ottla.broker.fetch.reading import NO_REPLICA, PartitionRead, divergence
from ottla.broker.metrics import TopicMetrics
from ottla.broker.produce.refused_batches import RefusedBatches
from ottla.broker.replication.followers import NEVER_MS, FollowerState, check_broker_epoch, may_join
from ottla.broker.replication.isr import IsrChange, expansion, reduction
from ottla.log.results import NOTHING
from ottla.log.validation import Allowance, Examined
from ottla.metadata.brokers import BrokerImage

if TYPE_CHECKING:
    from ottla.base.ports import Buffer
    from ottla.broker.fetch.fetch_sessions import FetchPartition, FetchSession
    from ottla.log.partition_log import PartitionLog
    from ottla.log.results import AppendInfo
    from ottla.metadata.image import PartitionImage

Origin = Literal["client", "coordinator"]

_new = tuple.__new__
_NONE = Error.NONE

ACKS_ALL = -1

LAG_TIME_MAX_MS = 30_000
"""Kafka's default of replica.lag.time.max.ms."""

REFUSED_PAUSE_MS = 500
"""How long a leader waits for its next ISR proposal after a rejected one, for which the controller
has written a partition epoch."""


class Propose(Protocol):
    """Sends a proposal to the controller."""

    def __call__(self, partition: "Partition", change: IsrChange) -> None: ...


def _propose_nothing(partition: "Partition", change: IsrChange) -> None:
    """Do nothing: for partitions outside a broker, in tests."""


@dataclass(slots=True, kw_only=True)
class PartitionEnvironment:
    """What all partitions of a broker share.

    Fields: `brokers`: of the newest metadata. `broker_epoch`: this broker's own.
    """

    brokers: Mapping[int, BrokerImage]
    monotonic_ms: Callable[[], int] = lambda: 0
    broker_epoch: Callable[[], int] = lambda: NO_EPOCH
    propose: Propose = _propose_nothing
    lag_time_max_ms: int = LAG_TIME_MAX_MS


class Partition:
    """A hosted partition.

    Fields: `log`: None while its log directory is offline. `followers`: the state of each other
            replica; empty where this broker does not lead. `directories`: the log directories of
            the replicas, in their order, as committed; so is `isr`. `pending`: this
            leader's proposal, none before `quiet_until_ms` (monotonic). `adding`, `removing`: the
            replicas that a reassignment adds and removes. `epoch_start_offset`: the log end when
            this leader's epoch began. `alone`: this broker has the only replica, so that appends
            are committed at once. `had_leader`: whether the metadata has named a leader since this
            broker hosts it. `metrics`: of the whole topic, shared by its partitions here.
            `environment`: shared by all partitions of the broker. `watchers`: the followers'
            sessions that this partition activates. `refused`: the batches that producers must
            retry before any later one.
    """

    __slots__ = (
        "adding",
        "alone",
        "directories",
        "environment",
        "epoch_start_offset",
        "followers",
        "gone",
        "had_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "metrics",
        "min_insync_replicas",
        "node_id",
        "partition_epoch",
        "partition_id",
        "pending",
        "quiet_until_ms",
        "refused",
        "removing",
        "replicas",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        partition_id: int,
        *,
        node_id: int,
        log: "PartitionLog | None",
        metrics: TopicMetrics | None = None,
        environment: PartitionEnvironment | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.node_id = node_id
        self.log = log
        self.metrics = TopicMetrics(topic) if metrics is None else metrics
        self.environment = PartitionEnvironment(brokers={}) if environment is None else environment
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.directories: tuple[Uuid, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.alone = False
        self.had_leader = False
        self.pending: IsrChange | None = None
        self.followers: dict[int, FollowerState] = {}
        self.epoch_start_offset = NO_OFFSET
        self.gone = Error.NONE
        """The error for clients once this broker no longer hosts it."""
        self.min_insync_replicas = 1
        self.quiet_until_ms = NEVER_MS
        self.refused: RefusedBatches | None = None
        self.watchers: tuple[tuple[FetchSession, FetchPartition], ...] = ()

    @property
    def deleted(self) -> bool:
        """Tell whether this broker no longer hosts it, and its log is being deleted."""
        return self.gone is not Error.NONE

    @property
    def is_leader(self) -> bool:
        """Tell whether this broker leads the partition."""
        return self.leader == self.node_id

    @property
    def min_isr(self) -> int:
        """Return how many in-sync replicas acks=all needs; never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def is_reassigning(self) -> bool:
        """Tell whether the partition is being reassigned."""
        return bool(self.adding or self.removing)

    @property
    def is_under_replicated(self) -> bool:
        """Tell whether replicas are out of sync, not counting those that are being added."""
        return len(self.isr) < len(self.replicas) - len(self.adding)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Return the largest ISR that the controller may have."""
        return self.isr if self.pending is None else self.pending.maximal

    @property
    def high_watermark(self) -> int:
        """Return the high watermark, as far as this broker knows; -1 = no log."""
        return NO_OFFSET if self.log is None else self.log.high_watermark

    @property
    def low_watermark(self) -> int:
        """Return the smallest log start of the replicas of live brokers; -1 = one is unknown.

        As in Kafka, also of those whose log directory is offline.
        """
        return self._smallest_log_start(lambda broker: not broker.fenced)

    @property
    def live_log_start(self) -> int:
        """Return the smallest log start of the live replicas; -1 = one is unknown.

        The log directory of a live replica is online, and its broker is not fenced.
        """
        directories = dict(zip(self.replicas, self.directories, strict=True))
        return self._smallest_log_start(
            lambda broker: not broker.fenced and broker.has_online_dir(directories[broker.id])
        )

    def _smallest_log_start(self, counts: Callable[[BrokerImage], bool]) -> int:
        log = self.log
        assert log is not None
        brokers = self.environment.brokers
        low = log.log_start_offset
        for node, follower in self.followers.items():
            if follower.log_start_offset < low:
                broker = brokers.get(node)
                if broker is not None and counts(broker):
                    low = follower.log_start_offset
        return low

    def apply(self, state: "PartitionImage") -> bool:
        """Apply the metadata; return whether this broker begins to lead in a new leader epoch.

        A response to an ISR proposal may have brought the partition epoch before the metadata does.
        Then a newer proposal may be pending already, and it stays.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        # One metadata change may span several leader epochs. In a skipped one another broker may
        # have led, and followers may have truncated what this leader knew them to have.
        led_previous_epoch = self.is_leader and state.leader_epoch == self.leader_epoch + 1
        is_new_epoch = state.leader_epoch != self.leader_epoch
        begins = state.leader == self.node_id and state.leader_epoch > self.leader_epoch
        if is_new_epoch or state.partition_epoch > self.partition_epoch:
            self.pending = None
        dropped = [node for node in self.isr if node not in state.isr]
        self.leader = state.leader
        self.had_leader = self.had_leader or state.leader != NO_LEADER
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.directories = tuple(state.directories)
        self.isr = tuple(state.isr)
        self.adding = tuple(state.adding_replicas)
        self.removing = tuple(state.removing_replicas)
        self.alone = self.replicas == self.isr == (self.node_id,)
        if not self.is_leader:
            self.followers = {}
            return False
        self._update_followers(dropped)
        if begins:
            self._begin_epoch(led_previous_epoch)
        if self.log is not None:
            self.advance_high_watermark()
        return begins

    def _update_followers(self, dropped: list[int]) -> None:
        """Keep the states of exactly the assigned replicas.

        Replicas that the controller has dropped from the ISR start with a new state: their log
        directory may have failed, and only a fetch shows what they have now. The old state would
        hold the high watermark back, or have them proposed again at another replica's fetch.
        """
        known = {node: each for node, each in self.followers.items() if node not in dropped}
        members = [node for node in self.replicas if node != self.node_id]
        if dropped or members != list(known):
            self.followers = {node: known.get(node) or FollowerState() for node in members}

    def _begin_epoch(self, led_previous_epoch: bool) -> None:
        """Begin a leader epoch; `led_previous_epoch` = this broker led in the one right before.

        Then the states of in-sync followers are kept. A follower that is out of sync must fetch
        again before it may hold the high watermark back or join the ISR:

        1. A reassignment that adds broker 2 is cancelled, which begins this epoch, and another one
           adds it again. This broker receives both in one metadata change.
        2. Broker 2 has deleted its replica in between, and starts with an empty log.
        3. By its earlier fetch offset it would join the ISR at once.
        """
        log = self.log
        end = NO_OFFSET
        if log is not None:
            self.epoch_start_offset = end = log.log_end_offset
            # Followers may have records of later epochs than this log has. Without an entry for
            # the new epoch they could not find where to truncate.
            log.assign_epoch(self.leader_epoch)
        now_ms = self.environment.monotonic_ms()
        for node, follower in self.followers.items():
            in_sync = node in self.isr
            if led_previous_epoch and in_sync:
                follower.begin_epoch(leader_end=end, now_ms=now_ms)
            else:
                caught_up_ms = now_ms if in_sync else NEVER_MS
                self.followers[node] = FollowerState(last_caught_up_ms=caught_up_ms)

    # -- Checks --

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise ApiError unless the request's leader epoch is the current one; -1 = it has none."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(Error.FENCED_LEADER_EPOCH)
        raise ApiError(Error.UNKNOWN_LEADER_EPOCH)

    def leader_log(self, current_leader_epoch: int = NO_EPOCH) -> "PartitionLog":
        """Return the log for a request to the leader; raise ApiError where this is not it."""
        self.check_epoch(current_leader_epoch)
        if self.log is None:
            raise ApiError(Error.KAFKA_STORAGE_ERROR)
        if self.leader != self.node_id:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        return self.log

    def any_log(self, current_leader_epoch: int = NO_EPOCH) -> "PartitionLog":
        """Return the log for a request that followers serve, too; raise ApiError."""
        self.check_epoch(current_leader_epoch)
        if self.log is None:
            raise ApiError(Error.KAFKA_STORAGE_ERROR)
        return self.log

    def _near_log(self, requested: "FetchPartition") -> "PartitionLog":
        """Return the log for a consumer that may read from followers; raise ApiError as above.

        1. The leader of epoch 5 returns a high watermark of 100 to consumers. Its process restarts:
           the checkpoint has 80, or the log directory has been replaced.
        2. Over ZooKeeper it receives by UpdateMetadata that there is no leader, in epoch 5: the
           controller has yet to elect (see `ottla.controller.zookeeper.broker_requests`).
        3. A consumer of epoch 5 still uses it as the leader. Served as by a follower, it would see
           the high watermark fall to 80, or get OFFSET_OUT_OF_RANGE and restart at the log's end
           or start: it would miss records, or read them twice.

        Kafka's broker has no such partition before a LeaderAndIsr names its leader. What a replica
        has fetched from a leader since its start can be read also while there is no leader.
        """
        log = self.any_log(requested.current_leader_epoch)
        if self.leader == NO_LEADER and (
            not self.had_leader or requested.fetch_offset > log.log_end_offset
        ):
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        return log

    # -- Appending --

    def append(
        self,
        data: "Buffer | Examined",
        acks: int,
        now_ms: int,
        origin: Origin = "client",
        allowance: Allowance | None = None,
    ) -> "AppendInfo":
        """Append produced batches; raise ApiError for invalid batches or too small an ISR.

        Raises TooHeavy, too, where validating them needs more than the allowance.
        """
        log = self.log
        sent = data.data if isinstance(data, Examined) else data
        if (
            log is None
            or self.leader != self.node_id
            or (acks == ACKS_ALL and not self.alone and len(self.isr) < self.min_isr)
        ):
            # Raised without a local name, which would keep this frame and all below it in a cycle.
            raise self._refusal(sent, origin, log)
        if self.refused is not None and origin == "client":
            self._check_refused(sent, log)
        info = log.append_as_leader(
            data,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            allowance=allowance,
        )
        if not self.alone:
            self.advance_high_watermark()
        elif not info.flush_due:
            log.advance_high_watermark(log.log_end_offset)
        return info

    def _check_refused(self, data: "Buffer", log: "PartitionLog") -> None:
        """Raise ApiError where a batch follows a refused one."""
        assert self.refused is not None
        try:
            self.refused.check(data, log.producers.entries)
        finally:
            self.refused = self.refused or None

    def _refusal(self, data: "Buffer", origin: Origin, log: "PartitionLog | None") -> ApiError:
        refusal = self._unfit()
        if origin == "client" and log is not None:
            self.refused = self.refused or RefusedBatches()
            self.refused.note(data, refusal, log.producers.entries)
        return refusal

    def _unfit(self) -> ApiError:
        """Return the reason why this partition accepts no append now.

        Never raised before it is returned: its traceback would hold this frame and its callers.
        """
        if self.log is None:
            return ApiError(Error.KAFKA_STORAGE_ERROR)
        if self.leader != self.node_id:
            return ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        return ApiError(
            Error.NOT_ENOUGH_REPLICAS,
            f"{len(self.isr)} replicas are in sync, min.insync.replicas is {self.min_isr}",
        )

    def lags(self, last_offset: int) -> bool:
        """Tell whether an offset is not committed yet."""
        return self.log is None or self.log.high_watermark <= last_offset

    def advance_high_watermark(self) -> bool:
        """Advance the high watermark to what all in-sync replicas have; return whether it moved.

        Below min.insync.replicas it does not move: records on too few replicas could be lost with
        them after a consumer had read them. It waits for a follower that is about to join, too,
        which could never reach a high watermark that runs ahead of it. Where `flush.messages`
        requires a flush, the leader counts its own log up to the flushed offset (followers fetch on
        only after theirs): a power loss must not take what a consumer has read.
        """
        log = self.log
        assert log is not None
        end = leader_end = log.log_end_offset
        if log.flush_due:
            end = log.recovery_point
        if not self.alone:
            if len(self.isr) < self.min_isr:
                return False
            maximal = self.maximal_isr
            for node, follower in self.followers.items():
                if follower.log_end_offset < end and (
                    node in maximal or self.is_joining(node, follower, leader_end)
                ):
                    end = follower.log_end_offset
        return log.advance_high_watermark(end)

    def is_joining(self, node: int, follower: FollowerState, leader_end: int) -> bool:
        """Tell whether a follower keeps up, and the controller would accept it in the ISR."""
        environment = self.environment
        return follower.is_caught_up(
            leader_end,
            now_ms=environment.monotonic_ms(),
            lag_time_max_ms=environment.lag_time_max_ms,
        ) and may_join(environment.brokers.get(node), follower)

    def committed(self, next_offset: int) -> Error | None:
        """Return the result of acks=all for all before `next_offset`, or None while it waits."""
        if self.gone:
            return self.gone
        if self.leader != self.node_id:
            return Error.NOT_LEADER_OR_FOLLOWER
        if self.log is None:
            return Error.KAFKA_STORAGE_ERROR
        if self.log.high_watermark < next_offset:
            return None
        if len(self.isr) < self.min_isr:
            return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Error.NONE

    # -- Followers --

    def follower(self, requested: "FetchPartition", node: int, broker_epoch: int) -> FollowerState:
        """Return the state of a fetching follower; raise ApiError where it may not fetch."""
        epoch = requested.current_leader_epoch
        self.leader_log(epoch)
        follower = self.followers.get(node)
        if follower is None:
            # With a leader epoch, it is a replica by newer or older metadata than this broker's.
            refusal = Error.NOT_LEADER_OR_FOLLOWER if epoch < 0 else Error.UNKNOWN_LEADER_EPOCH
            raise ApiError(refusal)
        check_broker_epoch(self.environment.brokers.get(node), follower, broker_epoch)
        return follower

    def note_fetch(
        self, follower: FollowerState, requested: "FetchPartition", broker_epoch: int
    ) -> bool:
        """Update a follower's state; return whether a watermark may have moved.

        Only for a fetch whose log agrees with this one up to its offset.
        """
        log = self.log
        assert log is not None
        low_moved = follower.log_start_offset != requested.follower_log_start
        follower.fetched(
            requested.fetch_offset,
            log_start_offset=requested.follower_log_start,
            leader_end=log.log_end_offset,
            broker_epoch=broker_epoch,
            now_ms=self.environment.monotonic_ms(),
        )
        if len(self.isr) <= len(self.followers):
            self.maybe_expand_isr(follower)
        if log.high_watermark < log.log_end_offset and self.advance_high_watermark():
            return True
        return low_moved

    # -- ISR proposals (KIP-497, KIP-903) --

    def maybe_expand_isr(self, fetching: FollowerState | None = None) -> None:
        """Propose to add the followers that are in sync again.

        Candidates have reached both the high watermark and the start of this leader's epoch: all
        that was committed before lies below the latter, even where the high watermark has not
        reached it. Of them the one that is `fetching` joins, and any other that keeps up.
        """
        log, environment = self.log, self.environment
        if self.pending is not None or log is None or not self.is_leader:
            return
        reach, end = max(log.high_watermark, self.epoch_start_offset), log.log_end_offset
        joining = tuple(
            node
            for node, follower in self.followers.items()
            if follower.log_end_offset >= reach
            and node not in self.isr
            and (follower is fetching or self.is_joining(node, follower, end))
            and may_join(environment.brokers.get(node), follower)
        )
        if joining and environment.monotonic_ms() >= self.quiet_until_ms:
            at = (self.leader_epoch, self.partition_epoch)
            self._propose(expansion(self.isr, joining, self._broker_epochs(), at=at))

    def maybe_shrink_isr(self) -> None:
        """Propose to remove the followers that have lagged for too long."""
        log, environment = self.log, self.environment
        if self.pending is not None or log is None or not self.is_leader:
            return
        now_ms, end = environment.monotonic_ms(), log.log_end_offset
        lag_time_max_ms = environment.lag_time_max_ms
        leaving = tuple(
            node
            for node, follower in self.followers.items()
            if node in self.isr
            and not follower.is_caught_up(end, now_ms=now_ms, lag_time_max_ms=lag_time_max_ms)
        )
        if leaving and now_ms >= self.quiet_until_ms:
            at = (self.leader_epoch, self.partition_epoch)
            self._propose(reduction(self.isr, leaving, self._broker_epochs(), at=at))

    def _propose(self, change: IsrChange) -> None:
        self.pending = change
        self.environment.propose(self, change)

    def _broker_epochs(self) -> dict[int, int]:
        """Return the broker epochs that are known, this broker's own included."""
        epochs = {
            node: follower.broker_epoch
            for node, follower in self.followers.items()
            if follower.broker_epoch is not None
        }
        epochs[self.node_id] = self.environment.broker_epoch()
        return epochs

    def isr_changed(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        """Apply the response to the pending proposal, unless it is outdated."""
        if leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch:
            self.pending = None
            self.isr = isr
            self.partition_epoch = partition_epoch

    def isr_refused(self, change: IsrChange) -> None:
        """Return to the committed ISR: the controller has rejected a proposal.

        The response does not say which member was the reason. None of the new ones is proposed
        again before its next fetch. That holds also where the metadata came first, with the
        partition epoch of the rejection.
        """
        if change.leader_epoch != self.leader_epoch:
            return
        for node, _ in change.isr:
            if node not in self.isr and node in self.followers:
                self.followers[node].refused = True
        if self.pending is change:
            self.pending = None
        self.quiet_until_ms = self.environment.monotonic_ms() + REFUSED_PAUSE_MS

    # -- Reading --

    def read(
        self,
        requested: "FetchPartition",
        max_bytes: int,
        at_least_one: bool,
        committed_only: bool,
        anywhere: bool = False,
    ) -> PartitionRead:
        """Read from the requested offset up to the high watermark or the last stable offset.

        `anywhere`: from a follower, too, up to its own high watermark (KIP-392).

        Raises: ApiError where leadership, epoch or offset do not allow it.
        """
        log, epoch = self.log, requested.current_leader_epoch
        if log is None or self.leader != self.node_id or epoch not in (NO_EPOCH, self.leader_epoch):
            log = self._near_log(requested) if anywhere else self.leader_log(epoch)
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        start, offset = log.log_start_offset, requested.fetch_offset
        if requested.last_fetched_epoch >= 0:
            diverging = divergence(requested, log)
            if diverging is not None:
                return PartitionRead(Error.NONE, high_watermark, stable, start, diverging=diverging)
        bound = stable if committed_only else high_watermark
        nothing = max_bytes <= 0 and not at_least_one and start <= offset
        if (nothing or offset >= bound) and start <= offset <= log.log_end_offset:
            none = () if committed_only else None
            return _new(
                PartitionRead, (_NONE, high_watermark, stable, start, (), 0, none, None, -1)
            )
        found = log.read(offset, max_bytes=max_bytes, upper_bound=bound, at_least_one=at_least_one)
        aborted = None
        if committed_only:
            try:
                # Those up to the bound, not only up to what was read: clients ignore the rest.
                listed = log.aborted_transactions(offset, bound)
            except (ApiError, OSError):
                for each in found.slices:
                    each.release()
                raise
            aborted = tuple((one.producer_id, one.first_offset) for one in listed)
        return _new(
            PartitionRead,
            (_NONE, high_watermark, stable, start, found.slices, found.size, aborted, None, -1),
        )

    def read_to_end(
        self, requested: "FetchPartition", max_bytes: int, at_least_one: bool
    ) -> PartitionRead:
        """Read up to the log's end: what a follower gets. Raises: ApiError, OSError."""
        log = self.log
        assert log is not None
        found = NOTHING
        if max_bytes > 0 or at_least_one:  # Else to open the file would be in vain.
            found = log.read(
                requested.fetch_offset,
                max_bytes=max_bytes,
                upper_bound=log.log_end_offset,
                at_least_one=at_least_one,
                with_empty=True,
            )
        return PartitionRead(
            Error.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            found.slices,
            found.size,
        )

    def positions(self, requested: "FetchPartition", preferred: int = NO_REPLICA) -> PartitionRead:
        """Return the log's offsets without records; `preferred`: the preferred read replica."""
        log = self.leader_log(requested.current_leader_epoch)
        return PartitionRead(
            Error.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            preferred=preferred,
        )
