"""One fetcher: copies the partitions that one leader leads, one request in flight.

The leader keeps a session of them (KIP-227), so a request names only what is new: partitions that
were appended to, cut, added or given up since the last one. What goes wrong with one partition
takes only that one out of the session, until its pause is over; what goes wrong with a request
ends the session.

An answer is taken only where nothing changed since the question: a partition that got another
leader epoch meanwhile is another `Followed`, and one whose log moved asked for another offset.

Not done: throttling of replication (leader.replication.throttled.replicas).
Source: Kafka's AbstractFetcherThread, ReplicaFetcherThread, RemoteLeaderEndPoint and
FetchSessionHandler; KIP-227, KIP-595 (truncation on fetch), KIP-903 (replica epoch).
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, gather
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.broker import following
from ottla.broker.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from ottla.broker.following import Position, Reaction, Relocation
from ottla.broker.partition import Partition
from ottla.broker.peers import Sender
from ottla.log.partition_log import PartitionLog, UnexpectedOffset
from ottla.wire.codec import records_view
from ottla.wire.messages import fetch as wire
from ottla.wire.messages import list_offsets as offsets_wire

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9

FIRST_PAUSE_MS = 50
"""The first pause after a failure; each further one in a row is twice as long, up to
replica.fetch.backoff.ms. A leader that is just being elected is ready much sooner than that."""

LATEST, EARLIEST = -1, -2

FollowedKey = tuple[Uuid, int]
"""(topic id, partition number)."""

SESSION_ERRORS = frozenset(
    {
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """What a fetcher asks for; see the properties replica.fetch.* and replica.socket.timeout.ms."""

    max_wait_ms: int
    min_bytes: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int


class Hosts(Protocol):
    """Who has the partitions: the replica manager."""

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        """Take the partition's log folder out of service."""
        ...

    def follower_advanced(self, partition: Partition) -> None:
        """Hear that a followed partition's high watermark has moved."""
        ...


class Followed:
    """One partition as one leader epoch's follower. `asked`: what the last request said of it."""

    __slots__ = ("asked", "failures", "key", "leader_epoch", "partition", "resting")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: FollowedKey = (partition.topic_id, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.asked: Position | None = None
        self.failures = 0
        self.resting = False
        """Whether it is left out of requests, after a failure or while the leader is asked."""

    @property
    def name(self) -> str:
        """Return the partition as log lines name it."""
        return f"{self.partition.topic}-{self.partition.index}"


class ReplicaFetcher:
    """See the module. `kick` begins; `add` and `remove` alone send nothing."""

    def __init__(
        self,
        leader_id: int,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        sender: Sender,
        hosts: Hosts,
        clock: Clock,
        timers: Timers,
        settings: FetchSettings,
    ) -> None:
        self.leader_id = leader_id
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._sender = sender
        self._hosts = hosts
        self._clock = clock
        self._timers = timers
        self._settings = settings
        self._followed: dict[FollowedKey, Followed] = {}
        self._news: dict[FollowedKey, None] = {}
        """What the session must hear of; of these some may rest, or be gone, by then."""
        self._in_session: dict[FollowedKey, None] = {}
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._busy = False
        self._pause: Timer | None = None
        self._failures = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed)

    # -- what is followed ----------------------------------------------------------------------

    def add(self, followed: Followed) -> None:
        """Follow a partition, instead of its earlier epoch where that was here."""
        self._followed[followed.key] = followed
        self._news[followed.key] = None

    def remove(self, key: FollowedKey) -> None:
        """Follow it no more; an answer about it that is under way is dropped."""
        if self._followed.pop(key, None) is not None:
            self._news[key] = None

    def close(self) -> None:
        """Follow nothing more."""
        self._closed = True
        self._followed.clear()
        if self._pause is not None:
            self._pause.cancel()

    def _rest(self, followed: Followed) -> None:
        followed.resting = True
        followed.asked = None
        self._news[followed.key] = None

    def _go_on(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed and followed.resting:
            followed.resting = False
            self._news[followed.key] = None
            self.kick()

    def _try_later(self, followed: Followed) -> None:
        """Leave a partition out for a while."""
        followed.failures += 1
        self._rest(followed)
        due_ms = self._clock.monotonic_ms() + self._pause_ms(followed.failures)
        self._timers.at(due_ms, lambda: self._go_on(followed))

    def _pause_ms(self, failures: int) -> int:
        return min(FIRST_PAUSE_MS << min(failures - 1, 16), self._settings.backoff_ms)

    # -- asking --------------------------------------------------------------------------------

    def kick(self) -> None:
        """Send the next request, unless one is under way or there is nothing to ask for."""
        if self._busy or self._closed or self._pause is not None:
            return
        request = self._next_request()
        if request is None:
            return
        self._busy = True
        settings = self._settings
        sent = self._sender.send(
            request, FETCH_VERSION, timeout_ms=settings.timeout_ms + settings.max_wait_ms
        )
        sent.then(self._answered)

    def _next_request(self) -> wire.FetchRequest | None:
        is_new = self._session_epoch == INITIAL_EPOCH
        forgotten: list[FollowedKey] = []
        asked: list[wire.FetchPartition] = []
        topics: list[tuple[Uuid, list[wire.FetchPartition]]] = []
        if is_new:
            self._in_session.clear()
        for key in tuple(self._followed if is_new else self._news):
            followed = self._followed.get(key)
            named = None if followed is None else self._ask_for(followed)
            if named is not None:
                if not topics or topics[-1][0] != key[0]:
                    asked = []
                    topics.append((key[0], asked))
                asked.append(named)
                self._in_session[key] = None
            elif key in self._in_session:
                del self._in_session[key]
                forgotten.append(key)
        self._news.clear()
        if not self._in_session:
            self._session_epoch = INITIAL_EPOCH  # The next request closes what is left of it.
            return None
        settings = self._settings
        return wire.FetchRequest(
            replica_state=wire.ReplicaState(
                replica_id=self._node_id, replica_epoch=self._broker_epoch()
            ),
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=tuple(
                wire.FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics
            ),
            forgotten_topics_data=_forgotten(forgotten),
        )

    def _ask_for(self, followed: Followed) -> wire.FetchPartition | None:
        """Return what to ask for a partition; None where it rests or its folder has failed."""
        log = followed.partition.log
        if followed.resting or log is None or log.failed:
            followed.asked = None
            return None
        followed.asked = position = following.position_of(log)
        return wire.FetchPartition(
            partition=followed.key[1],
            current_leader_epoch=followed.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self._settings.partition_bytes_max,
        )

    # -- what comes back -----------------------------------------------------------------------

    def _answered(self, response: wire.FetchResponse | ApiError) -> None:
        self._busy = False
        if self._closed:
            return
        if isinstance(response, ApiError):
            self._request_failed(response.error, response.message)
            return
        if response.error_code:
            known = response.error_code in set(Error)
            error = Error(response.error_code) if known else Error.UNKNOWN_SERVER_ERROR
            self._request_failed(error, None)
            return
        self._failures = 0
        if self._session_epoch == INITIAL_EPOCH:
            self._session_id = response.session_id
        if self._session_id != NO_SESSION:
            self._session_epoch = next_epoch(self._session_epoch)
        flushes: list[Pending[OSError | None]] = []
        for topic in response.responses:
            for found in topic.partitions:
                followed = self._followed.get((topic.topic_id, found.partition_index))
                if followed is not None:
                    self._take(followed, found, flushes)
        if flushes:
            # The next request tells the leader how far this log has come: it must be durable.
            self._busy = True
            gather(flushes).then(self._flushed)
        else:
            self.kick()

    def _flushed(self, _results: object) -> None:
        self._busy = False
        self.kick()

    def _request_failed(self, error: Error, message: str | None) -> None:
        """Pause, then begin a session anew; one that the leader has lost is begun at once."""
        self._failures += 1
        if self._failures == 1 or error not in SESSION_ERRORS:
            log = logger.info if error in SESSION_ERRORS else logger.warning
            if self._failures == 1:
                log("cannot fetch from broker %d: %s", self.leader_id, message or error.name)
        if error is Error.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        if self._failures == 1 and error in SESSION_ERRORS:
            self.kick()
            return
        due_ms = self._clock.monotonic_ms() + self._pause_ms(self._failures)
        self._pause = self._timers.at(due_ms, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self.kick()

    def _take(
        self,
        followed: Followed,
        found: wire.PartitionData,
        flushes: list[Pending[OSError | None]],
    ) -> None:
        """Act on the answer for one partition."""
        log, asked = followed.partition.log, followed.asked
        if log is None or log.failed:
            self.remove(followed.key)
            return
        if asked is None or asked != following.position_of(log):
            self._news[followed.key] = None
            return
        reaction = following.reaction_to(found.error_code)
        if reaction is not Reaction.TAKE:
            self._refused(followed, reaction, found.error_code)
            return
        try:
            if found.diverging_epoch.epoch >= 0 or found.diverging_epoch.end_offset >= 0:
                self._cut(followed, log, found.diverging_epoch)
            else:
                self._append(followed, log, found, flushes)
        except OSError as error:
            self._hosts.storage_failed(followed.partition, error)
            self.remove(followed.key)
        except (ApiError, UnexpectedOffset) as error:
            logger.error(
                "%s: what broker %d sent for offset %d is not taken: %s",
                followed.name,
                self.leader_id,
                asked.fetch_offset,
                error,
            )
            self._try_later(followed)

    def _append(
        self,
        followed: Followed,
        log: PartitionLog,
        found: wire.PartitionData,
        flushes: list[Pending[OSError | None]],
    ) -> None:
        followed.failures = 0
        records = records_view(found.records)
        if records:
            info = log.append_as_follower(
                records, now_ms=self._clock.now_ms(), leader_epoch=followed.leader_epoch
            )
            followed.partition.metrics.replication_bytes_in += info.size
            self._news[followed.key] = None
            # Whoever gave records goes last: the next full request serves the others first.
            self._followed[followed.key] = self._followed.pop(followed.key)
            if info.flush_due:
                flushes.append(log.flush())
        moved = log.advance_high_watermark(found.high_watermark)
        start = min(found.log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.delete_records(start)
            self._news[followed.key] = None
        if moved:
            self._hosts.follower_advanced(followed.partition)

    def _cut(self, followed: Followed, log: PartitionLog, told: wire.EpochEndOffset) -> None:
        """Cut the log back to what it may have in common with the leader's."""
        end = following.common_end(log, told.epoch, told.end_offset)
        before = following.position_of(log)
        log.truncate_to(end)
        after = following.position_of(log)
        logger.info(
            "%s: the leader's epoch %d ends at %d: cut from %d (epoch %d) to %d (epoch %d)",
            followed.name,
            *(told.epoch, told.end_offset),
            *before,
            *after,
        )
        if after == before:
            self._try_later(followed)  # Asking the same again would be told the same.
        else:
            self._news[followed.key] = None

    def _refused(self, followed: Followed, reaction: Reaction, code: int) -> None:
        if reaction is Reaction.LOCATE:
            self._locate(followed)
            return
        if followed.failures == 0:
            level = logging.INFO if reaction is Reaction.WAIT else logging.ERROR
            said = Error(code).name if code in set(Error) else str(code)
            logger.log(
                level,
                "%s: broker %d answers %s in epoch %d",
                followed.name,
                self.leader_id,
                said,
                followed.leader_epoch,
            )
        self._try_later(followed)

    # -- an offset that the leader does not have -----------------------------------------------

    def _locate(self, followed: Followed) -> None:
        """Ask where the leader's log begins and ends; the partition rests meanwhile."""
        self._rest(followed)
        answers = [self._ask_offset(followed, which) for which in (EARLIEST, LATEST)]
        gather(answers).then(lambda found: self._located(followed, found))

    def _ask_offset(self, followed: Followed, which: int) -> Pending[int | None]:
        wanted = offsets_wire.ListOffsetsPartition(
            partition_index=followed.key[1],
            current_leader_epoch=followed.leader_epoch,
            timestamp=which,
        )
        topic = offsets_wire.ListOffsetsTopic(name=followed.partition.topic, partitions=(wanted,))
        request = offsets_wire.ListOffsetsRequest(replica_id=self._node_id, topics=(topic,))
        sent = self._sender.send(
            request, LIST_OFFSETS_VERSION, timeout_ms=self._settings.timeout_ms
        )
        return sent.map(_listed_offset)

    def _located(self, followed: Followed, found: Iterable[int | None]) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        start, end = found
        log = followed.partition.log
        if log is None or start is None or end is None:
            self._try_later(followed)
            return
        relocation = following.relocate(log, start, end)
        logger.warning(
            "%s: offset %d is not in the log of broker %d, which is [%d, %d): %s",
            *(followed.name, log.log_end_offset, self.leader_id, start, end, relocation.value),
        )
        try:
            if relocation is Relocation.CUT:
                log.truncate_to(end)
            elif relocation is Relocation.START_OVER:
                log.truncate_fully_and_start_at(start)
        except OSError as error:
            self._hosts.storage_failed(followed.partition, error)
            self.remove(followed.key)
            return
        except ApiError:
            self._try_later(followed)
            return
        if relocation is Relocation.GO_ON:
            self._try_later(followed)
        else:
            self._go_on(followed)


def _listed_offset(response: offsets_wire.ListOffsetsResponse | ApiError) -> int | None:
    """Return the one offset of an answer, or None where it tells none."""
    if isinstance(response, ApiError) or len(response.topics) != 1:
        return None
    partitions = response.topics[0].partitions
    if len(partitions) != 1 or partitions[0].error_code or partitions[0].offset < 0:
        return None
    return partitions[0].offset


def _forgotten(keys: Iterable[FollowedKey]) -> tuple[wire.ForgottenTopic, ...]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, index in keys:
        by_topic.setdefault(topic_id, []).append(index)
    return tuple(
        wire.ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
        for topic_id, indexes in by_topic.items()
    )
