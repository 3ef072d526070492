"""What a follower asks its leader, and the leader's session as the follower knows it.

Source: Kafka's FetchSessionHandler and RemoteLeaderEndPoint; KIP-227, KIP-903 (replica epoch).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, gather
from ottla.broker import following
from ottla.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from ottla.broker.following import Position
from ottla.broker.partition import Partition
from ottla.broker.peers import Sender
from ottla.wire.messages import fetch as wire
from ottla.wire.messages import list_offsets as offsets_wire

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9

LATEST, EARLIEST = -1, -2

FollowedKey = tuple[Uuid, int]
"""(topic id, partition number)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """What a fetcher asks for; see the properties replica.fetch.* and replica.socket.timeout.ms."""

    max_wait_ms: int
    min_bytes: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int


class Followed:
    """One partition as one leader epoch's follower. `asked`: what the last request said of it."""

    __slots__ = (
        "asked",
        "failures",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "resting",
        "served",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: FollowedKey = (partition.topic_id, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.asked: Position | None = None
        self.failures = 0
        self.lag = 0
        """Records of which the leader said that they are committed, and which are not here."""
        self.resting = False
        """Whether it is left out of requests, after a failure or while the leader is asked."""
        self.served = False
        """Whether the leader may have accepted a fetch in this epoch, and count on what is here."""

    @property
    def name(self) -> str:
        """Return the partition as log lines name it."""
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    def can_be_asked(self) -> bool:
        """Tell whether it does not rest, and its folder has not failed."""
        log = self.partition.log
        return not self.resting and log is not None and not log.failed

    def ask(self, bytes_max: int) -> wire.FetchPartition:
        """Return what to ask for it now, and remember that."""
        log = self.partition.log
        assert log is not None
        self.asked = position = following.position_of(log)
        return wire.FetchPartition(
            partition=self.key[1],
            current_leader_epoch=self.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=bytes_max,
        )


class LeaderSession:
    """The session that a leader keeps for this follower. `members`: what the leader believes."""

    __slots__ = ("epoch", "id", "members")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.members: dict[FollowedKey, None] = {}

    @property
    def begins(self) -> bool:
        """Tell whether the next request names everything, and opens a session."""
        return self.epoch == INITIAL_EPOCH

    def begin_anew(self) -> None:
        """Let the next request open a session; it closes what is left of this one."""
        self.epoch = INITIAL_EPOCH

    def answered(self, session_id: int) -> None:
        """Take note of an answer without an error; a leader may have no room for a session."""
        if self.epoch == INITIAL_EPOCH:
            self.id = session_id
        if self.id != NO_SESSION:
            self.epoch = next_epoch(self.epoch)

    def failed(self, error: Error) -> None:
        """Take note of a request that failed as a whole."""
        if error is Error.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH


class Questions(NamedTuple):
    """What a request says of partitions: those asked for, those given up."""

    asked: list[tuple[FollowedKey, wire.FetchPartition]]
    forgotten: list[FollowedKey]


def fetch_request(
    questions: Questions,
    settings: FetchSettings,
    *,
    replica: wire.ReplicaState,
    max_wait_ms: int,
    session: LeaderSession | None,
) -> wire.FetchRequest:
    """Return a fetch, in the session or, None, without one."""
    topics: list[tuple[Uuid, list[wire.FetchPartition]]] = []
    for (topic_id, _), named in questions.asked:
        # Neighbours of one topic share an entry; the order of partitions stays.
        if not topics or topics[-1][0] != topic_id:
            topics.append((topic_id, []))
        topics[-1][1].append(named)
    return wire.FetchRequest(
        replica_state=replica,
        max_wait_ms=max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.response_bytes_max,
        session_id=NO_SESSION if session is None else session.id,
        session_epoch=FINAL_EPOCH if session is None else session.epoch,
        topics=tuple(
            wire.FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics
        ),
        forgotten_topics_data=_forgotten(questions.forgotten),
    )


def _forgotten(keys: Iterable[FollowedKey]) -> tuple[wire.ForgottenTopic, ...]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, index in keys:
        by_topic.setdefault(topic_id, []).append(index)
    return tuple(
        wire.ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
        for topic_id, indexes in by_topic.items()
    )


def ask_bounds(
    sender: Sender, followed: Followed, *, node_id: int, timeout_ms: int
) -> Pending[tuple[int, int] | None]:
    """Ask where the leader's log begins and ends; None where it does not say."""

    def ask(which: int) -> Pending[int | None]:
        wanted = offsets_wire.ListOffsetsPartition(
            partition_index=followed.key[1],
            current_leader_epoch=followed.leader_epoch,
            timestamp=which,
        )
        topic = offsets_wire.ListOffsetsTopic(name=followed.partition.topic, partitions=(wanted,))
        request = offsets_wire.ListOffsetsRequest(replica_id=node_id, topics=(topic,))
        return sender.send(request, LIST_OFFSETS_VERSION, timeout_ms=timeout_ms).map(_listed_offset)

    def bounds(found: list[int | None]) -> tuple[int, int] | None:
        start, end = found
        return None if start is None or end is None else (start, end)

    return gather([ask(EARLIEST), ask(LATEST)]).map(bounds)


def _listed_offset(response: offsets_wire.ListOffsetsResponse | ApiError) -> int | None:
    """Return the one offset of an answer, or None where it tells none."""
    if isinstance(response, ApiError) or len(response.topics) != 1:
        return None
    partitions = response.topics[0].partitions
    if len(partitions) != 1 or partitions[0].error_code or partitions[0].offset < 0:
        return None
    return partitions[0].offset
