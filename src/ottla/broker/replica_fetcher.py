"""One fetcher: copies the partitions that one leader leads, one request in flight.

The leader keeps a session of them (KIP-227), so a request names only what is new: partitions that
were appended to, cut, added or given up since the last one. What goes wrong with one partition
takes only that one out of the session, until its pause is over; what goes wrong with a request
ends the session.

A leader parks a request that finds nothing. Partitions that turn up meanwhile (a topic that was
created, a leader that was elected) would wait for its end, and so would whoever writes to them
with acks=all: they are asked for aside, over a connection of their own and without a session,
until the session's request is back and takes them in.

An answer is taken only where nothing changed since the question: a partition that got another
leader epoch meanwhile is another `Followed`, and one whose log moved asked for another offset.

Not done: throttling of replication (leader.replication.throttled.replicas).
Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread; KIP-595 (truncation on fetch).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ottla.base.errors import ApiError, Error, error_name, error_of
from ottla.base.pending import Pending, gather
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.broker import following
from ottla.broker.following import Position, Reaction, Relocation
from ottla.broker.partition import Partition
from ottla.broker.peers import Sender
from ottla.broker.replica_asking import (
    FETCH_VERSION,
    FetchSettings,
    Followed,
    FollowedKey,
    LeaderSession,
    Questions,
    ask_bounds,
    fetch_request,
)
from ottla.broker.summary import Summary
from ottla.log.partition_log import PartitionLog, UnexpectedOffset
from ottla.log.results import DamagedLog
from ottla.records.errors import RecordsError
from ottla.wire.codec import records_view
from ottla.wire.messages import fetch as wire

logger = logging.getLogger(__name__)

FIRST_PAUSE_MS = 50
"""The first pause after a failure; each further one in a row is twice as long, up to
replica.fetch.backoff.ms. A leader that is just being elected is ready much sooner than that."""

ASIDE_AFTER_MS = 10
"""How long the session's request must have been under way before others are asked for aside: of
a busy leader it is back sooner, and takes them in."""
ASIDE_MARGIN_MS = 20
"""How much sooner than it a request aside ends, for the same reason."""
ASIDE_WAIT_MS = 50
"""How long one waits at most: whoever turns up after it was sent must wait for its end."""
ASIDE_FEW = 100
"""With more partitions it waits as long as it can: naming all of them often costs more than a
latecomer's wait."""

SESSION_ERRORS = frozenset(
    {
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Hosts(Protocol):
    """Who has the partitions: the replica manager."""

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        """Take the partition's log folder out of service."""
        ...

    def follower_advanced(self, partition: Partition) -> None:
        """Hear that a followed partition's high watermark has moved."""
        ...

    def log_damaged(self, partition: Partition, damage: DamagedLog, *, served: bool) -> bool:
        """Take the replica offline, or tell that its log may be cut before the damage."""
        ...


Flushes = list[Pending[Any]]


class ReplicaFetcher:
    """See the module. `begin` sends what was added; `add` and `remove` alone send nothing."""

    def __init__(
        self,
        leader_id: int,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        sender: Sender,
        aside: Sender,
        hosts: Hosts,
        clock: Clock,
        timers: Timers,
        settings: FetchSettings,
    ) -> None:
        self.leader_id = leader_id
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._sender = sender
        self._sender_aside = aside
        self._hosts = hosts
        self._clock = clock
        self._timers = timers
        self._settings = settings
        self._followed: dict[FollowedKey, Followed] = {}
        self._news: dict[FollowedKey, None] = {}
        """What the leader must hear of; of these some may rest, or be gone, by then."""
        self._summary = Summary(logger)
        self._session = LeaderSession()
        self._busy = False
        self._sent_ms: int | None = None
        """When the session's request was sent, while it is under way."""
        self._aside: dict[FollowedKey, None] = {}
        """What is asked for aside."""
        self._aside_failed = False
        self._look_again: Timer | None = None
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
        for timer in (self._pause, self._look_again):
            if timer is not None:
                timer.cancel()

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
        """Send what there is to ask, as far as it need not wait for an answer."""
        if self._closed or self._pause is not None:
            return
        if not self._busy:
            self._ask()
        elif self._sent_ms is not None:
            self._ask_aside(self._sent_ms)

    def begin(self) -> None:
        """Ask at once for what was added: a leader that was just elected lives, so that the pause
        after an earlier failure need not be waited for.
        """
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._failures = 0
        self.kick()

    def _ask(self) -> None:
        questions = self._questions()
        if not self._session.members:
            self._session.begin_anew()
            return
        self._busy = True
        self._sent_ms = self._clock.monotonic_ms()
        self._send(self._sender, questions, self._settings.max_wait_ms, self._session).then(
            self._answered
        )

    def _questions(self) -> Questions:
        session = self._session
        questions = Questions([], [])
        if session.begins:
            session.members.clear()
        for key in tuple(self._followed if session.begins else self._news):
            followed = self._followed.get(key)
            if key in self._aside:
                continue  # It is in the news again when its own answer is there.
            if followed is not None and followed.can_be_asked:
                questions.asked.append((key, followed.ask(self._settings.partition_bytes_max)))
                session.members[key] = None
            elif key in session.members:
                del session.members[key]
                questions.forgotten.append(key)
        self._news.clear()
        return questions

    def _send(
        self, sender: Sender, questions: Questions, max_wait_ms: int, session: LeaderSession | None
    ) -> Pending[wire.FetchResponse | ApiError]:
        replica = wire.ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())
        request = fetch_request(
            questions, self._settings, replica=replica, max_wait_ms=max_wait_ms, session=session
        )
        timeout_ms = self._settings.timeout_ms + max_wait_ms
        return sender.send(request, FETCH_VERSION, timeout_ms=timeout_ms)

    def _ask_aside(self, sent_ms: int) -> None:
        """Ask for those that the session's request, which is parked, knows nothing of."""
        if self._aside or self._aside_failed or self._look_again is not None:
            return  # Not even a look: thousands may end their pauses in one moment.
        waiting = [key for key in self._news if key not in self._session.members]
        new = [self._followed[key] for key in waiting if key in self._followed]
        new = [followed for followed in new if followed.can_be_asked]
        if not new:
            return
        since_ms = self._clock.monotonic_ms() - sent_ms
        if since_ms < ASIDE_AFTER_MS:
            self._look_again = self._timers.at(sent_ms + ASIDE_AFTER_MS, self._looked_again)
            return
        left_ms = self._settings.max_wait_ms - since_ms - ASIDE_MARGIN_MS
        if left_ms <= 0:
            return
        max_wait_ms = min(left_ms, ASIDE_WAIT_MS) if len(new) <= ASIDE_FEW else left_ms
        questions = Questions([], [])
        for followed in new:
            self._aside[followed.key] = None
            del self._news[followed.key]
            named = followed.ask(self._settings.partition_bytes_max)
            questions.asked.append((followed.key, named))
        self._send(self._sender_aside, questions, max_wait_ms, None).then(self._answered_aside)

    def _looked_again(self) -> None:
        self._look_again = None
        self.kick()

    # -- what comes back -----------------------------------------------------------------------

    def _answered(self, response: wire.FetchResponse | ApiError) -> None:
        self._busy = False
        self._sent_ms = None
        self._aside_failed = False
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
        flushes = self._take_all(response)
        if flushes:
            # The next request tells the leader how far these logs have come: it must be durable.
            self._busy = True
            gather(flushes).then(self._flushed)
        else:
            self.kick()

    def _flushed(self, _results: object) -> None:
        self._busy = False
        self._summary.log()  # Truncations end after the answer that asked for them.
        self.kick()

    def _answered_aside(self, response: wire.FetchResponse | ApiError) -> None:
        if self._closed:
            return
        if isinstance(response, ApiError) or response.error_code:
            self._aside_failed = True  # The session's request will say what is wrong.
            self._take_in(None)
        else:
            gather(self._take_all(response)).then(self._take_in)

    def _take_in(self, _flushed: object) -> None:
        """Let those that were asked for aside be asked for again, in the session if it can be."""
        self._summary.log()
        self._news |= self._aside
        self._aside.clear()
        self.kick()

    def _request_failed(self, error: Error, reason: str) -> None:
        """Pause, then begin a session anew; one that the leader has lost is begun at once."""
        self._failures += 1
        self._session.failed(error)
        if self._failures == 1:
            is_lost = error in SESSION_ERRORS
            level = logging.INFO if is_lost else logging.WARNING
            said = error.name if is_lost else reason
            logger.log(level, "cannot fetch from broker %d: %s", self.leader_id, said)
            if is_lost:
                self.kick()
                return
        due_ms = self._clock.monotonic_ms() + self._pause_ms(self._failures)
        self._pause = self._timers.at(due_ms, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self.kick()

    def _take_all(self, response: wire.FetchResponse) -> Flushes:
        """Act on all that was answered; return what must be durable before the next question."""
        flushes: Flushes = []
        for topic in response.responses:
            for found in topic.partitions:
                followed = self._followed.get((topic.topic_id, found.partition_index))
                if followed is None:
                    continue
                try:
                    self._take(followed, found, flushes)
                except Exception:
                    # A mistake of ours: it must not end the copying of all other partitions.
                    logger.exception("%s cannot be followed", followed.name)
                    self._try_later(followed)
        self._summary.log()
        return flushes

    def _take(
        self,
        followed: Followed,
        found: wire.PartitionData,
        flushes: Flushes,
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
                self._cut(followed, log, found.diverging_epoch, flushes)
            else:
                followed.served = True
                self._append(followed, log, found, flushes)
        except OSError as error:
            self._hosts.storage_failed(followed.partition, error)
            self.remove(followed.key)
        except (ApiError, RecordsError, UnexpectedOffset) as error:
            if followed.failures == 0:
                logger.error(
                    "%s: what broker %d sent for offset %d is not taken: %s",
                    *(followed.name, self.leader_id, asked.fetch_offset, error),
                )
            self._try_later(followed)

    def _append(
        self,
        followed: Followed,
        log: PartitionLog,
        found: wire.PartitionData,
        flushes: Flushes,
    ) -> None:
        records = records_view(found.records)
        if records:
            following.reach_back(log, records)
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
        followed.failures = 0
        followed.lag = max(0, found.high_watermark - log.log_end_offset)
        if moved:
            self._hosts.follower_advanced(followed.partition)

    def _cut(
        self,
        followed: Followed,
        log: PartitionLog,
        told: wire.EpochEndOffset,
        flushes: Flushes,
    ) -> None:
        """Cut the log back to what it may have in common with the leader's."""
        end = following.common_end(log, told.epoch, told.end_offset)
        before = following.position_of(log)
        truncated = log.truncate_in_background(end, self._still_follows(followed, log))
        truncated.then(partial(self._was_cut, followed, log, told, before))
        # What comes next is appended behind the cut, which must be durable by then.
        flushes.append(truncated)

    def _still_follows(self, followed: Followed, log: PartitionLog) -> Callable[[], bool]:
        """Return what tells whether a log may be shortened still as this leader's answer says."""
        before = following.position_of(log)

        def still() -> bool:
            if self._closed or self._followed.get(followed.key) is not followed:
                return False
            return followed.partition.log is log and following.position_of(log) == before

        return still

    def _not_shortened(
        self, followed: Followed, log: PartitionLog, error: OSError | ApiError
    ) -> None:
        """Follow that a log could not be shortened."""
        if isinstance(error, DamagedLog):
            self._cut_before(followed, log, error)
            return
        if isinstance(error, ApiError):
            if followed.failures == 0:
                logger.error("%s: the log cannot be truncated: %s", followed.name, error)
            self._try_later(followed)
            return
        if not log.failed:  # Else its directory is offline already.
            self._hosts.storage_failed(followed.partition, error)
        self.remove(followed.key)

    def _cut_before(self, followed: Followed, log: PartitionLog, damage: DamagedLog) -> None:
        """Cut a damaged log to its last sound batch, where that takes nothing from anybody."""
        partition = followed.partition
        if not self._hosts.log_damaged(partition, damage, served=followed.served):
            followed.failures += 1
            self.remove(followed.key)
            return
        self._rest(followed)
        still = self._still_follows(followed, log)
        shortened = log.truncate_in_background(damage.good_end, still)
        shortened.then(partial(self._relocated, followed, log))

    def _was_cut(
        self,
        followed: Followed,
        log: PartitionLog,
        told: wire.EpochEndOffset,
        before: Position,
        error: OSError | ApiError | None,
    ) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        if error is not None:
            self._not_shortened(followed, log, error)
            return
        after = following.position_of(log)
        self._summary.add(
            logging.INFO,
            f"cut back to what broker {self.leader_id} has, too",
            "{} from {} (epoch {}) to {} (epoch {}), its epoch {} ends at {}".format(
                followed.name, *before, *after, told.epoch, told.end_offset
            ),
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
            headline = f"broker {self.leader_id} answers {error_name(code)}"
            self._summary.add(level, headline, f"{followed.name} in epoch {followed.leader_epoch}")
        self._try_later(followed)

    # -- an offset that the leader does not have -----------------------------------------------

    def _locate(self, followed: Followed) -> None:
        """Ask where the leader's log begins and ends; the partition rests meanwhile."""
        self._rest(followed)
        # Behind a request that is parked it would wait for that one's end.
        sender = self._sender_aside if self._busy else self._sender
        bounds = ask_bounds(
            sender, followed, node_id=self._node_id, timeout_ms=self._settings.timeout_ms
        )
        bounds.then(lambda found: self._located(followed, found))

    def _located(self, followed: Followed, bounds: tuple[int, int] | None) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        log = followed.partition.log
        if log is None or bounds is None:
            self._try_later(followed)
            return
        relocation = following.relocate(log, *bounds)
        logger.warning(
            "%s: offset %d is not in the log of broker %d, which is [%d, %d): %s",
            *(followed.name, log.log_end_offset, self.leader_id, *bounds, relocation.value),
        )
        start, end = bounds
        if relocation is Relocation.GO_ON or log.failed:
            self._try_later(followed)
            return
        still = self._still_follows(followed, log)
        if relocation is Relocation.CUT:
            shortened = log.truncate_in_background(end, still)
        else:
            shortened = log.truncate_fully_in_background(start, still)
        shortened.then(partial(self._relocated, followed, log))

    def _relocated(
        self, followed: Followed, log: PartitionLog, error: OSError | ApiError | None
    ) -> None:
        if self._closed or self._followed.get(followed.key) is not followed:
            return
        if error is not None:
            self._not_shortened(followed, log, error)
        else:
            self._go_on(followed)
