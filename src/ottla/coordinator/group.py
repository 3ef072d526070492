"""A classic group: its members, its generation and the requests that wait for them.

Only what needs no clock, log or timers; the rules of joining and of rebalancing are in
`joining` and `rebalancing`. Members stay in the order in which they joined, so that every
choice among them (a leader, a protocol with equal votes) replays exactly.

Source: Kafka's ClassicGroup.
"""

from collections import Counter
from collections.abc import Iterable

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.base.timers import Timer
from ottla.coordinator.group_states import NAMES, Event, State, next_state
from ottla.coordinator.member import MEMBER_BYTES, Member, MembersMemory
from ottla.coordinator.outbox import Outbox
from ottla.coordinator.subscription import CONSUMER_PROTOCOL, subscribed_topics
from ottla.coordinator.values import (
    NO_MEMBER,
    GroupView,
    JoinedMember,
    JoinResponse,
    Protocols,
    SyncResponse,
)


class Group:
    """A classic group, or a "simple" one that only has offsets (no protocol type, no member).

    Fields: `since_ms`: wall clock of the last transition; None where no record has it.
            `pending_members`: ids given out but not yet joined with (KIP-394), with the timer
            that removes each.
            `pending_sync`: members of this generation that have not sent SyncGroup.
            `subscribed_topics`: of all members; None where they cannot be known.
            `new_member_added`: a member joined during the initial rebalance delay.
    """

    def __init__(self, group_id: str, outbox: Outbox, memory: MembersMemory) -> None:
        self.group_id = group_id
        self._outbox = outbox
        self._memory = memory
        self._counted_bytes = 0
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.since_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timer] = {}
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self._awaiting_join_count = 0
        self._support: Counter[str] = Counter()

    # --- state ------------------------------------------------------------------------------

    def become(self, event: Event, now_ms: int) -> None:
        """Take the transition; an illegal one is a bug of the caller."""
        state = next_state(self.state, event)
        assert state is not None, f"{event} of a group in state {self.state}"
        self.previous_state, self.state = self.state, state
        self.since_ms = now_ms

    def can(self, event: Event) -> bool:
        """Tell whether the event is legal now."""
        return next_state(self.state, event) is not None

    def start_generation(self, now_ms: int) -> None:
        """Begin the next generation, with the members that joined for it."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.become(Event.ALL_JOINED if self.members else Event.NONE_JOINED, now_ms)
        self.refresh_subscription()
        self.pending_sync = set(self.members)

    def end(self, event: Event, now_ms: int) -> None:
        """Become dead, and cancel all timers of the group."""
        self.become(event, now_ms)
        timers = [self.join_timer, self.sync_timer, *self.pending_members.values()]
        timers += [member.session_timer for member in self.members.values()]
        for timer in timers:
            if timer is not None:
                timer.cancel()
        self.pending_members.clear()
        self.release_memory()

    def release_memory(self) -> None:
        """Stop counting the group's members: it is dropped."""
        self._count_bytes(-self._counted_bytes)

    def _count_bytes(self, count: int) -> None:
        self._counted_bytes += count
        self._memory.used_bytes += count

    # --- members ----------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member whose protocols the group supports; the first one sets the protocol type."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_support(member, 1)
        self.forget_pending(member.member_id)

    def add_pending(self, member_id: str, timer: Timer) -> None:
        """Add an id that was given out to join with, until `timer` removes it (KIP-394)."""
        self.pending_members[member_id] = timer
        self._count_bytes(MEMBER_BYTES + len(member_id))

    def forget_pending(self, member_id: str) -> None:
        """Remove an id that was given out, if it is one."""
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self._count_bytes(-MEMBER_BYTES - len(member_id))

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; its pending requests get UNKNOWN_MEMBER_ID, its timers are cancelled.

        A live client joins again on that error. If the leader is removed, the oldest remaining
        member becomes the leader.
        """
        self.forget_pending(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.get(member_id)
        if member is None:
            return None
        self.complete_join(member, JoinResponse(error=Error.UNKNOWN_MEMBER_ID))
        self.complete_sync(member, SyncResponse(error=Error.UNKNOWN_MEMBER_ID))
        del self.members[member_id]
        self._count_support(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if member.session_timer is not None:
            member.session_timer.cancel()
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> Member:
        """Give a static member another id; pending requests of the old one are fenced."""
        assert member.instance_id is not None
        self.complete_join(
            member, JoinResponse(error=Error.FENCED_INSTANCE_ID, member_id=member.member_id)
        )
        self.complete_sync(member, SyncResponse(error=Error.FENCED_INSTANCE_ID))
        if member.session_timer is not None:
            member.session_timer.cancel()
        renamed = member.renamed(member_id)
        self._count_bytes(renamed.size_bytes - member.size_bytes)
        self.members = {
            each.member_id: each
            for each in (renamed if old is member else old for old in self.members.values())
        }
        self.static_members[member.instance_id] = member_id
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        if member.member_id in self.pending_sync:
            self.pending_sync.discard(member.member_id)
            self.pending_sync.add(member_id)
        return renamed

    def update(
        self,
        member: Member,
        protocols: Protocols,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Set what a joining member sends: its protocols and timeouts."""
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def check_member(self, member_id: str, instance_id: str | None) -> Error:
        """Return whether this is a member, and the current one of its instance id (KIP-345)."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return Error.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    # --- pending requests -------------------------------------------------------------------

    def set_awaiting_join(self, member: Member, response: Pending[JoinResponse]) -> None:
        """Keep a join request until the generation begins.

        An older one of the same member is a request that its client gave up; it is completed, or
        its connection would stay blocked behind it.
        """
        self.complete_join(member, JoinResponse(error=Error.REBALANCE_IN_PROGRESS))
        member.awaiting_join = response
        self._awaiting_join_count += 1

    def complete_join(self, member: Member, response: JoinResponse) -> bool:
        """Complete the member's pending join, if it has one."""
        pending, member.awaiting_join = member.awaiting_join, None
        if pending is None:
            return False
        self._awaiting_join_count -= 1
        self._outbox.post(pending, response)
        return True

    def set_awaiting_sync(self, member: Member, response: Pending[SyncResponse]) -> None:
        """Keep a sync request until the leader has assigned; an older one is completed."""
        self.complete_sync(member, SyncResponse(error=Error.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = response

    def complete_sync(self, member: Member, response: SyncResponse) -> bool:
        """Complete the member's pending sync, if it has one."""
        pending, member.awaiting_sync = member.awaiting_sync, None
        if pending is None:
            return False
        self._outbox.post(pending, response)
        return True

    @property
    def awaiting_join_count(self) -> int:
        """How many members wait for the next generation."""
        return self._awaiting_join_count

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined for the next generation."""
        return self._awaiting_join_count == len(self.members) and not self.pending_members

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is among the joined members; False where none joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = next(
            (each for each in self.members.values() if each.awaiting_join is not None), None
        )
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def join_response(self, member_id: str, *, skip_assignment: bool = False) -> JoinResponse:
        """Return the response to a member of the generation; the leader's has all members."""
        assert self.protocol_name is not None
        members: tuple[JoinedMember, ...] = ()
        if self.leader_id == member_id:
            members = tuple(each.joined(self.protocol_name) for each in self.members.values())
        return JoinResponse(
            member_id=member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or NO_MEMBER,
            skip_assignment=skip_assignment,
            members=members,
        )

    def sync_response(self, member: Member) -> SyncResponse:
        """Return the response with a member's assignment."""
        return SyncResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # --- protocols --------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Tell whether a member with these protocols could join with those that are there."""
        if self.state is State.EMPTY:
            return protocol_type != "" and any(True for _ in names)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._support[name] == everyone for name in names
        )

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all support."""
        everyone = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def _count_support(self, member: Member, change: int) -> None:
        self._count_bytes(change * member.size_bytes)
        for name, _ in member.protocols:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    # --- subscriptions ----------------------------------------------------------------------

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL

    def refresh_subscription(self) -> None:
        """Read again which topics the members subscribe to, under the selected protocol."""
        self.subscribed_topics = None
        if not self.is_consumer_group:
            return
        topics: frozenset[str] = frozenset()
        for member in self.members.values():
            assert self.protocol_name is not None
            subscribed = subscribed_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return
            topics |= subscribed
        self.subscribed_topics = topics

    def is_subscribed(self, topic: str) -> bool:
        """Tell whether a member may read the topic; True for unreadable consumer metadata."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    # --- views ------------------------------------------------------------------------------

    def view(self) -> GroupView:
        """Return what DescribeGroups shows: metadata and protocol only while stable."""
        stable = self.state is State.STABLE
        shown = self.protocol_name if stable else None
        return GroupView(
            group_id=self.group_id,
            state=NAMES[self.state],
            protocol_type=self.protocol_type or "",
            protocol_name=shown or "",
            members=tuple(member.view(shown) for member in self.members.values()),
        )
