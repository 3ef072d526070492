"""The reader of one partition of the metadata topic, for the user partitions that map to it.

It reads with up to two cursors:

    catch-up  from the checkpoint or the log start up to the tail, for user partitions that were
              assigned since; without waiting, on a connection of its own
    tail      from there on, with long polls, for all others

The records of other user partitions of the same metadata partition are dropped. A user partition
that is assigned later is therefore read from the start again, by the next catch-up, while the tail
goes on for the others. A catch-up that has reached the tail hands its user partitions over.

A user partition is ready once it is replayed up to the high watermark of its assignment. The leader
is asked for that with ListOffsets, which a new leader does not answer before it knows all that the
previous one acknowledged (KIP-207); the high watermark of a Fetch could be lower.

A checkpoint is taken while reading goes on, one user partition a turn, so each state has its own
offset, and after a restart the records below it are not replayed into it again.

Where the leader no longer has what was read (records were deleted, or truncated after an unclean
election) everything is dropped and read again from the start. Where records were truncated before
they were read, the high watermark to wait for is lower now: it is asked for again while there is
nothing to read.

Source: KIP-405; Kafka's ConsumerTask and RemotePartitionMetadataStore.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error
from ottla.base.ids import uuid_text
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Dice, Workers
from ottla.base.timers import Timer, Timers
from ottla.broker.leader_requests import LeaderRequests, TopicIdPartition
from ottla.broker.remote.metadata.leader_apis import EARLIEST, LATEST, Fetched, FetchFrom
from ottla.broker.remote.metadata.metadata_chunks import (
    Chunk,
    UserPartition,
    decode_chunk,
)
from ottla.broker.remote.metadata.reader_checkpoint import (
    CheckpointFiles,
    ReaderCheckpoint,
    UserState,
)
from ottla.records.errors import RecordsError
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import MetadataRecord

logger = logging.getLogger(__name__)

WARNINGS_MAX: Final = 20
"""Skipped records of a metadata partition that are logged one by one."""


CHECKPOINT_RECORDS: Final = 10_000
"""After so many records a checkpoint is written without waiting for the interval: decoding them
takes some hundred milliseconds."""


@dataclass(slots=True, kw_only=True)
class ReaderCounters:
    """Counters of all metadata partitions of a broker.

    Fields: `replayed`: records given to a log; `skipped`: those that could not be decoded;
            `resets`: how often a partition was read again from its start.
    """

    replayed: int = 0
    skipped: int = 0
    resets: int = 0


@dataclass(slots=True, kw_only=True)
class ReaderPorts:
    """What the readers of all metadata partitions share.

    Fields: `tail`, `catch_up`: Fetch with and without long polls; `offsets`: ListOffsets.
            `on_ready`: called with each user partition that becomes ready; `on_replayed`: with
            each one that is ready and whose log has changed.
    """

    topic: str
    tail: LeaderRequests[FetchFrom, Fetched]
    catch_up: LeaderRequests[FetchFrom, Fetched]
    offsets: LeaderRequests[int, int]
    files: CheckpointFiles
    workers: Workers
    clock: Clock
    timers: Timers
    dice: Dice
    backoff: Backoff
    on_ready: Callable[[UserPartition], None]
    on_replayed: Callable[[UserPartition], None]
    counters: ReaderCounters


class _User:
    """A user partition. `offset`: records below it are replayed."""

    __slots__ = ("log", "offset", "ready")

    def __init__(self, log: RemoteLog, offset: int) -> None:
        self.log = log
        self.offset = offset
        self.ready = False


class _Cursor:
    """Where to read on, and for whom.

    Fields: `end`: from this offset on its user partitions are ready; `unready`: those that are not
            yet. `accepted`: whether the leader has accepted the position. `verify`: a later
            position that the leader must accept, too: of the newest state of a checkpoint.
    """

    __slots__ = (
        "accepted",
        "end",
        "epoch",
        "high_watermark",
        "offset",
        "unready",
        "users",
        "verify",
    )

    def __init__(self, users: dict[UserPartition, _User], position: FetchFrom) -> None:
        self.users = users
        self.unready = dict.fromkeys(users)
        self.offset, self.epoch = position
        self.end = self.high_watermark = self.offset
        self.accepted = False
        self.verify: FetchFrom | None = None

    @property
    def position(self) -> FetchFrom:
        return FetchFrom(self.offset, self.epoch)

    @property
    def lag(self) -> int:
        return max(self.high_watermark, self.end, self.offset) - self.offset

    def drop(self, user: UserPartition) -> None:
        self.users.pop(user, None)
        self.unready.pop(user, None)


class PartitionReader:
    """See the module. `key`: the metadata partition."""

    def __init__(self, key: TopicIdPartition, ports: ReaderPorts) -> None:
        self.key = key
        self._ports = ports
        self._assigned: dict[UserPartition, None] = {}
        self._new: dict[UserPartition, None] = {}
        """Assigned ones that wait for the next catch-up."""
        self._tail: _Cursor | None = None
        self._catch_up: _Cursor | None = None
        self._checkpoint: ReaderCheckpoint | None = None
        self._checkpoint_asked = self._checkpoint_read = False
        self._waiters: list[tuple[UserPartition, int, Pending[ApiError | None]]] = []
        self._generation = 0
        """Grows when everything is dropped: what was under way before is ignored."""
        self._resets = 0
        self._backoff: Timer | None = None
        self._warnings = 0
        self.applied = 0
        """Records read since the last checkpoint."""
        self._checkpointing = self._writing = self._remove_when_written = False
        self._rechecking = False
        """ListOffsets is under way for the tail."""
        self._failures = 0

    @property
    def name(self) -> str:
        """Return the metadata partition's name for log lines."""
        return f"{self._ports.topic}-{self.key[1]}"

    @property
    def lag(self) -> int:
        """Return the committed records, as far as known, that are not replayed yet."""
        cursors = (self._tail, self._catch_up)
        return sum(cursor.lag for cursor in cursors if cursor is not None)

    @property
    def is_needed(self) -> bool:
        """Tell whether it has user partitions to read for."""
        return bool(self._assigned)

    # -- User partitions --

    def assign(self, users: Iterable[UserPartition]) -> None:
        """Read for these user partitions, too."""
        for user in users:
            if user not in self._assigned:
                self._assigned[user] = self._new[user] = None
        self._start_catch_up()

    def unassign(self, users: Iterable[UserPartition]) -> None:
        """Stop reading for these; with the last one, stop reading."""
        gone = {user for user in users if user in self._assigned}
        if not gone:
            return
        for user in gone:
            del self._assigned[user]
            self._new.pop(user, None)
            for cursor in (self._tail, self._catch_up):
                if cursor is not None:
                    cursor.drop(user)
        if not self._assigned:
            self._drop_everything()
            self._checkpoint = None
            self._remove_checkpoint()
        elif self._catch_up is not None and not self._catch_up.users:
            self._end_catch_up()
        # Nobody has a log of them here, so the appends are done as they are in the topic.
        released = [each for each in self._waiters if each[0] in gone]
        self._waiters = [each for each in self._waiters if each[0] not in gone]
        for _, _, waiter in released:
            waiter.complete(None)

    def log_of(self, user: UserPartition) -> RemoteLog | None:
        """Return a user partition's log; None while it is not ready."""
        found = self._user(user)
        return found.log if found is not None and found.ready else None

    def when_read(self, user: UserPartition, offset: int) -> Pending[ApiError | None]:
        """Return the promise that the record at `offset` is replayed into the log of `user`.

        At once where it is not assigned. Error: REQUEST_TIMED_OUT where the metadata partition is
        read again from its start, as the record may be gone. (Where an unclean election has lost
        it unread, another record has its offset.)
        """
        found = self._user(user)
        if user not in self._assigned or (found is not None and found.offset > offset):
            return completed(None)
        waiter: Pending[ApiError | None] = Pending()
        self._waiters.append((user, offset, waiter))
        return waiter

    def close(self) -> None:
        """Stop reading; the checkpoint stays."""
        self._drop_everything()
        self._assigned.clear()
        self._new.clear()
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            waiter.complete(ApiError(Error.BROKER_NOT_AVAILABLE))

    def _user(self, user: UserPartition) -> _User | None:
        for cursor in (self._tail, self._catch_up):
            if cursor is not None and user in cursor.users:
                return cursor.users[user]
        return None

    # -- Catch-up --

    def _start_catch_up(self) -> None:
        """Read for the new ones, unless a catch-up is under way: those with a state first."""
        if self._catch_up is not None or self._rechecking:
            return
        if not self._new or self._backoff is not None:
            return
        if not self._checkpoint_read:
            self._read_checkpoint()
            return
        checkpoint = self._checkpoint
        saved = self._restore(checkpoint) if checkpoint is not None else {}
        if checkpoint is not None and saved:
            cursor = _Cursor(saved, FetchFrom(checkpoint.offset, checkpoint.epoch))
            if checkpoint.end_offset > checkpoint.offset:
                cursor.verify = FetchFrom(checkpoint.end_offset, checkpoint.end_epoch)
        else:
            users = {user: _User(RemoteLog(), 0) for user in self._new}
            cursor = _Cursor(users, FetchFrom(0))
        for user in cursor.users:
            del self._new[user]
        self._catch_up = cursor
        self._find_end(cursor, from_start=not saved)

    def _find_end(self, cursor: _Cursor, *, from_start: bool) -> None:
        generation = self._generation

        def end_found(end: int | ApiError) -> None:
            if isinstance(end, ApiError) or not self._is_current(generation, cursor):
                return  # An error only as the broker stops: ListOffsets is retried for ever.
            cursor.end = end
            if from_start:
                self._ports.offsets.ask(self.key, EARLIEST).then(start_found)
            else:
                self._go_on(cursor)

        def start_found(start: int | ApiError) -> None:
            if not isinstance(start, ApiError) and self._is_current(generation, cursor):
                cursor.offset, cursor.accepted = start, True
                self._go_on(cursor)

        self._ports.offsets.ask(self.key, LATEST).then(end_found)

    def _is_current(self, generation: int, cursor: _Cursor) -> bool:
        return generation == self._generation and cursor in (self._tail, self._catch_up)

    def _read_checkpoint(self) -> None:
        if self._checkpoint_asked:
            return
        self._checkpoint_asked = True

        def found(checkpoint: ReaderCheckpoint | None) -> None:
            self._checkpoint, self._checkpoint_read = checkpoint, True
            self._start_catch_up()

        self._ports.files.read(*self.key).then(found)

    def _restore(self, checkpoint: ReaderCheckpoint) -> dict[UserPartition, _User]:
        """Return the new user partitions of which the checkpoint has a state."""
        restored: dict[UserPartition, _User] = {}
        for user in self._new:
            state = checkpoint.states.get(user)
            if state is None:
                continue
            try:
                log = RemoteLog.from_image(state.image)
            except ValueError as error:
                logger.warning(
                    "%s: the checkpoint's state of %s-%d is damaged: %s; reading from the start",
                    *(self.name, uuid_text(user[0]), user[1], error),
                )
                continue
            restored[user] = _User(log, state.offset)
        return restored

    def _go_on(self, cursor: _Cursor) -> None:
        """Read on, or hand over to the tail."""
        generation, tail = self._generation, self._tail
        if cursor.accepted and cursor.verify is None:
            self._note_ready(cursor)
            if not self._is_current(generation, cursor):
                return  # Who became ready has unassigned the last one.
            if cursor.offset >= cursor.end if tail is None else cursor.offset == tail.offset:
                self._hand_over(cursor)
                return
        position = cursor.position if cursor.verify is None else cursor.verify
        answer = self._ports.catch_up.ask(self.key, position)
        answer.then(lambda fetched: self._caught_up(generation, cursor, fetched))

    def _caught_up(self, generation: int, cursor: _Cursor, fetched: Fetched | ApiError) -> None:
        if not self._is_current(generation, cursor) or not self._is_sound(fetched):
            return
        assert isinstance(fetched, Fetched)
        if cursor.verify is not None:
            cursor.verify = None
            self._go_on(cursor)
            return
        cursor.accepted = True
        cursor.high_watermark = fetched.high_watermark
        if not fetched.records:
            if cursor.offset < cursor.end:
                # The leader's high watermark is behind, or what was there is lost.
                self._find_end(cursor, from_start=False)
            else:
                self._go_on(cursor)
            return
        data, (offset, epoch) = fetched.records, cursor.position

        def decoded(chunk: Chunk | BaseException) -> None:
            if self._is_current(generation, cursor) and self._apply(cursor, chunk):
                self._go_on(cursor)

        self._ports.workers.submit(lambda: decode_chunk(data, offset, epoch), decoded)

    def _note_ready(self, cursor: _Cursor) -> None:
        """Let the user partitions of a cursor be ready that has read far enough."""
        if not cursor.unready or cursor.offset < cursor.end:
            return
        ready, cursor.unready = cursor.unready, {}
        for user in ready:
            found = cursor.users.get(user)
            if found is not None:  # Who became ready first may have unassigned it.
                found.ready = True
                self._ports.on_ready(user)

    def _hand_over(self, cursor: _Cursor) -> None:
        self._resets = 0
        tail = self._tail
        if tail is None:
            self._tail = cursor
            self._end_catch_up()
            self._read_tail(cursor)
            return
        # Both are at the same offset: neither misses a record.
        tail.users |= cursor.users
        tail.unready |= cursor.unready
        tail.end = max(tail.end, cursor.end)
        self._end_catch_up()

    def _end_catch_up(self) -> None:
        self._catch_up = None
        self._ports.catch_up.cancel(self.key)
        self._ports.offsets.cancel(self.key)
        if self._new:
            self._start_catch_up()
        else:
            self._checkpoint = None  # Its states are older than those in memory by now.

    # -- Tail --

    def _read_tail(self, cursor: _Cursor) -> None:
        generation = self._generation
        answer = self._ports.tail.ask(self.key, cursor.position)
        answer.then(lambda fetched: self._tail_read(generation, cursor, fetched))

    def _tail_read(self, generation: int, cursor: _Cursor, fetched: Fetched | ApiError) -> None:
        if not self._is_current(generation, cursor) or not self._is_sound(fetched):
            return
        assert isinstance(fetched, Fetched)
        cursor.high_watermark = fetched.high_watermark
        if fetched.records:
            # At once, not in a worker: all partitions of this response are asked again together.
            chunk: Chunk | BaseException
            try:
                chunk = decode_chunk(fetched.records, *cursor.position)
            except RecordsError as error:
                chunk = error
            if not self._apply(cursor, chunk):
                return
            self._note_ready(cursor)
        elif cursor.unready and self._catch_up is None and not self._rechecking:
            self._recheck_end(cursor)
        if self._is_current(generation, cursor):
            self._read_tail(cursor)

    def _recheck_end(self, cursor: _Cursor) -> None:
        """Find the end again for user partitions that wait for more than there is."""
        self._rechecking = True

        def end_found(end: int | ApiError) -> None:
            if isinstance(end, ApiError):
                return  # The broker stops.
            self._rechecking = False
            cursor.end = end
            self._note_ready(cursor)
            self._start_catch_up()

        self._ports.offsets.ask(self.key, LATEST).then(end_found)

    def _is_sound(self, fetched: Fetched | ApiError) -> bool:
        """Tell whether a fetch has an answer to use; else reset, or end."""
        if isinstance(fetched, Fetched):
            if fetched.diverged:
                self._reset("the log was truncated")
            return not fetched.diverged
        if fetched.error is Error.OFFSET_OUT_OF_RANGE:
            self._reset("the offset is out of range")
        return False  # Other errors only as the broker stops: Fetch is retried for ever.

    # -- Replay --

    def _apply(self, cursor: _Cursor, chunk: Chunk | BaseException) -> bool:
        """Replay what was read; return False where it is unreadable: it is read again later.

        A catch-up stops where the tail is, so that both continue as one.
        """
        if isinstance(chunk, BaseException):
            self._read_later(cursor, chunk)
            return False
        self._failures = 0
        self._warn(chunk)
        next_offset, last_epoch, users = chunk.next_offset, chunk.last_epoch, cursor.users
        tail = self._tail
        if tail is not None and cursor is not tail and next_offset > tail.offset:
            next_offset, last_epoch = tail.position
        changed: dict[UserPartition, None] = {}
        for offset, record in chunk.records:
            key = record.topic_id, record.partition
            user = users.get(key)
            if user is not None and user.offset <= offset < next_offset:
                self._replay(user.log, record, offset)
                if user.ready:
                    changed[key] = None
        self.applied += next_offset - cursor.offset
        for user in users.values():
            user.offset = max(user.offset, next_offset)
        cursor.offset, cursor.epoch = next_offset, last_epoch
        for key in changed:
            self._ports.on_replayed(key)
        self._release_waiters()
        if self.applied >= CHECKPOINT_RECORDS:
            self.checkpoint()
        return True

    def _read_later(self, cursor: _Cursor, error: BaseException) -> None:
        """Read a batch again that could not be read at all."""
        self._failures += 1
        if self._failures == 1:
            logger.error(
                "%s: reading at offset %d failed: %s; retrying", self.name, cursor.offset, error
            )
        generation, ports = self._generation, self._ports

        def resume() -> None:
            if not self._is_current(generation, cursor):
                return
            if cursor is self._tail:
                self._read_tail(cursor)
            else:
                self._go_on(cursor)

        delay_ms = ports.backoff.delay_ms(self._failures, ports.dice)
        ports.timers.at(ports.clock.monotonic_ms() + delay_ms, resume)

    def _replay(self, log: RemoteLog, record: MetadataRecord, offset: int) -> None:
        self._ports.counters.replayed += 1
        try:
            log.replay(record)
        except Exception:
            # A bug: it must not end the reading of all other user partitions.
            self._ports.counters.skipped += 1
            logger.exception("%s: replay of the record at offset %d failed", self.name, offset)

    def _release_waiters(self) -> None:
        if not self._waiters:
            return
        kept: list[tuple[UserPartition, int, Pending[ApiError | None]]] = []
        released: list[Pending[ApiError | None]] = []
        for each in self._waiters:
            found = self._user(each[0])
            if found is not None and found.offset > each[1]:
                released.append(each[2])
            else:
                kept.append(each)
        self._waiters = kept
        for waiter in released:
            waiter.complete(None)

    def _warn(self, chunk: Chunk) -> None:
        for skipped in chunk.skipped:
            self._ports.counters.skipped += 1
            self._warnings += 1
            if self._warnings > WARNINGS_MAX:
                continue
            logger.warning(
                "%s: record at offset %d cannot be decoded (%s); skipping it",
                *(self.name, skipped.offset, skipped.reason),
            )
            if self._warnings == WARNINGS_MAX:
                logger.warning(
                    "%s: further records that cannot be decoded are skipped without a log line",
                    self.name,
                )

    # -- Reset --

    def _reset(self, reason: str) -> None:
        """Drop all that was read, and read it again from the start after a backoff."""
        ports = self._ports
        logger.warning("%s: %s; reading again from the log start", self.name, reason)
        ports.counters.resets += 1
        self._drop_everything()
        self._checkpoint, self._checkpoint_read = None, True
        self._remove_checkpoint()
        self._new = dict.fromkeys(self._assigned)
        self._resets += 1
        delay_ms = ports.backoff.delay_ms(self._resets, ports.dice)
        self._backoff = ports.timers.at(ports.clock.monotonic_ms() + delay_ms, self._backoff_over)
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            waiter.complete(ApiError(Error.REQUEST_TIMED_OUT, f"{self.name} is read again"))

    def _backoff_over(self) -> None:
        self._backoff = None
        self._start_catch_up()

    def _drop_everything(self) -> None:
        self._generation += 1
        self._tail = self._catch_up = None
        self._rechecking = False
        for requests in (self._ports.tail, self._ports.catch_up):
            requests.cancel(self.key)
        self._ports.offsets.cancel(self.key)
        if self._backoff is not None:
            self._backoff.cancel()
            self._backoff = None

    # -- Checkpoint --

    def checkpoint(self) -> None:
        """Write a checkpoint, if anything was read since the last one: one state in each turn."""
        cursor = self._catch_up if self._tail is None else self._tail
        if cursor is None or not cursor.accepted or self._checkpointing or not self.applied:
            return
        self._checkpointing = True
        self.applied = 0
        generation, begin = self._generation, cursor.position
        left = list(cursor.users)
        states: dict[UserPartition, UserState] = {}

        def take_next() -> None:
            if not self._is_current(generation, cursor):
                self._checkpointing = False
                return
            while left:
                user = left.pop()
                state = cursor.users.get(user)
                if state is not None:
                    states[user] = UserState(state.offset, state.log.image())
                    break
            if left:
                self._ports.timers.at(self._ports.clock.monotonic_ms(), take_next)
            else:
                self._write(begin, cursor.position, states)

        take_next()

    def last_checkpoint(self) -> Pending[bool] | None:
        """Write a checkpoint at once, as the broker stops; None where there is nothing to write."""
        tail = self._tail
        if tail is None or not self.applied or self._writing:
            return None
        self.applied = 0
        states = {
            user: UserState(state.offset, state.log.image()) for user, state in tail.users.items()
        }
        return self._write(tail.position, tail.position, states)

    def _write(
        self, begin: FetchFrom, end: FetchFrom, states: dict[UserPartition, UserState]
    ) -> Pending[bool]:
        topic_id, partition_id = self.key
        # One restored from the last checkpoint may be ahead of the cursor still.
        states = {user: state for user, state in states.items() if state.offset <= end.offset}
        checkpoint = ReaderCheckpoint(
            topic_id=topic_id,
            partition=partition_id,
            offset=begin.offset,
            epoch=begin.last_epoch,
            end_offset=end.offset,
            end_epoch=end.last_epoch,
            states=states,
        )
        self._checkpointing = self._writing = True
        written = self._ports.files.write(checkpoint)
        written.then(self._written)
        return written

    def _written(self, succeeded: bool) -> None:
        self._checkpointing = self._writing = False
        if not succeeded:
            self.applied = max(self.applied, 1)
        if self._remove_when_written:
            self._remove_when_written = False
            self._remove_checkpoint()

    def _remove_checkpoint(self) -> None:
        """Remove the file, which is of no use, or of a log that was truncated."""
        if self._writing:
            self._remove_when_written = True
        else:
            self._ports.files.remove(self.key[1])
