"""JoinGroup: which members are accepted, under which id, and whether a rebalance begins.

Source: the classic part of Kafka's GroupMetadataManager; KIP-345 (static members), KIP-394
(member id required), KIP-814 (a static leader that comes back does not assign again).
"""

from functools import partial

from ottla.base.errors import Error
from ottla.base.pending import Pending, completed
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import State
from ottla.coordinator.member import Member, bytes_of
from ottla.coordinator.rebalancing import (
    complete_if_all_joined,
    forget_pending,
    group_fact,
    prepare,
    rebalance_or_complete,
    touch,
)
from ottla.coordinator.records import fits
from ottla.coordinator.shard import MEMBER_ID_SUFFIX_LENGTH, Shard
from ottla.coordinator.values import NO_MEMBER, Join, JoinResponse


def join(shard: Shard, request: Join) -> Pending[JoinResponse]:
    """Process a JoinGroup; the response comes at once or when the generation begins."""
    config = shard.config
    if request.group_id == "" or not fits(request.group_id):
        return _refuse(Error.INVALID_GROUP_ID, request.member_id)
    if not _fits_record(request):
        return _refuse(Error.INVALID_REQUEST, request.member_id)
    if not (
        config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max
    ):
        return _refuse(Error.INVALID_SESSION_TIMEOUT, request.member_id)
    group = shard.groups.get(request.group_id)
    if group is None:
        if request.member_id != NO_MEMBER:
            return _refuse(Error.UNKNOWN_MEMBER_ID, request.member_id)
        group = Group(request.group_id, shard.outbox, shard.memory)
    if not _has_room(shard, group, request):
        group.remove(request.member_id)
        complete_if_all_joined(shard, group)
        return _refuse(Error.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
    if not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
        return _refuse(Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if not _has_memory(shard, group, request):
        return _refuse(Error.COORDINATOR_NOT_AVAILABLE, request.member_id)
    shard.groups[request.group_id] = group
    if request.member_id == NO_MEMBER:
        return _join_without_id(shard, group, request)
    return _join_with_id(shard, group, request)


def _refuse(error: Error, member_id: str) -> Pending[JoinResponse]:
    return completed(JoinResponse(error=error, member_id=member_id))


def _fits_record(request: Join) -> bool:
    """Tell whether the group's record can hold the member, with the id that it would be given.

    Otherwise the generation could not be written, and the other members would never be assigned.
    """
    prefix = request.client_id if request.instance_id is None else request.instance_id
    names = (name for name, _ in request.protocols)
    member_id = prefix + "-" * MEMBER_ID_SUFFIX_LENGTH
    return all(map(fits, (*names, request.protocol_type, request.client_id, member_id)))


def _has_room(shard: Shard, group: Group, request: Join) -> bool:
    """Tell whether the group accepts this member under `group.max.size`.

    A static member that comes back takes its own place; Kafka rejects it from a full group.
    While members join for a generation, those that have joined count, not all members: a
    group that is too large after the limit was lowered loses those that come last.
    """
    if group.state is State.EMPTY:
        return True
    member = _existing_member(group, request)
    if group.state is State.PREPARING:
        if member is not None and member.awaiting_join is not None:
            return True
        return group.awaiting_join_count < shard.config.members_max
    return member is not None or len(group.members) < shard.config.members_max


def _existing_member(group: Group, request: Join) -> Member | None:
    """Return the member that joins again, by its id or as a static one that has lost it."""
    member_id: str | None = request.member_id
    if member_id == NO_MEMBER and request.instance_id is not None:
        member_id = group.static_members.get(request.instance_id)
    return None if member_id is None else group.members.get(member_id)


def _has_memory(shard: Shard, group: Group, request: Join) -> bool:
    """Tell whether there is memory for a member; one that sends no more than before may stay.

    Kafka has no such limit. The error is retriable, as others may have left by then.
    """
    member = _existing_member(group, request)
    before = 0 if member is None else member.size_bytes
    added = bytes_of(request.member_id, request.client_id, request.protocols) - before
    return added <= 0 or added <= shard.memory_left()


# --- new members ----------------------------------------------------------------------------


def _join_without_id(shard: Shard, group: Group, request: Join) -> Pending[JoinResponse]:
    if request.instance_id is not None:
        member_id = shard.new_member_id(request.instance_id)
        holder = group.static_members.get(request.instance_id)
        if holder is None:
            return _add(shard, group, request, member_id)
        return _replace_static(shard, group, request, group.members[holder], member_id)
    member_id = shard.new_member_id(request.client_id)
    if not request.requires_member_id:
        return _add(shard, group, request, member_id)
    # Otherwise a client that dies now and comes back leaves a dead member in the rebalance.
    group.add_pending(
        member_id,
        shard.timers.at(
            shard.clock.monotonic_ms() + request.session_timeout_ms,
            partial(forget_pending, shard, group, member_id),
        ),
    )
    return _refuse(Error.MEMBER_ID_REQUIRED, member_id)


def _add(shard: Shard, group: Group, request: Join, member_id: str) -> Pending[JoinResponse]:
    member = Member(
        member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
    )
    member.is_new = True
    if group.state is State.PREPARING and group.previous_state is State.EMPTY:
        group.new_member_added = True
    pending: Pending[JoinResponse] = Pending()
    group.add(member, request.protocol_type)
    group.set_awaiting_join(member, pending)
    touch(shard, group, member, shard.config.new_member_join_ms)
    rebalance_or_complete(shard, group, _reason(member_id, "joins", request))
    return pending


# --- members that have an id ----------------------------------------------------------------


def _join_with_id(shard: Shard, group: Group, request: Join) -> Pending[JoinResponse]:
    member_id = request.member_id
    if member_id in group.pending_members and request.instance_id is None:
        return _add(shard, group, request, member_id)
    error = group.check_member(member_id, request.instance_id)
    if error:
        return _refuse(error, member_id)
    member = group.members[member_id]
    unchanged = member.protocols == request.protocols
    match group.state:
        case State.COMPLETING if unchanged:
            # Its join response was lost: repeat it.
            return completed(group.join_response(member_id))
        case State.STABLE if unchanged and group.leader_id != member_id:
            # A follower whose response was lost; the leader may have a reason to rebalance,
            # such as new partitions, which its metadata does not show.
            return _when_loaded(shard, group.join_response(member_id))
        case State.PREPARING | State.COMPLETING | State.STABLE:
            return _rejoin(shard, group, request, member)
        case _:
            return _refuse(Error.UNKNOWN_MEMBER_ID, member_id)


def _when_loaded(shard: Shard, response: JoinResponse) -> Pending[JoinResponse]:
    """Return a join response that may come from the log, once the log is replicated."""
    member_id = response.member_id
    return shard.loaded().map(
        lambda error: JoinResponse(error=error, member_id=member_id) if error else response
    )


def _rejoin(shard: Shard, group: Group, request: Join, member: Member) -> Pending[JoinResponse]:
    pending: Pending[JoinResponse] = Pending()
    _take_over(group, member, request)
    group.set_awaiting_join(member, pending)
    rebalance_or_complete(shard, group, _reason(member.member_id, "joins again", request))
    return pending


def _reason(member_id: str, action: str, request: Join) -> str:
    """Return who joins, and why if the client sent a reason (KIP-800)."""
    return f"{member_id} {action}: {request.reason or 'no reason given'}"


def _take_over(group: Group, member: Member, request: Join) -> None:
    group.update(
        member,
        request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )


# --- static members that come back ----------------------------------------------------------


def _replace_static(
    shard: Shard, group: Group, request: Join, old: Member, member_id: str
) -> Pending[JoinResponse]:
    """Let a restarted static member take its place; a user of the old id is fenced."""
    pending: Pending[JoinResponse] = Pending()
    leader_before = group.leader_id or NO_MEMBER
    member = group.rename(old, member_id)
    _take_over(group, member, request)
    group.set_awaiting_join(member, pending)
    touch(shard, group, member)
    reason = _reason(member_id, f"takes the place of {old.member_id}", request)
    if group.state is State.PREPARING:
        complete_if_all_joined(shard, group)
    elif group.state is State.COMPLETING:
        # The leader may have got the old id, and would assign to that.
        prepare(shard, group, reason)
    elif group.select_protocol() != group.protocol_name:
        prepare(shard, group, reason)
    else:
        _persist_replacement(shard, group, request, old, member, leader_before)
    return pending


def _persist_replacement(
    shard: Shard, group: Group, request: Join, old: Member, member: Member, leader_before: str
) -> None:
    """Write the new id; the generation stays, and the member gets its assignment by SyncGroup.

    A client that cannot skip the assignment gets its old id as the leader's id,
    or it would assign alone and the others would never get it.
    """
    generation = group.generation
    stored = shard.write([group_fact(group)])
    if stored.done and stored.value:
        group.complete_join(member, JoinResponse(error=stored.value))
        restored = group.rename(member, old.member_id)
        group.update(
            restored,
            old.protocols,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
        )
        touch(shard, group, restored)
        return

    def finish(error: Error) -> None:
        if group.members.get(member.member_id) is not member or group.generation != generation:
            return  # Its join was answered when it left or the next generation began.
        if member.awaiting_join is None or group.state is not State.STABLE:
            return
        if error:
            response = JoinResponse(error=error)
        elif request.can_skip_assignment:
            response = group.join_response(
                member.member_id, skip_assignment=group.leader_id == member.member_id
            )
        else:
            response = JoinResponse(
                member_id=member.member_id,
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=leader_before,
            )
        group.complete_join(member, response)
        touch(shard, group, member)

    stored.then(finish)
