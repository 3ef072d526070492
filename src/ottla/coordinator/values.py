"""The coordinator's requests and responses, independent of wire versions.

Handlers translate requests into these and responses back. Every duration is in milliseconds.
"""

from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_OFFSET, NO_UUID, Uuid

NO_GENERATION = -1
NO_MEMBER = ""
"""The member id of a client without one; also the leader where there is none."""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""

PartitionKey = tuple[str, int]
"""A topic's name and a partition of it, as offsets are kept by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The broker's settings for groups, under Kafka's defaults.

    `new_member_join_ms` bounds how long a pending join of a member that never was in a
    generation keeps it alive: it has no heartbeats yet, and its client may be dead. `commit_ms`
    is how long a response waits for a write to be replicated.
    """

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    members_max: int = 2**31 - 1
    new_member_join_ms: int = 5 * 60_000
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offset_metadata_bytes_max: int = 4_096
    commit_ms: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request.

    `requires_member_id`: the client can join again with an id that it is given (v4, KIP-394).
    `can_skip_assignment`: a static leader understands that it must not assign (v9, KIP-814).
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str | None = None
    requires_member_id: bool = True
    can_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader's join response has it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse:
    """The response to a join; `members` only where this member leads."""

    error: Error = Error.NONE
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup request; only the leader's has `assignments`, by member id."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResponse:
    """The response to a sync: the member's assignment."""

    error: Error = Error.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One member of a LeaveGroup request: by member id, by instance id (an admin), or by both."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition of an OffsetCommit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An OffsetCommit request; generation -1 without a member id = not a member at all.

    `retention_ms`: the client's own retention (v2 to v4), None = the broker's.
    `knows_group_id_not_found`: it understands GROUP_ID_NOT_FOUND (v9).
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None
    knows_group_id_not_found: bool = True


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """One partition of an OffsetFetch response; -1 where nothing is committed.

    `topic_id`: of the topic that had the name when this was read; zero = there was none.
    """

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: Error = Error.NONE
    topic_id: Uuid = NO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group as DescribeGroups and ListGroups show it; `protocol_name` only while stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str = ""
    members: tuple[MemberView, ...] = ()
