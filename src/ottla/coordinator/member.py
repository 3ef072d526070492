"""One member of a classic group: its id, its protocols, and its pending requests.

A member is changed only through its `Group`, which keeps counts over its members.

Source: Kafka's ClassicGroupMember; KIP-345 (static members).
"""

from collections.abc import Container

from ottla.base.pending import Pending
from ottla.base.timers import Timer
from ottla.coordinator.values import JoinedMember, JoinResponse, MemberView, Protocols, SyncResponse

MEMBER_BYTES = 1_024
"""About what a member takes besides its metadata and names, or an id that was given out."""


def bytes_of(member_id: str, client_id: str, protocols: Protocols) -> int:
    """Return about how many bytes of memory a member takes."""
    metadata = sum(len(name) + len(metadata) for name, metadata in protocols)
    return MEMBER_BYTES + len(member_id) + len(client_id) + metadata


class MembersMemory:
    """What the members of a shard's groups take. `used_bytes`: about."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class Member:
    """A member.

    Fields: `is_new`: it was in no generation yet, so it does not send heartbeats.
            `awaiting_join`, `awaiting_sync`: its pending request, None where it has none.
            `session_ends_ms`: monotonic; `session_timer` may fire earlier and is then re-armed.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_ends_ms",
        "session_timeout_ms",
        "session_timer",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.awaiting_join: Pending[JoinResponse] | None = None
        self.awaiting_sync: Pending[SyncResponse] | None = None
        self.session_ends_ms = 0
        self.session_timer: Timer | None = None

    def renamed(self, member_id: str) -> "Member":
        """Return the same member under another id, with no pending request and no timer."""
        return Member(
            member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
        )

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes of memory it takes."""
        return bytes_of(self.member_id, self.client_id, self.protocols)

    @property
    def outlives_session(self) -> bool:
        """Whether a pending request counts as heartbeats; a new member's join does not."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def metadata(self, protocol_name: str) -> bytes:
        """Return the member's metadata for this protocol; empty where it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate that the member prefers; it supports at least one."""
        return next(name for name, _ in self.protocols if name in candidates)

    def joined(self, protocol_name: str) -> JoinedMember:
        """Return the member as the leader's join response has it."""
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol_name))

    def view(self, protocol_name: str | None) -> MemberView:
        """Return what DescribeGroups shows; metadata only where a protocol is named."""
        return MemberView(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            assignment=self.assignment,
        )
