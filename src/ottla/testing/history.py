"""What happened in a simulated cluster, as plain values: the only thing that checkers look at.

Three kinds of witnesses tell the story. Clients tell what they sent, what they were told and what
they read. Nodes tell what they acknowledged, who led, which metadata they took for committed and
what it made of their image. At the end, the logs of all replicas are read once.

Times are virtual milliseconds since the start of the history. A restarted node is a further life.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.testing.history_groups import GroupHistory
from ottla.testing.history_log import LogEvent, ReplicaLog
from ottla.testing.history_nodes import (
    EpochSeen,
    LeftOver,
    MemberSeen,
    ReplayCompared,
    RequestHeld,
    StartRefused,
    Unfenced,
)
from ottla.testing.history_topics import Promise, Trim

ACKS_ALL = -1

TopicPartition = tuple[Uuid, int]
"""Topic id and partition number: a name may mean another topic later."""


class Outcome(Enum):
    """How a write ended for its client."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """Refused for certain: no broker keeps it."""
    UNKNOWN = "unknown"
    """Given up after some try that may have been done."""


class Write(NamedTuple):
    """One batch from a producer, from the first try to the end of the last."""

    client: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    """Unique in the whole history."""
    number: int
    """The place in the order in which this client first sent to this partition."""
    outcome: Outcome
    offset: int = -1
    """Of the first record, where it was acknowledged; -1 also where the broker knew only that it
    has the batch already."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch; None = not idempotent."""
    sent_ms: int = 0
    ended_ms: int = 0
    node: int = -1
    tries: int = 1
    made_ms: int = -1
    """The timestamp of its records."""
    acks: int = -1
    keys: tuple[bytes, ...] = ()
    """Of each record; empty = none has one."""
    tombstones: tuple[bool, ...] = ()
    """Whether each record is one: then its value stands in a header. Empty = none is."""


class Read(NamedTuple):
    """A record that a consumer was given."""

    client: str
    partition: TopicPartition
    offset: int
    value: bytes
    at_ms: int = 0
    node: int = -1


class Skipped(NamedTuple):
    """Offsets that a consumer was moved over: [first, next).

    Fields: `told`: a leader said that `first` is out of range, and a leader named `next` and `end`
            as the log's start and end afterwards. `end` -1 = the consumer did not ask.
    """

    client: str
    partition: TopicPartition
    first: int
    next: int
    at_ms: int = 0
    was_reset: bool = False
    end: int = -1


class Watermark(NamedTuple):
    """How far a client was told that a partition goes.

    Fields: `epoch`: the leader epoch that the teller was in, where it is known. `asked`: "fetch"
            or "list_offsets".
    """

    client: str
    partition: TopicPartition
    offset: int
    api: str
    node: int = -1
    epoch: int = -1
    log_start: int = -1
    at_ms: int = 0


class Acknowledgement(NamedTuple):
    """A leader's word, as the node gave it: this batch is kept."""

    node: int
    partition: TopicPartition
    epoch: int
    offset: int
    crc: int
    at_ms: int = 0


class LeaderTerm(NamedTuple):
    """A node that began to lead; `partition` None = the quorum of controllers."""

    node: int
    partition: TopicPartition | None
    epoch: int
    at_ms: int = 0


class Committed(NamedTuple):
    """A metadata record as a node took it for committed."""

    node: int
    incarnation: int
    offset: int
    epoch: int
    record: str
    at_ms: int = 0


class ImageSeen(NamedTuple):
    """What a node's committed metadata amounts to at an offset."""

    node: int
    offset: int
    fingerprint: str
    at_ms: int = 0


class PartitionSeen(NamedTuple):
    """A partition as one committed metadata record left it, in the order of the log."""

    partition: TopicPartition
    offset: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    unclean: bool = False
    """An election outside the in-sync replicas was asked for, or configured."""
    at_ms: int = 0


class LogSeen(NamedTuple):
    """One replica's log at the end of the history."""

    node: int
    partition: TopicPartition
    start: int
    high_watermark: int
    values: Mapping[int, bytes]
    """By offset, up to the log's end."""


class TopicAcknowledged(NamedTuple):
    """An administrator was told that a topic is created, or deleted."""

    topic_id: Uuid
    name: str
    is_deletion: bool = False
    at_ms: int = 0


class TopicSeen(NamedTuple):
    """A topic is there from now on, or is not, in the cluster's metadata or as a node knows it.

    Fields: `node`, `incarnation`: who knows it so; -1 = the metadata itself. `offset`: how far the
            metadata was then, -1 = this node does not count by the cluster's offsets.
    """

    topic_id: Uuid
    is_there: bool
    node: int = -1
    incarnation: int = 0
    offset: int = -1
    at_ms: int = 0


class ReplicaConfirmed(NamedTuple):
    """The ledger of deletions says that a replica is gone; `left`: what its broker had of it at
    that moment: folders, also those that a loss of power would bring back, or what it serves."""

    node: int
    partition: TopicPartition
    left: tuple[str, ...] = ()
    at_ms: int = 0


class PartitionDirAppeared(NamedTuple):
    """A disk holds a folder of a replica under a name that a start would load, or keep."""

    node: int
    partition: TopicPartition
    name: str
    at_ms: int = 0


class ReplicaSetAside(NamedTuple):
    """A node took a replica out of service: no folder of it has its proper name any more.

    Fields: `in_sync`: the metadata had it in sync at that moment, and its topic was not on its
            way out. `assigned`: the metadata had it on that node, in sync or not, its topic was not
            on its way out, and the node itself knew no better.
    """

    node: int
    partition: TopicPartition
    in_sync: bool = False
    assigned: bool = False
    at_ms: int = 0


class Progress(NamedTuple):
    """A write, or a change of metadata, that succeeded after healing."""

    what: str
    at_ms: int = 0


@dataclass(slots=True)
class History:
    """All of one run. What a kind of witness did not say is empty.

    Fields: `deleted`: topics whose deletion was asked for: their records may go at any time.
            `expected`: what must show life again after `healed_ms`. `topics`: those that the
            cluster has in the end, None = nobody looked. `receipts`: topics whose deletion the
            ledger calls finished in the end, None = there is no ledger; `deletions_left`: what it
            has besides, in words; `partition_dirs_left`: those of replicas that it calls deleted.
    """

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    watermarks: list[Watermark] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    leader_terms: list[LeaderTerm] = field(default_factory=list)
    metadata: list[Committed] = field(default_factory=list)
    images: list[ImageSeen] = field(default_factory=list)
    partitions: list[PartitionSeen] = field(default_factory=list)
    logs: list[LogSeen] = field(default_factory=list)
    replica_logs: list[ReplicaLog] = field(default_factory=list)
    log_events: list[LogEvent] = field(default_factory=list)
    topics_acknowledged: list[TopicAcknowledged] = field(default_factory=list)
    topics: set[Uuid] | None = None
    topics_seen: list[TopicSeen] = field(default_factory=list)
    confirmed: list[ReplicaConfirmed] = field(default_factory=list)
    partition_dirs: list[PartitionDirAppeared] = field(default_factory=list)
    set_aside: list[ReplicaSetAside] = field(default_factory=list)
    receipts: set[Uuid] | None = None
    deletions_left: list[str] = field(default_factory=list)
    partition_dirs_left: list[str] = field(default_factory=list)
    deleted: set[Uuid] = field(default_factory=set)
    expected: list[str] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    unfenced: list[tuple[int, str]] = field(default_factory=list)
    """(time, text) of what a node's own assertions refused."""
    requests_held: list[RequestHeld] = field(default_factory=list)
    replays: list[ReplayCompared] = field(default_factory=list)
    members: list[MemberSeen] = field(default_factory=list)
    epochs_seen: list[EpochSeen] = field(default_factory=list)
    left_over: list[LeftOver] = field(default_factory=list)
    unfenced_brokers: list[Unfenced] = field(default_factory=list)
    starts_refused: list[StartRefused] = field(default_factory=list)
    promises: dict[Uuid, Promise] = field(default_factory=dict)
    """Of topics that promise less than to keep all."""
    losses: list[int] = field(default_factory=list)
    """When a broker's machine lost its power."""
    disks_failed: bool = False
    """A disk refused operations."""
    trims: list[Trim] = field(default_factory=list)
    groups: GroupHistory = field(default_factory=GroupHistory)
    healed_ms: int | None = None
    ended_ms: int = 0

    def acknowledged(self) -> list[Write]:
        """Return the writes of which clients were told that all in-sync replicas keep them."""
        return [
            each
            for each in self.writes
            if each.outcome is Outcome.ACKNOWLEDGED and each.acks == ACKS_ALL
        ]

    def leader_changes(self) -> int:
        """Return how often another node began to lead the quorum, or a partition."""
        last: dict[TopicPartition | None, int] = {}
        changes = 0
        for office in self.leader_terms:
            before = last.get(office.partition)
            changes += before is not None and before != office.node
            last[office.partition] = office.node
        return changes

    def controller_changes(self) -> int:
        """Return how often another node began to lead the quorum."""
        nodes = [office.node for office in self.leader_terms if office.partition is None]
        return sum(before != after for before, after in pairwise(nodes))
