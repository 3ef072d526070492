"""Incremental fetch sessions: a fetcher names its partitions once, then only what changed.

A full fetch (epoch 0) may open a session. Later fetches carry the session's next epoch and only
the partitions that are new, changed or forgotten; their responses hold only the partitions that
have changed. Epoch -1 is a full fetch that wants no session. Sessions are soft state: any may be
evicted at any time, which costs the fetcher one full fetch.

A follower's session knows which of its partitions are `active`. A partition without changes is
idle until something happens to it, so that the cost of a fetch depends on the partitions that
changed, not on all of them, of which there may be thousands.

Source: KIP-227; Kafka's FetchSession.scala and FetchMetadata.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.ports import Dice

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSION_ID_BOUND = 2**31 - 1

NO_REPLICA = (-1, -1)

EVICTION_MS = 120_000
"""A session unused for longer is stale; a younger one may only be evicted by replicas' sessions."""

Key = tuple[str | Uuid, int]
"""(topic id, partition) where the request has topic ids, else (topic name, partition)."""


def next_epoch(epoch: int) -> int:
    """Return the epoch that the fetch after the one with `epoch` must carry."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class FetchPartition:
    """One partition of a fetch: what was last requested, and what was last sent."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start",
        "key",
        "last_fetched_epoch",
        "max_bytes",
        "partition_id",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        partition_id: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        follower_log_start: int = -1,
    ) -> None:
        self.topic = topic
        """"" where the request names topics by id only."""
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.key: Key = (topic if topic_id == NO_UUID else topic_id, partition_id)
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.follower_log_start = follower_log_start
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.watched: object = None
        """The Partition that will make this one active in its session."""

    def ask(self, newer: "FetchPartition") -> None:
        """Take over a later request of the session."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.follower_log_start = newer.follower_log_start


class PartitionResponse(Protocol):
    """The fields of a partition's fetch response that sessions use."""

    @property
    def error(self) -> Error: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def diverging(self) -> tuple[int, int] | None: ...
    @property
    def preferred(self) -> int: ...


R = TypeVar("R", bound=PartitionResponse)
Results = list[tuple[FetchPartition, R]]


class FetchSession:
    """The partitions of one fetcher, in the order in which they are served.

    Fields: `active`: the partitions of a follower's session that a fetch reads; else None.
            `replica`: its id and broker epoch. `fetched_ms`: its last fetch (monotonic).
            `closed`: whether the session has ended.
    """

    __slots__ = (
        "active",
        "closed",
        "created_ms",
        "epoch",
        "fetched_ms",
        "id",
        "last_used_ms",
        "partitions",
        "privileged",
        "replica",
        "uses_topic_ids",
    )

    def __init__(
        self,
        id: int,
        partitions: dict[Key, FetchPartition],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.id = id
        self.partitions = partitions
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.active: dict[Key, FetchPartition] | None = dict(partitions) if privileged else None
        self.replica = NO_REPLICA
        self.fetched_ms = 0
        self.closed = False

    def update(self, requested: Mapping[Key, FetchPartition], forgotten: Iterable[Key]) -> None:
        """Add, change and forget partitions, as a request says."""
        active = self.active
        for key, newer in requested.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = known = newer
            else:
                known.ask(newer)
            if active is not None:
                active[key] = known
        for key in forgotten:
            self.partitions.pop(key, None)
            if active is not None:
                active.pop(key, None)

    def fetched_by(self, replica: tuple[int, int], now_ms: int) -> None:
        """Note a follower's fetch; a new broker epoch makes all partitions active."""
        if self.replica != replica and self.active is not None:
            self.replica = replica
            self.active.update(self.partitions)
        self.fetched_ms = now_ms

    def holds(self, partition: FetchPartition) -> bool:
        """Tell whether that very partition is still in the session."""
        return not self.closed and self.partitions.get(partition.key) is partition


class Fetching:
    """One fetch from request to response: without a session, unless it is of a subclass."""

    __slots__ = ("partitions",)
    incremental = False
    session: FetchSession | None = None

    def __init__(self, partitions: Mapping[Key, FetchPartition]) -> None:
        self.partitions: Mapping[Key, FetchPartition] = partitions

    def finish(self, results: Results[R], now_ms: int) -> tuple[Error, int, Results[R]]:
        """Return the response's error, session id and partitions."""
        return Error.NONE, NO_SESSION, results


class FullFetching(Fetching):
    """A full fetch that opens a session if there is room for one."""

    __slots__ = ("_privileged", "_sessions", "_uses_topic_ids")

    def __init__(
        self,
        partitions: Mapping[Key, FetchPartition],
        sessions: "FetchSessions",
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._privileged = privileged
        self._uses_topic_ids = uses_topic_ids

    def finish(self, results: Results[R], now_ms: int) -> tuple[Error, int, Results[R]]:
        session = self._sessions.create(
            results,
            privileged=self._privileged,
            uses_topic_ids=self._uses_topic_ids,
            now_ms=now_ms,
        )
        return Error.NONE, NO_SESSION if session is None else session.id, results


class IncrementalFetching(Fetching):
    """A fetch within a session."""

    __slots__ = ("_epoch", "session")
    incremental = True

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.partitions)
        self.session: FetchSession = session
        self._epoch = session.epoch

    def finish(self, results: Results[R], now_ms: int) -> tuple[Error, int, Results[R]]:
        """Return the partitions that changed, and note what the fetcher is sent of them.

        A partition that returned records moves to the end of the session, so that the next fetch
        reads the others first.
        """
        session = self.session
        if session.epoch != self._epoch:
            # A later request came while this one was delayed: it must be a duplicate.
            return Error.INVALID_FETCH_SESSION_EPOCH, session.id, []
        changed: Results[R] = []
        for partition, response in results:
            if not _must_respond(partition, response):
                continue
            changed.append((partition, response))
            # After an error the partition is sent again as soon as the error is gone; a follower
            # that must truncate uses nothing else of the response but the log start.
            failed = response.error is not Error.NONE or response.diverging is not None
            partition.sent_high_watermark = -1 if failed else response.high_watermark
            partition.sent_log_start = response.log_start_offset
            if response.size > 0:
                _serve_last(session.partitions, partition)
                if session.active is not None:
                    _serve_last(session.active, partition)
        return Error.NONE, session.id, changed


def _serve_last(partitions: dict[Key, FetchPartition], partition: FetchPartition) -> None:
    if partitions.pop(partition.key, None) is not None:
        partitions[partition.key] = partition


def _must_respond(partition: FetchPartition, response: PartitionResponse) -> bool:
    return (
        response.size > 0
        or response.error is not Error.NONE
        or response.high_watermark != partition.sent_high_watermark
        or response.log_start_offset != partition.sent_log_start
        or response.diverging is not None
        or response.preferred >= 0
    )


class FetchSessions:
    """The sessions of a broker, at most `slots` of them.

    Fields: `slots`: max.incremental.fetch.session.cache.slots; 0 = no sessions at all.
    Kept in the order of use, stalest first.
    """

    def __init__(self, slots: int, dice: Dice) -> None:
        self._slots = slots
        self._dice = dice
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Return how many partitions all sessions hold together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        requested: dict[Key, FetchPartition],
        forgotten: Sequence[Key] = (),
        *,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        privileged: bool,
        now_ms: int,
    ) -> Fetching | Error:
        """Return the request's fetch, or the error of its session."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full fetch closes the session that it names.
            self._close(session_id)
            if epoch == FINAL_EPOCH:
                return Fetching(requested)
            return FullFetching(
                requested, self, privileged=privileged, uses_topic_ids=uses_topic_ids
            )
        session = self._sessions.get(session_id)
        if session is None:
            return Error.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return Error.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(requested, forgotten)
        if not session.partitions:
            self._close(session_id)
            return Fetching(requested)
        self._touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetching(session)

    def create(
        self, results: Results[R], *, privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """Open a session of the partitions in the response; None where there is no room."""
        full = len(self._sessions) >= self._slots
        if full and not self._evict(privileged, len(results), now_ms):
            return None
        partitions = {}
        for partition, response in results:
            failed = response.diverging is not None
            partition.sent_high_watermark = -1 if failed else response.high_watermark
            partition.sent_log_start = response.log_start_offset
            partitions[partition.key] = partition
        session = FetchSession(
            self._new_id(),
            partitions,
            privileged=privileged,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        self._sessions[session.id] = session
        return session

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._dice.below(SESSION_ID_BOUND)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Make room for a session of `size` partitions; return False where all are worth more.

        The least recently used session is evicted if it is stale. Else the least valuable of those
        that may be evicted goes, if it is worth less than the new one: replicas' sessions are
        worth more than consumers', and more partitions more than fewer.
        """
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None:
            return False
        if now_ms - stalest.last_used_ms > EVICTION_MS:
            victim = stalest
        else:
            evictable = (
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS
                or (privileged and not session.privileged)
            )
            worth = min(((s.privileged, len(s.partitions), s.id) for s in evictable), default=None)
            if worth is None or (privileged, size, 0) < worth:
                return False
            victim = self._sessions[worth[2]]
        self._close(victim.id)
        self.evictions += 1
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.closed = True
