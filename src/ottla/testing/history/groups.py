"""The part of a `History` about consumer groups and readers.

Each commit carries a unique token as its metadata, so that a fetched offset identifies the commit
that wrote it. Times are virtual milliseconds since the start of the history.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.testing.history.topics import Outcome, TopicPartition

NamedPartition = tuple[str, int]
"""Topic name and partition, as in assignments."""

NO_COMMIT = ""
"""The token where nothing is committed."""


class OffsetCommit(NamedTuple):
    """One partition of an OffsetCommit request, with its outcome.

    Fields: `outcome`: FAILED = rejected with `error`, UNKNOWN = perhaps stored.
            `stale`: sent on purpose under a previous member id or generation of its client.
    """

    client: str
    group: str
    member: str
    generation: int
    partition: TopicPartition
    offset: int
    token: str
    outcome: Outcome
    error: str = ""
    node: int = -1
    sent_ms: int = 0
    ended_ms: int = 0
    stale: bool = False
    epoch: int = -1
    """The leader epoch of the last record that was read."""


class OffsetFetch(NamedTuple):
    """One partition of an OffsetFetch response; offset -1 and no token = nothing is committed."""

    client: str
    group: str
    partition: TopicPartition
    offset: int
    token: str
    node: int = -1
    sent_ms: int = 0
    at_ms: int = 0
    epoch: int = -1


class MemberJoined(NamedTuple):
    """A JoinGroup response without an error.

    Fields: `members`: member id and group.instance.id of each, where this member leads.
    """

    client: str
    group: str
    member: str
    generation: int
    instance: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None], ...] = ()
    node: int = -1
    sent_ms: int = 0
    at_ms: int = 0


class AssignmentSent(NamedTuple):
    """The leader's SyncGroup request: the partitions of each member id."""

    client: str
    group: str
    member: str
    generation: int
    assignments: Mapping[str, tuple[NamedPartition, ...]]
    sent_ms: int = 0


class AssignmentReceived(NamedTuple):
    """A SyncGroup response without an error."""

    client: str
    group: str
    member: str
    generation: int
    partitions: tuple[NamedPartition, ...]
    instance: str | None = None
    node: int = -1
    sent_ms: int = 0
    at_ms: int = 0


class TimestampLookup(NamedTuple):
    """A ListOffsets response for a timestamp, and what a fetch at that offset found.

    Fields: `timestamp`, `found_timestamp`, `read_timestamp`: wall-clock milliseconds: asked for,
            as the response has it, of the first record that was read there (-1 = none was).
            `offset`: -1 = there is no such record. `epoch`: the leader epoch that was asked.
    """

    client: str
    partition: TopicPartition
    timestamp: int
    offset: int
    found_timestamp: int = -1
    read_timestamp: int = -1
    node: int = -1
    sent_ms: int = 0
    at_ms: int = 0
    epoch: int = -1


class FollowerRead(NamedTuple):
    """Records [first, next) from a preferred read replica (KIP-392)."""

    client: str
    partition: TopicPartition
    node: int
    first: int
    next: int
    high_watermark: int
    at_ms: int = 0


class OffsetsLogSeen(NamedTuple):
    """One replica's log of a partition of __consumer_offsets at the end of the history.

    Fields: `records`: key and value by offset. `offsets`: the offset, token and leader epoch that
            they replay to, by group and partition. `generations`: of each group.
    """

    node: int
    partition: int
    start: int
    end: int
    records: Mapping[int, tuple[bytes, bytes | None]]
    offsets: "Mapping[tuple[str, TopicPartition], tuple[int, str, int]]"
    generations: Mapping[str, int]


@dataclass(slots=True)
class GroupHistory:
    """What groups and readers of one run recorded.

    Fields: `high_watermarks`: how far leaders had committed each partition, as (time, offset),
            each higher than the one before.
    """

    commits: list[OffsetCommit] = field(default_factory=list)
    fetches: list[OffsetFetch] = field(default_factory=list)
    joins: list[MemberJoined] = field(default_factory=list)
    sent: list[AssignmentSent] = field(default_factory=list)
    received: list[AssignmentReceived] = field(default_factory=list)
    lookups: list[TimestampLookup] = field(default_factory=list)
    follower_reads: list[FollowerRead] = field(default_factory=list)
    high_watermarks: "dict[TopicPartition, list[tuple[int, int]]]" = field(default_factory=dict)
    logs: list[OffsetsLogSeen] = field(default_factory=list)
    offsets_partitions: "dict[str, TopicPartition]" = field(default_factory=dict)
    """The partition of __consumer_offsets of each group."""
    epochs_led: "dict[tuple[int, TopicPartition], list[tuple[int, int]]]" = field(
        default_factory=dict
    )
    """The epoch in which each node leads a partition, as its replica knows: (time, leader epoch),
    oldest first; -1 = it follows. Over ZooKeeper its image may know of a later one."""
