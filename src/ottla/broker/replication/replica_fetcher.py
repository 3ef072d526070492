"""A replica fetcher: replicates partitions from one leader, with one fetch in flight.

The leader keeps a fetch session (KIP-227), so a request names only what changed: partitions that
were appended to, truncated, added or removed since the last one. An error of one partition takes
only that one out of the session, until its backoff is over; an error of a request ends the session.

The leader delays a fetch that finds nothing. Partitions that are added meanwhile (a topic was
created, a leader was elected) would wait for its end, and so would produce requests to them with
acks=all. They are fetched without a session over a second connection (a sessionless fetch), until
the session's fetch has returned and can include them.

Records that the leader has in remote storage only are not fetched: the log is begun behind them,
with the state that the object store has (`remote_log_port`). So does a log that must be truncated
to an offset within its remote prefix. The partition is paused until the log is durable.

A response is used only where nothing changed since the request: a partition with a new leader epoch
is another `FollowedPartition`, and one whose log end moved has another position.

Not done: throttling of replication (leader.replication.throttled.replicas).
Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread; KIP-595 (truncation on fetch).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ottla.base.errors import ApiError, Error, error_name, error_of
from ottla.base.pending import Pending, gather
from ottla.base.ports import Clock, is_shortage
from ottla.base.timers import Timer, Timers
from ottla.broker.partition import Partition
from ottla.broker.ports import Sender
from ottla.broker.replication import follower_rules
from ottla.broker.replication.follower_rules import OffsetReset, Position, Reaction
from ottla.broker.replication.remote_log_port import (
    AllLocal,
    AuxState,
    AuxStateFailed,
    AuxStateOutcome,
    AuxStates,
    Problem,
)
from ottla.broker.replication.replica_fetch_requests import (
    FETCH_VERSION,
    FetchRequestData,
    FetchSettings,
    FollowedPartition,
    LeaderLogRequests,
    LeaderSession,
    TopicIdPartition,
    fetch_request,
)
from ottla.broker.summary import Summary
from ottla.log.partition_log import PartitionLog, UnexpectedOffset
from ottla.log.results import DamagedLog
from ottla.records.errors import RecordsError
from ottla.wire.codec import records_view
from ottla.wire.messages import fetch as wire

logger = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 50
"""The first backoff after a failure; it doubles with each further failure, up to
replica.fetch.backoff.ms. A leader that is being elected is ready much sooner than that."""

SESSIONLESS_AFTER_MS = 10
"""How long the session's fetch must have been in flight before a sessionless one is sent: a busy
leader returns sooner, and the next fetch includes the new partitions."""
SESSIONLESS_MARGIN_MS = 20
"""How much sooner than the session's fetch a sessionless one ends, for the same reason."""
SESSIONLESS_WAIT_MS = 50
"""The maximum wait of a sessionless fetch: partitions that are added later wait for its end."""
SESSIONLESS_PARTITIONS_FEW = 100
"""With more partitions it waits as long as it can: naming all of them repeatedly costs more than a
later partition's wait."""

SESSION_ERRORS = frozenset(
    {
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


_LEVELS = {Reaction.RETRY: logging.INFO, Reaction.BUILD_AUX_STATE: logging.WARNING}
"""The log level of a partition's error by the reaction to it; ERROR for others."""


class ReplicaManagerPort(Protocol):
    """The replica manager, as far as fetchers use it."""

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        """Take the partition's log directory offline."""
        ...

    def follower_advanced(self, partition: Partition) -> None:
        """Handle an advance of a followed partition's high watermark."""
        ...

    def log_damaged(self, partition: Partition, damage: DamagedLog, *, fetched: bool) -> bool:
        """Take the replica offline, or return True: its log may be truncated before the damage."""
        ...


Flushes = list[Pending[Any]]


class ReplicaFetcher:
    """See the module. `send_now` sends what was added; `add` and `remove` alone send nothing."""

    def __init__(
        self,
        leader_id: int,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        sender: Sender,
        sessionless_sender: Sender,
        replica_manager: ReplicaManagerPort,
        clock: Clock,
        timers: Timers,
        settings: FetchSettings,
        aux_states: AuxStates | None = None,
    ) -> None:
        self.leader_id = leader_id
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._sender = sender
        self._sessionless_sender = sessionless_sender
        self._replica_manager = replica_manager
        self._clock = clock
        self._timers = timers
        self._settings = settings
        self._aux_states = aux_states
        self._followed: dict[TopicIdPartition, FollowedPartition] = {}
        self._changed: dict[TopicIdPartition, None] = {}
        """Partitions for the next request; some may be paused or removed by then."""
        self._summary = Summary(logger)
        self._session = LeaderSession()
        self._has_dropped = False
        """Positions in the response that is being handled were not used."""
        self._busy = False
        self._sent_ms: int | None = None
        """When the session's fetch was sent, while it is in flight."""
        self._sessionless: dict[TopicIdPartition, None] = {}
        """The partitions of the sessionless fetch in flight."""
        self._sessionless_failed = False
        self._sessionless_timer: Timer | None = None
        self._backoff: Timer | None = None
        self._failures = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed)

    # -- partitions ----------------------------------------------------------------------------

    def add(self, followed: FollowedPartition) -> None:
        """Fetch a partition, replacing its earlier epoch if there was one."""
        former = self._followed.get(followed.key)
        if former is not None:
            former.cancel_build()
        self._followed[followed.key] = followed
        self._changed[followed.key] = None
        log = followed.partition.log
        if log is None:
            return
        if log.is_incomplete:
            self._back_off(followed)  # A former leader's state is being installed.
        elif log.flush_due:
            self._flush_first(followed, log)

    def remove(self, key: TopicIdPartition) -> None:
        """Stop fetching it; a response in flight is dropped."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.cancel_build()
            self._changed[key] = None

    def close(self) -> None:
        """Stop fetching."""
        self._closed = True
        for followed in self._followed.values():
            followed.cancel_build()
        self._followed.clear()
        for timer in (self._backoff, self._sessionless_timer):
            if timer is not None:
                timer.cancel()

    def _pause(self, followed: FollowedPartition) -> None:
        followed.paused = True
        followed.requested = None
        self._changed[followed.key] = None

    def _resume(self, followed: FollowedPartition) -> None:
        if self._followed.get(followed.key) is followed and followed.paused:
            log = followed.partition.log
            if log is not None and log.is_incomplete:
                self._back_off(followed)
                return
            followed.paused = False
            self._changed[followed.key] = None
            self.send_next()

    def _flush_first(self, followed: FollowedPartition, log: PartitionLog) -> None:
        """Leave a partition out until its log is flushed, where it is flushed before records count.

        The flush of what this broker appended as the leader, or copied from the former one, may
        still be under way, or wait for a disk that is slow. To the new leader a fetch at the log's
        end says that all below it is durable here.
        """

        def flushed(error: OSError | None) -> None:
            if error is None:
                self._resume(followed)

        self._pause(followed)
        log.flush().then(flushed)

    def _back_off(self, followed: FollowedPartition) -> None:
        """Leave a partition out until its backoff is over."""
        followed.failures += 1
        self._pause(followed)
        due_ms = self._clock.monotonic_ms() + self._backoff_ms(followed.failures)
        self._timers.at(due_ms, lambda: self._resume(followed))

    def _backoff_ms(self, failures: int) -> int:
        return min(FIRST_BACKOFF_MS << min(failures - 1, 16), self._settings.backoff_ms)

    # -- requests ------------------------------------------------------------------------------

    def send_next(self) -> None:
        """Send the next fetch, unless one is in flight."""
        if self._closed or self._backoff is not None:
            return
        if not self._busy:
            self._fetch()
        elif self._sent_ms is not None:
            self._fetch_without_session(self._sent_ms)

    def send_now(self) -> None:
        """Fetch added partitions at once: a leader that was just elected is alive, so the backoff
        after an earlier failure ends.
        """
        if self._backoff is not None:
            self._backoff.cancel()
            self._backoff = None
            self._failures = 0
        self.send_next()

    def _fetch(self) -> None:
        data = self._request_data()
        if not self._session.members:
            self._session.restart()
            return
        self._busy = True
        self._sent_ms = self._clock.monotonic_ms()
        self._send(self._sender, data, self._settings.max_wait_ms, self._session).then(
            self._answered
        )

    def _request_data(self) -> FetchRequestData:
        session = self._session
        data = FetchRequestData([], [])
        if session.begins:
            session.members.clear()
        for key in tuple(self._followed if session.begins else self._changed):
            followed = self._followed.get(key)
            if key in self._sessionless:
                continue  # It is added again when the sessionless fetch returns.
            if followed is not None and followed.is_ready_for_fetch:
                data.requested.append(
                    (key, followed.fetch_partition(self._settings.partition_bytes_max))
                )
                session.members[key] = None
            elif key in session.members:
                del session.members[key]
                data.forgotten.append(key)
        self._changed.clear()
        return data

    def _send(
        self,
        sender: Sender,
        data: FetchRequestData,
        max_wait_ms: int,
        session: LeaderSession | None,
    ) -> Pending[wire.FetchResponse | ApiError]:
        replica = wire.ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())
        request = fetch_request(
            data, self._settings, replica=replica, max_wait_ms=max_wait_ms, session=session
        )
        timeout_ms = self._settings.timeout_ms + max_wait_ms
        return sender.send(request, FETCH_VERSION, timeout_ms=timeout_ms)

    def _fetch_without_session(self, sent_ms: int) -> None:
        """Send a sessionless fetch of the partitions that the delayed session fetch lacks."""
        if self._sessionless or self._sessionless_failed or self._sessionless_timer is not None:
            return  # Before the loop below: thousands may end their backoff at the same time.
        waiting = [key for key in self._changed if key not in self._session.members]
        new = [self._followed[key] for key in waiting if key in self._followed]
        new = [followed for followed in new if followed.is_ready_for_fetch]
        if not new:
            return
        since_ms = self._clock.monotonic_ms() - sent_ms
        if since_ms < SESSIONLESS_AFTER_MS:
            self._sessionless_timer = self._timers.at(
                sent_ms + SESSIONLESS_AFTER_MS, self._retry_sessionless
            )
            return
        left_ms = self._settings.max_wait_ms - since_ms - SESSIONLESS_MARGIN_MS
        if left_ms <= 0:
            return
        max_wait_ms = (
            min(left_ms, SESSIONLESS_WAIT_MS) if len(new) <= SESSIONLESS_PARTITIONS_FEW else left_ms
        )
        data = FetchRequestData([], [])
        for followed in new:
            self._sessionless[followed.key] = None
            del self._changed[followed.key]
            named = followed.fetch_partition(self._settings.partition_bytes_max)
            data.requested.append((followed.key, named))
        self._send(self._sessionless_sender, data, max_wait_ms, None).then(
            self._sessionless_answered
        )

    def _retry_sessionless(self) -> None:
        self._sessionless_timer = None
        self.send_next()

    # -- responses -----------------------------------------------------------------------------

    def _answered(self, response: wire.FetchResponse | ApiError) -> None:
        self._busy = False
        self._sent_ms = None
        self._sessionless_failed = False
        if self._closed:
            return
        if isinstance(response, ApiError):
            self._request_failed(response.error, response.message)
            return
        if response.error_code:
            error = error_of(response.error_code)
            self._request_failed(error, error_name(response.error_code))
            return
        self._failures = 0
        self._session.answered(response.session_id)
        self._has_dropped = False
        flushes = self._handle_partitions(response)
        if self._has_dropped:
            # The leader sends a high watermark and a log start once in a session, and counts them
            # as known now.
            self._session.restart()
        if flushes:
            # The next request carries these logs' ends: they must be durable by then.
            self._busy = True
            gather(flushes).then(self._flushed)
        else:
            self.send_next()

    def _flushed(self, _results: object) -> None:
        self._busy = False
        self._summary.log()  # Truncations complete after the response that caused them.
        self.send_next()

    def _sessionless_answered(self, response: wire.FetchResponse | ApiError) -> None:
        if self._closed:
            return
        if isinstance(response, ApiError) or response.error_code:
            self._sessionless_failed = True  # The session's fetch will log the error.
            self._end_sessionless(None)
        else:
            gather(self._handle_partitions(response)).then(self._end_sessionless)

    def _end_sessionless(self, _flushed: object) -> None:
        """Add the partitions of the sessionless fetch to the next fetch, in the session if idle."""
        self._summary.log()
        self._changed |= self._sessionless
        self._sessionless.clear()
        self.send_next()

    def _request_failed(self, error: Error, reason: str) -> None:
        """Back off, then open a new session; at once where the leader has lost the session."""
        self._failures += 1
        self._session.failed(error)
        if self._failures == 1:
            is_lost = error in SESSION_ERRORS
            level = logging.INFO if is_lost else logging.WARNING
            shown = error.name if is_lost else reason
            logger.log(level, "fetch from broker %d failed: %s; retrying", self.leader_id, shown)
            if is_lost:
                self.send_next()
                return
        due_ms = self._clock.monotonic_ms() + self._backoff_ms(self._failures)
        self._backoff = self._timers.at(due_ms, self._backoff_over)

    def _backoff_over(self) -> None:
        self._backoff = None
        self.send_next()

    def _handle_partitions(self, response: wire.FetchResponse) -> Flushes:
        """Handle a response; return what must be durable before the next request."""
        flushes: Flushes = []
        for topic in response.responses:
            for found in topic.partitions:
                followed = self._followed.get((topic.topic_id, found.partition_index))
                if followed is None:
                    self._drop(found)
                    continue
                try:
                    self._handle_partition(followed, found, flushes)
                except Exception:
                    # A bug: it must not end the replication of all other partitions.
                    logger.exception(
                        "%s: handling of the fetch response failed; retrying", followed.name
                    )
                    self._back_off(followed)
        self._summary.log()
        return flushes

    def _handle_partition(
        self,
        followed: FollowedPartition,
        found: wire.PartitionData,
        flushes: Flushes,
    ) -> None:
        """Handle the response for one partition."""
        log, requested = followed.partition.log, followed.requested
        if log is None or log.failed:
            self.remove(followed.key)
            return
        if requested is None or requested != follower_rules.position_of(log):
            # It is of a former epoch, or a fetch outside the session was faster.
            self._drop(found)
            self._changed[followed.key] = None
            return
        reaction = follower_rules.reaction_to(found.error_code)
        if reaction is not Reaction.APPEND:
            self._refused(followed, reaction, found.error_code)
            return
        try:
            if found.diverging_epoch.epoch >= 0 or found.diverging_epoch.end_offset >= 0:
                self._truncate(followed, log, found, flushes)
                return
            followed.fetched = True
            records = records_view(found.records)
            start = found.log_start_offset
            if follower_rules.is_comparable(log, start, followed.leader_epoch, records):
                self._append(followed, log, found, flushes)
            else:
                self._truncate(followed, log, found, flushes)
        except OSError as error:
            if is_shortage(error):
                self._back_off(followed)
                return
            self._replica_manager.storage_failed(followed.partition, error)
            self.remove(followed.key)
        except (ApiError, RecordsError, UnexpectedOffset) as error:
            if followed.failures == 0:
                logger.error(
                    "%s: rejected fetch response from broker %d at offset %d: %s; retrying",
                    *(followed.name, self.leader_id, requested.fetch_offset, error),
                )
            self._back_off(followed)

    def _drop(self, found: wire.PartitionData) -> None:
        """Leave the response for a partition unused. After an error the leader sends all again."""
        self._has_dropped = self._has_dropped or not found.error_code

    def _append(
        self,
        followed: FollowedPartition,
        log: PartitionLog,
        found: wire.PartitionData,
        flushes: Flushes,
    ) -> None:
        records = records_view(found.records)
        if records:
            follower_rules.start_at_first_batch(log, records)
            info = log.append_as_follower(
                records, now_ms=self._clock.now_ms(), leader_epoch=followed.leader_epoch
            )
            followed.partition.metrics.replication_bytes_in += info.size
            self._changed[followed.key] = None
            # A partition with records goes last: the next full fetch serves the others first.
            self._followed[followed.key] = self._followed.pop(followed.key)
            if info.flush_due:
                flushes.append(log.flush())
        moved = log.advance_high_watermark(found.high_watermark)
        start = min(found.log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.delete_records(start)
        if log.log_start_offset != followed.named_start:
            # Also where its own retention has moved it: the leader may wait until it knows.
            self._changed[followed.key] = None
        followed.failures = 0
        followed.lag = max(0, found.high_watermark - log.log_end_offset)
        if moved:
            self._replica_manager.follower_advanced(followed.partition)

    def _truncate(
        self,
        followed: FollowedPartition,
        log: PartitionLog,
        found: wire.PartitionData,
        flushes: Flushes,
    ) -> None:
        """Truncate the log to what it may have in common with the leader's."""
        diverging, start = found.diverging_epoch, found.log_start_offset
        before, still = follower_rules.position_of(log), self._still_follows(followed, log)
        if follower_rules.starts_anew(log, start, diverging.end_offset):
            truncated = log.truncate_fully_in_background(start, still)
            reason = f"the leader's log starts at {start}"
        else:
            reason = f"the leader's epoch {diverging.epoch} ends at {diverging.end_offset}"
            end = follower_rules.truncation_offset(log, diverging.epoch, diverging.end_offset)
            if self._aux_states is not None and follower_rules.is_in_remote_prefix(log, end):
                self._begin_behind_remote_log(followed, log, self._aux_states, cut=end)
                return
            truncated = log.truncate_in_background(end, still)
        truncated.then(partial(self._truncated, followed, log, reason, before))
        # Later appends follow the truncation, which must be durable by then.
        flushes.append(truncated)

    def _still_follows(self, followed: FollowedPartition, log: PartitionLog) -> Callable[[], bool]:
        """Return a check that a log may still be truncated as this leader's response says."""
        before = follower_rules.position_of(log)

        def still() -> bool:
            if self._closed or self._followed.get(followed.key) is not followed:
                return False
            return followed.partition.log is log and follower_rules.position_of(log) == before

        return still

    def _truncation_failed(
        self, followed: FollowedPartition, log: PartitionLog, error: OSError | ApiError
    ) -> None:
        """Handle a failed truncation."""
        if isinstance(error, DamagedLog):
            self._truncate_before_damage(followed, log, error)
            return
        if isinstance(error, ApiError) or is_shortage(error):
            if followed.failures == 0:
                logger.error("%s: truncation failed: %s; retrying", followed.name, error)
            self._back_off(followed)
            return
        if not log.failed:  # Else its directory is offline already.
            self._replica_manager.storage_failed(followed.partition, error)
        self.remove(followed.key)

    def _truncate_before_damage(
        self, followed: FollowedPartition, log: PartitionLog, damage: DamagedLog
    ) -> None:
        """Truncate a damaged log to its last sound batch, where the rest is not needed from it."""
        partition = followed.partition
        if not self._replica_manager.log_damaged(partition, damage, fetched=followed.fetched):
            followed.failures += 1
            self.remove(followed.key)
            return
        self._pause(followed)
        still = self._still_follows(followed, log)
        truncated = log.truncate_in_background(damage.good_end, still)
        truncated.then(partial(self._offset_reset, followed, log))

    def _truncated(
        self,
        followed: FollowedPartition,
        log: PartitionLog,
        reason: str,
        before: Position,
        error: OSError | ApiError | None,
    ) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        if error is not None:
            self._truncation_failed(followed, log, error)
            return
        after = follower_rules.position_of(log)
        self._summary.add(
            logging.INFO,
            f"truncated to agree with the log of broker {self.leader_id}",
            "{} from {} (epoch {}) to {} (epoch {}), {}".format(
                followed.name, *before, *after, reason
            ),
        )
        if after == before:
            self._back_off(followed)  # The same request would have the same response.
        else:
            self._changed[followed.key] = None

    def _refused(self, followed: FollowedPartition, reaction: Reaction, code: int) -> None:
        if reaction is Reaction.RESET_OFFSET:
            self._find_log_bounds(followed)
            return
        log = followed.partition.log
        if reaction is Reaction.BUILD_AUX_STATE and self._aux_states is not None:
            assert log is not None
            self._begin_behind_remote_log(followed, log, self._aux_states)
            return
        if followed.failures == 0:
            level = _LEVELS.get(reaction, logging.ERROR)
            headline = (
                f"fetch from broker {self.leader_id} failed with {error_name(code)}, retrying"
            )
            self._summary.add(level, headline, f"{followed.name} in epoch {followed.leader_epoch}")
        self._back_off(followed)

    # -- OFFSET_OUT_OF_RANGE -------------------------------------------------------------------

    def _find_log_bounds(self, followed: FollowedPartition) -> None:
        """Request the leader's log start and log end; the partition is paused meanwhile."""
        self._pause(followed)
        bounds = self._requests(followed).bounds()
        bounds.then(lambda found: self._log_bounds_found(followed, found))

    def _requests(self, followed: FollowedPartition) -> LeaderLogRequests:
        return LeaderLogRequests(
            # On the connection of a delayed fetch they would wait for that fetch's end.
            lambda: self._sessionless_sender if self._busy else self._sender,
            followed,
            node_id=self._node_id,
            timeout_ms=self._settings.timeout_ms,
        )

    def _log_bounds_found(
        self, followed: FollowedPartition, bounds: tuple[int, int] | None
    ) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        log = followed.partition.log
        if log is None or bounds is None:
            self._back_off(followed)
            return
        reset = follower_rules.decide_offset_reset(log, *bounds)
        logger.warning(
            "%s: fetch offset %d is out of range, log of leader %d is [%d, %d); %s",
            *(followed.name, log.log_end_offset, self.leader_id, *bounds, reset.value),
        )
        start, end = bounds
        if reset is OffsetReset.KEEP or log.failed:
            self._back_off(followed)
            return
        is_within = reset is OffsetReset.TRUNCATE and follower_rules.is_in_remote_prefix(log, end)
        if is_within and self._aux_states is not None:
            self._begin_behind_remote_log(followed, log, self._aux_states, cut=end)
            return
        still = self._still_follows(followed, log)
        if reset is OffsetReset.TRUNCATE:
            truncated = log.truncate_in_background(end, still)
        else:
            truncated = log.truncate_fully_in_background(start, still)
        truncated.then(partial(self._offset_reset, followed, log))

    def _offset_reset(
        self, followed: FollowedPartition, log: PartitionLog, error: OSError | ApiError | None
    ) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        if error is not None:
            self._truncation_failed(followed, log, error)
        else:
            self._resume(followed)

    # -- records in remote storage only --------------------------------------------------------

    def _begin_behind_remote_log(
        self,
        followed: FollowedPartition,
        log: PartitionLog,
        aux_states: AuxStates,
        *,
        cut: int | None = None,
    ) -> None:
        """Empty the log and begin it behind the records that are in remote storage only.

        `cut`: where it is to be truncated, within its remote prefix. The partition is paused
        meanwhile.
        """
        followed.cancel_build()
        self._pause(followed)
        build = followed.build = aux_states(log, self._requests(followed))
        build.outcome.then(partial(self._aux_state_built, followed, log, cut))

    def _aux_state_built(
        self,
        followed: FollowedPartition,
        log: PartitionLog,
        cut: int | None,
        outcome: AuxStateOutcome,
    ) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        followed.build = None
        if log.failed or followed.partition.log is not log:
            self.remove(followed.key)
            return
        still = self._still_follows(followed, log)
        try:
            if isinstance(outcome, AuxStateFailed):
                self._aux_state_failed(followed, outcome)
            elif isinstance(outcome, AllLocal) and cut is not None:
                # Nothing local is left in any case. What its leader has makes the log whole.
                truncated = log.truncate_fully_in_background(outcome.log_start_offset, still)
                truncated.then(partial(self._offset_reset, followed, log))
            elif isinstance(outcome, AllLocal) or not follower_rules.is_wanted_for(
                log, outcome, cut
            ):
                self._back_off(followed)  # The leader's log start, or its local one, has moved.
            else:
                begun = log.truncate_fully_in_background(outcome.offset, still, outcome.prefix)
                begun.then(partial(self._begun_behind_remote_log, followed, log, outcome))
        except ApiError as error:
            self._truncation_failed(followed, log, error)

    def _aux_state_failed(self, followed: FollowedPartition, failed: AuxStateFailed) -> None:
        if failed.problem is not followed.problem:
            followed.problem = failed.problem
            what = followed.name, failed
            if failed.problem is Problem.NOT_READY:  # As after each start.
                logger.info("%s: cannot begin behind the records in remote storage yet: %s", *what)
            else:
                logger.warning(
                    "%s: could not begin behind the records in remote storage: %s; retrying", *what
                )
        self._back_off(followed)

    def _begun_behind_remote_log(
        self,
        followed: FollowedPartition,
        log: PartitionLog,
        state: AuxState,
        error: OSError | ApiError | None,
    ) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        if error is not None:
            self._truncation_failed(followed, log, error)
            return
        followed.failures = 0
        logger.info(
            "%s: log begins at offset %d, with the records from offset %d on in remote storage; "
            "the local log of leader %d starts at %d",
            *(followed.name, state.offset, state.prefix.log_start_offset),
            *(self.leader_id, state.leader_start),
        )
        self._replica_manager.follower_advanced(followed.partition)
        self._resume(followed)
