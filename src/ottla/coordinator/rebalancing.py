"""Rebalances: a group's way to its next generation, the timers of rebalance timeouts, and sessions.

Source: the classic part of Kafka's GroupMetadataManager; KIP-134 (initial delay).
"""

from functools import partial

from ottla.base.errors import Error
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import NAMES, Event, State
from ottla.coordinator.member import Member
from ottla.coordinator.records import GroupFact, GroupMetadataValue, MemberMetadata
from ottla.coordinator.shard import Shard
from ottla.coordinator.values import SyncResponse

SAVE_RETRY_MS = 1_000
"""How soon to retry the write that a group is empty; no client would."""


def rebalance_or_complete(shard: Shard, group: Group, reason: str) -> None:
    """Begin a rebalance; during one, complete its join phase if all members have joined."""
    if group.can(Event.REBALANCE):
        prepare(shard, group, reason)
    else:
        complete_if_all_joined(shard, group)


def prepare(shard: Shard, group: Group, reason: str) -> None:
    """Begin a rebalance: all members have to join again.

    The first rebalance of a group waits for a while even with all members joined, since more
    of a starting application's members are likely to follow.
    """
    if group.state is State.COMPLETING:
        refuse_assignment(shard, group, Error.REBALANCE_IN_PROGRESS)
    cancel_sync_timer(group)
    group.pending_sync.clear()
    is_first = group.state is State.EMPTY
    shard.log_event(
        f"preparing to rebalance group {group.group_id} in state {NAMES[group.state]},"
        f" generation {group.generation}: {reason}"
    )
    group.become(Event.REBALANCE, shard.clock.now_ms())
    if is_first:
        delay = shard.config.initial_rebalance_delay_ms
        _delay_first(shard, group, delay, max(group.rebalance_timeout_ms - delay, 0))
    elif group.all_joined:
        complete(shard, group)
    else:
        _set_join_timer(shard, group)


def complete_if_all_joined(shard: Shard, group: Group) -> None:
    """Complete the join phase if all members have joined; a first rebalance waits for its delay."""
    if group.state is not State.PREPARING or group.previous_state is State.EMPTY:
        return
    if group.all_joined:
        complete(shard, group)


def complete(shard: Shard, group: Group) -> None:
    """Complete the join phase: members that did not join are removed, but static ones (KIP-345)."""
    _cancel_join_timer(group)
    for member in list(group.members.values()):
        if member.awaiting_join is None and member.instance_id is None:
            group.remove(member.member_id)
    if not group.elect_joined_leader() and group.members:
        # Only absent static members are left: their sessions decide.
        _set_join_timer(shard, group)
        return
    group.start_generation(shard.clock.now_ms())
    group.new_member_added = False
    count = len(group.members)
    shard.log_event(
        f"stabilized group {group.group_id}, generation {group.generation}, with {count} members"
    )
    if not group.members:
        _save_empty(shard, group)
        return
    for member in list(group.members.values()):
        group.complete_join(member, group.join_response(member.member_id))
        touch(shard, group, member)
        member.is_new = False
    group.sync_timer = shard.timers.at(
        shard.clock.monotonic_ms() + group.rebalance_timeout_ms,
        partial(_expire_sync, shard, group, group.generation),
    )


def _save_empty(shard: Shard, group: Group) -> None:
    """Write that the group is empty, and retry where that is refused.

    Until then a failover restores the last generation, whose members then time out.
    """
    if group.state is not State.EMPTY:
        return
    stored = shard.write([group_fact(group)])
    if stored.done and stored.value:
        group.join_timer = shard.timers.at(
            shard.clock.monotonic_ms() + SAVE_RETRY_MS, partial(_save_empty, shard, group)
        )


def group_fact(group: Group, assignments: dict[str, bytes] | None = None) -> GroupFact:
    """Return the record of the group's generation, with these assignments or its members' own."""
    name = group.protocol_name
    members = tuple(
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=b"" if name is None else member.metadata(name),
            assignment=(
                member.assignment if assignments is None else assignments.get(member.member_id, b"")
            ),
        )
        for member in group.members.values()
    )
    return GroupFact(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=name,
            leader=group.leader_id,
            current_state_timestamp=-1 if group.since_ms is None else group.since_ms,
            members=members,
        ),
    )


# --- the join phase's timers ----------------------------------------------------------------


def _delay_first(shard: Shard, group: Group, delay_ms: int, remaining_ms: int) -> None:
    _cancel_join_timer(group)
    group.join_timer = shard.timers.at(
        shard.clock.monotonic_ms() + delay_ms,
        partial(_first_delay_over, shard, group, delay_ms, remaining_ms),
    )


def _first_delay_over(shard: Shard, group: Group, delay_ms: int, remaining_ms: int) -> None:
    """Wait once more where a member joined meanwhile and the rebalance timeout allows it."""
    if not group.new_member_added or remaining_ms == 0:
        complete(shard, group)
        return
    group.new_member_added = False
    next_delay_ms = min(shard.config.initial_rebalance_delay_ms, remaining_ms)
    _delay_first(shard, group, next_delay_ms, max(remaining_ms - delay_ms, 0))


def _set_join_timer(shard: Shard, group: Group) -> None:
    _cancel_join_timer(group)
    group.join_timer = shard.timers.at(
        shard.clock.monotonic_ms() + group.rebalance_timeout_ms, partial(complete, shard, group)
    )


def _cancel_join_timer(group: Group) -> None:
    if group.join_timer is not None:
        group.join_timer.cancel()
        group.join_timer = None


# --- the sync phase -------------------------------------------------------------------------


def refuse_assignment(shard: Shard, group: Group, error: Error) -> None:
    """Clear the assignments of a generation that will not become stable."""
    assert group.state is State.COMPLETING
    for member in group.members.values():
        member.assignment = b""
        if group.complete_sync(member, SyncResponse(error=error)):
            touch(shard, group, member)


def cancel_sync_timer(group: Group) -> None:
    """Stop waiting for members that have not sent SyncGroup."""
    if group.sync_timer is not None:
        group.sync_timer.cancel()
        group.sync_timer = None


def _expire_sync(shard: Shard, group: Group, generation: int) -> None:
    """Remove the members that joined a generation but sent no SyncGroup."""
    group.sync_timer = None
    if group.generation != generation or group.state not in (State.COMPLETING, State.STABLE):
        return
    if not group.pending_sync:
        return
    expired = sorted(group.pending_sync)
    for member_id in expired:
        group.remove(member_id)
    prepare(shard, group, f"{', '.join(expired)} sent no SyncGroup within the rebalance timeout")


# --- sessions -------------------------------------------------------------------------------


def touch(shard: Shard, group: Group, member: Member, timeout_ms: int | None = None) -> None:
    """Restart a member's session, from now.

    Most heartbeats only move the deadline; the timer checks it when it fires.
    """
    ends_ms = shard.clock.monotonic_ms() + (
        member.session_timeout_ms if timeout_ms is None else timeout_ms
    )
    member.session_ends_ms = ends_ms
    timer = member.session_timer
    if timer is not None:
        if timer.at_ms <= ends_ms:
            return
        timer.cancel()
    member.session_timer = shard.timers.at(ends_ms, partial(_check_session, shard, group, member))


def _check_session(shard: Shard, group: Group, member: Member) -> None:
    timer, member.session_timer = member.session_timer, None
    assert timer is not None
    if timer.at_ms < member.session_ends_ms:
        member.session_timer = shard.timers.at(
            member.session_ends_ms, partial(_check_session, shard, group, member)
        )
        return
    if member.outlives_session:
        return  # The response to its pending request begins a new session.
    group.remove(member.member_id)
    if group.state in (State.STABLE, State.COMPLETING):
        prepare(shard, group, f"the session of {member.member_id} expired")
    else:
        complete_if_all_joined(shard, group)


def forget_pending(shard: Shard, group: Group, member_id: str) -> None:
    """Remove an id that was given out and never used."""
    group.forget_pending(member_id)
    complete_if_all_joined(shard, group)
