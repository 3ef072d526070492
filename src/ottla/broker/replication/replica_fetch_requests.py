"""A follower's requests to its leader, and the leader's fetch session as the follower knows it.

Source: Kafka's FetchSessionHandler and RemoteLeaderEndPoint; KIP-227, KIP-903 (replica epoch).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.errors import ApiError, Error, error_name, error_of
from ottla.base.ids import NO_OFFSET, Uuid
from ottla.base.pending import Pending, gather
from ottla.broker.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from ottla.broker.partition import Partition
from ottla.broker.ports import Sender
from ottla.broker.replication import follower_rules
from ottla.broker.replication.follower_rules import Position
from ottla.broker.replication.remote_log_port import AuxStateBuild, LeaderStarts, Problem
from ottla.log.epoch_cache import EpochEnd
from ottla.wire.messages import fetch as wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import offset_for_leader_epoch as epochs_wire

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
EPOCH_END_VERSION = 4

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4

TopicIdPartition = tuple[Uuid, int]
"""(topic id, partition)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """A fetcher's settings, from the properties replica.fetch.* and replica.socket.timeout.ms."""

    max_wait_ms: int
    min_bytes: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int


class FollowedPartition:
    """A partition as follower in one leader epoch. `requested`: its position in the last fetch."""

    __slots__ = (
        "build",
        "failures",
        "fetched",
        "key",
        "lag",
        "leader_epoch",
        "named_start",
        "partition",
        "paused",
        "problem",
        "requested",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: TopicIdPartition = (partition.topic_id, partition.partition_id)
        self.leader_epoch = partition.leader_epoch
        self.requested: Position | None = None
        self.named_start = NO_OFFSET
        """The log start in the last request to the leader."""
        self.failures = 0
        self.lag = 0
        """Records that are committed, by the leader's high watermark, and not fetched yet."""
        self.paused = False
        """Whether it is left out of fetches: it backs off, or waits for the leader's log bounds,
        or for the state of its log behind remote records."""
        self.build: AuxStateBuild | None = None
        """The state that is being built for its log, while it is paused."""
        self.problem: Problem | None = None
        """Why the last state could not be built."""
        self.fetched = False
        """Whether the leader may have accepted a fetch in this epoch, and count this replica."""

    def cancel_build(self) -> None:
        """Give up what is being built."""
        build, self.build = self.build, None
        if build is not None:
            build.cancel()

    @property
    def name(self) -> str:
        """Return the partition's name for log lines."""
        return f"{self.partition.topic}-{self.partition.partition_id}"

    @property
    def is_ready_for_fetch(self) -> bool:
        """Tell whether it is not paused, and its log directory has not failed.

        A fetch would tell the leader of records that an incomplete log loses with this process.
        """
        log = self.partition.log
        return not (self.paused or log is None or log.failed or log.is_incomplete)

    def fetch_partition(self, bytes_max: int) -> wire.FetchPartition:
        """Return its entry in the next fetch, and remember the position."""
        log = self.partition.log
        assert log is not None
        self.requested = position = follower_rules.position_of(log)
        self.named_start = log.log_start_offset
        return wire.FetchPartition(
            partition=self.key[1],
            current_leader_epoch=self.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=bytes_max,
        )


class LeaderSession:
    """The session that a leader keeps for this follower. `members`: its partitions there."""

    __slots__ = ("epoch", "id", "members")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.members: dict[TopicIdPartition, None] = {}

    @property
    def begins(self) -> bool:
        """Tell whether the next request is a full fetch that opens a session."""
        return self.epoch == INITIAL_EPOCH

    def restart(self) -> None:
        """Let the next request open a new session, which closes this one."""
        self.epoch = INITIAL_EPOCH

    def answered(self, session_id: int) -> None:
        """Note a response without an error; a leader may have no room for a session."""
        if self.epoch == INITIAL_EPOCH:
            self.id = session_id
        if self.id != NO_SESSION:
            self.epoch = next_epoch(self.epoch)

    def failed(self, error: Error) -> None:
        """Note a request that failed as a whole."""
        if error is Error.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH


class FetchRequestData(NamedTuple):
    """The partitions of a fetch request: those to fetch, and those to forget."""

    requested: list[tuple[TopicIdPartition, wire.FetchPartition]]
    forgotten: list[TopicIdPartition]


def fetch_request(
    data: FetchRequestData,
    settings: FetchSettings,
    *,
    replica: wire.ReplicaState,
    max_wait_ms: int,
    session: LeaderSession | None,
) -> wire.FetchRequest:
    """Return a fetch request. `session`: None = without one."""
    topics: list[tuple[Uuid, list[wire.FetchPartition]]] = []
    for (topic_id, _), named in data.requested:
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
        forgotten_topics_data=_forgotten(data.forgotten),
    )


def _forgotten(keys: Iterable[TopicIdPartition]) -> tuple[wire.ForgottenTopic, ...]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, partition_id in keys:
        by_topic.setdefault(topic_id, []).append(partition_id)
    return tuple(
        wire.ForgottenTopic(topic_id=topic_id, partitions=tuple(partition_ids))
        for topic_id, partition_ids in by_topic.items()
    )


class LeaderLogRequests:
    """Requests to the leader about one partition's log, in its present leader epoch.

    `sender`: returns the connection for the next one: that of a delayed fetch would wait for its
    end.
    """

    def __init__(
        self,
        sender: Callable[[], Sender],
        followed: FollowedPartition,
        *,
        node_id: int,
        timeout_ms: int,
    ) -> None:
        self._sender = sender
        self._followed = followed
        self._node_id = node_id
        self._timeout_ms = timeout_ms

    def bounds(self) -> Pending[tuple[int, int] | None]:
        """Request log start and log end; None where that fails."""

        def both(found: list[tuple[int, int] | ApiError]) -> tuple[int, int] | None:
            start, end = found
            if isinstance(start, ApiError) or isinstance(end, ApiError):
                return None
            return start[0], end[0]

        return gather([self._offset(EARLIEST), self._offset(LATEST)]).map(both)

    def starts(self) -> Pending[LeaderStarts | ApiError]:
        """Request log start and local log start.

        The log start comes first: it only grows, and is not above the local one.
        """

        def both(found: list[tuple[int, int] | ApiError]) -> LeaderStarts | ApiError:
            start, local = found
            if isinstance(start, ApiError):
                return start
            return local if isinstance(local, ApiError) else LeaderStarts(start[0], *local)

        return gather([self._offset(EARLIEST), self._offset(EARLIEST_LOCAL)]).map(both)

    def epoch_end(self, epoch: int) -> Pending[EpochEnd | ApiError]:
        """Request the end of the largest epoch up to this one."""
        followed = self._followed
        wanted = epochs_wire.OffsetForLeaderPartition(
            partition=followed.key[1],
            current_leader_epoch=followed.leader_epoch,
            leader_epoch=epoch,
        )
        topic = epochs_wire.OffsetForLeaderTopic(
            topic=followed.partition.topic, partitions=(wanted,)
        )
        request = epochs_wire.OffsetForLeaderEpochRequest(replica_id=self._node_id, topics=(topic,))
        answer = self._sender().send(request, EPOCH_END_VERSION, timeout_ms=self._timeout_ms)
        return answer.map(_epoch_end)

    def _offset(self, which: int) -> Pending[tuple[int, int] | ApiError]:
        followed = self._followed
        wanted = offsets_wire.ListOffsetsPartition(
            partition_index=followed.key[1],
            current_leader_epoch=followed.leader_epoch,
            timestamp=which,
        )
        topic = offsets_wire.ListOffsetsTopic(name=followed.partition.topic, partitions=(wanted,))
        request = offsets_wire.ListOffsetsRequest(replica_id=self._node_id, topics=(topic,))
        answer = self._sender().send(request, LIST_OFFSETS_VERSION, timeout_ms=self._timeout_ms)
        return answer.map(_listed_offset)


def _listed_offset(
    response: offsets_wire.ListOffsetsResponse | ApiError,
) -> tuple[int, int] | ApiError:
    """Return the single offset of a response and its leader epoch."""
    if isinstance(response, ApiError):
        return response
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return _malformed("ListOffsets")
    found = response.topics[0].partitions[0]
    if found.error_code:
        return ApiError(error_of(found.error_code), error_name(found.error_code))
    if found.offset < 0:
        return _malformed("ListOffsets")
    return found.offset, found.leader_epoch


def _epoch_end(
    response: epochs_wire.OffsetForLeaderEpochResponse | ApiError,
) -> EpochEnd | ApiError:
    if isinstance(response, ApiError):
        return response
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return _malformed("OffsetForLeaderEpoch")
    found = response.topics[0].partitions[0]
    if found.error_code:
        return ApiError(error_of(found.error_code), error_name(found.error_code))
    return EpochEnd(found.leader_epoch, found.end_offset)


def _malformed(api: str) -> ApiError:
    return ApiError(Error.UNKNOWN_SERVER_ERROR, f"the response of {api} lacks the partition")
