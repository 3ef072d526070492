"""What happened in a simulated cluster, as plain values: the only input of checkers.

A history has three sources. Clients record what they sent, the responses they got and what they
read. Nodes are observed: what they acknowledged, who led, the metadata that they saw committed and
their images. At the end, the logs of all replicas are read once.

Times are virtual milliseconds since the start of the history. Each run of a node's process is an
incarnation, counted from 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.testing.history.groups import GroupHistory
from ottla.testing.history.log import LogEvent, ReplicaLog
from ottla.testing.history.nodes import (
    EpochSeen,
    LeftOver,
    MemberSeen,
    ReplayCompared,
    RequestHeld,
    RuleBroken,
    StartRefused,
    Unfenced,
)
from ottla.testing.history.tiers import TierHistory
from ottla.testing.history.topics import Outcome, Promise, TopicPartition, Trim
from ottla.testing.history.transactions import TransactionHistory

ACKS_ALL = -1


class Write(NamedTuple):
    """One batch from a producer, from the first attempt to the end of the last."""

    client: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    """Unique in the whole history."""
    number: int
    """Counts this client's batches for this partition, in the order of their first attempts."""
    outcome: Outcome
    offset: int = -1
    """Of the first record, if acknowledged; -1 also where the broker answered
    DUPLICATE_SEQUENCE_NUMBER without an offset."""
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
    """Whether each record is one: then its value is in a header. Empty = none is."""


class Read(NamedTuple):
    """A record that a consumer read. `epoch`: of the leader that answered; -1 = not known, or a
    follower has answered."""

    client: str
    partition: TopicPartition
    offset: int
    value: bytes
    at_ms: int = 0
    node: int = -1
    epoch: int = -1


class Skipped(NamedTuple):
    """Offsets that a consumer skipped: [first, next).

    Fields: `was_reset`: a leader answered OFFSET_OUT_OF_RANGE for `first`, and ListOffsets returned
            `next` and `end` as log start and end. `end` -1 = the consumer did not ask.
    """

    client: str
    partition: TopicPartition
    first: int
    next: int
    at_ms: int = 0
    was_reset: bool = False
    end: int = -1


class Watermark(NamedTuple):
    """The end of a partition, as a response to a client had it.

    Fields: `epoch`: the leader epoch of the broker that answered, -1 = not known. `api`: "fetch" or
            "list_offsets".
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
    """A leader acknowledged a batch; observed at the node."""

    node: int
    partition: TopicPartition
    epoch: int
    offset: int
    crc: int
    at_ms: int = 0


class LeaderTerm(NamedTuple):
    """A node became leader; `partition` None = of the controller quorum."""

    node: int
    partition: TopicPartition | None
    epoch: int
    at_ms: int = 0


class Committed(NamedTuple):
    """A metadata record, as a node saw it committed."""

    node: int
    incarnation: int
    offset: int
    epoch: int
    record: str
    at_ms: int = 0


class ImageSeen(NamedTuple):
    """A node's image at a metadata offset."""

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
    """An election outside the in-sync replicas was requested, or is configured."""
    inactive: tuple[int, ...] = ()
    """Of the in-sync replicas, brokers that were fenced, stopping or not registered."""
    at_ms: int = 0


class PowerLoss(NamedTuple):
    """A node's machine lost power, and what was not on its disk."""

    node: int
    at_ms: int


class LogSeen(NamedTuple):
    """One replica's log at the end of the history."""

    node: int
    partition: TopicPartition
    start: int
    high_watermark: int
    values: Mapping[int, bytes]
    """By offset, up to the log's end."""


class TopicAcknowledged(NamedTuple):
    """A topic's creation, or deletion, was acknowledged to the admin client."""

    topic_id: Uuid
    name: str
    is_deletion: bool = False
    at_ms: int = 0


class TopicSeen(NamedTuple):
    """A topic exists from now on, or no longer, in the cluster's metadata or in a node's image.

    Fields: `node`, `incarnation`: whose image; -1 = the metadata itself. `offset`: of the image,
            -1 = this node's image has no offset of the cluster's metadata.
    """

    topic_id: Uuid
    is_there: bool
    node: int = -1
    incarnation: int = 0
    offset: int = -1
    at_ms: int = 0


class ReplicaConfirmed(NamedTuple):
    """The deletion ledger lists a replica as deleted; `left`: what its broker had of it at that
    moment: partition directories, also those that a loss of power would restore, or a hosted
    partition."""

    node: int
    partition: TopicPartition
    left: tuple[str, ...] = ()
    at_ms: int = 0


class PartitionDirAppeared(NamedTuple):
    """A disk holds a partition directory under a name that a start would load, or keep."""

    node: int
    partition: TopicPartition
    name: str
    at_ms: int = 0


class ReplicaSetAside(NamedTuple):
    """A node took a replica out of service: none of its directories has its original name any more.

    Fields: `in_sync`: the metadata had it in sync at that moment, and its topic was not being
            deleted. `assigned`: both the metadata and the node's image assigned it to that node, in
            sync or not, and its topic was not being deleted.
    """

    node: int
    partition: TopicPartition
    in_sync: bool = False
    assigned: bool = False
    at_ms: int = 0


class Progress(NamedTuple):
    """A write, a read or a change of metadata that succeeded; see `History.expected`."""

    what: str
    at_ms: int = 0


@dataclass(slots=True)
class History:
    """All of one run. What was not recorded is empty.

    Fields: `deleted`: topics whose deletion was requested: their records may go at any time.
            `expected`: what must be in `progress` again after `healed_ms`. `topics`: those that
            exist in the end, None = not read. `receipts`: topics whose deletion is finished in the
            ledger in the end, None = there is no ledger; `deletions_left`: its other deletions, in
            words; `partition_dirs_left`: directories of replicas that it lists as deleted.
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
    """(time, text) of writes of topics' znodes by others than the active controller."""
    requests_held: list[RequestHeld] = field(default_factory=list)
    replays: list[ReplayCompared] = field(default_factory=list)
    members: list[MemberSeen] = field(default_factory=list)
    epochs_seen: list[EpochSeen] = field(default_factory=list)
    left_over: list[LeftOver] = field(default_factory=list)
    unfenced_brokers: list[Unfenced] = field(default_factory=list)
    rules_broken: list[RuleBroken] = field(default_factory=list)
    starts_refused: list[StartRefused] = field(default_factory=list)
    promises: dict[Uuid, Promise] = field(default_factory=dict)
    """Of topics that do not promise to keep everything."""
    losses: list[PowerLoss] = field(default_factory=list)
    disks_failed: set[int] = field(default_factory=set)
    """Nodes whose disks refused operations."""
    requests_repeated: bool = False
    """Some request was delivered twice."""
    trims: list[Trim] = field(default_factory=list)
    groups: GroupHistory = field(default_factory=GroupHistory)
    tiers: TierHistory = field(default_factory=TierHistory)
    transactions: TransactionHistory = field(default_factory=TransactionHistory)
    healed_ms: int | None = None
    ended_ms: int = 0

    def acknowledged(self) -> list[Write]:
        """Return the writes that were acknowledged with acks=all."""
        return [
            each
            for each in self.writes
            if each.outcome is Outcome.ACKNOWLEDGED and each.acks == ACKS_ALL
        ]

    def leader_changes(self) -> int:
        """Return how often the leader of the quorum, or of a partition, changed."""
        last: dict[TopicPartition | None, int] = {}
        changes = 0
        for term in self.leader_terms:
            before = last.get(term.partition)
            changes += before is not None and before != term.node
            last[term.partition] = term.node
        return changes

    def controller_changes(self) -> int:
        """Return how often the leader of the quorum changed."""
        nodes = [term.node for term in self.leader_terms if term.partition is None]
        return sum(before != after for before, after in pairwise(nodes))
