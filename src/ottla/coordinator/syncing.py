"""SyncGroup: the leader's assignment is stored, then given to every member.

Source: the classic part of Kafka's GroupMetadataManager; KIP-559 (protocol named by the client).
"""

from ottla.base.errors import Error
from ottla.base.pending import Pending, completed
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import Event, State
from ottla.coordinator.member import Member
from ottla.coordinator.rebalancing import (
    cancel_sync_timer,
    group_fact,
    prepare,
    refuse_assignment,
    touch,
)
from ottla.coordinator.shard import Shard
from ottla.coordinator.values import Sync, SyncResponse


def sync(shard: Shard, request: Sync) -> Pending[SyncResponse]:
    """Process a SyncGroup; a follower's response comes when the leader's assignment is stored."""
    if request.group_id == "":
        return completed(SyncResponse(error=Error.INVALID_GROUP_ID))
    group = shard.groups.get(request.group_id)
    if group is None or group.state is State.EMPTY:
        return completed(SyncResponse(error=Error.UNKNOWN_MEMBER_ID))
    if error := _check(group, request):
        return completed(SyncResponse(error=error))
    if group.state is State.PREPARING:
        return completed(SyncResponse(error=Error.REBALANCE_IN_PROGRESS))
    member = group.members[request.member_id]
    group.pending_sync.discard(request.member_id)
    if not group.pending_sync:
        cancel_sync_timer(group)
    if group.state is State.STABLE:
        return _when_loaded(shard, group.sync_response(member))
    if group.leader_id == request.member_id:
        return _store(shard, group, member, request)
    pending: Pending[SyncResponse] = Pending()
    group.set_awaiting_sync(member, pending)
    return pending


def _when_loaded(shard: Shard, response: SyncResponse) -> Pending[SyncResponse]:
    """Return an assignment that may come from the log, once the log is replicated."""
    return shard.loaded().map(lambda error: SyncResponse(error=error) if error else response)


def _check(group: Group, request: Sync) -> Error:
    if error := group.check_member(request.member_id, request.instance_id):
        return error
    if request.generation != group.generation:
        return Error.ILLEGAL_GENERATION
    named = (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    )
    # Versions before 5 name neither.
    if any(requested is not None and requested != response for requested, response in named):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    return Error.NONE


def _store(shard: Shard, group: Group, leader: Member, request: Sync) -> Pending[SyncResponse]:
    """Write the generation with its assignments; members not named get an empty one.

    A leader that has lost its connection may assign again before that is replicated, and not the
    same, as a topic may have more partitions by then. Its last assignment counts, as in the log.

    Where the write completes at once, as with one replica, the leader's response is returned
    directly, without the outbox's timer: followers that come later do not wait for one either.
    """
    assignments = dict(request.assignments)
    pending: Pending[SyncResponse] = Pending()

    def stored(error: Error) -> None:
        # Else the leader has assigned again, or the group has begun to rebalance meanwhile: its
        # members have the error.
        if leader.awaiting_sync is pending:
            conclude(error)

    def conclude(error: Error) -> None:
        if error:
            refuse_assignment(shard, group, error)
            prepare(shard, group, f"storing the assignment failed: {error.name}")
            return
        group.become(Event.LEADER_SYNC, shard.clock.now_ms())
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if group.complete_sync(member, group.sync_response(member)):
                # Its session may have passed while its request stood for heartbeats.
                touch(shard, group, member)

    group.set_awaiting_sync(leader, pending)
    written = shard.write([group_fact(group, assignments)])
    if not written.done or leader.awaiting_sync is not pending:
        written.then(stored)
        return pending
    leader.awaiting_sync = None
    touch(shard, group, leader)
    conclude(written.value)
    if written.value:
        return completed(SyncResponse(error=written.value))
    return completed(group.sync_response(leader))
