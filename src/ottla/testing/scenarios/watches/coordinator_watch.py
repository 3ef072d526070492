"""Watches what group coordinators respond, beside the partition of __consumer_offsets below them.

- Only the leader of a group's partition responds for the group.
- OffsetFetch returns a commit that is replicated, and none older than the last one that was
  replicated when the request arrived: whatever the coordinator had loaded by then, or knew before.

Source: GroupCoordinatorService, CoordinatorRuntime.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, OFFSETS_TOPIC, Uuid
from ottla.broker.groups.group_service import positive_hash
from ottla.broker.partition import Partition
from ottla.coordinator.records import (
    BadRecord,
    OffsetCommitValue,
    OffsetFact,
    decode_fact,
    decode_key,
)
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import BatchHeader
from ottla.records.record import Record, read_records
from ottla.testing.history.history import History
from ottla.testing.history.nodes import COORDINATION, RuleBroken
from ottla.testing.scenarios.watches.awaited import Awaited
from ottla.testing.scenarios.watches.batch_reader import BatchReader
from ottla.testing.sim import Sim
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.node import SimNode
from ottla.wire.codec import decode
from ottla.wire.frames import RequestHeader, decode_request_header, decode_response
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

OFFSET_FETCH = 9
MESSAGES: dict[int, tuple[type[Any], type[Any]]] = {
    8: (OffsetCommitRequest, OffsetCommitResponse),
    OFFSET_FETCH: (OffsetFetchRequest, OffsetFetchResponse),
    11: (JoinGroupRequest, JoinGroupResponse),
    12: (HeartbeatRequest, HeartbeatResponse),
    13: (LeaveGroupRequest, LeaveGroupResponse),
    14: (SyncGroupRequest, SyncGroupResponse),
}
"""What members ask a coordinator, by API key."""

COORDINATES = frozenset(
    {
        Error.NONE,
        Error.ILLEGAL_GENERATION,
        Error.UNKNOWN_MEMBER_ID,
        Error.REBALANCE_IN_PROGRESS,
        Error.FENCED_INSTANCE_ID,
    }
)
"""What only who knows the group responds."""

FIRST_VERSION_WITH_TOPIC_IDS = 10

Key = tuple[str, str, int]
"""A group, a topic's name and a partition."""


class Commit(NamedTuple):
    """A commit in the log. `record_offset`: where; `value` None = the offset is deleted."""

    record_offset: int
    key: Key
    value: OffsetCommitValue | None


class OffsetsLog:
    """The commits in a partition of __consumer_offsets, as they are on a node's disk."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self._reader = BatchReader(_commits)

    def commits(self, log: PartitionLog) -> Iterator[Commit]:
        """Yield the commits, those of compacted ones that are left."""
        for segment in log.segments:
            path = segment.log.path  # A cleaned one may not have its last name yet.
            for _, commits in self._reader.batches(path, bytes(self._disk.data_of(path))):
                yield from commits


class Asked(NamedTuple):
    """A request to a coordinator, and the state of that as it arrived.

    Fields: `number`: of the partition of __consumer_offsets; `leads`: whether it led that;
            `commits`: the last replicated ones of the group, if it did.
    """

    header: RequestHeader
    group: str
    node: SimNode
    number: int
    leads: bool
    commits: dict[Key, Commit]


class CoordinatorWatch:
    """Writes wrong responses into a history."""

    def __init__(self, sim: Sim, history: History) -> None:
        self._sim = sim
        self._history = history
        self._logs = {node.id: OffsetsLog(node.disk) for node in sim.nodes.values()}
        self._awaited = Awaited[Asked]()
        sim.net.observe(self._arrived)
        sim.net.observe_responses(self._sent)

    def _sent(self, connection: int, frame: bytes) -> None:
        asked = self._awaited.take(connection, frame)
        if asked is not None:
            self._responded(asked, frame)

    def _arrived(self, what: str, _source: int, target: int, frame: bytes) -> None:
        if what == "request" and int.from_bytes(frame[4:6], "big") in MESSAGES:
            header, body_at = decode_request_header(memoryview(frame)[4:])
            request_type, _ = MESSAGES[header.api_key]
            request = decode(request_type, memoryview(frame)[4 + body_at :], header.api_version)
            asked = self._asked(self._sim.nodes[target], header, request)
            self._awaited.keep(self._sim.net.arriving_on, header.correlation_id, asked)

    def _asked(self, node: SimNode, header: RequestHeader, request: Any) -> Asked:
        fetches = header.api_key == OFFSET_FETCH
        (group,) = [each.group_id for each in request.groups] if fetches else [request.group_id]
        number = self._partition_of(group)
        led = _led(node, number)
        commits: dict[Key, Commit] = {}
        if fetches and led is not None and led.log is not None:
            for commit in self._replicated(node, led.log):
                if commit.key[0] == group:
                    commits[commit.key] = commit
        return Asked(header, group, node, number, led is not None, commits)

    def _partition_of(self, group: str) -> int:
        topic = self._sim.image.topics.by_name(OFFSETS_TOPIC)
        return 0 if topic is None else positive_hash(group) % len(topic.partitions)

    def _replicated(self, node: SimNode, log: PartitionLog) -> Iterator[Commit]:
        end = log.high_watermark
        commits = self._logs[node.id].commits(log)
        return takewhile(lambda commit: commit.record_offset < end, commits)

    # -- responses -----------------------------------------------------------------------------

    def _responded(self, asked: Asked, frame: bytes) -> None:
        node, header = asked.node, asked.header
        _, response_type = MESSAGES[header.api_key]
        _, response = decode_response(response_type, memoryview(frame)[4:], header.api_version)
        led = _led(node, asked.number)
        if not asked.leads:
            if led is None and _error(response) in COORDINATES:
                name = response_type.__name__.removesuffix("Response")
                self._broken(asked, f"responds to {name} of {asked.group}, and does not lead")
        elif header.api_key == OFFSET_FETCH and led is not None and led.log is not None:
            self._fetched(asked, led.log, response.groups[0])

    def _fetched(self, asked: Asked, log: PartitionLog, response: OffsetFetchResponseGroup) -> None:
        """Compare each offset with the commits that may be its."""
        assert asked.node.broker is not None
        topics = asked.node.broker.image.topics
        by_id = asked.header.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        since: dict[Key, list[Commit]] = {}
        for commit in self._replicated(asked.node, log):
            before = asked.commits.get(commit.key)
            if before is None or before.record_offset < commit.record_offset:
                since.setdefault(commit.key, []).append(commit)
        for topic in response.topics:
            found = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
            if found is None:
                continue
            for each in topic.partitions:
                key = (asked.group, found.name, each.partition_index)
                commits = [asked.commits.get(key), *since.get(key, ())]
                if not each.error_code and not any(
                    _is_of(commit, each, found.id) for commit in commits
                ):
                    self._broken(
                        asked,
                        f"returns the offset {each.committed_offset} of {asked.group} for "
                        f"{found.name}-{each.partition_index}, where {[*map(_offset, commits)]} "
                        "are replicated",
                    )

    def _broken(self, asked: Asked, reason: str) -> None:
        topic = self._sim.image.topics.by_name(OFFSETS_TOPIC)
        key = None if topic is None else (topic.id, asked.number)
        self._history.rules_broken.append(
            RuleBroken(COORDINATION, key, asked.node.id, reason, self._sim.now_ms)
        )


def _led(node: SimNode, number: int) -> Partition | None:
    """Return a partition of __consumer_offsets if a node leads it, as it knows.

    Its log may be offline: until another leader is elected the coordinator goes on, as Kafka's.
    """
    assert node.broker is not None
    try:
        found = node.broker.replicas.partition(OFFSETS_TOPIC, number)
    except ApiError:
        return None
    return found if found.is_leader else None


def _error(response: Any) -> int:
    """Return a response's error code; that of the first partition for OffsetCommit."""
    if isinstance(response, OffsetCommitResponse):
        return response.topics[0].partitions[0].error_code
    if isinstance(response, OffsetFetchResponse):
        return response.groups[0].error_code
    return int(response.error_code)


def _is_of(commit: Commit | None, found: OffsetFetchResponsePartitions, topic_id: Uuid) -> bool:
    """Tell whether an offset may be that of a commit. None, and -1: there is none."""
    value = None if commit is None else commit.value
    if value is None or value.topic_id not in (NO_UUID, topic_id):
        return found.committed_offset == -1
    committed = (value.offset, value.leader_epoch, value.metadata)
    return committed == (found.committed_offset, found.committed_leader_epoch, found.metadata)


def _offset(commit: Commit | None) -> int:
    return -1 if commit is None or commit.value is None else commit.value.offset


def _commits(data: bytes, at: int, header: BatchHeader) -> list[Commit]:
    """Return the commits of a batch."""
    records = () if header.is_control else read_records(data, at, header)
    return [each for each in map(_commit, records) if each is not None]


def _commit(record: Record) -> Commit | None:
    """Return the commit of a record; None = it is none."""
    try:
        key = None if record.key is None else decode_key(record.key)
        fact = None if key is None else decode_fact(key, record.value)
    except BadRecord:
        return None
    if not isinstance(fact, OffsetFact):
        return None
    return Commit(record.offset, (fact.group_id, fact.topic, fact.partition), fact.value)
